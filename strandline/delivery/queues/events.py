"""The events of a queue's companion log, as JSON arrays that begin with the event's name.

Together they are the queue's memory. An ack has no event: it is the deletion of the job. Neither has the end of a
lease by time: the deadline is in the event that began it.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import msgspec


class Grant(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Jobs handed to one node. The first one's lease has the number ``lease``, the next one's the next number."""

    node: str
    lease: int
    deadline: int
    seqs: list[int]


class ClaimedEvent(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="claimed"):
    grants: list[Grant]


class ReleasedEvent(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="released"):
    """Leases given back; the jobs can be claimed from ``not_before`` on (0: at once)."""

    seqs: list[int]
    not_before: int


class ExtendedEvent(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="extended"):
    seqs: list[int]
    deadline: int


class Scheduled(NamedTuple):
    seq: int
    not_before: int
    priority: int


class ScheduledEvent(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="scheduled"):
    jobs: list[Scheduled]


class UnscheduledEvent(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="unscheduled"):
    """The jobs of a ``scheduled`` event did not come to be; their seqs are for other jobs."""

    seqs: list[int]


class DeadLetteredEvent(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="dead_lettered"):
    """Copies of these jobs are among the dead letters: whatever happens, they are not to be handed out again."""

    seqs: list[int]


class KnownJob(NamedTuple):
    """``until`` is the lease's deadline if there is a lease (a number other than 0), else the time to wait for."""

    seq: int
    priority: int
    deliveries: int
    lease: int
    node: str | None
    until: int


class SnapshotEvent(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="snapshot"):
    """Everything known at one moment. A large one is several events in one batch; the first says so."""

    first: bool
    next_lease: int
    dead_lettered: int
    jobs: list[KnownJob]


Event: TypeAlias = (
    ClaimedEvent | ReleasedEvent | ExtendedEvent | ScheduledEvent | UnscheduledEvent | DeadLetteredEvent | SnapshotEvent
)

encode = msgspec.json.Encoder().encode
_decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)


def decode(data: bytes) -> Event | None:
    """The event, or None when it is none: to lose an event is harmless, to refuse a queue for one is not."""
    try:
        return _decoder.decode(data)
    except msgspec.DecodeError:
        return None
