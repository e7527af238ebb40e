"""What tables answer with. ``to_json`` gives each as clients see it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct

from strandline.engine import Commit
from strandline.tables.rows import Row

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
