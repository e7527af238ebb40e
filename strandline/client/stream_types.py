"""What streams look like to a program."""

from __future__ import annotations

from typing import Any, Generic, Literal, TypeVar

import msgspec

T = TypeVar("T")

#: Before the first record there is, and behind the last one.
START = "-1"
NOW = "now"


class StreamInfo(msgspec.Struct, frozen=True):
    """A stream as its head tells it. ``next_offset`` is its end, ``ttl_seconds`` the sliding window."""

    content_type: str
    next_offset: str
    closed: bool = False
    created: bool = False
    ttl_seconds: int | None = None
    expires_at: str | None = None
    compact: bool = False


class Appended(msgspec.Struct, frozen=True):
    """What became of an append. ``next_offset`` is the offset of its last record; ``duplicate``: the producer had made
    it before, and it was not made again (then the offset is the end of the stream)."""

    next_offset: str
    duplicate: bool = False
    closed: bool = False


class StreamPage(msgspec.Struct, Generic[T], frozen=True):
    """A part of a stream: ``values`` of a JSON stream, ``data`` of any other. ``next_offset`` is where to go on;
    ``up_to_date``: there is no more for now; ``closed``: there will be no more."""

    values: list[T]
    data: bytes
    next_offset: str
    up_to_date: bool
    closed: bool


class StreamRow(msgspec.Struct, frozen=True):
    """A stream as lists show it. ``next_offset`` is a number here: that of the next record, from 0 on."""

    name: str
    next_offset: str
    created_at: str | None = None
    expires_at: str | None = None
    profile: str = "generic"


class Total(msgspec.Struct, frozen=True):
    """``value`` counts the hits of this page; ``relation`` is "eq" if these are all."""

    value: int
    relation: Literal["eq", "gte"]


class Hit(msgspec.Struct, Generic[T], frozen=True):
    offset: str
    source: T
    score: float | None = None
    sort: list[Any] = []
    fields: dict[str, Any] = {}


class Found(msgspec.Struct, Generic[T], frozen=True):
    """A page of hits. ``next_search_after`` is where the next one begins; ``coverage`` says what the answer is made
    of."""

    hits: list[Hit[T]]
    total: Total
    next_search_after: list[Any] | None = None
    timed_out: bool = False
    took_ms: float = 0
    coverage: dict[str, Any] = {}


class Group(msgspec.Struct, frozen=True):
    key: dict[str, Any]
    measures: dict[str, dict[str, Any]]


class Bucket(msgspec.Struct, frozen=True):
    start: str
    groups: list[Group]
    end: str | None = None


class Aggregated(msgspec.Struct, frozen=True):
    buckets: list[Bucket]
    coverage: dict[str, Any] = {}
