"""The effects of erasure events on companions: which are rewritten without some records, and which are built again.

Companions know the seqs of their records but not the keys. So if an event selects by key, the companion keeps the
records that still exist in the log. It also loses records that retention, a queue or compaction removed from that
range: losing records that cannot be read any more is better than keeping erased ones.

The order of events does not matter: where a record was restored or amended, the log has its current state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from strandline.engine.operations.erasures import Erasure
from strandline.engine.state.ranges import inside
from strandline.history.log_info import LogInfo
from strandline.query.index_files.table import IndexEntry

Ranges = list[tuple[int, int]]
Seqs = npt.NDArray[np.int64]


_NO_SEQS: Seqs = np.empty(0, np.int64)


class ErasureEffect(NamedTuple):
    """The effect on a companion. ``is_dropped``: it is removed. ``is_outdated``: it is built again from the log.
    Otherwise it loses its records outside ``kept`` and those with the seqs ``without``."""

    kept: Ranges
    without: Seqs = _NO_SEQS
    is_outdated: bool = False
    is_dropped: bool = False


class Selected:
    """Records of a log: all up to ``through``, and the listed seqs."""

    def __init__(self) -> None:
        self.through = 0
        self._listed: list[int] = []
        self._seqs: Seqs | None = None

    def add(self, erasure: Erasure) -> None:
        limit = erasure.bound if erasure.before is None else min(erasure.bound, erasure.before - 1)
        if erasure.seqs is None:
            self.through = max(self.through, limit)
        else:
            self._listed += [seq for seq in erasure.seqs if seq <= limit]
            self._seqs = None

    def between(self, first: int, last: int) -> Seqs:
        """The listed seqs from ``first`` to ``last``."""
        if self._seqs is None:
            self._seqs = np.unique(np.array(self._listed, np.int64))
        low, high = np.searchsorted(self._seqs, [first, last + 1])
        return self._seqs[low:high]

    def has_any(self, first: int, last: int) -> bool:
        return first <= min(self.through, last) or len(self.between(first, last)) > 0


class Erased:
    """All events of one log: which records are erased, which are erased if they have a certain key, and which may be
    restored or have other data."""

    def __init__(self) -> None:
        self.gone = Selected()
        self.gone_by_key = Selected()
        self.changed = Selected()
        self.is_dropped = False

    def add(self, erasure: Erasure) -> None:
        if erasure.kind == "drop":
            self.is_dropped = True
        elif erasure.kind in ("restore", "amend"):
            self.changed.add(erasure)
        elif erasure.key is None and erasure.prefix is None:
            self.gone.add(erasure)
        else:
            self.gone_by_key.add(erasure)


class ErasureReach(NamedTuple):
    """A range of seqs of a log whose records belong to the log with this epoch."""

    epoch: int
    first: int
    last: int


def effects_of(
    erasures: Iterable[Erasure],
    entries: Sequence[IndexEntry],
    logs: Mapping[int, LogInfo],
    standing: Callable[[LogInfo], Ranges],
) -> dict[str, ErasureEffect]:
    """The effects on companions, by path. ``logs`` are all logs by epoch; ``standing`` returns the visible seqs of a
    log."""
    erased: dict[int, Erased] = {}
    for erasure in erasures:
        erased.setdefault(erasure.epoch, Erased()).add(erasure)
    reaches: dict[int, list[ErasureReach]] = {}
    stands: dict[int, Ranges] = {}

    def what_stands(epoch: int) -> Ranges:
        if epoch not in stands:
            stands[epoch] = standing(logs[epoch])
        return stands[epoch]

    found: dict[str, ErasureEffect] = {}
    for entry in entries:
        epoch = entry.info.epoch
        if epoch not in reaches:
            reaches[epoch] = [reach for reach in reaches_of(epoch, logs) if reach.epoch in erased]
        if not reaches[epoch]:
            continue
        if epoch not in logs or (epoch in erased and erased[epoch].is_dropped):
            found[entry.path] = ErasureEffect([], is_dropped=True)
            continue
        effect = _effect(entry, reaches[epoch], erased, what_stands)
        if effect is not None:
            found[entry.path] = effect
    return found


def reaches_of(epoch: int, logs: Mapping[int, LogInfo]) -> list[ErasureReach]:
    """The owners of a log's records, newest first: the log itself and, for a fork, the logs it was forked from."""
    found: list[ErasureReach] = []
    last = 2**63 - 1
    owner: int | None = epoch
    while owner is not None:
        info = logs.get(owner)
        base = None if info is None else info.base
        first = 1 if base is None else base.through + 1
        found.append(ErasureReach(owner, first, last))
        last = min(last, first - 1)
        owner = None if base is None else base.epoch
    return found


def _effect(
    entry: IndexEntry,
    reaches: Sequence[ErasureReach],
    erased: Mapping[int, Erased],
    what_stands: Callable[[int], Ranges],
) -> ErasureEffect | None:
    """None if no event refers to the companion."""
    everything = [(entry.info.first, entry.info.last)]
    kept, without = everything, [_NO_SEQS]
    for reach in reaches:
        first, last = max(entry.info.first, reach.first), min(entry.info.last, reach.last)
        of = erased[reach.epoch]
        if first > last:
            continue
        if of.changed.has_any(first, last):
            return ErasureEffect([], is_outdated=True)
        if of.gone.through >= first:
            kept = overlap(kept, around(everything, first, min(last, of.gone.through), []))
        without.append(of.gone.between(first, last))
        if of.gone_by_key.has_any(first, last):
            stands = what_stands(entry.info.epoch)
            if of.gone_by_key.through >= first:
                kept = overlap(kept, around(everything, first, min(last, of.gone_by_key.through), stands))
            seqs = of.gone_by_key.between(first, last)
            without.append(seqs[~inside(seqs, stands)])
    seqs = np.unique(np.concatenate(without))
    return None if kept == everything and not len(seqs) else ErasureEffect(kept, seqs)


# --- ranges: ascending, inclusive, disjoint --------------------------------------------------------------------------


def around(ranges: Ranges, first: int, last: int, instead: Ranges) -> Ranges:
    """The ranges, replaced by ``instead`` between ``first`` and ``last``."""
    before = overlap(ranges, [(1, first - 1)])
    return joined([*before, *overlap(instead, [(first, last)]), *overlap(ranges, [(last + 1, 2**63 - 1)])])


def overlap(these: Ranges, those: Ranges) -> Ranges:
    """The seqs that are in both."""
    found: Ranges = []
    at = other = 0
    while at < len(these) and other < len(those):
        low, high = max(these[at][0], those[other][0]), min(these[at][1], those[other][1])
        if low <= high:
            found.append((low, high))
        if these[at][1] <= those[other][1]:
            at += 1
        else:
            other += 1
    return found


def joined(ranges: Ranges) -> Ranges:
    """The ranges, with adjacent ones joined."""
    found: Ranges = []
    for low, high in ranges:
        if found and found[-1][1] + 1 == low:
            found[-1] = found[-1][0], high
        else:
            found.append((low, high))
    return found
