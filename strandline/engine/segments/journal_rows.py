"""The records of whole journal files as arrays, for sealing.

A journal can have half a million frames with one record each. ``scan`` verifies the frames one by one; the positions of
their contents (see :mod:`strandline.engine.journal.frame` for the layout) are computed for all frames at once.

A forwarded copy refers to the record that it was made from. That record may itself be a copy, made earlier in the same
file. :class:`ForwardedRows` therefore follows all copies back, one step at a time, until each has an appended record or
is known to be lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from strandline.engine.disk import Disk
from strandline.engine.errors import MissingFile
from strandline.engine.journal.bodies import KEEP_KEYS, KEEP_NODES, Forward, unpack
from strandline.engine.journal.frame import (
    FILE_HEADER,
    HAS_EXTRAS,
    HAS_KEYS,
    HAS_METAS,
    HAS_NODES,
    HAS_TIME,
    HEADER,
    NO_BYTES,
    NO_STRING,
    FileKind,
    Frame,
    FrameType,
    read_file_header,
    scan,
    whole_writes,
)
from strandline.engine.segments.byte_ranges import Pieces, Rows, concatenate
from strandline.engine.segments.writer import Codes, Ints


class ForwardedRows:
    """The contents of the forwarding frames of one file.

    ``ranks`` has the requested logs, and also the logs that records were forwarded from: their rows are needed even if
    none of them is kept.
    """

    def __init__(self, frames: Sequence[Frame], ranks: Mapping[int, int]) -> None:
        self._wanted = len(ranks)
        self.ranks = dict(ranks)
        #: Per target: its log, first seq, time, flags, selection, and the index of its first replacement meta (-1:
        #: none).
        self._targets: list[tuple[int, int, int, int, int, int]] = []
        #: Per selection: the source log, and the first and last of its ranges.
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
                # A log that is not requested may still be the source of copies.
                rank = self.ranks.setdefault(target.epoch, len(self.ranks))
                metas = -1
                if target.metas is not None:
                    metas = len(self._metas)
                    self._metas += target.metas
                ts = target.ts or frame.ts
                self._targets.append((rank, target.first, ts, target.flags, base + target.selection, metas))

    def add_to(self, rows: Rows, files: list[bytes]) -> Rows:
        """Return the rows of the file's appends, which are sorted by log and seq, followed by the copies.

        Replacement metas become another source of bytes in ``files``.
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
    """Targets as one row per copy. Copies of lost records are dropped once they have been followed back."""

    def __init__(
        self,
        targets: Sequence[tuple[int, int, int, int, int, int]],
        selections: Sequence[tuple[int, int, int]],
        ranges: Sequence[tuple[int, int]],
    ) -> None:
        lows, highs = np.array(ranges, np.int64).T
        sizes = highs - lows + 1
        # Every seq of every range, and the start of each selection among them.
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
        #: The index of the replacement meta; -1: the meta of the record.
        self.meta: Ints = np.where(metas[target] < 0, -1, metas[target] + place)
        #: The source of each copy.
        self._source_ranks = sources[selection][target].astype(np.int32)
        self._source_seqs = seqs[starts[selection][target] + place]
        self._origin: Ints = np.full(len(target), -1, np.int64)

    def follow_back(self, rows: Rows) -> None:
        """Find the row of the appended record that each copy leads back to."""
        open_: Ints = np.arange(len(self._seqs))
        order = np.lexsort((self._seqs, self._ranks))
        ranks, seqs = self._ranks[order], self._seqs[order]
        while len(open_):
            wanted = self._source_ranks[open_], self._source_seqs[open_]
            found = _find(rows.ranks, rows.seqs, *wanted)
            self._origin[open_] = found
            open_ = open_[found < 0]
            parents = _find(ranks, seqs, self._source_ranks[open_], self._source_seqs[open_])
            # A source that is neither a record nor a copy is lost.
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
    """Return low, low + 1 ... for every range, concatenated."""
    ends = np.cumsum(sizes)
    return np.repeat(lows - (ends - sizes), sizes) + np.arange(ends[-1] if len(ends) else 0)


def _find(ranks: Codes, seqs: Ints, wanted_ranks: Codes, wanted_seqs: Ints) -> Ints:
    """Return the index of each wanted row among rows sorted by log and seq; -1 if it is missing."""
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


#: The fields of HEADER, for many frames at once.
_HEADERS = np.dtype(
    [
        ("mark", "<u4"),
        ("length", "<u4"),
        ("checksum", "<u8"),
        ("type", "u1"),
        ("flags", "u1"),
        ("place", "<u2"),
        ("count", "<u4"),
        ("epoch", "<u8"),
        ("first", "<u8"),
        ("ts", "<u8"),
        ("reserved", "<u8"),
    ]
)
assert _HEADERS.itemsize == HEADER.size


def read_journals(disk: Disk, paths: Sequence[str], ranks: Mapping[int, int]) -> Rows | None:
    """Return the records of the logs whose epochs are in ``ranks``, or None if there are none.

    Damaged ranges are skipped: the replay of the journal has reported them.
    """
    files: list[bytes] = []
    parts: list[Rows] = []
    for path in paths:
        try:
            raw = disk.read(path)
        except FileNotFoundError:
            raise MissingFile(path) from None
        _, seed = read_file_header(path, raw, FileKind.JOURNAL)
        offsets: list[int] = []
        forwards: list[Frame] = []
        for frame in whole_writes(scan(raw, seed, FILE_HEADER.size)):
            if type(frame) is Frame:
                if frame.type is FrameType.APPEND:
                    offsets.append(frame.offset)
                elif frame.type is FrameType.FORWARD:
                    forwards.append(frame)
        if not offsets:
            continue
        source = len(files)
        files.append(raw)
        copies = ForwardedRows(forwards, ranks)
        frames = _Frames(raw, offsets, copies.ranks)
        if len(frames):
            rows = frames.rows(source, files.__getitem__)
            parts.append(copies.add_to(rows, files))
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else concatenate(parts)


class _Frames:
    """The append frames of one file, by log and seq. Their bodies are parsed from left to right."""

    def __init__(self, raw: bytes, offsets: Sequence[int], ranks: Mapping[int, int]) -> None:
        self._raw = raw
        places = np.array(offsets, np.int64)
        headers = _at_every_byte(raw, _HEADERS)[places]
        epochs, inverse = np.unique(headers["epoch"], return_inverse=True)
        rank = np.array([ranks.get(epoch, -1) for epoch in epochs.tolist()], np.int32)[inverse]
        # There are few frames compared to rows, so sort the frames: the rows are then sorted as well.
        order = np.lexsort((headers["first"], rank))
        order = order[rank[order] >= 0]
        self._headers = headers[order]
        self._rank = rank[order]
        self._count: Ints = self._headers["count"].astype(np.int64)
        #: The start of the unparsed part of each body.
        self._at: Ints = places[order] + HEADER.size
        #: For every row: its frame, its position in the frame, and the first row of the frame.
        self._frame = np.repeat(np.arange(len(order)), self._count)
        self._start = np.cumsum(self._count) - self._count
        self._place = np.arange(len(self._frame)) - self._start[self._frame]

    def __len__(self) -> int:
        return len(self._headers)

    def rows(self, source: int, load: Callable[[int], bytes]) -> Rows:
        sources = np.full(len(self._frame), source, np.int32)
        bounds = self._at[self._frame] + 4 * self._place
        words = _at_every_byte(self._raw, np.dtype("<u4"))
        lows, highs = words[bounds].astype(np.int64), words[bounds + 4].astype(np.int64)
        self._at += 4 * (self._count + 1)
        keys = Pieces(load, sources, *self._take_column(HAS_KEYS, np.dtype("<u2"), NO_STRING))
        nodes = Pieces(load, sources, *self._take_column(HAS_NODES, np.dtype("<u2"), NO_STRING))
        metas = Pieces(load, sources, *self._take_column(HAS_METAS, np.dtype("<u4"), NO_BYTES))
        times = self._headers["ts"].astype(np.int64)
        timed = np.flatnonzero(self._headers["flags"] & HAS_TIME)
        times[timed] = _at_every_byte(self._raw, np.dtype("<u8"))[self._at[timed]].astype(np.int64)
        self._at[timed] += 8
        extras = np.flatnonzero(self._headers["flags"] & HAS_EXTRAS)
        self._at[extras] += 4 + words[self._at[extras]].astype(np.int64)
        data = Pieces(load, sources, self._at[self._frame] + lows, highs - lows)
        seqs = self._headers["first"].astype(np.int64)[self._frame] + self._place
        return Rows(self._rank[self._frame], seqs, times[self._frame], keys, nodes, metas, data)

    def _take_column(self, flag: int, dtype: np.dtype[Any], none: int) -> tuple[Ints, Ints]:
        """Return the starts of the values of an optional column, and their lengths (-1: none)."""
        lengths = np.full(len(self._frame), -1, np.int64)
        present = (self._headers["flags"] & flag) != 0
        if not present.any():
            return np.zeros(len(lengths), np.int64), lengths
        rows = np.flatnonzero(present[self._frame])
        found = _at_every_byte(self._raw, dtype)[self._at[self._frame[rows]] + dtype.itemsize * self._place[rows]]
        lengths[rows] = np.where(found == none, -1, found.astype(np.int64))
        sizes = np.maximum(lengths, 0)
        ends = np.concatenate(([0], np.cumsum(sizes)))
        self._at[present] += dtype.itemsize * self._count[present]
        starts = self._at[self._frame] + ends[:-1] - ends[self._start[self._frame]]
        self._at += ends[self._start + self._count] - ends[self._start]
        return starts, lengths


def _at_every_byte(raw: bytes, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return a view whose i-th element is read from the bytes at i, so that indexing reads numbers at any offset."""
    return np.ndarray((len(raw) - dtype.itemsize + 1,), dtype, raw, strides=(1,))
