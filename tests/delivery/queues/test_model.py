"""A queue against a model of it: random calls, a clock turned by hand, and restarts that lose the newest events."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support.manual_queue import Stand, failures

from strandline.delivery.queues import (
    Acked,
    Backoff,
    Claimed,
    ClaimRequest,
    Extended,
    Nacked,
    QueueCounters,
    QueueSettings,
    Schedule,
    lease_log,
    redrive,
)
from strandline.engine import Batch, Record
from strandline.engine.testing.fault_disk import FaultDisk

LONG = bool(os.environ.get("STRANDLINE_LONG"))
MODEL = settings(
    max_examples=2000 if LONG else 60,
    stateful_step_count=60 if LONG else 40,
    deadline=None,
    derandomize=not LONG,
    database=None,
    suppress_health_check=list(HealthCheck),
)

nodes = st.sampled_from(["a", "b", "c"])
seqs_lists = st.lists(st.integers(1, 30), max_size=8)
lease_times = st.sampled_from([None, 0, 1, 50, 400])


@dataclass
class ModelJob:
    """What is known of a job; a job of which nothing is known is like a new one of these."""

    priority: int = 0
    deliveries: int = 0
    lease: int = 0
    node: str | None = None
    until: int = 0
    failures: tuple[tuple[int, int, str, object], ...] = ()

    def fail(self, at: int, reason: object) -> None:
        self.failures = (*self.failures, (at, self.deliveries, self.node or "", reason))[-5:]

    def free(self, until: int = 0) -> None:
        self.lease, self.node, self.until = 0, None, until


class Letter(NamedTuple):
    data: bytes
    deliveries: int
    priority: int
    #: None if the last delivery was given back without a word.
    reason: object


class Model:
    """The obvious way to do it: look at all jobs, every time."""

    def __init__(self) -> None:
        self.live: dict[int, bytes] = {}
        self.known: dict[int, ModelJob] = {}
        self.next_lease = 1
        self.dead_lettered = 0
        self.dropped = 0
        #: The letters by their seq.
        self.dead: dict[int, Letter] = {}
        self.next_letter = 1

    def job(self, seq: int) -> ModelJob:
        return self.known.setdefault(seq, ModelJob())

    def held(self, seq: int, now: int) -> bool:
        job = self.known.get(seq)
        return job is not None and bool(job.lease) and now <= job.until

    def delayed(self, seq: int, now: int) -> bool:
        job = self.known.get(seq)
        return job is not None and not job.lease and now < job.until

    def in_order(self, now: int) -> list[int]:
        def order(seq: int) -> tuple[int, int, int]:
            job = self.known.get(seq, ModelJob())
            return -job.priority, 0 if job.deliveries else 1, seq

        return sorted((seq for seq in self.live if not self.held(seq, now) and not self.delayed(seq, now)), key=order)

    def settle(self, now: int, most: int, letters: bool) -> None:
        """What time does: leases expire; and what has failed on its last delivery is buried."""
        for seq in sorted(self.live):
            job = self.known.get(seq)
            if job is None:
                continue
            if job.lease and now > job.until:
                job.fail(job.until, "the lease expired")
                job.free()
            if most and not job.lease and job.deliveries >= most:
                self.bury(seq, letters)

    def bury(self, seq: int, letters: bool) -> None:
        data, job = self.live.pop(seq), self.known.pop(seq)
        if not letters:
            self.dropped += 1
            return
        said = [reason for _, delivery, _, reason in job.failures if delivery == job.deliveries]
        self.dead[self.next_letter] = Letter(data, job.deliveries, job.priority, said[0] if said else None)
        self.next_letter += 1
        self.dead_lettered += 1

    def end_leases(self, now: int) -> None:
        for job in self.known.values():
            if job.lease and now <= job.until:
                job.deliveries -= 1
                job.free()

    def pick(self, count: int, now: int) -> list[int]:
        """The next jobs."""
        return self.in_order(now)[:count]

    def grant(self, claimed: Claimed, node: str) -> None:
        job = self.job(claimed.seq)
        job.deliveries += 1
        job.lease, job.node, job.until = int(claimed.lease_id[6:], 16), node, claimed.deadline
        self.next_lease = max(self.next_lease, job.lease + 1)

    def counters(self, now: int) -> QueueCounters:
        held = sum(1 for seq in self.live if self.held(seq, now))
        delayed = sum(1 for seq in self.live if self.delayed(seq, now))
        return QueueCounters(len(self.live) - held - delayed, held, self.dead_lettered, delayed, self.dropped)


@pytest.fixture(autouse=True)
def _short_companions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_log, "COMPACT_EVENTS", 12)
    monkeypatch.setattr(lease_log, "COMPACT_RATIO", 1)
    monkeypatch.setattr(lease_log, "SNAPSHOT_JOBS", 3)


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="strandline-"))
        (self.directory / "data").mkdir()
        self.model = Model()
        #: What was known when the companion's next seq was this: what remains when the events from there on are lost.
        self.history: dict[int, tuple[dict[int, ModelJob], int, int, int]] = {}

    @initialize(
        durability=st.sampled_from(["disk", "fsync", "memory"]),
        leases_durable=st.booleans(),
        max_deliveries=st.sampled_from([0, 1, 3]),
        dead_letter=st.sampled_from(["dead", "dead", None]),
        backoff=st.sampled_from([Backoff(), Backoff(40, 2.0, 100, 0.5)]),
    )
    def begin(
        self,
        durability: str,
        leases_durable: bool,
        max_deliveries: int,
        dead_letter: str | None,
        backoff: Backoff,
    ) -> None:
        queue_settings = QueueSettings(100, 0, max_deliveries, dead_letter, leases_durable, backoff)
        self.stand = Stand(FaultDisk(self.directory / "data"), queue_settings, durability=durability)
        assert self.stand.queue.counters() == QueueCounters(0, 0, 0, 0)
        self.note()

    def teardown(self) -> None:
        try:
            if hasattr(self, "stand") and sys.exc_info()[0] is None:
                self.drain()
                self.stand.close()
        finally:
            shutil.rmtree(self.directory)

    @property
    def now(self) -> int:
        return self.stand.clock.now()

    def note(self) -> None:
        model = self.model
        known = {seq: replace(job) for seq, job in model.known.items()}
        self.history[self.stand.companion.next_seq] = (known, model.next_lease, model.dead_lettered, model.dropped)

    def settle(self) -> None:
        """As the timer does it, always in time."""
        self.stand.queue.remove_exhausted().wait()
        wanted = self.stand.settings
        self.model.settle(self.now, wanted.max_deliveries, wanted.dead_letter is not None)

    @invariant()
    def the_counters_agree(self) -> None:
        if hasattr(self, "stand"):
            self.settle()
            assert self.stand.queue.counters() == self.model.counters(self.now)
            self.note()

    # --- producing -----------------------------------------------------------------------------------------

    @rule(count=st.integers(1, 5))
    def append(self, count: int) -> None:
        first = self.stand.log.next_seq
        self.stand.fill(count)
        self.model.live.update((seq, str(seq).encode()) for seq in range(first, first + count))

    @rule(
        schedules=st.lists(
            st.none() | st.tuples(st.sampled_from([0, 0, 20, 200]), st.sampled_from([0, 0, -1, 5])),
            min_size=1,
            max_size=4,
        )
    )
    def append_scheduled(self, schedules: list[tuple[int, int] | None]) -> None:
        wanted = [None if one is None else Schedule(one[0] and self.now + one[0], one[1]) for one in schedules]
        commit = self.stand.queue.append(Batch([b"scheduled"] * len(wanted)), wanted, f"key {len(self.model.live)}")
        # There have been as many jobs before: then it is a repetition, and changes nothing.
        if commit.wait().deduped:
            return
        for seq, schedule in enumerate(wanted, commit.wait().first):
            self.model.live[seq] = b"scheduled"
            if schedule is not None and schedule != Schedule():
                self.model.known[seq] = ModelJob(schedule.priority, until=schedule.not_before)

    # --- working -------------------------------------------------------------------------------------------

    @rule(node=nodes, count=st.integers(0, 6), lease_ms=lease_times)
    def claim(self, node: str, count: int, lease_ms: int | None) -> None:
        now, model = self.now, self.model
        expected = model.pick(count, now)
        lease = model.next_lease
        claimed = self.stand.claim(node, count, lease_ms)
        assert [job.seq for job in claimed] == expected
        for number, job in enumerate(claimed, lease):
            known = model.known.get(job.seq, ModelJob())
            assert not model.held(job.seq, now)
            assert job.data == model.live[job.seq]
            assert job.lease_id == f"lease_{number:x}"
            assert job.deadline == now + (100 if lease_ms is None else lease_ms)
            assert (job.deliveries, job.priority) == (known.deliveries + 1, known.priority)
            assert tuple(failures(job)) == known.failures
            model.grant(job, node)

    @rule(requests=st.lists(st.tuples(nodes, st.integers(0, 4)), max_size=4))
    def claim_cohort(self, requests: list[tuple[str, int]]) -> None:
        expected = self.model.pick(sum(count for _, count in requests), self.now)
        granted = self.stand.queue.claim_cohort([ClaimRequest(*request) for request in requests]).wait()
        assert sorted(job.seq for jobs in granted for job in jobs) == sorted(expected)
        for (node, count), jobs in zip(requests, granted, strict=True):
            assert len(jobs) <= count
            # Everybody gets their own in the order of handing out.
            assert [job.seq for job in jobs] == [seq for seq in expected if seq in {job.seq for job in jobs}]
            for job in jobs:
                self.model.grant(job, node)

    def split(self, node: str, seqs: list[int], fences: list[int] | None) -> tuple[list[int], list[int]]:
        mine, skipped = [], []
        for index, seq in enumerate(seqs):
            job = self.model.known.get(seq, ModelJob())
            fenced = fences is not None and fences[index] and fences[index] != job.lease
            if self.model.held(seq, self.now) and job.node == node and not fenced and seq not in mine:
                mine.append(seq)
            else:
                skipped.append(seq)
        return mine, skipped

    def fences(self, seqs: list[int], kind: int) -> list[int] | None:
        """None at all, the right ones, or some that are stale or empty."""
        if kind == 0:
            return None
        right = [self.model.known.get(seq, ModelJob()).lease for seq in seqs]
        return (
            right
            if kind == 1
            else [lease if seq % 3 else max(lease - 1, 0) for seq, lease in zip(seqs, right, strict=True)]
        )

    @rule(node=nodes, seqs=seqs_lists, kind=st.integers(0, 2), wait=st.booleans())
    def ack(self, node: str, seqs: list[int], kind: int, wait: bool) -> None:
        fences = self.fences(seqs, kind)
        mine, skipped = self.split(node, seqs, fences)
        commit = self.stand.queue.ack(node, seqs, tokens(fences))
        # Done with at once, whether or not it is durable yet.
        if wait:
            assert commit.wait() == Acked(mine, skipped)
        for seq in mine:
            del self.model.live[seq], self.model.known[seq]

    @rule(
        node=nodes,
        seqs=seqs_lists,
        kind=st.integers(0, 2),
        delay_ms=st.sampled_from([None, None, 0, 30, 300]),
        reason=st.sampled_from([None, "broken", {"code": 7}]),
    )
    def nack(self, node: str, seqs: list[int], kind: int, delay_ms: int | None, reason: object) -> None:
        fences = self.fences(seqs, kind)
        mine, skipped = self.split(node, seqs, fences)
        encoded = None if reason is None else msgspec.json.encode(reason)
        nacked = self.stand.queue.nack(node, seqs, delay_ms, tokens(fences), encoded).wait()
        assert nacked == Nacked(mine, skipped)
        for seq in mine:
            job = self.model.known[seq]
            if reason is not None:
                job.fail(self.now, reason)
            delay = self.backoff(job.deliveries) if delay_ms is None else delay_ms
            job.free(self.now + delay if delay else 0)

    def backoff(self, deliveries: int) -> int:
        """40, 80, 100, 100, …, of which a quarter is taken away: half of the half that may be."""
        return min(40 << min(deliveries - 1, 2), 100) * 3 // 4 if self.stand.settings.backoff.delay_ms else 0

    @rule(node=nodes, seqs=seqs_lists, kind=st.integers(0, 2), lease_ms=st.sampled_from([0, 10, 100, 900]))
    def extend(self, node: str, seqs: list[int], kind: int, lease_ms: int) -> None:
        fences = self.fences(seqs, kind)
        mine, skipped = self.split(node, seqs, fences)
        deadline = self.now + lease_ms
        extended = self.stand.queue.extend(node, seqs, lease_ms, tokens(fences)).wait()
        assert extended == Extended(dict.fromkeys(mine, deadline), skipped)
        for seq in mine:
            self.model.known[seq].until = deadline

    @rule(seqs=st.lists(st.integers(1, 30), max_size=8, unique=True), kind=st.integers(1, 2), is_restart=st.booleans())
    def release(self, seqs: list[int], kind: int, is_restart: bool) -> None:
        fences = self.fences(seqs, kind)
        assert fences is not None
        leases = {seq: lease for seq, lease in zip(seqs, fences, strict=True) if lease}
        expected = [
            seq for seq in seqs if self.model.held(seq, self.now) and self.model.known[seq].lease == leases.get(seq)
        ]
        assert self.stand.queue.release(seqs, tokens(fences) or [], is_restart=is_restart).wait() == expected
        settings = self.stand.queue.settings
        would_drop = settings.max_deliveries > 0 and settings.dead_letter is None
        for seq in expected:
            job = self.model.known[seq]
            if not is_restart:
                job.fail(self.now, "the worker disconnected")
            job.deliveries -= is_restart or would_drop
            job.free()

    # --- what happens to a queue -----------------------------------------------------------------------------

    @rule(milliseconds=st.sampled_from([1, 10, 49, 100, 101, 500]))
    def pass_time(self, milliseconds: int) -> None:
        self.stand.pass_time(milliseconds)

    @rule(seqs=seqs_lists)
    def delete(self, seqs: list[int]) -> None:
        self.stand.log.delete(seqs=seqs).wait()
        self.stand.queue.forget_missing()
        for seq in seqs:
            self.model.live.pop(seq, None)
            self.model.known.pop(seq, None)

    @precondition(lambda self: self.model.dead)
    @rule(limit=st.integers(1, 3), one=st.none() | st.integers(1, 9))
    def redrive(self, limit: int, one: int | None) -> None:
        first = self.stand.log.next_seq
        chosen = [seq for seq in self.model.dead if one in (None, seq)][:limit]
        back = [self.model.dead.pop(seq) for seq in chosen]
        moved = redrive(self.stand.engine.log("dead"), self.stand.queue, limit=limit, seq=one).wait().moved
        assert moved == ({"jobs": len(back)} if back else {})
        for seq, letter in enumerate(back, first):
            self.model.live[seq] = letter.data
            if letter.priority:
                self.model.known[seq] = ModelJob(letter.priority)

    @rule(max_deliveries=st.sampled_from([0, 1, 2, 3]))
    def configure(self, max_deliveries: int) -> None:
        self.stand.settings = msgspec.structs.replace(self.stand.settings, max_deliveries=max_deliveries)

    @rule()
    def seal(self) -> None:
        self.stand.engine.seal()

    @rule(kill=st.booleans())
    def restart(self, kill: bool) -> None:
        if kill:
            assert isinstance(self.stand.place, FaultDisk)
            self.stand.reopen(self.stand.place.process_kill())
        else:
            self.stand.reopen()
        self.begin_anew()

    def begin_anew(self) -> None:
        if not self.stand.settings.leases_durable:
            self.model.end_leases(self.now)

    @rule(lost=st.integers(1, 6))
    def restart_without_the_newest_events(self, lost: int) -> None:
        self.stand.engine.flush()
        events = self.stand.companion.read(limit=10_000)
        snapshots = [seq for seq, data in zip(events.seqs, events.data, strict=True) if data.startswith(b'["snapshot"')]
        # What a snapshot took the place of is gone: without it nothing of that would be known.
        first = max([*snapshots, 0]) + 1
        candidates = sorted(seq for seq in self.history if first <= seq < self.stand.companion.next_seq)
        if not candidates:
            return
        cut = candidates[max(len(candidates) - lost, 0)]
        self.stand.companion.delete(seqs=range(cut, self.stand.companion.next_seq)).wait()
        known, self.model.next_lease, self.model.dead_lettered, self.model.dropped = self.history[cut]
        self.model.known = {seq: replace(job) for seq, job in known.items() if seq in self.model.live}
        self.history = {seq: state for seq, state in self.history.items() if seq < cut}
        self.stand.reopen()
        self.model.settle(self.now, 0, letters=False)
        self.begin_anew()

    @rule()
    def look_when_something_changes(self) -> None:
        """At that moment a job can be claimed that cannot be a moment before; and at no moment before that."""
        model, now = self.model, self.now
        self.stand.queue.counters()
        times = [
            job.until + 1 if job.lease else job.until
            for seq, job in model.known.items()
            if model.held(seq, now) or model.delayed(seq, now)
        ]
        assert self.stand.queue.next_change() == min(times, default=None)

    def drain(self) -> None:
        """No job is ever lost: after all leases and delays, every one of them is handed out or a dead letter."""
        self.stand.engine.flush()
        self.stand.pass_time(100_000)
        self.settle()
        expected = self.model.pick(10_000, self.now)
        assert self.stand.seqs("z", 10_000) == expected
        assert self.stand.left() == sorted(expected)
        self.stand.queue.ack("z", expected).wait()
        assert self.stand.queue.counters() == QueueCounters(0, 0, self.model.dead_lettered, 0, self.model.dropped)
        letters = self.stand.engine.find("dead")
        assert {record.seq: letter_of(record) for record in (letters.read(limit=10_000) if letters else ())} == (
            self.model.dead
        )


def letter_of(record: Record) -> Letter:
    meta = msgspec.json.decode(record.meta or b"{}")
    return Letter(
        record.data,
        int(meta["$dead_letter_deliveries"]),
        int(meta.get("$dead_letter_priority", "0")),
        meta.get("$dead_letter_reason"),
    )


def tokens(fences: list[int] | None) -> list[str] | None:
    return None if fences is None else [f"lease_{lease:x}" if lease else "" for lease in fences]


class TestModel(Machine.TestCase):  # type: ignore[misc, name-defined]
    settings = MODEL


@pytest.mark.parametrize("seed", range(200 if LONG else 12))
def test_a_power_cut_loses_no_job_and_leaves_no_job_with_two_holders(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    (tmp_path / "data").mkdir()
    disk = FaultDisk(tmp_path / "data")
    durable = random.random() < 0.5
    stand = Stand(disk, QueueSettings(1000, leases_durable=durable), durability="fsync")
    held: dict[int, tuple[str, str]] = {}
    acked: set[int] = set()
    for _ in range(4):
        stand.fill(10)
        for _ in range(15):
            node = random.choice("abc")
            for job in stand.claim(node, random.randrange(4)):
                assert job.seq not in held
                held[job.seq] = node, job.lease_id
            work(stand, random, held, acked)
        disk = disk.power_cut(random.choice([None, seed]))
        stand.reopen(disk)
        assert set(stand.left()) == set(range(1, stand.log.next_seq)) - acked
        if durable:
            assert stand.queue.counters().in_flight == len(held)
        else:
            assert stand.queue.counters().in_flight == 0
            held.clear()
    stand.pass_time(1001)
    assert set(stand.seqs("z", 1000)) == set(stand.left())
    stand.close()


def work(stand: Stand, random: Random, held: dict[int, tuple[str, str]], acked: set[int]) -> None:
    for seq in random.sample(sorted(held), min(len(held), random.randrange(3))):
        node, token = held.pop(seq)
        if random.random() < 0.5:
            assert stand.queue.ack(node, [seq], [token]).wait() == Acked([seq], [])
            acked.add(seq)
        else:
            assert stand.queue.nack(node, [seq], 0, [token]).wait() == Nacked([seq], [])
