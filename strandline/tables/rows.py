"""Rows, and how they are kept: a record is a row, its data the payload."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from strandline.engine import Record
from strandline.tables.errors import invalid
from strandline.tables.names import UPDATED_AT

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
