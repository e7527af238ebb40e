"""Reading the records of logs from end to end, in tasks: whether seqs and times ascend, whether every proof of an
author holds, and the digests by which the lake is compared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strandline.engine.errors import EngineError
from strandline.engine.segments.check import damaged_blocks, stretches
from strandline.history.any_piece import AnyPiece
from strandline.history.http import ServerFailure
from strandline.history.pieces import SegmentPiece
from strandline.pipeline.audit.digests import Sums, added, digests_of, sums_of
from strandline.pipeline.audit.segments import why
from strandline.signing.author_proofs import holds, proof_of

#: An item has about so many records: many small logs together, or a part of a large one. Checking proofs takes a
#: second per 5,000 or so.
ITEM_ROWS = 131_072

Seqs = npt.NDArray[np.int64]
_UNREADABLE = (EngineError, ServerFailure, OSError, pa.ArrowException)


class RecordsItem(msgspec.Struct, array_like=True):
    """``digest_through`` has, by epoch, up to which seq the lake is to be compared."""

    pieces: list[AnyPiece]
    digest_through: dict[int, int] = {}


class Bad(msgspec.Struct, array_like=True):
    """How often something was found, and where first."""

    count: int = 0
    first: int | None = None

    def found(self, seqs: Seqs) -> None:
        if len(seqs):
            first = int(seqs.min())
            self.first = first if self.first is None else min(self.first, first)
            self.count += len(seqs)

    def add(self, other: Bad) -> None:
        if other.count:
            self.first = other.first if self.first is None else min(self.first, other.first or 0)
            self.count += other.count


class Seen(msgspec.Struct, array_like=True):
    """What there is in one piece. Times are milliseconds. ``unread``: why a part of it could not be read."""

    epoch: int
    first: int
    last: int
    rows: int = 0
    first_seq: int | None = None
    last_seq: int | None = None
    disordered: Bad = msgspec.field(default_factory=Bad)
    repeated: Bad = msgspec.field(default_factory=Bad)
    proofs: int = 0
    forged: Bad = msgspec.field(default_factory=Bad)
    #: The first seq that is said to be there and is not.
    first_missing: int | None = None
    unread: str = ""
    sums: Sums = {}


class RecordsSeen(msgspec.Struct, array_like=True):
    pieces: list[Seen]


def items_of(pieces: Iterable[AnyPiece], digest_through: dict[int, int]) -> Iterator[RecordsItem]:
    gathered: list[AnyPiece] = []
    rows = 0
    for piece in pieces:
        gathered.append(piece)
        rows += max(piece.rows, 1)
        if rows >= ITEM_ROWS:
            yield _item(gathered, digest_through)
            gathered, rows = [], 0
    if gathered:
        yield _item(gathered, digest_through)


def _item(pieces: list[AnyPiece], digest_through: dict[int, int]) -> RecordsItem:
    epochs = {piece.epoch for piece in pieces}
    return RecordsItem(pieces, {epoch: digest_through[epoch] for epoch in epochs & digest_through.keys()})


def read_records(item: RecordsItem) -> RecordsSeen:
    return RecordsSeen([_read(piece, item.digest_through.get(piece.epoch, 0)) for piece in item.pieces])


def _read(piece: AnyPiece, digest_through: int) -> Seen:
    seen = Seen(piece.epoch, piece.first, piece.last)
    try:
        held = _look_at_all(piece, seen, digest_through)
        seen.first_missing = _first_missing(piece, held)
    except _UNREADABLE as error:
        told = why(piece, error) if isinstance(piece, SegmentPiece) else str(error)
        seen = Seen(piece.epoch, piece.first, piece.last, unread=told)
        for part in _around_damage(piece):
            try:
                _look_at_all(part, seen, digest_through)
            except _UNREADABLE:
                pass  # it is said already that not all could be read
    return seen


def _look_at_all(piece: AnyPiece, seen: Seen, digest_through: int) -> Seqs:
    held = [np.zeros(0, np.int64)]
    for batch in piece.read():
        if batch.num_rows:
            _look(batch, seen, digest_through)
            held.append(batch.column("seq").to_numpy())
    return np.concatenate(held)


def _around_damage(piece: AnyPiece) -> list[SegmentPiece]:
    """What can be read of a piece nevertheless."""
    if not isinstance(piece, SegmentPiece):
        return []
    try:
        segment = piece.segment()
        lost = [each for each in stretches(segment, damaged_blocks(segment)) if each.run.row == piece.run_row]
    except (EngineError, OSError):
        return []
    parts = []
    low = piece.first
    for stretch in lost:
        if stretch.first <= piece.last and stretch.last >= piece.first:
            parts.append(_part(piece, low, stretch.first - 1))
            low = stretch.last + 1
    parts.append(_part(piece, low, piece.last))
    return [part for part in parts if part.visible]


def _part(piece: SegmentPiece, first: int, last: int) -> SegmentPiece:
    visible = [(max(low, first), min(high, last)) for low, high in piece.visible if low <= last and high >= first]
    return msgspec.structs.replace(piece, first=first, last=last, visible=visible)


def _look(batch: Any, seen: Seen, digest_through: int) -> None:
    seqs: Seqs = batch.column("seq").to_numpy()
    steps = np.diff(seqs, prepend=seqs[0] - 1 if seen.last_seq is None else seen.last_seq)
    seen.repeated.found(seqs[steps == 0])
    seen.disordered.found(seqs[steps < 0])
    if seen.first_seq is None:
        seen.first_seq = int(seqs[0])
    seen.last_seq = int(seqs[-1])
    seen.rows += len(seqs)
    _check_proofs(batch, seqs, seen)
    covered = seqs <= digest_through
    if covered.any():
        compared = batch.filter(pa.array(covered)) if not covered.all() else batch
        seen.sums = added(seen.sums, sums_of(seqs[covered], digests_of(compared)))


def _check_proofs(batch: Any, seqs: Seqs, seen: Seen) -> None:
    metas = batch.column("meta")
    if metas.null_count == len(metas):
        return
    log = batch.column("log")[0].as_py()
    forged = []
    for row, meta in enumerate(metas.to_pylist()):
        proof = proof_of(meta)
        if proof is not None:
            seen.proofs += 1
            if not holds(proof, log, batch.column("data")[row].as_py()):
                forged.append(row)
    seen.forged.found(seqs[forged])


def _first_missing(piece: AnyPiece, seqs: Seqs) -> int | None:
    ranges = piece.visible if isinstance(piece, SegmentPiece) else [(piece.first, piece.last)]
    for first, last in ranges:
        here = seqs[(seqs >= first) & (seqs <= last)]
        if len(here) < last - first + 1:
            expected = np.arange(first, first + len(here))
            wrong = np.flatnonzero(here != expected)
            return first + int(wrong[0]) if len(wrong) else first + len(here)
    return None
