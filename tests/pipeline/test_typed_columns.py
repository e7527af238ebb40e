from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.pipeline.typed_columns import PayloadColumns, promote
from strandline.schema.registry import Registry

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": ["integer", "null"]},
        "height": {"type": "number"},
        "alive": {"type": "boolean"},
        "anything": {},
        "home": {"type": "object", "properties": {"city": {"type": "string"}, "odd-name": {"type": "integer"}}},
        "tags": {"type": "array", "items": {"type": "string"}},
        "points": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "number"}}}},
    },
    "required": ["name"],
}


def rows_of(columns: PayloadColumns, payloads: list[bytes], first: int = 1) -> list[dict[str, Any]]:
    arrays = columns.arrays(list(range(first, first + len(payloads))), payloads)
    batch = pa.record_batch(arrays, schema=columns.schema)
    batch.validate(full=True)
    return batch.to_pylist()


def test_properties_become_columns_of_their_types() -> None:
    columns = PayloadColumns(Registry.installed("people", PERSON))
    assert [(field.name, str(field.type)) for field in columns.schema] == [
        ("name", "string"),
        ("age", "int64"),
        ("height", "double"),
        ("alive", "bool"),
        ("anything", "string"),
        ("home", "struct<city: string, odd-name: int64>"),
        ("tags", "list<element: string>"),
        ("points", "list<element: struct<x: double>>"),
        ("_corrupt", "string"),
    ]
    full = (
        b'{"name":"Ann","age":3.0,"height":1,"alive":true,"anything":{"a":[1]},"home":{"city":"X","odd-name":7},'
        b'"tags":["a",null],"points":[{"x":1.5},{}],"more":1}'
    )
    nulls = dict.fromkeys(columns.schema.names)
    assert rows_of(columns, [full, b'{"name":"Bob"}']) == [
        {
            "name": "Ann", "age": 3, "height": 1.0, "alive": True, "anything": '{"a":[1]}',
            "home": {"city": "X", "odd-name": 7}, "tags": ["a", None], "points": [{"x": 1.5}, {"x": None}],
            "_corrupt": None,
        },
        nulls | {"name": "Bob"},
    ]  # fmt: skip


def test_what_does_not_fit_is_kept_as_text() -> None:
    columns = PayloadColumns(Registry.installed("people", PERSON))
    nulls = dict.fromkeys(columns.schema.names)
    bad = [b'{"name":1}', b"no json", b"[]", b'{"age":1.5}', b'{"age":9223372036854775808}', b"\xff", b"[" * 2000]
    assert rows_of(columns, bad) == [nulls | {"_corrupt": text.decode(errors="replace")} for text in bad]
    assert rows_of(columns, [b"null", b'{"name":"after"}'])[1]["name"] == "after"


def test_names_that_are_taken_or_differ_only_in_case_get_a_prefix() -> None:
    schema = {"type": "object", "properties": {"ts": {"type": "integer"}, "A": {}, "a": {}, "_corrupt": {}}}
    columns = PayloadColumns(Registry.installed("log", schema), taken=["log", "seq", "ts"])
    assert columns.schema.names == ["data_ts", "A", "data_a", "data__corrupt", "_corrupt"]
    assert rows_of(columns, [b'{"ts":5,"a":1,"A":"x","_corrupt":0}']) == [
        {"data_ts": 5, "A": '"x"', "data_a": "1", "data__corrupt": "0", "_corrupt": None}
    ]


def test_payloads_that_are_no_objects_are_one_column() -> None:
    numbers = PayloadColumns(Registry.installed("log", {"type": "number"}))
    assert rows_of(numbers, [b"1", b'"x"']) == [
        {"value": 1.0, "_corrupt": None},
        {"value": None, "_corrupt": '"x"'},
    ]
    anything = PayloadColumns(Registry.empty("log"))
    assert rows_of(anything, [b'{"a":1}']) == [{"value": '{"a":1}', "_corrupt": None}]


def evolved() -> Registry:
    """``name`` was called ``n`` up to the third record."""
    registry = Registry.installed("log", {"type": "object", "properties": {"n": {"type": "string"}}, "required": ["n"]})
    update = {
        "schema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
        "lens": {
            "apiVersion": "durable.lens/v1",
            "schema": "log",
            "from": 1,
            "to": 2,
            "ops": [{"op": "rename", "from": "/n", "to": "/name"}],
        },
    }
    return registry.update(msgspec.json.encode(update), next_sequence=3)


def test_older_records_are_promoted_and_those_that_cannot_be_are_told() -> None:
    registry = evolved()
    payloads = [b'{"n":"a"}', b'{"other":1}', b'{"n":"c"}', b'{"name":"d"}']
    assert promote(registry, [1, 2, 3, 4], payloads) == [b'{"name":"a"}', None, b'{"name":"c"}', b'{"name":"d"}']
    columns = PayloadColumns(registry)
    assert [(row["name"], row["_corrupt"]) for row in rows_of(columns, payloads)] == [
        ("a", None),
        (None, '{"other":1}'),
        ("c", None),
        ("d", None),
    ]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(list(PERSON["properties"])), inner),  # type: ignore[call-overload]
    max_leaves=8,
)


@given(st.lists(json_values, max_size=4))
def test_any_json_at_all_becomes_one_row(values: list[Any]) -> None:
    columns = PayloadColumns(Registry.installed("people", PERSON))
    payloads = [msgspec.json.encode(value) for value in values]
    rows = rows_of(columns, payloads)
    assert len(rows) == len(values)
    for value, row in zip(values, rows, strict=True):
        if row["_corrupt"] is None and isinstance(value, dict):
            assert row["name"] == value.get("name")


#: JSON as clients write it: numbers in all notations, escapes, white space, names twice, and things that are no JSON.
NUMBERS = """
    0 -0 1 1.0 -1.5 1e2 1E400 -1e-400 9223372036854775807 9223372036854775808 NaN 01 12345678901234567890123 0.1 5e-324
    1.7976931348623159e308 123456789.12345678901234567890"""
TEXTS = r""" "" "a" "\u0000" "\ud800" "\ud83d\ude00" "\/\b\n" "\x" "é" "\u00e9" "\" """
FITTING = """
    "name":"n" "age":5 "height":2 "height":1.5 "alive":true "anything":{"a":[1]} "home":{"city":"c"} "home":null
    "tags":["a",null] "tags":[] "points":[{"x":1},null,{}] "more":[{}] """
_numbers = st.sampled_from(NUMBERS.split())
_texts = st.sampled_from([*TEXTS.split(), '"a\nb"', '"\x7f"'])
_values = st.recursive(
    st.sampled_from(["null", "true", "false", "", "{", "]"]) | _numbers | _texts,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda each: f"[{','.join(each)}]")
        | st.lists(st.tuples(st.sampled_from(['"x"', '"city"', '"odd-name"', r'"n\u0061me"']), inner), max_size=3).map(
            lambda each: "{" + ",".join(f"{name}: {value}" for name, value in each) + "}"
        )
    ),
    max_leaves=6,
)
_fitting = st.sampled_from(FITTING.split())
_names = st.sampled_from([f'"{name}"' for name in (*PERSON["properties"], "more", r"na\u006de")])
_payloads = st.lists(_fitting | st.tuples(_names, _values).map(":".join), max_size=6).map(" ,\n".join)
_rows = (_payloads | st.lists(_fitting, unique=True).map(",".join)).map(lambda each: "{" + each + "}") | _values


@settings(max_examples=300)
@given(st.lists(_rows.map(str.encode) | st.binary(max_size=4), max_size=5))
def test_blocks_are_read_as_single_records_are(payloads: list[bytes]) -> None:
    columns = PayloadColumns(Registry.installed("people", PERSON))
    at_once = columns.arrays(range(1, len(payloads) + 1), payloads)
    one_by_one = columns._row_by_row(payloads, payloads)
    assert [each.to_pylist() for each in at_once] == [each.to_pylist() for each in one_by_one]
    for array, field in zip(at_once, columns.schema, strict=True):
        array.validate(full=True)
        assert array.type == field.type


def test_records_that_fit_are_parsed_at_once_and_others_only_slow_down_their_block(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("strandline.pipeline.typed_columns.BLOCK_ROWS", 2)
    slow: list[list[bytes]] = []
    real = PayloadColumns._row_by_row
    monkeypatch.setattr(
        PayloadColumns, "_row_by_row", lambda self, *rows: (slow.append(list(rows[0])), real(self, *rows))[1]
    )
    columns = PayloadColumns(Registry.installed("people", PERSON))
    payloads = [b'{"name":"a","tags":["x"]}', b'{"anything":1}', b'{"name":1}', b'{"name":"d"}', b"{}"]
    assert [row["name"] for row in rows_of(columns, payloads)] == ["a", None, None, "d", None]
    assert slow == [[b'{"name":1}', b'{"name":"d"}']]
