"""Payloads of consecutive records as they are stored, for readers that pass them on without looking at each record."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple, TypeAlias

from strandline.arrow import pa, pc
from strandline.engine.log import Log
from strandline.engine.reads.page import SCAN_RECORDS, PageQuery, losses, read_parts
from strandline.engine.reads.span import parts_between
from strandline.engine.state.block import Block
from strandline.engine.state.forks import layers
from strandline.engine.state.parts import Piece, Segments

#: Fewer rows are joined in Python: calling Arrow takes as long as joining about this many.
MIN_ARROW_ROWS = 64
#: Arrow's offsets of byte strings have 31 bits.
MAX_ARROW_OFFSET = (1 << 31) - 1

#: Memory that is sent as it is.
Chunk: TypeAlias = bytes | memoryview


class Payloads(NamedTuple):
    """The payloads of the visible records after a seq up to the seq ``through``, in order, as rows of blocks."""

    through: int
    pieces: list[Piece]

    @property
    def records(self) -> int:
        return sum(end - start for _, start, end in self.pieces)

    def may_contain(self, text: bytes) -> bool:
        """Whether the text is in a payload. It may also be where two payloads meet."""
        return any(
            block.data.find(text, block.offsets[start], block.offsets[end]) >= 0 for block, start, end in self.pieces
        )

    def chunks(self, separator: bytes) -> list[Chunk]:
        """The payloads with the separator between them, as pieces of memory to send one after the other."""
        chunks: list[Chunk] = []
        for block, start, end in self.pieces:
            if chunks and separator:
                chunks.append(separator)
            chunks.append(_joined(block, start, end, separator) if separator else _stretch(block, start, end))
        return chunks


def read_payloads(log: Log, after: int, through: int, max_bytes: int) -> Payloads | None:
    """Return payloads of the records after ``after``, up to the seq ``through``, of at most ``max_bytes``, but at least
    one if there is a record. Waits for the disk.

    Returns None if the next records were lost or amended: :meth:`Log.read` reports losses, and knows what replaces an
    amended payload.
    """
    book = log.book

    def find(segments: Segments) -> Payloads | None:
        end = min(through, book.shown)
        loss = next(losses(layers(book), after + 1), None)
        if loss is not None:
            if loss.first <= after + 1:
                return None
            end = min(end, loss.first - 1)
        pieces: list[Piece] = []
        rows, size = SCAN_RECORDS, max_bytes
        for part, low, high in parts_between(book, after, end):
            if part.overlay is not None and part.overlay.amended:
                return None
            for block, start, stop in part.visible(low, high, segments):
                fitting = block.fitting(start, min(stop, start + rows), size)
                if fitting == start and not pieces:
                    fitting += 1  # however large it is
                if fitting > start:
                    pieces.append((block, start, fitting))
                    rows -= fitting - start
                    size -= block.size(start, fitting)
                if fitting < stop:
                    return Payloads(block.seq(fitting) - 1, pieces)
        return Payloads(end, pieces)

    return read_parts(log.engine, book, True, find, PageQuery(after, SCAN_RECORDS, max_bytes))


def _stretch(block: Block, start: int, end: int) -> Chunk:
    """The payloads of rows, one right after the other. Not copied."""
    low, high = block.offsets[start], block.offsets[end]
    return block.data if low == 0 and high == len(block.data) else memoryview(block.data)[low:high]


def _joined(block: Block, start: int, end: int, separator: bytes) -> Chunk:
    if end - start < MIN_ARROW_ROWS or block.offsets[end] > MAX_ARROW_OFFSET:
        data, bounds = block.data, block.offsets[start : end + 1].tolist()
        return separator.join([data[low:high] for low, high in pairwise(bounds)])
    buffers = [None, pa.py_buffer(block.offsets), pa.py_buffer(block.data)]
    values = pa.Array.from_buffers(pa.binary(), end - start, buffers, offset=start)
    return memoryview(pc.binary_join(pa.ListArray.from_arrays([0, end - start], values), separator)[0].as_buffer())
