"""What an engine counts."""

from __future__ import annotations

from pathlib import Path

from support.engines import fill, make, opened

from strandline.engine import Append, Batch, Config, Engine
from strandline.engine.stats import FLUSH_BOUNDS, FlushTimes


def counted(engine: Engine) -> tuple[int, int]:
    """Log by log."""
    states = [engine.log(name).state() for name in engine.names()]
    return sum(state.count for state in states), sum(state.size for state in states)


def test_totals_are_kept_whatever_happens_to_records(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        logs = [make(engine, name, durability=name) for name in ("disk", "fsync", "ephemeral")]
        capped = make(engine, "capped", cap_records=2)
        for log in (*logs, capped):
            log.append(Batch([b"one", b"three", b""], ["a", "b", None], None, [b"{}", None, b"m"])).wait()
        changes = [
            lambda: [log.delete(seqs=[1]).wait() for log in logs],
            lambda: [log.hide(key="b").wait() for log in logs],
            lambda: [log.restore(key="b").wait() for log in logs],
            lambda: [log.amend(2, b"something else").wait() for log in logs],
            engine.seal,
            lambda: [log.delete(key="b").wait() for log in logs],
            lambda: engine.append_all([Append(log, Batch.of(b"more")) for log in (*logs, capped)]).wait(),
            lambda: capped.configure(Config(cap_bytes=4)).wait(),
            lambda: logs[0].drop().wait(),
        ]
        for change in changes:
            change()
            stats = engine.stats()
            assert (stats.records, stats.size) == counted(engine)
            assert engine.total_size + engine.side_totals.size == stats.size
    with opened(tmp_path) as engine:
        assert (engine.stats().records, engine.stats().size) == counted(engine) != (0, 0)


def test_what_was_pending_when_its_log_was_dropped_is_not_counted(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        log = make(engine, durability="fsync")
        log.append(Batch.of(b"x"))
        log.drop().wait()
        assert (engine.totals.records, engine.total_size) == (0, 0)


def test_what_is_written_and_flushed_is_counted(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        log = make(engine, durability="fsync")
        before = engine.stats()
        log.append(Batch.of(b"x"))
        log.append(Batch.of(b"x"))
        engine.append_all([Append(log, Batch.of(b"x"))] * 2)
        stats = engine.stats()
        assert (stats.frames - before.frames, stats.pending, stats.rotations) == (4, 3, 0)
        assert stats.bytes_written - before.bytes_written == 4 * (56 + 8 + 1)
        engine.flush()
        assert engine.stats().pending == 0
        assert engine.stats().flushes == engine.stats().flush_us.count == before.flushes + 1
        engine.seal()
        assert engine.stats().rotations == 1


def test_the_histogram_is_cumulative() -> None:
    times = FlushTimes()
    for microseconds in (10, 50, 51, 4000, 1e7):
        times.add(microseconds)
    histogram = times.histogram()
    assert histogram.bounds == FLUSH_BOUNDS
    assert histogram.counts == (2, 3, 3, 3, 3, 4, 4, 4, 4, 5)
    assert (histogram.count, histogram.sum) == (5, 10 + 50 + 51 + 4000 + 1e7)


def test_an_idle_engine_has_counted_nothing(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        stats = engine.stats()
        assert (stats.records, stats.size, stats.frames, stats.flush_us.count) == (0, 0, 0, 0)
        fill(make(engine), "x")
        assert engine.stats().records == 1


def test_logs_are_counted_by_their_durability_and_those_on_the_side_apart(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        logs = [make(engine, f"a{number}", durability="disk") for number in range(3)]
        side = make(engine, "__side__", durability="memory")
        side.append(Batch.of(b"12345")).wait()
        logs[0].append(Batch.of(b"123")).wait()
        logs[1].configure(Config(durability="fsync")).wait()
        logs[2].drop().wait()
        assert {name: count for name, count in engine.totals.logs.items() if count} == {"disk": 1, "fsync": 1}
        assert (engine.totals.records, engine.totals.size, engine.total_size) == (1, 3, 3)
        assert (engine.side_totals.logs, engine.side_totals.size) == ({"memory": 1}, 5)
        assert (engine.stats().records, engine.stats().size) == (2, 8)
    with opened(tmp_path) as engine:
        assert engine.totals.logs == {"disk": 1, "fsync": 1}
        assert (engine.totals.size, engine.side_totals.size) == (3, 5)


def test_the_most_that_ever_waited_for_a_flush_is_remembered(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        log = make(engine, durability="fsync")
        commits = [log.append(Batch.of(b"x")) for _ in range(7)]
        assert (engine.stats().pending, engine.stats().pending_peak) == (7, 7)
        commits[-1].wait()
        log.append(Batch.of(b"x"))
        assert (engine.stats().pending, engine.stats().pending_peak) == (1, 7)
