"""Index files that are built in the background answer as an index in memory does."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.indexed_log import IndexedBed, indexed_bed, small_files
from support.searched_log import DECLARED, NOW

from strandline.engine import Config, Engine
from strandline.engine.errors import DamagedFile
from strandline.query import index, providers, search
from strandline.query.config_parser import parse_search_config
from strandline.query.index_files import answers, indexer, plan


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    small_files(monkeypatch)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[IndexedBed]:
    with indexed_bed(tmp_path) as bed:
        yield bed


def check(bed: IndexedBed, *queries: str) -> None:
    """Both searchers find the same, in the same order and with the same scores."""
    for query in queries or ("has:status", "note:record", 'note:"record 3"', "status:>=20"):
        for sort in (["offset:asc"], ["offset:desc"], None):
            kwargs: dict[str, Any] = {} if sort is None else {"sort": sort}
            found = bed.search(query, size=500, **kwargs)
            with bed.without_files():
                expected = bed.search(query, size=500, **kwargs)
            assert found.coverage.complete
            assert [(hit.seq, hit.score, hit.source) for hit in found.hits] == [
                (hit.seq, hit.score, hit.source) for hit in expected.hits
            ]


def test_sealed_records_are_indexed_in_files_and_new_ones_in_memory(log: IndexedBed) -> None:
    log.fill(30)
    log.index()
    assert log.ranges() == [(1, 20), (21, 30)]
    log.fill(5)
    result = log.search("has:status", size=100)
    assert len(result.hits) == 35
    assert (result.coverage.index_files, result.coverage.chunks, result.coverage.caught_up) == (2, 1, 5)
    check(log)


def test_few_records_get_no_file(log: IndexedBed) -> None:
    log.fill(9)
    log.index()
    assert log.ranges() == []
    check(log)
    progress = log.indexer.progress(log.log, log.config, log.versions)
    assert progress.complete


def test_a_search_does_not_index_sealed_records(log: IndexedBed) -> None:
    log.fill(30)
    log.engine.seal()
    log.fill(3)
    result = log.search("has:status", size=100)
    assert [hit.seq for hit in result.hits] == [33, 32, 31]
    assert not result.coverage.complete
    assert not result.coverage.timed_out
    assert (result.coverage.missing, result.coverage.caught_up) == (30, 3)
    progress = log.indexer.progress(log.log, log.config, log.versions)
    assert (progress.indexed_records, progress.records, progress.complete) == (3, 33, False)
    log.indexer.work()
    check(log)
    assert log.search("has:status").coverage.caught_up == 0


def test_the_state_of_an_index_is_looked_up_again(log: IndexedBed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is done with other logs meanwhile."""
    assert log.searcher.wants_look(log.log, log.config)
    log.searcher.look(log.log, log.config, log.versions)
    assert not log.searcher.wants_look(log.log, log.config)
    monkeypatch.setattr(providers, "STATUS_SECONDS", 0.0)
    assert log.searcher.wants_look(log.log, log.config)
    log.config = parse_search_config({"fields": {"status": DECLARED["fields"]["status"]}})
    monkeypatch.setattr(providers, "STATUS_SECONDS", 60.0)
    assert log.searcher.wants_look(log.log, log.config), "another configuration has another index"


def test_what_is_in_memory_answers_until_its_file_is_there(log: IndexedBed) -> None:
    log.fill(30)
    check(log)
    log.engine.seal()
    check(log)
    log.indexer.work()
    assert log.search("has:status", size=100).coverage.index_files == 2
    check(log)


def test_neighbours_are_merged(log: IndexedBed) -> None:
    for _ in range(4):
        log.fill(20)
        log.index()
    assert log.ranges() == [(1, 80)]
    assert len(list((log.engine.disk.root / "indexes" / f"{log.log.epoch:08d}").iterdir())) == 1  # type: ignore[attr-defined]
    check(log)
    log.fill(80)
    log.index()
    assert log.ranges() == [(1, 80), (81, 160)]
    check(log)


def test_deleted_records_leave_the_files_when_half_of_them_are_gone(log: IndexedBed) -> None:
    log.fill(20)
    log.index()
    (before,) = log.entries()
    log.log.delete(seqs=list(range(1, 8))).wait()
    log.index()
    assert log.entries() == [before]
    check(log)
    log.log.delete(before=16).wait()
    log.fill(1)
    log.index()
    (after,) = log.entries()
    assert (after.info.first, after.info.last, after.info.records) == (1, 20, 5)
    check(log)


def test_files_of_records_that_retention_removed_are_removed(log: IndexedBed) -> None:
    log.fill(60)
    log.index()
    assert log.ranges() == [(1, 20), (21, 40), (41, 60)]
    log.log.configure(Config(durability="memory", cap_records=25)).wait()
    log.fill(1)
    log.index()
    assert log.ranges()[0][0] == 21
    check(log)


def test_another_configuration_builds_files_anew_and_removes_the_old_ones(log: IndexedBed) -> None:
    log.fill(30)
    log.index()
    old = {entry.path for entry in log.entries()}
    fields = {name: field for name, field in DECLARED["fields"].items() if name != "title"}
    log.config = parse_search_config({**DECLARED, "fields": fields})
    log.log.note({"registry": b"changed"}).wait()
    assert log.search("has:status").coverage.missing == 30
    log.indexer.work()
    assert log.ranges() == [(1, 20), (21, 30)]
    assert not old & {entry.path for entry in log.entries()}
    check(log)


def test_other_rollups_are_added_without_reading_the_records(log: IndexedBed, monkeypatch: pytest.MonkeyPatch) -> None:
    log.fill(20)
    log.index()
    changed = {**DECLARED["rollups"]["requests"], "include": "status:1"}
    log.config = parse_search_config({**DECLARED, "rollups": {**DECLARED["rollups"], "requests": changed}})
    monkeypatch.setattr(indexer, "sealed_rows", lambda *_: pytest.fail("read the records"))
    log.log.note({"registry": b"changed"}).wait()
    log.indexer.work()
    body = {"rollup": "requests", "interval": "1s", "from": NOW // 1000 * 1000, "to": NOW // 1000 * 1000 + 2000}
    assert log.aggregate(**body).coverage.used_rollups


def test_a_dropped_log_has_no_files(log: IndexedBed) -> None:
    log.fill(20)
    log.index()
    # In the order of the server.
    log.searcher.forget(log.log)
    log.indexer.forget(log.log)
    log.log.drop().wait()
    log.indexer.work()
    assert log.directory.epochs() == []


def test_a_log_that_is_no_longer_searchable_has_no_files(log: IndexedBed, monkeypatch: pytest.MonkeyPatch) -> None:
    log.fill(20)
    log.index()
    monkeypatch.setattr(log.indexer, "_search_of", lambda _: None)
    log.log.note({"registry": None, "x": 1}).wait()
    log.indexer.work()
    assert log.directory.epochs() == []


def test_files_are_found_again_after_a_restart_and_those_of_dropped_logs_are_removed(tmp_path: Path) -> None:
    with indexed_bed(tmp_path) as bed:
        bed.fill(30)
        other = bed.engine.create("other", Config(durability="memory")).wait()
        bed.index()
        (tmp_path / "indexes" / f"{other.epoch:08d}").mkdir()
        (tmp_path / "indexes" / f"{bed.log.epoch:08d}" / "00000001-00000020-half.arrow.tmp").write_bytes(b"half")
        before = bed.entries()
        other.drop().wait()
    with indexed_bed(tmp_path) as bed:
        result = bed.search("has:status", size=100)
        assert (result.coverage.index_files, result.coverage.caught_up, len(result.hits)) == (2, 0, 30)
        assert [entry.path for entry in bed.entries()] == [entry.path for entry in before]
        bed.indexer.work()
        assert bed.directory.epochs() == [bed.log.epoch]
        assert len(list((tmp_path / "indexes" / f"{bed.log.epoch:08d}").iterdir())) == 2


@pytest.mark.parametrize("how", ["cut", "changed", "gone", "empty"])
def test_a_damaged_file_is_removed_and_built_again(log: IndexedBed, tmp_path: Path, how: str) -> None:
    log.fill(40)
    log.index()
    path = tmp_path / log.entries()[0].path
    raw = bytearray(path.read_bytes())
    log.directory._open.clear()
    if how == "cut":
        path.write_bytes(raw[: len(raw) // 2])
    elif how == "changed":
        # In the middle: the head of the file is good, and the data is not.
        at = raw.find(b"record")
        raw[at : at + 6] = b"drocer"
        path.write_bytes(raw)
    elif how == "empty":
        path.write_bytes(b"")
    else:
        path.unlink()
    result = log.search("note:record", size=100)
    assert result.coverage.missing == 20
    log.indexer.work()
    assert log.ranges() == [(1, 20), (21, 40)]
    check(log)
    assert log.directory.damaged == 1


def test_a_file_that_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    with indexed_bed(tmp_path) as bed:
        bed.fill(20)
        bed.index()
    # Reading a directory fails like reading from a bad disk.
    (tmp_path / "indexes" / f"{bed.log.epoch:08d}" / "00000001-00000020-0123456789abcdef.arrow").mkdir()
    with indexed_bed(tmp_path) as bed:
        check(bed)
        assert bed.ranges() == [(1, 20)]


@pytest.mark.parametrize("how", ["gone", "cut", "empty"])
def test_a_file_may_shrink_or_vanish_while_it_is_mapped(log: IndexedBed, tmp_path: Path, how: str) -> None:
    """To read what is not there any more would end the process (SIGBUS)."""
    log.fill(40)
    log.index()
    check(log)
    path = tmp_path / log.entries()[0].path
    if how == "gone":
        path.unlink()
    else:
        os.truncate(path, path.stat().st_size // 2 if how == "cut" else 0)
    assert log.search("note:record", size=100).coverage.missing == 20
    assert log.directory.damaged == 1
    log.indexer.work()
    assert log.ranges() == [(1, 20), (21, 40)]
    check(log)


def test_a_damaged_file_does_not_stop_a_merge(log: IndexedBed, tmp_path: Path) -> None:
    for _ in range(3):
        log.fill(20)
        log.index()
    path = tmp_path / log.entries()[1].path
    log.directory._open.clear()
    path.write_bytes(path.read_bytes()[:100])
    log.fill(20)
    log.index()
    assert log.ranges() == [(1, 80)]
    check(log)


@pytest.mark.parametrize("indexed", [False, True])
def test_deleted_records_stay_out_after_their_segments_were_merged(log: IndexedBed, indexed: bool) -> None:
    """Sealing and merging forget which records were removed."""
    log.fill(20)
    if indexed:
        log.index()
    assert len(log.search("has:status", size=100).hits) == 20
    log.log.delete(seqs=[2, 3]).wait()
    for _ in range(4):
        log.fill(1)
        log.engine.seal()
    log.log.delete(seqs=[20]).wait()
    page = log.search("has:status", size=17, sort=["offset:asc"])
    assert [hit.seq for hit in page.hits] == [1, *range(4, 20)]
    cover, _ = log.searcher.indexes.cover(log.log, log.config, log.versions, log.log.head, perf_counter() + 60)
    assert sum(len(chunk) - (0 if chunk.gone is None else int(chunk.gone.sum())) for chunk in cover.chunks) == 21
    check(log)


def test_a_log_whose_records_cannot_be_read_does_not_stop_the_others(
    log: IndexedBed, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.fill(20)
    bad = log.engine.create("bad", Config(durability="memory")).wait()
    log.log, good = bad, log.log
    log.fill(20)
    log.engine.seal()
    usual = indexer.sealed_rows

    def fail(of: Any, first: int, last: int) -> Any:
        if of.name == "bad":
            raise DamagedFile("segments/00000001.arrow", "rotten")
        return usual(of, first, last)

    with monkeypatch.context() as patched:
        patched.setattr(indexer, "sealed_rows", fail)
        with pytest.raises(DamagedFile):
            log.indexer.work()
    log.log = good
    assert log.ranges() == [(1, 20)]
    log.indexer.work()
    log.log = bad
    assert log.ranges() == [(1, 20)]


def test_many_rewritten_records_make_the_file_be_built_again(log: IndexedBed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "REBUILD_REWRITTEN", 2)
    log.fill(20)
    log.index()
    for seq in (3, 4):
        log.log.amend(seq, b'{"status": 9000}').wait()
    log.index()
    assert log.entries()[0].info.rewrites == 0
    check(log, "status:9000")
    log.log.amend(5, b'{"status": 9000}').wait()
    log.index()
    (entry,) = log.entries()
    assert entry.info.rewrites == 3
    check(log, "status:9000", "has:status")


def test_a_merged_file_has_no_old_values(log: IndexedBed, tmp_path: Path) -> None:
    log.append(*[{"status": 1, "note": "secretword"}] * 20)
    log.index()
    log.log.amend(3, b'{"status": 9000, "note": "another"}').wait()
    log.log.delete(seqs=[*range(1, 3), *range(4, 21)]).wait()
    for _ in range(3):
        log.fill(20)
        log.index()
    assert log.ranges() == [(1, 80)]
    check(log, "status:9000", "note:secretword", "has:status")
    files = list((tmp_path / "indexes").glob("*/*.arrow"))
    assert files
    assert not [path for path in files if b"secretword" in path.read_bytes()]


def test_rewritten_records_are_found_after_a_restart_too(tmp_path: Path) -> None:
    with indexed_bed(tmp_path) as bed:
        bed.fill(20)
        bed.index()
        bed.log.amend(3, b'{"status": 9000}').wait()
        bed.engine.seal()
    with indexed_bed(tmp_path) as bed:
        assert bed.search("status:9000").coverage.index_files == 1
        check(bed, "status:9000", "has:status")


def test_without_the_events_of_changes_a_file_is_built_again(log: IndexedBed, monkeypatch: pytest.MonkeyPatch) -> None:
    log.fill(20)
    log.index()
    log.log.amend(3, b'{"status": 9000}').wait()
    monkeypatch.setattr(answers.Rewriting, "since", lambda *_: None)
    assert log.search("status:9000").coverage.missing == 20
    log.index()
    check(log, "status:9000", "has:status")


def test_a_fork_has_files_of_its_own(log: IndexedBed) -> None:
    log.fill(30)
    source = log.log
    log.index()
    log.log = log.engine.fork("fork", source, 25, Config(durability="memory")).wait()
    progress = log.indexer.progress(log.log, log.config, log.versions)
    assert (progress.indexed_records, progress.records, progress.complete) == (0, 25, False)
    log.fill(20)
    log.index()
    assert log.indexer.progress(log.log, log.config, log.versions).complete
    assert log.ranges() == [(1, 20), (21, 40)]
    check(log)
    source.amend(3, b'{"status": 9000}').wait()
    source.delete(seqs=[4]).wait()
    check(log, "status:9000", "has:status")


def test_a_new_log_is_indexed_without_being_asked_for(log: IndexedBed) -> None:
    log.index()
    log.log = log.engine.create("another", Config(durability="memory")).wait()
    log.fill(20)
    log.index()
    assert log.ranges() == [(1, 20)]


def test_the_index_in_memory_follows_a_log_that_is_searched(log: IndexedBed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexer, "MIN_BEHIND", 5)
    monkeypatch.setattr(providers, "MAX_REQUEST_ROWS", 10)
    monkeypatch.setattr(providers, "CATCH_UP_ROWS", 4)
    monkeypatch.setattr(providers, "CATCH_UP_SECONDS", 0.0)
    log.fill(100)
    result = log.search("has:status", size=200)
    assert not result.coverage.complete
    assert not result.coverage.timed_out
    log.indexer._follow()
    result = log.search("has:status", size=200)
    assert (len(result.hits), result.coverage.caught_up, result.coverage.complete) == (100, 0, True)


def test_a_search_that_has_no_time_to_index_all_new_records_has_the_first_ones(
    log: IndexedBed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Extracting hundreds of fields from all of them may take longer than a search may."""
    log.fill(20)
    monkeypatch.setattr(providers, "CATCH_UP_ROWS", 4)
    extract, passed = index.Index._extend, 0.0

    def extend(self: index.Index, *given: Any) -> tuple[int, int]:
        nonlocal passed
        passed += 40.0
        return extract(self, *given)

    monkeypatch.setattr(index.Index, "_extend", extend)
    for module in (index, search):
        monkeypatch.setattr(module, "perf_counter", lambda: perf_counter() + passed)
    monkeypatch.setattr(search, "GRACE_SECONDS", 60.0)
    result = log.search("has:status", patience=60.0)
    assert [hit.seq for hit in result.hits] == [8, 7, 6, 5, 4, 3, 2, 1]
    assert (result.coverage.timed_out, result.coverage.missing) == (True, 12)


def test_a_log_that_became_ephemeral_is_indexed_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets no files, so its sealed records do not wait for one."""
    monkeypatch.setattr(indexer, "MIN_BEHIND", 5)
    monkeypatch.setattr(providers, "MAX_REQUEST_ROWS", 10)
    monkeypatch.setattr(providers, "CATCH_UP_ROWS", 4)
    monkeypatch.setattr(providers, "CATCH_UP_SECONDS", 0.0)
    with indexed_bed(tmp_path) as bed:
        bed.fill(40)
        bed.index()
        bed.log.configure(Config(durability="ephemeral")).wait()
    with indexed_bed(tmp_path) as bed:
        bed.indexer.work()
        assert bed.ranges() == []
        bed.fill(5)
        progress = bed.indexer.progress(bed.log, bed.config, bed.versions)
        assert (progress.indexed_records, progress.records) == (0, 45)
        bed.indexer._follow()
        result = bed.search("has:status", size=100)
        assert (len(result.hits), result.coverage.complete, result.coverage.caught_up) == (45, True, 0)
        check(bed)
        assert bed.indexer.progress(bed.log, bed.config, bed.versions).complete


def test_asking_for_the_progress_has_new_records_indexed(log: IndexedBed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when nobody searches."""
    monkeypatch.setattr(providers, "MAX_REQUEST_ROWS", 15)
    monkeypatch.setattr(indexer, "MIN_BEHIND", 10)
    log.fill(10)
    log.index()
    assert log.indexer.progress(log.log, log.config, log.versions).complete
    log.fill(20)
    assert not log.indexer.progress(log.log, log.config, log.versions).complete
    log.indexer._follow()
    assert log.indexer.progress(log.log, log.config, log.versions).complete
    log.fill(20)
    assert log.indexer.progress(log.log, log.config, log.versions).remaining_ms is not None


def test_a_long_log_is_complete_when_files_have_it(log: IndexedBed, monkeypatch: pytest.MonkeyPatch) -> None:
    """An index in memory would be lost if the server was killed."""
    monkeypatch.setattr(providers, "MAX_REQUEST_ROWS", 15)
    monkeypatch.setattr(indexer, "MIN_BEHIND", 10)

    def progress() -> tuple[int, int]:
        found = log.indexer.progress(log.log, log.config, log.versions)
        return found.indexed_records, found.records

    log.fill(30)
    log.indexer.work()
    assert progress() == (0, 30)
    assert log.engine.maintenance.due, "the records are sealed soon, although there are few"
    log.search("has:status")
    log.indexer._follow()
    assert log.search("has:status").coverage.complete
    assert progress() == (15, 30)
    log.engine.maintain()
    assert progress() == (15, 30)
    # Meanwhile, many records are appended. They are sealed too, and the progress does not wait for them.
    log.fill(20)
    log.indexer.work()
    log.indexer._follow()
    assert (log.ranges(), progress()) == ([(1, 20), (21, 30)], (50, 50))
    assert log.engine.maintenance.due
    log.engine.maintain()
    log.indexer.work()
    assert (log.ranges(), progress()) == ([(1, 20), (21, 30), (31, 50)], (50, 50))
    # Later records may wait until they are sealed anyway.
    log.fill(30)
    log.indexer.work()
    log.indexer._follow()
    assert progress() == (80, 80)
    assert not log.engine.maintenance.due
    # With another configuration, all of them are indexed again.
    log.config = parse_search_config({"fields": {"status": DECLARED["fields"]["status"]}})
    assert progress() == (0, 80)
    assert log.engine.maintenance.due


def test_records_that_the_memory_has_no_room_for_are_not_indexed(
    log: IndexedBed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "MAX_CHUNK_ROWS", 10)
    log.searcher.indexes.budget = 1
    for _ in range(2):
        log.fill(15)
        log.search("has:status")
    coverage = log.search("has:status").coverage
    progress = log.indexer.progress(log.log, log.config, log.versions)
    assert (coverage.missing, progress.indexed_records, progress.records) == (15, 15, 30)


OPERATIONS = st.one_of(
    st.tuples(st.just("fill"), st.integers(1, 45)),
    st.tuples(st.just("index"), st.just(0)),
    st.tuples(st.just("seal"), st.just(0)),
    st.tuples(st.just("restart"), st.just(0)),
    *(st.tuples(st.just(name), st.integers(1, 200)) for name in ("delete", "hide", "restore", "amend", "before")),
)


def act(bed: IndexedBed, name: str, number: int) -> None:
    log = bed.log
    if name == "fill":
        bed.fill(number)
    elif name == "seal":
        bed.engine.seal()
    elif name == "index":
        bed.index()
    elif number <= log.head:
        if name == "before":
            log.delete(before=number // 2).wait()
        elif name == "amend":
            if log.read(number - 1, 1).seqs == [number]:
                log.amend(number, b'{"status": 7777, "note": "another record"}').wait()
        else:
            getattr(log, name)(seqs=[number, number + 3]).wait()


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(operations=st.lists(OPERATIONS, max_size=15))
def test_answers_do_not_depend_on_files(
    tmp_path_factory: pytest.TempPathFactory, operations: list[tuple[str, int]]
) -> None:
    path = tmp_path_factory.mktemp("data")
    steps = iter(operations)
    going = True
    while going:
        going = False
        with indexed_bed(path) as bed:
            for name, number in steps:
                if name == "restart":
                    going = True
                    break
                act(bed, name, number)
            bed.index()
            check(bed, "note:record", "status:>=20")


def test_engines_without_an_indexer_have_no_files(tmp_path: Path) -> None:
    with Engine.open(tmp_path, background=False):
        assert not (tmp_path / "indexes").exists()


def test_records_that_cannot_be_read_do_not_keep_the_others_from_being_indexed(
    log: IndexedBed, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.fill(60)
    log.engine.seal()
    usual = indexer.sealed_rows

    def fail(of: Any, first: int, last: int) -> Any:
        if first == 1:
            raise DamagedFile("segments/00000001.arrow", "rotten")
        return usual(of, first, last)

    with monkeypatch.context() as patched:
        patched.setattr(indexer, "sealed_rows", fail)
        with pytest.raises(DamagedFile):
            log.indexer.work()
        assert log.ranges() == [(21, 40), (41, 60)]
        assert log.search("has:status", size=100).coverage.missing == 20
        with pytest.raises(DamagedFile):
            log.indexer.work()
    log.indexer.work()
    check(log)


def test_a_log_that_fails_is_not_tried_again_for_every_search(log: IndexedBed, monkeypatch: pytest.MonkeyPatch) -> None:
    log.fill(20)
    log.engine.seal()
    tries = []

    def fail(job: Any) -> Any:
        tries.append(job)
        log.search("has:status")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(log.indexer._runner, "run", fail)
        with pytest.raises(OSError):
            log.indexer.work()
    assert len(tries) == 1
    log.search("has:status")
    log.indexer.work()
    check(log)


def test_a_log_counts_as_waiting_until_its_files_are_complete(log: IndexedBed, monkeypatch: pytest.MonkeyPatch) -> None:
    runner, waiting = log.indexer._runner, []
    run = runner.run

    def noted(job: Any) -> Any:
        waiting.append(log.indexer.waiting)
        return run(job)

    monkeypatch.setattr(runner, "run", noted)
    log.fill(60)
    log.index()
    assert (waiting, log.indexer.waiting) == ([1, 1, 1], 0)


def test_the_last_file_is_built_again_when_a_search_misses_it(log: IndexedBed, tmp_path: Path) -> None:
    log.fill(40)
    log.index()
    log.directory.remove([log.entries()[1]])
    assert log.search("has:status", size=100).coverage.missing == 20
    log.indexer.work()
    check(log)


def test_a_file_that_vanished_does_not_stop_a_merge(log: IndexedBed, tmp_path: Path) -> None:
    for _ in range(3):
        log.fill(20)
        log.index()
    (tmp_path / log.entries()[1].path).unlink()
    log.fill(20)
    log.index()
    assert log.ranges() == [(1, 80)]
    check(log)


def test_a_configuration_that_cannot_be_read_does_not_stop_the_start(log: IndexedBed) -> None:
    def fail(of: Any) -> Any:
        raise ValueError("a newer release wrote it")

    log.indexer._search_of = fail
    log.indexer.prepare()


def test_removed_records_are_not_found_while_the_index_is_being_extended(log: IndexedBed) -> None:
    log.fill(9)
    assert len(log.seqs("has:status")) == 9
    (index,) = log.indexed.indexes._indexes.values()
    log.log.delete(seqs=[3]).wait()
    with index._extending:
        (chunk,) = index.cover(log.versions, log.log.head, 0.0)[0].chunks
        assert chunk.gone is not None
        assert chunk.seqs[chunk.gone].tolist() == [3]
        log.log.amend(4, b'{"status": 1}').wait()
        assert index.cover(log.versions, log.log.head, 0.0)[0].chunks == ()
