"""Which rows of a table erasure events mean, and what has become of each: on whole columns.

Of several events that mean a record, the last one counts; but what was deleted never comes back.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container, Iterable
from typing import Any

import msgspec
import numpy as np
import pyarrow.compute as pc

from strandline.engine.operations.erasures import Erasure
from strandline.engine.state.ranges import inside

#: What became of a record: it is deleted, hidden, may be there again, or has other data.
DELETED, HIDDEN, RESTORED, AMENDED = 1, 2, 3, 4
NO_LIMIT = (1 << 63) - 1
_KINDS = {"delete": DELETED, "hide": HIDDEN, "restore": RESTORED, "amend": AMENDED}


class Rule(msgspec.Struct, array_like=True):
    """Records from ``first`` up to ``limit`` that fulfil every condition that is given. ``keys`` have a limit each,
    ``seqs`` ascend."""

    kind: int
    limit: int = NO_LIMIT
    first: int = 0
    seqs: list[int] | None = None
    keys: dict[str, int] | None = None
    prefix: str | None = None

    def take(self, other: Rule) -> bool:
        """Mean the same as both, if that can be told in one rule. Clients that delete one by one leave many events."""
        if (self.kind, self.first, self.prefix) != (other.kind, other.first, other.prefix):
            return False
        if self.seqs is None and other.seqs is None:
            if self.keys is None and other.keys is None:
                self.limit = max(self.limit, other.limit)
                return True
            if self.keys is not None and other.keys is not None:
                for key, limit in other.keys.items():
                    self.keys[key] = max(limit, self.keys.get(key, 0))
                return True
        elif self.seqs is not None and other.seqs is not None and self.keys is None and other.keys is None:
            self.seqs += other.seqs
            return True
        return False

    def mask(self, seqs: Any, keys: Any) -> Any:
        """``seqs`` is a numpy array, ``keys`` an Arrow one."""
        found = (seqs <= self.limit) & (seqs >= self.first)
        if self.seqs is not None:
            found &= np.isin(seqs, np.array(self.seqs, np.int64))
        if self.prefix is not None:
            found &= pc.starts_with(keys, self.prefix).fill_null(False).to_numpy(zero_copy_only=False)
        if self.keys is not None:
            encoded = keys.dictionary_encode()
            limits = [self.keys.get(key, -1) for key in encoded.dictionary.to_pylist()]
            codes = encoded.indices.fill_null(len(limits)).to_numpy(zero_copy_only=False)
            found &= seqs <= np.array([*limits, -1], np.int64)[codes]
        return found

    def may_mean(self, first: int, last: int) -> bool:
        """Whether it could mean a record with a seq from ``first`` to ``last``."""
        if self.limit < first or self.first > last:
            return False
        if self.seqs is None:
            return True
        at = bisect_left(self.seqs, first)
        return at < len(self.seqs) and self.seqs[at] <= last

    @property
    def bounds(self) -> tuple[int, int]:
        """The seqs that it may mean."""
        if self.seqs is not None:
            return (self.seqs[0], self.seqs[-1]) if self.seqs else (1, 0)
        return max(self.first, 1), max(self.keys.values()) if self.keys else self.limit


class Rules(msgspec.Struct, frozen=True, array_like=True):
    """By epoch, oldest first. ``standing``: the seqs that are there, of logs where something was restored."""

    of: dict[int, list[Rule]]
    standing: dict[int, list[tuple[int, int]]] = {}

    def kinds(self, epochs: Any, seqs: Any, keys: Any) -> Any:
        """What became of each record; 0 for nothing."""
        found = np.zeros(len(seqs), np.int8)
        for epoch in np.intersect1d(epochs, np.array(list(self.of), np.int64)):
            rows = np.flatnonzero(epochs == epoch)
            start, end = int(rows[0]), int(rows[-1]) + 1
            of_log = epochs[start:end] == epoch
            for rule in self.of[int(epoch)]:
                meant = rule.mask(seqs[start:end], keys.slice(start, end - start)) & of_log
                found[start:end][meant & (found[start:end] != DELETED)] = rule.kind
        return found

    def erased(self, epochs: Any, seqs: Any, keys: Any) -> Any:
        """Which records must not stay as they are. One that was restored may: if the log has lost it since, to a cap or
        to time, what is here is all there is. If the log has it, it comes from there."""
        kinds = self.kinds(epochs, seqs, keys)
        return (kinds == DELETED) | (kinds == HIDDEN) | self._renewed(kinds, epochs, seqs)

    def renewed(self, epochs: Any, seqs: Any, keys: Any) -> Any:
        """Which records are to be as the log has them now."""
        return self._renewed(self.kinds(epochs, seqs, keys), epochs, seqs)

    def _renewed(self, kinds: Any, epochs: Any, seqs: Any) -> Any:
        renewed = kinds == AMENDED
        if (kinds == RESTORED).any():
            for epoch, ranges in self.standing.items():
                rows = np.flatnonzero((epochs == epoch) & (kinds == RESTORED))
                renewed[rows[inside(seqs[rows], ranges)]] = True
        return renewed

    def may_mean(self, epochs: tuple[int, int], seqs: tuple[int, int]) -> bool:
        """Whether a file with these bounds can have a record that is meant."""
        return any(
            epochs[0] <= epoch <= epochs[1] and any(rule.may_mean(*seqs) for rule in rules)
            for epoch, rules in self.of.items()
        )

    def between(self, first: int, last: int) -> Rules:
        """Those of epochs from ``first`` to ``last``."""
        return Rules(
            {epoch: rules for epoch, rules in self.of.items() if first <= epoch <= last},
            {epoch: ranges for epoch, ranges in self.standing.items() if first <= epoch <= last},
        )


def rules_of(erasures: Iterable[Erasure], known: Container[int]) -> dict[int, list[Rule]]:
    """The rules by epoch, for the epochs that are known."""
    found: dict[int, list[Rule]] = {}
    for erasure in erasures:
        if erasure.epoch in known:
            rules = found.setdefault(erasure.epoch, [])
            rule = _rule(erasure)
            if not (rules and rules[-1].take(rule)):
                rules.append(rule)
    for rules in found.values():
        for rule in rules:
            if rule.seqs is not None:
                rule.seqs.sort()
    return found


def _rule(erasure: Erasure) -> Rule:
    if erasure.kind == "drop":
        return Rule(DELETED)
    limit = erasure.bound if erasure.before is None else min(erasure.bound, erasure.before - 1)
    rule = Rule(_KINDS[erasure.kind], limit, prefix=erasure.prefix)
    if erasure.seqs is not None:
        rule.seqs = [seq for seq in erasure.seqs if seq <= limit]
        rule.limit = NO_LIMIT
    if erasure.key is not None:
        rule.keys = {erasure.key: limit}
        rule.limit = NO_LIMIT
    return rule
