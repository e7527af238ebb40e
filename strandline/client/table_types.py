"""The public types of tables."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec

T = TypeVar("T")


class Row(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """A row. Times are in milliseconds; ``updated_at`` equals ``created_at`` until the row is edited. ``user`` is the
    author's id. ``author`` and ``own`` are set where the server sends them, ``deleted_at`` and ``deleted_by`` in the
    trash."""

    id: str
    parent: str
    seq: int
    payload: T
    user: str | None
    created_at: int
    updated_at: int
    idempotency_key: str | None = None
    deleted_at: int | None = None
    deleted_by: str | None = None
    author: dict[str, Any] | None = None
    own: bool | None = None


class RowAppended(msgspec.Struct, frozen=True, rename="camel"):
    """The id and seq of the row. ``created`` is False if a row with the idempotency key existed already."""

    seq: int
    created: bool
    id: str


class BulkAppended(msgspec.Struct, frozen=True, rename="camel"):
    """``count`` is the number of created rows; ``results`` has one entry per item, in order."""

    count: int
    results: list[RowAppended]


class RowRemoved(msgspec.Struct, frozen=True, rename="camel"):
    """``deleted`` is False if the row did not exist. ``soft``: the row can be restored."""

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
    """Rows, newest first. A page can be short or empty without being the last. Continue with ``cursor``."""

    rows: list[Row[T]]
    is_done: bool
    cursor: str | None


class RowsAfter(msgspec.Struct, Generic[T], frozen=True):
    """Rows, oldest first. Continue after the seq ``last``."""

    rows: list[Row[T]]
    head: int
    has_more: bool
    last: int


class Counts(msgspec.Struct, frozen=True, rename="camel"):
    """The number of rows for each value (as text), and in total."""

    counts: dict[str, int]
    total: int


class Edit(msgspec.Struct, frozen=True, rename="camel"):
    """The previous content of an edited row, with the time and the user of the edit."""

    at: int
    user: str | None
    previous: dict[str, Any]


class NewRow(msgspec.Struct, Generic[T], frozen=True):
    """A row to append with a given idempotency key."""

    payload: T
    idempotency_key: str


# --- events of live readers ----------------------------------------------------------------------------------------


class Appended(msgspec.Struct, Generic[T], frozen=True):
    row: Row[T]


class Updated(msgspec.Struct, Generic[T], frozen=True):
    row: Row[T]


class Removed(msgspec.Struct, frozen=True):
    """``soft``: the row can be restored."""

    id: str
    seq: int
    soft: bool


class Back(msgspec.Struct, Generic[T], frozen=True):
    """A removed row was restored."""

    row: Row[T]


class AllRemoved(msgspec.Struct, frozen=True):
    """All rows of the parent were removed. In a feed, ``parent`` is None if the user does not see all rows of it."""

    parent: str | None
    soft: bool


class AllBack(msgspec.Struct, frozen=True):
    """All removed rows of the parent were restored. ``parent`` is as in :class:`AllRemoved`."""

    parent: str | None


class Ready(msgspec.Struct, frozen=True):
    """All existing rows were sent; new events follow."""

    cursor: str


LiveEvent = Appended[T] | Updated[T] | Removed | Back[T] | AllRemoved | AllBack | Ready
