"""The data types of queues: settings, schedules, claimed jobs, the results of calls, and the errors of a queue.

Errors of the logs under a queue are passed on as the engine's own errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec


class QueueError(Exception):
    """Base of everything the queues raise on purpose. Nothing has changed when one is raised."""


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
    """A schedule that makes no sense; ``index`` is the job's place in the batch, None when it is about all of them."""

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
#: The companion log keeps times and priorities as 64-bit numbers.
LARGEST = (1 << 63) - 1

_HEXADECIMAL = frozenset("0123456789abcdef")


class QueueSettings(msgspec.Struct, frozen=True):
    """How a queue hands out its jobs. Whoever takes them from a user clamps them first."""

    #: How long a claimed job is held unless the claim says otherwise.
    lease_ms: int = 30_000
    #: How long claims are gathered into a cohort. Kept by whoever gathers; the queue itself never waits.
    claim_jitter_ms: int = 0
    #: After this many deliveries a job goes to the dead letters instead of to a worker; 0: never.
    max_deliveries: int = 0
    #: The log for dead letters; None: jobs are delivered for ever.
    dead_letter: str | None = None
    #: A claim is acknowledged only when it would survive a power cut.
    leases_durable: bool = False


class Schedule(NamedTuple):
    """When a job may be handed out first (ms since the Unix epoch, 0: at once), and how urgent it is."""

    not_before: int = 0
    priority: int = 0


class Claimed(NamedTuple):
    """A record of the jobs log, and the terms under which a worker holds it."""

    seq: int
    ts: int
    key: str | None
    node: str | None
    meta: bytes | None
    data: bytes
    lease_id: str
    #: The lease holds up to this moment, the moment included.
    deadline: int
    #: How often the job has been handed out, this time included.
    deliveries: int
    priority: int


class ClaimRequest(NamedTuple):
    """One claim of a cohort; without ``lease_ms`` the queue's own."""

    node: str
    max: int
    lease_ms: int | None = None


class Acked(NamedTuple):
    acked: list[int]
    #: Not held by the node, or not under the given lease.
    skipped: list[int]


class Nacked(NamedTuple):
    nacked: list[int]
    skipped: list[int]


class Extended(NamedTuple):
    deadlines: dict[int, int]
    skipped: list[int]


class QueueCounters(NamedTuple):
    """``ready``: can be claimed now. ``in_flight``: held. ``delayed``: waits for its time, and is in neither."""

    ready: int
    in_flight: int
    dead_lettered: int
    delayed: int


def lease_id(number: int) -> str:
    return f"{LEASE_ID_PREFIX}{number:x}"


def lease_number(token: str) -> int:
    """The number in a lease id; 0, which no lease has, for the empty one, which fences nothing."""
    if token == "":
        return 0
    if not isinstance(token, str) or not token.startswith(LEASE_ID_PREFIX):
        raise BadLeaseId(token)
    digits = token[len(LEASE_ID_PREFIX) :]
    if not digits or not _HEXADECIMAL.issuperset(digits):
        raise BadLeaseId(token)
    # Zero was never given out: let it be a number that no lease has, rather than one that fences nothing.
    return int(digits, 16) or -1


def lease_numbers(seqs: Sequence[int], lease_ids: Sequence[str] | None) -> list[int] | None:
    """The numbers in lease ids that are given one per seq, or not at all."""
    if lease_ids is None:
        return None
    if len(lease_ids) != len(seqs):
        raise LeaseIdsMismatch(len(seqs), len(lease_ids))
    return [lease_number(token) for token in lease_ids]


def check_amount(field: str, value: int, least: int) -> int:
    if type(value) is not int or not least <= value <= LARGEST:
        raise BadClaim(field, value, f"must be a whole number, {least} or more")
    return value


def check_schedule(index: int, schedule: Schedule) -> None:
    if type(schedule.not_before) is not int or not 0 <= schedule.not_before <= LARGEST:
        raise BadSchedule(index, f"not_before must be a time in milliseconds, 0 or more, not {schedule.not_before!r}")
    if type(schedule.priority) is not int or not -LARGEST <= schedule.priority <= LARGEST:
        raise BadSchedule(index, f"priority must be a whole number of at most 63 bits, not {schedule.priority!r}")
