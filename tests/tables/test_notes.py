"""What other protocols and the pipeline learn of a table from its logs."""

from __future__ import annotations

from typing import Any

import msgspec
from support.tables_in_process import Bed, seqs

from strandline.engine import Log
from strandline.engine.ownership import REGISTRY, TABLE, LogOwner, log_owner
from strandline.schema.log_search import log_search
from strandline.tables import TableDeclaration, make_log

ANY: dict[str, Any] = {"type": "object"}


def declared(name: str = "note", **how: Any) -> TableDeclaration:
    return make_log(name, parent="desk", schema=ANY, soft_delete=True, **how)


def searched_in(log: Log) -> list[str]:
    search = log_search(log.notes.get(REGISTRY))
    return [] if search is None else list(search.config.fields)


def test_rows_carry_how_they_are_searched(plain_bed: Bed) -> None:
    tables = plain_bed.bind(declared(search=["text", "title"]), declared("plain"))
    plain_bed.done(tables["note"].append("p", {"text": "a"}))
    plain_bed.done(tables["note"].update("p:1", {"text": "b"}))
    plain_bed.done(tables["plain"].append("p", {"text": "a"}))
    engine = plain_bed.engine
    assert searched_in(engine.log("note/p")) == ["text", "title"]
    assert searched_in(engine.log("note~changes/p")) == searched_in(engine.log("plain/p")) == []
    assert all(engine.log(name).notes[TABLE] for name in ("note/p", "note~changes/p", "plain/p"))


def test_every_log_of_a_table_names_the_table_and_what_it_holds(plain_bed: Bed) -> None:
    table = plain_bed.bind(declared(feed=True))["note"]
    plain_bed.done(table.append("p~x", {"text": "a"}))
    plain_bed.done(table.update("p~x:1", {"text": "b"}))
    logs = {"note/p~x": "rows", "note~changes/p~x": "changes", "note~feed/all": "feed"}
    for name, part in logs.items():
        assert log_owner(name, plain_bed.engine.log(name).notes) == LogOwner("table", "note", part=part)


def test_all_parents_share_one_registry(plain_bed: Bed) -> None:
    tables = plain_bed.bind(declared(search="text"))
    for parent in ("p", "q"):
        plain_bed.done(tables["note"].append(parent, {}))
    one, other = (plain_bed.engine.log(f"note/{parent}").notes[REGISTRY] for parent in ("p", "q"))
    assert one == other


def test_a_changed_declaration_reaches_existing_logs(plain_bed: Bed) -> None:
    tables = plain_bed.bind(declared(), declared("other", search="text"))
    plain_bed.done(tables["note"].append("p", {"text": "red lamp", "title": "blue"}))
    plain_bed.done(tables["note"].update("p:1", {"text": "green lamp"}))
    plain_bed.done(tables["other"].append("p", {"text": "a"}))
    for fields in (["text"], ["title"], None):
        tables = plain_bed.reopen(declared(search=fields))
        assert searched_in(plain_bed.engine.log("note/p")) == (fields or [])
        assert searched_in(plain_bed.engine.log("note~changes/p")) == []
        if fields is not None:
            assert seqs(tables["note"].search("p", "lamp").rows) == ([1] if fields == ["text"] else [])
    # A table that is not declared any more can still be searched as a stream.
    assert searched_in(plain_bed.engine.log("other/p")) == ["text"]


def test_a_field_may_have_a_name_that_a_query_cannot_have(plain_bed: Bed) -> None:
    table = plain_bed.bind(declared(search=["text", "größe/maß", "_a b~c"]))["note"]
    plain_bed.done(table.append("p", {"größe/maß": "small lamp", "_a b~c": "large lamp"}))
    assert searched_in(plain_bed.engine.log("note/p")) == ["text", "field2", "field3"]
    assert [seqs(table.search("p", word).rows) for word in ("small", "large", "blue")] == [[1], [1], []]


def test_earlier_contents_of_a_removed_row_are_hidden_with_it(bed: Bed) -> None:
    table = bed.bind(declared())["note"]
    for text in ("old bulb", "old chair"):
        bed.done(table.append("p", {"text": text}))
    for row in (1, 2):
        bed.done(table.update(f"p:{row}", {"text": "lamp"}))
    assert _readable(bed, "bulb", "chair") == ["bulb", "chair"]
    bed.done(table.rm("p:2"))
    assert _readable(bed, "bulb", "chair") == ["bulb"]
    bed.done(table.restore("p:2"))
    assert [edit.previous for edit in table.history("p:2")] == [{"text": "old chair"}]
    bed.done(table.purge_by_parent("p"))
    assert _readable(bed, "bulb", "chair", "lamp") == []
    bed.done(table.restore("p:1"))
    assert _readable(bed, "bulb", "chair") == ["bulb"]
    bed.done(table.restore_by_parent("p"))
    assert _readable(bed, "bulb", "chair") == ["bulb", "chair"]
    bed.done(table.rm("p:1", hard=True))
    bed.done(table.purge_by_parent("p", hard=True))
    assert _readable(bed, "bulb", "chair", "lamp") == []


def _readable(bed: Bed, *words: str) -> list[str]:
    """The words that a reader of the table's logs finds."""
    data = [data for name in ("note/p", "note~changes/p") for data in bed.engine.log(name).read(0).data]
    text = msgspec.json.encode([msgspec.Raw(each) for each in data]).decode()
    return [word for word in words if word in text]
