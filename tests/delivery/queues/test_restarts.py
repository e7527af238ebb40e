"""What a queue knows after a restart: as much as its events tell, and never less than the jobs log does."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest
from support.manual_queue import NOW, Stand, failures

from strandline.delivery.queues import Acked, QueueCounters, QueueSettings, Schedule, lease_log, state
from strandline.delivery.queues.state import ClaimedEvent, Grant, SnapshotEvent, decode, encode
from strandline.engine import Batch
from strandline.engine.testing.fault_disk import FaultDisk

MakeStand = Callable[..., Stand]


@pytest.fixture
def stand(make_stand: MakeStand) -> Stand:
    return make_stand(QueueSettings(leases_durable=True))


@pytest.fixture
def _short_companions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_log, "COMPACT_EVENTS", 8)
    monkeypatch.setattr(lease_log, "SNAPSHOT_JOBS", 2)


def test_a_lease_outlives_a_restart(stand: Stand) -> None:
    stand.fill(3)
    stand.claim("a", 2, lease_ms=1000)
    stand.queue.extend("a", [2], 5000).wait()
    stand.reopen()
    assert stand.queue.counters() == QueueCounters(1, 2, 0, 0)
    assert stand.seqs("b", 5) == [3]
    assert stand.queue.ack("a", [1], ["lease_1"]).wait() == Acked([1], [])
    stand.pass_time(1001)
    assert stand.queue.ack("a", [2]).wait() == Acked([2], [])


def test_a_lease_that_ended_during_the_stop_is_over(stand: Stand) -> None:
    stand.fill(2)
    stand.claim("a", 1, lease_ms=1000)
    stand.engine.close()
    stand.pass_time(1001)
    stand.reopen(stand.place)
    assert [(job.seq, job.deliveries, job.lease_id) for job in stand.claim("b", 2)] == [
        (1, 2, "lease_2"),
        (2, 1, "lease_3"),
    ]


def test_acked_jobs_leave_nothing_behind(stand: Stand) -> None:
    stand.fill(3)
    stand.claim("a", 3)
    stand.queue.ack("a", [1, 3]).wait()
    stand.reopen()
    assert stand.queue.counters() == QueueCounters(0, 1, 0, 0)


def test_delays_schedules_and_priorities_outlive_a_restart(stand: Stand) -> None:
    stand.fill(2)
    stand.add(not_before=2000)
    stand.add(priority=3)
    assert stand.seqs("a", 2) == [4, 1]
    stand.queue.nack("a", [1], delay_ms=1000).wait()
    stand.queue.nack("a", [4]).wait()
    stand.reopen()
    assert stand.queue.counters() == QueueCounters(2, 0, 0, 2)
    assert stand.queue.next_change() == NOW + 1000
    assert [(job.seq, job.priority, job.deliveries) for job in stand.claim("b", 5)] == [(4, 3, 2), (2, 0, 1)]
    stand.pass_time(2000)
    assert [(job.seq, job.deliveries) for job in stand.claim("b", 5)] == [(1, 2), (3, 1)]


def test_the_counter_of_dead_letters_and_of_leases_goes_on(make_stand: MakeStand) -> None:
    stand = make_stand(QueueSettings(max_deliveries=1, dead_letter="dead", leases_durable=True))
    stand.fill(2)
    stand.claim("a")
    stand.queue.nack("a", [1]).wait()
    assert stand.seqs("a") == [2]
    stand.reopen()
    assert stand.queue.counters() == QueueCounters(0, 1, 1, 0)
    stand.fill(1)
    assert stand.claim("a")[0].lease_id == "lease_3"


# --- leases that end with the process --------------------------------------------------------------------------


def test_leases_that_are_not_durable_end_with_the_process(make_stand: MakeStand) -> None:
    stand = make_stand()
    stand.fill(3)
    stand.add(priority=3)
    stand.claim("a", 3)
    stand.queue.nack("a", [1], reason=b'"out of memory"').wait()
    stand.queue.nack("a", [2], delay_ms=5000).wait()
    stand.pass_time(700)
    stand.reopen()
    assert stand.queue.counters() == QueueCounters(3, 0, 0, 1)
    assert stand.queue.ack("a", [4], ["lease_1"]).wait() == Acked([], [4])
    jobs = stand.claim("b", 5)
    # Earlier deliveries still count, but not those that ended with the process. Delays, priorities and failures stay.
    assert [(job.seq, job.priority, job.deliveries) for job in jobs] == [(4, 3, 1), (1, 0, 2), (3, 0, 1)]
    assert [failures(job) for job in jobs] == [[], [(NOW, 1, "a", "out of memory")], []]
    # The next process knows that they ended with the first one, and not by time.
    stand.pass_time(100_000)
    stand.fill(1)
    stand.reopen()
    (first, *_) = stand.claim("c", 5)
    assert [reason for _, _, _, reason in failures(first)] == ["the lease expired"]


def test_a_lease_that_had_expired_did_not_end_with_the_process(make_stand: MakeStand) -> None:
    stand = make_stand()
    stand.fill(1)
    stand.claim("a", 1, lease_ms=1000)
    stand.pass_time(1001)
    stand.fill(1)
    stand.reopen()
    assert failures(stand.claim("b")[0]) == [(NOW + 1000, 1, "a", "the lease expired")]


def test_a_stop_that_takes_longer_than_the_leases_counts_no_delivery(make_stand: MakeStand) -> None:
    stand = make_stand(QueueSettings(max_deliveries=1))
    stand.fill(1)
    stand.claim("a", 1, lease_ms=1000)
    stand.engine.close()
    stand.pass_time(100_000)
    stand.reopen(stand.place)
    stand.queue.remove_exhausted().wait()
    # Also for the process after that one, which has only the events.
    stand.reopen()
    assert stand.queue.counters() == QueueCounters(1, 0, 0, 0)
    assert [(job.deliveries, failures(job)) for job in stand.claim("b")] == [(1, [])]


def test_the_end_of_leases_that_cannot_be_written_is_no_reason_not_to_open(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    disk = FaultDisk(tmp_path / "data")
    stand = Stand(disk)
    stand.fill(1)
    stand.claim("a")
    stand.engine.close()
    stand.reopen(disk)
    disk.fail_from(disk.calls_of("write") + 1, errno.ENOSPC, kind="write")
    assert stand.queue.counters() == QueueCounters(1, 0, 0, 0)
    disk.heal()
    assert stand.claim("b")[0].deliveries == 1
    stand.close()


def test_a_last_delivery_that_a_restart_ended_is_repeated(make_stand: MakeStand) -> None:
    stand = make_stand(QueueSettings(max_deliveries=1, dead_letter="dead"))
    stand.fill(2)
    (held, _) = stand.claim("a", 2)
    stand.queue.release([1], [held.lease_id], is_restart=True).wait()
    stand.reopen()
    stand.queue.remove_exhausted().wait()
    assert stand.queue.counters() == QueueCounters(2, 0, 0, 0)
    assert [(job.deliveries, failures(job)) for job in stand.claim("b", 2)] == [(1, []), (1, [])]


def test_last_deliveries_that_expired_are_buried_after_a_restart_without_a_claim(make_stand: MakeStand) -> None:
    stand = make_stand(QueueSettings(max_deliveries=1, dead_letter="dead", leases_durable=True))
    stand.fill(2)
    stand.claim("a", lease_ms=1000)
    stand.engine.close()
    stand.pass_time(1001)
    stand.reopen(stand.place)
    assert stand.queue.counters() == QueueCounters(2, 0, 0, 0)
    assert stand.alarms[-1] == ("jobs", NOW + 1001)
    stand.queue.remove_exhausted().wait()
    assert stand.queue.counters() == QueueCounters(1, 0, 1, 0)
    assert stand.engine.log("dead").read().data == [b"1"]


def test_a_last_lease_that_outlives_a_restart_still_has_its_alarm(make_stand: MakeStand) -> None:
    stand = make_stand(QueueSettings(max_deliveries=1, dead_letter="dead", leases_durable=True))
    stand.fill(1)
    stand.claim("a")
    stand.reopen()
    stand.queue.counters()
    assert stand.alarms == [("jobs", NOW + 30_001)] * 2


def test_failures_outlive_a_restart_and_a_snapshot(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    stand.fill(1)
    stand.claim("a", lease_ms=10)
    stand.pass_time(11)
    stand.claim("b")
    stand.queue.nack("b", [1], reason=b'{"code": 7}').wait()
    expected = [(NOW + 10, 1, "a", "the lease expired"), (NOW + 11, 2, "b", {"code": 7})]
    stand.reopen()
    (job,) = stand.claim("c")
    assert failures(job) == expected
    stand.queue.nack("c", [1]).wait()
    monkeypatch.setattr(lease_log, "COMPACT_EVENTS", 1)
    monkeypatch.setattr(lease_log, "COMPACT_RATIO", 1)
    stand.queue.catch_up()
    stand.engine.flush()
    assert [type(decode(data)) for data in stand.companion.read().data] == [SnapshotEvent]
    stand.reopen()
    assert failures(stand.claim("c")[0]) == expected


def test_when_all_events_are_lost_every_job_can_be_claimed(stand: Stand) -> None:
    stand.fill(3)
    stand.claim("a", 2)
    stand.companion.delete(before=stand.companion.next_seq).wait()
    stand.reopen()
    assert stand.queue.counters() == QueueCounters(3, 0, 0, 0)
    assert stand.seqs("b", 5) == [1, 2, 3]


def test_what_is_no_event_is_passed_over(stand: Stand) -> None:
    stand.fill(2)
    stand.claim("a")
    stand.companion.append(Batch([b"", b"{}", b'["unheard of",1]', b'["claimed",3]', b"\xff"])).wait()
    stand.reopen()
    assert stand.queue.counters() == QueueCounters(1, 1, 0, 0)


def test_a_schedule_without_its_job_is_not_for_the_job_that_gets_its_seq(stand: Stand) -> None:
    stand.queue.counters()
    stand.companion.append(Batch([b'["scheduled",[[1,0,9],[2,1800000000000,0]]]'])).wait()
    stand.reopen()
    stand.queue.counters()
    stand.fill(2)
    # The event is still there; from now on the seqs are those of other jobs.
    stand.reopen()
    assert [(job.seq, job.priority) for job in stand.claim("a", 5)] == [(1, 0), (2, 0)]


def test_a_clock_that_was_set_back_takes_no_lease_away(stand: Stand) -> None:
    stand.fill(1)
    stand.claim("a", 1, lease_ms=1000)
    stand.engine.close()
    stand.clock.set(NOW - 500)
    stand.reopen(stand.place)
    assert stand.seqs("b") == []
    assert stand.queue.ack("a", [1]).wait() == Acked([1], [])


@pytest.mark.usefixtures("_short_companions")
def test_a_snapshot_takes_the_place_of_many_events_and_says_the_same(stand: Stand) -> None:
    stand.fill(30)
    stand.add(not_before=5000)
    stand.add(priority=-2)
    stand.claim("a", 3)
    stand.queue.nack("a", [1]).wait()
    stand.queue.nack("a", [2], delay_ms=700).wait()
    for _ in range(30):
        for job in stand.claim("b"):
            stand.queue.ack("b", [job.seq]).wait()
    stand.engine.flush()
    events = [decode(data) for data in stand.companion.read().data]
    assert isinstance(events[0], SnapshotEvent)
    assert events[0].first
    assert len(events) < 30
    before = stand.queue.counters()
    assert before == QueueCounters(0, 1, 0, 2)
    stand.reopen()
    assert stand.queue.counters() == before
    stand.fill(1)
    assert stand.queue.ack("a", [3], ["lease_3"]).wait() == Acked([3], [])
    assert stand.claim("c")[0].lease_id == f"lease_{3 + 29 + 1:x}"
    stand.pass_time(5000)
    assert [(job.seq, job.priority, job.deliveries) for job in stand.claim("c", 5)] == [(2, 0, 2), (31, 0, 1)]


@pytest.mark.usefixtures("_short_companions")
def test_a_snapshot_holds_schedules_of_jobs_that_are_not_visible_yet(make_stand: MakeStand) -> None:
    stand = make_stand(durability="fsync")
    for _ in range(20):
        stand.queue.append(Batch([b""]), [Schedule(NOW + 1000, 1)])
    stand.engine.flush()
    assert stand.companion.state().earliest > 1
    stand.reopen()
    assert stand.queue.counters() == QueueCounters(0, 0, 0, 20)


def test_a_companion_with_many_live_jobs_is_not_compacted_all_the_time(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_log, "COMPACT_EVENTS", 4)
    stand.fill(10)
    stand.claim("a", 10)
    for _ in range(20):
        stand.queue.extend("a", [1], 1000).wait()
    assert stand.companion.state().earliest == 1
    for _ in range(20):
        stand.queue.extend("a", [1], 1000).wait()
    stand.engine.flush()
    assert stand.companion.state().earliest == 42
    for _ in range(5):
        stand.queue.extend("a", [1], 1000).wait()
    stand.engine.flush()
    assert stand.companion.state().earliest == 42
    assert stand.companion.state().count == 6


def test_events_with_large_reasons_are_compacted_by_their_bytes(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_log, "COMPACT_BYTES", 100_000)
    stand.fill(3)
    most = 0
    for number in range(200):
        stand.claim("a", 2)
        stand.queue.nack("a", [1, 2], reason=b'"%04d%s"' % (number, b"x" * 3000)).wait()
        most = max(most, stand.companion.state().size)
    # Far fewer events than would be many: 600,000 bytes of reasons were written, and the jobs keep 16,000.
    assert 90_000 < most < 110_000
    stand.reopen()
    assert [[reason[:4] for _, _, _, reason in failures(job)] for job in stand.claim("b", 2)] == [["0198", "0199"]] * 2


def test_a_large_snapshot_is_not_repeated_after_every_event(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_log, "COMPACT_BYTES", 10)
    stand.fill(50)
    stand.claim("a", 50)
    compactions = set()
    for _ in range(300):
        stand.queue.extend("a", [1], 1000).wait()
        compactions.add(stand.companion.state().earliest)
    assert 1 < len(compactions) < 6


def test_the_bound_of_all_reasons_holds_after_a_snapshot_too(
    make_stand: MakeStand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "MAX_ALL_FAILURES_BYTES", 20_000)
    monkeypatch.setattr(lease_log, "COMPACT_BYTES", 20_000)
    stand = make_stand()
    stand.fill(30)
    for seq in range(1, 31):
        stand.claim("a", 30)
        stand.queue.nack("a", [seq], reason=b'"%s"' % (b"x" * 2000)).wait()
    stand.engine.flush()
    assert stand.companion.state().earliest > 1
    stand.reopen()
    jobs = stand.claim("b", 30)
    assert len(jobs) == 30
    kept = [reason for job in jobs for _, _, _, reason in failures(job)]
    assert sum(reason == "x" * 2000 for reason in kept) < 12


def test_events_read_as_json(stand: Stand) -> None:
    event = ClaimedEvent([Grant("a", 1, NOW, [1, 2])])
    assert encode(event) == b'["claimed",[["a",1,1700000000000,[1,2]]]]'
    assert decode(encode(event)) == event


# --- the settings of the leases' durability --------------------------------------------------------------------


def test_the_companion_is_of_the_class_that_the_settings_ask_for(make_stand: MakeStand) -> None:
    stand = make_stand()
    stand.fill(3)
    assert stand.seqs("a") == [1]
    assert stand.companion.config.durability == "memory"
    stand.settings = QueueSettings(leases_durable=True)
    assert stand.seqs("a") == [2]
    assert stand.companion.config.durability == "fsync"
    stand.settings = QueueSettings()
    assert stand.queue.claim("a", 1).done
    assert stand.companion.config.durability == "memory"
    assert stand.queue.counters().in_flight == 3


def test_settings_that_changed_during_a_stop_are_taken_over(make_stand: MakeStand) -> None:
    stand = make_stand()
    stand.fill(1)
    stand.claim("a")
    # Leases that are in the log survive, even if they were not durable when they were granted.
    stand.settings = QueueSettings(leases_durable=True)
    stand.reopen()
    assert stand.queue.counters().in_flight == 1
    assert stand.companion.config.durability == "fsync"
