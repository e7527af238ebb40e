from __future__ import annotations

from typing import Any

import jsonschema_rs
from hypothesis import given
from hypothesis import strategies as st

from strandline.schema.inference import MAX_DEPTH, MAX_MEMBERS, infer_schema

NAMES = st.sampled_from(["a", "b", "c", "d"])
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


def test_members_types_and_what_is_required() -> None:
    records = [
        {"id": 1, "amount": 2, "tags": ["a"], "at": {"day": "monday"}},
        {"id": 2, "amount": 2.5, "tags": [], "note": None},
        {"id": 3, "amount": 1, "tags": [1], "note": "x"},
    ]
    assert infer_schema(records) == {
        "type": "object",
        "required": ["id", "amount", "tags"],
        "properties": {
            "id": {"type": "integer"},
            "amount": {"type": "number"},
            "tags": {"type": "array", "items": {"type": ["string", "integer"]}},
            "at": {"type": "object", "required": ["day"], "properties": {"day": {"type": "string"}}},
            "note": {"type": ["string", "null"]},
        },
    }
    assert infer_schema([]) == {}
    assert infer_schema([1, "x", True]) == {"type": ["string", "integer", "boolean"]}


def test_ids_as_names_are_described_together_and_depth_is_bounded() -> None:
    ids = {"by_id": {f"id-{number}": {"n": number} for number in range(MAX_MEMBERS + 1)}}
    assert infer_schema([ids])["properties"]["by_id"] == {
        "type": "object",
        "additionalProperties": {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}},
    }
    deep: Any = 1
    for _ in range(MAX_DEPTH + 2):
        deep = {"a": deep}
    schema = infer_schema([deep])
    for _ in range(MAX_DEPTH):
        schema = schema["properties"]["a"]
    assert schema == {"type": "object"}


@given(st.lists(VALUES, max_size=5))
def test_every_record_of_the_sample_is_valid(records: list[Any]) -> None:
    validator = jsonschema_rs.validator_for(infer_schema(records))
    for record in records:
        assert validator.is_valid(record)
