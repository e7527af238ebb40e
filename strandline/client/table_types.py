"""What tables look like to a program."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec

T = TypeVar("T")


class Row(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """A row. Times are in milliseconds; ``updated_at`` is ``created_at`` until the row is edited. ``user`` is the
    author's id; ``author`` and ``own`` are there where the server tells them."""

    id: str
    parent: str
    seq: int
    payload: T
    user: str | None
    created_at: int
    updated_at: int
    idempotency_key: str | None = None
    deleted_at: int | None = None
    author: dict[str, Any] | None = None
    own: bool | None = None


class RowAppended(msgspec.Struct, frozen=True, rename="camel"):
    """Where the row is. ``created`` is False if there was one with its idempotency key already."""

    seq: int
    created: bool
    id: str


class BulkAppended(msgspec.Struct, frozen=True, rename="camel"):
    """``count`` is how many rows were made; one result per item, in order."""

    count: int
    results: list[RowAppended]


class RowRemoved(msgspec.Struct, frozen=True, rename="camel"):
    """``deleted`` is False if there was no such row; ``soft``: it can be restored."""

    deleted: bool
    id: str
    soft: bool


class BulkRemoved(msgspec.Struct, frozen=True, rename="camel"):
    count: int
    results: list[RowRemoved]


class Purged(msgspec.Struct, frozen=True, rename="camel"):
    deleted: int
    soft: bool


class Restored(msgspec.Struct, frozen=True, rename="camel"):
    restored: int


class RowPage(msgspec.Struct, Generic[T], frozen=True):
    """Rows, the newest first. A page can be short, or empty, without being the last; ``cursor`` is where to go on."""

    rows: list[Row[T]]
    is_done: bool
    cursor: str | None


class RowsAfter(msgspec.Struct, Generic[T], frozen=True):
    """Rows, the oldest first. ``last`` is the seq to go on behind."""

    rows: list[Row[T]]
    head: int
    has_more: bool
    last: int


class Counts(msgspec.Struct, frozen=True, rename="camel"):
    """How many rows have which value, by the value as text, and how many there are."""

    counts: dict[str, int]
    total: int


class Edit(msgspec.Struct, frozen=True, rename="camel"):
    """What a row was before it was edited, by whom and when."""

    at: int
    user: str | None
    previous: dict[str, Any]


class NewRow(msgspec.Struct, Generic[T], frozen=True):
    """A row that is about to be appended with an idempotency key of its own."""

    payload: T
    idempotency_key: str


# --- what live readers are told ------------------------------------------------------------------------------------


class Appended(msgspec.Struct, Generic[T], frozen=True):
    row: Row[T]


class Updated(msgspec.Struct, Generic[T], frozen=True):
    row: Row[T]


class Removed(msgspec.Struct, frozen=True):
    """``soft``: it can be restored."""

    id: str
    seq: int
    soft: bool


class Back(msgspec.Struct, Generic[T], frozen=True):
    """A row that had been removed is there again."""

    row: Row[T]


class AllRemoved(msgspec.Struct, frozen=True):
    parent: str
    soft: bool


class AllBack(msgspec.Struct, frozen=True):
    """All removed rows of the parent are there again."""

    parent: str


class Ready(msgspec.Struct, frozen=True):
    """Everything that there was has been told; from now on it is live."""

    cursor: str


LiveEvent = Appended[T] | Updated[T] | Removed | Back[T] | AllRemoved | AllBack | Ready
