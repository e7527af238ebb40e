from __future__ import annotations

from typing import Any

import pytest
from support.manual_queue import NOW, Stand

from strandline.delivery.queues import BadSchedule, Queue, QueueWrite, Schedule, append_together
from strandline.engine import Batch, Commit, Config, Log
from strandline.engine.errors import LogFull


def queue_over(stand: Stand, name: str, **config: Any) -> Queue:
    return stand.queues.open(stand.engine.create(name, Config(**config)).wait(), stand.settings)


def write(queue: Queue, count: int, *schedules: Schedule | None) -> QueueWrite:
    return QueueWrite(queue.log, Batch([b"job"] * count), queue, schedules or None)


def test_jobs_of_several_queues_and_records_of_logs_are_appended_in_one_step(stand: Stand) -> None:
    other, plain = queue_over(stand, "other"), stand.create("plain")
    assert isinstance(plain, Log)
    stand.fill(3)
    writes = [
        write(other, 2, Schedule(priority=5), None),
        QueueWrite(plain, Batch([b"1"])),
        write(stand.queue, 1, Schedule(NOW + 1_000)),
    ]
    appended = append_together(stand.engine, writes).wait()
    assert [(one.first, one.last) for one in appended] == [(1, 2), (1, 1), (4, 4)]
    assert [job.priority for job in other.claim("a", 5).wait()] == [5, 0]
    assert stand.queue.counters().delayed == 1
    stand.pass_time(1_000)
    assert stand.seqs("a", 5) == [1, 2, 3, 4]


def test_one_log_that_is_full_keeps_all_of_it_from_happening(stand: Stand) -> None:
    full = queue_over(stand, "full", cap_records=1, discard="reject")
    full.append(Batch([b"job"])).wait()
    events = stand.queue and stand.events_written()
    with pytest.raises(LogFull):
        append_together(stand.engine, [write(stand.queue, 1, Schedule(priority=1)), write(full, 1)])
    assert stand.log.state().count == 0
    assert stand.queue.counters().ready == 0
    assert stand.events_written() == events


def test_a_repetition_appends_nothing_and_changes_no_schedule(stand: Stand) -> None:
    other = queue_over(stand, "other")

    def append(priority: int) -> Commit[Any]:
        both = [write(stand.queue, 1, Schedule(priority=priority)), write(other, 1, Schedule(priority=priority))]
        return append_together(stand.engine, both, "key")

    assert [one.deduped for one in append(1).wait()] == [False, False]
    again = append(7).wait()
    assert [(one.deduped, one.first) for one in again] == [(True, 1), (True, 1)]
    stand.queue.append(Batch([b"fresh"])).wait()
    assert [job.priority for job in stand.claim("a", 5)] == [1, 0]
    assert [job.priority for job in other.claim("a", 5).wait()] == [1]


def test_what_was_appended_together_is_there_after_a_restart(stand: Stand) -> None:
    other = queue_over(stand, "other")
    writes = [write(stand.queue, 1, Schedule(NOW + 50)), write(other, 1, Schedule(priority=3))]
    append_together(stand.engine, writes).wait()
    stand.reopen()
    assert stand.queue.counters().delayed == 1
    other = stand.queues.open(stand.engine.log("other"), stand.settings)
    assert [job.priority for job in other.claim("a", 5).wait()] == [3]


def test_only_queues_have_schedules_and_each_job_has_one(stand: Stand) -> None:
    with pytest.raises(BadSchedule, match="is not a queue"):
        append_together(stand.engine, [QueueWrite(stand.log, Batch([b"job"]), None, [Schedule()])])
    with pytest.raises(BadSchedule, match="2 jobs but 1 schedules"):
        append_together(stand.engine, [write(stand.queue, 2, Schedule(priority=1))])
    with pytest.raises(BadSchedule, match="not_before"):
        append_together(stand.engine, [write(stand.queue, 1, Schedule(-1))])
    assert stand.log.state().count == 0


def test_a_queue_tells_which_jobs_are_still_held_under_a_lease(stand: Stand) -> None:
    stand.fill(4)
    jobs = stand.claim("a", 3, 100)
    seqs, leases = [job.seq for job in jobs], [job.lease_id for job in jobs]
    assert stand.queue.holds(seqs, leases) == seqs
    stand.queue.ack("a", [1])
    stand.queue.nack("a", [2])
    assert stand.queue.holds(seqs, leases) == [3]
    stand.pass_time(101)
    assert stand.queue.holds(seqs, leases) == []
    again = stand.claim("a", 3)
    assert stand.queue.holds(seqs, leases) == []
    assert len(stand.queue.holds([job.seq for job in again], [job.lease_id for job in again])) == 3


def test_sealed_jobs_are_brought_into_memory_before_they_are_claimed(stand: Stand) -> None:
    stand.fill(5)
    assert stand.queue.has_resident(3)
    stand.engine.seal()
    assert not stand.queue.has_resident(3)
    stand.queue.bring(3)
    assert stand.queue.has_resident(3)
    assert stand.seqs("a", 3) == [1, 2, 3]


def test_so_are_those_that_were_given_back(stand: Stand) -> None:
    stand.fill(5)
    assert len(stand.claim("a", 5)) == 5
    stand.queue.nack("a", [2])
    stand.engine.seal()
    assert not stand.queue.has_resident(1)
    stand.queue.bring(1)
    assert stand.queue.has_resident(1)
    assert stand.seqs("a") == [2]
