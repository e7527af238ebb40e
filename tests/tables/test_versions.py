"""Schemas that change: rows of every version are read in the current one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, make_dataclass
from itertools import count
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.indexed_log import small_files
from support.tables_in_process import Bed, payloads, seqs

from strandline.query.index_files.directory import IndexDirectory
from strandline.query.index_files.indexer import Indexer
from strandline.query.searcher import Searcher
from strandline.schema.log_search import search_of
from strandline.tables import BadDeclaration, HookContext, Hooks, Row, TableDeclaration, TableError, Tables, make_log
from strandline.tables.versions import SCHEMAS


class First(msgspec.Struct):
    text: str
    size: int = 1


class Second(msgspec.Struct):
    text: str
    size: int = 1
    mood: str = "calm"


RENAME = [{"op": "rename", "from": "/text", "to": "/body"}]


class Third(msgspec.Struct):
    body: str
    size: int = 1
    mood: str = "calm"


def note(schema: object, **options: Any) -> TableDeclaration:
    return make_log("note", parent="desk", schema=schema, soft_delete=True, **options)


def old_rows(bed: Bed, *, edited: bool = False) -> None:
    notes = bed.bind(note(First))["note"]
    bed.done(notes.append("d", {"text": "one"}, user="ann"))
    bed.done(notes.append("d", {"text": "two", "size": 2}))
    if edited:
        bed.done(notes.update("d:1", {"size": 5}))


def test_old_rows_show_the_default_of_a_new_field_in_every_read(bed: Bed) -> None:
    old_rows(bed, edited=True)
    notes = bed.reopen(note(Second, search=["text", "mood"]))["note"]
    bed.done(notes.append("d", {"text": "three", "mood": "wild"}))
    one = {"text": "one", "size": 5, "mood": "calm"}
    two = {"text": "two", "size": 2, "mood": "calm"}
    three = {"text": "three", "size": 1, "mood": "wild"}
    assert payloads(notes.list("d").rows) == [three, two, one]
    assert payloads(notes.list("d", user="ann").rows) == [] if notes.declaration.parent_row else [one]
    assert payloads(notes.list_after("d", 0).rows) == [one, two, three]
    row = notes.read("d:1")
    assert row is not None
    assert row.payload == one
    assert row.updated_at > row.created_at
    assert seqs(notes.list("d", where={"mood": "calm"}).rows) == [2, 1]
    assert notes.counts("d", "mood").counts == {"calm": 2, "wild": 1}
    assert {mood: seqs(rows) for mood, rows in notes.indexed("d", "mood").items()} == {"wild": [3], "calm": [2, 1]}
    assert payloads(notes.search("d", "two").rows) == [two]
    assert seqs(notes.search("d", "calm").rows) == [2, 1], "also found by the default"


def test_edits_and_removals_of_old_rows_are_made_in_the_current_version(bed: Bed) -> None:
    old_rows(bed)
    told: list[Any] = []

    def before(ctx: HookContext, patch: Any, prev: Row) -> None:
        told.append(prev.payload)

    def after(ctx: HookContext, row: Row) -> None:
        told.append(row.payload)

    hooks = Hooks(before_update=before, after_update=after, before_rm=lambda ctx, prev: told.append(prev.payload))
    notes = bed.reopen(note(Third, lenses={1: RENAME}, hooks=hooks))["note"]
    updated = bed.done(notes.update("d:1", {"mood": "glad"}))
    assert updated.payload == {"body": "one", "size": 1, "mood": "glad"}
    assert told == [{"body": "one", "size": 1, "mood": "calm"}, updated.payload]
    bed.done(notes.rm("d:2"))
    assert told[2] == {"body": "two", "size": 2, "mood": "calm"}
    assert bed.done(notes.restore("d:2")).payload == told[2]
    assert notes.history("d:1")[0].previous == told[0]
    with pytest.raises(TableError, match="Invalid: text"):
        notes.update("d:2", {"text": "no field any more"})
    # After another restart, edited and new rows are what they were.
    before_restart = [row.to_json() for row in notes.list("d").rows]
    notes = bed.reopen(note(Third, lenses={1: RENAME}))["note"]
    assert [row.to_json() for row in notes.list("d").rows] == before_restart


def test_versions_follow_each_other(bed: Bed) -> None:
    old_rows(bed)
    notes = bed.reopen(note(Second))["note"]
    bed.done(notes.append("d", {"text": "three", "mood": "wild"}))
    bed.done(notes.update("d:2", {"mood": "glad"}))
    notes = bed.reopen(note(Third, search="body", lenses={2: RENAME}))["note"]
    bed.done(notes.append("d", {"body": "four"}))
    assert payloads(notes.list_after("d", 0).rows) == [
        {"body": "one", "size": 1, "mood": "calm"},
        {"body": "two", "size": 2, "mood": "glad"},
        {"body": "three", "size": 1, "mood": "wild"},
        {"body": "four", "size": 1, "mood": "calm"},
    ]
    assert seqs(notes.search("d", "one").rows) == [1], "searched in the field that it has now"
    versions = notes.versions
    assert [each.version for each in versions.recorded] == [1, 2, 3]
    assert versions.current == 3
    assert [each.lens and each.lens["ops"] for each in versions.recorded] == [None, None, RENAME]


class Noted(msgspec.Struct):
    text: str
    note: str | None = None


class NotedAgain(msgspec.Struct):
    text: str
    note: str | None = None
    size: int = 2


class Measured(msgspec.Struct):
    text: str
    length: int = 1


@pytest.mark.parametrize(
    ("schemas", "lens", "fields", "kept"),
    [
        ([First, Second], None, ["text"], True),
        ([First, Second], None, ["text", "mood"], False),
        ([First, Noted], None, ["text", "note"], True),
        ([First, Third], RENAME, ["body"], False),
        ([First, Measured], [{"op": "rename", "from": "/size", "to": "/length"}], ["text"], True),
        ([Noted, First, NotedAgain], None, ["text"], True),
        ([Noted, First, NotedAgain], None, ["note"], False),
    ],
    ids=["default", "default of it", "new", "renamed", "other renamed", "other gone", "gone for a while"],
)
def test_fields_with_the_same_text_in_all_versions_are_known(
    plain_bed: Bed, schemas: list[type], lens: Any, fields: list[str], kept: bool
) -> None:
    tables = plain_bed.bind(note(schemas[0]))
    plain_bed.done(tables["note"].append("d", {"text": "one"}))
    assert tables["note"].versions.keep(fields), "there is one version"
    for schema in schemas[1:]:
        tables = plain_bed.reopen(note(schema, lenses=None if lens is None else {1: lens}))
    assert tables["note"].versions.keep(fields) is kept


def test_old_rows_are_found_in_index_files(plain_bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    """They need not be read again for each start if the searched fields are the same in all versions."""
    small_files(monkeypatch)
    tables = plain_bed.bind(note(First, search="text"))
    for number in range(30):
        tables["note"].append("d", {"text": f"row {number}"})
    plain_bed.reopen()
    engine = plain_bed.engine
    directory = IndexDirectory(engine.disk)
    searcher = Searcher(1 << 30, [directory])
    notes = Tables(engine, [note(Second, search="text")], searcher=searcher)["note"]
    indexer = Indexer(engine, searcher, directory, search_of)
    indexer.prepare()
    try:
        engine.seal()
        indexer.work()
        [row] = notes.search("d", "7").rows
        assert row.payload == {"text": "row 7", "size": 1, "mood": "calm"}
        found = notes.search("d", "row", limit=50)
        assert (len(found.rows), found.complete, searcher.indexes.nbytes) == (30, True, 0)
        plain_bed.done(notes.append("d", {"text": "new row"}))
        assert len(notes.search("d", "row", limit=50).rows) == 31
    finally:
        indexer.stop()


def test_a_program_can_skip_versions(bed: Bed) -> None:
    """The lenses in between are applied one after the other."""
    old_rows(bed)
    further = [{"op": "rename", "from": "/body", "to": "/content"}]
    schema = {
        "type": "object",
        "properties": {"content": {"type": "string"}, "size": {"type": "integer"}},
        "required": ["content"],
    }
    notes = bed.reopen(note(schema, lenses={1: RENAME, 2: further}))["note"]
    assert payloads(notes.list_after("d", 0).rows) == [{"content": "one", "size": 1}, {"content": "two", "size": 2}]
    assert notes.versions.current == 3


def test_a_new_directory_begins_with_the_number_that_the_lenses_lead_to(bed: Bed) -> None:
    notes = bed.bind(note(Third, lenses={1: RENAME}))["note"]
    bed.done(notes.append("d", {"body": "new"}))
    assert notes.versions.current == 2
    assert payloads(notes.list("d").rows) == [{"body": "new", "size": 1, "mood": "calm"}]
    bed.done(notes.update("d:1", {"size": 2}))
    assert payloads(notes.list("d").rows) == [{"body": "new", "size": 2, "mood": "calm"}]


def test_a_program_that_is_rolled_back_shows_newer_rows_as_stored(bed: Bed) -> None:
    old_rows(bed)
    notes = bed.reopen(note(Third, lenses={1: RENAME}))["note"]
    bed.done(notes.append("d", {"body": "three"}))
    notes = bed.reopen(note(First))["note"]
    assert notes.versions.current == 1
    bed.done(notes.append("d", {"text": "four"}))
    bed.done(notes.update("d:1", {"size": 9}))
    assert payloads(notes.list_after("d", 0).rows) == [
        {"text": "one", "size": 9},
        {"text": "two", "size": 2},
        {"body": "three", "size": 1, "mood": "calm"},
        {"text": "four", "size": 1},
    ]
    notes = bed.reopen(note(Third, lenses={1: RENAME}))["note"]
    assert [each["body"] for each in payloads(notes.list_after("d", 0).rows)] == ["one", "two", "three", "four"]
    assert notes.versions.current == 2


def test_texts_and_names_of_classes_do_not_make_a_version(bed: Bed) -> None:
    def declared(name: str) -> TableDeclaration:
        inner = msgspec.defstruct(f"Inner{name}", [("x", int)], namespace={"__doc__": name})
        return note(msgspec.defstruct(name, [("inner", inner), ("y", int, 0)], namespace={"__doc__": name}))

    bed.bind(declared("One"))
    assert bed.reopen(declared("Other"))["note"].versions.current == 1


def test_an_empty_table_takes_any_schema(bed: Bed) -> None:
    bed.bind(note(First))
    notes = bed.reopen(note({"type": "object", "properties": {"text": {"type": "integer"}}}))["note"]
    bed.done(notes.append("d", {"text": 1}))
    assert notes.versions.current == 2
    assert payloads(notes.list("d").rows) == [{"text": 1}]


def test_rows_without_a_version_are_of_the_first(bed: Bed) -> None:
    """As they were written before versions were recorded."""
    old_rows(bed)
    bed.engine.log(SCHEMAS).drop().wait()
    notes = bed.reopen(note(First))["note"]
    assert notes.versions.current == 1
    notes = bed.reopen(note(Second))["note"]
    assert payloads(notes.list("d").rows)[0] == {"text": "two", "size": 2, "mood": "calm"}


def test_a_computed_default_is_the_same_for_all_old_rows_and_reads(bed: Bed) -> None:
    old_rows(bed)
    numbers = count(100)

    class Numbered(First):
        number: int = msgspec.field(default_factory=lambda: next(numbers))
        tags: list[str] = []

    notes = bed.reopen(note(Numbered))["note"]
    assert [each["number"] for each in payloads(notes.list("d").rows)] == [100, 100]
    bed.done(notes.append("d", {"text": "three"}))
    notes = bed.reopen(note(Numbered))["note"]
    assert [each["number"] for each in payloads(notes.list("d").rows)] == [101, 100, 100]
    assert payloads(notes.list("d").rows)[1] == {"text": "two", "size": 2, "number": 100, "tags": []}


def test_a_row_that_does_not_fit_its_version_is_shown_as_stored(bed: Bed, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing was recorded when it was written, so its version is only assumed."""
    notes = bed.bind(note({"type": "object"}))["note"]
    bed.done(notes.append_bulk("d", [{"other": 1}, {"text": "two"}]))
    bed.engine.log(SCHEMAS).drop().wait()
    bed.reopen(note(First))
    notes = bed.reopen(note(Third, lenses={1: RENAME}))["note"]
    assert payloads(notes.list("d").rows) == [{"body": "two", "size": 1, "mood": "calm"}, {"other": 1}]
    assert "showing rows of table 'note' as stored" in caplog.text


# --- changes that old rows do not fit -------------------------------------------------------------------------------


NO_DEFAULT = msgspec.defstruct("NoDefault", [("text", str), ("mood", str), ("size", int, 1)])
NARROWED = msgspec.defstruct("Narrowed", [("text", str), ("size", Literal[1, 2], 1)])
OTHER_TYPE = msgspec.defstruct("OtherType", [("text", int), ("size", int, 1)])
NOW_REQUIRED = {"type": "object", "properties": {"late": {"type": "string"}}, "required": ["late"]}


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (NO_DEFAULT, "field 'mood' is required and has no default"),
        (NARROWED, "field 'size' does not accept all values of its former type"),
        (OTHER_TYPE, "field 'text' does not accept all values"),
        (NOW_REQUIRED, "field 'late' is required"),
    ],
)
def test_a_change_that_old_rows_do_not_fit_is_refused_and_changes_nothing(
    bed: Bed, schema: object, message: str
) -> None:
    old_rows(bed)
    before = bed.engine.log(SCHEMAS).head
    other = make_log("other", parent="desk", schema=First)
    with pytest.raises(BadDeclaration, match=message) as error:
        bed.reopen(other, note(schema))
    assert "lenses={1: [operations]}" in str(error.value)
    assert "version 1" in str(error.value)
    assert bed.engine.log(SCHEMAS).head == before, "not even the version of the other table"
    assert payloads(bed.bind(note(First))["note"].list("d").rows)[0] == {"text": "two", "size": 2}


@pytest.mark.parametrize(
    ("lens", "message"),
    [
        ([{"op": "rename", "from": "/nothing", "to": "/body"}], "does not fit all rows of that version"),
        (
            [{"op": "rename", "from": "/text", "to": "/other"}],
            "after the lens from version 1, rows of note do not fit the new schema: field 'body' is required",
        ),
    ],
)
def test_a_lens_must_fit_all_old_rows(bed: Bed, lens: Any, message: str) -> None:
    old_rows(bed)
    with pytest.raises(BadDeclaration, match=message):
        bed.reopen(note(Third, lenses={1: lens}))


@pytest.mark.parametrize(("numbers", "expected"), [((7,), 1), ((1, 3), 2)])
def test_a_lens_must_follow_the_newest_recorded_version(bed: Bed, numbers: tuple[int, ...], expected: int) -> None:
    old_rows(bed)
    before = bed.engine.log(SCHEMAS).head
    message = f"lens from version {numbers[-1]}, .* is 1: expected a lens from version {expected}"
    with pytest.raises(BadDeclaration, match=message):
        bed.reopen(note(Third, lenses=dict.fromkeys(numbers, RENAME)))
    assert bed.engine.log(SCHEMAS).head == before
    assert bed.bind(note(Third, lenses={1: RENAME}))["note"].versions.current == 2


def test_a_lens_cannot_be_changed_once_it_is_recorded(bed: Bed) -> None:
    old_rows(bed)
    bed.reopen(note(Third, lenses={1: RENAME}))
    other = [{"op": "copy", "from": "/text", "to": "/body"}]
    with pytest.raises(BadDeclaration, match="from version 1 cannot be changed"):
        bed.reopen(note(Third, lenses={1: other}))
    assert bed.reopen(note(Third))["note"].versions.current == 2, "it need not be declared any longer"


@pytest.mark.parametrize(
    "lenses",
    [[RENAME], {"1": RENAME}, {0: RENAME}, {1: []}, {1: [{"op": "fly"}]}, {1: [{"op": "remove", "path": object()}]}],
)
def test_lenses_are_checked_when_they_are_declared(lenses: Any) -> None:
    with pytest.raises(BadDeclaration, match="lens"):
        note(First, lenses=lenses)


# --- an upgraded row is the row written anew --------------------------------------------------------------------------

TYPES: dict[Any, Any] = {int: 7, str: "s", float: 1.5, bool: True, list[int]: [1, 2], dict[str, int]: {"k": 1}}
names = st.sampled_from(["a", "b", "c", "d"])


@st.composite
def changes(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fields of two versions, of which the second takes all rows of the first: the type, and the default unless
    the field is required."""
    field = st.sampled_from(list(TYPES))
    first = {name: (kind, draw(st.booleans())) for name, kind in draw(st.dictionaries(names, field)).items()}
    second: dict[str, Any] = {}
    for name in ["a", "b", "c", "d", "e"]:
        known = first.get(name)
        if known is not None and draw(st.booleans()):
            kind = draw(st.sampled_from([known[0], known[0] | None, *([float] if known[0] is int else [])]))
            second[name] = kind, draw(st.booleans())
        elif known is None and draw(st.booleans()):
            second[name] = draw(field), True
    return first, second


def as_struct(fields: dict[str, Any]) -> object:
    members = [(name, kind, _default(kind)) if optional else (name, kind) for name, (kind, optional) in fields.items()]
    return msgspec.defstruct("Made", members, kw_only=True)


def as_dataclass(fields: dict[str, Any]) -> object:
    members: list[Any] = [
        (name, kind, _dataclass_default(kind)) if optional else (name, kind)
        for name, (kind, optional) in fields.items()
    ]
    return make_dataclass("Made", members, kw_only=True)


def as_json_schema(fields: dict[str, Any]) -> object:
    document: Any = msgspec.json.schema(as_struct(fields))
    found = document["$defs"]["Made"]
    return {**found, "additionalProperties": False}


def nested(make: Callable[[dict[str, Any]], Any]) -> Callable[[dict[str, Any]], object]:
    """The same fields, in the elements of an array within a payload."""
    return lambda fields: msgspec.defstruct("Outer", [("inner", list[make(fields)])])  # type: ignore[misc]


def _default(kind: Any) -> Any:
    value = TYPES.get(kind)
    return msgspec.field(default_factory=type(value)) if isinstance(value, list | dict) else value


def _dataclass_default(kind: Any) -> Any:
    value = TYPES.get(kind)
    return field(default_factory=type(value)) if isinstance(value, list | dict) else value


@pytest.mark.parametrize("make", [as_struct, as_dataclass, as_json_schema, nested(as_struct)])
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changed=changes(), missing=st.sets(names), edit=st.booleans())
def test_an_upgraded_read_is_the_row_written_anew(
    tmp_path: Path, make: Any, changed: Any, missing: set[str], edit: bool
) -> None:
    first, second = changed
    given_fields = {name: TYPES[kind] for name, (kind, optional) in first.items() if not (optional and name in missing)}
    is_nested = make not in (as_struct, as_dataclass, as_json_schema)
    payload = {"inner": [given_fields]} if is_nested else given_fields
    bed = Bed(tmp_path / f"data{next(directories)}")
    try:
        notes = bed.bind(note(make(first)))["note"]
        bed.done(notes.append("d", payload))
        if edit and payload:
            bed.done(notes.update("d:1", payload))
        stored = notes.list("d").rows[0].payload
        notes = bed.reopen(note(make(second)))["note"]
        upgraded = notes.list("d").rows[0].payload
        kept = {name: value for name, value in stored.items() if is_nested or name in second}
        if is_nested:
            kept = {"inner": [{name: value for name, value in stored["inner"][0].items() if name in second}]}
        assert upgraded == notes.declaration.schema.validate(kept)
    finally:
        bed.close()


directories = count()


@dataclass
class Plain:
    x: int
    y: list[int] = field(default_factory=lambda: [1])


def test_a_dataclass_and_a_pydantic_model_have_computed_defaults_too(bed: Bed) -> None:
    pydantic = pytest.importorskip("pydantic")

    class Model(pydantic.BaseModel):  # type: ignore[name-defined, misc]
        x: int
        y: list[int] = pydantic.Field(default_factory=lambda: [2])

    schema = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
    for number, (declared, wanted) in enumerate([(Plain, [1]), (Model, [2])]):
        table = f"note{number}"
        notes = bed.reopen(make_log(table, parent="desk", schema=schema))[table]
        bed.done(notes.append("d", {"x": 1}))
        notes = bed.reopen(make_log(table, parent="desk", schema=declared))[table]
        assert payloads(notes.list("d").rows) == [{"x": 1, "y": wanted}]
