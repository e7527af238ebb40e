"""All queues of an engine: which log has which queue, and what goes when a queue goes."""

from __future__ import annotations

import pytest
from support.manual_queue import Stand

from strandline.delivery.queues import QueueCounters, QueueSettings
from strandline.engine import Config
from strandline.engine.errors import UnknownLog
from strandline.engine.operations.erasures import NAME as ERASURES


def test_a_log_has_one_queue(stand: Stand) -> None:
    assert stand.queues.open(stand.log, QueueSettings()) is stand.queues.open(stand.engine.log("jobs"), QueueSettings())


def test_a_queue_goes_on_under_other_settings(stand: Stand) -> None:
    stand.fill(2)
    queue = stand.queue
    stand.claim("a")
    stand.settings = QueueSettings(lease_ms=77)
    assert stand.queue is queue
    assert stand.claim("a")[0].deadline == stand.clock.now() + 77


def test_the_companion_goes_with_the_queue(stand: Stand) -> None:
    stand.fill(1)
    stand.claim("a")
    stand.queues.drop(stand.log).wait()
    stand.log.drop().wait()
    assert stand.engine.names() == [ERASURES]


def test_dropping_what_never_was_a_queue_is_harmless(stand: Stand) -> None:
    stand.queues.drop(stand.log).wait()
    assert stand.engine.names() == ["jobs"]


def recreate(stand: Stand) -> None:
    stand.log.drop().wait()
    stand.log = stand.engine.create("jobs", Config()).wait()
    stand.fill(2)


def test_a_companion_that_an_earlier_queue_of_the_name_left_is_not_believed(stand: Stand) -> None:
    stand.fill(2)
    stand.claim("a", 2)
    recreate(stand)
    assert stand.queue.counters() == QueueCounters(2, 0, 0, 0)
    assert stand.claim("b")[0].lease_id == "lease_1"


def test_a_leftover_companion_is_recognised_after_a_restart_too(stand: Stand) -> None:
    stand.fill(2)
    stand.claim("a", 2)
    recreate(stand)
    stand.reopen()
    assert stand.queue.counters() == QueueCounters(2, 0, 0, 0)


def test_dropping_an_earlier_queue_late_leaves_the_companion_of_the_later_one(stand: Stand) -> None:
    stand.fill(1)
    stand.claim("a")
    earlier = stand.log
    recreate(stand)
    stand.settings = QueueSettings(leases_durable=True)
    stand.claim("b")
    stand.queues.drop(earlier).wait()
    stand.reopen()
    assert stand.queue.counters() == QueueCounters(1, 1, 0, 0)


def test_queues_do_not_know_of_each_other(stand: Stand) -> None:
    stand.fill(1)
    other = stand.queues.open(stand.engine.create("other").wait(), QueueSettings())
    stand.claim("a")
    assert other.counters() == QueueCounters(0, 0, 0, 0)
    assert stand.engine.names() == ["__leases__:jobs", "__leases__:other", "jobs", "other"]


def test_a_queue_whose_log_is_gone_is_not_opened_and_leaves_no_lease_log(stand: Stand) -> None:
    log = stand.log
    stand.queues.drop(log).wait()
    log.drop().wait()
    with pytest.raises(UnknownLog):
        stand.queues.open(log, QueueSettings())
    assert stand.engine.find("__leases__:jobs") is None
