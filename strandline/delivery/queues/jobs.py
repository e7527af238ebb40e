"""The data types of queues: settings, schedules, claimed jobs, the results of calls, and the errors of a queue.

Errors of the logs under a queue are passed on as the engine's own errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from strandline.delivery.queues.activity import QueueRates
from strandline.delivery.queues.backoff import NO_BACKOFF, Backoff
from strandline.shortened_text import is_nested_deeper, shorten


class QueueError(Exception):
    """Base of all errors of queues. Nothing was changed when one is raised."""


class BadLeaseId(QueueError):
    """The lease id has a form that no queue issues."""

    def __init__(self, token: object) -> None:
        super().__init__(f"{token!r} is not a lease id: expected lease_ and lowercase hexadecimal digits")
        self.token = token


class LeaseIdsMismatch(QueueError):
    """The number of lease ids differs from the number of seqs."""

    def __init__(self, seqs: int, lease_ids: int) -> None:
        super().__init__(f"{seqs} seqs and {lease_ids} lease ids: send one lease id for each seq, or none")
        self.seqs = seqs
        self.lease_ids = lease_ids


class BadSchedule(QueueError):
    """The schedule is invalid. ``index`` is the position of the job in the batch, or None if the error concerns the
    whole batch."""

    def __init__(self, index: int | None, why: str) -> None:
        super().__init__(why if index is None else f"schedule of job {index} of the batch: {why}")
        self.index = index
        self.why = why


class BadClaim(QueueError):
    """A value in a claim, a nack or an extension is out of range."""

    def __init__(self, field: str, value: object, why: str) -> None:
        super().__init__(f"{field}={value!r}: {why}")
        self.field = field
        self.value = value
        self.why = why


LEASE_ID_PREFIX = "lease_"
#: Times and priorities are stored as 64-bit integers in the lease log.
LARGEST = (1 << 63) - 1

#: The maximum size of the reason that a worker gives for a failure, as JSON.
MAX_REASON_BYTES = 4096
#: The maximum number of arrays and objects within each other in a reason. Reasons become parts of events and dead
#: letters, which must always be readable.
MAX_REASON_DEPTH = 64
#: A worker that gives no reason, or null.
NO_REASON = msgspec.Raw(b"null")
#: How much of a reason is shown in an error message or in the server's log.
SHOWN_REASON_BYTES = 200

_HEXADECIMAL = frozenset("0123456789abcdef")


class QueueSettings(msgspec.Struct, frozen=True):
    """The settings of a queue. The caller clamps values that come from a user."""

    #: The default duration of a lease.
    lease_ms: int = 30_000
    #: How long claims are collected into a cohort. The dispatcher waits; the queue itself never does.
    claim_jitter_ms: int = 0
    #: The maximum number of deliveries: a job that fails on the last one becomes a dead letter; 0: no limit.
    max_deliveries: int = 0
    #: The dead-letter log. If None, jobs that reach the maximum number of deliveries are dropped.
    dead_letter: str | None = None
    #: Acknowledge a claim only when it is durable, and keep leases when the process ends.
    leases_durable: bool = False
    #: The delay of jobs that are returned without a delay of their own.
    backoff: Backoff = NO_BACKOFF


class Schedule(NamedTuple):
    """The earliest delivery of a job (ms since the Unix epoch, 0: at once), and its priority."""

    not_before: int = 0
    priority: int = 0


class Failure(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A delivery that failed: when, which one, at which node, and why, as JSON."""

    at: int
    delivery: int
    node: str
    reason: msgspec.Raw


class Claimed(msgspec.Struct, frozen=True, gc=False):
    """A record of the jobs log, and its lease."""

    seq: int
    ts: int
    key: str | None
    node: str | None
    meta: bytes | None
    data: bytes
    lease_id: str
    #: The lease ends after this time.
    deadline: int
    #: The number of deliveries, including this one.
    deliveries: int
    priority: int
    #: The last failures, oldest first.
    failures: tuple[Failure, ...] = ()


class ClaimRequest(NamedTuple):
    """One claim of a cohort. Without ``lease_ms``, the lease has the queue's default duration."""

    node: str
    max: int
    lease_ms: int | None = None


class AckRequest(NamedTuple):
    """One acknowledgement. ``fences`` are the numbers of the leases, one per seq, or None."""

    node: str
    seqs: Sequence[int]
    fences: list[int] | None = None

    @classmethod
    def of(cls, node: str, seqs: Sequence[int], lease_ids: Sequence[str] | None) -> AckRequest:
        return cls(node, seqs, lease_numbers(seqs, lease_ids))


class Acked(NamedTuple):
    acked: list[int]
    #: Seqs that the node does not hold, or holds with another lease.
    skipped: list[int]


class Nacked(NamedTuple):
    nacked: list[int]
    skipped: list[int]


class Extended(NamedTuple):
    deadlines: dict[int, int]
    skipped: list[int]


class QueueCounters(NamedTuple):
    """``ready`` jobs can be claimed now, ``in_flight`` jobs are leased, and ``delayed`` jobs wait for their time.
    ``dead_lettered`` and ``dropped`` jobs failed on their last delivery."""

    ready: int
    in_flight: int
    dead_lettered: int
    delayed: int
    dropped: int = 0


class QueueFigures(NamedTuple):
    """The state of a queue for monitoring."""

    counters: QueueCounters
    rates: QueueRates
    #: The age of the oldest ready job, in milliseconds since it became ready; None if no job is ready.
    oldest_ready_ms: int | None


def lease_id(number: int) -> str:
    return f"{LEASE_ID_PREFIX}{number:x}"


def lease_number(token: str) -> int:
    """The number in a lease id. An empty lease id gives 0, which no lease has and which fences nothing."""
    if token == "":
        return 0
    if not isinstance(token, str) or not token.startswith(LEASE_ID_PREFIX):
        raise BadLeaseId(token)
    digits = token[len(LEASE_ID_PREFIX) :]
    if not digits or not _HEXADECIMAL.issuperset(digits):
        raise BadLeaseId(token)
    # No lease has the number zero. Return a number that matches no lease, instead of 0, which fences nothing.
    return int(digits, 16) or -1


def lease_numbers(seqs: Sequence[int], lease_ids: Sequence[str] | None) -> list[int] | None:
    """The numbers in the lease ids, one per seq, or None."""
    if lease_ids is None:
        return None
    if len(lease_ids) != len(seqs):
        raise LeaseIdsMismatch(len(seqs), len(lease_ids))
    return [lease_number(token) for token in lease_ids]


def check_amount(field: str, value: int, least: int) -> int:
    if type(value) is not int or not least <= value <= LARGEST:
        raise BadClaim(field, value, f"must be a whole number, {least} or more")
    return value


def check_reason(reason: bytes | None) -> msgspec.Raw:
    """The reason for a failure as it is kept: JSON of a limited size. A text that is too long is shortened."""
    if reason is None:
        return NO_REASON
    try:
        value = msgspec.json.decode(reason)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadClaim("reason", shortened(reason), f"must be JSON: {error}") from None
    if isinstance(value, str):
        fits = len(reason) <= MAX_REASON_BYTES
        return msgspec.Raw(reason if fits else msgspec.json.encode(shorten(value, MAX_REASON_BYTES)))
    if len(reason) > MAX_REASON_BYTES:
        why = f"has {len(reason)} bytes; expected at most {MAX_REASON_BYTES}, or a text, which the server shortens"
        raise BadClaim("reason", shortened(reason), why)
    if is_nested_deeper(reason, MAX_REASON_DEPTH):
        why = f"is nested more than {MAX_REASON_DEPTH} levels deep; expected fewer levels, or a text"
        raise BadClaim("reason", shortened(reason), why)
    return msgspec.Raw(reason)


def shortened(reason: bytes) -> str:
    text = reason[:SHOWN_REASON_BYTES].decode("utf-8", "replace")
    return text if len(reason) <= SHOWN_REASON_BYTES else text + "…"


def check_schedule(index: int, schedule: Schedule) -> None:
    if type(schedule.not_before) is not int or not 0 <= schedule.not_before <= LARGEST:
        raise BadSchedule(index, f"not_before must be a time in milliseconds, 0 or more, not {schedule.not_before!r}")
    if type(schedule.priority) is not int or not -LARGEST <= schedule.priority <= LARGEST:
        raise BadSchedule(index, f"priority must be a whole number of at most 63 bits, not {schedule.priority!r}")
