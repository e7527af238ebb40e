"""Rows, their changes and the results of calls: the data types of tables and how records store them.

A record of the rows log is a row; its data is the payload. A change is a record of a second log, written in the same
transaction as the change of the row. Its key is the seq of the row, so that the changes of a row are found together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Generic, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from strandline.engine import Commit, Record
from strandline.tables.errors import invalid
from strandline.tables.names import UPDATED_AT

Op = Literal["update", "rm", "restore", "purge", "restoreAll"]

Seq = Annotated[int, Meta(ge=1)]
Count = Annotated[int, Meta(ge=0)]
Time = Annotated[int, Meta(ge=0, description="Milliseconds since 1970.")]
Id = Annotated[str, Meta(description="The parent, a colon, the seq.")]
Author = Annotated[str | None, Meta(description="The author.")]


class Change(Struct, frozen=True, kw_only=True):
    """``seq`` is None if the change is about all rows; otherwise ``author`` is the author of the row. ``soft``: a
    deletion can be undone. ``previous`` is the payload before an update."""

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
    """The properties of a row that a record stores beside the payload."""

    user: str | None = None


_decode_meta = msgspec.json.Decoder(_Meta).decode

#: The names of members, where clients see another name.
_MEMBERS = {
    "user": "userId",
    "created_at": "createdAt",
    "updated_at": "updatedAt",
    "idempotency_key": "idempotencyKey",
}


class Row(Struct, frozen=True, kw_only=True, omit_defaults=True, rename=_MEMBERS):
    """A row of a table. Times are in milliseconds; ``updated_at`` is ``created_at`` until the row is edited.

    ``user`` is the author's id, None for the program itself. ``author`` is the result of ``with_author``, and ``own``
    says whether the reader is the author; both are set only if they are known.
    """

    id: Id
    parent: str
    seq: Seq
    payload: dict[str, Any]
    user: Author
    created_at: Time
    updated_at: Time
    idempotency_key: str | None = None
    author: Annotated[Mapping[str, Any] | None, Meta(description="The author's profile.")] | UnsetType = UNSET
    own: Annotated[bool, Meta(description="Whether the reader is the author.")] | None = None

    def to_json(self) -> dict[str, Any]:
        """The row as clients see it: the members of the payload beside those of the row."""
        shown = dict(self.payload)
        for member, name, default in _SHOWN:
            value = getattr(self, name)
            if value is not default:
                shown[member] = value
        return shown


_SHOWN = [
    (field.encode_name, field.name, field.default) for field in msgspec.structs.fields(Row) if field.name != "payload"
]


def row_of(parent: str, record: Record) -> Row:
    """The row in a record of the parent's log."""
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
    """The stored payload; raises TableError if it cannot be written as JSON."""
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
    """A write that is journaled and may still wait for the disk. It is not visible before ``commit`` is done.

    ``wait`` returns the result once it is durable; it does not block when the commit is done.
    """

    __slots__ = ("_finish", "commit")

    def __init__(self, commit: Commit[Any], finish: Callable[[Any], T]) -> None:
        self.commit = commit
        self._finish = finish

    def wait(self) -> T:
        return self._finish(self.commit.wait())


class AppendResult(Struct, frozen=True):
    """The position of the row, and whether this append created it: not if its idempotency key already existed."""

    seq: Seq
    created: bool
    id: Id


class AppendBulkResult(Struct, frozen=True):
    """``count`` is the number of created rows; one result per item, in order."""

    count: Count
    results: list[AppendResult]


class RmResult(Struct, frozen=True):
    """``deleted`` is False if the row did not exist."""

    deleted: bool
    id: str
    soft: bool


class RmBulkResult(Struct, frozen=True):
    """``count`` is the number of rows that existed; one result per id, in order."""

    count: Count
    results: list[RmResult]


class PurgeResult(Struct, frozen=True):
    deleted: Count
    soft: bool


class RestoreResult(Struct, frozen=True):
    restored: Count


class RowPage(Struct, frozen=True):
    """Rows, newest first. If it ``is_done``, there are no older rows; otherwise ``cursor`` is that of the next page. A
    page can be short or empty without being the last, because the search for matching rows is limited."""

    rows: list[Row]
    is_done: bool
    cursor: str | None


class RowsAfter(Struct, frozen=True):
    """Rows, oldest first. ``last`` is the seq up to which there are no other rows, ``head`` the last seq of a visible
    row."""

    rows: list[Row]
    head: int
    has_more: bool
    last: int


class Found(Struct, frozen=True):
    """The found rows, newest first. ``complete`` is False if the time limit was reached."""

    rows: list[Row]
    complete: bool


class Counts(Struct, frozen=True):
    """The number of rows by value, as text, and in total."""

    counts: dict[str, Count]
    total: Count


class Edit(Struct, frozen=True):
    """An earlier version of a row, and who edited it when."""

    at: Time
    user: Author
    previous: Annotated[dict[str, Any], Meta(description="The payload before the edit.")]
