from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.schema.canonical import NotJson, canonical, parse

VECTORS = json.loads(Path(__file__).with_name("author_vectors.json").read_text())


@pytest.mark.parametrize("vector", VECTORS["canonical"], ids=lambda vector: vector["input"][:20])
def test_the_form_is_what_other_implementations_give(vector: dict[str, str]) -> None:
    assert canonical(parse(vector["input"].encode())).hex() == vector["utf8"]


@pytest.mark.parametrize(
    ("text", "form"),
    [
        (b"1e400", b"null"),
        (b"1" + b"0" * 400, b"null"),
        (b"-0.0", b"0"),
        (b"-12.50", b"-12.5"),
        (b"123456789012345683968", b"123456789012345680000"),
        (b"-9007199254740993", b"-9007199254740992"),
        (b"0.0000012", b"0.0000012"),
        (b"0.00000012", b"1.2e-7"),
        (b"999999999999999999999", b"1e+21"),
        (b'{"a":1,"a":2}', b'{"a":2}'),
        (b'"\\ud83d\\ude00 \\udc00"', '"😀 \\udc00"'.encode()),
    ],
)
def test_odd_numbers_keys_and_characters(text: bytes, form: bytes) -> None:
    assert canonical(parse(text)) == form


@pytest.mark.parametrize("text", [b"NaN", b"[Infinity]", b"{", b"", b"\xff", b"[" * 100_000])
def test_what_is_not_json_is_refused(text: bytes) -> None:
    with pytest.raises(NotJson):
        parse(text)


documents = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(documents)
def test_the_form_says_the_same_and_is_its_own_form(document: Any) -> None:
    form = canonical(document)
    assert json.loads(form, parse_int=float) == document
    assert canonical(parse(form)) == form
