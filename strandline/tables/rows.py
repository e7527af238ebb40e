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
Id = Annotated[str, Meta(description="The id of the row: parent:seq.")]
Author = Annotated[str | None, Meta(description="The id of the user; null for the application itself.")]


class Change(Struct, frozen=True, kw_only=True):
    """A change of one row, or of all rows of a parent if ``seq`` is None. ``author`` is the author of the row. ``soft``
    says whether a removal can be undone. ``previous`` is the payload before an update."""

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
    """Data about a row that is stored beside its payload."""

    user: str | None = None


_decode_meta = msgspec.json.Decoder(_Meta).decode

#: The names of the members as clients see them, where they differ.
_MEMBERS = {
    "user": "userId",
    "created_at": "createdAt",
    "updated_at": "updatedAt",
    "idempotency_key": "idempotencyKey",
}


class Row(Struct, frozen=True, kw_only=True, omit_defaults=True, rename=_MEMBERS):
    """A row of a table. Times are in milliseconds; ``updated_at`` equals ``created_at`` until the row is edited.

    ``user`` is the author's id, or None for the program itself. ``author`` is the result of ``with_author`` for the
    author. ``own`` says whether the reader is the author. Both are present only if they are known.
    """

    id: Id
    parent: str
    seq: Seq
    payload: dict[str, Any]
    user: Author
    created_at: Time
    updated_at: Time
    idempotency_key: str | None = None
    author: Annotated[Mapping[str, Any] | None, Meta(description="Data about the author.")] | UnsetType = UNSET
    own: Annotated[bool, Meta(description="Whether the reader is the author.")] | None = None

    def to_json(self) -> dict[str, Any]:
        """The row as clients see it, with the fields of the payload as members."""
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
    """Decode the row from a record of the parent's log."""
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
    """Encode the payload for storage. Raises TableError if it cannot be encoded as JSON."""
    payload = row.payload if row.updated_at == row.created_at else {**row.payload, UPDATED_AT: row.updated_at}
    try:
        return _encode(payload)
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise invalid(f"the payload cannot be encoded as JSON: {error}") from None


def meta_of(user: str | None) -> bytes | None:
    return None if user is None else _encode(_Meta(user))


def author_in(meta: bytes | None) -> str | None:
    """The author in the meta of a record."""
    return None if meta is None else _decode_meta(meta).user


T = TypeVar("T")


class Write(Generic[T]):
    """A journaled write that may not be durable yet. It becomes visible when ``commit`` is done.

    ``wait`` returns the result once the write is durable. It does not block if the commit is done.
    """

    __slots__ = ("_finish", "commit")

    def __init__(self, commit: Commit[Any], finish: Callable[[Any], T]) -> None:
        self.commit = commit
        self._finish = finish

    def wait(self) -> T:
        return self._finish(self.commit.wait())


class AppendResult(Struct, frozen=True):
    """The position of the row. ``created`` is False if a row with the idempotency key existed already."""

    seq: Seq
    created: bool
    id: Id


class AppendBulkResult(Struct, frozen=True):
    """The results of the items, in order. ``count`` is the number of rows that were created."""

    count: Count
    results: list[AppendResult]


class RmResult(Struct, frozen=True):
    """The result of a removal. ``deleted`` is False if the row does not exist."""

    deleted: bool
    id: str
    soft: bool


class RmBulkResult(Struct, frozen=True):
    """The results of the ids, in order. ``count`` is the number of rows that were removed."""

    count: Count
    results: list[RmResult]


class PurgeResult(Struct, frozen=True):
    deleted: Count
    soft: bool


class RestoreResult(Struct, frozen=True):
    restored: Count


class RowPage(Struct, frozen=True):
    """Rows, newest first. If ``is_done``, there are no older rows; otherwise ``cursor`` is the start of the next page.
    A page that is not the last can be short or empty, because the number of rows examined per page is limited."""

    rows: list[Row]
    is_done: bool
    cursor: str | None


class RowsAfter(Struct, frozen=True):
    """Rows, oldest first. ``last`` is the seq up to which all rows were returned. ``head`` is the highest seq of a
    visible row."""

    rows: list[Row]
    head: int
    has_more: bool
    last: int


class Found(Struct, frozen=True):
    """Matching rows, newest first. ``complete`` is False if the search timed out before all rows were examined."""

    rows: list[Row]
    complete: bool


class Counts(Struct, frozen=True):
    """The number of rows per value, with values as text, and the total."""

    counts: dict[str, Count]
    total: Count


class Edit(Struct, frozen=True):
    """The payload of a row before an edit, with the time and the user of the edit."""

    at: Time
    user: Author
    previous: Annotated[dict[str, Any], Meta(description="The payload before the edit.")]
