"""Tasks for typed tables: files of the table ``records`` in, files of typed tables out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from strandline.lake.files import DataFile, open_file
from strandline.lake.key_files import Ranges
from strandline.lake.location import Lake
from strandline.lake.record_files import RowsWriter
from strandline.lake.typed_tables import folder_of, typed_table
from strandline.pipeline.typed_tables.definition import TableColumns, TableSource, columns_of
from strandline.tables.names import UPDATED_AT
from strandline.tables.rows import author_in, split_stamps
from strandline.tables.versions import SchemaVersions

_NARROW = ["epoch", "seq"]
_WIDE = ["log", "epoch", "seq", "ts", "key", "meta", "data", "bytes"]


class TypedItem(msgspec.Struct, frozen=True, array_like=True):
    """Files of ``records``, the records to include, and the table of each epoch by its place in ``tables``."""

    lake: Lake
    files: list[str]
    ranges: Ranges
    tables: list[TableSource]
    table_of: dict[int, int]


class TypedDone(msgspec.Struct, frozen=True, array_like=True):
    """The new files, by folder."""

    files: dict[str, list[DataFile]]


def write_typed(item: TypedItem) -> TypedDone:
    with ExitStack() as stack:
        writers: dict[int, RowsWriter] = {}
        for rows in _wanted(item):
            of = _places(rows.column("epoch").to_numpy(), item.table_of)
            for place in np.unique(of).tolist():
                source = item.tables[place]
                if place not in writers:
                    table = typed_table(item.lake, folder_of(source.name), columns_of(source).schema)
                    writers[place] = stack.enter_context(RowsWriter(table))
                mine = of == place
                writers[place].write(typed_rows(source, rows if mine.all() else rows.filter(pa.array(mine))))
        return TypedDone({folder_of(item.tables[place].name): writer.close() for place, writer in writers.items()})


def _places(epochs: Any, table_of: dict[int, int]) -> Any:
    """The table of each row."""
    known, inverse = np.unique(epochs, return_inverse=True)
    return np.array([table_of[epoch] for epoch in known.tolist()], np.int64)[inverse]


def _wanted(item: TypedItem) -> Iterator[Any]:
    """The rows to include, group by group. Payloads are read only where there are such rows."""
    for path in item.files:
        with open_file(item.lake, f"records/{path}") as opened:
            file = pq.ParquetFile(opened)
            for group in range(file.num_row_groups):
                narrow = file.read_row_group(group, columns=_NARROW, use_threads=False)
                kept = item.ranges.mask(narrow.column("epoch").to_numpy(), narrow.column("seq").to_numpy())
                if kept.any():
                    wide = file.read_row_group(group, columns=_WIDE, use_threads=False)
                    yield wide if kept.all() else wide.filter(pa.array(kept))


def typed_rows(source: TableSource, rows: Any) -> Any:
    """Rows of ``records`` as rows of a typed table."""
    columns = columns_of(source)
    seqs = rows.column("seq").to_numpy()
    if not source.is_declared and len(seqs) > 1 and (np.diff(seqs) < 0).any():
        # Only if another engine has rearranged the file. Versions of a log's schema follow each other by seq.
        rows = rows.take(np.argsort(seqs, kind="stable"))
        seqs = rows.column("seq").to_numpy()
    data = pc.coalesce(rows.column("data").cast(pa.binary()), rows.column("bytes").cast(pa.binary())).to_pylist()
    first = [rows.column(name) for name in _WIDE[1:5]]
    if source.is_declared:
        logs = rows.column("log").cast(pa.string())
        parent = pc.utf8_slice_codeunits(logs, len(source.name) + 1)
        metas = rows.column("meta").to_pylist()
        author = pa.array([author_in(meta) for meta in metas], pa.string())
        first = [parent, *first, author, _updated(data, rows.column("ts"))]
        if len(columns.versions) > 1:
            upgraded = SchemaVersions(columns.versions, columns.versions[-1].version)
            data = list(map(upgraded.data, metas, data))
    else:
        first = [rows.column("log"), *first]
    payload = columns.payload.arrays(seqs.tolist(), data)
    return pa.table([*_cast(first, columns), *_renamed(payload, columns)], schema=columns.schema)


def _updated(data: list[bytes], created: Any) -> Any:
    """The time of the last edit of each row, or of its creation."""
    mark = UPDATED_AT.encode()
    times = [split_stamps(each)[2] if mark in each else None for each in data]
    edited = pa.array(times, pa.int64()).cast(pa.timestamp("ms", tz="UTC")).cast(created.type)
    return pc.coalesce(edited, created)


def _cast(arrays: list[Any], columns: TableColumns) -> Iterator[Any]:
    """Another engine may have stored the same values with other types."""
    for array, field in zip(arrays, columns.row, strict=True):
        yield array if array.type == field.type else array.cast(field.type)


def _renamed(arrays: list[Any], columns: TableColumns) -> Iterator[Any]:
    """Columns whose members may have other names in the table."""
    for array, field in zip(arrays, list(columns.schema)[len(columns.row) :], strict=True):
        yield array if array.type == field.type else array.view(field.type)
