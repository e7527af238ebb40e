"""Checks of segment files and records in tasks, and digests of records whose sums do not depend on the order or the
distribution over files: two sides with the same records have the same sums."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from strandline.client.errors import StrandlineError
from strandline.engine.errors import DamagedFile, EngineError
from strandline.engine.segments.check import check, damaged_blocks, stretches
from strandline.history.pieces import SegmentPiece
from strandline.history.source import AnyPiece
from strandline.signing.author_proofs import DOCUMENT_DOMAIN, holds, proof_of

#: The number of seqs per sum: small enough to compare the records of a differing range one by one.
RANGE_SEQS = 1 << 14

Digests = npt.NDArray[np.uint64]
#: The number of records and the sum of their digests, by number of the range.
Sums = dict[int, tuple[int, int]]

_NULL = np.uint64(0x9E3779B97F4A7C15)


def digests_of(batch: Any) -> Digests:
    """A digest for each record of a batch from the history or from the lake."""
    digests = _mixed(batch.column("seq").to_numpy().astype(np.uint64))
    times = batch.column("ts").cast(pa.int64()).to_numpy().astype(np.uint64)
    columns = [_hashes_of_few(batch.column(name)) for name in ("key", "node")]
    columns += [_hashes(batch.column("meta")), _hashes(payloads(batch))]
    for column in (times, *columns):
        digests = _mixed(digests + column)
    return digests


def sums_of(seqs: npt.NDArray[np.int64], digests: Digests) -> Sums:
    numbers = seqs // RANGE_SEQS
    found: Sums = {}
    for number in np.unique(numbers).tolist():
        there = numbers == number
        with np.errstate(over="ignore"):
            found[number] = int(there.sum()), int(digests[there].sum(dtype=np.uint64))
    return found


def added(one: Sums, other: Sums) -> Sums:
    result = dict(one)
    for number, (count, total) in other.items():
        before = result.get(number, (0, 0))
        result[number] = before[0] + count, (before[1] + total) & 0xFFFFFFFFFFFFFFFF
    return result


def payloads(batch: Any) -> Any:
    """The payloads as bytes. The lake stores text payloads as text."""
    data = batch.column("data")
    if "bytes" not in batch.schema.names:
        return data
    return pc.coalesce(data.cast(pa.binary()), batch.column("bytes"))


def _hashes(column: Any) -> Digests:
    if column.null_count == len(column):
        return np.full(len(column), _NULL)
    hash_of = xxhash.xxh3_64_intdigest
    values = (int(_NULL) if value is None else hash_of(value) for value in column.to_pylist())
    return np.fromiter(values, np.uint64, len(column))


def _hashes_of_few(column: Any) -> Digests:
    """Like ``_hashes``, for columns with many repeated values."""
    if column.null_count == len(column):
        return np.full(len(column), _NULL)
    encoded = column.dictionary_encode()
    hashes = np.append(_hashes(encoded.dictionary.cast(pa.binary())), _NULL)
    places = encoded.indices.fill_null(len(hashes) - 1).to_numpy()
    return hashes[places]


def _mixed(numbers: Digests) -> Digests:
    """Distribute close numbers over the whole range (the last steps of SplitMix64)."""
    with np.errstate(over="ignore"):
        mixed = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        result: Digests = mixed ^ (mixed >> np.uint64(31))
        return result


# --- Checks of whole segment files, in tasks: block checksums, Arrow's validation, and the promises of the format ----


class SegmentItem(msgspec.Struct, array_like=True):
    """A segment, identified by one of its pieces."""

    piece: SegmentPiece


class SegmentDamage(msgspec.Struct, array_like=True, frozen=True):
    """Rows of a log that cannot be read: the range of their seqs, and the reason."""

    log: str
    epoch: int
    first: int
    last: int
    rows: int
    why: str


class SegmentChecked(msgspec.Struct, array_like=True):
    """``unreadable`` is the reason why the file cannot be opened; then nothing else is known about it."""

    id: int
    rows: int = 0
    blocks: int = 0
    size: int = 0
    unreadable: str = ""
    damage: list[SegmentDamage] = []
    #: Other problems of the file.
    problems: list[str] = []


def segment_items(pieces: Iterable[AnyPiece]) -> list[SegmentItem]:
    """One item for every file of the pieces."""
    found = {(piece.path, piece.id): piece for piece in pieces if isinstance(piece, SegmentPiece)}
    return [SegmentItem(piece) for piece in found.values()]


def why(piece: SegmentPiece, error: Exception) -> str:
    """The problem of a file. Names the segment, because its path may change."""
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
        SegmentDamage(run.name, run.epoch, first, last, rows, f"a damaged block of {name}")
        for run, first, last, rows in stretches(segment, damaged)
    ]
    # Damaged blocks are reported with their records.
    told = tuple(f"Block {index}: " for index in damaged)
    problems = [f"{name}: {problem}" for problem in check(segment) if not problem.startswith(told)]
    return SegmentChecked(piece.id, segment.rows, len(segment.blocks), segment.size, "", damage, problems)


# --- Checks of the records of logs, in tasks: order of seqs, author proofs, digests ----------------------------------

#: The approximate number of records of an item: many small logs together, or a part of a large one. Checking 5,000
#: author proofs takes about a second.
ITEM_ROWS = 131_072

Seqs = npt.NDArray[np.int64]
_UNREADABLE = (EngineError, StrandlineError, OSError, pa.ArrowException)


class RecordCheckItem(msgspec.Struct, array_like=True):
    """``digest_through`` has, by epoch, the seq up to which the lake is compared."""

    pieces: list[AnyPiece]
    digest_through: dict[int, int] = {}


class Bad(msgspec.Struct, array_like=True):
    """The number of occurrences of a problem, and the seq of the first."""

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


class SeenRecords(msgspec.Struct, array_like=True):
    """The records of one piece. Times are in milliseconds. ``unread``: why a part of it could not be read."""

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
    #: The first seq that should exist and does not.
    first_missing: int | None = None
    unread: str = ""
    sums: Sums = {}


class RecordsSeen(msgspec.Struct, array_like=True):
    pieces: list[SeenRecords]


def record_items(pieces: Iterable[AnyPiece], digest_through: dict[int, int]) -> Iterator[RecordCheckItem]:
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


def _item(pieces: list[AnyPiece], digest_through: dict[int, int]) -> RecordCheckItem:
    epochs = {piece.epoch for piece in pieces}
    return RecordCheckItem(pieces, {epoch: digest_through[epoch] for epoch in epochs & digest_through.keys()})


def read_records(item: RecordCheckItem) -> RecordsSeen:
    return RecordsSeen([_read(piece, item.digest_through.get(piece.epoch, 0)) for piece in item.pieces])


def _read(piece: AnyPiece, digest_through: int) -> SeenRecords:
    seen = SeenRecords(piece.epoch, piece.first, piece.last)
    try:
        held = _look_at_all(piece, seen, digest_through)
        seen.first_missing = _first_missing(piece, held)
    except _UNREADABLE as error:
        told = why(piece, error) if isinstance(piece, SegmentPiece) else str(error)
        seen = SeenRecords(piece.epoch, piece.first, piece.last, unread=told)
        for part in _around_damage(piece):
            try:
                _look_at_all(part, seen, digest_through)
            except _UNREADABLE:
                pass  # ``unread`` already says that not everything could be read
    return seen


def _look_at_all(piece: AnyPiece, seen: SeenRecords, digest_through: int) -> Seqs:
    held = [np.zeros(0, np.int64)]
    for batch in piece.read():
        if batch.num_rows:
            _look(batch, seen, digest_through)
            held.append(batch.column("seq").to_numpy())
    return np.concatenate(held)


def _around_damage(piece: AnyPiece) -> list[SegmentPiece]:
    """The readable parts of a damaged piece."""
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


def _look(batch: Any, seen: SeenRecords, digest_through: int) -> None:
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


def _check_proofs(batch: Any, seqs: Seqs, seen: SeenRecords) -> None:
    metas = batch.column("meta")
    if metas.null_count == len(metas):
        return
    log = batch.column("log")[0].as_py()
    forged = []
    for row, meta in enumerate(metas.to_pylist()):
        proof = proof_of(meta)
        if proof is not None:
            seen.proofs += 1
            data = batch.column("data")[row].as_py()
            if not holds(proof, log, data) and not holds(proof, log, data, DOCUMENT_DOMAIN):
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
