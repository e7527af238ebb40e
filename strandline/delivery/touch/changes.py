"""Changes: records that say what has become of a row. Everything else in a log is passed over."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

INSERT, UPDATE, DELETE = "insert", "update", "delete"
OPERATIONS = frozenset((INSERT, UPDATE, DELETE))


class _Headers(msgspec.Struct, gc=False):
    operation: str = ""


class Change(msgspec.Struct, gc=False):
    """``type`` is the entity. The rows stay JSON until somebody needs them."""

    type: str
    headers: _Headers
    value: Raw = Raw(b"")
    old_value: Raw = Raw(b"")

    @property
    def operation(self) -> str:
        return self.headers.operation


_decode = msgspec.json.Decoder(Change).decode


def change_of(data: bytes) -> Change | None:
    """The change that a record is; None if it is none, as control messages are."""
    try:
        change = _decode(data)
    except (msgspec.MsgspecError, RecursionError):
        return None
    return change if change.type and change.headers.operation in OPERATIONS else None


def row_of(raw: Raw) -> dict[str, Any] | None:
    """A row by its fields; None if it is missing, or is no object."""
    if not raw:
        return None
    try:
        row = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, RecursionError):
        return None
    return row if type(row) is dict else None
