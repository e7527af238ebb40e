"""Write a segment: columns in, one immutable Arrow IPC file out.

The caller passes rows sorted by (log name, epoch, seq).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import xxhash
from numpy.typing import NDArray

from strandline.arrow import pa
from strandline.engine.disk import Disk
from strandline.engine.segments.footer import (
    METADATA_KEY,
    BlockInfo,
    Footer,
    RunInfo,
    SegmentInfo,
    edges_sum,
    encode_footer,
    find_footer,
)
from strandline.late_import import LateModule

#: Reading one row decompresses the whole block, so blocks must be small: searches show records from all over a history.
#: But every block costs a checksum, a context per compressed buffer and a worse compression ratio (2 % at this size),
#: and smaller blocks slow down full scans.
BLOCK_ROWS = 16384
BLOCK_BYTES = 1 << 18

Ints: TypeAlias = NDArray[np.int64]
Codes: TypeAlias = NDArray[np.int32]

schema: Any = LateModule("strandline.engine.segments.schema")


class Values(Protocol):
    """A column of byte strings that need not be contiguous yet. A length of -1 means no value."""

    lengths: Ints

    def join(self, start: int, end: int) -> bytes:
        """Return the values of the rows from ``start`` to before ``end``, concatenated."""
        ...


class Strings(NamedTuple):
    """A column of strings as codes into ``values``, which are sorted by bytes and have no duplicates. -1 means no
    value."""

    codes: Codes
    values: Any


class SegmentColumns(NamedTuple):
    seqs: Ints
    ts: Ints
    keys: Strings
    nodes: Strings
    metas: Values
    data: Values


class SegmentRun(NamedTuple):
    """The rows of one log. Runs follow each other without a gap."""

    epoch: int
    name: str
    row: int
    rows: int


def write_segment(disk: Disk, path: str, id: int, columns: SegmentColumns, runs: Sequence[SegmentRun]) -> SegmentInfo:
    """Write a segment atomically. It has at least one row."""
    rows = len(columns.seqs)
    #: bounds[i] is the size of all rows before row i.
    bounds = np.zeros(rows + 1, np.int64)
    np.cumsum(columns.data.lengths + np.maximum(columns.metas.lengths, 0), out=bounds[1:])
    by_key, key_ranges = _order_by_key(columns.keys, runs)
    run_infos = _describe_runs(columns, runs, bounds, key_ranges)
    cuts = list(_cut(bounds))
    draft = encode_footer(
        Footer(id, rows, run_infos, [BlockInfo(start, end - start, 0, 0, 0, 0) for start, end in cuts])
    )
    file = _SegmentFile(id, columns, runs, by_key, cuts, bounds, run_infos, draft)
    disk.write_file(path, file.pieces())
    return SegmentInfo(id, file.size, file.edges, rows, run_infos)


class _SegmentFile:
    """Produces the bytes of a segment piece by piece, so that at most one block of it is in memory."""

    def __init__(
        self,
        id: int,
        columns: SegmentColumns,
        runs: Sequence[SegmentRun],
        by_key: Any,
        cuts: Sequence[tuple[int, int]],
        bounds: Ints,
        run_infos: list[RunInfo],
        draft: bytes,
    ) -> None:
        self._id = id
        self._batches = _batches(columns, runs, by_key, cuts)
        self._cuts = cuts
        self._bounds = bounds
        self._run_infos = run_infos
        self._draft = draft
        #: Known once all pieces are produced.
        self.size = 0
        self.edges = 0

    def pieces(self) -> Iterator[bytes]:
        sink, head = _Sink(), b""
        infos: list[BlockInfo] = []
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.ipc.new_file(sink, schema.SCHEMA, options=options, metadata={METADATA_KEY: self._draft}) as writer:
            for (start, end), batch in zip(self._cuts, self._batches, strict=True):
                writer.write_batch(batch)
                piece = sink.take()
                if not infos:
                    head = piece[: _first_block(piece)]
                offset, self.size = self.size + (0 if infos else len(head)), self.size + len(piece)
                checksum = xxhash.xxh3_64_intdigest(piece if infos else piece[len(head) :])
                size = int(self._bounds[end] - self._bounds[start])
                infos.append(BlockInfo(start, end - start, offset, self.size, checksum, size))
                yield piece
        tail = _fill_in(
            sink.take(), self._draft, encode_footer(Footer(self._id, len(self._bounds) - 1, self._run_infos, infos))
        )
        self.size += len(tail)
        self.edges = edges_sum(head, tail)
        yield tail


class _Sink:
    """A file object for Arrow to write to, whose contents are taken away piece by piece."""

    closed = False

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._at = 0

    def write(self, data: Any) -> int:
        part = bytes(data)
        self._parts.append(part)
        self._at += len(part)
        return len(part)

    def take(self) -> bytes:
        taken, self._parts = b"".join(self._parts), []
        return taken

    def tell(self) -> int:
        return self._at

    def flush(self) -> None:
        """Do nothing: there is no buffer."""

    def close(self) -> None:
        self.closed = True


def _cut(bounds: Ints) -> Iterator[tuple[int, int]]:
    rows, start = len(bounds) - 1, 0
    while start < rows:
        full = int(np.searchsorted(bounds, bounds[start] + BLOCK_BYTES, "right")) - 1
        end = min(max(full, start + 1), start + BLOCK_ROWS, rows)
        yield start, end
        start = end


def _order_by_key(keys: Strings, runs: Sequence[SegmentRun]) -> tuple[Any, list[tuple[str | None, str | None]]]:
    """Return the ``by_key`` column, and each run's lowest and highest key."""
    rows = len(keys.codes)
    keyed = np.flatnonzero(keys.codes >= 0)
    if not len(keyed):
        return pa.nulls(rows, pa.int32()), [(None, None)] * len(runs)
    run_rows = np.array([run.row for run in runs], np.int64)
    run_of = np.searchsorted(run_rows, keyed, "right") - 1
    codes = keys.codes[keyed].astype(np.int64)
    # The codes are ranks and the sort is stable, so each run is sorted by key, and each key by seq.
    ordered = keyed[np.argsort(run_of * (len(keys.values) + 1) + codes, kind="stable")]
    counts = np.bincount(run_of, minlength=len(runs))
    starts = np.cumsum(counts) - counts
    column = np.full(rows, -1, np.int32)
    column[run_rows[run_of] + np.arange(len(keyed)) - starts[run_of]] = ordered
    filled = counts > 0
    ranges: list[tuple[str | None, str | None]] = [(None, None)] * len(runs)
    lowest = keys.values.take(pa.array(keys.codes[ordered[starts[filled]]])).to_pylist()
    highest = keys.values.take(pa.array(keys.codes[ordered[(starts + counts - 1)[filled]]])).to_pylist()
    for run, low, high in zip(np.flatnonzero(filled).tolist(), lowest, highest, strict=True):
        ranges[run] = (low, high)
    return pa.array(column, mask=column < 0), ranges


def _describe_runs(
    columns: SegmentColumns,
    runs: Sequence[SegmentRun],
    bounds: Ints,
    key_ranges: Sequence[tuple[str | None, str | None]],
) -> list[RunInfo]:
    starts = np.array([run.row for run in runs], np.int64)
    ends = starts + np.array([run.rows for run in runs], np.int64)
    numbers = zip(
        columns.seqs[starts].tolist(),
        columns.seqs[ends - 1].tolist(),
        (bounds[ends] - bounds[starts]).tolist(),
        columns.ts[starts].tolist(),
        columns.ts[ends - 1].tolist(),
        strict=True,
    )
    return [
        RunInfo(run.epoch, run.name, first, last, run.row, run.rows, size, ts_first, ts_last, *keys)
        for run, (first, last, size, ts_first, ts_last), keys in zip(runs, numbers, key_ranges, strict=True)
    ]


def _batches(
    columns: SegmentColumns, runs: Sequence[SegmentRun], by_key: Any, cuts: Sequence[tuple[int, int]]
) -> Iterator[Any]:
    # Slices of one array share its dictionary, so the writer writes each dictionary once.
    whole = {
        "log": _log_column(runs),
        "seq": pa.array(columns.seqs),
        "ts": pa.array(columns.ts).view(schema.SCHEMA.field("ts").type),
        "key": _dictionary_array(columns.keys),
        "node": _dictionary_array(columns.nodes),
        "by_key": by_key,
    }
    for start, end in cuts:
        arrays = {name: column.slice(start, end - start) for name, column in whole.items()}
        arrays["meta"] = _binary_array(columns.metas, start, end)
        arrays["data"] = _binary_array(columns.data, start, end)
        yield pa.RecordBatch.from_arrays([arrays[name] for name in schema.SCHEMA.names], schema=schema.SCHEMA)


def _log_column(runs: Sequence[SegmentRun]) -> Any:
    # Two epochs of one name are adjacent, and a dictionary must not contain the name twice.
    names = list(dict.fromkeys(run.name for run in runs))
    code = {name: index for index, name in enumerate(names)}
    codes = np.repeat([code[run.name] for run in runs], [run.rows for run in runs]).astype(np.int32)
    return pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(names, pa.utf8()))


def _dictionary_array(strings: Strings) -> Any:
    return pa.DictionaryArray.from_arrays(pa.array(strings.codes, mask=strings.codes < 0), strings.values)


def _binary_array(values: Values, start: int, end: int) -> Any:
    lengths = values.lengths[start:end]
    offsets = np.zeros(end - start + 1, np.int32)
    np.cumsum(np.maximum(lengths, 0), out=offsets[1:])
    present = lengths >= 0
    missing = len(present) - int(np.count_nonzero(present))
    validity = pa.py_buffer(np.packbits(present, bitorder="little").tobytes()) if missing else None
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(values.join(start, end))]
    return pa.Array.from_buffers(pa.binary(), end - start, buffers, missing)


def _first_block(file: bytes) -> int:
    """Return where the first record batch starts. Arrow writes the dictionaries together with it."""
    stream = pa.BufferReader(file)
    stream.seek(8)
    while True:
        offset: int = stream.tell()
        if pa.ipc.read_message(stream).type == "record batch":
            return offset


def _fill_in(tail: bytes, draft: bytes, final: bytes) -> bytes:
    start, end = find_footer(tail)
    assert tail[start:end] == draft, "Arrow changed the metadata"
    assert len(draft) == len(final), "the length of the footer changed"
    return tail[:start] + final + tail[end:]
