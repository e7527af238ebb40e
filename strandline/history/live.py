"""Read the records of a log of an open engine in bulk: whole blocks as Arrow, never record by record.

These reads bypass the block cache, so that reading a whole history does not evict the blocks of readers near the head.
The engine's lock is held only to locate records, never while they are fetched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import numpy as np

from strandline.arrow import pa
from strandline.engine import Log, Page
from strandline.engine.errors import MissingFile
from strandline.engine.operations.journaled import let_all_expire
from strandline.engine.reads.page import SCAN_RECORDS, NotResident, Resident, fetch
from strandline.engine.segments.store import UnknownSegment
from strandline.engine.state.block import Block
from strandline.engine.state.forks import chain, layers, seq_since
from strandline.engine.state.parts import Part, Piece, Run, Segments, Tail
from strandline.engine.state.ranges import inside
from strandline.history.pieces import (
    BATCH_ROWS,
    EVERYTHING,
    Where,
    record_batch,
    stored_batch,
    stored_columns,
)
from strandline.late_import import LateModule

record_schema: Any = LateModule("strandline.history.record_schema")

#: A batch is not much larger than this, however many records are requested: a reader has several batches in memory.
BATCH_BYTES = 2 << 20
#: After this many seqs, or ranges of seqs, the log is examined again, so that records deleted during the read are soon
#: omitted.
LOOK_SEQS = 1 << 17
LOOK_STRETCHES = 4096

T = TypeVar("T")


def sweep(
    log: Log,
    after: int,
    through: int,
    where: Where = EVERYTHING,
    batch_rows: int = BATCH_ROWS,
    batch_bytes: int = BATCH_BYTES,
    schema: Any = None,
) -> Iterator[Any]:
    """Yield the visible records after ``after`` up to ``through``, which is at most the head, as batches of
    ``RECORDS``, in order. Includes records that a fork shares. ``schema`` may have fewer columns (``projected``); the
    default is all.

    Waits for the disk, so do not call it on an event loop. Raises UnknownLog if the log is dropped in the meantime.
    """
    schema = record_schema.RECORDS if schema is None else schema
    first, last = bounds(log, after, through, where)
    if where.key is not None:
        found = _of_key(log, where.key, first, last, schema)
    else:
        found = _everything(log, first, last, batch_rows, batch_bytes, schema)
    return _regroup(found, batch_rows, batch_bytes)


def bounds(log: Log, after: int, through: int, where: Where) -> tuple[int, int]:
    """Return the range of seqs to read. A range of times corresponds to a range of seqs, see ``seq_since``."""
    first, last = after + 1, through
    if where.since is not None:
        since = where.since
        first = max(first, _look(log, lambda segments: seq_since(log.book, since, segments)))
    if where.until is not None:
        until = where.until
        last = min(last, _look(log, lambda segments: seq_since(log.book, until, segments, closely=True)) - 1)
    return first, last


def _look(log: Log, look: Callable[[Segments], T]) -> T:
    """Return the result of ``look`` on a log, fetching the data it needs."""
    segments = Resident(log.engine.store)
    while True:
        try:
            with log.engine.lock:
                log.book.check_there()
                return look(segments)
        except NotResident as missing:
            fetch(log.book, missing)


def _regroup(found: Iterator[Any], rows: int, size: int) -> Iterator[Any]:
    """Yield the same records in batches of ``rows`` records or about ``size`` bytes."""
    gathered: list[Any] = []
    count = weight = 0
    for batch in found:
        start = 0
        # Large records need smaller batches: a block of them may be many times as large as a batch.
        most = max(1, size * batch.num_rows // max(1, batch.nbytes))
        while start < batch.num_rows:
            part = batch.slice(start, min(rows - count, most))
            start += part.num_rows
            gathered.append(part)
            count += part.num_rows
            weight += part.nbytes
            if count >= rows or weight >= size:
                yield _joined(gathered)
                gathered, count, weight = [], 0, 0
    if gathered:
        yield _joined(gathered)


def _joined(batches: list[Any]) -> Any:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


# --- all records ---------------------------------------------------------------------------------------------------


class _Sealed(NamedTuple):
    """Rows of a segment: the visible seqs of a run."""

    run: Run
    visible: list[tuple[int, int]]
    amended: dict[int, bytes]

    @property
    def last(self) -> int:
        return self.visible[-1][1]


class _Fresh(NamedTuple):
    """Rows in memory."""

    pieces: list[Piece]
    amended: dict[int, bytes]

    @property
    def last(self) -> int:
        block, _, end = self.pieces[-1]
        return block.seq(end - 1)


def _everything(log: Log, at: int, last: int, rows: int, size: int, schema: Any) -> Iterator[Any]:
    while at <= last:
        with log.engine.lock:
            log.book.check_there()
            let_all_expire(log.engine, log.book)
            found = _locate(log, at, last, rows, size)
        if found is None:
            return
        if isinstance(found, _Fresh):
            yield _of_blocks(log, found, schema)
            at = found.last + 1
            continue
        try:
            for batch, reached in _of_segment(log, found, schema):
                yield batch
                at = reached + 1
            at = found.last + 1
        except (UnknownSegment, MissingFile):
            # The segment was merged or dropped in the meantime, and the log's records are elsewhere or gone.
            if any(run.segment == found.run.segment for book in chain(log.book) for run in book.runs):
                raise


def _locate(log: Log, at: int, last: int, rows: int, size: int) -> _Sealed | _Fresh | None:
    """Locate the first visible records from ``at`` on. The engine's lock is held."""
    for book, low, high in layers(log.book):
        low, high = max(low, at, book.earliest), min(high, last)
        for part in book.parts():
            visible = _visible(part, low, high)
            if not visible:
                continue
            amended = {} if part.overlay is None else part.overlay.amended
            amended = {seq: amended[seq] for seq in amended if visible[0][0] <= seq <= visible[-1][1]}
            if isinstance(part, Run):
                return _Sealed(part, visible, amended)
            assert isinstance(part, Tail)
            pieces = _pieces(part, visible, rows, size)
            if pieces:
                return _Fresh(pieces, amended)
    return None


def _visible(part: Part, low: int, high: int) -> list[tuple[int, int]]:
    """Return the first visible ranges of seqs of a part, at most as many as are read before the log is examined
    again."""
    low, high = max(low, part.first), min(high, part.last)
    if low > high:
        return []
    stretches = iter([(low, high)]) if part.overlay is None else part.overlay.visible(low, high)
    found = list(islice(stretches, LOOK_STRETCHES))
    bound = found[0][0] + LOOK_SEQS - 1 if found else 0
    return [(start, min(end, bound)) for start, end in found if start <= bound]


def _pieces(tail: Tail, visible: list[tuple[int, int]], rows: int, size: int) -> list[Piece]:
    """Return the first rows of the ranges, enough for one batch."""
    found: list[Piece] = []
    for first, last in visible:
        for block, start, end in tail.pieces(first, last, _NOWHERE):
            end = min(end, start + rows)
            stop = max(block.fitting(start, end, size), start + 1)
            found.append((block, start, stop))
            rows -= stop - start
            size -= block.size(start, stop)
            if stop < end or rows <= 0 or size <= 0:
                return found
    return found


class _Nowhere:
    """A segment lookup for tails, which need no segments."""

    def segment(self, id: int) -> Any:
        raise AssertionError

    def load(self, id: int, index: int) -> Block:
        raise AssertionError


_NOWHERE = _Nowhere()


def _of_segment(log: Log, found: _Sealed, schema: Any) -> Iterator[tuple[Any, int]]:
    """Yield batches of a segment's rows, and the seq that each one reaches."""
    store, run, stored = log.engine.store, found.run, stored_columns(schema)
    segment = store.segment(run.segment)
    row = segment.row_of(run.row, run.rows, run.first, found.visible[0][0])
    end = segment.row_of(run.row, run.rows, run.first, found.last + 1)
    while row < end:
        index = segment.block_of(row)
        block = segment.blocks[index]
        stop = min(end, block.row + block.rows)
        batch = store.batch(run.segment, index, stored).slice(row - block.row, stop - row)
        row = stop
        seqs = batch.column("seq").to_numpy()
        reached = int(seqs[-1])
        if len(found.visible) > 1:
            kept = inside(seqs, found.visible)
            batch = batch if kept.all() else batch.filter(pa.array(kept))
        yield stored_batch(log.name, log.epoch, batch, found.amended, schema), reached


def _of_blocks(log: Log, found: _Fresh, schema: Any) -> Any:
    """Return rows in memory as a batch. A single block's payloads are not copied."""
    pieces = found.pieces
    rows = sum(end - start for _, start, end in pieces)
    data = None
    if "data" in schema.names:
        block = Block.gather(pieces, found.amended or None)
        data = pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(block.offsets), pa.py_buffer(block.data)])
    seqs = np.concatenate([np.arange(block.seq(start), block.seq(start) + end - start) for block, start, end in pieces])
    times = np.concatenate([_times(block, start, end) for block, start, end in pieces])
    return record_batch(
        log.name,
        log.epoch,
        pa.array(seqs),
        times,
        _labels(pieces, "keys", pa.string()),
        _labels(pieces, "nodes", pa.string()),
        _labels(pieces, "metas", pa.binary()),
        data,
        schema,
    )


def _labels(pieces: list[Piece], what: str, kind: Any) -> Any:
    found: list[Any] = []
    for block, start, end in pieces:
        values = getattr(block, what)
        found += [None] * (end - start) if values is None else values[start:end]
    return pa.array(found, kind)


def _times(block: Block, start: int, end: int) -> Any:
    if isinstance(block.ts, int):
        return np.full(end - start, block.ts, np.int64)
    return np.frombuffer(block.ts, np.int64)[start:end]


# --- one key -------------------------------------------------------------------------------------------------------


def _of_key(log: Log, key: str, at: int, last: int, schema: Any) -> Iterator[Any]:
    """Yield the records of a key through the key index, which returns single records."""
    while at <= last:
        page = log.read(at - 1, SCAN_RECORDS, max_bytes=BATCH_BYTES, key=key)
        if page.seqs:
            yield _of_page(log, page, sum(seq <= last for seq in page.seqs), schema)
        if page.caught_up or page.next_after < at:
            return
        at = page.next_after + 1


def _of_page(log: Log, page: Page, rows: int, schema: Any) -> Any:
    return record_batch(
        log.name,
        log.epoch,
        pa.array(page.seqs[:rows], pa.int64()),
        np.array(page.ts[:rows], np.int64),
        pa.array(page.keys[:rows], pa.string()),
        pa.array(page.nodes[:rows], pa.string()),
        pa.array(page.metas[:rows], pa.binary()),
        pa.array(page.data[:rows], record_schema.RECORDS.field("data").type),
        schema,
    )
