"""What queues and jobs look like to a program."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec
from msgspec import field

T = TypeVar("T")


class Job(msgspec.Struct, Generic[T]):
    """A job that was claimed. It is the claimer's until ``deadline`` (milliseconds), which heartbeats put off.
    ``deliveries`` counts this one."""

    seq: int = field(name="$seq")
    lease_id: str
    deadline: int
    ts: int = field(name="$ts")
    deliveries: int
    data: T
    tag: str | None = field(default=None, name="$tag")
    priority: int = 0
    meta: Any = None


class Claimed(msgspec.Struct, Generic[T], frozen=True):
    claimed: list[Job[T]]
    ready: int


class Acked(msgspec.Struct, frozen=True):
    """``skipped`` are seqs that this worker did not hold, any more or at all. An ack that was sent twice because its
    answer got lost finds all of them skipped."""

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
    """``deadlines`` are the new ones, by seq."""

    extended: int
    skipped: list[int]
    deadlines: dict[int, int]


class Redriven(msgspec.Struct, frozen=True):
    """``to`` counts the dead letters by where they went."""

    topic: str
    redriven: int
    to: dict[str, int]
    remaining: int
