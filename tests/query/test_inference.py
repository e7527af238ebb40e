"""The proposed search configuration of a sample of records."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.json_documents import documents

from strandline.query.bound import bind_search
from strandline.query.config_parser import parse_search_config
from strandline.query.inference import EXAMPLE_CHARACTERS, MAX_DEPTH, MAX_FIELDS, MAX_MEMBERS, Inference, infer_search
from strandline.query.language import parse
from strandline.query.values import values_of

NAMES = ["at", "ts", "created_at", "message", "has", "offset", "a.b", "a b", "~", "/", "é", "x" * 70, "_id"]
TIMES = st.sampled_from(["2026-11-15T10:00:00Z", "2026-11-15", "2026-11-15T10:00:00+02:00"])
PROSE = st.just("the bank did not answer in time")
EPOCHS = st.integers(1_700_000_000_000, 1_800_000_000_000)
LIKELY = st.dictionaries(st.sampled_from(NAMES), TIMES | PROSE | EPOCHS | st.booleans(), max_size=8)


def inferred(*records: Any) -> Inference:
    return infer_search([msgspec.json.encode(record) for record in records])


def kinds(*records: Any) -> dict[str, str]:
    return {field.name: field.kind for field in inferred(*records).fields}


@given(st.lists(documents(NAMES) | LIKELY, max_size=12))
def test_a_proposal_is_valid_and_each_field_has_a_value(records: list[Any]) -> None:
    found = inferred(*records)
    objects = [record for record in records if isinstance(record, dict)]
    assert found.records == len(objects)
    assert (found.search is None) == (not found.fields)
    if found.search is None:
        return
    config = parse_search_config(found.search)
    assert config.document() == found.search
    assert list(config.fields) == [field.name for field in found.fields]
    for field in found.fields:
        values = [values_of(config.fields[field.name], record, 0) for record in objects]
        assert any(values), field
        assert sum(map(bool, values)) <= field.records <= len(objects)
        bind_search(parse(f"has:{field.name}"), config)


@given(st.lists(documents(NAMES) | LIKELY, min_size=1, max_size=6), st.integers(0, 6))
def test_a_proposal_keeps_what_is_installed(records: list[Any], at: int) -> None:
    installed = inferred(*records[:at]).search
    found = infer_search([msgspec.json.encode(record) for record in records], installed)
    if found.search is None:
        assert (installed, found.fields) == (None, [])
        return
    config = parse_search_config(found.search)
    before = installed or {"fields": {}}
    assert list(config.fields) == [*before["fields"], *(field.name for field in found.fields)]
    assert before["fields"].items() <= found.search["fields"].items()
    assert all(found.search[name] == before[name] for name in before if name != "fields")
    pointers = [field.bindings[0].pointer for field in config.fields.values()]
    assert len(pointers) == len(set(pointers))


def test_new_fields_do_not_take_installed_names() -> None:
    installed = {
        "aliases": {"level": "item"},
        "defaultFields": [],
        "fields": {"item": {"kind": "keyword", "exact": True, "bindings": [{"version": 2, "jsonPointer": "/i"}]}},
    }
    found = infer_search([b'{"i":"x","item":"y","level":"z"}'], installed)
    assert [(field.name, field.json_pointer) for field in found.fields] == [("item-2", "/item"), ("level-2", "/level")]
    assert found.search is not None
    assert found.search["defaultFields"] == []
    assert infer_search([b'{"i":"x"}'], installed) == Inference(1, [], installed)


def test_kinds_follow_the_values() -> None:
    record = {
        "at": "2026-11-15T10:18:23.123Z",
        "day": "2026-11-15",
        "sent_ms": 1_794_754_690_141,
        "startTime": 1_794_754_690_141,
        "bytes": 1_794_754_690_141,
        "level": "error",
        "name": "Ada Lovelace",
        "message": "the bank did not answer",
        "ms": 12,
        "share": 0.5,
        "ok": True,
        "nothing": None,
        "tags": ["a", "b"],
        "matrix": [[1, 2], [3]],
        "objects": [{"x": 1}],
    }
    assert kinds(record) == {
        "at": "date",
        "day": "date",
        "sent_ms": "integer",
        "startTime": "date",
        "bytes": "integer",
        "level": "keyword",
        "name": "keyword",
        "message": "text",
        "ms": "integer",
        "share": "float",
        "ok": "bool",
        "tags": "keyword",
        "matrix": "integer",
    }


@pytest.mark.parametrize("name", ["ts", "at", "time", "created_at", "createdAt", "ts_ms", "timestamp", "event.time"])
def test_milliseconds_are_dates_if_the_name_says_so(name: str) -> None:
    assert list(kinds({name: 1_794_754_690_141}).values()) == ["date"]
    assert list(kinds({name: 1_794_754_690}).values()) == ["integer"], "seconds are not milliseconds"
    assert list(kinds({name: 1_794_754_690_141}, {name: 3}).values()) == ["integer"]


@pytest.mark.parametrize("name", ["format", "stats", "lifetimes", "updates", "ms"])
def test_other_names_do_not_make_a_date(name: str) -> None:
    assert kinds({name: 1_794_754_690_141}) == {name: "integer"}


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, 2.5], "float"),
        ([1, 1, "a"], "integer"),
        ([1, "a"], "keyword"),
        ([True, True, 1], "bool"),
        (["2026-11-15", "tomorrow"], "keyword"),
        (["a"] * 9 + ["one two three four"], "keyword"),
        (["a"] * 4 + ["one two three four"], "text"),
        (["a somewhat longer text with words", "b"], "text"),
        (["x" * 600], None),
        (["x" * 600, "y"], "keyword"),
    ],
)
def test_values_of_several_kinds_have_the_most_frequent_one(values: list[Any], kind: str | None) -> None:
    assert kinds(*({"a": value} for value in values)).get("a") == kind


def test_capabilities_fit_the_kind() -> None:
    found = inferred({"at": "2026-11-15T10:00:00Z", "level": "error", "ms": 1, "message": "the bank did not answer"})
    assert found.search == {
        "primaryTimestampField": "at",
        "defaultFields": [{"field": "message"}],
        "fields": {
            "at": {
                "kind": "date",
                "bindings": [{"version": 1, "jsonPointer": "/at"}],
                "exact": True,
                "column": True,
                "sortable": True,
            },
            "level": {
                "kind": "keyword",
                "bindings": [{"version": 1, "jsonPointer": "/level"}],
                "exact": True,
                "prefix": True,
                "sortable": True,
            },
            "ms": {
                "kind": "integer",
                "bindings": [{"version": 1, "jsonPointer": "/ms"}],
                "exact": True,
                "column": True,
                "sortable": True,
                "aggregatable": True,
            },
            "message": {
                "kind": "text",
                "bindings": [{"version": 1, "jsonPointer": "/message"}],
                "analyzer": "unicode_word_v1",
                "prefix": True,
                "positions": True,
            },
        },
    }


def test_without_a_text_bare_terms_are_searched_in_keywords() -> None:
    search = inferred({"a": "x", "n": 1}).search
    assert search is not None
    assert search["defaultFields"] == [{"field": "a"}]


def test_members_of_objects_are_named_by_their_path() -> None:
    deep: dict[str, Any] = {"last": 1}
    for _ in range(MAX_DEPTH - 1):
        deep = {"in": deep}
    (field,) = inferred({**deep, "too": {"in": deep}}).fields
    assert (field.name, field.json_pointer) == ("in.in.in.last", "/in/in/in/last")
    fields = inferred({"a/b~c": 1, "a b": 2, "a_b": 3, "has": 4, "": 5, "$x": 6}).fields
    assert [(field.name, field.json_pointer) for field in fields] == [
        ("a_b_c", "/a~1b~0c"),
        ("a_b", "/a b"),
        ("a_b-2", "/a_b"),
        ("has_value", "/has"),
        ("field", "/"),
        ("x", "/$x"),
    ]


def test_the_primary_timestamp_is_the_best_named_date_of_most_records() -> None:
    day = "2026-11-15"
    records: list[Any] = [{"due": day, "meta": {"ts": day}, "created": day, "timestamp": day}]
    assert (inferred(*records).search or {})["primaryTimestampField"] == "timestamp"
    records += [{"due": day, "created": day}] * 2
    assert (inferred(*records).search or {})["primaryTimestampField"] == "created"
    assert "primaryTimestampField" not in (inferred({"at": day}, {"a": 1}, {"a": 2}).search or {})


def test_a_sample_is_bounded() -> None:
    wide = {f"id-{number}": number for number in range(MAX_MEMBERS + 10)}
    found = inferred(wide, *[{f"id-{number}": 1} for number in range(500, 510)], {"late": 1})
    names = [field.name for field in found.fields]
    assert len(names) == MAX_FIELDS
    assert names[-10:] == [f"id-{number}" for number in range(500, 510)]
    (text,) = inferred({"a": "word " * 100}).fields
    assert len(str(text.example)) == EXAMPLE_CHARACTERS + 1


def test_what_is_not_an_object_is_left_out() -> None:
    assert infer_search([b"1", b"[]", b"{", b"\xff", b"[" * 100_000, b'{"a":{}}']) == Inference(1, [], None)
