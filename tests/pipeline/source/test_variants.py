from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from pyspark.sql.types import VariantType, VariantVal
from support.json_documents import documents

from strandline.pipeline.source.columns import variant, variants

DOCUMENTS = [
    "null", "true", "false", "0", "-1", "127", "128", "-32769", "2147483648", "9223372036854775807",
    "9223372036854775808", "12345678901234567890123456789012345678901", "1.5", "0.05", "-0.0", "1e5", "1E-3",
    "0.1234567890123456789", "0.000000000000000000000000000000000000001", '""', '"é"', json.dumps("x" * 63),
    json.dumps("x" * 64), "[]", "{}", '{"b":1,"a":{"b":[1,[2]]}}', json.dumps({f"k{n}": n for n in range(300)}),
    json.dumps(["abcdefg"] * 300), json.dumps({"k": "x" * 70_000}), json.dumps({"é": 1, "z": 2, "a": 3}),
]  # fmt: skip


@pytest.mark.parametrize("text", DOCUMENTS, ids=lambda text: text[:20])
def test_a_variant_is_the_very_bytes_that_spark_makes(text: str) -> None:
    made = VariantVal.parseJson(text)
    assert variant(text.encode()) == (made.value, made.metadata)


@settings(deadline=None)
@given(documents(["a", "b"]))
def test_whatever_json_holds(value: object) -> None:
    text = json.dumps(value, ensure_ascii=False)
    try:
        made = VariantVal.parseJson(text)
        text.encode()
    except (ValueError, OverflowError):
        return
    found = variant(text.encode())
    # Of the two that Spark has, the one in Python puts keys beyond the basic plane elsewhere than the one in Java.
    if max(map(ord, text)) <= 0xFFFF:
        assert found == (made.value, made.metadata)
    else:
        assert VariantVal(*found).toPython() == made.toPython()


def test_what_is_not_json_is_null() -> None:
    from pyspark.sql.pandas.types import to_arrow_type

    found = variants([b"1", b"nope", b"\xff", b"", b'{"a":1}'], to_arrow_type(VariantType()))
    assert [each is None for each in found.to_pylist()] == [False, True, True, True, False]
    found.validate(full=True)
