"""How far an answer of limited size reaches, and whether a record of it has gone before it is read."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.engines import NOW, fill, make, opened, texts

from strandline.engine import Batch, Log, ManualClock
from strandline.engine.reads.span import ReadSpan, rest_of, span_of
from strandline.engine.segments import writer
from strandline.engine.state.parts import Budget

ALL = Budget(1 << 40, 1 << 40)


def read_through(log: Log, span: ReadSpan) -> list[str]:
    return [record.data.decode() for record in log.read(span.after, 10_000) if record.seq <= span.through]


@pytest.mark.parametrize("sealed", [False, True])
def test_it_ends_with_the_budget_or_with_the_log(tmp_path: Path, sealed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "BLOCK_ROWS", 2)
    with opened(tmp_path) as engine:
        log = make(engine)
        log.append(Batch([b"x" * 10] * 20)).wait()
        if sealed:
            engine.seal()
        assert span_of(log, 0, ALL)[:4] == (0, 20, 20, 20)
        assert span_of(log, 3, Budget(5, 1000))[:4] == (3, 8, 5, 20)
        assert span_of(log, 4, Budget(100, 60))[:4] == (4, 10, 6, 20)
        assert span_of(log, 4, Budget(100, 9))[:4] == (4, 4, 0, 20)
        assert span_of(log, 4, Budget(0, 100))[:4] == (4, 4, 0, 20)
        assert span_of(log, 20, ALL)[:4] == (20, 20, 0, 20)


def test_it_crosses_from_segments_to_the_tail(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        log = make(engine)
        for _ in range(3):
            log.append(Batch([b"x" * 10] * 10)).wait()
            engine.seal()
        log.append(Batch([b"x" * 10] * 10)).wait()
        assert span_of(log, 0, ALL).through == 40
        assert span_of(log, 5, Budget(100, 280)).through == 33
        assert span_of(log, 5, Budget(33, 1000)).through == 38


def test_appends_do_not_change_it_and_removals_of_its_records_do(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        log = make(engine)
        fill(log, *"abcdefghij")
        span = span_of(log, 2, Budget(6, 1000))
        assert (span.through, span.records) == (8, 6)
        fill(log, *"klm")
        for seal in (False, True):
            if seal:
                engine.seal()
            rest = rest_of(log, span, 4)
            assert rest is not None
            assert rest[:4] == (4, 8, 4, 10)
        # What is before it or after it does not belong to it.
        log.delete(seqs=[1, 9]).wait()
        rest = rest_of(log, span, 4)
        assert rest is not None
        # Neither does what was read before.
        log.delete(seqs=[3]).wait()
        assert rest_of(log, rest, 6) is not None
        assert rest_of(log, span, 6) is None
        log.delete(seqs=[7]).wait()
        assert rest_of(log, rest, 6) is None


@pytest.mark.parametrize("way", ["cap", "age"])
def test_retention_that_overtakes_a_reader_is_noticed(tmp_path: Path, way: str) -> None:
    clock = ManualClock(NOW)
    with opened(tmp_path, clock) as engine:
        log = make(engine, cap_records=5) if way == "cap" else make(engine, ttl_ms=1000)
        fill(log, *"abcde")
        span = span_of(log, 1, ALL)
        assert span.records == 4
        if way == "cap":
            fill(log, "f")
            assert rest_of(log, span, 1) is not None
            fill(log, "g")
        else:
            assert rest_of(log, span, 1) is not None
            clock.advance(2000)
        assert rest_of(log, span, 1) is None


def test_it_ends_before_what_was_lost(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        log = make(engine)
        fill(log, *"abc")
        log.skip(4, "lost").wait()
        fill(log, *"de")
        assert span_of(log, 1, ALL)[:4] == (1, 3, 2, 9)
        assert span_of(log, 3, ALL)[:4] == (3, 3, 0, 9)
        assert span_of(log, 7, ALL)[:4] == (7, 9, 2, 9)


def test_a_fork_has_the_records_of_its_source(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        source = make(engine)
        fill(source, *"abcd")
        fork = engine.fork("fork", source, 3).wait()
        fill(fork, *"xyz")
        span = span_of(fork, 1, Budget(4, 1000))
        assert (span.through, span.records, read_through(fork, span)) == (5, 4, ["b", "c", "x", "y"])
        source.delete(seqs=[4]).wait()
        assert rest_of(fork, span, 1) is not None
        source.delete(seqs=[2]).wait()
        assert rest_of(fork, span, 1) is None


@pytest.mark.parametrize("sealed", [False, True])
def test_records_of_other_keys_do_not_count(tmp_path: Path, sealed: bool) -> None:
    with opened(tmp_path) as engine:
        log = make(engine)
        for number in range(40):
            log.append(Batch.of(b"x" * 10, key="ab"[number % 4 == 0])).wait()
        if sealed:
            engine.seal()
        assert span_of(log, 0, Budget(10, 100), "b").through == 40
        assert span_of(log, 0, Budget(3, 1000), "b").through == 12
        assert span_of(log, 0, Budget(100, 35), "b").through == 12
        assert span_of(log, 0, Budget(1, 10), "none").through == 40


@settings(max_examples=60)
@given(
    sizes=st.lists(st.integers(0, 30), min_size=1, max_size=60),
    seals=st.sets(st.integers(1, 60)),
    removed=st.sets(st.integers(1, 60)),
    after=st.integers(0, 60),
    budget=st.builds(Budget, st.integers(0, 70), st.integers(0, 1000)),
)
def test_whatever_the_log_is_like(
    tmp_path_factory: pytest.TempPathFactory,
    sizes: list[int],
    seals: set[int],
    removed: set[int],
    after: int,
    budget: Budget,
) -> None:
    with pytest.MonkeyPatch.context() as patch, opened(tmp_path_factory.mktemp("log")) as engine:
        patch.setattr(writer, "BLOCK_ROWS", 4)
        log = make(engine)
        for number, size in enumerate(sizes, 1):
            log.append(Batch.of(b"x" * size)).wait()
            if number in seals:
                engine.seal()
        removed = {seq for seq in removed if seq <= len(sizes)}
        if removed:
            log.delete(seqs=sorted(removed)).wait()
        after = min(after, len(sizes))
        span = span_of(log, after, budget)
        there = [seq for seq in range(after + 1, span.through + 1) if seq not in removed]
        assert (span.records, span.head) == (len(there), len(sizes))
        assert after <= span.through <= len(sizes)
        assert len(there) <= budget.rows
        # A block in part is estimated.
        assert sum(sizes[seq - 1] for seq in there) <= budget.size + 2 * 4 * 30
        middle = (after + span.through) // 2
        rest = rest_of(log, span, middle)
        assert rest is not None
        assert rest.records == len([seq for seq in there if seq > middle])


def test_it_is_found_without_reading_payloads(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        log = make(engine)
        log.append(Batch([b"x" * 1000] * 5000)).wait()
        engine.seal()
    with opened(tmp_path) as engine:
        log = engine.log("a")
        span = span_of(log, 0, Budget(10_000, 2_000_000))
        assert 1_500 < span.through <= 2_000
        assert engine.store.cached(1, 0) is None
        assert len(texts(log, limit=10)) == 10
