"""What still stands of a log: ranges of seqs, and whether anything was rewritten."""

from __future__ import annotations

from pathlib import Path

from support.engines import NOW, fill, make, opened

from strandline.engine import Batch, ManualClock
from strandline.engine.reads.status import hidden_ranges_of, live_ranges_of


def test_what_is_removed_or_hidden_does_not_stand(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        log = make(engine)
        fill(log, *"abcdefgh")
        before = live_ranges_of(log)
        assert before.ranges == [(1, 8)]
        log.delete(seqs=[3]).wait()
        log.hide(seqs=[5, 6]).wait()
        log.delete(before=2).wait()
        after = live_ranges_of(log)
        assert after.ranges == [(2, 2), (4, 4), (7, 8)]
        assert after.revision != before.revision
        assert after.rewrites == before.rewrites


def test_hidden_records_are_those_that_can_be_restored(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        log = make(engine)
        fill(log, *"abcdefgh")
        assert hidden_ranges_of(log) == []
        log.hide(seqs=[2, 3, 4, 7]).wait()
        engine.seal()
        log.delete(seqs=[3]).wait()
        assert hidden_ranges_of(log) == [(2, 2), (4, 4), (7, 7)]
        fill(log, "i", "j")
        log.hide(seqs=[10]).wait()
        log.restore(before=5).wait()
        assert hidden_ranges_of(log) == [(7, 7), (10, 10)]


def test_what_comes_back_or_is_amended_counts_as_rewritten(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        log = make(engine)
        fill(log, "a", "b")
        log.hide(seqs=[1]).wait()
        hidden = live_ranges_of(log)
        log.restore(seqs=[1]).wait()
        restored = live_ranges_of(log)
        assert restored.rewrites > hidden.rewrites
        assert restored.ranges == [(1, 2)]
        log.amend(2, b"B").wait()
        assert live_ranges_of(log).rewrites > restored.rewrites
        log.restore(seqs=[1]).wait()
        assert live_ranges_of(log).rewrites == restored.rewrites + 1, "there was nothing to bring back"


def test_sealing_changes_nothing(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        log = make(engine)
        fill(log, *"abcd")
        log.delete(seqs=[2]).wait()
        before = live_ranges_of(log)
        engine.maintain()
        fill(log, "e")
        sealed = live_ranges_of(log)
        assert (sealed.revision, sealed.rewrites) == (before.revision, before.rewrites)
        stands = {seq for first, last in sealed.ranges for seq in range(first, last + 1)}
        assert stands - {2} == {1, 3, 4, 5}
        assert log.read().seqs == [1, 3, 4, 5]


def test_caps_and_time_take_what_stands(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    with opened(tmp_path, clock) as engine:
        capped = make(engine, "capped", cap_records=2)
        fill(capped, *"abc")
        assert live_ranges_of(capped).ranges == [(2, 3)]
        brief = make(engine, "brief", ttl_ms=1000)
        fill(brief, "a")
        clock.advance(2000)
        assert live_ranges_of(brief).ranges == []


def test_a_fork_stands_on_what_it_shares(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        source = make(engine, "source")
        fill(source, *"abcd")
        fork = engine.fork("fork", source, 3).wait()
        fork.append(Batch([b"x"])).wait()
        assert {seq for first, last in live_ranges_of(fork).ranges for seq in range(first, last + 1)} == {1, 2, 3, 4}
        before = live_ranges_of(fork)
        source.delete(seqs=[2]).wait()
        source.amend(1, b"A").wait()
        after = live_ranges_of(fork)
        assert {seq for first, last in after.ranges for seq in range(first, last + 1)} == {1, 3, 4}
        assert after.rewrites > before.rewrites
