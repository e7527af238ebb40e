"""What erasure events mean for companions: which of them are written anew, without what, or made again from the log.

Companions know the seqs of their records, not the keys. So where an event selects by key, what stands in the log now
decides, and records that a cap, time, a queue or compaction took from that range meanwhile go from the companion as
well: it is better to forget too much of what nobody can read any more than to keep what was erased.

In which order events came does not matter: wherever something came back or was changed, the log says how it is now.
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
    """What becomes of a companion. ``is_dropped``: it goes. ``is_outdated``: it has to be made again from the log. Else
    its records outside of ``kept`` and those of the seqs ``without`` go, if it has any."""

    kept: Ranges
    without: Seqs = _NO_SEQS
    is_outdated: bool = False
    is_dropped: bool = False


class Selected:
    """Records of a log: all up to ``through``, and the ``seqs``."""

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
        """Of the seqs, those from ``first`` to ``last``."""
        if self._seqs is None:
            self._seqs = np.unique(np.array(self._listed, np.int64))
        low, high = np.searchsorted(self._seqs, [first, last + 1])
        return self._seqs[low:high]

    def has_any(self, first: int, last: int) -> bool:
        return first <= min(self.through, last) or len(self.between(first, last)) > 0


class Erased:
    """All that events say of one log: which records are gone, which are if they have some key, and which may be there
    again or have other data."""

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
    """The seqs of a log, from ``first`` to ``last``, that are the own records of the log of this epoch."""

    epoch: int
    first: int
    last: int


def effects_of(
    erasures: Iterable[Erasure],
    entries: Sequence[IndexEntry],
    logs: Mapping[int, LogInfo],
    standing: Callable[[LogInfo], Ranges],
) -> dict[str, ErasureEffect]:
    """By the path of each companion that may be concerned. ``logs`` are all that there are, by epoch; ``standing`` says
    which seqs of a log readers see."""
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
    """Whose records a log has, the newest first: its own and, if it is a fork, those of the logs it goes back to."""
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
    """None if nothing of the companion is meant."""
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


# --- ranges: ascending, inclusive, apart -----------------------------------------------------------------------------


def around(ranges: Ranges, first: int, last: int, instead: Ranges) -> Ranges:
    """The ranges with what others have ``instead`` from ``first`` to ``last``."""
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
    """The same with those that touch as one."""
    found: Ranges = []
    for low, high in ranges:
        if found and found[-1][1] + 1 == low:
            found[-1] = found[-1][0], high
        else:
            found.append((low, high))
    return found
