from __future__ import annotations

import asyncio
import errno
import itertools
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.hand_loop import HandLoop

from strandline.delivery.hub import Hub
from strandline.delivery.queues import Claimed, ClaimRequest, Queues, QueueSettings, Schedule
from strandline.delivery.queues.dispatcher import Dispatcher, Dispatchers
from strandline.delivery.queues.leases import QueueWorker
from strandline.engine import Batch, Config, Engine, ManualClock
from strandline.engine.disk import Disk
from strandline.engine.errors import DiskFull, UnknownLog
from strandline.engine.testing.fault_disk import FaultDisk

NOW = 1_700_000_000_000


class Person(QueueWorker):
    """Remembers what happens to it."""

    __slots__ = ("dismissals", "pauses", "taken")

    def __init__(self, node: str, max: int = 1, lease_ms: int | None = None) -> None:
        super().__init__(node, max, lease_ms)
        self.taken: list[Claimed] = []
        self.pauses: list[int] = []
        self.dismissals: list[bool] = []

    def take(self, jobs: list[Claimed]) -> None:
        self.taken += jobs

    def held_back(self, milliseconds: int) -> None:
        self.pauses.append(milliseconds)

    def dismiss(self, gone: bool) -> None:
        self.dismissals.append(gone)

    @property
    def seqs(self) -> list[int]:
        return [job.seq for job in self.taken]


class Office:
    """An engine with one queue, its dispatcher, and a loop that is turned by hand."""

    def __init__(self, place: Path | Disk, queue_settings: QueueSettings | None = None, **config: Any) -> None:
        self.clock = ManualClock(NOW)
        self.engine = Engine.open(place, clock=self.clock, background=False)
        self.loop = HandLoop(self.clock)
        self.hub = Hub(self.clock.now, cast(asyncio.AbstractEventLoop, self.loop))
        self.log = self.engine.create("jobs", Config(**config)).wait()
        self.queue = Queues(self.engine, self.clock.now, lambda name: None).open(
            self.log, queue_settings or QueueSettings()
        )
        self.busy_ms = 0
        self.dispatchers = Dispatchers(self.hub, lambda priority: self.busy_ms)
        self.answers: list[list[int] | Exception] = []

    @property
    def dispatcher(self) -> Dispatcher:
        return self.dispatchers.at(self.queue, lambda now: 0)

    def write(self, number: int = 1) -> None:
        self.queue.append(Batch([b"job"] * number)).wait()
        self.loop.turn()

    def hire(self, node: str, max: int = 1, lease_ms: int | None = None) -> Person:
        person = Person(node, max, lease_ms)
        self.dispatcher.join(person)
        self.loop.turn()
        return person

    def claim(self, node: str, max: int) -> None:
        def done(outcome: list[Claimed] | Exception) -> None:
            self.answers.append(outcome if isinstance(outcome, Exception) else [job.seq for job in outcome])

        self.dispatcher.claim(ClaimRequest(node, max), done)

    def ack(self, node: str, *seqs: int) -> None:
        self.dispatcher.done_with(self.queue.ack(node, seqs).wait().acked)
        self.loop.turn()

    def nack(self, node: str, *seqs: int) -> None:
        self.dispatcher.done_with(self.queue.nack(node, seqs).wait().nacked, given_back=True)
        self.loop.turn()

    def pass_time(self, milliseconds: int) -> None:
        self.loop.pass_time(milliseconds)


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    office = Office(tmp_path / "data")
    yield office
    office.engine.close()


@pytest.fixture
def office_with_window(tmp_path: Path) -> Iterator[Office]:
    office = Office(tmp_path / "data", QueueSettings(claim_jitter_ms=50))
    yield office
    office.engine.close()


# --- workers ---------------------------------------------------------------------------------------------------------


def test_a_worker_is_given_what_is_there_and_then_what_comes(office: Office) -> None:
    office.write(1)
    worker = office.hire("a", 3)
    assert worker.seqs == [1]
    office.write(5)
    assert worker.seqs == [1, 2, 3]
    assert office.queue.counters().ready == 3


def test_what_is_done_with_makes_room(office: Office) -> None:
    office.write(5)
    worker = office.hire("a", 2)
    office.ack("a", 1, 2)
    assert worker.seqs == [1, 2, 3, 4]
    office.nack("a", 4)
    assert worker.seqs == [1, 2, 3, 4, 4]


def test_a_nack_by_somebody_else_feeds_the_hungry(office: Office) -> None:
    office.write(1)
    office.queue.claim("poller", 1).wait()
    worker = office.hire("a")
    assert worker.seqs == []
    office.nack("poller", 1)
    assert worker.seqs == [1]


def test_a_lease_ends_after_its_deadline_and_not_at_it(office: Office) -> None:
    office.write(2)
    worker = office.hire("a", 1, lease_ms=100)
    office.pass_time(100)
    assert worker.seqs == [1]
    office.pass_time(1)
    assert [(job.seq, job.deliveries) for job in worker.taken] == [(1, 1), (1, 2)]


def test_an_extended_lease_takes_up_its_place_until_the_new_deadline(office: Office) -> None:
    office.write(2)
    worker = office.hire("a", 1, lease_ms=100)
    office.dispatcher.extended(office.queue.extend("a", [1], 300).wait().deadlines)
    office.pass_time(300)
    assert worker.seqs == [1]
    office.pass_time(1)
    assert worker.seqs == [1, 1]


def test_one_timer_waits_for_the_clock_however_many_workers_there_are(office: Office) -> None:
    workers = [office.hire(f"worker-{number}") for number in range(20)]
    assert office.loop.timers == 0
    office.queue.append(Batch([b"later"] * 20), [Schedule(NOW + 1_000)] * 20).wait()
    office.loop.turn()
    assert office.loop.timers == 1
    office.pass_time(999)
    assert not any(worker.taken for worker in workers)
    office.pass_time(1)
    assert all(len(worker.taken) == 1 for worker in workers)
    assert office.loop.timers == 1


def test_a_time_far_away_is_looked_at_again(office: Office) -> None:
    worker = office.hire("a")
    office.queue.append(Batch([b"later"]), [Schedule(NOW + 10 * 3_600_000)]).wait()
    office.loop.turn()
    office.pass_time(10 * 3_600_000 - 1)
    assert worker.seqs == []
    office.pass_time(1)
    assert worker.seqs == [1]


def test_with_fewer_jobs_than_workers_everybody_has_a_turn(office: Office) -> None:
    workers = [office.hire(name, 2) for name in "abc"]
    for number in range(1, 7):
        office.write(1)
        assert sorted(seq for worker in workers for seq in worker.seqs) == list(range(1, number + 1))
    assert [len(worker.taken) for worker in workers] == [2, 2, 2]


def test_workers_share_in_proportion_to_what_they_can_take(office: Office) -> None:
    small, large = office.hire("small", 3), office.hire("large", 9)
    office.write(8)
    assert (len(small.taken), len(large.taken)) == (2, 6)


def test_a_worker_that_pauses_is_given_nothing_until_it_goes_on(office: Office) -> None:
    worker = office.hire("a", 5)
    worker.paused = True
    office.dispatcher.look_at(worker)
    office.write(2)
    assert worker.seqs == []
    worker.paused = False
    office.dispatcher.look_at(worker)
    office.dispatcher.feed()
    assert worker.seqs == [1, 2]


def test_jobs_that_somebody_deleted_make_room(office: Office) -> None:
    office.write(2)
    worker = office.hire("a")
    office.log.delete(seqs=[1]).wait()
    office.queue.forget_missing()
    office.dispatcher.check_held()
    assert worker.seqs == [1, 2]


# --- leaving ---------------------------------------------------------------------------------------------------------


def test_whoever_leaves_gives_everything_back_at_once(office: Office) -> None:
    office.write(2)
    worker, other = office.hire("a", 2), office.hire("b", 1)
    office.dispatcher.leave(worker)
    assert [(job.seq, job.deliveries) for job in other.taken] == [(1, 2)]
    assert office.queue.counters().ready == 1
    office.dispatcher.leave(worker)
    assert office.queue.counters().ready == 1


def test_a_job_that_somebody_else_has_by_now_is_not_given_back(office: Office) -> None:
    office.write(1)
    worker = office.hire("a", 1, lease_ms=100)
    worker.paused = True
    office.dispatcher.look_at(worker)
    office.clock.advance(101)
    [job] = office.queue.claim("b", 1).wait()
    office.dispatcher.leave(worker)
    assert office.queue.holds([1], [job.lease_id]) == [1]


def test_nothing_is_left_when_the_last_one_has_left(office: Office) -> None:
    office.write(1)
    worker = office.hire("a", 2, lease_ms=100)
    assert (len(office.dispatchers), office.loop.timers) == (1, 1)
    office.dispatcher.leave(worker)
    assert (len(office.dispatchers), office.loop.timers) == (0, 0)
    office.write(1)
    assert worker.seqs == [1]


def test_jobs_that_arrive_after_their_worker_has_left_go_back(tmp_path: Path) -> None:
    office = Office(tmp_path / "data", QueueSettings(leases_durable=True))
    office.write(1)
    worker, other = Person("a"), Person("b")
    office.dispatcher.join(worker)
    assert (worker.free, office.queue.counters().in_flight) == (0, 1)
    office.dispatcher.join(other)
    office.dispatcher.leave(worker)
    office.loop.turn()
    assert worker.seqs == []
    assert [(job.seq, job.deliveries) for job in other.taken] == [(1, 2)]
    office.engine.close()


def test_everybody_is_dismissed_when_the_queue_is_gone(office_with_window: Office) -> None:
    office = office_with_window
    worker = office.hire("a")
    office.claim("b", 1)
    office.log.drop().wait()
    office.loop.turn()
    assert worker.dismissals == [True]
    assert isinstance(office.answers[0], UnknownLog)
    assert len(office.dispatchers) == 0
    late = office.hire("c")
    assert late.dismissals == [True]
    assert (len(office.dispatchers), office.loop.timers) == (0, 0)


def test_a_claim_that_waits_alone_is_told_too(office_with_window: Office) -> None:
    office = office_with_window
    office.claim("a", 1)
    office.log.drop().wait()
    office.loop.turn()
    assert isinstance(office.answers[0], UnknownLog)
    assert (len(office.dispatchers), office.loop.timers) == (0, 0)


def test_when_the_server_stops_claims_are_answered_and_workers_dismissed(office_with_window: Office) -> None:
    office = office_with_window
    office.write(2)
    worker = office.hire("a", 1)
    office.pass_time(50)
    office.claim("b", 5)
    office.dispatchers.stop()
    assert office.answers == [[2]]
    assert (worker.seqs, worker.dismissals) == ([1], [False])
    assert office.queue.counters().ready == 1
    assert (len(office.dispatchers), office.loop.timers) == (0, 0)


# --- windows ---------------------------------------------------------------------------------------------------------


def test_claims_and_workers_of_one_window_share_evenly(office_with_window: Office) -> None:
    office = office_with_window
    worker = office.hire("a", 10)
    office.pass_time(50)
    office.write(50)
    for number in range(4):
        office.claim(f"poller-{number}", 10)
    assert office.loop.timers == 1
    office.pass_time(49)
    assert (office.answers, worker.seqs) == ([], [])
    office.pass_time(1)
    assert [len(cast(list[int], answer)) for answer in office.answers] == [10, 10, 10, 10]
    assert len(worker.taken) == 10
    office.write(5)
    office.ack("a", *worker.seqs)
    for number in range(4):
        office.claim(f"poller-{number}", 10)
    office.pass_time(50)
    assert [len(cast(list[int], answer)) for answer in office.answers[4:]] == [1, 1, 1, 1]
    assert len(worker.taken) == 11


def test_a_window_ends_whether_or_not_there_are_jobs(office_with_window: Office) -> None:
    office = office_with_window
    office.claim("a", 1)
    office.pass_time(50)
    assert office.answers == [[]]
    assert len(office.dispatchers) == 0


# --- when it cannot be done ------------------------------------------------------------------------------------------


def test_a_busy_server_tells_workers_once_and_goes_on_later(office: Office) -> None:
    office.busy_ms = 500
    worker = office.hire("a", 5)
    assert worker.pauses == []
    office.write(1)
    office.write(1)
    assert (worker.seqs, worker.pauses) == ([], [500])
    office.pass_time(500)
    assert worker.pauses == [500]
    office.busy_ms = 0
    office.pass_time(500)
    assert worker.seqs == [1, 2]


def test_a_full_disk_is_tried_again(tmp_path: Path) -> None:
    disk = FaultDisk(tmp_path / "data")
    office = Office(disk, QueueSettings(claim_jitter_ms=50))
    worker = office.hire("a")
    office.write(2)
    disk.fail_at(disk.calls_of("write") + 1, errno.ENOSPC, kind="write")
    office.claim("b", 1)
    office.pass_time(50)
    assert isinstance(office.answers[0], DiskFull)
    assert worker.seqs == []
    office.pass_time(1_050)
    assert worker.seqs == [1]
    office.engine.close()


def test_sealed_jobs_are_read_away_from_the_loop(office: Office) -> None:
    office.write(3)
    office.engine.seal()
    worker = office.hire("a", 2)
    assert office.loop.fetches == 1
    assert worker.seqs == [1, 2]
    office.ack("a", 1)
    assert office.loop.fetches == 1
    assert worker.seqs == [1, 2, 3]


# --- laws ------------------------------------------------------------------------------------------------------------

STEPS = st.lists(
    st.tuples(st.sampled_from(["write", "join", "leave", "ack", "nack", "extend", "pass", "poll"]), st.integers(0, 5)),
    max_size=40,
)


@settings(max_examples=25, deadline=None)
@given(steps=STEPS, jitter=st.sampled_from([0, 20]))
def test_nobody_holds_too_much_and_no_job_is_held_twice_or_lost(steps: list[tuple[str, int]], jitter: int) -> None:
    office = Office(Path(mkdtemp()) / "data", QueueSettings(lease_ms=100, claim_jitter_ms=jitter))
    workers: list[Person] = []
    acked: set[int] = set()
    for number, (step, amount) in enumerate(steps):
        worker = workers[amount % len(workers)] if workers else None
        if step == "write":
            office.write(amount + 1)
        elif step == "join":
            workers.append(office.hire(f"worker-{number}", amount + 1))
        elif step == "pass":
            office.pass_time(amount * 30)
        elif step == "poll":
            office.queue.claim("poller", amount + 1).wait()
        elif worker is not None and step == "leave":
            workers.remove(worker)
            office.dispatcher.leave(worker)
        elif worker is not None and worker.held:
            seq = next(iter(worker.held))
            if step == "ack":
                done = office.queue.ack(worker.node, [seq]).wait().acked
                acked.update(done)
                office.dispatcher.done_with(done)
            elif step == "nack":
                office.nack(worker.node, seq)
            else:
                office.dispatcher.extended(office.queue.extend(worker.node, [seq], 200).wait().deadlines)
        held = [seq for one in workers for seq in one.held]
        assert len(held) == len(set(held))
        assert all(len(one.held) <= one.max for one in workers)
    if workers:
        # Whoever is there gets everything in the end.
        keen = office.hire("keen", 10_000, lease_ms=3_600_000)
        office.pass_time(1_000)
        for one in workers:
            office.dispatcher.leave(one)
        office.pass_time(100)
        there = set(office.log.read(limit=10_000).seqs)
        assert set(keen.held) == there
        assert not acked & there
    office.engine.close()


def test_an_unexpected_error_is_tried_again_later_and_later(
    office: Office, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    worker = office.hire("a")
    tried: list[int] = []

    def counters() -> None:
        tried.append(office.clock.now())
        raise RuntimeError("a defect")

    with monkeypatch.context() as patched:
        patched.setattr(office.queue, "counters", counters)
        office.write()
        office.pass_time(120_000)
        gaps = [later - earlier for earlier, later in itertools.pairwise(tried)]
        assert gaps[:4] == [1000] * 4
        assert gaps == sorted(gaps)
        assert max(gaps) > 10_000
        assert len(caplog.records) == len(tried)
    office.pass_time(60_000)
    assert worker.seqs == [1]
