"""What became of the rows of a parent, change by change: the edit history, and what those are told who follow along.

A change is a record of a log of its own beside that of the rows, written in the same step as what it tells of. Its key
is the seq of the row, so that the changes of a row are found together.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

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
_decode = msgspec.json.Decoder(Change).decode


def change_of(data: bytes) -> Change:
    return _decode(data)
