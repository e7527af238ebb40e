"""An update is tried with records, and nothing is installed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from strandline.query.extraction import Extractor
from strandline.schema.dry_run import MAX_EXAMPLES, MAX_REJECTIONS, DryRun, dry_run
from strandline.schema.errors import SchemaError
from strandline.schema.registry import Registry

SCHEMA = {"type": "object", "required": ["ms"], "properties": {"ms": {"type": "integer"}}}
NEXT = {"type": "object", "properties": {"ms": {"type": "integer"}, "region": {"type": "string"}}}
ADD = {"op": "add", "path": "/region", "schema": {"type": "string"}, "default": "none"}
LENS = {"apiVersion": "durable.lens/v1", "schema": "log", "from": 1, "to": 2, "ops": [ADD]}
RECORDS: list[Any] = [{"ms": 1}, {"ms": "2"}, {"ms": "soon"}, {"level": "error"}, [1], {"ms": [3, 4], "level": "info"}]


def field(kind: str, pointer: str, **flags: object) -> dict[str, Any]:
    return {"kind": kind, "exact": True, "bindings": [{"version": 1, "jsonPointer": pointer}], **flags}


SEARCH = {"fields": {"ms": field("integer", "/ms", column=True), "level": field("keyword", "/level")}}


def tried(update: Any, *records: Any, before: Registry | None = None, **options: Any) -> DryRun:
    data = [each if isinstance(each, bytes) else json.dumps(each).encode() for each in records]
    registry = before or Registry.empty("log")
    return dry_run(registry, json.dumps(update).encode(), len(data), list(range(1, len(data) + 1)), data, **options)


def test_the_records_that_would_be_rejected_are_shown_with_the_reason() -> None:
    installed = Registry.installed("log", {"type": "object"})
    found = tried({"schema": SCHEMA, "lens": LENS}, *RECORDS, b"{", before=installed)
    assert (found.records, found.first_seq, found.last_seq, found.complete) == (7, 1, 7, True)
    assert found.rejected == 6
    reasons = {each.seq: each.message for each in found.rejections}
    assert list(reasons) == [7, 6, 5, 4, 3, 2]
    assert reasons[7] == "not valid JSON"
    assert reasons[4] == '"ms" is a required property'
    assert "/ms" in reasons[2]
    assert "integer" in reasons[2]
    with pytest.raises(SchemaError) as refused:
        Registry.installed("log", SCHEMA).check([RECORDS[1]])
    assert reasons[2] == str(refused.value)


def test_a_routing_key_rejects_records_without_one() -> None:
    found = tried({"routingKey": {"jsonPointer": "/level", "required": True}}, *RECORDS)
    assert (found.rejected, found.rejections[0].message) == (4, "routing key missing")
    assert found.proposed == {"routingKey": {"jsonPointer": "/level", "required": True}}


def test_the_values_of_fields_are_those_of_the_index() -> None:
    found = tried({"search": SEARCH}, *RECORDS)
    assert (found.rejected, found.refused) == (None, None)
    ms, level = found.fields
    assert (ms.records, ms.values, ms.unfit) == (3, 4, 1)
    assert [(each.seq, each.value) for each in ms.examples] == [(6, 3), (6, 4), (2, 2)]
    assert [(each.seq, each.value) for each in ms.unfit_examples] == [(3, "soon")]
    assert (level.records, level.values, level.unfit) == (2, 2, 0)
    config = Registry.empty("log").update(json.dumps({"search": SEARCH}).encode(), next_sequence=6).search
    assert config is not None
    extractor = Extractor(list(config.fields.values()))
    columns = extractor.extract([json.dumps(each).encode() for each in RECORDS], 0).columns
    assert (columns["ms"].count, columns["level"].count) == (4, 2)


def test_records_of_an_older_version_are_read_where_that_version_has_the_field() -> None:
    moved = field("integer", "/ms")
    moved["bindings"].append({"version": 2, "jsonPointer": "/time"})
    before = Registry("log", 2, None, None, ((0, 1), (2, 2)), {1: True, 2: True})
    found = tried({"search": {"fields": {"ms": moved}}}, {"ms": 1}, {"time": 2}, {"ms": 3}, {"time": 4}, before=before)
    assert [each.seq for each in found.fields[0].examples] == [4, 1]


def test_dates_are_shown_as_dates_and_long_texts_are_cut() -> None:
    fields = {"at": field("date", "/at"), "text": field("text", "/t", analyzer="unicode_word_v1")}
    found = tried({"search": {"fields": fields}}, {"at": 0, "t": "long " * 100})
    at, text = found.fields
    assert at.examples[0].value == "1970-01-01T00:00:00.000Z"
    assert str(text.examples[0].value).endswith("…")


def test_an_update_that_cannot_be_installed_is_tried_all_the_same() -> None:
    found = tried({"schema": SCHEMA}, *RECORDS)
    assert found.refused == "first schema requires empty stream"
    assert (found.rejected, found.proposed) == (5, {"schema": SCHEMA})
    again = tried({"schema": SCHEMA}, before=Registry.installed("log", SCHEMA))
    assert again.refused == "lens required"


def test_the_configuration_is_shown_before_and_after() -> None:
    before = Registry.installed("log", SCHEMA)
    found = tried({"schema": NEXT, "lens": LENS, "search": SEARCH}, before=before)
    assert (found.refused, found.installed) == (None, {"schema": SCHEMA})
    assert found.proposed == {"schema": NEXT, "search": SEARCH, "lens": LENS}
    assert tried({"search": None}, before=Registry.empty("log")).proposed == {}


def test_the_answer_is_bounded_and_so_is_the_time() -> None:
    found = tried({"schema": False, "search": SEARCH}, *({"ms": number} for number in range(100)))
    assert (found.rejected, len(found.rejections), len(found.fields[0].examples)) == (100, MAX_REJECTIONS, MAX_EXAMPLES)
    looks = iter([False, False, True])
    part = tried({"search": SEARCH}, *RECORDS, over=lambda: next(looks))
    assert (part.records, part.first_seq, part.last_seq, part.complete) == (2, 5, 6, False)


@pytest.mark.parametrize(
    ("update", "message"),
    [
        ({}, "must include schema"),
        ({"schema": {"type": "nothing"}}, "schema/type is invalid"),
        ({"search": {"fields": {"ms": {"kind": "number", "bindings": []}}}}, "search.fields.ms.kind must be keyword"),
        ({"schemas": {}}, "schemas"),
    ],
)
def test_an_update_that_is_not_valid_is_refused(update: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        tried(update, *RECORDS)
