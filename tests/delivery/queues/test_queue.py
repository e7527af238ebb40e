"""A queue from its door: claims, acks, nacks, extensions, releases, schedules, counters."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from msgspec.structs import astuple
from support.manual_queue import NOW, Stand, failures

from strandline.delivery.queues import (
    Acked,
    AckRequest,
    Backoff,
    BadClaim,
    BadLeaseId,
    BadSchedule,
    ClaimRequest,
    Extended,
    LeaseIdsMismatch,
    Nacked,
    QueueCounters,
    QueueSettings,
    Schedule,
    state,
)
from strandline.delivery.queues.backoff import MAX_DELAY_MS
from strandline.engine import Batch, Config
from strandline.engine.errors import DiskFull, JournalFailed, LogFull, UnknownLog
from strandline.engine.testing.fault_disk import FaultDisk

MakeStand = Callable[..., Stand]

# --- claiming --------------------------------------------------------------------------------------------------


def test_a_claim_gives_the_oldest_jobs_with_the_terms_of_their_leases(stand: Stand) -> None:
    stand.queue.append(Batch([b"1", b"2"], ["k", None], ["n", None], [b"{}", None])).wait()
    first, second = stand.claim("a", 5)
    assert astuple(first)[:6] == (1, NOW, "k", "n", b"{}", b"1")
    assert astuple(second)[:6] == (2, NOW, None, None, None, b"2")
    assert (first.lease_id, second.lease_id) == ("lease_1", "lease_2")
    assert first.deadline == second.deadline == NOW + 30_000
    assert (first.deliveries, first.priority) == (1, 0)


def test_several_claims_in_one_step_are_served_one_after_the_other(stand: Stand) -> None:
    stand.fill(5)
    requests = [ClaimRequest("a", 2), ClaimRequest("b", 2, 1000), ClaimRequest("c", 2), ClaimRequest("d", 2)]
    granted = stand.queue.claim_each(requests).wait()
    assert [[job.seq for job in jobs] for jobs in granted] == [[1, 2], [3, 4], [5], []]
    assert [job.lease_id for jobs in granted for job in jobs] == [f"lease_{number}" for number in range(1, 6)]
    assert [jobs[0].deadline for jobs in granted[:3]] == [NOW + 30_000, NOW + 1000, NOW + 30_000]
    assert stand.events_written() == 1


def test_several_acks_in_one_step_are_served_one_after_the_other(stand: Stand) -> None:
    stand.fill(4)
    [first, _] = stand.claim("a", 2)
    stand.claim("b", 1)
    before = stand.engine.journal.frames
    requests = [
        AckRequest("a", [1, 1, 3]),
        AckRequest("a", [1, 2]),
        AckRequest("b", [3, 4]),
        AckRequest.of("a", [1], [first.lease_id]),
    ]
    acked = stand.queue.ack_each(requests).wait()
    assert acked == [Acked([1], [1, 3]), Acked([2], [1]), Acked([3], [4]), Acked([], [1])]
    assert stand.engine.journal.frames == before + 1
    assert stand.queue.counters() == QueueCounters(1, 0, 0, 0)


def test_acks_of_nothing_in_one_step_write_nothing(stand: Stand) -> None:
    stand.fill(1)
    queue = stand.queue
    before = stand.engine.journal.frames
    assert queue.ack_each([AckRequest("a", [1]), AckRequest("a", [])]).wait() == [Acked([], [1]), Acked([], [])]
    assert stand.engine.journal.frames == before


def test_an_empty_queue_gives_nothing_and_writes_nothing(stand: Stand) -> None:
    assert stand.claim("a", 5) == []
    assert stand.events_written() == 0


def test_a_held_job_is_not_given_to_anybody_else(stand: Stand) -> None:
    stand.fill(3)
    assert stand.seqs("a", 2) == [1, 2]
    assert stand.seqs("b", 5) == [3]
    assert stand.seqs("a", 5) == []


def test_a_claim_can_have_its_own_lease_time(stand: Stand) -> None:
    stand.fill(1)
    assert stand.claim("a", 1, lease_ms=500)[0].deadline == NOW + 500


def test_a_claim_of_no_jobs_gives_none(stand: Stand) -> None:
    stand.fill(1)
    assert stand.claim("a", 0) == []


def test_lease_numbers_are_counted_in_lowercase_hexadecimal_digits(stand: Stand) -> None:
    stand.fill(20)
    assert [job.lease_id for job in stand.claim("a", 16)][9:] == [f"lease_{digit}" for digit in [*"abcdef", "10"]]


@pytest.mark.parametrize("wrong", [-1, 1.5, True, "1", None])
def test_a_claim_of_a_senseless_number_of_jobs_is_refused(stand: Stand, wrong: int) -> None:
    with pytest.raises(BadClaim):
        stand.queue.claim("a", wrong)


def test_one_claim_is_one_event_whatever_the_number_of_jobs(stand: Stand) -> None:
    stand.fill(10)
    stand.claim("a", 8)
    assert stand.events_written() == 1


def test_jobs_that_are_sealed_in_segments_are_handed_out_too(stand: Stand) -> None:
    stand.fill(5)
    stand.engine.seal()
    stand.fill(2)
    assert [job.data for job in stand.claim("a", 7)] == [str(seq).encode() for seq in range(1, 8)]


def test_reading_the_log_touches_no_lease(stand: Stand) -> None:
    stand.fill(3)
    stand.claim("a", 1)
    before = stand.queue.counters()
    assert stand.log.read().seqs == [1, 2, 3]
    assert stand.queue.counters() == before
    assert stand.events_written() == 1


# --- the end of a lease ----------------------------------------------------------------------------------------


def test_a_lease_holds_up_to_its_deadline_and_is_over_right_after(stand: Stand) -> None:
    stand.fill(1)
    stand.claim("a", 1, lease_ms=1000)
    stand.pass_time(1000)
    assert stand.seqs("b") == []
    stand.pass_time(1)
    assert stand.seqs("b") == [1]


def test_a_reclaimed_job_comes_before_fresh_ones_and_is_counted(stand: Stand) -> None:
    stand.fill(5)
    stand.claim("a", 2, lease_ms=1000)
    stand.pass_time(1001)
    again = stand.claim("b", 3)
    assert [(job.seq, job.deliveries, job.lease_id) for job in again] == [
        (1, 2, "lease_3"),
        (2, 2, "lease_4"),
        (3, 1, "lease_5"),
    ]


def test_an_ack_after_the_deadline_is_skipped_even_if_nobody_else_has_claimed_the_job(stand: Stand) -> None:
    stand.fill(1)
    stand.claim("a", 1, lease_ms=1000)
    stand.pass_time(1001)
    assert stand.queue.ack("a", [1]).wait() == Acked([], [1])
    assert stand.left() == [1]


# --- ack -------------------------------------------------------------------------------------------------------


def test_an_ack_deletes_the_jobs_that_the_node_holds_and_names_the_others(stand: Stand) -> None:
    stand.fill(4)
    stand.claim("a", 2)
    stand.claim("b", 1)
    assert stand.queue.ack("a", [2, 3, 4, 99, 1]).wait() == Acked([2, 1], [3, 4, 99])
    assert stand.left() == [3, 4]


def test_a_repeated_ack_is_harmless(stand: Stand) -> None:
    stand.fill(1)
    stand.claim("a")
    stand.queue.ack("a", [1]).wait()
    assert stand.queue.ack("a", [1]).wait() == Acked([], [1])


def test_a_seq_that_is_named_twice_counts_once(stand: Stand) -> None:
    stand.fill(1)
    stand.claim("a")
    assert stand.queue.ack("a", [1, 1]).wait() == Acked([1], [1])


def test_an_ack_of_nothing_does_nothing(stand: Stand) -> None:
    assert stand.queue.ack("a", []).wait() == Acked([], [])


def test_an_ack_needs_no_event(stand: Stand) -> None:
    stand.fill(1)
    stand.claim("a")
    stand.queue.ack("a", [1]).wait()
    assert stand.events_written() == 1


# --- fences ----------------------------------------------------------------------------------------------------


def test_a_stale_lease_id_is_fenced_off_even_for_the_same_node(stand: Stand) -> None:
    stand.fill(1)
    stand.claim("a", 1, lease_ms=1000)
    stand.pass_time(1001)
    stand.claim("a", 1)
    assert stand.queue.ack("a", [1], ["lease_1"]).wait() == Acked([], [1])
    assert stand.queue.nack("a", [1], 0, ["lease_1"]).wait() == Nacked([], [1])
    assert stand.queue.extend("a", [1], 1000, ["lease_1"]).wait() == Extended({}, [1])
    assert stand.queue.ack("a", [1], ["lease_2"]).wait() == Acked([1], [])


def test_an_empty_lease_id_fences_nothing(stand: Stand) -> None:
    stand.fill(2)
    stand.claim("a", 2)
    assert stand.queue.ack("a", [1, 2], ["", "lease_1"]).wait() == Acked([1], [2])


def test_the_right_lease_id_does_not_make_up_for_the_wrong_node(stand: Stand) -> None:
    stand.fill(1)
    stand.claim("a")
    assert stand.queue.ack("b", [1], ["lease_1"]).wait() == Acked([], [1])


@pytest.mark.parametrize("token", ["lease_", "lease_G", "lease_A", "1", "lease 1", "Lease_1", "lease_-1", "lease_1 "])
def test_a_malformed_lease_id_is_an_error_and_nothing_is_done(stand: Stand, token: str) -> None:
    stand.fill(2)
    stand.claim("a", 2)
    for call in (
        lambda: stand.queue.ack("a", [1, 2], ["lease_1", token]),
        lambda: stand.queue.nack("a", [1, 2], 0, ["lease_1", token]),
        lambda: stand.queue.extend("a", [1, 2], 1, ["lease_1", token]),
        lambda: stand.queue.release([1, 2], ["lease_1", token]),
    ):
        with pytest.raises(BadLeaseId) as caught:
            call()
        assert caught.value.token == token
    assert stand.queue.counters().in_flight == 2


def test_lease_zero_was_never_given_out_and_fences_everything_off(stand: Stand) -> None:
    stand.fill(1)
    stand.claim("a")
    assert stand.queue.ack("a", [1], ["lease_0"]).wait() == Acked([], [1])


def test_lease_ids_must_be_as_many_as_seqs(stand: Stand) -> None:
    with pytest.raises(LeaseIdsMismatch):
        stand.queue.ack("a", [1, 2], ["lease_1"])


# --- nack ------------------------------------------------------------------------------------------------------


def test_a_nacked_job_can_be_claimed_at_once(stand: Stand) -> None:
    stand.fill(2)
    stand.claim("a")
    assert stand.queue.nack("a", [1, 2]).wait() == Nacked([1], [2])
    assert [(job.seq, job.deliveries) for job in stand.claim("b", 2)] == [(1, 2), (2, 1)]


def test_a_delayed_nack_keeps_the_job_back_until_its_time_has_come(stand: Stand) -> None:
    stand.fill(1)
    stand.claim("a")
    stand.queue.nack("a", [1], delay_ms=1000).wait()
    assert stand.queue.counters() == QueueCounters(0, 0, 0, 1)
    stand.pass_time(999)
    assert stand.seqs("b") == []
    stand.pass_time(1)
    assert stand.queue.counters() == QueueCounters(1, 0, 0, 0)
    assert stand.seqs("b") == [1]


def test_a_nack_ends_the_lease(stand: Stand) -> None:
    stand.fill(1)
    stand.claim("a")
    stand.queue.nack("a", [1]).wait()
    assert stand.queue.ack("a", [1]).wait() == Acked([], [1])


# --- extend ----------------------------------------------------------------------------------------------------


def test_an_extension_sets_the_deadline_from_now_and_keeps_the_lease(stand: Stand) -> None:
    stand.fill(1)
    stand.claim("a", 1, lease_ms=1000)
    stand.pass_time(900)
    assert stand.queue.extend("a", [1, 2], 1000).wait() == Extended({1: NOW + 1900}, [2])
    stand.pass_time(1000)
    assert stand.seqs("b") == []
    assert stand.queue.ack("a", [1], ["lease_1"]).wait() == Acked([1], [])


def test_an_extension_can_shorten_a_lease(stand: Stand) -> None:
    stand.fill(1)
    stand.claim("a", 1, lease_ms=10_000)
    stand.queue.extend("a", [1], 10).wait()
    stand.pass_time(11)
    assert [(job.seq, job.deliveries) for job in stand.claim("b")] == [(1, 2)]


def test_a_lease_that_is_over_cannot_be_extended(stand: Stand) -> None:
    stand.fill(1)
    stand.claim("a", 1, lease_ms=1000)
    stand.pass_time(1001)
    assert stand.queue.extend("a", [1], 1000).wait() == Extended({}, [1])


# --- release ---------------------------------------------------------------------------------------------------


def test_a_connection_that_is_gone_gives_back_what_it_still_held(stand: Stand) -> None:
    stand.fill(4)
    stand.claim("a", 3)
    stand.queue.ack("a", [1]).wait()
    stand.queue.nack("a", [2]).wait()
    stand.claim("a", 1)  # job 2 again, by another connection of the same node
    released = stand.queue.release([1, 2, 3], ["lease_1", "lease_2", "lease_3"]).wait()
    assert released == [3]
    assert stand.queue.release([3, 3], ["lease_3", ""]).wait() == []
    assert stand.seqs("b", 5) == [3, 4]


# --- schedules -------------------------------------------------------------------------------------------------


def test_a_scheduled_job_is_handed_out_when_its_time_has_come(stand: Stand) -> None:
    stand.add(not_before=1000)
    stand.fill(1)
    assert stand.queue.counters() == QueueCounters(1, 0, 0, 1)
    assert stand.seqs("a", 5) == [2]
    stand.pass_time(1000)
    assert stand.queue.counters() == QueueCounters(1, 1, 0, 0)
    assert stand.claim("a", 5)[0].seq == 1


def test_the_order_is_priority_then_reclaimed_then_seq(stand: Stand) -> None:
    stand.fill(2)  # 1, 2
    stand.add(priority=5)  # 3
    stand.add(priority=-1)  # 4
    stand.add(not_before=10)  # 5
    stand.fill(2)  # 6, 7
    stand.add(priority=5)  # 8
    assert stand.seqs("a", 3) == [3, 8, 1]
    stand.pass_time(10)
    stand.queue.nack("a", [1, 8]).wait()
    claimed = stand.claim("b", 10)
    assert [job.seq for job in claimed] == [8, 1, 2, 5, 6, 7, 4]
    assert [job.priority for job in claimed] == [5, 0, 0, 0, 0, 0, -1]


def test_a_schedule_in_the_past_and_without_priority_is_none(stand: Stand) -> None:
    stand.queue.append(Batch([b"", b""]), [Schedule(NOW), None]).wait()
    assert stand.events_written() == 0
    assert stand.seqs("a", 5) == [1, 2]


def test_a_repeated_append_changes_no_schedule(stand: Stand) -> None:
    for _ in range(2):
        appended = stand.queue.append(Batch([b""]), [Schedule(NOW + 1000, 3)], "key").wait()
    stand.settings = QueueSettings(leases_durable=True)
    assert (appended.first, appended.deduped) == (1, True)
    stand.fill(1)
    assert stand.seqs("a", 5) == [2]
    stand.reopen()
    stand.pass_time(1000)
    assert [(job.seq, job.priority) for job in stand.claim("a", 5)] == [(1, 3)]


def test_a_repetition_with_a_schedule_of_an_append_without_one_is_recognised_as_well(stand: Stand) -> None:
    stand.queue.append(Batch([b""]), None, "key").wait()
    stand.queue.append(Batch([b""]), [Schedule(priority=9)], "key").wait()
    stand.fill(1)
    assert [(job.seq, job.priority) for job in stand.claim("a", 5)] == [(1, 0), (2, 0)]


def test_a_repetition_is_recognised_when_only_a_later_job_of_the_batch_has_a_schedule(stand: Stand) -> None:
    for _ in range(2):
        stand.queue.append(Batch([b"", b""]), [None, Schedule(priority=4)], "key").wait()
    stand.fill(2)
    stand.settings = QueueSettings(leases_durable=True)
    assert [(job.seq, job.priority) for job in stand.claim("a", 5)] == [(2, 4), (1, 0), (3, 0), (4, 0)]
    stand.reopen()
    assert stand.queue.counters() == QueueCounters(0, 4, 0, 0)


@pytest.mark.parametrize(
    "schedules",
    [[], [None, None], [Schedule(-1)], [Schedule(1.5)], [Schedule(0, True)], [Schedule(0, 1 << 63)]],  # type: ignore[arg-type]
)
def test_a_senseless_schedule_is_refused_and_nothing_is_appended(stand: Stand, schedules: list[Schedule]) -> None:
    with pytest.raises(BadSchedule):
        stand.queue.append(Batch([b""]), schedules)
    assert stand.log.head == 0


def test_a_full_log_refuses_scheduled_jobs_and_their_schedules(make_stand: MakeStand) -> None:
    stand = make_stand(cap_records=1, discard="reject")
    stand.fill(1)
    with pytest.raises(LogFull):
        stand.queue.append(Batch([b""]), [Schedule(priority=7)])
    stand.claim("a")
    stand.queue.ack("a", [1]).wait()
    stand.fill(1)
    assert stand.claim("a")[0].priority == 0


# --- cohorts ---------------------------------------------------------------------------------------------------


def test_a_cohort_shares_what_there_is_in_one_event(stand: Stand) -> None:
    stand.fill(50)
    requests = [ClaimRequest(f"w{index}", 10) for index in range(10)]
    granted = stand.queue.claim_cohort(requests).wait()
    assert [len(jobs) for jobs in granted] == [5] * 10
    assert [job.seq for job in granted[0]] == [1, 11, 21, 31, 41]
    assert stand.events_written() == 1
    leases = [job.lease_id for jobs in granted for job in jobs]
    assert len(set(leases)) == 50
    for request, jobs in zip(requests, granted, strict=True):
        seqs = [job.seq for job in jobs]
        assert stand.queue.ack(request.node, seqs, [job.lease_id for job in jobs]).wait() == Acked(seqs, [])


def test_every_claim_of_a_cohort_has_its_own_lease_time(stand: Stand) -> None:
    stand.fill(2)
    granted = stand.queue.claim_cohort([ClaimRequest("a", 1, 100), ClaimRequest("b", 1)]).wait()
    assert [jobs[0].deadline for jobs in granted] == [NOW + 100, NOW + 30_000]


def test_a_cohort_of_nobody_gets_nothing(stand: Stand) -> None:
    stand.fill(2)
    assert stand.queue.claim_cohort([]).wait() == []


# --- looking on ------------------------------------------------------------------------------------------------


def test_the_counters_follow_the_jobs(stand: Stand) -> None:
    stand.fill(5)
    stand.add(not_before=100)
    stand.add(priority=1)
    assert stand.queue.counters() == QueueCounters(6, 0, 0, 1)
    stand.claim("a", 3, lease_ms=50)
    assert stand.queue.counters() == QueueCounters(3, 3, 0, 1)
    stand.queue.ack("a", [7]).wait()
    assert stand.queue.counters() == QueueCounters(3, 2, 0, 1)
    stand.pass_time(51)
    assert stand.queue.counters() == QueueCounters(5, 0, 0, 1)
    stand.pass_time(49)
    assert stand.queue.counters() == QueueCounters(6, 0, 0, 0)


def test_the_next_change_is_the_earliest_of_deadlines_delays_and_schedules(stand: Stand) -> None:
    queue = stand.queue
    assert queue.next_change() is None
    stand.add(not_before=5000)
    assert queue.next_change() == NOW + 5000
    stand.fill(2)
    stand.claim("a", 2, lease_ms=1000)
    assert queue.next_change() == NOW + 1001
    queue.extend("a", [2], 3000).wait()
    queue.nack("a", [3], delay_ms=2000).wait()
    assert queue.next_change() == NOW + 2000
    queue.extend("a", [2], 1500).wait()
    assert queue.next_change() == NOW + 1501
    queue.ack("a", [2]).wait()
    assert queue.next_change() == NOW + 2000


def test_a_change_that_nobody_has_seen_yet_is_told_of_although_it_is_past(stand: Stand) -> None:
    stand.fill(1)
    stand.claim("a", 1, lease_ms=1000)
    stand.pass_time(5000)
    assert stand.queue.next_change() == NOW + 1001


# --- records that go by other ways -----------------------------------------------------------------------------


def test_leases_of_records_that_somebody_deleted_are_forgotten(stand: Stand) -> None:
    stand.fill(4)
    stand.add(not_before=1000)
    stand.claim("a", 3)
    stand.log.delete(seqs=[2, 4, 5]).wait()
    stand.queue.forget_missing()
    assert stand.queue.counters() == QueueCounters(0, 2, 0, 0)
    assert stand.queue.ack("a", [1, 2, 3]).wait() == Acked([1, 3], [2])


def test_a_ready_job_that_somebody_deleted_is_not_handed_out(stand: Stand) -> None:
    stand.fill(3)
    stand.claim("a", 2)
    stand.queue.nack("a", [1, 2]).wait()
    stand.log.delete(seqs=[1]).wait()
    assert stand.seqs("b", 5) == [2, 3]


def test_leases_of_evicted_records_are_forgotten(make_stand: MakeStand) -> None:
    stand = make_stand(cap_records=3)
    stand.fill(3)
    stand.claim("a", 2)
    stand.fill(2)
    assert stand.queue.ack("a", [1, 2]).wait() == Acked([], [1, 2])
    assert stand.queue.counters() == QueueCounters(3, 0, 0, 0)
    assert stand.seqs("b", 5) == [3, 4, 5]


def test_leases_of_records_that_were_evicted_by_a_cap_of_the_past_are_not_counted(make_stand: MakeStand) -> None:
    stand = make_stand(cap_records=3)
    stand.fill(3)
    stand.claim("a", 2)
    stand.fill(2)
    stand.log.configure(Config()).wait()
    assert stand.queue.counters() == QueueCounters(3, 0, 0, 0)


def test_leases_of_expired_records_are_forgotten(make_stand: MakeStand) -> None:
    stand = make_stand(ttl_ms=1000)
    stand.fill(2)
    stand.add(not_before=5000)
    stand.claim("a", 1)
    stand.pass_time(500)
    stand.fill(1)
    stand.pass_time(501)
    assert stand.queue.counters() == QueueCounters(1, 0, 0, 0)
    assert stand.queue.extend("a", [1], 1000).wait() == Extended({}, [1])
    assert stand.seqs("b", 5) == [4]


# --- logs that wait for the disk -------------------------------------------------------------------------------


def test_an_acked_job_whose_deletion_waits_for_the_disk_is_not_handed_out(make_stand: MakeStand) -> None:
    stand = make_stand(durability="fsync")
    stand.add(priority=1)
    stand.fill(2)
    stand.claim("a", 1)
    acked = stand.queue.ack("a", [1])
    assert not acked.done
    assert stand.left() == [1, 2, 3]
    assert stand.queue.counters() == QueueCounters(2, 0, 0, 0)
    assert stand.seqs("b", 5) == [2, 3]
    assert acked.wait() == Acked([1], [])
    assert stand.left() == [2, 3]
    assert stand.queue.counters() == QueueCounters(0, 2, 0, 0)


def test_an_acked_job_that_waits_for_the_disk_is_passed_by_the_cursor(make_stand: MakeStand) -> None:
    stand = make_stand(durability="fsync")
    stand.fill(1)
    stand.add(priority=1)
    assert stand.seqs("a") == [2]
    stand.queue.ack("a", [2])
    assert stand.seqs("b", 5) == [1]


def test_a_scheduled_job_is_recognised_when_it_becomes_visible(make_stand: MakeStand) -> None:
    stand = make_stand(durability="fsync")
    commit = stand.queue.append(Batch([b"1", b"2"]), [Schedule(NOW + 1000), Schedule(priority=1)])
    assert not commit.done
    assert stand.seqs("a", 5) == []
    assert stand.queue.counters() == QueueCounters(0, 0, 0, 0)
    assert (commit.wait().first, commit.wait().last) == (1, 2)
    assert stand.queue.counters() == QueueCounters(1, 0, 0, 1)
    assert stand.seqs("a", 5) == [2]


def test_callbacks_of_a_call_that_waits_for_the_disk_are_called_when_it_is_durable(make_stand: MakeStand) -> None:
    stand = make_stand(durability="fsync")
    stand.fill(1)
    stand.claim("a")
    seen = []
    stand.queue.ack("a", [1]).add_done_callback(lambda commit: seen.append(commit.wait()))
    assert seen == [Acked([1], [])]


def test_a_claim_under_durable_leases_waits_for_the_disk(make_stand: MakeStand) -> None:
    stand = make_stand(QueueSettings(leases_durable=True))
    stand.fill(3)
    commit = stand.queue.claim("a", 2)
    assert not commit.done
    assert stand.seqs("b", 5) == [3]
    assert [job.seq for job in commit.wait()] == [1, 2]
    assert not stand.queue.nack("a", [1]).done
    assert not stand.queue.extend("a", [2], 1000).done


def test_a_full_disk_leaves_everything_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    disk = FaultDisk(tmp_path / "data")
    stand = Stand(disk)
    stand.fill(3)
    stand.add(priority=1)
    stand.claim("a", 2)
    stand.queue.nack("a", [1]).wait()
    before = stand.queue.counters()
    disk.fail_from(0, 28, kind="write")
    for call in (
        lambda: stand.queue.claim("b", 5),
        lambda: stand.queue.ack("a", [4]),
        lambda: stand.queue.nack("a", [4]),
        lambda: stand.queue.extend("a", [4], 1),
        lambda: stand.queue.append(Batch([b""]), [Schedule(priority=1)]),
    ):
        with pytest.raises(DiskFull):
            call()
        assert stand.queue.counters() == before
    disk.heal()
    assert stand.seqs("b", 5) == [1, 2, 3]
    assert stand.queue.ack("a", [4]).wait() == Acked([4], [])
    stand.close()


def test_a_queue_can_be_looked_at_after_the_journal_failed_while_jobs_became_dead_letters(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    disk = FaultDisk(tmp_path / "data")
    stand = Stand(disk, durability="fsync")
    stand.fill(2)
    stand.claim("a", 2)
    stand.queue._leaving._buried.append(1)
    stand.engine.journal.fail(OSError(5, "Input/output error"))
    with pytest.raises(JournalFailed):
        stand.queue.ack("a", [2])
    assert stand.queue.counters().in_flight == 2
    stand.close()


def test_a_queue_whose_log_is_gone_says_so(stand: Stand) -> None:
    stand.fill(1)
    queue = stand.queue
    stand.log.drop().wait()
    with pytest.raises(UnknownLog):
        queue.claim("a", 1)


def test_workers_on_many_threads_never_hold_the_same_job(make_stand: MakeStand) -> None:
    stand = make_stand(durability="fsync")
    stand.fill(300)
    queue = stand.queue
    done: list[int] = []

    def work(node: str) -> None:
        while jobs := queue.claim(node, 7).wait():
            seqs = [job.seq for job in jobs]
            assert queue.ack(node, seqs, [job.lease_id for job in jobs]).wait() == Acked(seqs, [])
            done.extend(seqs)

    with ThreadPoolExecutor(4) as pool:
        for worker in [pool.submit(work, node) for node in "abcd"]:
            worker.result()
    assert sorted(done) == list(range(1, 301))
    assert stand.left() == []


# --- failures and retries --------------------------------------------------------------------------------------


def test_jobs_that_are_returned_without_a_delay_wait_as_the_settings_say(make_stand: MakeStand) -> None:
    stand = make_stand(QueueSettings(backoff=Backoff(1000, 3.0, 5000, 0.5)))
    stand.fill(3)
    stand.chance = 0.0
    for delay in (1000, 3000, 5000, 5000):
        assert stand.seqs("a") == [1]
        stand.queue.nack("a", [1]).wait()
        assert stand.queue.next_change() == stand.clock.now() + delay
        stand.pass_time(delay)
    stand.seqs("a", 3)
    stand.chance = 1.0
    # Each by the number of its own deliveries; an explicit delay takes precedence, even if it is 0.
    stand.queue.nack("a", [1, 2]).wait()
    stand.queue.nack("a", [3], delay_ms=0).wait()
    assert {job.seq: job.until for job in stand.queue.known_jobs()} == {
        1: stand.clock.now() + 2500,
        2: stand.clock.now() + 500,
        3: 0,
    }
    stand.reopen()
    assert stand.queue.next_change() == stand.clock.now() + 500


def test_no_delay_is_longer_than_a_day(make_stand: MakeStand) -> None:
    stand = make_stand(QueueSettings(backoff=Backoff(1, 1000.0, 10**15)))
    stand.fill(2)
    stand.seqs("a", 2)
    stand.queue.nack("a", [1], delay_ms=10**12).wait()
    assert {job.seq: job.until for job in stand.queue.known_jobs()}[1] == NOW + MAX_DELAY_MS
    for delay in (1, 1000, 1_000_000, MAX_DELAY_MS):
        stand.queue.nack("a", [2]).wait()
        assert {job.seq: job.until for job in stand.queue.known_jobs()}[2] == stand.clock.now() + delay
        stand.pass_time(delay)
        assert 2 in stand.seqs("a", 2)


def test_neither_an_expired_lease_nor_a_closed_connection_is_delayed(make_stand: MakeStand) -> None:
    stand = make_stand(QueueSettings(backoff=Backoff(1000)))
    stand.fill(2)
    stand.claim("a", 1, lease_ms=10)
    (job,) = stand.claim("a")
    stand.queue.release([2], [job.lease_id]).wait()
    stand.pass_time(11)
    assert stand.seqs("b", 5) == [1, 2]


def nested(levels: int) -> bytes:
    return b'{"why":' + b"[" * (levels - 1) + b"]" * (levels - 1) + b"}"


@pytest.mark.parametrize(
    "reason",
    [b"", b"{", b"\xff", b"[" + b"1" * 4095 + b"]", b"[" * 4096, nested(65), nested(2000)],
    ids=lambda reason: f"{reason[:9]} {len(reason)}",
)
def test_a_reason_that_is_no_json_or_too_large_is_refused(stand: Stand, reason: bytes) -> None:
    stand.fill(1)
    stand.claim("a")
    with pytest.raises(BadClaim):
        stand.queue.nack("a", [1], reason=reason)
    assert stand.queue.counters().in_flight == 1


@pytest.mark.parametrize("reason", [nested(64), b'{"text":"' + b"[" * 100 + b'"}', b'"' + b"[{" * 100 + b'"'])
def test_a_reason_that_is_not_nested_too_deeply_is_kept(stand: Stand, reason: bytes) -> None:
    stand.fill(1)
    stand.claim("a")
    stand.queue.nack("a", [1], reason=reason).wait()
    (job,) = stand.claim("a")
    assert [bytes(failure.reason) for failure in job.failures] == [reason]


def test_reasons_are_not_kept_once_a_queue_has_too_many(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "MAX_ALL_FAILURES_BYTES", 200)
    stand.fill(4)
    jobs = stand.claim("a", 4)
    for job in jobs:
        stand.queue.nack("a", [job.seq], reason=b'"%s"' % (b"x" * 50)).wait()
    reasons = [failures(job)[0][3] for job in stand.claim("a", 4)]
    assert [str(reason)[:8] for reason in reasons] == ["xxxxxxxx", "xxxxxxxx", "not kept", "not kept"]
    stand.queue.ack("a", [1, 2, 3, 4]).wait()
    stand.fill(1)
    stand.claim("a")
    stand.queue.nack("a", [5], reason=b"1").wait()
    assert [reason for *_, reason in failures(stand.claim("a")[0])] == [1]


# --- figures ---------------------------------------------------------------------------------------------------


def oldest(stand: Stand) -> int | None:
    return stand.queue.figures().oldest_ready_ms


def test_the_age_is_that_of_the_job_that_has_been_ready_longest(stand: Stand) -> None:
    assert oldest(stand) is None
    stand.fill(2)
    stand.pass_time(100)
    stand.add(priority=5)
    stand.pass_time(30)
    assert oldest(stand) == 130
    assert stand.seqs("a", 3) == [3, 1, 2]
    assert oldest(stand) is None
    stand.queue.nack("a", [1]).wait()
    stand.pass_time(7)
    assert oldest(stand) == 7
    stand.queue.nack("a", [2], delay_ms=50).wait()
    assert stand.seqs("a") == [1]
    stand.pass_time(60)
    # Ready since its delay ended, and not since it was written.
    assert oldest(stand) == 10
    stand.pass_time(30_000)
    assert oldest(stand) == 30_010
    stand.add(not_before=500)
    assert stand.seqs("a", 5) == [3, 1, 2]
    assert oldest(stand) is None
    stand.pass_time(501)
    assert oldest(stand) == 1


def test_a_restart_does_not_make_ready_jobs_younger(stand: Stand) -> None:
    stand.add(priority=5)
    stand.pass_time(1000)
    stand.reopen()
    assert oldest(stand) == 1000


def test_figures_count_what_happens_to_deliveries(stand: Stand) -> None:
    stand.fill(9)
    jobs = stand.claim("a", 7)
    stand.claim("b", 1, lease_ms=10)
    stand.queue.ack("a", [1, 2, 3]).wait()
    stand.queue.nack("a", [4, 5]).wait()
    stand.queue.release([6], [jobs[5].lease_id]).wait()
    stand.pass_time(10_000)
    rates = stand.queue.figures().rates
    assert (rates.claimed, rates.completed) == (8, 3)
    assert rates.failed == {"nack": 2, "expired": 1, "disconnected": 1}
    assert (rates.throughput, rates.failure_rate) == (0.3, 4 / 7)
    stand.reopen()
    rates = stand.queue.figures().rates
    assert (rates.claimed, rates.completed, sum(rates.failed.values())) == (0, 0, 0)


def test_figures_say_when_they_need_the_disk(stand: Stand) -> None:
    stand.fill(3)
    assert stand.queue.figures_resident
    stand.engine.seal()
    stand.engine.store.close()
    assert not stand.queue.figures_resident
    assert oldest(stand) == 0
    assert stand.queue.figures_resident


def test_a_closed_connection_drops_no_job(make_stand: MakeStand) -> None:
    stand = make_stand(QueueSettings(max_deliveries=1))
    stand.fill(1)
    for _ in range(3):
        (job,) = stand.claim("a")
        assert job.deliveries == 1
        stand.queue.release([1], [job.lease_id]).wait()
        assert stand.queue.counters() == QueueCounters(1, 0, 0, 0)
    stand.claim("a")
    stand.queue.nack("a", [1]).wait()
    assert stand.queue.counters() == QueueCounters(0, 0, 0, 0, 1)
