"""Rows, their changes and the results of calls: the data types of tables and how records store them.

A record of the rows log is a row; its data is the payload. A change is a record of a second log, written in the same
transaction as the change of the row. Its key has the seq of the row, so that the changes of a row are found together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Generic, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from strandline.engine import Batch, Commit, Record
from strandline.tables.errors import invalid
from strandline.tables.names import STAMPS

Op = Literal["update", "rm", "restore", "purge", "restoreAll"]

Seq = Annotated[int, Meta(ge=1)]
Count = Annotated[int, Meta(ge=0)]
Time = Annotated[int, Meta(ge=0, description="Milliseconds since 1970.")]
Id = Annotated[str, Meta(description="The id of the row: parent:seq.")]
Author = Annotated[str | None, Meta(description="The id of the user; null for the application itself.")]


#: The key of changes that affect all rows of a parent.
SWEEP = "*"
#: The prefix of the keys of edits. Edits have earlier payloads, so they are hidden and deleted with their row.
EDITS = "edit:"


def edits_of(seq: int) -> str:
    """The key of the edits of a row."""
    return f"{EDITS}{seq}"


def removals_of(seq: int) -> str:
    """The key of the removals and restorations of a row."""
    return str(seq)


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
    #: With ``op="purge"``: the rows with a seq below this one were removed.
    before: int | UnsetType = UNSET

    @property
    def key(self) -> str:
        if self.seq is None:
            return SWEEP
        return edits_of(self.seq) if self.op == "update" else removals_of(self.seq)


encode_change = msgspec.json.Encoder().encode
_decode_changes = msgspec.json.Decoder(Change).decode


def change_of(data: bytes) -> Change:
    return _decode_changes(data)


class FeedEntry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What happened to a row, or to all rows of a parent if ``seq`` is None. It refers to the row and has nothing of
    its payload. ``author`` is the author of the row."""

    op: Literal["append"] | Op
    parent: str
    seq: int | None = None
    author: str | None = None
    soft: bool = False

    @property
    def key(self) -> str:
        return f"{feed_prefix(self.parent)}{SWEEP if self.seq is None else self.seq}"


def feed_prefix(parent: str) -> str:
    """The prefix of the keys of a parent's entries in the feed. No parent has a slash."""
    return f"{parent}/"


def feed_batch(entries: Sequence[FeedEntry]) -> Batch:
    return Batch([_encode(entry) for entry in entries], [entry.key for entry in entries])


feed_entry_of = msgspec.json.Decoder(FeedEntry).decode


_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


class _Meta(Struct, omit_defaults=True, rename={"version": "v"}):
    """Data about a row that is stored beside its payload."""

    user: str | None = None
    #: The version of the schema that the row was written with.
    version: int = 1


_decode_meta = msgspec.json.Decoder(_Meta).decode

#: The names of the members as clients see them, where they differ.
_MEMBERS = {
    "user": "userId",
    "created_at": "createdAt",
    "updated_at": "updatedAt",
    "deleted_at": "deletedAt",
    "deleted_by": "deletedBy",
    "idempotency_key": "idempotencyKey",
}


class Row(Struct, frozen=True, kw_only=True, omit_defaults=True, rename=_MEMBERS):
    """A row of a table. Times are in milliseconds; ``updated_at`` equals ``created_at`` until the row is edited.

    ``user`` is the author's id, or None for the program itself. ``author`` is the result of ``with_author`` for the
    author. ``own`` says whether the reader is the author. Both are present only if they are known. ``deleted_at`` and
    ``deleted_by`` are the time and the user of the removal of a row in the trash.
    """

    id: Id
    parent: str
    seq: Seq
    payload: dict[str, Any]
    user: Author
    created_at: Time
    updated_at: Time
    idempotency_key: str | None = None
    deleted_at: Annotated[int, Meta(ge=0, description="When the row was removed, if it is in the trash.")] | None = None
    deleted_by: Annotated[str | None, Meta(description="The user who removed the row.")] | UnsetType = UNSET
    author: Annotated[Mapping[str, Any] | None, Meta(description="Data about the author.")] | UnsetType = UNSET
    own: Annotated[bool, Meta(description="Whether the reader is the author.")] | None = None

    @property
    def is_edited(self) -> bool:
        return self.updated_at != self.created_at

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
    payload, _, updated = split_stamps(data)
    return Row(
        id=f"{parent}:{seq}",
        parent=parent,
        seq=seq,
        payload=_decode(payload),
        user=None if meta is None else _decode_meta(meta).user,
        created_at=ts,
        updated_at=ts if updated is None else updated,
        idempotency_key=key,
    )


def data_of(row: Row, version: int | None = None) -> bytes:
    """Encode the payload for storage; edited rows note the ``version`` of their schema. Raises TableError if it cannot
    be encoded as JSON."""
    payload = row.payload
    if row.is_edited:
        payload = add_stamps(payload, version, row.updated_at)
    return encoded(payload)


def encoded(payload: Mapping[str, Any]) -> bytes:
    """The payload as JSON. Raises TableError if it cannot be encoded."""
    try:
        return _encode(payload)
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise invalid(f"the payload cannot be encoded as JSON: {error}") from None


_VERSION, _UPDATED_AT = (b'"%b":' % name.encode() for name in STAMPS)
#: The bytes of a stamp, at most: its name, and a number of 18 digits.
_STAMP_BYTES = 32


def split_stamps(data: bytes) -> tuple[bytes, int | None, int | None]:
    """The payload in the data of a record, the version of its schema and the time of the last edit. The version and the
    time are None in a row that was not edited; the version is also None while its table has only one."""
    at = data.rfind(_UPDATED_AT, -_STAMP_BYTES)
    if at < 0:
        return data, None, None
    updated = data[at + len(_UPDATED_AT) : -1]
    # A payload cannot end like this: in text, the quotes are escaped, and an object ends before the last brace.
    if not updated.isdigit() or data[-1:] != b"}":
        return data, None, None
    payload, version = data[:at].removesuffix(b","), None
    at = payload.rfind(_VERSION, -_STAMP_BYTES)
    if at >= 0 and payload[at + len(_VERSION) :].isdigit():
        payload, version = payload[:at].removesuffix(b","), int(payload[at + len(_VERSION) :])
    return payload + b"}", version, int(updated)


def add_stamps(payload: dict[str, Any], version: int | None, updated_at: int) -> dict[str, Any]:
    """The data of an edited row, which :func:`split_stamps` splits."""
    stamps = zip(STAMPS, (version, updated_at), strict=True)
    return {**payload, **{name: value for name, value in stamps if value is not None}}


def meta_of(user: str | None, version: int = 1) -> bytes | None:
    return None if user is None and version == 1 else _encode(_Meta(user, version))


def author_in(meta: bytes | None) -> str | None:
    """The author in the meta of a record."""
    return None if meta is None else _decode_meta(meta).user


def version_in(meta: bytes | None) -> int:
    """The version of the schema in the meta of a record."""
    return 1 if meta is None or b'"v":' not in meta else _decode_meta(meta).version


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


class TableFeedPage(Struct, frozen=True):
    """Rows of all parents, newest first; otherwise as :class:`RowPage`. Everything that happens after this page was
    made comes after ``live_cursor`` in the live feed."""

    rows: list[Row]
    is_done: bool
    cursor: str | None
    live_cursor: str


class RowsAfter(Struct, frozen=True):
    """Rows, oldest first. ``last`` is the seq up to which all rows were returned. ``head`` is the highest seq of a
    visible row."""

    rows: list[Row]
    head: int
    has_more: bool
    last: int


class FoundRows(Struct, frozen=True):
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
