"""The search configuration of a log, as JSON documents: which fields of its records can be searched, and how. And the
results of searches and aggregations."""

from __future__ import annotations

from typing import Any, Generic, Literal, Required, TypedDict, TypeVar

import msgspec

T = TypeVar("T")

SearchKind = Literal["keyword", "text", "integer", "float", "date", "bool"]


class SearchBinding(TypedDict):
    """Where a field is in records of schema version ``version`` and later. A log without a schema has version 1."""

    version: int
    jsonPointer: str


class SearchField(TypedDict, total=False):
    kind: Required[SearchKind]
    bindings: Required[list[SearchBinding]]
    normalizer: Literal["identity_v1", "lowercase_v1"]
    analyzer: Literal["unicode_word_v1"]
    exact: bool
    prefix: bool
    column: bool
    exists: bool
    sortable: bool
    aggregatable: bool
    contains: bool
    positions: bool


class SearchDefaultField(TypedDict, total=False):
    """A field that bare terms are searched in."""

    field: Required[str]
    boost: float


class SearchConfig(TypedDict, total=False):
    """``fields`` and ``rollups`` are by name, ``aliases`` by alias."""

    profile: str
    primaryTimestampField: str
    aliases: dict[str, str]
    defaultFields: list[SearchDefaultField]
    containsDefaultFields: list[str]
    fields: Required[dict[str, SearchField]]
    rollups: dict[str, dict[str, Any]]


class IndexProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How many of the records of a log are indexed. The rate and the remaining time are None while they are unknown."""

    indexed_records: int
    records: int
    records_per_second: float | None = None
    remaining_ms: int | None = None
    complete: bool


class IndexStatus(msgspec.Struct, frozen=True):
    """The part of a stream's index status that the client reads."""

    progress: IndexProgress | None = None


class Registry(msgspec.Struct, frozen=True):
    """The part of a stream's schema registry that the client reads."""

    search: SearchConfig | None = None


# --- results --------------------------------------------------------------------------------------------------------


class Coverage(msgspec.Struct, frozen=True, kw_only=True):
    """Which records a search or an aggregation covers. If it is not ``complete``, up to
    ``possible_missing_events_upper_bound`` of the records are missing, because they are not indexed yet or the time ran
    out. ``used_rollups``: an aggregation used stored sums."""

    complete: bool
    mode: Literal["complete", "published"]
    possible_missing_events_upper_bound: int
    stream_head_offset: str
    visible_through_offset: str
    indexed_segments: int
    scanned_tail_docs: int
    index_families_used: tuple[str, ...]
    used_rollups: bool = False


class Total(msgspec.Struct, frozen=True):
    """``value`` counts the hits of this page; ``relation`` is "eq" if there are no others."""

    value: int
    relation: Literal["eq", "gte"]


class Hit(msgspec.Struct, Generic[T], frozen=True):
    """A record that a search found. ``sort`` has its values of the fields that the hits are sorted by."""

    offset: str
    source: T
    score: float
    sort: list[Any]
    fields: dict[str, Any]


class Found(msgspec.Struct, Generic[T], frozen=True):
    """A page of hits. Pass ``next_search_after`` to get the next page."""

    hits: list[Hit[T]]
    total: Total
    coverage: Coverage
    timed_out: bool
    took_ms: float
    next_search_after: list[Any] | None


class Measure(msgspec.Struct, frozen=True, omit_defaults=True):
    """A measure of a group. A measure of the kind ``count`` has only ``count``; the others are None then, and where the
    group has no values."""

    count: int | float
    sum: int | float | None = None
    min: int | float | None = None
    max: int | float | None = None
    avg: int | float | None = None
    p50: int | float | None = None
    p95: int | float | None = None
    p99: int | float | None = None
    histogram: dict[str, int | float] | None = None


class Group(msgspec.Struct, frozen=True):
    """The records of a bucket with the same values of the dimensions."""

    key: dict[str, str | None]
    measures: dict[str, Measure]


class Bucket(msgspec.Struct, frozen=True):
    """The groups of one interval, from ``start`` (inclusive) to ``end`` (exclusive)."""

    start: str
    end: str
    groups: list[Group]


class Aggregated(msgspec.Struct, frozen=True):
    """The buckets that contain records, ordered by time."""

    buckets: list[Bucket]
    coverage: Coverage
