"""Replay runs of append frames in bulk.

A journal can have millions of frames with one record each. Their headers are read as one array, and the records of one
log become a few blocks instead of one block per frame. A run contains only plain frames: appends that are a whole
write.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import pairwise, repeat
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from strandline.engine.clock import FUTURE_MS, later
from strandline.engine.journal.bodies import Extras
from strandline.engine.journal.frame import (
    FILE_HEADER,
    HAS_EXTRAS,
    HAS_KEYS,
    HAS_METAS,
    HAS_NODES,
    HAS_TIME,
    HEADER,
    MORE,
    NO_BYTES,
    NO_STRING,
    Frame,
    FrameDamage,
    FrameReader,
    FrameType,
    VerifiedFrames,
    decode_append,
    frame_in,
)
from strandline.engine.record import Remembered
from strandline.engine.state.block import Block, Numbers

#: The fields of HEADER, for many frames at once.
HEADERS = np.dtype(
    [
        ("mark", "<u4"),
        ("length", "<u4"),
        ("checksum", "<u8"),
        ("type", "u1"),
        ("flags", "u1"),
        ("place", "<u2"),
        ("count", "<u4"),
        ("epoch", "<i8"),
        ("first", "<i8"),
        ("ts", "<i8"),
        ("reserved", "<i8"),
    ]
)
assert HEADERS.itemsize == HEADER.size
_U2, _U4, _I8 = np.dtype("<u2"), np.dtype("<u4"), np.dtype("<i8")

#: Shorter runs are replayed frame by frame, because the arrays would cost more than they save.
MIN_FRAMES = 16
#: Maximum records per block. When retention evicts the oldest records, their memory is freed block by block.
BLOCK_ROWS = 1024

Ints = NDArray[np.int64]
_decode_extras = msgspec.msgpack.Decoder(Extras).decode


class FrameColumn(NamedTuple):
    """Where the value of each frame starts and ends in the piece. A start of 0 means that the frame has no value."""

    starts: Ints
    ends: Ints

    def values(self, raw: bytes, start: int, end: int) -> list[bytes | None] | None:
        starts = self.starts[start:end]
        if not starts.any():
            return None
        bounds = zip(starts.tolist(), self.ends[start:end].tolist(), strict=True)
        return [raw[low:high] if low else None for low, high in bounds]


class LogRun:
    """The frames of one log in a run, by their numbers in the run. Their seqs are consecutive."""

    __slots__ = ("_end", "_run", "_start", "epoch")

    def __init__(self, run: AppendRun, epoch: int, start: int, end: int) -> None:
        self._run = run
        self._start = start
        self._end = end
        self.epoch = epoch

    def __len__(self) -> int:
        return self._end - self._start

    @property
    def first(self) -> int:
        return int(self._run.firsts[self._start])

    @property
    def reserved(self) -> int:
        """The reservation in the last frame."""
        return int(self._run.headers["reserved"][self._end - 1])

    @property
    def now(self) -> int:
        """When the last frame was written."""
        return int(self._run.written[self._end - 1])

    def last_ts(self, before: int) -> int:
        """Return the time of the last record that is not in the future, or ``before`` if there is none."""
        times, written = self._run.times[self._start : self._end], self._run.written[self._start : self._end]
        present = np.flatnonzero(times - written <= FUTURE_MS)
        return int(times[present[-1]]) if len(present) else before

    def frames(self) -> Iterator[Frame]:
        return map(self._run.frame, range(self._start, self._end))

    def places(self) -> tuple[Ints, Ints]:
        """Return the first seqs of the frames, and their offsets in the file."""
        here = slice(self._start, self._end)
        return self._run.firsts[here], self._run.offsets[here]

    def blocks(self) -> Iterator[Block]:
        """Yield the records as blocks."""
        run, at = self._run, self._start
        while at < self._end:
            end = min(at + BLOCK_ROWS, self._end)
            if not run.is_single:
                several = np.flatnonzero(run.counts[at:end] != 1)
                end = end if not len(several) else at + int(several[0])
            if end == at:
                yield decode_append(run.frame(at))[0]
                end += 1
            else:
                yield run.block(at, end)
            at = end

    def noted(self) -> tuple[list[Extras], list[Remembered], list[int]]:
        """Return, for the appends with extras: the extras, the results of the appends, and when they were written."""
        run = self._run
        if run.extras is None:
            return [], [], []
        rows = self._start + np.flatnonzero(run.extras.starts[self._start : self._end])
        raw, firsts = run.raw, run.firsts[rows]
        bounds = zip(run.extras.starts[rows].tolist(), run.extras.ends[rows].tolist(), strict=True)
        lasts, times, written = firsts + run.counts[rows] - 1, run.times[rows], run.written[rows]
        at = np.where(written == times, 0, written)
        done = map(Remembered, firsts.tolist(), lasts.tolist(), times.tolist(), repeat(False), at.tolist())
        return [_decode_extras(raw[low:high]) for low, high in bounds], list(done), written.tolist()


class AppendRun:
    """Consecutive plain append frames of any logs. They are numbered by log, and in the order of writing within a
    log."""

    def __init__(self, stretch: VerifiedFrames, places: Ints, headers: NDArray[Any]) -> None:
        self.raw = stretch.raw
        self.base = stretch.base
        #: Where the run ends in its file.
        self.end = stretch.base + int(places[-1]) + int(headers["length"][-1])
        self._as_written = places
        epochs = headers["epoch"]
        order = slice(None) if (epochs == epochs[0]).all() else np.argsort(epochs, kind="stable")
        self.headers = headers[order]
        self._places: Ints = places[order]
        self.offsets: Ints = self._places + self.base
        self.firsts: Ints = np.ascontiguousarray(self.headers["first"])
        self.counts: Ints = self.headers["count"].astype(np.int64)
        self.written: Ints = np.ascontiguousarray(self.headers["ts"])
        #: Whether every frame has one record.
        self.is_single = bool((self.counts == 1).all())
        #: When the last frame was written, or the latest time in the run if it is at most a day later.
        self.last_ts = later(int(self.written.max()), int(headers["ts"][-1]))

    def __len__(self) -> int:
        return len(self._places)

    def frames(self) -> Iterator[Frame]:
        """Yield the frames as they were written."""
        for place in self._as_written.tolist():
            yield frame_in(self.raw, place, self.base + place)

    def frame(self, at: int) -> Frame:
        place = int(self._places[at])
        return frame_in(self.raw, place, self.base + place)

    def logs(self) -> list[LogRun] | None:
        """Return the frames of each log, or None if the seqs of a log are not consecutive."""
        epochs, firsts, counts = self.headers["epoch"], self.firsts, self.counts
        is_other = epochs[1:] != epochs[:-1]
        follows = firsts[1:] == firsts[:-1] + counts[:-1]
        if not (follows | is_other).all() or not counts.all():
            return None
        self._take_apart()
        bounds = [0, *(np.flatnonzero(is_other) + 1).tolist(), len(epochs)]
        first_epochs = epochs[bounds[:-1]].tolist()
        return [LogRun(self, epoch, *each) for epoch, each in zip(first_epochs, pairwise(bounds), strict=True)]

    def _take_apart(self) -> None:
        """Locate all parts of the frames, from left to right; see :mod:`strandline.engine.journal.frame`.

        In frames with several records, only the time and the extras are located.
        """
        raw, flags = self.raw, self.headers["flags"]
        words = at_every_byte(raw, _U4)
        at: Ints = self._places + HEADER.size
        lows, highs = words[at].astype(np.int64), words[at + 4].astype(np.int64)
        at += 4 * (self.counts + 1)
        self._keys = self._take_column(at, HAS_KEYS, _U2, NO_STRING)
        self._nodes = self._take_column(at, HAS_NODES, _U2, NO_STRING)
        self._metas = self._take_column(at, HAS_METAS, _U4, NO_BYTES)
        self.times: Ints = self.written
        timed = np.flatnonzero(flags & HAS_TIME)
        if len(timed):
            self.times = self.times.copy()
            self.times[timed] = at_every_byte(raw, _I8)[at[timed]]
            at[timed] += 8
        self.extras: FrameColumn | None = None
        noted = np.flatnonzero(flags & HAS_EXTRAS)
        if len(noted):
            starts: Ints = np.zeros(len(at), np.int64)
            starts[noted] = at[noted] + 4
            at[noted] += 4 + words[at[noted]].astype(np.int64)
            self.extras = FrameColumn(starts, at.copy())
        self._data = FrameColumn(at + lows, at + highs)
        #: The cumulative sizes of the payloads.
        self._sizes: Ints = np.concatenate(([0], np.cumsum(highs - lows)))
        #: The cumulative number of changes of the time.
        self._changes: Ints = np.concatenate(([0], np.cumsum(self.times[1:] != self.times[:-1])))

    def _take_column(self, at: Ints, flag: int, dtype: np.dtype[Any], none: int) -> FrameColumn | None:
        """Locate an optional column, and move ``at`` past it."""
        present = np.flatnonzero(self.headers["flags"] & flag)
        if not len(present):
            return None
        starts: Ints = np.zeros(len(at), np.int64)
        single = present[self.counts[present] == 1]
        found = at_every_byte(self.raw, dtype)[at[single]].astype(np.int64)
        is_some = found != none
        starts[single[is_some]] = at[single[is_some]] + dtype.itemsize
        at[single] += dtype.itemsize + np.where(is_some, found, 0)
        for row in present[self.counts[present] > 1].tolist():
            lengths = np.frombuffer(self.raw, dtype, int(self.counts[row]), int(at[row]))
            at[row] += lengths.nbytes + int(lengths[lengths != none].sum(dtype=np.int64))
        return FrameColumn(starts, at.copy())

    def block(self, start: int, end: int) -> Block:
        """Return the records of frames with one record each."""
        raw = self.raw
        bounds = zip(self._data.starts[start:end].tolist(), self._data.ends[start:end].tolist(), strict=True)
        offsets = array("I", (self._sizes[start : end + 1] - self._sizes[start]).astype(_U4).tobytes())
        ts: int | Numbers = int(self.times[start])
        if self._changes[start] != self._changes[end - 1]:
            ts = array("q", self.times[start:end].tobytes())
        return Block(
            int(self.firsts[start]),
            int(self.firsts[end - 1]),
            ts,
            offsets,
            b"".join([raw[low:high] for low, high in bounds]),
            _texts(None if self._keys is None else self._keys.values(raw, start, end)),
            _texts(None if self._nodes is None else self._nodes.values(raw, start, end)),
            None if self._metas is None else self._metas.values(raw, start, end),
        )


def _texts(values: list[bytes | None] | None) -> list[str | None] | None:
    return None if values is None else [None if value is None else value.decode() for value in values]


def with_runs(reader: FrameReader, offset: int = FILE_HEADER.size) -> Iterator[Frame | FrameDamage | AppendRun]:
    """Yield the frames of a file from an offset on. Plain appends are combined into runs where there are enough of
    them."""
    for item in reader.stretches(offset):
        if isinstance(item, FrameDamage):
            yield item
        elif len(item.places) < MIN_FRAMES:
            yield from item.frames()
        else:
            yield from _runs_in(item)


def _runs_in(stretch: VerifiedFrames) -> Iterator[Frame | AppendRun]:
    places: Ints = np.array(stretch.places, np.int64)
    headers = at_every_byte(stretch.raw, HEADERS)[places]
    plain = (headers["type"] == FrameType.APPEND) & (headers["flags"] & MORE == 0) & (headers["place"] == 0)
    bounds = [0, *(np.flatnonzero(plain[1:] != plain[:-1]) + 1).tolist(), len(places)]
    for start, end in pairwise(bounds):
        if plain[start] and end - start >= MIN_FRAMES:
            yield AppendRun(stretch, places[start:end], headers[start:end])
        else:
            for place in stretch.places[start:end]:
                yield frame_in(stretch.raw, place, stretch.base + place)


def at_every_byte(raw: bytes, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return a view whose i-th element is read from the bytes at i, so that indexing reads numbers at any offset."""
    return np.ndarray((len(raw) - dtype.itemsize + 1,), dtype, raw, strides=(1,))
