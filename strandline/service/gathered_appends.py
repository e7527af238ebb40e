"""Small appends to the same log that arrive in one turn of the event loop are appended together: one frame, one system
call and one block in memory for all of them. Each still gets its own seqs and its own answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

from strandline.engine import Appended, Batch
from strandline.service.http import LaterCommitted, Reply

#: Larger appends gain nothing by being appended together with others.
MAX_GATHERED_RECORDS = 16
#: A group of this size is appended at once.
MAX_GATHERED_BYTES = 1 << 20


T = TypeVar("T")
L = TypeVar("L", bound=Hashable)
A = TypeVar("A", bound=LaterCommitted)


class AppendGroup(Generic[A]):
    """Appends to one log that become one append."""

    __slots__ = ("appends", "size")

    def __init__(self) -> None:
        self.appends: list[A] = []
        #: The bytes of the payloads.
        self.size = 0

    def fail(self, error: Exception) -> None:
        for append in self.appends:
            append.fail(error)


class GatheredAppends(Generic[L, A]):
    """Calls ``append`` with a log and a group: when the turn of the loop ends, or earlier if the group is large. Use it
    only on the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, append: Callable[[L, AppendGroup[A]], None]) -> None:
        self._loop = loop
        self._append = append
        self._groups: dict[L, AppendGroup[A]] = {}
        #: The appends that wait for the end of the turn, and the bytes of their payloads.
        self.count = 0
        self.size = 0
        self._appends_of_turn = 0
        #: Whether the last turn had only one append.
        self._alone = True

    def take(self, log: L, append: A, size: int) -> bool:
        """Whether the append, with payloads of ``size`` bytes, waits for the others of this turn.

        The first append of a turn does not wait if the last turn had only one: then it is likely to be alone again.
        """
        self._appends_of_turn += 1
        if self._appends_of_turn == 1:
            self._loop.call_soon(self._end_turn)
            if self._alone:
                return False
        group = self._groups.get(log)
        if group is None:
            group = self._groups[log] = AppendGroup()
        group.appends.append(append)
        group.size += size
        self.count += 1
        self.size += size
        if group.size > MAX_GATHERED_BYTES:
            self.append_now(log)
        return True

    def append_now(self, log: L) -> None:
        """Append what has been gathered for the log, so that what follows comes after it."""
        group = self._groups.pop(log, None)
        if group is not None:
            self.count -= len(group.appends)
            self.size -= group.size
            self._append(log, group)

    def _end_turn(self) -> None:
        self._alone = self._appends_of_turn == 1
        self._appends_of_turn = 0
        for log in list(self._groups):
            self.append_now(log)


class BatchAppend(LaterCommitted):
    """An append of a batch, and its answer."""

    __slots__ = ("batch",)

    def __init__(self, batch: Batch) -> None:
        # Like in Later, without another call.
        self.answer = self._error = self._waiting = None
        self.batch = batch


B = TypeVar("B", bound=BatchAppend)


def settle_batches(appends: Sequence[B], whole: Appended, reply: Callable[[B, Appended], Reply]) -> None:
    """Answer each append with its part of the result of the joined batch."""
    first = whole.first
    for append in appends:
        last = first + len(append.batch.data) - 1
        append.settle(reply(append, Appended(first, last, whole.ts)))
        first = last + 1


def join_batches(batches: Sequence[Batch]) -> Batch:
    """One batch with the records of all batches, in order."""
    if len(batches) == 1:
        return batches[0]
    return Batch(
        [payload for batch in batches for payload in batch.data],
        _joined(batches, [batch.keys for batch in batches]),
        _joined(batches, [batch.nodes for batch in batches]),
        _joined(batches, [batch.metas for batch in batches]),
    )


def _joined(batches: Sequence[Batch], columns: Sequence[Sequence[T | None] | None]) -> list[T | None] | None:
    """The concatenated columns; None if no batch has the column."""
    if columns.count(None) == len(columns):
        return None
    joined: list[T | None] = []
    for batch, column in zip(batches, columns, strict=True):
        joined.extend([None] * len(batch.data) if column is None else column)
    return joined
