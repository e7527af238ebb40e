"""Copies that a journal file only refers to, as rows of their own: the same bytes under another log and seq.

A copy is given by the record it was made of. That may be a copy itself, made earlier in the same file, so the copies
are followed back, all of them one step at a time, until every one has an appended record or is known to be lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from strandline.engine.journal.bodies import KEEP_KEYS, KEEP_NODES, Forward, unpack
from strandline.engine.journal.frame import Frame
from strandline.engine.segments.byte_ranges import Pieces, Rows, concatenate
from strandline.engine.segments.writer import Codes, Ints


class Copies:
    """What the forwarding frames of one file say.

    ``ranks`` has, besides the logs that are wanted, those that records were forwarded from: their rows are needed
    even if nothing of them is to be kept.
    """

    def __init__(self, frames: Sequence[Frame], ranks: Mapping[int, int]) -> None:
        self._wanted = len(ranks)
        self.ranks = dict(ranks)
        #: Per target: its log, first seq, time, flags, selection, and where its metas begin among those given (-1: none
        #: are).
        self._targets: list[tuple[int, int, int, int, int, int]] = []
        #: Per selection: whose records, and which of all ranges.
        self._selections: list[tuple[int, int, int]] = []
        self._ranges: list[tuple[int, int]] = []
        self._metas: list[bytes | None] = []
        for frame in frames:
            self._read(frame)

    def _read(self, frame: Frame) -> None:
        forward = unpack(frame.body, Forward)
        base = len(self._selections)
        for ranges in forward.selections:
            source = self.ranks.setdefault(frame.epoch, len(self.ranks))
            self._selections.append((source, len(self._ranges), len(ranges)))
            self._ranges += ranges
        for target in forward.targets:
            if target.epoch and target.selection >= 0:
                # A log that nobody wants may still be one that copies were made of.
                rank = self.ranks.setdefault(target.epoch, len(self.ranks))
                metas = -1
                if target.metas is not None:
                    metas = len(self._metas)
                    self._metas += target.metas
                ts = target.ts or frame.ts
                self._targets.append((rank, target.first, ts, target.flags, base + target.selection, metas))

    def add_to(self, rows: Rows, files: list[bytes]) -> Rows:
        """The rows of the file's appends, which are sorted by log and seq, with the copies behind them.

        Given metas become another source of bytes in ``files``.
        """
        if not self._targets:
            return rows if len(self.ranks) == self._wanted else _take(rows, np.flatnonzero(rows.ranks < self._wanted))
        expanded = _Expanded(self._targets, self._selections, self._ranges)
        expanded.follow_back(rows)
        copies = expanded.rows(rows)
        if self._metas:
            self._put_metas(copies, expanded, files)
        together = concatenate([rows, copies])
        return _take(together, np.flatnonzero(together.ranks < self._wanted))

    def _put_metas(self, copies: Rows, expanded: _Expanded, files: list[bytes]) -> None:
        lengths = np.array([-1 if meta is None else len(meta) for meta in self._metas], np.int64)
        sizes = np.maximum(lengths, 0)
        starts = np.cumsum(sizes) - sizes
        given = np.flatnonzero(expanded.meta >= 0)
        chosen = expanded.meta[given]
        copies.metas.sources[given] = len(files)
        copies.metas.starts[given] = starts[chosen]
        copies.metas.lengths[given] = lengths[chosen]
        files.append(b"".join(meta for meta in self._metas if meta is not None))


class _Expanded:
    """Targets as one row per copy. Those whose record is lost are dropped when they have been followed back."""

    def __init__(
        self,
        targets: Sequence[tuple[int, int, int, int, int, int]],
        selections: Sequence[tuple[int, int, int]],
        ranges: Sequence[tuple[int, int]],
    ) -> None:
        lows, highs = np.array(ranges, np.int64).T
        sizes = highs - lows + 1
        # Every seq of every range, and where each selection begins among them.
        seqs = _runs(lows, sizes)
        ends = np.concatenate(([0], np.cumsum(sizes)))
        sources, at, count = np.array(selections, np.int64).T
        starts, lengths = ends[at], ends[at + count] - ends[at]
        ranks, firsts, ts, flags, selection, metas = np.array(targets, np.int64).T
        per_target = lengths[selection]
        target = np.repeat(np.arange(len(targets)), per_target)
        place = np.arange(len(target)) - np.repeat(np.cumsum(per_target) - per_target, per_target)
        self._ranks = ranks[target].astype(np.int32)
        self._seqs = firsts[target] + place
        self._ts = ts[target]
        self._keys = (flags[target] & KEEP_KEYS) != 0
        self._nodes = (flags[target] & KEEP_NODES) != 0
        #: Which of the given metas, -1: that of the record.
        self.meta: Ints = np.where(metas[target] < 0, -1, metas[target] + place)
        #: What each is a copy of.
        self._source_ranks = sources[selection][target].astype(np.int32)
        self._source_seqs = seqs[starts[selection][target] + place]
        self._origin: Ints = np.full(len(target), -1, np.int64)

    def follow_back(self, rows: Rows) -> None:
        """Find for every copy the row of the appended record that it goes back to."""
        open_: Ints = np.arange(len(self._seqs))
        order = np.lexsort((self._seqs, self._ranks))
        ranks, seqs = self._ranks[order], self._seqs[order]
        while len(open_):
            wanted = self._source_ranks[open_], self._source_seqs[open_]
            found = _find(rows.ranks, rows.seqs, *wanted)
            self._origin[open_] = found
            open_ = open_[found < 0]
            parents = _find(ranks, seqs, self._source_ranks[open_], self._source_seqs[open_])
            # What is neither a record nor a copy is lost.
            open_, parents = open_[parents >= 0], order[parents[parents >= 0]]
            self._source_ranks[open_] = self._source_ranks[parents]
            self._source_seqs[open_] = self._source_seqs[parents]
            self._keys[open_] &= self._keys[parents]
            self._nodes[open_] &= self._nodes[parents]
            self.meta[open_] = np.where(self.meta[open_] < 0, self.meta[parents], self.meta[open_])

    def rows(self, rows: Rows) -> Rows:
        found = np.flatnonzero(self._origin >= 0)
        self.meta = self.meta[found]
        origin = self._origin[found]
        assert isinstance(rows.keys, Pieces)
        assert isinstance(rows.nodes, Pieces)
        keys, nodes = rows.keys.take(origin), rows.nodes.take(origin)
        keys.lengths[~self._keys[found]] = -1
        nodes.lengths[~self._nodes[found]] = -1
        return Rows(
            self._ranks[found],
            self._seqs[found],
            self._ts[found],
            keys,
            nodes,
            rows.metas.take(origin),
            rows.data.take(origin),
        )


def _runs(lows: Ints, sizes: Ints) -> Ints:
    """low, low + 1 ... for every range, behind each other."""
    ends = np.cumsum(sizes)
    return np.repeat(lows - (ends - sizes), sizes) + np.arange(ends[-1] if len(ends) else 0)


def _find(ranks: Codes, seqs: Ints, wanted_ranks: Codes, wanted_seqs: Ints) -> Ints:
    """Where among rows that are sorted by log and seq each wanted one is; -1 where it is not."""
    found: Ints = np.full(len(wanted_seqs), -1, np.int64)
    if not len(found):
        return found
    order = np.argsort(wanted_ranks, kind="stable")
    logs, starts = np.unique(wanted_ranks[order], return_index=True)
    ends = [*starts[1:].tolist(), len(order)]
    lows, highs = np.searchsorted(ranks, logs), np.searchsorted(ranks, logs, "right")
    for low, high, start, end in zip(lows.tolist(), highs.tolist(), starts.tolist(), ends, strict=True):
        if low == high:
            continue
        mine = order[start:end]
        at = np.minimum(low + np.searchsorted(seqs[low:high], wanted_seqs[mine]), high - 1)
        found[mine] = np.where(seqs[at] == wanted_seqs[mine], at, -1)
    return found


def _take(rows: Rows, chosen: NDArray[np.int64]) -> Rows:
    assert isinstance(rows.keys, Pieces)
    assert isinstance(rows.nodes, Pieces)
    return Rows(
        rows.ranks[chosen],
        rows.seqs[chosen],
        rows.ts[chosen],
        rows.keys.take(chosen),
        rows.nodes.take(chosen),
        rows.metas.take(chosen),
        rows.data.take(chosen),
    )
