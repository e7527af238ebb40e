"""The journal of touched keys, by generation.

:class:`TouchFilter` is a Bloom filter whose cells hold generations instead of bits. Touching a key sets ``k`` cells to
the current generation. The key was touched after a generation only if all its cells hold a later one. It may report
false positives, never false negatives.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection

import numpy as np

from strandline.delivery.invalidation.keys import ID_MASK
from strandline.schema.profiles.touch_settings import MemorySettings

#: From this many keys on, one vectorized lookup is faster than single ones.
_MANY = 24
#: Spreads the 32 bits of a key over 64. The two halves are the start and the step of its cells.
_SPREAD = 0x9E3779B97F4A7C15
_MASK64 = (1 << 64) - 1
_MASK32 = (1 << 32) - 1


class TouchFilter:
    """A filter of ``size`` cells with 4 bytes each. Memory is used only for cells that are set."""

    __slots__ = ("_array", "_cells", "_mask", "k", "size")

    def __init__(self, pow2: int, k: int) -> None:
        self.size = 1 << pow2
        self.k = k
        self._mask = self.size - 1
        self._array = np.zeros(self.size, dtype=np.uint32)
        #: The same memory as a buffer, because reading single cells is faster this way.
        self._cells = self._array.data

    @property
    def nbytes(self) -> int:
        return int(self._array.nbytes)

    def set(self, ids: Collection[int], generation: int) -> None:
        """Touch the keys in this generation, which must be later than all before."""
        if ids:
            self._array[self._positions(ids)] = generation

    def touched_after(self, ids: Collection[int], generation: int) -> bool:
        """Whether any of the keys may have been touched in a later generation."""
        if len(ids) >= _MANY:
            return bool((self._array[self._positions(ids)] > generation).all(axis=0).any())
        cells, mask, k = self._cells, self._mask, self.k
        for key in ids:
            spread = key * _SPREAD & _MASK64
            at, step = spread >> 32, spread & _MASK32 | 1
            for _ in range(k):
                if cells[at & mask] <= generation:
                    break
                at += step
            else:
                return True
        return False

    def _positions(self, ids: Collection[int]) -> np.ndarray[tuple[int, int], np.dtype[np.uint64]]:
        """The cells of the keys, with one row for each of the ``k`` cells."""
        spread = np.fromiter(ids, dtype=np.uint64, count=len(ids)) * np.uint64(_SPREAD)
        start, step = spread >> np.uint64(32), spread & np.uint64(_MASK32) | np.uint64(1)
        times = np.arange(self.k, dtype=np.uint64)[:, None]
        return (start[None, :] + times * step[None, :]) & np.uint64(self._mask)


#: The maximum number of flushed buckets, and of their keys, that are kept with full keys.
MAX_EXACT_BUCKETS = 256
MAX_EXACT_KEYS = 200_000
#: The period over which flush intervals are measured.
_INTERVALS_MS = 10_000.0


class TouchBucket:
    """A flushed bucket. If ``everything``, all keys count as touched. Times are milliseconds since 1970."""

    __slots__ = ("everything", "flushed_at", "generation", "ids", "keys", "source_seq", "started_at")

    def __init__(
        self,
        generation: int,
        keys: Collection[int],
        everything: bool,
        source_seq: int,
        started_at: int,
        flushed_at: int,
    ) -> None:
        self.generation = generation
        self.keys = frozenset(keys)
        self.ids = frozenset(key & ID_MASK for key in keys)
        self.everything = everything
        #: The last record that was processed for this bucket or an earlier one.
        self.source_seq = source_seq
        self.started_at = started_at
        self.flushed_at = flushed_at


class TouchJournal:
    """The touched keys of one log, in memory. Times are in milliseconds: ``now`` of a monotonic clock, ``wall`` since
    1970."""

    def __init__(self, settings: MemorySettings, source_seq: int, now: float, wall: int) -> None:
        self._max_keys = settings.pending_max_keys
        self.filter = TouchFilter(settings.filter_pow2, settings.k)
        self.generation = 0
        #: The keys of the open bucket.
        self.pending: set[int] = set()
        #: The open bucket touches all keys.
        self.everything = False
        #: The open bucket must be flushed even if it touches no key.
        self._marked = False
        self._started: tuple[float, int] | None = None
        self._everything_at = -1
        self.flushed_at = now
        self.last = TouchBucket(0, (), False, source_seq, wall, wall)
        self._exact: deque[TouchBucket] = deque()
        self._exact_keys = 0
        #: All later generations are among the exact buckets.
        self._exact_after = 0
        self._intervals: deque[tuple[float, float]] = deque()
        self.overflow_buckets = 0
        self.flushes = 0

    # --- touching --------------------------------------------------------------------------------------------------

    @property
    def next_generation(self) -> int:
        """The generation that the open bucket becomes."""
        return self.generation + 1

    @property
    def dirty(self) -> bool:
        """Whether there is anything to flush."""
        return self._marked or self.everything or len(self.pending) > 0

    @property
    def started_at(self) -> float | None:
        """When the open bucket got its first touch."""
        return None if self._started is None else self._started[0]

    def open(self, now: float, wall: int) -> None:
        """Set the start time of the open bucket, if nothing was touched yet."""
        if not self.dirty:
            self._started = (now, wall)

    def touch(self, key: int) -> bool:
        """Touch a key. Returns whether it is new in this bucket."""
        if self.everything or key in self.pending:
            return False
        if len(self.pending) >= self._max_keys:
            self.touch_everything()
            return False
        self.pending.add(key)
        return True

    def touch_everything(self) -> None:
        """Touch all keys, because the touched ones are unknown."""
        self.everything = True
        self.pending.clear()

    def mark(self) -> None:
        """Flush the bucket even if it touches no key."""
        self._marked = True

    def flush(self, source_seq: int, now: float, wall: int) -> TouchBucket:
        """Turn the open bucket into the next generation."""
        started = (now, wall) if self._started is None else self._started
        self.generation += 1
        bucket = TouchBucket(self.generation, self.pending, self.everything, source_seq, started[1], wall)
        if bucket.everything:
            self._everything_at = self.generation
            self.overflow_buckets += 1
        self.filter.set(bucket.ids, self.generation)
        self._remember(bucket)
        self._note_interval(now)
        self.pending = set()
        self.everything = self._marked = False
        self._started = None
        self.last = bucket
        self.flushes += 1
        return bucket

    def _remember(self, bucket: TouchBucket) -> None:
        exact = self._exact
        if bucket.everything:
            exact.clear()
            self._exact_keys, self._exact_after = 0, bucket.generation
            return
        exact.append(bucket)
        self._exact_keys += len(bucket.keys)
        while len(exact) > MAX_EXACT_BUCKETS or (self._exact_keys > MAX_EXACT_KEYS and exact):
            forgotten = exact.popleft()
            self._exact_keys -= len(forgotten.keys)
            self._exact_after = forgotten.generation

    # --- lookups ---------------------------------------------------------------------------------------------------

    def touched_after(self, ids: Collection[int], generation: int) -> bool:
        """Whether any of the keys may have been touched in a later generation."""
        if generation >= self.generation:
            return False
        return self._everything_at > generation or self.filter.touched_after(ids, generation)

    def touched_exactly_after(self, keys: frozenset[int], generation: int) -> bool:
        """Like :meth:`touched_after`, but by full keys for as long as they are kept."""
        if generation >= self.generation:
            return False
        if generation < self._exact_after:
            return self.touched_after([key & ID_MASK for key in keys], generation)
        for bucket in reversed(self._exact):
            if bucket.generation <= generation:
                break
            if not bucket.keys.isdisjoint(keys):
                return True
        return False

    # --- flush intervals -------------------------------------------------------------------------------------------

    def _note_interval(self, now: float) -> None:
        self._intervals.append((now, now - self.flushed_at))
        self.flushed_at = now
        self._forget_intervals(now)

    def _forget_intervals(self, now: float) -> None:
        while self._intervals and self._intervals[0][0] < now - _INTERVALS_MS:
            self._intervals.popleft()

    def flush_intervals(self, now: float) -> tuple[float, float]:
        """The longest interval between two flushes in the last ten seconds, and the 95th percentile."""
        self._forget_intervals(now)
        intervals = sorted(interval for _, interval in self._intervals)
        if not intervals:
            return 0.0, 0.0
        return intervals[-1], intervals[min(len(intervals) - 1, len(intervals) * 95 // 100)]
