"""Where a log's records are stored: sealed runs in segments, then the tail in memory.

Both are *parts*: they return pieces of blocks for a range of seqs, and have an overlay with the changes to records
since they were written.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

from strandline.engine.segments.segment import Segment
from strandline.engine.state.block import Block, by_last
from strandline.engine.state.ranges import SeqRanges

#: Small blocks at the end of a tail are joined once there are this many, so that a million single appends are not a
#: million objects.
JOIN_BLOCKS = 64
JOIN_ROWS = 64

#: A block, and a range of its rows (end exclusive).
Piece = tuple[Block, int, int]


class Budget(NamedTuple):
    """A number of rows and of their bytes."""

    rows: int
    size: int

    def less(self, used: Budget) -> Budget:
        return Budget(self.rows - used.rows, self.size - used.size)


class Segments(Protocol):
    """Finds the segment of a run. The implementation for reads refuses to touch the disk; see ``reads.page``."""

    def segment(self, id: int) -> Segment: ...

    def load(self, id: int, index: int) -> Block: ...


class Overlay:
    """Changes to records after they were written: deleted, hidden or amended."""

    __slots__ = ("amended", "dead", "hidden")

    def __init__(self) -> None:
        self.dead = SeqRanges()
        self.hidden = SeqRanges()
        self.amended: dict[int, bytes] = {}

    def visible(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        for start, end in self.dead.gaps(first, last):
            yield from self.hidden.gaps(start, end)

    def leaves(self, first: int) -> bool:
        """Return whether all records from ``first`` on are unchanged."""
        return self.dead.last < first and self.hidden.last < first and not self.amended


class Part(ABC):
    """A range of a log. Seqs may be missing from it; those it has are ascending."""

    __slots__ = ("first", "last", "overlay")

    first: int
    last: int
    overlay: Overlay | None

    @abstractmethod
    def pieces(self, first: int, last: int, segments: Segments) -> Iterator[Piece]:
        """Yield the physically existing rows from ``first`` to ``last``."""
        ...

    @abstractmethod
    def seqs_with_key(self, key: str, prefix: bool, segments: Segments) -> list[int]:
        """Return the ascending seqs of the rows with this key, or with this prefix in their key."""
        ...

    @abstractmethod
    def rows_between(self, first: int, last: int, segments: Segments) -> int:
        """Return the number of physically existing rows from ``first`` to ``last``."""
        ...

    @abstractmethod
    def fitting(self, first: int, last: int, budget: Budget, segments: Segments) -> tuple[int, Budget]:
        """Return the last seq up to which the rows from ``first`` to ``last`` fit the budget, and what they use of it;
        a seq below ``first`` if none fit. Does not read payloads, so the result may be too short by a part of a
        block."""
        ...

    @property
    @abstractmethod
    def mean_size(self) -> int:
        """The mean number of bytes of a row; 0 if there are no rows."""
        ...

    def change(self) -> Overlay:
        """Return the overlay, for changing it."""
        if self.overlay is None:
            self.overlay = Overlay()
        return self.overlay

    def visible(self, first: int, last: int, segments: Segments) -> Iterator[Piece]:
        """Yield the rows that a reader can see: not deleted, not hidden."""
        first, last = max(first, self.first), min(last, self.last)
        if first > last:
            return
        if self.overlay is None:
            yield from self.pieces(first, last, segments)
            return
        for start, end in self.overlay.visible(first, last):
            yield from self.pieces(start, end, segments)

    def weigh(self, ranges: Iterable[tuple[int, int]], segments: Segments) -> tuple[int, int]:
        """Return the number and the bytes of the rows within the ranges, including amendments."""
        count = size = 0
        amended = self.overlay is not None and bool(self.overlay.amended)
        for first, last in ranges:
            for block, start, end in self.pieces(max(first, self.first), min(last, self.last), segments):
                count += end - start
                size += block.size(start, end)
                if amended:
                    size += self._amended_size(block, start, end)
        return count, size

    def _amended_size(self, block: Block, start: int, end: int) -> int:
        assert self.overlay is not None
        amended, difference = self.overlay.amended, 0
        for row in range(start, end):
            data = amended.get(block.seq(row))
            if data is not None:
                difference += len(data) - len(block.payload(row))
        return difference


class Tail(Part):
    """The unsealed records of a log, in memory."""

    __slots__ = ("_boundary", "_keys", "blocks")

    def __init__(self) -> None:
        self.first = 0
        self.last = 0
        self.overlay = None
        self.blocks: list[Block] = []
        self._boundary = 0
        self._keys: KeyIndex | None = None

    def append(self, block: Block) -> None:
        blocks = self.blocks
        if not blocks:
            self.first = block.first
        blocks.append(block)
        self.last = block.last
        if self._keys is not None and block.keys is not None:
            self._keys.add(block)
        if len(blocks) >= JOIN_BLOCKS and block.last - block.first < JOIN_ROWS:
            # Blocks that were joined before are large, so checking one block usually shows that too few small ones have
            # gathered.
            first = blocks[-JOIN_BLOCKS]
            if len(first.offsets) <= JOIN_ROWS and first.first > self._boundary:
                self._join_small(first)

    def _join_small(self, first: Block) -> None:
        group = self.blocks[-JOIN_BLOCKS:]
        sizes = list(map(len, group))
        if max(sizes) >= JOIN_ROWS or group[-1].last - first.first + 1 != sum(sizes):
            return
        self.blocks[-JOIN_BLOCKS:] = [Block.join(group)]

    def join_no_further(self) -> None:
        """Never join the current blocks with later ones: they are stored differently."""
        self._boundary = self.last

    def uniform_blocks(self, first: int) -> Iterator[Block]:
        """Yield the blocks from ``first`` on, split where the time changes, as append frames require."""
        for block in self.blocks:
            start = 0
            while block.first >= first and start < len(block):
                end = start + 1
                while end < len(block) and block.timestamp(end) == block.timestamp(start):
                    end += 1
                yield block.cut(start, end)
                start = end

    def pieces(self, first: int, last: int, segments: Segments) -> Iterator[Piece]:
        blocks = self.blocks
        for at in range(bisect_left(blocks, first, key=by_last), len(blocks)):
            block = blocks[at]
            if block.first > last:
                return
            start, end = max(first - block.first, 0), min(last, block.last) - block.first + 1
            if start < end:
                yield block, start, end

    def rows_between(self, first: int, last: int, segments: Segments) -> int:
        return sum(end - start for _, start, end in self.pieces(first, last, segments))

    def fitting(self, first: int, last: int, budget: Budget, segments: Segments) -> tuple[int, Budget]:
        rows = size = 0
        for block, start, end in self.pieces(first, last, segments):
            stop = min(end, start + budget.rows - rows)
            # Without metas, so that the time does not grow with the rows.
            if block.offsets[stop] - block.offsets[start] > budget.size - size:
                stop = block.fitting(start, stop, budget.size - size)
            rows += stop - start
            size += block.offsets[stop] - block.offsets[start]
            if stop < end:
                return block.seq(stop) - 1, Budget(rows, size)
        return last, Budget(rows, size)

    @property
    def mean_size(self) -> int:
        rows = sum(map(len, self.blocks))
        return sum(block.offsets[-1] - block.offsets[0] for block in self.blocks) // rows if rows else 0

    def find(self, seq: int) -> tuple[Block, int] | None:
        """Return the block and row of a record; None if there is no such record."""
        blocks = self.blocks
        at = bisect_left(blocks, seq, key=by_last)
        if at == len(blocks) or blocks[at].first > seq:
            return None
        return blocks[at], seq - blocks[at].first

    def cut(self, last: int) -> None:
        """Remove everything up to ``last``."""
        count = bisect_right(self.blocks, last, key=by_last)
        if count:
            del self.blocks[:count]
            self._keys = None
        self.first = self.blocks[0].first if self.blocks else self.last + 1
        if self.overlay is not None:
            overlay = self.overlay
            overlay.dead.remove(0, last)
            overlay.hidden.remove(0, last)
            overlay.amended = {seq: data for seq, data in overlay.amended.items() if seq > last}
            if not (overlay.dead or overlay.hidden or overlay.amended):
                self.overlay = None

    def seqs_with_key(self, key: str, prefix: bool, segments: Segments) -> list[int]:
        if self._keys is None:
            self._keys = KeyIndex()
            for block in self.blocks:
                if block.keys is not None:
                    self._keys.add(block)
        seqs = self._keys.starting(key) if prefix else self._keys.exact(key)
        return seqs[bisect_left(seqs, self.first) :]


class KeyIndex:
    """Maps keys to seqs for a tail. Built on first use and kept up to date from then on."""

    __slots__ = ("_seqs", "_sorted")

    def __init__(self) -> None:
        self._seqs: dict[str, list[int]] = {}
        self._sorted: list[str] | None = None

    def add(self, block: Block) -> None:
        assert block.keys is not None
        for row, key in enumerate(block.keys):
            if key is None:
                continue
            seqs = self._seqs.get(key)
            if seqs is None:
                self._seqs[key] = [block.first + row]
                if self._sorted is not None:
                    insort(self._sorted, key)
            else:
                seqs.append(block.first + row)

    def exact(self, key: str) -> list[int]:
        return self._seqs.get(key, [])

    def starting(self, prefix: str) -> list[int]:
        if self._sorted is None:
            self._sorted = sorted(self._seqs)
        found: list[int] = []
        for at in range(bisect_left(self._sorted, prefix), len(self._sorted)):
            if not self._sorted[at].startswith(prefix):
                break
            found.extend(self._seqs[self._sorted[at]])
        found.sort()
        return found


class Run(Part):
    """Consecutive rows of one segment that belong to one log.

    ``live`` and ``live_size`` count the rows that are neither deleted nor hidden, so that a whole run can be evicted
    without reading it.
    """

    __slots__ = (
        "dirty",
        "key_first",
        "key_last",
        "live",
        "live_size",
        "row",
        "rows",
        "segment",
        "ts_first",
        "ts_last",
    )

    def __init__(
        self,
        segment: int,
        first: int,
        last: int,
        row: int,
        rows: int,
        live: int,
        live_size: int,
        ts_first: int,
        ts_last: int,
        key_first: str | None,
        key_last: str | None,
    ) -> None:
        self.segment = segment
        self.first = first
        self.last = last
        self.row = row
        self.rows = rows
        self.live = live
        self.live_size = live_size
        self.ts_first = ts_first
        self.ts_last = ts_last
        self.key_first = key_first
        self.key_last = key_last
        self.overlay = None
        #: Whether the overlay differs from the newest checkpoint.
        self.dirty = False

    def change(self) -> Overlay:
        self.dirty = True
        return super().change()

    def pieces(self, first: int, last: int, segments: Segments) -> Iterator[Piece]:
        segment = segments.segment(self.segment)
        end_row = self.row + self.rows
        row = self._row_from(first, segment)
        while row < end_row:
            index = segment.block_of(row)
            base = segment.blocks[index].row
            block = segments.load(self.segment, index)
            high = min(end_row - base, len(block))
            end = block.row(last + 1, row - base, high)
            if end > row - base:
                yield block, row - base, end
            if end < high:
                return
            row = base + high

    def rows_between(self, first: int, last: int, segments: Segments) -> int:
        if self.last - self.first + 1 == self.rows:
            return max(min(last, self.last) - max(first, self.first) + 1, 0)
        segment = segments.segment(self.segment)
        return self._row_from(last + 1, segment) - self._row_from(first, segment)

    def fitting(self, first: int, last: int, budget: Budget, segments: Segments) -> tuple[int, Budget]:
        if first <= self.first and last >= self.last and self.rows <= budget.rows and self.live_size <= budget.size:
            return last, Budget(self.rows, self.live_size)
        segment = segments.segment(self.segment)
        start, end = self._row_from(first, segment), self._row_from(last + 1, segment)
        row, size = start, 0
        while row < end:
            block = segment.blocks[segment.block_of(row)]
            stop = min(end, block.row + block.rows, start + budget.rows)
            # A block in part: assume that its rows are of one size.
            part = block.size * (stop - row) // block.rows
            if stop == row or size + part > budget.size:
                return self._seq_of(row, segment) - 1, Budget(row - start, size)
            row, size = stop, size + part
        return last, Budget(row - start, size)

    @property
    def mean_size(self) -> int:
        return self.live_size // self.live if self.live else 0

    def _seq_of(self, row: int, segment: Segment) -> int:
        if self.last - self.first + 1 == self.rows:
            return self.first + row - self.row
        return segment.seq_of(row)

    def weigh(self, ranges: Iterable[tuple[int, int]], segments: Segments) -> tuple[int, int]:
        """Like :meth:`Part.weigh`. The segment knows the size of whole blocks, so these are not loaded."""
        segment, count, size = segments.segment(self.segment), 0, 0
        for first, last in ranges:
            start, end = self._row_from(first, segment), self._row_from(last + 1, segment)
            if start < end:
                count += end - start
                size += self._size(start, end, segment, segments)
                if self.overlay is not None and self.overlay.amended:
                    size += self._amended_by(first, last, segments)
        return count, size

    def _row_from(self, seq: int, segment: Segment) -> int:
        """Return the row of the first record at or after a seq."""
        if self.last - self.first + 1 == self.rows:
            return self.row + min(max(seq - self.first, 0), self.rows)
        return segment.row_of(self.row, self.rows, self.first, seq)

    def _size(self, start: int, end: int, segment: Segment, segments: Segments) -> int:
        size = 0
        for index in range(segment.block_of(start), segment.block_of(end - 1) + 1):
            info = segment.blocks[index]
            low, high = max(start - info.row, 0), min(end - info.row, info.rows)
            whole = low == 0 and high == info.rows
            size += info.size if whole else segments.load(self.segment, index).size(low, high)
        return size

    def _amended_by(self, first: int, last: int, segments: Segments) -> int:
        assert self.overlay is not None
        seqs = [seq for seq in self.overlay.amended if first <= seq <= last]
        pieces = (piece for seq in seqs for piece in self.pieces(seq, seq, segments))
        return sum(self._amended_size(block, start, end) for block, start, end in pieces)

    def seqs_with_key(self, key: str, prefix: bool, segments: Segments) -> list[int]:
        if not self.may_have(key, prefix):
            return []
        segment = segments.segment(self.segment)
        find = segment.seqs_with_prefix if prefix else segment.seqs_with_key
        return find(self.row, self.rows, key)

    def may_have(self, key: str, prefix: bool) -> bool:
        if self.key_first is None or self.key_last is None:
            return False
        return self.key_last >= key and (self.key_first <= key or (prefix and self.key_first.startswith(key)))
