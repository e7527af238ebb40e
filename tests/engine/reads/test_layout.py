from __future__ import annotations

from pathlib import Path

from support.engines import NOW, fill, make, opened

from strandline.engine import ManualClock
from strandline.engine.reads.status import LogStatus, status_of


def test_an_empty_log_holds_nothing(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        assert status_of(make(engine)) == LogStatus((), 0, 0, 0, 0, 0, 0)


def test_records_are_in_the_tail_until_they_are_sealed(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    with opened(tmp_path, clock) as engine:
        log = make(engine)
        fill(log, "one", "three", key="k")
        assert status_of(log) == LogStatus((), 0, 0, 2, 8, 8, NOW)
        engine.seal()
        clock.advance(5)
        fill(log, "x")
        holdings = status_of(log)
        [part] = holdings.sealed
        assert (part.first, part.last, part.size, part.ts_last, part.has_keys, part.is_cold) == (
            1, 2, 8, NOW, True, False,
        )  # fmt: skip
        assert holdings[1:] == (2, 2, 1, 1, 9, NOW + 5)


def test_what_is_deleted_does_not_count(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        log = make(engine)
        fill(log, "one", "three")
        engine.seal()
        fill(log, "x", "yy")
        log.delete(seqs=[2, 4]).wait()
        holdings = status_of(log)
        assert (holdings.sealed[0].size, holdings.tail_records, holdings.tail_size, holdings.size) == (3, 1, 1, 4)
        log.delete(before=5).wait()
        assert status_of(log).size == 0


def test_what_is_in_the_cold_tier_is_told(tmp_path: Path) -> None:
    options = {"cold_url": str(tmp_path / "cold"), "hot_segments": 1, "segment_bytes": 1}
    with opened(tmp_path / "data", **options) as engine:
        log = make(engine)
        for text in ("a", "b", "c"):
            fill(log, text)
            engine.seal()
        engine.maintain()
        holdings = status_of(log)
        assert [part.is_cold for part in holdings.sealed] == [True, True, False]
        assert (holdings.sealed_through, holdings.cold_through) == (3, 2)


def test_a_fork_is_sealed_as_far_as_its_source_is_and_counts_its_own_records(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        source = make(engine)
        fill(source, "1", "2", "3")
        fork = engine.fork("fork", source, 3).wait()
        fill(fork, "mine")
        second = engine.fork("second", fork, 2).wait()
        assert [status_of(log).sealed_through for log in (source, fork, second)] == [0, 0, 0]
        engine.seal()
        fill(source, "4")
        assert [status_of(log).sealed_through for log in (source, fork, second)] == [3, 4, 2]
        assert (status_of(fork).size, len(status_of(fork).sealed)) == (4, 1)
        assert status_of(second).size == 0
