"""A companion answers as long as what it holds is so, and for nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.companion_lake import CompanionBed, companion_bed
from support.searched_log import DECLARED, NOW, ROOM

from strandline.engine import Config, Engine, ManualClock
from strandline.engine.disk import LocalDisk
from strandline.query.config_parser import parse_search_config
from strandline.query.index_files import answers
from strandline.query.index_files.answers import Usable, choose
from strandline.query.index_files.catalog import IndexCatalog
from strandline.query.index_files.directory import IndexDirectory
from strandline.query.index_files.file import Info
from strandline.query.index_files.table import IndexEntry
from strandline.query.searcher import Searcher
from strandline.service.workers import Workers


def append(covered: CompanionBed, count: int) -> None:
    covered.append(*[{"status": covered.log.head + number + 1, "at": NOW} for number in range(count)])


def used(covered: CompanionBed) -> int:
    """How many companions answer, all of what they say being right."""
    result = covered.search("has:status", size=500, sort=["offset:asc"])
    with covered.without_companions():
        expected = covered.search("has:status", size=500, sort=["offset:asc"])
    assert [hit.seq for hit in result.hits] == [hit.seq for hit in expected.hits]
    assert result.coverage.complete
    return result.coverage.index_files


def test_records_that_were_removed_are_not_found_and_the_rest_is(covered: CompanionBed) -> None:
    append(covered, 20)
    covered.cover((1, 20))
    covered.log.delete(seqs=[3, 4, 5]).wait()
    covered.log.hide(seqs=[9]).wait()
    assert used(covered) == 1
    assert 9 not in covered.seqs("has:status", size=100)


def test_a_log_that_loses_its_oldest_records_with_every_append_stays_covered(tmp_path: Path) -> None:
    with companion_bed(tmp_path) as covered:
        append(covered, 20)
        covered.cover((1, 20))
        covered.log.configure(Config(durability="memory", cap_records=15)).wait()
        for _ in range(10):
            append(covered, 1)
            assert used(covered) == 1
        append(covered, 15)
        assert used(covered) == 0


@pytest.mark.parametrize("how", ["restored", "amended"])
def test_a_record_that_came_back_or_changed_is_found_as_it_is_now(covered: CompanionBed, how: str) -> None:
    append(covered, 30)
    if how == "restored":
        covered.log.hide(seqs=[12]).wait()
    covered.cover((1, 10), (11, 20), (21, 30))
    assert used(covered) == 3
    if how == "restored":
        covered.log.restore(seqs=[12]).wait()
        assert covered.seqs("status:12") == [12]
    else:
        covered.log.amend(12, b'{"status": 5000}').wait()
        assert covered.seqs("status:5000") == [12]
        assert covered.seqs("status:12") == []
        assert covered.seqs("status:>=20", size=3, sort=["offset:asc"]) == [12, 20, 21]
        covered.log.amend(12, b'{"status": 6000}').wait()
        assert covered.seqs("status:5000") == []
        covered.log.delete(seqs=[12]).wait()
        assert covered.seqs("status:6000") == []
    assert used(covered) == 3


def test_a_companion_of_which_too_many_records_changed_answers_no_more(
    covered: CompanionBed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "MAX_REWRITTEN", 2)
    append(covered, 30)
    covered.cover((1, 10), (11, 20), (21, 30))
    for seq in (12, 13, 13, 21):
        covered.log.amend(seq, b'{"status": 5000}').wait()
    assert used(covered) == 3
    covered.log.amend(14, b'{"status": 5000}').wait()
    assert used(covered) == 2
    # Built again, it is good again.
    stale = next(entry for entry in covered.listed() if entry.info.first == 11)
    covered.list(covered.put(covered.made(11, 20)), instead_of=[stale.path])
    assert used(covered) == 3


def test_what_was_rewritten_is_known_after_a_restart(tmp_path: Path) -> None:
    with companion_bed(tmp_path) as covered:
        append(covered, 20)
        covered.cover((1, 10), (11, 20))
        covered.log.amend(5, b'{"status": 77}').wait()
        covered.engine.seal()
    with Engine.open(tmp_path / "data", clock=ManualClock(NOW), background=False) as engine:
        covered.engine, covered.log = engine, engine.log("log")
        covered.covered = covered.searcher = Searcher(
            ROOM, [IndexCatalog(covered.lake, tmp_path / "cache", Workers().lake, look_seconds=0)]
        )
        covered.bare = Searcher(ROOM)
        assert used(covered) == 2
        assert covered.seqs("status:77") == [5]


def test_erasures_that_the_table_has_seen_to_need_not_be_known_any_more(
    covered: CompanionBed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "MAX_REWRITTEN", 0)
    append(covered, 20)
    covered.cover((1, 20))
    covered.log.amend(5, b'{"status": 77}').wait()
    assert used(covered) == 0
    (entry,) = covered.listed()
    # A pipeline has put things right, and says so.
    covered.list(covered.put(covered.made(1, 20)), instead_of=[entry.path], erasures=covered.erasures())
    assert used(covered) == 1
    covered.log.hide(seqs=[6]).wait()
    covered.log.restore(seqs=[6]).wait()
    assert used(covered) == 0
    covered.list(erasures=covered.erasures())
    assert used(covered) == 1


def test_a_fork_knows_what_was_rewritten_in_its_source(covered: CompanionBed) -> None:
    append(covered, 20)
    source = covered.log
    covered.log = covered.engine.fork("fork", source, 15, Config(durability="memory")).wait()
    append(covered, 10)
    covered.cover((1, 10), (11, 25))
    assert used(covered) == 2
    source.amend(18, b'{"status": 1}').wait()
    assert covered.seqs("status:1") == [1]
    source.amend(3, b'{"status": 1}').wait()
    assert covered.seqs("status:1") == [3, 1]
    assert used(covered) == 2


def test_companions_of_another_configuration_or_of_other_versions_do_not_answer(covered: CompanionBed) -> None:
    append(covered, 20)
    covered.cover((1, 10), (11, 20))
    covered.versions = [(1, 1), (15, 2)]
    assert used(covered) == 1
    covered.versions = [(1, 1), (21, 2)]
    assert used(covered) == 2
    fields = {name: field for name, field in DECLARED["fields"].items() if name != "title"}
    covered.config = parse_search_config({**DECLARED, "fields": fields})
    assert used(covered) == 0


def test_companions_of_a_log_without_a_schema_answer(covered: CompanionBed) -> None:
    covered.versions = []
    append(covered, 20)
    found = covered.seqs("has:status")
    assert found
    covered.cover((1, 10), (11, 20))
    assert used(covered) == 2
    assert covered.seqs("has:status") == found


def test_companions_of_another_data_directory_do_not_answer(
    covered: CompanionBed, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(covered, 20)
    with monkeypatch.context() as patched:
        # That is what a directory becomes when it is restored from a backup.
        patched.setattr(CompanionBed, "directory", "another")
        covered.cover((1, 20))
    assert used(covered) == 0
    covered.cover((1, 20))
    assert used(covered) == 1


def test_rollups_are_used_for_whole_intervals_and_only_where_nothing_is_gone(covered: CompanionBed) -> None:
    covered.append(*[{"at": NOW + number * 100, "status": 1, "took": 1.5} for number in range(100)])
    covered.cover((1, 50), (51, 100))
    body: dict[str, Any] = {"rollup": "requests", "from": NOW - 700, "to": NOW + 9_950, "interval": "1s"}
    result = covered.aggregate(**body)
    assert result.coverage.used_rollups
    assert "agg" in result.coverage.families
    with covered.without_companions():
        assert covered.aggregate(**body).buckets == result.buckets
    aligned = covered.aggregate(**{**body, "from": NOW // 1000 * 1000, "to": NOW // 1000 * 1000 + 20_000})
    assert aligned.coverage.families == ("agg",)
    assert not covered.aggregate(**body, q="status:1").coverage.used_rollups
    assert not covered.aggregate(**{**body, "to": NOW}).coverage.used_rollups
    covered.log.delete(seqs=[1, 60]).wait()
    assert not covered.aggregate(**body).coverage.used_rollups


def test_columns_serve_when_only_rollups_have_changed(covered: CompanionBed) -> None:
    covered.append(*[{"at": NOW + number * 100, "status": 1, "took": 1.5} for number in range(100)])
    covered.cover((1, 100))
    changed = {**DECLARED["rollups"]["requests"], "include": "status:1"}
    covered.config = parse_search_config({**DECLARED, "rollups": {**DECLARED["rollups"], "requests": changed}})
    assert used(covered) == 1
    result = covered.aggregate(rollup="requests", interval="1s", **{"from": NOW, "to": NOW + 60_000})
    assert not result.coverage.used_rollups
    assert (result.coverage.index_files, result.coverage.caught_up) == (1, 0)


def entry(first: int, last: int, rollups: str = "now") -> IndexEntry:
    info = Info(
        directory="d", log="l", epoch=1, first=first, last=last, versions=(), plan="p", rollups=rollups, erasures=0,
        records=1,
    )  # fmt: skip
    return IndexEntry(info, f"{first}-{last}-{rollups}", 1, "", 0)


@pytest.mark.parametrize(
    ("entries", "head", "expected"),
    [
        ([], 10, []),
        ([(1, 5), (6, 9)], 10, [(1, 5), (6, 9)]),
        ([(3, 5), (8, 12)], 20, [(3, 5), (8, 12)]),
        ([(1, 5), (1, 9), (6, 9)], 10, [(1, 9)]),
        ([(1, 5), (4, 9)], 10, [(1, 5), (6, 9)]),
        ([(1, 9), (1, 4, "before"), (10, 12, "before")], 20, [(1, 9), (10, 12)]),
        ([(1, 20, "before"), (1, 6), (7, 9)], 30, [(1, 6), (7, 9), (10, 20)]),
        ([(1, 20, "before"), (5, 9)], 30, [(1, 4), (5, 9), (10, 20)]),
        ([(50, 60)], 10, []),
    ],
)
def test_no_record_is_answered_for_twice(entries: list[Any], head: int, expected: list[tuple[int, int]]) -> None:
    source = IndexDirectory(LocalDisk("unused"))
    chosen = choose([Usable(entry(*each), source) for each in entries], "now", head)
    assert [(first, last) for _, first, last in chosen] == expected
