"""Buckets: keys grouped by their hash, so that a change of a few keys rewrites little more than their rows.

A bucket contains all keys whose hash starts with its bits, for example ``0110``. A bucket that has grown too large is
split in two when it is written the next time. Buckets therefore stay about the same size however large the table
becomes, no bucket is rewritten because of others, and no number of buckets has to be configured.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash

from strandline.lake import layout
from strandline.lake.files import DataFile, open_file
from strandline.lake.layout import KEYS, LATEST
from strandline.lake.location import Lake
from strandline.lake.record_files import RowsWriter
from strandline.lake.table import LakeTable

Hashes = npt.NDArray[np.uint64]


def hashes(epochs: Sequence[int], keys: Sequence[str]) -> Hashes:
    """Return the hashes of keys, each with the epoch of its log. They are the same in every process."""
    digest = xxhash.xxh3_64_intdigest
    return np.array([digest(key.encode(), epoch) for epoch, key in zip(epochs, keys, strict=True)], np.uint64)


def even(bits: int) -> list[str]:
    """Return all buckets of this many bits, at least one."""
    return [f"{number:0{bits}b}" for number in range(1 << bits)]


def cover(known: Iterable[str]) -> list[str]:
    """Return ascending buckets that cover every hash and include all known ones. If a known bucket is part of another,
    only the larger one is included."""
    names = set(known)
    return [*_cover("0", names), *_cover("1", names)]


def _cover(bucket: str, names: set[str]) -> list[str]:
    if bucket in names or not any(name.startswith(bucket) for name in names):
        return [bucket]
    return [*_cover(f"{bucket}0", names), *_cover(f"{bucket}1", names)]


def places(buckets: Sequence[str], of: Hashes) -> Any:
    """Return, for each hash, the index of its bucket in a cover."""
    starts = np.array([int(bucket, 2) << (64 - len(bucket)) for bucket in buckets], np.uint64)
    return np.searchsorted(starts, of, "right") - 1


# --- tasks for the tables ``latest`` and ``keys``: aggregate records by key and distribute them over buckets --------

#: A bucket with more rows than this, or more bytes of payload, is split. One task holds a bucket in memory, and a
#: bucket is rewritten for a single changed key.
BUCKET_ROWS = 262_144
BUCKET_BYTES = 128 << 20
#: Rows are aggregated in portions of about this many bytes.
PORTION_BYTES = 128 << 20

_NARROW = ["epoch", "seq", "key"]
_WIDE = ["log", "epoch", "seq", "ts", "key", "version", "data", "bytes"]


class Ranges(msgspec.Struct, frozen=True, array_like=True):
    """Which records to include: by epoch, ascending, those after one seq and up to another."""

    epochs: list[int]
    after: list[int]
    through: list[int]

    def between(self, first: int, last: int) -> Ranges:
        """Return the ranges of these epochs only."""
        low, high = np.searchsorted(self.epochs, [first, last + 1])
        return Ranges(self.epochs[low:high], self.after[low:high], self.through[low:high])

    def mask(self, epochs: Any, seqs: Any) -> Any:
        if not self.epochs:
            return np.zeros(len(seqs), np.bool_)
        known = np.array(self.epochs, np.int64)
        at = np.minimum(np.searchsorted(known, epochs), len(known) - 1)
        found = known[at] == epochs
        return found & (seqs > np.array(self.after)[at]) & (seqs <= np.array(self.through)[at])


class Affected(msgspec.Struct, frozen=True, array_like=True):
    """Keys to compute again, by epoch; None: all keys of that log."""

    keys: dict[int, list[str] | None] = {}

    def mask(self, epochs: Any, keys: Any) -> Any:
        """Return which rows have an affected key. ``epochs`` is a numpy array, ``keys`` an Arrow array."""
        found = np.zeros(len(epochs), np.bool_)
        for epoch, names in self.keys.items():
            of_log = epochs == epoch
            if names is not None and of_log.any():
                named = pc.is_in(keys, value_set=pa.array(names, pa.string()))
                of_log &= named.to_numpy(zero_copy_only=False)
            found |= of_log
        return found


class KeyItem(msgspec.Struct, frozen=True, array_like=True):
    """Files of ``records`` to aggregate, and buckets to rewrite even if they get no new rows."""

    files: list[str]
    ranges: Ranges
    buckets: list[str] = []


class KeyJob(msgspec.Struct, frozen=True, array_like=True):
    """``latest`` and ``keys`` have the files of those tables by bucket. With ``affected``, the stored rows of these
    keys are dropped, and only these keys are aggregated."""

    lake: Lake
    buckets: list[str]
    latest: dict[str, list[str]]
    keys: dict[str, list[str]]
    affected: Affected | None = None


class BucketDone(msgspec.Struct, frozen=True, array_like=True):
    bucket: str
    latest: list[DataFile]
    keys: list[DataFile]


# --- distributing ----------------------------------------------------------------------------------------------------


def spread(item: KeyItem, job: KeyJob) -> Iterator[tuple[str, bytes]]:
    for bucket in item.buckets:
        yield bucket, b""
    portion: list[Any] = []
    size = 0
    for path in item.files:
        for rows in _wanted(path, item, job):
            portion.append(rows)
            size += rows.nbytes
            if size >= PORTION_BYTES:
                yield from _parts(pa.concat_tables(portion), job.buckets)
                portion, size = [], 0
    if portion:
        yield from _parts(pa.concat_tables(portion), job.buckets)


def _wanted(path: str, item: KeyItem, job: KeyJob) -> Iterator[Any]:
    """Yield the rows to include, group by group. Payloads are read only where there are such rows."""
    with open_file(job.lake, f"records/{path}") as source:
        file = pq.ParquetFile(source)
        for group in range(file.num_row_groups):
            narrow = file.read_row_group(group, columns=_NARROW, use_threads=False)
            kept = _mask(narrow, item, job)
            if kept.any():
                wide = file.read_row_group(group, columns=_WIDE, use_threads=False)
                yield wide if kept.all() else wide.filter(pa.array(kept))


def _mask(rows: Any, item: KeyItem, job: KeyJob) -> Any:
    epochs, seqs = rows.column("epoch").to_numpy(), rows.column("seq").to_numpy()
    keys = rows.column("key").combine_chunks()
    kept = item.ranges.mask(epochs, seqs) & pc.is_valid(keys).to_numpy(zero_copy_only=False)
    if job.affected is not None and kept.any():
        kept &= job.affected.mask(epochs, keys)
    return kept


def _parts(rows: Any, buckets: list[str]) -> Iterator[tuple[str, bytes]]:
    rows = summed(rows)
    at = places(buckets, hashes(rows.column("epoch").to_pylist(), rows.column("key").to_pylist()))
    order = np.argsort(at, kind="stable")
    rows, at = rows.take(order), at[order]
    for place in np.unique(at):
        low, high = np.searchsorted(at, [place, place + 1])
        yield buckets[place], _encoded(rows.slice(low, high - low))


def _encoded(rows: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SUMMED, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        # Copy the strings: slices would keep all of their neighbours in memory.
        writer.write_table(rows.combine_chunks())
    found: bytes = sink.getvalue().to_pybytes()
    return found


# --- gathering -------------------------------------------------------------------------------------------------------


def gather(bucket: str, parts: list[bytes], job: KeyJob) -> BucketDone:
    new = [pa.ipc.open_stream(part).read_all() for part in parts if part]
    latest = merged_latest([*_known(job, "latest", bucket, LATEST_ROWS), *new, LATEST_ROWS.empty_table()])
    keys = merged_keys([*_known(job, "keys", bucket, KEY_ROWS), KEY_ROWS.empty_table()], new)
    done = BucketDone(bucket, [], [])
    for name, last, known in _split(bucket, latest, keys):
        done.latest.extend(_written(layout.latest(job.lake), last, name))
        done.keys.extend(_written(layout.keys(job.lake), known, name))
    return done


def _split(bucket: str, latest: Any, keys: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield buckets of suitable size. Both tables are split in the same way, so that they have the same buckets."""
    if keys.num_rows < 2 or (keys.num_rows <= BUCKET_ROWS and latest.nbytes <= BUCKET_BYTES):
        yield bucket, latest, keys
        return
    ones = [_next_bit(table, len(bucket)) for table in (latest, keys)]
    for bit in (0, 1):
        halves = [table.filter(pa.array(one == bit)) for table, one in zip((latest, keys), ones, strict=True)]
        yield from _split(f"{bucket}{bit}", halves[0], halves[1])


def _next_bit(rows: Any, depth: int) -> Any:
    found = hashes(rows.column("epoch").to_pylist(), rows.column("key").to_pylist())
    return (found >> np.uint64(63 - depth)) & np.uint64(1)


def _known(job: KeyJob, table: str, bucket: str, schema: Any) -> Iterator[Any]:
    paths = (job.latest if table == "latest" else job.keys).get(bucket, [])
    for path in paths:
        with open_file(job.lake, f"{table}/{path}") as source:
            rows = pq.ParquetFile(source).read(columns=schema.names, use_threads=False)
        if job.affected is not None:
            gone = job.affected.mask(rows.column("epoch").to_numpy(), rows.column("key").combine_chunks())
            rows = rows.filter(pa.array(~gone))
        yield rows


def _written(table: LakeTable, rows: Any, bucket: str) -> list[DataFile]:
    with RowsWriter(table, {"bucket": bucket}) as writer:
        writer.write(rows)
        return writer.close()


# --- aggregating records by key, on whole columns -------------------------------------------------------------------

_LATEST = [name for name in LATEST.names if name != "bucket"]
_KEYS = [name for name in KEYS.names if name != "bucket"]
LATEST_ROWS = pa.schema([LATEST.field(name) for name in _LATEST])
KEY_ROWS = pa.schema([KEYS.field(name) for name in _KEYS])
#: The last record of each key, combined with the totals of the key.
SUMMED = pa.schema(
    [*LATEST_ROWS, *(KEY_ROWS.field(name) for name in ("first_seq", "first_ts", "count"))],
)


def summed(records: Any) -> Any:
    """Aggregate rows of ``records`` that all have a key to one row per log and key, as ``SUMMED``."""
    groups = _grouped(records, ["first", "last", "count"])
    first, last = groups.column("row_first"), groups.column("row_last")
    columns = {name: records.column(name).take(last) for name in _LATEST}
    columns["first_seq"] = records.column("seq").take(first)
    columns["first_ts"] = records.column("ts").take(first)
    columns["count"] = groups.column("row_count")
    return pa.table([columns[name] for name in SUMMED.names], schema=SUMMED)


def merged_latest(tables: Sequence[Any]) -> Any:
    """Return the last row of ``latest`` per log and key, in order."""
    rows = pa.concat_tables([table.select(_LATEST).cast(LATEST_ROWS) for table in tables])
    return rows.take(_grouped(rows, ["last"]).column("row_last")).sort_by(_ORDER)


def merged_keys(known: Sequence[Any], new: Sequence[Any]) -> Any:
    """Merge rows of ``keys`` and of ``SUMMED`` per log and key, in order."""
    renamed = [
        table.select(["log", "epoch", "key", "first_seq", "first_ts", "seq", "ts", "count"]).rename_columns(_KEYS)
        for table in new
    ]
    rows = pa.concat_tables([table.select(_KEYS).cast(KEY_ROWS) for table in (*known, *renamed)])
    groups = rows.group_by(["log", "epoch", "key"], use_threads=False).aggregate(
        [("first_seq", "min"), ("first_ts", "min"), ("last_seq", "max"), ("last_ts", "max"), ("count", "sum")]
    )
    columns = [
        *("log", "epoch", "key"),
        *("first_seq_min", "first_ts_min", "last_seq_max", "last_ts_max", "count_sum"),
    ]
    return groups.select(columns).rename_columns(_KEYS).cast(KEY_ROWS).sort_by(_ORDER)


_ORDER = [("log", "ascending"), ("epoch", "ascending"), ("key", "ascending")]


def _grouped(rows: Any, wanted: list[str]) -> Any:
    """Return one row per log and key, with the indexes of its first and last row by seq, or the number of its rows."""
    order = np.argsort(rows.column("seq").to_numpy(), kind="stable")
    columns = {"epoch": rows.column("epoch").take(order), "key": rows.column("key").take(order), "row": order}
    # First and last depend on the order of rows, which several threads would not preserve.
    grouped = pa.table(columns).group_by(["epoch", "key"], use_threads=False)
    return grouped.aggregate([("row", each) for each in wanted])
