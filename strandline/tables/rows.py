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

#: The members of a row as clients see it, where they are called differently.
_MEMBERS = {
    "user": "userId",
    "created_at": "createdAt",
    "updated_at": "updatedAt",
    "idempotency_key": "idempotencyKey",
}


class Row(Struct, frozen=True, kw_only=True, omit_defaults=True, rename=_MEMBERS):
    """A row of a table. Times are in milliseconds; ``updated_at`` is ``created_at`` until the row is edited.

    ``user`` is the author's id, None for the program itself. ``author`` is what ``with_author`` says about them, and
    ``own`` whether whoever reads is the author; both only where there is an answer.
    """

    id: Id
    parent: str
    seq: Seq
    payload: dict[str, Any]
    user: Author
    created_at: Time
    updated_at: Time
    idempotency_key: str | None = None
    author: Annotated[Mapping[str, Any] | None, Meta(description="What is known of the author.")] | UnsetType = UNSET
    own: Annotated[bool, Meta(description="Whether the reader is the author.")] | None = None

    def to_json(self) -> dict[str, Any]:
        """As clients see it: the members of the payload beside those of the row."""
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


class AppendResult(Struct, frozen=True):
    """Where the row is, and whether this append made it: it did not if its idempotency key was there."""

    seq: Seq
    created: bool
    id: Id


class AppendBulkResult(Struct, frozen=True):
    """``count`` is how many rows were made; one result per item, in order."""

    count: Count
    results: list[AppendResult]


class RmResult(Struct, frozen=True):
    """``deleted`` is False if there was no such row."""

    deleted: bool
    id: str
    soft: bool


class RmBulkResult(Struct, frozen=True):
    """``count`` is how many rows were there; one result per id, in order."""

    count: Count
    results: list[RmResult]


class PurgeResult(Struct, frozen=True):
    deleted: Count
    soft: bool


class RestoreResult(Struct, frozen=True):
    restored: Count


class RowPage(Struct, frozen=True):
    """Rows, the newest first. If it ``is_done``, there are no older ones; else ``cursor`` says where to go on. A page
    can be short, or empty, without being the last: looking for rows that fit ends after a while."""

    rows: list[Row]
    is_done: bool
    cursor: str | None


class RowsAfter(Struct, frozen=True):
    """Rows, the oldest first. ``last`` is the seq up to which there are no others, ``head`` the last one ever given to
    a row that can be seen."""

    rows: list[Row]
    head: int
    has_more: bool
    last: int


class Found(Struct, frozen=True):
    """Rows that were found, the newest first. ``complete`` is False if time ran out before all could be looked at."""

    rows: list[Row]
    complete: bool


class Counts(Struct, frozen=True):
    """How many rows have which value, by the value as text, and how many there are."""

    counts: dict[str, Count]
    total: Count


class Edit(Struct, frozen=True):
    """What a row was before it was edited, by whom and when."""

    at: Time
    user: Author
    previous: Annotated[dict[str, Any], Meta(description="The payload as it was before.")]
