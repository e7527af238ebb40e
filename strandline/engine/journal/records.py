"""The records of the journal file that is being replayed, found by log and seq.

Frames that forward records refer to appends of their own file. What became of the source's records since, or of the
source itself, does not matter to the copies, so they are looked up here and not in the logs.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from strandline.engine.journal.frame import HEADER, Frame, FrameReader, decode_append, frame_in
from strandline.engine.state.block import Block
from strandline.engine.state.parts import Piece

#: Records are mostly forwarded soon after they were appended: a few decoded frames are enough.
MAX_DECODED = 64


class JournalRecords:
    """``reader`` reads the file. A number per append is kept, not the append."""

    def __init__(self, reader: FrameReader) -> None:
        self._reader = reader
        #: By epoch, the first seqs of appends, ascending, and where they are: an offset in the file, or the number
        #: of a block as -1, -2 ...
        self._places: dict[int, tuple[array[int], array[int]]] = {}
        self._blocks: list[Block] = []
        self._decoded: dict[int, Block] = {}

    def add(self, frame: Frame) -> None:
        self._add(frame.epoch, frame.first, frame.offset)

    def add_all(self, epoch: int, firsts: NDArray[np.int64], offsets: NDArray[np.int64]) -> None:
        """Many appends of one log, by their first seqs and their offsets."""
        places = self._places.get(epoch)
        if places is None:
            places = self._places[epoch] = array("q"), array("q")
        places[0].frombytes(firsts.tobytes())
        places[1].frombytes(offsets.tobytes())

    def add_block(self, epoch: int, block: Block) -> None:
        """A copy that was made by forwarding; it may be forwarded in its turn."""
        self._blocks.append(block)
        self._add(epoch, block.first, -len(self._blocks))

    def _add(self, epoch: int, first: int, place: int) -> None:
        places = self._places.get(epoch)
        if places is None:
            places = self._places[epoch] = array("q"), array("q")
        places[0].append(first)
        places[1].append(place)

    def find(self, epoch: int, ranges: Sequence[tuple[int, int]]) -> list[tuple[int, Block]]:
        """The records in the ranges as columns under the seqs from 1 on: one block, or several if some are missing,
        each with its place in the ranges."""
        stretches: list[tuple[int, list[Piece]]] = []
        place = end = 0
        for first, last in ranges:
            seq = first
            while seq <= last:
                piece = self._piece(epoch, seq, last)
                if piece is None:
                    seq, place = seq + 1, place + 1
                    continue
                if not stretches or place != end:
                    stretches.append((place, []))
                stretches[-1][1].append(piece)
                count = piece[2] - piece[1]
                seq, place = seq + count, place + count
                end = place
        return [(place, Block.gather(pieces)) for place, pieces in stretches]

    def _piece(self, epoch: int, seq: int, last: int) -> Piece | None:
        """What an append has of the records from ``seq`` to ``last``; None when there is no such record."""
        places = self._places.get(epoch)
        at = -1 if places is None else bisect_right(places[0], seq) - 1
        if places is None or at < 0:
            return None
        block = self._block(places[1][at])
        return None if block.last < seq else (block, seq - block.first, min(last, block.last) - block.first + 1)

    def _block(self, place: int) -> Block:
        if place < 0:
            return self._blocks[-place - 1]
        block = self._decoded.get(place)
        if block is None:
            if len(self._decoded) >= MAX_DECODED:
                self._decoded.clear()
            block = self._decoded[place] = self._read(place)
        return block

    def _read(self, offset: int) -> Block:
        """The records of an append frame, which has been verified before."""
        length = HEADER.unpack_from(self._reader.read(offset, HEADER.size))[1]
        return decode_append(frame_in(self._reader.read(offset, length), 0, offset))[0]
