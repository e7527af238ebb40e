"""The lease log of a queue: stores the queue's events and is compacted with snapshots."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

from strandline.delivery.queues.state import Event, KnownJob, SnapshotEvent, State, decode, encode, failure_bytes
from strandline.engine import Append, Batch, Commit, Config, Engine, Log
from strandline.engine.errors import EngineError
from strandline.engine.record import Durability

NAME_PREFIX = "__leases__:"

#: The attribute of the lease log's configuration that holds the epoch of its jobs log.
EPOCH_ATTRIBUTE = "queue_epoch"

#: A snapshot replaces the events when there are more than this, and more than this many per known job, or when they
#: have more than this many bytes, and more than this many times the bytes of the last snapshot. So the cost of a
#: snapshot is small compared with the events that led to it. Reasons make events large, and jobs keep only the last.
COMPACT_EVENTS = 4096
COMPACT_BYTES = 32 << 20
COMPACT_RATIO = 4
#: Jobs per snapshot event, and the bytes of their failures, which limit a record to a few megabytes.
SNAPSHOT_JOBS = 10_000
SNAPSHOT_FAILURE_BYTES = 4 << 20

READ_EVENTS = 1024


def lease_log_name(queue: str) -> str:
    return NAME_PREFIX + queue


class LeaseLog:
    """Not thread-safe: the caller holds the queue's lock."""

    def __init__(self, engine: Engine, jobs: Log, durable: bool) -> None:
        self._engine = engine
        self._jobs = jobs
        self._log = _open(engine, jobs, durable)
        there = self._log.state()
        self._events = there.count
        self._bytes = there.size
        #: The bytes of the last snapshot of this process.
        self._snapshot_bytes = 0
        self.durable = durable

    def configure(self, durable: bool) -> None:
        """Set the durability. May wait for a flush, so the caller must not hold the engine's lock."""
        config = _config(self._jobs, durable)
        if config != self._log.config:
            self._log.configure(config)
        self.durable = durable

    @property
    def fits(self) -> bool:
        """Whether the log is replicated if and only if the jobs are."""
        return (self._log.config.durability == "replicated") == (self._jobs.config.durability == "replicated")

    def events(self) -> Iterator[Event]:
        after = 0
        while True:
            page = self._log.read(after, READ_EVENTS)
            for data in page.data:
                event = decode(data)
                if event is not None:
                    yield event
            if page.caught_up:
                return
            after = page.next_after

    def write(self, event: Event) -> Commit[Any]:
        data = encode(event)
        commit = self._log.append(Batch([data]))
        self._count(len(data))
        return self._promised(commit)

    def write_with(self, event: Event, others: Sequence[Append]) -> Commit[Any]:
        """Append the event in one transaction with other appends."""
        prepared = self.prepare(event)
        commit = self._engine.append_all([*others, prepared])
        self.count_prepared(prepared)
        return commit

    def prepare(self, event: Event) -> Append:
        """The append that writes the event, to be part of a larger transaction."""
        return Append(self._log, Batch([encode(event)]))

    def count_prepared(self, prepared: Append) -> None:
        """Record that a prepared event was written."""
        self._count(sum(map(len, prepared.batch.data)))

    def _count(self, size: int) -> None:
        self._events += 1
        self._bytes += size

    def _promised(self, commit: Commit[Any]) -> Commit[Any]:
        # A caller does not wait for events that may be lost, even if the log has to wait.
        return commit if self.durable else Commit.of(None)

    @property
    def is_long(self) -> bool:
        return self._events > COMPACT_EVENTS or self._bytes > COMPACT_BYTES

    def compact(self, state: State, coming: Iterable[KnownJob]) -> None:
        """Replace the events with a snapshot if they are many more than the known jobs, or much larger."""
        many = self._events > max(COMPACT_EVENTS, COMPACT_RATIO * len(state.jobs))
        if not many and self._bytes <= max(COMPACT_BYTES, COMPACT_RATIO * self._snapshot_bytes):
            return
        batch = Batch([encode(event) for event in _snapshot(state, coming)])
        # The operation that led to this is complete. If the disk is full, the next operation reports it and compaction
        # is retried.
        with suppress(EngineError):
            with self._engine.lock:
                first = self._log.next_seq
                self._log.append(batch)
                self._events += len(batch)
                self._log.delete(before=first)
            self._events = len(batch)
            self._bytes = self._snapshot_bytes = sum(map(len, batch.data))


def drop_lease_log(engine: Engine, jobs: Log) -> Commit[None]:
    """Drop the lease log of this queue, or of an earlier queue of the same name, but not of a later one."""
    found = engine.find(lease_log_name(jobs.name))
    if found is None or found.config.attributes.get(EPOCH_ATTRIBUTE, 0) > jobs.epoch:
        return Commit.of(None)
    return found.drop()


def _open(engine: Engine, jobs: Log, durable: bool) -> Log:
    name = lease_log_name(jobs.name)
    config = _config(jobs, durable)
    found = engine.find(name)
    if found is not None and found.config.attributes.get(EPOCH_ATTRIBUTE) != jobs.epoch:
        found.drop()
        found = None
    if found is None:
        # No flush is needed here: dependent writes are journaled later.
        engine.create(name, config)
    elif found.config != config:
        found.configure(config)
    return engine.log(name)


def _config(jobs: Log, durable: bool) -> Config:
    """Durable leases of a replicated queue survive the loss of the machine, as its jobs do."""
    durability: Durability = "memory"
    if durable:
        durability = "replicated" if jobs.config.durability == "replicated" else "fsync"
    return Config(durability=durability, attributes={EPOCH_ATTRIBUTE: jobs.epoch})


def _snapshot(state: State, coming: Iterable[KnownJob]) -> Iterator[SnapshotEvent]:
    chunk: list[KnownJob] = []
    size, first = 0, True
    for job in chain(state.known(), coming):
        if len(chunk) == SNAPSHOT_JOBS or size > SNAPSHOT_FAILURE_BYTES:
            yield SnapshotEvent(first, state.next_lease, state.dead_lettered, chunk, state.dropped)
            chunk, size, first = [], 0, False
        chunk.append(job)
        size += failure_bytes(job.failures)
    if chunk or first:
        yield SnapshotEvent(first, state.next_lease, state.dead_lettered, chunk, state.dropped)
