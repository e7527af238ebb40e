"""A block: records of one log, ascending by seq, as columns. Tails, journal frames and segments all use blocks.

A batch of a thousand records is one block instead of a thousand objects. A block is immutable.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate, chain, pairwise
from operator import attrgetter
from typing import TypeAlias, TypeVar

from strandline.engine.record import Batch, Page

#: A column of integers. Both types support slices, indexes and ``tolist``.
T = TypeVar("T")
Numbers: TypeAlias = "array[int] | memoryview"


class Block:
    """``data[offsets[i]:offsets[i + 1]]`` is the payload of row ``i``.

    ``seqs`` is None if the seqs are first, first + 1, ...; ``ts`` is one number if all rows share it. ``keys``,
    ``nodes`` and ``metas`` are None if no row has one.
    """

    __slots__ = ("data", "first", "keys", "last", "metas", "nodes", "offsets", "seqs", "ts")

    def __init__(
        self,
        first: int,
        last: int,
        ts: int | Numbers,
        offsets: Numbers,
        data: bytes,
        keys: Sequence[str | None] | None = None,
        nodes: Sequence[str | None] | None = None,
        metas: Sequence[bytes | None] | None = None,
        seqs: Numbers | None = None,
    ) -> None:
        self.first = first
        self.last = last
        self.ts = ts
        self.offsets = offsets
        self.data = data
        self.keys = keys
        self.nodes = nodes
        self.metas = metas
        self.seqs = seqs

    @classmethod
    def of_batch(cls, first: int, ts: int, batch: Batch) -> Block:
        data = batch.data
        if len(data) == 1:
            offsets = array("I", (0, len(data[0])))
            return cls(first, first, ts, offsets, bytes(data[0]), batch.keys, batch.nodes, batch.metas)
        offsets = array("I", accumulate(map(len, data), initial=0))
        return cls(first, first + len(data) - 1, ts, offsets, b"".join(data), batch.keys, batch.nodes, batch.metas)

    @classmethod
    def join(cls, blocks: Sequence[Block]) -> Block:
        """Join consecutive blocks with consecutive seqs into one."""
        stamps = [block.ts for block in blocks]
        counts = [len(block) for block in blocks]
        ts: int | Numbers
        if isinstance(stamps[0], int) and stamps.count(stamps[0]) == len(stamps):
            ts = stamps[0]
        else:
            ts = array("q", chain.from_iterable([block.timestamps(0, len(block)) for block in blocks]))
        pieces = [block.data for block in blocks]
        data = b"".join(pieces)
        if max(counts) == 1:
            offsets = array("I", accumulate(map(len, pieces), initial=0))
        else:
            offsets = array("I", (0,))
            base = 0
            for block in blocks:
                offsets.extend([base + offset for offset in block.offsets.tolist()[1:]])
                base = offsets[-1]
        return cls(
            blocks[0].first,
            blocks[-1].last,
            ts,
            offsets,
            data,
            _join_optional([block.keys for block in blocks], blocks),
            _join_optional([block.nodes for block in blocks], blocks),
            _join_optional([block.metas for block in blocks], blocks),
        )

    @classmethod
    def gather(cls, pieces: Sequence[tuple[Block, int, int]], amended: Mapping[int, bytes] | None = None) -> Block:
        """Make a block of the given rows, as (block, start, end), with seqs from 1 on. Shares memory where possible.

        ``amended`` has new data for some seqs.
        """
        if len(pieces) == 1 and not amended:
            block, start, end = pieces[0]
            if end - start == len(block) and type(block.offsets) is array and block.offsets.typecode == "I":
                return cls(1, end, 0, block.offsets, block.data, block.keys, block.nodes, block.metas)
        data: list[bytes] = []
        offsets, base = array("I", (0,)), 0
        for block, start, end in pieces:
            low = block.offsets[start]
            if amended and any(block.seq(row) in amended for row in range(start, end)):
                payloads = [amended.get(block.seq(row), block.payload(row)) for row in range(start, end)]
                data += payloads
                offsets.extend(list(accumulate(map(len, payloads), initial=base))[1:])
            else:
                data.append(block.data[low : block.offsets[end]])
                offsets.extend([base + offset - low for offset in block.offsets[start + 1 : end + 1].tolist()])
            base = offsets[-1]
        count = len(offsets) - 1
        return cls(
            1,
            count,
            0,
            offsets,
            data[0] if len(data) == 1 else b"".join(data),
            _gather_optional([(block.keys, start, end) for block, start, end in pieces]),
            _gather_optional([(block.nodes, start, end) for block, start, end in pieces]),
            _gather_optional([(block.metas, start, end) for block, start, end in pieces]),
        )

    def cut(self, start: int, end: int) -> Block:
        """Return the rows from ``start`` to before ``end``, which share one time, as a block."""
        low, high = self.offsets[start], self.offsets[end]
        return Block(
            self.seq(start),
            self.seq(end - 1),
            self.timestamp(start),
            array("I", [offset - low for offset in self.offsets[start : end + 1]]),
            self.data[low:high],
            None if self.keys is None else self.keys[start:end],
            None if self.nodes is None else self.nodes[start:end],
            None if self.metas is None else self.metas[start:end],
        )

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def row(self, seq: int, low: int = 0, high: int | None = None) -> int:
        """Return the first row from ``low`` to before ``high`` with at least this ``seq``; ``high`` if there is
        none."""
        if high is None:
            high = len(self)
        if self.seqs is None:
            return min(max(seq - self.first, low), high)
        return bisect_left(self.seqs, seq, low, high)

    def seq(self, row: int) -> int:
        return self.first + row if self.seqs is None else self.seqs[row]

    def size(self, start: int, end: int) -> int:
        """Return the bytes of data and meta data of the rows from ``start`` to before ``end``."""
        size: int = self.offsets[end] - self.offsets[start]
        if self.metas is not None:
            size += sum(len(meta) for meta in self.metas[start:end] if meta is not None)
        return size

    def fitting(self, start: int, end: int, budget: int) -> int:
        """Return the end of the rows from ``start`` that fit into ``budget`` bytes, at most ``end``."""
        if budget < 0:
            return start
        if self.metas is None:
            return bisect_right(self.offsets, self.offsets[start] + budget, start, end + 1) - 1
        for row in range(start, end):
            budget -= self.size(row, row + 1)
            if budget < 0:
                return row
        return end

    def reaching(self, start: int, end: int, amount: int) -> int:
        """Return how many rows from ``start`` on reach ``amount`` bytes; all rows if they do not reach it."""
        if self.metas is None:
            return min(bisect_left(self.offsets, self.offsets[start] + amount, start, end + 1), end) - start
        for row in range(start, end):
            amount -= self.size(row, row + 1)
            if amount <= 0:
                return row + 1 - start
        return end - start

    def row_since(self, ts: int, low: int, high: int) -> int:
        """Return the first row from ``low`` to before ``high`` with time ``ts`` or later; ``high`` if there is none."""
        if isinstance(self.ts, int):
            return low if self.ts >= ts else high
        return bisect_left(self.ts, ts, low, high)

    def last_before(self, ts: int, low: int, high: int) -> int | None:
        """Return the last row from ``low`` to before ``high`` with a time before ``ts``. The times may be in any
        order."""
        if isinstance(self.ts, int):
            return high - 1 if self.ts < ts and low < high else None
        return next((row for row in range(high - 1, low - 1, -1) if self.ts[row] < ts), None)

    def timestamp(self, row: int) -> int:
        return self.ts if isinstance(self.ts, int) else self.ts[row]

    def timestamps(self, start: int, end: int) -> list[int]:
        return [self.ts] * (end - start) if isinstance(self.ts, int) else self.ts[start:end].tolist()

    def payload(self, row: int) -> bytes:
        return self.data[self.offsets[row] : self.offsets[row + 1]]

    def copy_row(self, page: Page, row: int) -> None:
        """Append one row to a page."""
        page.seqs.append(self.first + row if self.seqs is None else self.seqs[row])
        page.ts.append(self.ts if isinstance(self.ts, int) else self.ts[row])
        page.data.append(self.data[self.offsets[row] : self.offsets[row + 1]])
        page.keys.append(None if self.keys is None else self.keys[row])
        page.nodes.append(None if self.nodes is None else self.nodes[row])
        page.metas.append(None if self.metas is None else self.metas[row])

    def copy_to(self, page: Page, start: int, end: int) -> None:
        """Append the rows from ``start`` to before ``end`` to a page."""
        count = end - start
        if count == 1:
            self.copy_row(page, start)
            return
        if self.seqs is None:
            page.seqs.extend(range(self.first + start, self.first + end))
        else:
            page.seqs.extend(self.seqs[start:end].tolist())
        page.ts.extend(self.timestamps(start, end))
        data = self.data
        bounds = self.offsets[start : end + 1].tolist()
        page.data.extend([data[low:high] for low, high in pairwise(bounds)])
        nothing = [None] * count
        page.keys.extend(nothing if self.keys is None else self.keys[start:end])
        page.nodes.extend(nothing if self.nodes is None else self.nodes[start:end])
        page.metas.extend(nothing if self.metas is None else self.metas[start:end])


def _join_optional(columns: Sequence[Sequence[T | None] | None], blocks: Sequence[Block]) -> list[T | None] | None:
    if all(column is None for column in columns):
        return None
    joined: list[T | None] = []
    for column, block in zip(columns, blocks, strict=True):
        joined.extend([None] * len(block) if column is None else column)
    return joined


def _gather_optional(pieces: Sequence[tuple[Sequence[T | None] | None, int, int]]) -> list[T | None] | None:
    if all(column is None for column, _, _ in pieces):
        return None
    gathered: list[T | None] = []
    for column, start, end in pieces:
        gathered.extend([None] * (end - start) if column is None else column[start:end])
    return gathered


by_last = attrgetter("last")
