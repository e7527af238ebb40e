from __future__ import annotations

from strandline.delivery.invalidation import touch_journal as module
from strandline.delivery.invalidation.touch_journal import TouchBucket, TouchJournal
from strandline.schema.profiles.touch_settings import MemorySettings


def make(**settings: int) -> TouchJournal:
    return TouchJournal(MemorySettings(filter_pow2=12, **settings), 0, 0.0, 1000)


def flush(journal: TouchJournal, *keys: int, now: float = 0.0) -> TouchBucket:
    journal.open(now, round(1000 + now))
    for key in keys:
        journal.touch(key)
    return journal.flush(0, now, round(1000 + now))


def test_a_flush_is_the_next_generation() -> None:
    journal = make()
    bucket = flush(journal, 1, 1 << 32 | 2)
    assert (bucket.generation, bucket.keys, bucket.ids) == (1, {1, 1 << 32 | 2}, {1, 2})
    assert not journal.dirty
    assert journal.touched_after([2], 0)
    assert not journal.touched_after([2], 1)
    assert not journal.touched_after([3], 0)


def test_a_key_is_touched_once_per_bucket() -> None:
    journal = make()
    assert journal.touch(1)
    assert not journal.touch(1)
    journal.flush(0, 0, 0)
    assert journal.touch(1)


def test_a_bucket_with_too_many_keys_touches_everything() -> None:
    journal = make(pending_max_keys=2)
    assert flush(journal, 1, 2, 3).everything
    assert journal.overflow_buckets == 1
    assert journal.touched_after([99], 0)
    assert journal.touched_exactly_after(frozenset([99]), 0)
    assert not journal.touched_after([99], 1)
    assert not flush(journal, 1, 2).everything


def test_whole_keys_tell_apart_what_shares_its_lower_half() -> None:
    journal = make()
    flush(journal, 1 << 32 | 7)
    assert journal.touched_after([7], 0)
    assert journal.touched_exactly_after(frozenset([1 << 32 | 7]), 0)
    assert not journal.touched_exactly_after(frozenset([2 << 32 | 7]), 0)


def test_what_is_no_longer_known_exactly_is_still_known() -> None:
    journal = make()
    flush(journal, 1 << 32 | 7)
    for _ in range(module.MAX_EXACT_BUCKETS):
        flush(journal, 5)
    assert journal.touched_exactly_after(frozenset([1 << 32 | 7]), 0)
    assert not journal.touched_exactly_after(frozenset([1 << 32 | 7]), 1)


def test_times_of_buckets_and_flushes_are_told() -> None:
    journal = make()
    assert journal.flush_intervals(0) == (0, 0)
    journal.open(40, 1040)
    journal.touch(1)
    journal.open(60, 1060)
    assert journal.started_at == 40
    bucket = journal.flush(9, 100, 1100)
    assert (bucket.started_at, bucket.flushed_at, bucket.source_seq) == (1040, 1100, 9)
    flush(journal, 1, now=130)
    assert journal.flush_intervals(130) == (100, 100)
    assert journal.flush_intervals(10_120) == (30, 30)
    assert journal.flush_intervals(10_131) == (0, 0)
