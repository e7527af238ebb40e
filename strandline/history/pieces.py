"""Pieces of history: a part of a log that one worker reads, with everything the worker needs.

A piece is a small value. It is created where the log is known, sent to a worker, and read there.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import msgspec
import numpy as np

from strandline.arrow import pa
from strandline.engine.disk import LocalDisk
from strandline.engine.segments.cold_tier import ObjectStoreCold
from strandline.engine.segments.segment import ROW_COLUMNS, Segment
from strandline.engine.segments.store import SegmentStore
from strandline.engine.state.ranges import inside
from strandline.late_import import LateModule

record_schema: Any = LateModule("strandline.history.record_schema")

#: Batches are rarely larger, because several are in memory at a time, in the worker and where they are sent.
BATCH_ROWS = 65_536
#: The number of segments that one process keeps open. Pieces of one segment usually follow each other.
OPEN_SEGMENTS = 16
#: The number of decoded blocks that one process keeps. Small logs share a block with their neighbours, whose pieces
#: come next.
OPEN_BLOCKS = 32


class Where(msgspec.Struct, frozen=True, array_like=True):
    """Which records of a range of seqs to read. Times are in milliseconds; ``until`` is exclusive."""

    key: str | None = None
    since: int | None = None
    until: int | None = None


EVERYTHING = Where()


class Piece(Protocol):
    """``first`` and ``last`` bound the seqs; ``rows`` is the approximate number of records."""

    @property
    def log(self) -> str: ...

    @property
    def epoch(self) -> int: ...

    @property
    def first(self) -> int: ...

    @property
    def last(self) -> int: ...

    @property
    def rows(self) -> int: ...

    def read(self, batch_rows: int = BATCH_ROWS, columns: Sequence[str] | None = None) -> Iterator[Any]:
        """Yield the records as batches of ``RECORDS``, in order. With ``columns``, which include ``seq``, only these
        columns are fetched and decoded, in the order of ``RECORDS``."""


class ColdPlace(msgspec.Struct, frozen=True, array_like=True):
    url: str
    options: dict[str, str | bool] = {}


class SegmentPiece(msgspec.Struct, frozen=True, array_like=True, tag="segment"):
    """Rows of a segment file. ``path`` is empty if it is in the cold tier."""

    log: str
    epoch: int
    first: int
    last: int
    rows: int
    path: str
    id: int
    size: int
    edges: int
    run_row: int
    run_rows: int
    run_first: int
    visible: list[tuple[int, int]]
    amended: dict[int, bytes] = {}
    where: Where = EVERYTHING
    cold: ColdPlace | None = None

    def segment(self) -> Segment:
        """Open the segment file of the piece. Raises MissingFile or DamagedFile."""
        return _opened(self)

    def read(self, batch_rows: int = BATCH_ROWS, columns: Sequence[str] | None = None) -> Iterator[Any]:
        segment = _opened(self)
        schema = projected(columns)
        stored = stored_columns(schema, timed=self.where.since is not None or self.where.until is not None)
        row = segment.row_of(self.run_row, self.run_rows, self.run_first, self.first)
        end = segment.row_of(self.run_row, self.run_rows, self.run_first, self.last + 1)
        wanted = None if self.where.key is None else self._seqs_of_key(segment, self.where.key)
        for index in _blocks(segment, row, end) if wanted is None else self._blocks_with(segment, wanted):
            block = segment.blocks[index]
            start, stop = max(row - block.row, 0), min(end - block.row, block.rows)
            is_shared = stop - start < block.rows
            found = _decoded(segment, index, stored) if is_shared else segment.batch(index, stored)
            batch = self._batch(found.slice(start, stop - start), wanted, schema)
            for at in range(0, batch.num_rows, batch_rows):
                yield batch.slice(at, batch_rows)

    def _seqs_of_key(self, segment: Segment, key: str) -> Any:
        return np.array(segment.seqs_with_key(self.run_row, self.run_rows, key), np.int64)

    def _blocks_with(self, segment: Segment, seqs: Any) -> list[int]:
        """Return the blocks with these seqs of the piece. The other blocks need not be decompressed."""
        seqs = seqs[np.searchsorted(seqs, self.first) : np.searchsorted(seqs, self.last, "right")]
        found: dict[int, None] = {}
        at = 0
        while at < len(seqs):
            row = segment.row_of(self.run_row, self.run_rows, self.run_first, int(seqs[at]))
            index = segment.block_of(row)
            found[index] = None
            block = segment.blocks[index]
            # Seqs are at least as far apart as their rows, so all seqs up to here are in the same block.
            at = int(np.searchsorted(seqs, seqs[at] + block.row + block.rows - row))
        return list(found)

    def _batch(self, batch: Any, wanted: Any, schema: Any) -> Any:
        seqs = batch.column("seq").to_numpy()
        is_whole = self.visible == [(self.first, self.last)]
        kept = np.ones(len(seqs), np.bool_) if is_whole else inside(seqs, self.visible)
        if wanted is not None:
            kept &= np.isin(seqs, wanted, assume_unique=True)
        if self.where.since is not None or self.where.until is not None:
            times = batch.column("ts").cast(pa.int64()).to_numpy()
            if self.where.since is not None:
                kept &= times >= self.where.since
            if self.where.until is not None:
                kept &= times < self.where.until
        if not kept.all():
            batch = batch.filter(pa.array(kept))
        return stored_batch(self.log, self.epoch, batch, self.amended, schema)


def _blocks(segment: Segment, row: int, end: int) -> range:
    return range(segment.block_of(row), segment.block_of(end - 1) + 1) if row < end else range(0)


def amended_data(seqs: Any, data: Any, amended: dict[int, bytes]) -> Any:
    """Return the payloads of the records with these seqs, with amendments applied."""
    rows = [row for row, seq in enumerate(seqs.tolist()) if seq in amended]
    if not rows:
        return data
    values = data.to_pylist()
    for row in rows:
        values[row] = amended[int(seqs[row])]
    return pa.array(values, record_schema.RECORDS.field("data").type)


# --- open files of this process ------------------------------------------------------------------------------------

_lock = threading.Lock()
_segments: dict[tuple[str, int, int, int], Segment] = {}
_blocks_decoded: dict[tuple[Segment, int, tuple[str, ...]], Any] = {}
_cold_stores: dict[str, tuple[SegmentStore, tempfile.TemporaryDirectory[str]]] = {}


def _opened(piece: SegmentPiece) -> Segment:
    """Return the segment, and keep it open for the following pieces."""
    if not piece.path:
        return _opened_cold(piece)
    key = piece.path, piece.id, piece.size, piece.edges
    with _lock:
        segment = _segments.pop(key, None)
        if segment is None:
            segment = Segment.open(piece.path, piece.path, piece.id, piece.size, piece.edges)
        _segments[key] = segment
        while len(_segments) > OPEN_SEGMENTS:
            del _segments[next(iter(_segments))]
        return segment


def _decoded(segment: Segment, index: int, stored: tuple[str, ...]) -> Any:
    """Return columns of a block, and keep them for the following pieces."""
    with _lock:
        batch = _blocks_decoded.pop((segment, index, stored), None)
    if batch is None:
        batch = segment.batch(index, stored)
    with _lock:
        _blocks_decoded[segment, index, stored] = batch
        while len(_blocks_decoded) > OPEN_BLOCKS:
            del _blocks_decoded[next(iter(_blocks_decoded))]
    return batch


def _opened_cold(piece: SegmentPiece) -> Segment:
    assert piece.cold is not None, "a piece in the cold tier needs the location of the cold tier"
    place = msgspec.json.encode(piece.cold).decode()
    with _lock:
        found = _cold_stores.get(place)
        if found is None:
            directory = tempfile.TemporaryDirectory(prefix="strandline-")
            cold = ObjectStoreCold(piece.cold.url, **piece.cold.options)
            disk = LocalDisk(directory.name)
            found = (
                SegmentStore(disk, cold, cache_directory=os.path.join(directory.name, "cache")),
                directory,
            )
            _cold_stores[place] = found
    store = found[0]
    store.add(piece, "cold")
    return store.segment(piece.id)


# --- the schema of records in bulk ----------------------------------------------------------------------------------


def projected(columns: Sequence[str] | None) -> Any:
    """The schema of batches with only these columns of ``RECORDS``. Raises ValueError for an unknown name."""
    if columns is None:
        return record_schema.RECORDS
    unknown = [name for name in columns if name not in record_schema.RECORDS.names]
    if unknown:
        raise ValueError(
            f"unknown column {unknown[0]!r}; the columns of records are {', '.join(record_schema.RECORDS.names)}"
        )
    return pa.schema([field for field in record_schema.RECORDS if field.name in columns])


def stored_columns(schema: Any, *, timed: bool = False) -> tuple[str, ...]:
    """The columns of a segment that batches of this schema need, always with ``seq``, which shows what is visible.
    ``timed``: records are chosen by their time."""
    return tuple(name for name in ROW_COLUMNS if name == "seq" or name in schema.names or (timed and name == "ts"))


def stored_batch(log: str, epoch: int, rows: Any, amended: Mapping[int, bytes], schema: Any = None) -> Any:
    """Make a batch from rows of a segment, by default with the columns of ``RECORDS``. ``amended`` has new payloads for
    some seqs."""
    schema = record_schema.RECORDS if schema is None else schema
    columns = dict(zip(rows.schema.names, rows.columns, strict=True))
    if amended and "data" in schema.names:
        columns["data"] = amended_data(columns["seq"].to_numpy(), columns["data"], dict(amended))
    for name in ("key", "node"):
        if name in columns:
            columns[name] = columns[name].cast(pa.string())
    times = columns["ts"].to_numpy(zero_copy_only=False) if "ts" in schema.names else ()
    return record_batch(
        log, epoch, columns["seq"], times,
        columns.get("key"), columns.get("node"), columns.get("meta"), columns.get("data"), schema,
    )  # fmt: skip


def record_batch(
    log: str, epoch: int, seqs: Any, milliseconds: Any, keys: Any, nodes: Any, metas: Any, data: Any,
    schema: Any = None,
) -> Any:  # fmt: skip
    """Make a batch of ``RECORDS`` from Arrow arrays of one log's records. Times are integers in milliseconds, of any
    type. Columns that ``schema`` leaves out are ignored; the default is all."""
    schema = record_schema.RECORDS if schema is None else schema
    rows = len(seqs)
    made = {
        "log": lambda: pa.repeat(log, rows),
        "epoch": lambda: pa.array(np.full(rows, epoch, np.int64)),
        "seq": lambda: seqs,
        "ts": lambda: pa.array(
            np.asarray(milliseconds, "datetime64[ms]").astype("datetime64[us]"), record_schema.RECORDS.field("ts").type
        ),
        "key": lambda: keys,
        "node": lambda: nodes,
        "meta": lambda: metas,
        "data": lambda: data,
    }
    return pa.record_batch([made[name]() for name in schema.names], schema=schema)
