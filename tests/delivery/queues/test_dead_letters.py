"""Jobs that were delivered too often, on their way to the dead letters and back."""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from support.manual_queue import NOW, Stand

from strandline.delivery.queues import Nacked, QueueCounters, QueueSettings, Redriven, Schedule, redrive
from strandline.engine import Batch, Config, Log
from strandline.engine.errors import EngineError
from strandline.engine.testing.fault_disk import Crashed, FaultDisk

MakeStand = Callable[..., Stand]
SETTINGS = QueueSettings(max_deliveries=2, dead_letter="dead")


@pytest.fixture
def stand(make_stand: MakeStand) -> Stand:
    return make_stand(SETTINGS)


def wear_out(stand: Stand, times: int = 2, count: int = 1) -> None:
    for _ in range(times):
        stand.queue.nack("w", stand.seqs("w", count)).wait()


def dead(stand: Stand) -> Log:
    return stand.engine.log("dead")


def metas(log: Log) -> list[object]:
    return [None if meta is None else msgspec.json.decode(meta) for meta in log.read().metas]


def test_a_job_is_delivered_as_often_as_allowed_and_then_moved(stand: Stand) -> None:
    stand.queue.append(Batch.of(b"poison", "k", "n", b'{"trace":"z9","deep":{"a":[1]}}')).wait()
    wear_out(stand)
    assert stand.claim("w") == []
    (letter,) = dead(stand).read()
    assert (letter.key, letter.node, letter.data) == ("k", "n", b"poison")
    assert metas(dead(stand)) == [
        {
            "trace": "z9",
            "deep": {"a": [1]},
            "$dead_letter_from": "jobs",
            "$dead_letter_deliveries": "2",
            "$dead_letter_src_seq": "1",
        }
    ]
    assert stand.left() == []
    assert stand.queue.counters() == QueueCounters(0, 0, 1, 0)


@pytest.mark.parametrize(
    "meta",
    [None, b"[1]", b'"text"', b"no json", b'{"deep":' + b"[" * 5000 + b"]" * 5000 + b"}"],
    ids=lambda meta: meta and meta[:9],
)
def test_a_meta_that_is_no_object_gives_way_to_the_stamps(stand: Stand, meta: bytes | None) -> None:
    stand.queue.append(Batch.of(b"", meta=meta)).wait()
    wear_out(stand)
    stand.claim("w")
    assert metas(dead(stand)) == [
        {"$dead_letter_from": "jobs", "$dead_letter_deliveries": "2", "$dead_letter_src_seq": "1"}
    ]


def test_the_stamp_tells_the_real_number_of_deliveries(stand: Stand) -> None:
    stand.fill(1)
    stand.settings = QueueSettings()
    wear_out(stand, times=5)
    stand.settings = SETTINGS
    stand.claim("w")
    assert metas(dead(stand))[0]["$dead_letter_deliveries"] == "5"  # type: ignore[index]


def test_a_lease_that_ends_by_time_makes_a_dead_letter_without_a_claim(stand: Stand) -> None:
    stand.fill(1)
    for _ in range(2):
        assert stand.alarms == []
        stand.claim("w", 1, lease_ms=10)
        stand.pass_time(11)
    assert stand.alarms == [("jobs", NOW + 22)]
    stand.queue.bring_exhausted()
    stand.queue.remove_exhausted().wait()
    (meta,) = metas(dead(stand))
    assert meta == {
        "$dead_letter_from": "jobs",
        "$dead_letter_deliveries": "2",
        "$dead_letter_src_seq": "1",
        "$dead_letter_reason": "the lease expired",
        "$dead_letter_failures": [
            {"at": NOW + 10, "delivery": 1, "node": "w", "reason": "the lease expired"},
            {"at": NOW + 21, "delivery": 2, "node": "w", "reason": "the lease expired"},
        ],
    }
    assert stand.left() == []
    assert stand.queue.counters() == QueueCounters(0, 0, 1, 0)


def test_a_claim_buries_what_nobody_has_buried_yet(stand: Stand) -> None:
    stand.fill(2)
    wear_out(stand, times=1)
    stand.claim("w", 1, lease_ms=10)
    stand.pass_time(11)
    assert stand.seqs("w", 5) == [2]
    assert dead(stand).read().data == [b"1"]


def test_the_alarm_follows_leases_that_are_extended_and_limits_that_change(stand: Stand) -> None:
    stand.fill(1)
    wear_out(stand, times=1)
    stand.claim("w")
    stand.queue.extend("w", [1], 10).wait()
    assert stand.alarms == [("jobs", NOW + 30_001), ("jobs", NOW + 11)]
    stand.queue.extend("w", [1], 500).wait()
    stand.pass_time(11)
    stand.queue.remove_exhausted().wait()
    assert stand.alarms[2:] == [("jobs", NOW + 501)]
    stand.settings = QueueSettings()
    stand.pass_time(500)
    stand.queue.remove_exhausted().wait()
    assert stand.queue.counters() == QueueCounters(1, 0, 0, 0)
    stand.settings = SETTINGS
    stand.queue.remove_exhausted().wait()
    assert stand.queue.counters() == QueueCounters(0, 0, 1, 0)


def test_a_connection_that_closes_makes_a_dead_letter(stand: Stand) -> None:
    stand.fill(1)
    wear_out(stand, times=1)
    (job,) = stand.claim("w")
    assert stand.queue.release([1], [job.lease_id]).wait() == [1]
    (meta,) = metas(dead(stand))
    assert isinstance(meta, dict)
    assert meta["$dead_letter_reason"] == "the worker disconnected"
    assert meta["$dead_letter_failures"] == [
        {"at": NOW, "delivery": 2, "node": "w", "reason": "the worker disconnected"}
    ]


def test_the_last_reason_is_in_the_dead_letter_and_an_older_one_is_not_taken_for_it(stand: Stand) -> None:
    stand.fill(2)
    for reasons in ((b'"timeout"', b'{"code":404}'), (b'"timeout"', None)):
        for reason in reasons:
            stand.queue.nack("w", stand.seqs("w"), reason=reason).wait()
    first, second = metas(dead(stand))
    assert isinstance(first, dict)
    assert isinstance(second, dict)
    assert first["$dead_letter_reason"] == {"code": 404}
    assert [failure["reason"] for failure in first["$dead_letter_failures"]] == ["timeout", {"code": 404}]
    assert "$dead_letter_reason" not in second
    assert [failure["delivery"] for failure in second["$dead_letter_failures"]] == [1]


def test_a_dead_letter_that_fails_in_a_queue_of_its_own_has_no_stamps_of_the_first_queue(stand: Stand) -> None:
    meta = {
        "trace": 1,
        "$dead_letter_from": "first",
        "$dead_letter_priority": "7",
        "$dead_letter_reason": "that of the first queue",
        "$dead_letter_failures": [{"at": 1, "delivery": 1, "node": "w", "reason": "old"}],
    }
    stand.queue.append(Batch.of(b"job", meta=msgspec.json.encode(meta))).wait()
    wear_out(stand)
    assert metas(dead(stand)) == [
        {"trace": 1, "$dead_letter_from": "jobs", "$dead_letter_deliveries": "2", "$dead_letter_src_seq": "1"}
    ]


def test_a_job_that_is_not_in_memory_is_buried_when_the_alarm_is_answered(stand: Stand) -> None:
    stand.fill(1)
    wear_out(stand, times=1)
    stand.claim("w")
    stand.engine.seal()
    stand.engine.store.close()
    stand.queue.nack("w", [1]).wait()
    assert stand.alarms[-1] == ("jobs", 0)
    stand.queue.bring_exhausted()
    stand.queue.remove_exhausted().wait()
    assert dead(stand).read().data == [b"1"]


# --- without a dead-letter log ---------------------------------------------------------------------------------


def test_without_a_dead_letter_log_the_job_is_dropped(stand: Stand, caplog: pytest.LogCaptureFixture) -> None:
    stand.settings = QueueSettings(max_deliveries=2)
    stand.fill(14)
    for _ in range(2):
        stand.queue.nack("w", stand.seqs("w", 12), reason=b'"no such user"').wait()
    assert stand.queue.counters() == QueueCounters(2, 0, 0, 0, 12)
    assert stand.left() == [13, 14]
    assert caplog.messages == [
        "queue 'jobs' has no dead_letter: dropped 12 jobs after the last delivery failed, "
        'seq 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, …; last reason: "no such user"'
    ]
    stand.reopen()
    assert stand.queue.counters() == QueueCounters(2, 0, 0, 0, 12)


def test_a_job_that_was_dropped_before_a_crash_does_not_come_back(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    disk = FaultDisk(tmp_path / "data")
    stand = Stand(disk, QueueSettings(max_deliveries=1))
    stand.fill(1)
    stand.claim("w")
    # The release and the event are written, the deletion is not.
    disk.fail_from(disk.calls_of("write") + 3, errno.ENOSPC, kind="write")
    stand.queue.nack("w", [1]).wait()
    assert stand.left() == [1]
    disk.heal()
    stand.reopen(disk.process_kill())
    assert stand.queue.counters() == QueueCounters(0, 0, 0, 0, 1)
    assert stand.left() == []
    stand.close()


def test_a_claim_goes_on_to_the_next_jobs_when_it_finds_dead_letters(stand: Stand) -> None:
    stand.fill(3)
    wear_out(stand, count=2)
    stand.fill(2)
    assert stand.seqs("w", 3) == [3, 4, 5]
    assert dead(stand).read().data == [b"1", b"2"]


def test_without_a_limit_jobs_are_delivered_for_ever(stand: Stand) -> None:
    stand.settings = QueueSettings(dead_letter="dead")
    stand.fill(1)
    wear_out(stand, times=5)
    assert stand.claim("w")[0].deliveries == 6
    assert stand.engine.find("dead") is None


def test_a_log_that_must_not_be_made_leaves_the_job_where_it_is(stand: Stand) -> None:
    stand.forbidden.add("dead")
    stand.fill(1)
    wear_out(stand, times=3)
    assert stand.claim("w")[0].deliveries == 4
    assert stand.queue.counters().dead_lettered == 0


def test_dead_letters_that_find_no_room_are_delivered_on(stand: Stand) -> None:
    stand.engine.create("dead", Config(cap_records=2, discard="reject")).wait()
    stand.fill(3)
    wear_out(stand, count=3)
    assert [(job.seq, job.deliveries) for job in stand.claim("w", 5)] == [(3, 3)]
    assert dead(stand).read().data == [b"1", b"2"]
    assert stand.queue.counters() == QueueCounters(0, 1, 2, 0)


def test_a_queue_that_is_its_own_place_for_dead_letters_delivers_on(stand: Stand) -> None:
    stand.settings = QueueSettings(max_deliveries=1, dead_letter="jobs")
    stand.fill(1)
    wear_out(stand)
    assert stand.claim("w")[0].deliveries == 3


def test_on_a_log_that_waits_for_the_disk_a_dead_letter_is_not_handed_out_meanwhile(make_stand: MakeStand) -> None:
    stand = make_stand(SETTINGS, durability="fsync")
    stand.fill(2)
    wear_out(stand, times=1)
    commit = stand.queue.nack("w", stand.seqs("w"))
    assert not commit.done
    assert stand.left() == [1, 2]
    assert stand.queue.counters() == QueueCounters(1, 0, 1, 0)
    assert stand.seqs("v", 5) == [2]
    assert commit.wait() == Nacked([1], [])
    assert stand.left() == [2]


def test_jobs_that_become_visible_while_dead_letters_are_moved_keep_their_schedules(make_stand: MakeStand) -> None:
    stand = make_stand(SETTINGS, durability="fsync")
    stand.fill(1)
    wear_out(stand, times=1)
    stand.claim("w")
    stand.queue.append(Batch([b"", b""]), [Schedule(NOW + 1000), Schedule(priority=-1)])
    # Making the log for the dead letters flushes, in the middle of the nack.
    stand.queue.nack("w", [1])
    assert [(job.seq, job.priority) for job in stand.claim("w", 5)] == [(3, -1)]
    assert stand.queue.counters() == QueueCounters(0, 1, 1, 1)


def test_callbacks_of_a_nack_that_moves_dead_letters_are_called_when_all_of_it_is_durable(
    make_stand: MakeStand,
) -> None:
    stand = make_stand(msgspec.structs.replace(SETTINGS, leases_durable=True), durability="fsync")
    stand.engine.create("dead", Config(durability="fsync")).wait()
    stand.fill(2)
    wear_out(stand, times=1)
    seen: list[int] = []
    nacked = stand.queue.nack("w", stand.seqs("w"))
    nacked.add_done_callback(lambda commit: seen.extend(commit.wait().nacked))
    assert seen == [1]
    assert stand.left() == [2]


@pytest.mark.parametrize("durability", ["disk", "fsync"])
@pytest.mark.parametrize("end", ["process", "power", "power, some of it survives"])
def test_a_crash_anywhere_in_the_move_leaves_neither_a_loss_nor_a_duplicate(
    tmp_path: Path, durability: str, end: str
) -> None:
    for point in range(40):
        place = tmp_path / str(point)
        place.mkdir()
        disk = FaultDisk(place)
        stand = Stand(disk, SETTINGS, durability=durability)
        stand.engine.create("dead", Config(idempotency_window_ms=0)).wait()
        stand.fill(2)
        wear_out(stand, times=1)
        stand.claim("w")
        stand.engine.flush()
        disk.crash_after(disk.calls + point)
        done = False
        with suppress(Crashed, EngineError):
            stand.queue.nack("w", [1], reason=b'"broken"').wait()
            stand.engine.flush()
            done = True
        # Long after any memory of idempotency keys.
        stand.pass_time(3_600_000)
        if done or end == "process":
            stand.reopen(disk.process_kill())
        else:
            stand.reopen(disk.power_cut(None if end == "power" else point))
        stand.queue.remove_exhausted().wait()
        seen = {job.data for job in stand.claim("w", 5)}
        letters = dead(stand).read().data
        assert sorted([*seen, *letters]) == [b"1", b"2"], point
        if not letters:
            # The lease ended with the process before the job failed.
            assert not done
            stand.queue.nack("w", [1]).wait()
        assert dead(stand).read().data == [b"1"], point
        stand.close()
        if done:
            return
    raise AssertionError("the move never came to its end")


def test_a_deletion_that_finds_no_space_is_made_up_for(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    disk = FaultDisk(tmp_path / "data")
    stand = Stand(disk, SETTINGS)
    stand.engine.create("dead").wait()
    stand.add(priority=-1)
    wear_out(stand, times=1)
    stand.claim("w")
    stand.engine.flush()
    # The release, the letter and its event are written, the deletion is not.
    disk.fail_from(disk.calls_of("write") + 3, errno.ENOSPC, kind="write")
    assert stand.queue.nack("w", [1]).wait() == Nacked([1], [])
    assert stand.left() == [1]
    assert stand.queue.counters() == QueueCounters(0, 0, 1, 0)
    disk.heal()
    assert stand.seqs("w", 5) == []
    assert stand.left() == []
    assert dead(stand).read().data == [b"job"]
    assert stand.queue.counters() == QueueCounters(0, 0, 1, 0)
    stand.close()


# --- and back --------------------------------------------------------------------------------------------------


def bury(stand: Stand, *keys: str) -> None:
    stand.queue.append(Batch([key.encode() for key in keys], list(keys), None, [b'{"m":1}'] * len(keys))).wait()
    wear_out(stand, count=len(keys))
    assert stand.claim("w") == []


def test_dead_letters_go_back_to_where_they_came_from_without_their_stamps(stand: Stand) -> None:
    bury(stand, "a", "b")
    assert redrive(dead(stand), stand.engine.find, limit=10).wait() == Redriven({"jobs": 2}, 0)
    assert dead(stand).state().count == 0
    back = stand.claim("w", 5)
    assert [(job.seq, job.key, job.data, job.meta, job.deliveries) for job in back] == [
        (3, "a", b"a", b'{"m":1}', 1),
        (4, "b", b"b", b'{"m":1}', 1),
    ]


def test_no_more_go_back_than_asked_for_and_only_those_with_the_key(stand: Stand) -> None:
    bury(stand, "a/1", "a/2", "b/1", "a/3")
    assert redrive(dead(stand), stand.engine.find, limit=2, key_prefix="a/").wait().moved == {"jobs": 2}
    assert dead(stand).read().keys == ["b/1", "a/3"]
    assert redrive(dead(stand), stand.engine.find, limit=5, key="b/1").wait().moved == {"jobs": 1}
    assert dead(stand).read().keys == ["a/3"]
    assert redrive(dead(stand), stand.engine.find, limit=0).wait() == Redriven({}, 0)


def test_dead_letters_can_go_to_another_log(stand: Stand) -> None:
    bury(stand, "a")
    dead(stand).append(Batch.of(b"by hand", meta=b"[1]")).wait()
    other = stand.engine.create("other").wait()
    assert redrive(dead(stand), other, limit=10).wait() == Redriven({"other": 2}, 0)
    assert other.read().metas == [b'{"m":1}', b"[1]"]


def test_a_queue_can_be_named_as_the_destination_itself(stand: Stand) -> None:
    bury(stand, "a", "b")
    assert redrive(dead(stand), stand.queue, limit=1).wait().moved == {"jobs": 1}
    assert redrive(dead(stand), lambda name: stand.queue, limit=1).wait().moved == {"jobs": 1}


def test_what_belongs_nowhere_stays(stand: Stand) -> None:
    bury(stand, "a")
    dead(stand).append(Batch([b"", b""], metas=[None, b'{"$dead_letter_from":7}'])).wait()
    assert redrive(dead(stand), lambda name: None, limit=10).wait() == Redriven({}, 3)
    assert redrive(dead(stand), dead(stand), limit=10).wait() == Redriven({}, 3)
    assert dead(stand).state().count == 3


def test_what_finds_no_room_stays(stand: Stand) -> None:
    bury(stand, "a", "b", "c")
    full = stand.engine.create("full", Config(cap_records=2, discard="reject")).wait()
    assert redrive(dead(stand), full, limit=10).wait() == Redriven({"full": 2}, 1)
    assert dead(stand).read().keys == ["c"]


def test_one_dead_letter_can_go_back_by_its_seq(stand: Stand) -> None:
    bury(stand, "a", "b", "c")
    assert redrive(dead(stand), stand.engine.find, limit=10, seq=2).wait() == Redriven({"jobs": 1}, 0)
    assert dead(stand).read().keys == ["a", "c"]
    for seq, key in ((2, None), (9, None), (0, None), (1, "c")):
        assert redrive(dead(stand), stand.engine.find, limit=10, seq=seq, key=key).wait() == Redriven({}, 0)
    assert dead(stand).read().keys == ["a", "c"]


def test_priorities_and_failures_go_to_the_dead_letters_and_only_priorities_come_back(stand: Stand) -> None:
    stand.add(priority=7)
    for _ in range(2):
        stand.queue.nack("w", stand.seqs("w"), reason=b"1").wait()
    (meta,) = metas(dead(stand))
    assert isinstance(meta, dict)
    assert meta["$dead_letter_priority"] == "7"
    stand.fill(1)
    assert redrive(dead(stand), stand.queue, limit=1).wait().moved == {"jobs": 1}
    jobs = stand.claim("w", 5)
    assert [(job.seq, job.priority, job.deliveries, job.meta, job.failures) for job in jobs] == [
        (3, 7, 1, None, ()),
        (2, 0, 1, None, ()),
    ]


@pytest.mark.parametrize("priority", ['"high"', "7", '"9999999999999999999999"', "null"])
def test_a_priority_that_no_queue_wrote_is_passed_over(stand: Stand, priority: str) -> None:
    dead_log = stand.engine.create("dead").wait()
    meta = f'{{"$dead_letter_from":"jobs","$dead_letter_priority":{priority}}}'.encode()
    dead_log.append(Batch.of(b"x", meta=meta)).wait()
    assert redrive(dead_log, stand.queue, limit=1).wait().moved == {"jobs": 1}
    assert [(job.priority, job.meta) for job in stand.claim("w", 5)] == [(0, None)]


def test_many_dead_letters_go_back_in_one_call(stand: Stand) -> None:
    bury(stand, *(f"{number}" for number in range(600)))
    assert redrive(dead(stand), stand.engine.find, limit=550).wait().moved == {"jobs": 550}
    assert dead(stand).state().count == 50
    assert stand.queue.counters().ready == 550


def test_a_redrive_that_was_cut_short_leaves_no_duplicates_when_repeated(stand: Stand) -> None:
    bury(stand, "a")
    # As if the crash had come between the append and the deletion.
    key = f"redrive:{dead(stand).epoch}:1"
    stand.log.append(Batch.of(b"a", "a", None, b'{"m":1}'), idempotency_key=key).wait()
    redrive(dead(stand), stand.engine.find, limit=10).wait()
    assert [job.data for job in stand.claim("w", 5)] == [b"a"]
    assert dead(stand).state().count == 0
