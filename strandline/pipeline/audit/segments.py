"""Checking segment files whole, in tasks: every block's checksum, whether Arrow finds it valid, and every promise that
the footer makes about the rows."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from strandline.engine.errors import DamagedFile, EngineError
from strandline.engine.segments.check import check, damaged_blocks, stretches
from strandline.history.any_piece import AnyPiece
from strandline.history.pieces import SegmentPiece


class SegmentItem(msgspec.Struct, array_like=True):
    """A segment, as one of the pieces that are in it knows it."""

    piece: SegmentPiece


class Damage(msgspec.Struct, array_like=True, frozen=True):
    """Rows of a log that cannot be read, between which seqs they are, and why."""

    log: str
    epoch: int
    first: int
    last: int
    rows: int
    why: str


class SegmentChecked(msgspec.Struct, array_like=True):
    """``unreadable`` is why the file cannot be opened at all; then nothing else is known of it."""

    id: int
    rows: int = 0
    blocks: int = 0
    size: int = 0
    unreadable: str = ""
    damage: list[Damage] = []
    #: What is wrong with it besides.
    problems: list[str] = []


def items_of(pieces: Iterable[AnyPiece]) -> list[SegmentItem]:
    """An item for every file that the pieces are in."""
    found = {(piece.path, piece.id): piece for piece in pieces if isinstance(piece, SegmentPiece)}
    return [SegmentItem(piece) for piece in found.values()]


def why(piece: SegmentPiece, error: Exception) -> str:
    """What is wrong with a file, by the name that lasts: its path is one of the moment."""
    return f"segment {piece.id}: {error.why if isinstance(error, DamagedFile) else error}"


def check_segment(item: SegmentItem) -> SegmentChecked:
    piece = item.piece
    name = f"segment {piece.id}"
    try:
        segment = piece.segment()
    except (EngineError, OSError) as error:
        return SegmentChecked(piece.id, unreadable=why(piece, error))
    damaged = damaged_blocks(segment)
    damage = [
        Damage(run.name, run.epoch, first, last, rows, f"a damaged block of {name}")
        for run, first, last, rows in stretches(segment, damaged)
    ]
    # Of a damaged block it is told which records are in it.
    told = tuple(f"Block {index}: " for index in damaged)
    problems = [f"{name}: {problem}" for problem in check(segment) if not problem.startswith(told)]
    return SegmentChecked(piece.id, segment.rows, len(segment.blocks), segment.size, "", damage, problems)
