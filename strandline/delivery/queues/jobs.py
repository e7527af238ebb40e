"""The data types of queues: settings, schedules, claimed jobs, the results of calls, and the errors of a queue.

Errors of the logs under a queue are passed on as the engine's own errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec


class QueueError(Exception):
    """Base of the errors of queues. Nothing has changed when one is raised."""


class BadLeaseId(QueueError):
    """A lease id that no queue can have given out."""

    def __init__(self, token: object) -> None:
        super().__init__(f"{token!r} is not a lease id: expected lease_ and lowercase hexadecimal digits")
        self.token = token


class LeaseIdsMismatch(QueueError):
    """Lease ids come one per seq, in the same order, or not at all."""

    def __init__(self, seqs: int, lease_ids: int) -> None:
        super().__init__(f"{seqs} seqs and {lease_ids} lease ids: send one lease id for each seq, or none")
        self.seqs = seqs
        self.lease_ids = lease_ids


class BadSchedule(QueueError):
    """An invalid schedule; ``index`` is the position of the job in the batch, None if it concerns the whole batch."""

    def __init__(self, index: int | None, why: str) -> None:
        super().__init__(why if index is None else f"schedule of job {index} of the batch: {why}")
        self.index = index
        self.why = why


class BadClaim(QueueError):
    """A number in a claim, a nack or an extension that is out of its range."""

    def __init__(self, field: str, value: object, why: str) -> None:
        super().__init__(f"{field}={value!r}: {why}")
        self.field = field
        self.value = value
        self.why = why


LEASE_ID_PREFIX = "lease_"
#: The lease log stores times and priorities as 64-bit numbers.
LARGEST = (1 << 63) - 1

_HEXADECIMAL = frozenset("0123456789abcdef")


class QueueSettings(msgspec.Struct, frozen=True):
    """How a queue hands out its jobs. Values from users must be clamped first."""

    #: How long a claimed job is held unless the claim sets another time.
    lease_ms: int = 30_000
    #: How long claims are collected into a cohort. The dispatcher applies it; the queue itself never waits.
    claim_jitter_ms: int = 0
    #: After this number of deliveries, a job becomes a dead letter; 0: never.
    max_deliveries: int = 0
    #: The dead-letter log; None: jobs are delivered without limit.
    dead_letter: str | None = None
    #: Whether a claim is acknowledged only when it would survive a power cut.
    leases_durable: bool = False


class Schedule(NamedTuple):
    """The earliest time of a job (ms since the Unix epoch, 0: at once), and its priority."""

    not_before: int = 0
    priority: int = 0


class Claimed(NamedTuple):
    """A record of the jobs log, and the lease under which a worker holds it."""

    seq: int
    ts: int
    key: str | None
    node: str | None
    meta: bytes | None
    data: bytes
    lease_id: str
    #: The end of the lease, inclusive.
    deadline: int
    #: The number of deliveries, including this one.
    deliveries: int
    priority: int


class ClaimRequest(NamedTuple):
    """One claim of a cohort; without ``lease_ms``, the queue's setting applies."""

    node: str
    max: int
    lease_ms: int | None = None


class Acked(NamedTuple):
    acked: list[int]
    #: Not held by the node, or held under another lease.
    skipped: list[int]


class Nacked(NamedTuple):
    nacked: list[int]
    skipped: list[int]


class Extended(NamedTuple):
    deadlines: dict[int, int]
    skipped: list[int]


class QueueCounters(NamedTuple):
    """``ready``: can be claimed now. ``in_flight``: held. ``delayed``: waits for its time, and counts in neither."""

    ready: int
    in_flight: int
    dead_lettered: int
    delayed: int


def lease_id(number: int) -> str:
    return f"{LEASE_ID_PREFIX}{number:x}"


def lease_number(token: str) -> int:
    """The number in a lease id; 0, which no lease has, for the empty id, which fences nothing."""
    if token == "":
        return 0
    if not isinstance(token, str) or not token.startswith(LEASE_ID_PREFIX):
        raise BadLeaseId(token)
    digits = token[len(LEASE_ID_PREFIX) :]
    if not digits or not _HEXADECIMAL.issuperset(digits):
        raise BadLeaseId(token)
    # The id of zero was never issued: use a number that no lease has, since zero would fence nothing.
    return int(digits, 16) or -1


def lease_numbers(seqs: Sequence[int], lease_ids: Sequence[str] | None) -> list[int] | None:
    """The numbers in lease ids; None if there are none."""
    if lease_ids is None:
        return None
    if len(lease_ids) != len(seqs):
        raise LeaseIdsMismatch(len(seqs), len(lease_ids))
    return [lease_number(token) for token in lease_ids]


def check_amount(field: str, value: int, least: int) -> int:
    if type(value) is not int or not least <= value <= LARGEST:
        raise BadClaim(field, value, f"must be an integer, {least} or more")
    return value


def check_schedule(index: int, schedule: Schedule) -> None:
    if type(schedule.not_before) is not int or not 0 <= schedule.not_before <= LARGEST:
        raise BadSchedule(index, f"not_before must be a time in milliseconds, 0 or more, not {schedule.not_before!r}")
    if type(schedule.priority) is not int or not -LARGEST <= schedule.priority <= LARGEST:
        raise BadSchedule(index, f"priority must be an integer of at most 63 bits, not {schedule.priority!r}")
