from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pytest
from support.lake_rounds import Bed, append, check_typed, install, text_schema
from support.local_tasks import work_here
from support.object_store import object_store
from support.tables_in_process import Poll, Vote

from strandline.engine import Batch
from strandline.lake import typed_tables
from strandline.lake.fence import take_fence
from strandline.lake.location import Lake
from strandline.lake.table import TableSnapshot
from strandline.pipeline import table_upkeep
from strandline.pipeline.chosen_logs import Chosen
from strandline.pipeline.typed_tables import stage
from strandline.pipeline.typed_tables.rows import write_typed
from strandline.schema.profiles.evlog import INSTALLED
from strandline.tables import Tables, make_log


@pytest.fixture
def bed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bed]:
    work_here(monkeypatch)
    bed = Bed(tmp_path)
    yield bed
    bed.close()


ORDER = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "customer": {"type": "string"},
        "cents": {"type": "integer"},
        "price, net": {"type": "number"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "to": {"type": "object", "properties": {"city": {"type": "string"}, "a b": {"type": "integer"}}},
        "note": {},
    },
}


def files(bed: Bed, folder: str) -> list[str]:
    return typed_tables.typed_table(bed.lake, folder).open().file_uris()


def test_every_property_of_the_schema_is_a_column_for_every_reader(bed: Bed) -> None:
    log = bed.log("orders")
    install(log, ORDER)
    full = {"customer": "zoe", "cents": 5, "price, net": 1.5, "tags": ["x"], "to": {"city": "c", "a b": 1}, "note": [1]}
    append(log, json.dumps(full), '{"cents":"none"}', key="zoe")
    log.append(Batch([b"\xff"])).wait()
    bed.round()
    nothing = dict.fromkeys(["customer", "cents", "price__net", "tags", "to", "note", "_corrupt"])
    values = {"customer": "zoe", "cents": 5, "price__net": 1.5, "tags": ["x"], "to": {"city": "c", "a_b": 1}}
    rows = [
        {"key": "zoe", **nothing, **values, "note": "[1]"},
        {"key": "zoe", **nothing, "_corrupt": '{"cents":"none"}'},
        {"key": None, **nothing, "_corrupt": "\ufffd"},
    ]
    epoch = log.epoch
    expected = [{"log": "orders", "epoch": epoch, "seq": seq, **row} for seq, row in enumerate(rows, 1)]
    place = typed_tables.typed_table(bed.lake, "orders").open().table_uri

    def shown(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return sorted(({**row, "ts": None} for row in found), key=lambda row: row["seq"])

    plain = [{**row, "ts": None} for row in expected]
    assert shown(bed.typed("orders")) == plain
    query = duckdb.sql("select * from read_parquet($files)", params={"files": files(bed, "orders")})
    assert shown(query.to_arrow_table().to_pylist()) == plain
    assert shown(polars.read_delta(place).to_dicts()) == plain
    # Values of payloads are in no statistics of the transaction log.
    for path in (bed.path / "lake" / "tables" / "orders" / "_delta_log").glob("*.json"):
        assert b"zoe" not in path.read_bytes()


def test_a_table_has_what_was_in_the_log_before_its_schema_and_goes_with_it(bed: Bed) -> None:
    log = bed.log()
    append(log, '{"v":"1"}')
    append(bed.log("plain"), '{"v":"1"}')
    bed.round()
    assert typed_tables.folders(bed.lake) == []
    install(log, text_schema("v"))
    append(log, '{"v":"2"}')
    bed.round(chosen=Chosen(["plain"]))
    assert [row["v"] for row in bed.typed("a")] == ["1"]
    bed.round()
    assert [row["v"] for row in bed.typed("a")] == ["1", "2"]
    assert {lag.log: lag.covered.get("tables") for lag in bed.heard.rows} == {"a": 2, "plain": None}
    log.note({"registry": None}).wait()
    bed.round()
    assert typed_tables.folders(bed.lake) == []
    assert bed.data() == ['{"v":"1"}', '{"v":"2"}']


def test_a_log_that_is_made_again_has_its_new_records_only(bed: Bed) -> None:
    log = bed.log()
    install(log, text_schema("v"))
    append(log, '{"v":"1"}', '{"v":"2"}')
    bed.round()
    log.drop().wait()
    again = bed.log()
    install(again, text_schema("v"))
    append(again, '{"v":"3"}')
    bed.round()
    assert [(row["epoch"], row["seq"], row["v"]) for row in bed.typed("a")] == [(again.epoch, 1, "3")]
    assert bed.grep(b'"v": "1"', "lake") == bed.grep(b"'v': '1'", "lake") == []


def test_a_fork_has_its_own_records(bed: Bed) -> None:
    source = bed.log("source")
    install(source, text_schema("v"))
    append(source, '{"v":"s1"}', '{"v":"s2"}')
    fork = bed.engine.fork("fork", source, 1).wait()
    install(fork, text_schema("v"))
    append(fork, '{"v":"f2"}')
    bed.round()
    assert [row["v"] for row in bed.typed("fork")] == ["f2"]
    assert [row["v"] for row in bed.typed("source")] == ["s1", "s2"]


class TestSchemaChange:
    def test_new_columns_are_added_where_no_row_can_have_a_value(self, bed: Bed) -> None:
        log = bed.log()
        closed = {**text_schema("v"), "additionalProperties": False}
        install(log, closed)
        append(log, '{"v":"1"}', "broken")
        bed.round()
        before = files(bed, "a")
        wider = {
            **closed,
            "properties": {**closed["properties"], "w": {"type": ["string", "null"]}},
            "required": ["v", "w"],
        }
        add = {"op": "add", "path": "/w", "schema": {"type": ["string", "null"]}, "default": None}
        install(log, wider, [add])
        append(log, '{"v":"2","w":"x"}')
        bed.round()
        assert set(before) < set(files(bed, "a"))
        check_typed(bed)
        log.delete(seqs=[1]).wait()
        for number in range(table_upkeep.FILES_PER_TIER):
            append(log, f'{{"v":"{number}"}}')
            bed.round()
        # Files from before the column are rewritten and merged as well.
        assert len(files(bed, "a")) < table_upkeep.FILES_PER_TIER
        check_typed(bed)

    def test_other_changes_replace_the_table_in_one_version(self, bed: Bed) -> None:
        log = bed.log()
        install(log, text_schema("v"))
        append(log, '{"v":"1"}', '{"v":"2"}')
        bed.round()
        table = typed_tables.typed_table(bed.lake, "a")
        version = table.snapshot().version
        install(log, text_schema("w"), [{"op": "rename", "from": "/v", "to": "/w"}])
        append(log, '{"w":"3"}')
        bed.round()
        check_typed(bed)
        assert table.snapshot().version == version + 1
        assert len(pa_rows(table.open(version))) == 2

    def test_a_large_table_is_built_in_parts_while_others_go_on(
        self, bed: Bed, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(stage, "CHUNK_ROWS", 2)
        monkeypatch.setattr(stage, "REBUILD_ROWS", 2)
        log, other = bed.log("a"), bed.log("b")
        for each in (log, other):
            install(each, text_schema("v"))
        append(log, *(f'{{"v":"{number}"}}' for number in range(5)))
        bed.round()
        install(log, text_schema("w"), [{"op": "rename", "from": "/v", "to": "/w"}])
        append(log, '{"w":"5"}')
        with take_fence(bed.lake, lambda: 0) as fence:
            for number in range(3):
                # Readers see the old table until the new one is complete.
                assert [row.get("v") for row in bed.typed("a")] == [str(each) for each in range(5)]
                append(other, f'{{"v":"b{number}"}}')
                bed.round(fence=fence, complete=False)
                assert bed.typed("b")[-1]["v"] == f"b{number}"
            assert [row["w"] for row in bed.typed("a")] == [str(each) for each in range(6)]
            # An erasure makes it start again, and then in one round.
            install(log, text_schema("x"), [{"op": "rename", "from": "/w", "to": "/x"}])
            bed.round(fence=fence, complete=False)
            log.delete(seqs=[2]).wait()
            append(log, '{"x":"6"}')
            bed.round(fence=fence, complete=False)
        check_typed(bed)
        assert len(bed.typed("a")) == 6


def pa_rows(table: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.to_pyarrow_table().to_pylist()
    return rows


def test_a_declared_table_has_the_rows_of_all_parents(bed: Bed) -> None:
    declaration = make_log("vote", parent="poll", schema=Vote, soft_delete=True)
    tables = Tables(bed.engine, [declaration, make_log("poll", parent="room", schema=Poll)])
    vote = tables["vote"]
    for parent in ("lunch", "dinner"):
        for number in range(2):
            vote.append(parent, {"optionIdx": number, "comment": f"{parent}{number}"}, user="ada").wait()
    vote.update("lunch:1", {"comment": "changed"}, user="ada").wait()
    vote.rm("dinner:2", user="ada").wait()
    bed.round()
    found = [
        (row["parent"], row["seq"], row["userId"], row["optionIdx"], row["comment"], row["_corrupt"])
        for row in sorted(bed.typed("vote"), key=lambda row: (row["parent"], row["seq"]))
    ]
    assert found == [
        ("dinner", 1, "ada", 0, "dinner0", None),
        ("lunch", 1, "ada", 0, "changed", None),
        ("lunch", 2, "ada", 1, "lunch1", None),
    ]
    (edited,) = [row for row in bed.typed("vote") if row["comment"] == "changed"]
    assert edited["updatedAt"] >= edited["ts"]
    assert typed_tables.folders(bed.lake) == ["vote"]
    bed.engine.log("vote/lunch").drop().wait()
    bed.round()
    assert [row["parent"] for row in bed.typed("vote")] == ["dinner"]


def test_rows_of_earlier_versions_of_a_declared_table_are_upgraded(bed: Bed) -> None:
    before = {"type": "object", "properties": {"n": {"type": "string"}}, "required": ["n"]}
    after = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    Tables(bed.engine, [make_log("people", parent="room", schema=before)])["people"].append("x", {"n": "ann"}).wait()
    bed.round()
    assert [row["n"] for row in bed.typed("people")] == ["ann"]
    lenses = {1: [{"op": "rename", "from": "/n", "to": "/name"}]}
    Tables(bed.engine, [make_log("people", parent="room", schema=after, lenses=lenses)])["people"].append(
        "x", {"name": "bob"}
    ).wait()
    bed.round()
    assert [row["name"] for row in bed.typed("people")] == ["ann", "bob"]


def test_a_table_has_a_feed_of_its_changes_if_that_is_switched_on(bed: Bed) -> None:
    log = bed.log()
    install(log, text_schema("v"))
    append(log, '{"v":"1"}', key="k")
    bed.round()
    table = typed_tables.typed_table(bed.lake, "a")
    table.open().alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    begin = table.open().version()

    def feed(since: int) -> list[tuple[str, str | None]]:
        changes = pa.table(table.open().load_cdf(starting_version=since, columns=["v", "_change_type"]))
        return sorted((row["_change_type"], row["v"]) for row in changes.to_pylist())

    append(log, '{"v":"2"}')
    bed.round()
    append(log, '{"v":"3"}')
    bed.round()
    assert feed(begin) == [("insert", "2"), ("insert", "3")]
    # An erasure removes the files that an older feed would read.
    log.delete(key="k").wait()
    bed.round()
    after = table.open().version()
    append(log, '{"v":"4"}')
    bed.round()
    assert feed(after + 1) == [("insert", "4")]
    install(log, text_schema("w"), [{"op": "rename", "from": "/v", "to": "/w"}])
    append(log, '{"w":"5"}')
    bed.round()
    check_typed(bed)


def test_a_profile_has_its_columns(bed: Bed) -> None:
    log = bed.log("events")
    log.note({"registry": INSTALLED.registry("events").stored()}).wait()
    append(log, '{"timestamp":"2026-01-01T00:00:00Z","level":"info","status":200,"duration":1.5,"context":{"a":1}}')
    bed.round()
    (row,) = bed.typed("events")
    assert (row["level"], row["status"], row["duration"], row["context"]) == ("info", 200, 1.5, '{"a":1}')


@pytest.mark.parametrize("name", ["a/b", "ä", "x" * 300, "-x", "a b", "..", "A.b-c_1"])
def test_any_name_of_a_log_has_a_folder(bed: Bed, name: str) -> None:
    log = bed.log(name)
    install(log, text_schema("v"))
    append(log, '{"v":"1"}')
    bed.round()
    (folder,) = typed_tables.folders(bed.lake)
    assert folder == typed_tables.folder_of(name)
    assert (folder == name) == (name == "A.b-c_1")
    assert [row["log"] for row in bed.typed(folder)] == [name]


def test_many_small_tables_are_written_by_one_task_and_stay_as_they_are(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = []
    monkeypatch.setattr(stage, "write_typed", lambda item: (items.append(item), write_typed(item))[1])
    for number in range(20):
        log = bed.log(f"log-{number:02}")
        install(log, text_schema("v"))
        append(log, '{"v":"1"}')
    bed.round()
    assert [len(item.tables) for item in items] == [20]
    versions = {folder: typed_tables.typed_table(bed.lake, folder).snapshot().version for folder in
                typed_tables.folders(bed.lake)}  # fmt: skip
    append(bed.engine.log("log-03"), '{"v":"2"}')
    opened: list[str] = []
    real = TableSnapshot.__init__
    with take_fence(bed.lake, lambda: 0) as fence:
        bed.round(fence=fence)
        append(bed.engine.log("log-04"), '{"v":"2"}')
        with monkeypatch.context() as patch:
            patch.setattr(
                TableSnapshot,
                "__init__",
                lambda self, table, *rest: (opened.append(table.name), real(self, table, *rest))[1],
            )
            bed.round(fence=fence)
    # A driver opens a table again only if there is something to do.
    assert {name for name in opened if name.startswith("tables/")} == {"tables/log-04"}
    now = {folder: typed_tables.typed_table(bed.lake, folder).snapshot().version for folder in versions}
    assert {folder for folder in versions if now[folder] != versions[folder]} == {"log-03", "log-04"}
    check_typed(bed)


def test_a_table_without_progress_is_built_again(bed: Bed) -> None:
    log = bed.log()
    install(log, text_schema("v"))
    append(log, '{"v":"1"}')
    bed.round()
    for commit in (bed.path / "lake" / "tables" / "a" / "_delta_log").glob("*0.json"):
        commit.unlink()
    append(log, '{"v":"2"}')
    bed.round()
    assert [problem[0] for problem in bed.heard.problems] == ["tables"]
    check_typed(bed)


def test_typed_tables_in_an_object_store_are_as_good(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_upkeep, "FILES_PER_TIER", 3)
    log = bed.log()
    install(log, text_schema("v"))
    with object_store("lake") as options:
        bed.lake = Lake.at("s3://lake/some/where", **options)
        for number in range(3):
            append(log, f'{{"v":"{number}"}}', key=f"key-{number}")
            bed.round()
        assert len(typed_tables.typed_table(bed.lake, "a").files()) == 1
        log.delete(key="key-1").wait()
        install(log, text_schema("w"), [{"op": "rename", "from": "/v", "to": "/w"}])
        bed.round()
        check_typed(bed)
        assert [row["w"] for row in bed.typed("a")] == ["0", "2"]
        log.drop().wait()
        bed.round()
        assert typed_tables.folders(bed.lake) == []
