"""The records of whole journal files as arrays: where everything lies, without a look at a single record.

A journal can have half a million frames of one record each. So the frames are verified one by one, by
``scan``, but what is in them (see :mod:`strandline.engine.journal.frame` for the layout) is worked out for all at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from strandline.engine.disk import Disk
from strandline.engine.errors import MissingFile
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
)
from strandline.engine.journal.groups import whole
from strandline.engine.segments.byte_ranges import Pieces, Rows, concatenate
from strandline.engine.segments.forwarded_rows import Copies
from strandline.engine.segments.writer import Ints

#: HEADER, for many frames at once.
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
    """The records of the logs whose epochs are in ``ranks``; None when there are none.

    Damaged stretches are passed over: whoever replayed the journal has reported them.
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
        for frame in whole(scan(raw, seed, FILE_HEADER.size)):
            if type(frame) is Frame:
                if frame.type is FrameType.APPEND:
                    offsets.append(frame.offset)
                elif frame.type is FrameType.FORWARD:
                    forwards.append(frame)
        if not offsets:
            continue
        source = len(files)
        files.append(raw)
        copies = Copies(forwards, ranks)
        frames = _Frames(raw, offsets, copies.ranks)
        if len(frames):
            rows = frames.rows(source, files.__getitem__)
            parts.append(copies.add_to(rows, files))
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else concatenate(parts)


class _Frames:
    """The append frames of one file, by log and seq. Their bodies are taken apart from left to right."""

    def __init__(self, raw: bytes, offsets: Sequence[int], ranks: Mapping[int, int]) -> None:
        self._raw = raw
        places = np.array(offsets, np.int64)
        headers = _at_every_byte(raw, _HEADERS)[places]
        epochs, inverse = np.unique(headers["epoch"], return_inverse=True)
        rank = np.array([ranks.get(epoch, -1) for epoch in epochs.tolist()], np.int32)[inverse]
        # Frames are few beside their rows, so the order is made here: the rows then come out sorted already.
        order = np.lexsort((headers["first"], rank))
        order = order[rank[order] >= 0]
        self._headers = headers[order]
        self._rank = rank[order]
        self._count: Ints = self._headers["count"].astype(np.int64)
        #: Where the part of each body begins that is still to be looked at.
        self._at: Ints = places[order] + HEADER.size
        #: For every row its frame, its place in the frame, and the row its frame starts at.
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
        """Where the values of an optional column start, and their lengths (-1: none)."""
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
    """A view whose i-th element is read from the bytes at i: indexing it reads numbers from anywhere."""
    return np.ndarray((len(raw) - dtype.itemsize + 1,), dtype, raw, strides=(1,))
