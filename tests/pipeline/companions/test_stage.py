from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from support.companion_rounds import Bed, document, registry_of
from support.local_tasks import work_here
from support.object_store import object_store
from support.searched_log import DECLARED

from strandline.lake.location import Lake
from strandline.lake.reporter import TaskFailed
from strandline.pipeline.companions import plan, stage, tables
from strandline.pipeline.companions.work import opened
from strandline.query.index_files.catalog import IndexCatalog
from strandline.query.index_files.shared_file import file_of
from strandline.query.index_files.table import IndexEntry
from strandline.query.searcher import Searcher
from strandline.schema.lenses import parse_lens
from strandline.schema.log_search import log_search
from strandline.service.workers import Workers
from strandline.tables import Tables, make_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def bed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bed:
    """Tasks run in this process: what Spark adds is tested below."""
    work_here(monkeypatch, wave=8)
    return Bed(tmp_path)


def test_everything_that_was_acknowledged_is_covered(bed: Bed) -> None:
    bed.create()
    bed.create("plain", None)
    bed.fill(1, 20)
    bed.append(b"no JSON", [1, 2], document(23))
    bed.append(document(1), name="plain")
    covered = bed.round()
    assert list(covered.values()) == [23]
    assert bed.ranges() == [(1, 23)]
    assert bed.seqs() == [*range(1, 21), 23]
    assert bed.counts() == 21
    assert bed.ranges("plain") == []
    assert not bed.problems


def test_a_line_grows_at_its_end(bed: Bed) -> None:
    bed.create()
    bed.fill(1, 100)
    bed.round()
    (before,) = bed.entries()
    bed.fill(101, 110)
    bed.round()
    assert bed.ranges() == [(1, 100), (101, 110)]
    assert before in bed.entries()
    assert bed.counts() == 110
    bed.round()
    assert len(bed.entries()) == 2


def test_few_new_records_wait_until_the_newest_companion_is_old(bed: Bed) -> None:
    bed.create()
    bed.fill(1, 10)
    bed.round(complete=False)
    assert bed.ranges() == [(1, 10)], "something is better than nothing"
    bed.fill(11, 12)
    bed.round(complete=False)
    assert bed.ranges() == [(1, 10)]
    bed.now += plan.FEW_WAIT_MS
    assert list(bed.round(complete=False).values()) == [12]


def test_a_long_log_is_shared_out_and_committed_wave_by_wave(bed: Bed) -> None:
    bed.create()
    bed.fill(1, 125)
    bed.round(rows=10)
    ranges = bed.ranges()
    assert len(ranges) > 10
    assert [first for first, _ in ranges] == [1, *(last + 1 for _, last in ranges[:-1])]
    assert bed.seqs() == list(range(1, 126))
    assert bed.counts() == 125


def test_small_neighbours_become_one_and_their_files_go_after_a_while(bed: Bed) -> None:
    bed.create()
    for number in range(0, 50, 10):
        bed.fill(number + 1, number + 10)
        bed.round()
    assert bed.ranges() == [(1, 50)]
    assert bed.seqs() == list(range(1, 51))
    assert bed.counts() == 50
    assert len(bed.files()) > 1, "somebody may still be reading the old ones"
    bed.now += 600_000
    bed.round()
    bed.now += 600_000
    bed.round()
    assert bed.files() == {file_of(entry.path) for entry in bed.entries()}


def test_another_configuration_is_built_beside_the_old_one_until_it_has_caught_up(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    bed.create()
    bed.fill(1, 50)
    bed.round()
    (old,) = bed.entries()
    declared = deepcopy(DECLARED)
    declared["fields"]["extra"] = {**declared["fields"]["took"], "bindings": [{"version": 1, "jsonPointer": "/extra"}]}
    bed.reconfigure(declared)

    def broken(item: Any) -> Any:
        raise RuntimeError("Spark is gone")

    with monkeypatch.context() as patch:
        patch.setattr(stage, "make", broken)
        with pytest.raises(TaskFailed, match="Spark is gone"):
            bed.round()
    assert bed.entries() == [old]
    assert bed.counts() == 50
    bed.round()
    (new,) = bed.entries()
    assert new.info.plan != old.info.plan
    assert "extra" in {column.name for column in opened(bed.lake, new.path).head.columns}
    assert bed.counts() == 50


def test_other_rollups_are_added_up_without_reading_the_log(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    bed.create()
    bed.fill(1, 50)
    bed.round()
    declared = deepcopy(DECLARED)
    declared["rollups"]["requests"]["intervals"] = ["1s", "1h"]
    bed.reconfigure(declared)
    monkeypatch.setattr(stage, "stretches_of", lambda *_: pytest.fail("the log was read"))
    bed.round()
    assert bed.ranges() == [(1, 50)]
    assert set(bed.rollups().filter(rollup="requests")["interval_ms"]) == {1000, 3_600_000}
    assert bed.counts() == 50


def test_a_log_that_is_not_searched_any_more_loses_its_companions(bed: Bed) -> None:
    bed.create()
    bed.fill(1, 5)
    bed.round()
    bed.reconfigure(None)
    bed.round()
    assert bed.entries() == []
    assert bed.rollups().is_empty()


def test_records_before_and_behind_a_new_schema_are_read_by_their_versions(bed: Bed) -> None:
    declared = deepcopy(DECLARED)
    declared["fields"]["note"]["bindings"].append({"version": 2, "jsonPointer": "/remark"})
    registry = registry_of(declared)
    bed.create(declared=declared)
    bed.append(document(1, note="before"))
    bed.round()
    old, new = ({"type": "object", "properties": {name: {"type": "string"}}, "required": [name]} for name in NAMES)
    registry = replace(
        registry, current_version=2, boundaries=((0, 1), (2, 2)), schemas={1: old, 2: new}, lenses={1: parse_lens(LENS)}
    )
    bed.append(document(2, note="between"))
    with bed.engine() as engine:
        engine.log("log").note({"registry": registry.stored()}).wait()
    bed.append(document(3, remark="behind", note="not this"))
    bed.round()
    assert [entry.info.versions for entry in bed.entries()] == [((1, 1), (3, 2))]
    words = {word for entry in bed.entries() for word in words_of(bed, entry, "note")}
    assert {"before", "between", "behind"} <= words
    assert "not" not in words


NAMES = "note", "remark"
LENS = {
    "apiVersion": "durable.lens/v1",
    "schema": "log",
    "from": 1,
    "to": 2,
    "ops": [{"op": "rename", "from": "/note", "to": "/remark"}],
}


def words_of(bed: Bed, entry: IndexEntry, field: str) -> list[str]:
    column = opened(bed.lake, entry.path).array(f"column:{field}:words")
    return [str(word) for word in column.to_pylist()]


def test_a_fork_is_covered_with_what_it_shares(bed: Bed) -> None:
    bed.create()
    bed.fill(1, 10)
    with bed.engine() as engine:
        fork = engine.fork("fork", engine.log("log"), 6).wait()
        bed.configure(fork, DECLARED)
    bed.fill(100, 103, name="fork")
    bed.round()
    assert bed.seqs("log") == list(range(1, 11))
    assert bed.seqs("fork") == list(range(1, 11))
    assert bed.counts("fork") == 10


def test_what_the_tables_have_replaced_goes_when_it_is_old(bed: Bed) -> None:
    bed.create()
    for number in range(0, 50, 10):
        bed.fill(number + 1, number + 10)
        bed.round()
    assert len(data_files(bed)) > 2
    bed.now += 8 * 86_400_000
    bed.round()
    assert len(data_files(bed)) == 2
    assert bed.counts() == 50


def data_files(bed: Bed) -> list[str]:
    names = [*bed.lake.names("companions/"), *bed.lake.names("rollups/")]
    return [name for name in names if name.endswith(".parquet") and "_delta_log" not in name]


# --- erasure -------------------------------------------------------------------------------------------------------


SECRET = "zzsecretzz"


def secret(number: int) -> dict[str, Any]:
    return document(number, service=SECRET, note=f"about {SECRET} things")


def test_nothing_of_a_deleted_record_is_left_in_any_file(bed: Bed) -> None:
    bed.create()
    bed.fill(1, 10)
    bed.append(secret(11))
    bed.fill(12, 20)
    bed.round()
    bed.fill(21, 40)
    bed.round()
    with bed.engine() as engine:
        fork = engine.fork("fork", engine.log("log"), 15).wait()
        bed.configure(fork, DECLARED)
    bed.round()
    assert bed.grep(SECRET.encode())
    with bed.engine() as engine:
        engine.log("log").delete(seqs=[11]).wait()
    bed.round()
    assert bed.grep(SECRET.encode()) == []
    expected = [seq for seq in range(1, 41) if seq != 11]
    assert bed.seqs() == expected
    assert bed.seqs("fork") == expected[:14]
    assert bed.counts() == 39
    assert bed.counts("fork") == 14
    assert bed.files() == {file_of(entry.path) for entry in bed.entries()}


def test_deletes_by_key_and_of_a_beginning_reach_companions(bed: Bed) -> None:
    bed.create()
    bed.append(*map(document, range(10)), keys=["a" if number % 2 else "b" for number in range(10)])
    bed.round()
    with bed.engine() as engine:
        engine.log("log").delete(key="a").wait()
        engine.log("log").delete(before=4).wait()
    bed.round()
    assert bed.seqs() == [5, 7, 9]
    assert bed.counts() == 3
    files = bed.files()
    with bed.engine() as engine:
        engine.log("log").delete(key="a").wait()
    bed.round()
    assert bed.files() == files, "nothing of it was left to go"


def test_hidden_records_go_and_come_back_and_amended_ones_are_what_they_are_now(bed: Bed) -> None:
    bed.create()
    bed.fill(1, 10)
    bed.round()
    with bed.engine() as engine:
        engine.log("log").hide(seqs=[3, 4]).wait()
    bed.round()
    assert bed.seqs() == [1, 2, *range(5, 11)]
    with bed.engine() as engine:
        engine.log("log").restore(seqs=[3]).wait()
        engine.log("log").amend(5, msgspec.json.encode(document(5, service="amended"))).wait()
    bed.round()
    assert bed.seqs() == [1, 2, 3, *range(5, 11)]
    assert bed.grep(b"amended")
    assert bed.counts() == 9


def test_a_dropped_log_leaves_nothing(bed: Bed) -> None:
    bed.create()
    bed.append(secret(1))
    bed.round()
    with bed.engine() as engine:
        engine.log("log").drop().wait()
    bed.round()
    assert bed.entries() == []
    assert bed.grep(SECRET.encode()) == []
    assert bed.files() == set()


def test_missed_events_make_everything_anew(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    from strandline.lake.erasures import ErasureEvents, EventsMissed

    bed.create()
    bed.fill(1, 10)
    bed.round()
    before = bed.files()
    with bed.engine() as engine:
        engine.log("log").delete(seqs=[2]).wait()

    def missed(self: ErasureEvents, seq: int) -> Any:
        raise EventsMissed("they are gone")

    monkeypatch.setattr(ErasureEvents, "after", missed)
    bed.round()
    assert bed.seqs() == [1, *range(3, 11)]
    assert bed.counts() == 9
    assert not before & bed.files()


def test_a_lake_in_an_object_store_is_as_good(bed: Bed) -> None:
    with object_store("lake") as options:
        bed.lake = Lake.at("s3://lake/here", **options)
        bed.create()
        bed.fill(1, 10)
        bed.round()
        bed.fill(11, 20)
        bed.round()
        assert bed.ranges() == [(1, 20)]
        with bed.engine() as engine:
            engine.log("log").delete(seqs=[5]).wait()
        bed.round()
        assert bed.seqs() == [1, 2, 3, 4, *range(6, 21)]
        assert bed.files() == {file_of(entry.path) for entry in bed.entries()}
    assert not bed.problems


# --- bad luck ------------------------------------------------------------------------------------------------------


class PowerCut(BaseException):
    pass


@pytest.mark.parametrize("place", ["companions", "rollups", "sweep"])
def test_a_crash_between_the_commits_of_the_two_tables_is_mended(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    bed.create()
    bed.fill(1, 10)
    bed.append(secret(11))
    bed.round()
    bed.fill(12, 40)
    bed.round()
    with bed.engine() as engine:
        engine.log("log").delete(seqs=[11]).wait()

    def cut(*_: Any, **__: Any) -> Any:
        raise PowerCut

    target = {
        "companions": (stage.CompanionTable, "change"),
        "rollups": (tables.Rollups, "_commit"),
        "sweep": (tables.Rollups, "sweep"),
    }[place]
    with monkeypatch.context() as patch:
        patch.setattr(*target, cut)
        with pytest.raises(PowerCut):
            bed.round()
    assert bed.counts() in (40, 39), "never more than there were"
    bed.round()
    assert bed.counts() == 39
    assert bed.seqs() == [seq for seq in range(1, 41) if seq != 11]
    assert bed.grep(SECRET.encode()) == []


def test_a_damaged_companion_is_told_and_made_again(bed: Bed) -> None:
    bed.create()
    bed.fill(1, 10)
    bed.round()
    bed.fill(11, 21)
    (entry,) = bed.entries()
    assert bed.lake.directory is not None
    path = bed.lake.directory / entry.path
    content = bytearray(path.read_bytes())
    content[len(content) // 3 : len(content) // 2] = bytes(len(content) // 2 - len(content) // 3)
    path.write_bytes(content)
    bed.round()
    bed.round()
    assert ("log", 1) in {(log, seq) for log, seq, _ in bed.problems}
    assert bed.seqs() == list(range(1, 22))
    assert bed.counts() == 21


def test_a_log_that_cannot_be_read_keeps_what_it_has_and_others_go_on(bed: Bed) -> None:
    bed.create("a")
    bed.create("b")
    bed.fill(1, 10, name="a")
    bed.round()
    bed.fill(11, 30, name="a")
    with bed.engine() as engine:
        engine.seal()
    (segment,) = (path for path in (bed.root / "data" / "segments").rglob("*") if path.is_file())
    content = bytearray(segment.read_bytes())
    content[200:600] = bytes(400)
    segment.write_bytes(content)
    bed.fill(31, 40, name="a")
    bed.fill(1, 5, name="b")
    bed.round()
    assert {(log, seq) for log, seq, _ in bed.problems} == {("a", 11)}
    assert bed.ranges("a") == [(1, 10)]
    assert bed.seqs("b") == [1, 2, 3, 4, 5]


def test_a_poison_record_is_told_with_its_seq(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    from strandline.query.extraction import Extractor

    extract = Extractor.extract

    def fails(self: Extractor, data: Any, version: int) -> Any:
        if any(b"poison" in each for each in data):
            raise ZeroDivisionError("what is that")
        return extract(self, data, version)

    monkeypatch.setattr(Extractor, "extract", fails)
    bed.create("a")
    bed.create("b")
    bed.fill(1, 7, name="a")
    bed.append(document(8, note="poison"), name="a")
    bed.fill(9, 12, name="a")
    bed.fill(1, 3, name="b")
    bed.round()
    assert bed.problems == [("a", 8, "ZeroDivisionError: what is that")]
    assert bed.ranges("a") == []
    assert bed.seqs("b") == [1, 2, 3]


# --- on Spark ------------------------------------------------------------------------------------------------------


def test_on_spark_companions_are_built_extended_merged_renewed_and_erased(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bed = Bed(tmp_path, spark)
    bed.create()
    bed.create("other")
    bed.fill(1, 60)
    bed.append(secret(61))
    bed.fill(1, 5, name="other")
    bed.round(rows=20)
    assert len(bed.ranges()) > 1
    bed.fill(62, 80)
    monkeypatch.setattr(tables, "FEW_BYTES", 0)
    bed.round()
    assert bed.ranges() == [(1, 80)]
    declared = deepcopy(DECLARED)
    declared["rollups"]["requests"]["intervals"] = ["1s"]
    bed.reconfigure(declared)
    monkeypatch.undo()
    with bed.engine() as engine:
        engine.log("log").delete(seqs=[61]).wait()
    bed.round()
    assert bed.seqs() == [seq for seq in range(1, 81) if seq != 61]
    assert bed.seqs("other") == [1, 2, 3, 4, 5]
    assert bed.counts() == 79
    assert bed.grep(SECRET.encode()) == []
    assert not bed.problems


def test_rows_of_a_table_with_search_are_covered_and_found(bed: Bed) -> None:
    """The process of the pipeline does not know the declaration, and the table finds rows with the companions."""
    note = make_log("note", parent="desk", schema={"type": "object"}, soft_delete=True, search="text")
    with bed.engine() as engine:
        table = Tables(engine, [note])["note"]
        for text in ("red lamp", "old lamp", "blue lamp", "green chair"):
            table.append("p", {"text": text}).wait()
        table.update("p:2", {"text": "new chair"}).wait()
        table.rm("p:3").wait()
    assert bed.round(complete=False) == {}, "it is short, so the server indexes it in memory"
    assert bed.ranges("note/p") == []
    assert list(bed.round().values()) == [4]
    assert bed.ranges("note/p") == [(1, 4)]
    assert bed.ranges("note~changes/p") == []
    catalog = IndexCatalog(bed.lake, bed.root / "cache", Workers().lake, look_seconds=0)
    with bed.engine() as engine:
        searcher = Searcher(1 << 20, [catalog])
        table = Tables(engine, [note], searcher=searcher)["note"]
        assert [row.seq for row in table.search("p", "lamp").rows] == [1]
        assert [row.seq for row in table.search("p", "chair").rows] == [4, 2]
        search = log_search(note.search_registry)
        assert search is not None
        held = searcher.held(engine.log("note/p"), search.config)
        assert (held.chunks, held.size) == (0, 0), "the rows were found with the companion, not in memory"
        table.restore("p:3").wait()
        table.append("p", {"text": "white lamp"}).wait()
        assert [row.seq for row in table.search("p", "lamp").rows] == [5, 3, 1]
