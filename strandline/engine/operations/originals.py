"""The records that are forwarded: found once for all copies that want the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from strandline.engine.errors import BadRequest
from strandline.engine.record import MAX_BATCH_BYTES
from strandline.engine.state.block import Block
from strandline.engine.state.forks import layers
from strandline.engine.state.logbook import Logbook
from strandline.engine.state.parts import Piece, Segments

Ranges = Sequence[tuple[int, int]]


class Selection(NamedTuple):
    """The records of some ranges: ``template`` has their columns, ready to be shared; None when there are none."""

    template: Block | None
    size: int
    #: The seqs that are there, as ranges, and whether a frame may refer to them.
    found: list[tuple[int, int]]
    referable: bool


class Originals:
    """What there is in the source while the engine's lock is held; ``journal_index`` is the file written to now."""

    def __init__(self, source: Logbook, segments: Segments, journal_index: int) -> None:
        self._source = source
        self._segments = segments
        self._journal_index = journal_index
        self._selections: dict[tuple[tuple[int, int], ...], Selection] = {}
        self._by_identity: dict[int, Selection] = {}

    def select(self, ranges: Ranges) -> Selection:
        # Mostly all copies have the very same ranges; else they may be equal.
        selection = self._by_identity.get(id(ranges))
        if selection is None:
            key = tuple(ranges)
            selection = self._selections.get(key)
            if selection is None:
                selection = self._selections[key] = self._look_up(key)
            self._by_identity[id(ranges)] = selection
        return selection

    def _look_up(self, ranges: tuple[tuple[int, int], ...]) -> Selection:
        source = self._source
        pieces: list[Piece] = []
        amended: dict[int, bytes] = {}
        shown = layers(source)
        for first, last in ranges:
            for book, low, high in shown:
                low, high = max(first, low, book.earliest), min(last, high)
                for part in book.parts() if low <= high else ():
                    if part.last >= low and part.first <= high:
                        pieces += part.visible(low, high, self._segments)
                        if part.overlay is not None and part.overlay.amended:
                            amended.update((s, d) for s, d in part.overlay.amended.items() if low <= s <= high)
        if not pieces:
            return Selection(None, 0, [], True)
        template = Block.gather(pieces, amended)
        if len(template.data) > MAX_BATCH_BYTES:
            raise BadRequest(f"the records have {len(template.data)} bytes, the limit is {MAX_BATCH_BYTES}")
        found = list(_seqs_of(pieces))
        referable = (
            source.config.durability != "ephemeral"
            and source.journal_index == self._journal_index
            and found[0][0] >= source.journal_first
            and not amended
        )
        return Selection(template, template.size(0, template.last), found, referable)


def _seqs_of(pieces: Sequence[Piece]) -> list[tuple[int, int]]:
    """The seqs of the pieces, as ranges."""
    found: list[tuple[int, int]] = []
    for block, start, end in pieces:
        if block.seqs is None:
            stretches = [(block.first + start, block.first + end - 1)]
        else:
            stretches = [(seq, seq) for seq in block.seqs[start:end].tolist()]
        for first, last in stretches:
            if found and found[-1][1] + 1 == first:
                first = found.pop()[0]
            found.append((first, last))
    return found


def matching(metas: Sequence[bytes | None], ranges: Ranges, found: Sequence[tuple[int, int]]) -> Sequence[bytes | None]:
    """Of metas that are given for every seq in the ranges, those of the seqs that are there."""
    if list(ranges) == list(found):
        return metas
    places: dict[int, int] = {}
    for first, last in ranges:
        places.update(zip(range(first, last + 1), range(len(places), len(metas)), strict=False))
    return [metas[places[seq]] for first, last in found for seq in range(first, last + 1)]
