"""The search configuration of a log, as JSON documents: which fields of its records can be searched, and how."""

from __future__ import annotations

from typing import Any, Literal, Required, TypedDict

import msgspec

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
