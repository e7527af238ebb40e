"""Pending changes: journaled or planned, and not yet visible to readers.

Changes take effect in the order in which they were journaled. A decision about a further change must take the pending
ones into account.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

from msgspec import UNSET, UnsetType

from strandline.engine import Commit
from strandline.tables.rows import Row


class Known(NamedTuple):
    """A row that exists, or will exist once its append is durable."""

    row: Row
    hidden: bool = False
    #: The user of the removal of a hidden row, if the removal is pending. Otherwise, the changes of the parent name it.
    removed_by: str | UnsetType | None = UNSET


class PendingEffect(NamedTuple):
    """The pending change of the rows with these ``seqs``, or of all rows before a seq."""

    kind: Literal["add", "amend", "hide", "restore", "remove"]
    seqs: tuple[int, ...] = ()
    before: int = 0
    #: The row after the change.
    row: Row | None = None
    #: The user who hides the rows.
    user: str | None = None

    def on(self, known: Known | None) -> Known | None:
        """The row after the change. Applying a change twice has no further effect, so the change may already be
        visible."""
        if self.kind == "add":
            assert self.row is not None
            return Known(self.row)
        if known is None or self.kind == "remove":
            return None
        if self.kind == "amend":
            assert self.row is not None
            return known._replace(row=self.row)
        if self.kind == "restore":
            return known._replace(hidden=False, removed_by=UNSET)
        if known.hidden and self.before:
            # Another change has removed the row, or this one, which is visible already.
            return known
        return known._replace(hidden=True, removed_by=self.user)


class _OfLog:
    """Pending effects on the rows of one log, numbered in order."""

    __slots__ = ("by_seq", "keys", "sweeping")

    def __init__(self) -> None:
        self.by_seq: dict[int, deque[tuple[int, PendingEffect]]] = {}
        self.sweeping: deque[tuple[int, PendingEffect]] = deque()
        #: The idempotency keys of added rows, with their seqs.
        self.keys: dict[str, int] = {}

    def add(self, number: int, effect: PendingEffect) -> None:
        for seq in effect.seqs:
            self.by_seq.setdefault(seq, deque()).append((number, effect))
        if effect.before:
            self.sweeping.append((number, effect))
        if effect.kind == "add" and effect.row is not None and effect.row.idempotency_key is not None:
            self.keys[effect.row.idempotency_key] = effect.row.seq

    def remove_first(self, effect: PendingEffect) -> None:
        for seq in effect.seqs:
            ours = self.by_seq[seq]
            ours.popleft()
            if not ours:
                del self.by_seq[seq]
        if effect.before:
            self.sweeping.popleft()
        if effect.kind == "add" and effect.row is not None and effect.row.idempotency_key is not None:
            if self.keys.get(effect.row.idempotency_key) == effect.row.seq:
                del self.keys[effect.row.idempotency_key]

    def on(self, seq: int) -> list[PendingEffect]:
        found = list(self.by_seq.get(seq, ()))
        found += [each for each in self.sweeping if seq < each[1].before]
        return [effect for _, effect in sorted(found, key=lambda each: each[0])]

    def __bool__(self) -> bool:
        return bool(self.by_seq or self.sweeping)


class Effects:
    """Pending effects on the rows of many logs, in order."""

    def __init__(self) -> None:
        self._logs: dict[str, _OfLog] = {}
        self._number = 0
        self.all: deque[tuple[str, PendingEffect]] = deque()

    def add(self, log: str, effect: PendingEffect) -> None:
        self._number += 1
        self._logs.setdefault(log, _OfLog()).add(self._number, effect)
        self.all.append((log, effect))

    def on(self, log: str, seq: int) -> list[PendingEffect]:
        """The pending effects on a row, in order."""
        ours = self._logs.get(log)
        return [] if ours is None else ours.on(seq)

    def key(self, log: str, key: str) -> int | None:
        """The seq of the last added row with this key."""
        ours = self._logs.get(log)
        return None if ours is None else ours.keys.get(key)

    def added(self, log: str) -> list[int]:
        """The seqs of the added rows, ascending."""
        ours = self._logs.get(log)
        if ours is None:
            return []
        return sorted(seq for seq, effects in ours.by_seq.items() if any(each.kind == "add" for _, each in effects))

    def remove_first(self) -> None:
        log, effect = self.all.popleft()
        ours = self._logs[log]
        ours.remove_first(effect)
        if not ours:
            del self._logs[log]


class Coming:
    """Changes that are journaled and not yet known to be durable. The caller holds the lock of the tables."""

    def __init__(self) -> None:
        self.effects = Effects()
        self._steps: deque[tuple[Commit[Any], int]] = deque()

    def add(self, commit: Commit[Any], effects: Iterable[tuple[str, PendingEffect]]) -> None:
        if commit.done:
            return
        count = 0
        for log, effect in effects:
            self.effects.add(log, effect)
            count += 1
        self._steps.append((commit, count))

    def forget_done(self) -> None:
        """Drop the effects of commits that are done, because readers see them. Commits are done in the order they were
        made."""
        while self._steps and self._steps[0][0].done:
            _, count = self._steps.popleft()
            for _ in range(count):
                self.effects.remove_first()

    @property
    def last(self) -> Commit[Any] | None:
        """The last pending commit. When it is done, all pending changes are durable."""
        return self._steps[-1][0] if self._steps else None
