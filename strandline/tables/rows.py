"""Rows, their changes and the results of calls: the data types of tables and how records store them.

A record of the rows log is a row; its data is the payload. A change is a record of a second log, written in the same
transaction as the change of the row. Its key is the seq of the row, so that the changes of a row are found together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, Literal, TypeVar

import msgspec
from msgspec import UNSET, Struct, UnsetType

from strandline.engine import Commit, Record
from strandline.tables.errors import invalid
from strandline.tables.names import UPDATED_AT

Op = Literal["update", "rm", "restore", "purge", "restoreAll"]


class Change(Struct, frozen=True, kw_only=True):
    """``seq`` is None if it is about all rows, else ``author`` is that of the row. ``soft`` tells of a removal whether
    it can be taken back. ``previous`` is the payload before an update."""

    op: Op
    seq: int | None
    at: int
    user: str | None
    author: str | UnsetType | None = UNSET
    soft: bool = False
    previous: dict[str, Any] | UnsetType = UNSET

    @property
    def key(self) -> str | None:
        return None if self.seq is None else str(self.seq)


encode_change = msgspec.json.Encoder().encode
_decode_changes = msgspec.json.Decoder(Change).decode


def change_of(data: bytes) -> Change:
    return _decode_changes(data)


_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


class _Meta(Struct, omit_defaults=True):
    """What a record says about its row beside the payload."""

    user: str | None = None


_decode_meta = msgspec.json.Decoder(_Meta).decode


class Row(Struct, frozen=True, kw_only=True):
    """A row of a table. Times are in milliseconds; ``updated_at`` is ``created_at`` until the row is edited.

    ``user`` is the author's id, None for the program itself. ``author`` is what ``with_author`` says about them, and
    ``own`` whether whoever reads is the author; both only where there is an answer.
    """

    id: str
    parent: str
    seq: int
    payload: dict[str, Any]
    user: str | None
    created_at: int
    updated_at: int
    idempotency_key: str | None = None
    author: Mapping[str, Any] | UnsetType | None = UNSET
    own: bool | None = None

    def to_json(self) -> dict[str, Any]:
        """As clients see it: the members of the payload beside those of the row."""
        shown: dict[str, Any] = {
            **self.payload,
            "id": self.id,
            "parent": self.parent,
            "seq": self.seq,
            "userId": self.user,
            "createdAt": self.created_at,
            "updatedAt": self.updated_at,
        }
        if self.idempotency_key is not None:
            shown["idempotencyKey"] = self.idempotency_key
        if self.author is not UNSET:
            shown["author"] = self.author
        if self.own is not None:
            shown["own"] = self.own
        return shown


def row_of(parent: str, record: Record) -> Row:
    """The row that a record of the parent's log is."""
    seq, ts, key, _, meta, data = record
    payload = _decode(data)
    updated = payload.pop(UPDATED_AT, ts)
    return Row(
        id=f"{parent}:{seq}",
        parent=parent,
        seq=seq,
        payload=payload,
        user=None if meta is None else _decode_meta(meta).user,
        created_at=ts,
        updated_at=updated,
        idempotency_key=key,
    )


def data_of(row: Row) -> bytes:
    """What is stored of the payload; raises TableError if it is no JSON."""
    payload = row.payload if row.updated_at == row.created_at else {**row.payload, UPDATED_AT: row.updated_at}
    try:
        return _encode(payload)
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise invalid(f"the payload cannot be written as JSON: {error}") from None


def meta_of(user: str | None) -> bytes | None:
    return None if user is None else _encode(_Meta(user))


def author_in(meta: bytes | None) -> str | None:
    """The author of a record's row."""
    return None if meta is None else _decode_meta(meta).user


T = TypeVar("T")


class Write(Generic[T]):
    """A write that is journaled and may still wait for the disk. Nobody sees it before ``commit`` is done.

    ``wait`` gives the result once it is durable; it does not block any more when the commit is done.
    """

    __slots__ = ("_finish", "commit")

    def __init__(self, commit: Commit[Any], finish: Callable[[Any], T]) -> None:
        self.commit = commit
        self._finish = finish

    def wait(self) -> T:
        return self._finish(self.commit.wait())


class _Answer(Struct, frozen=True, rename="camel"):
    def to_json(self) -> dict[str, Any]:
        shown: dict[str, Any] = msgspec.to_builtins(self)
        return shown


class AppendResult(_Answer, frozen=True):
    """Where the row is, and whether this append made it: it did not if its idempotency key was there."""

    seq: int
    created: bool
    id: str


class AppendBulkResult(_Answer, frozen=True):
    """``count`` is how many rows were made; one result per item, in order."""

    count: int
    results: list[AppendResult]


class RmResult(_Answer, frozen=True):
    """``deleted`` is False if there was no such row."""

    deleted: bool
    id: str
    soft: bool


class RmBulkResult(_Answer, frozen=True):
    """``count`` is how many rows were there; one result per id, in order."""

    count: int
    results: list[RmResult]


class PurgeResult(_Answer, frozen=True):
    deleted: int
    soft: bool


class RestoreResult(_Answer, frozen=True):
    restored: int


class RowPage(Struct, frozen=True):
    """Rows, the newest first. If it ``is_done``, there are no older ones; else ``cursor`` says where to go on. A page
    can be short, or empty, without being the last: looking for rows that fit ends after a while."""

    rows: list[Row]
    is_done: bool
    cursor: str | None

    def to_json(self) -> dict[str, Any]:
        return {"page": _shown(self.rows), "isDone": self.is_done, "continueCursor": self.cursor}


class RowsAfter(Struct, frozen=True):
    """Rows, the oldest first. ``last`` is the seq up to which there are no others, ``head`` the last one ever given to
    a row that can be seen."""

    rows: list[Row]
    head: int
    has_more: bool
    last: int

    def to_json(self) -> dict[str, Any]:
        return {"rows": _shown(self.rows), "head": self.head, "hasMore": self.has_more, "last": self.last}


class Found(Struct, frozen=True):
    """Rows that were found, the newest first. ``complete`` is False if time ran out before all could be looked at."""

    rows: list[Row]
    complete: bool

    def to_json(self) -> dict[str, Any]:
        return {"rows": _shown(self.rows), "complete": self.complete}


class Counts(_Answer, frozen=True):
    """How many rows have which value, by the value as text, and how many there are."""

    counts: dict[str, int]
    total: int


class Edit(_Answer, frozen=True):
    """What a row was before it was edited, by whom and when."""

    at: int
    user: str | None
    previous: dict[str, Any]


def _shown(rows: list[Row]) -> list[dict[str, Any]]:
    return [row.to_json() for row in rows]
