from __future__ import annotations

from strandline.delivery.invalidation.touch_journal import TouchBucket
from strandline.delivery.invalidation.waiters import SLOT_MS, Wait, Waiters
from strandline.schema.profiles.touch_settings import MemorySettings


def wait_on(*ids: int, fine: bool = False) -> Wait:
    return Wait(
        ids=frozenset(ids), further=frozenset(), exact=None, kind="fineKey", fine=fine, templates=None,
        tell=lambda _: None,
    )  # fmt: skip


def bucket(generation: int, *keys: int, everything: bool = False) -> TouchBucket:
    return TouchBucket(generation, keys, everything, 0, 0, 0)


def test_a_bucket_finds_whom_it_concerns_once() -> None:
    waiters, concerned, other = Waiters(MemorySettings()), wait_on(1, 2), wait_on(3)
    waiters.add(concerned, 0, 0, 1000)
    waiters.add(other, 0, 0, 1000)
    assert waiters.found_by(bucket(1, 1, 2)) == [concerned]
    assert waiters.found_by(bucket(2, 1, 2)) == []
    assert waiters.found_by(bucket(3, everything=True)) == [other]


def test_who_waits_on_many_keys_is_answerable_for_what_it_was_asked_about() -> None:
    waiters = Waiters(MemorySettings(key_index_max_keys=1))
    waits = [wait_on(1, number) for number in range(10, 14)]
    for wait in waits:
        waiters.add(wait, 0, 0, 1000)
    assert waiters.found_by(bucket(1, 11)) == []
    assert [waiters.answerable(wait, 1) for wait in waits] == [0, 0, 0, 0]
    assert waiters.scan(2) == [waits[1]]
    assert [waiters.answerable(wait, 1) for wait in waits] == [1, 1, 0, 0]
    assert waiters.scan(3) == []
    assert not waiters.scanning
    assert [waiters.answerable(wait, 1) for wait in waits] == [1, 1, 1, 1]


def test_time_is_up_for_each_in_turn_and_not_for_who_has_gone() -> None:
    waiters, early, late, gone = Waiters(MemorySettings()), wait_on(1), wait_on(2), wait_on(3)
    waiters.add(early, 0, 0, 10)
    waiters.add(late, 0, 0, 1000)
    waiters.add(gone, 0, 0, 5)
    waiters.remove(gone, 0)
    assert waiters.next_deadline() == SLOT_MS
    assert waiters.overdue(SLOT_MS - 1) == []
    assert waiters.overdue(SLOT_MS) == [early]
    assert waiters.next_deadline() == 1000
    assert waiters.overdue(2000) == [late]
    assert waiters.next_deadline() is None


def test_nothing_is_left_of_who_has_gone_but_an_interest() -> None:
    waiters, wait = Waiters(MemorySettings(hot_key_ttl_ms=10, hot_template_ttl_ms=10)), wait_on(1, fine=True)
    waiters.add(wait, 0, 0, 1000)
    assert (len(waiters), waiters.fine, waiters.coarse) == (1, 1, 0)
    waiters.remove(wait, 0)
    waiters.remove(wait, 0)
    assert (len(waiters), waiters.fine, waiters.coarse) == (0, 0, 0)
    assert waiters.interested
    waiters.sweep_interest(10)
    assert not waiters.interested
