"""Queues: public types, requests, answers and the settings of a worker."""

from __future__ import annotations

import os
import random
import secrets
import socket
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from math import inf
from time import time
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import UNSET, field

from strandline.client.calls import ALWAYS, AnswerReader, Request, post
from strandline.client.errors import Busy, StrandlineError, Unreachable
from strandline.client.failures import JobFailure, fitting
from strandline.client.topic_calls import Match, given
from strandline.client.topic_types import Record, time_of

T = TypeVar("T")

#: No job waits longer: the server cuts longer delays.
MAX_DELAY_MS = 86_400_000


class Returned(msgspec.Struct):
    """Whether and how the function of a worker returned its job."""

    by_call: bool = False
    reason: Any = None
    #: The delay before the next delivery. None is the usual delay after a failure.
    delay_ms: int | None = None


class Job(msgspec.Struct, Generic[T], repr_omit_defaults=True):
    """A claimed job. It is leased to the claimer until ``deadline`` (milliseconds), which heartbeats extend.
    ``deliveries`` includes this delivery. ``failures`` are the last failed deliveries with a reason, oldest first."""

    seq: int = field(name="$seq")
    lease_id: str
    deadline: int
    ts: int = field(name="$ts")
    deliveries: int
    data: T
    tag: str | None = field(default=None, name="$tag")
    priority: int = 0
    meta: Any = None
    failures: list[JobFailure] = []
    #: Set by a worker while its function runs.
    _returned: Returned | None = None

    @property
    def time(self) -> datetime:
        """When the job was added, in UTC."""
        return time_of(self.ts)

    def fail(self, reason: Any = None) -> None:
        """In the function of a worker: return the job to the queue as failed when the function ends, instead of
        acknowledging it. It is delivered again after the same delay as after an exception.

        ``reason`` is a text, JSON or an exception, of which 4,096 bytes are kept. If the function raises an exception
        as well, that is the reason unless you give one. The last call of ``fail`` or ``retry`` decides."""
        self._return(Returned(True, fitting(reason)))

    def retry(self, *, after: float | timedelta, reason: Any = None) -> None:
        """Like ``fail``, but the job is delivered again after this time, in seconds, at most a day. The worker does not
        count it as a failure."""
        delay_ms = min(span_ms(after, "after"), MAX_DELAY_MS)
        self._return(Returned(True, fitting(reason), delay_ms))

    def _return(self, returned: Returned) -> None:
        if self._returned is None:
            raise RuntimeError(
                f"job {self.seq} is not being processed by a worker; return it with queue.nack(job, reason=...)"
            )
        self._returned = returned


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A job that failed on its last delivery. ``seq`` and ``ts`` are those of the record in the dead-letter topic,
    ``queue`` and ``job_seq`` say where the job came from. ``reason`` is why the last delivery failed, None if that is
    not known. ``data`` is JSON, because it may be a job whose data does not have the type of its queue."""

    seq: int
    ts: int
    data: Any
    tag: str | None
    queue: str | None
    job_seq: int | None
    deliveries: int | None
    priority: int
    reason: Any
    failures: list[JobFailure]

    @property
    def time(self) -> datetime:
        """When the job became a dead letter, in UTC."""
        return time_of(self.ts)


class Claimed(msgspec.Struct, Generic[T], frozen=True):
    claimed: list[Job[T]]
    ready: int


class NextClaimed(msgspec.Struct, Generic[T], frozen=True):
    """The jobs that an ack has claimed. A server that does not know such acks claims none."""

    claimed: list[Job[T]] = []


class Acked(msgspec.Struct, frozen=True):
    """``skipped`` lists seqs that are not leased to this worker. If an ack is repeated because its answer was lost, all
    its seqs are skipped."""

    acked: int
    skipped: list[int]
    ready: int
    in_flight: int


class Nacked(msgspec.Struct, frozen=True):
    nacked: int
    skipped: list[int]
    ready: int
    in_flight: int


class Extended(msgspec.Struct, frozen=True):
    """``deadlines`` maps seqs to new deadlines."""

    extended: int
    skipped: list[int]
    deadlines: dict[int, int]


class Redriven(msgspec.Struct, frozen=True):
    """``to`` counts the moved dead letters per queue."""

    topic: str
    redriven: int
    to: dict[str, int]
    remaining: int


# --- requests and answers -------------------------------------------------------------------------------------------

ACKED = AnswerReader(Acked)
#: The data of the job is decoded later.
NEXT_CLAIMED: AnswerReader[NextClaimed[Any]] = AnswerReader(NextClaimed[msgspec.Raw])
NACKED = AnswerReader(Nacked)
EXTENDED = AnswerReader(Extended)
REDRIVEN = AnswerReader(Redriven)


@lru_cache(maxsize=256)
def claim_reading(kind: Any) -> AnswerReader[Claimed[Any]]:
    return AnswerReader(Claimed[kind])


def new_node() -> str:
    """A unique name for a worker."""
    return f"{socket.gethostname()[:60]}-{os.getpid()}-{secrets.token_hex(4)}"


def claim(path: str, node: str, most: int, lease_ms: int | None) -> Request:
    """Not repeatable: the jobs of a lost first claim would stay leased until their leases expire."""
    return post(f"{path}/claim", given(node=node, max=most, lease_ms=lease_ms))


def ack(path: str, node: str, jobs: Sequence[Job[Any]]) -> Request:
    # The lease ids make repetition safe: a job that is leased to another worker by now is not affected.
    return post(f"{path}/ack", _held(node, jobs), repeatable=ALWAYS)


def ack_and_claim(path: str, node: str, job: Job[Any], lease_ms: int | None) -> Request:
    """Acknowledge a job and claim another one. Not repeatable, like ``claim``."""
    return post(f"{path}/ack", {**_held(node, [job]), "claim": given(max=1, lease_ms=lease_ms)})


def nack(path: str, node: str, jobs: Sequence[Job[Any]], delay_ms: int | None, reason: Any) -> Request:
    body = {**_held(node, jobs), **given(delay_ms=delay_ms, reason=fitting(reason))}
    return post(f"{path}/nack", body, repeatable=ALWAYS)


def extend(path: str, node: str, jobs: Sequence[Job[Any]], lease_ms: int) -> Request:
    return post(f"{path}/extend", {**_held(node, jobs), "lease_ms": lease_ms}, repeatable=ALWAYS)


def redrive(path: str, to: str | None, limit: int, match: Match | None, seq: int | None, data: Any) -> Request:
    body = given(to=to, limit=limit, match=match, seq=seq)
    if data is not UNSET:
        body["data"] = data
    return post(f"{path}/redrive", body, repeatable=ALWAYS)


def _held(node: str, jobs: Sequence[Job[Any]]) -> dict[str, Any]:
    return {"node": node, "seqs": [job.seq for job in jobs], "lease_ids": [job.lease_id for job in jobs]}


def due_at(delay: float | timedelta | None, not_before: datetime | int | None, now: Callable[[], float] = time) -> int:
    """From when a job is delivered, in milliseconds; 0 is at once. Raises ValueError if both are given."""
    if delay is not None:
        if not_before is not None:
            raise ValueError("give delay or not_before, not both")
        return round(now() * 1000) + span_ms(delay, "delay")
    if not_before is None:
        return 0
    return round(not_before.timestamp() * 1000) if isinstance(not_before, datetime) else not_before


def span_ms(span: float | timedelta, name: str) -> int:
    """Seconds or a timedelta as milliseconds. Raises ValueError if it is not a finite number, 0 or more."""
    seconds = span.total_seconds() if isinstance(span, timedelta) else span
    if not 0 <= seconds < inf:
        raise ValueError(f"{name} must be a number of seconds, 0 or more, got {span!r}")
    return round(seconds * 1000)


# --- dead letters ---------------------------------------------------------------------------------------------------


class _Stamps(msgspec.Struct, rename=lambda name: f"$dead_letter_{name}"):
    """The members that the server adds to the meta of a dead letter. Numbers are texts."""

    from_: str | None = field(default=None, name="$dead_letter_from")
    src_seq: int | None = None
    deliveries: int | None = None
    priority: int = 0
    reason: Any = None
    failures: list[JobFailure] = []


def dead_letter(record: Record[Any]) -> DeadLetter:
    """A record of a dead-letter topic. One that no queue moved there has no queue, deliveries and failures."""
    try:
        stamps = msgspec.convert(record.meta, _Stamps, strict=False)
    except msgspec.ValidationError:
        stamps = _Stamps()
    return DeadLetter(
        seq=record.seq,
        ts=record.ts,
        data=record.data,
        tag=record.tag,
        queue=stamps.from_,
        job_seq=stamps.src_seq,
        deliveries=stamps.deliveries,
        priority=stamps.priority,
        reason=stamps.reason,
        failures=stamps.failures,
    )


# --- workers --------------------------------------------------------------------------------------------------------

#: The delay before a failed job is delivered again, if its queue has no ``retry_delay_ms``. It doubles with every
#: delivery, up to the maximum.
FIRST_DELAY_MS = 1000
LONGEST_DELAY_MS = 300_000
#: Heartbeats per lease. With three, one lost heartbeat does not cost the lease.
HEARTBEATS_PER_LEASE = 3


class WorkerSettings(msgspec.Struct, frozen=True):
    """``lease_ms`` None uses the queue's setting; ``heartbeat_seconds`` None sends three heartbeats per lease.
    ``poll_seconds`` is how often an idle worker polls for jobs that became due; new jobs wake it immediately.
    ``timeout`` is for how many seconds the function may process one job."""

    concurrency: int = 1
    lease_ms: int | None = None
    heartbeat_seconds: float | None = None
    poll_seconds: float = 1.0
    timeout: float | None = None

    def __post_init__(self) -> None:
        if self.concurrency < 1:
            raise ValueError(f"concurrency must be at least 1, got {self.concurrency}")
        if self.timeout is not None and not 0 < self.timeout < inf:
            raise ValueError(f"timeout must be a number of seconds above 0, got {self.timeout!r}")


def usual_delay_ms(job: Job[Any]) -> int:
    """The delay doubles with every delivery, and is shortened randomly by up to half."""
    whole = min(LONGEST_DELAY_MS, FIRST_DELAY_MS << min(job.deliveries - 1, 20))
    return round(whole * (1 - random.random() / 2))


def chosen_delay_ms(chosen: Any) -> int | None:
    """The delay that the ``delay_ms`` function of a worker returned, as the server accepts it. Raises ValueError."""
    if chosen is None:
        return None
    if type(chosen) not in (int, float) or not 0 <= chosen < inf:
        raise ValueError(f"delay_ms must return milliseconds, 0 or more, or None, not {chosen!r}")
    delay_ms: int = round(min(chosen, MAX_DELAY_MS))
    return delay_ms


def is_passing(error: StrandlineError) -> bool:
    """Whether the error is temporary, so that a worker retries instead of stopping."""
    return isinstance(error, Unreachable | Busy) or getattr(error, "status", 0) in (408, 502, 504)
