"""Data files of tables. Tasks write them, and the driver commits them."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import msgspec

from strandline.arrow import fs, pa, pc, pq
from strandline.lake.location import Lake

#: The transaction log keeps the minimum and maximum of these columns per file, and of no others: values in the log
#: outlive the rows they were taken from.
BOUNDED = ("log", "parent", "epoch", "seq", "ts")
#: Columns with few distinct values, which use a dictionary. It costs time, and saves nothing for payloads.
_REPEATED = ("log", "parent", "key", "node", "rollup", "measure")
COMPRESSION, COMPRESSION_LEVEL = "zstd", 3
ROW_GROUP_ROWS = 131_072


class DataFile(msgspec.Struct, frozen=True, array_like=True):
    """``path`` is relative to the table. ``bounds`` has the minimum and maximum by column."""

    path: str
    size: int
    rows: int
    written_ms: int
    bounds: dict[str, tuple[str | int, str | int]] = {}
    partition: dict[str, str | None] = {}

    @property
    def statistics(self) -> str:
        """Return the statistics in the format of the transaction log."""
        return json.dumps(
            {
                "numRecords": self.rows,
                "minValues": {name: low for name, (low, _) in self.bounds.items()},
                "maxValues": {name: high for name, (_, high) in self.bounds.items()},
                "nullCount": dict.fromkeys(self.bounds, 0),
            }
        )


class FileWriter:
    """Writes one data file of a table, batch by batch. Nothing refers to the file before it is committed."""

    def __init__(self, lake: Lake, table: str, schema: Any, partition: dict[str, str | None] | None = None) -> None:
        self._lake = lake
        self._table = table
        self._partition = partition or {}
        folder = "".join(f"{name}={value}/" for name, value in self._partition.items())
        self._path = f"{folder}{uuid.uuid4().hex}.parquet"
        self._bounded = [name for name in BOUNDED if name in schema.names and name not in self._partition]
        self._bounds: dict[str, tuple[Any, Any]] = {}
        self._rows = 0
        directory = lake.directory
        if directory is None:
            self._target: Any = pa.BufferOutputStream()
        else:
            target = directory / table / self._path
            target.parent.mkdir(parents=True, exist_ok=True)
            self._target = pa.OSFile(str(target), "wb")
        self._writer = pq.ParquetWriter(
            self._target,
            schema,
            compression=COMPRESSION,
            compression_level=COMPRESSION_LEVEL,
            use_dictionary=[name for name in schema.names if name in _REPEATED],
        )

    @property
    def rows(self) -> int:
        return self._rows

    @property
    def size(self) -> int:
        """The number of bytes written so far."""
        return int(self._target.tell())

    def write(self, batch: Any) -> None:
        """Write a record batch or a table."""
        if not batch.num_rows:
            return
        self._rows += batch.num_rows
        for name in self._bounded:
            found = pc.min_max(batch.column(name)).as_py()
            low, high = found["min"], found["max"]
            if name in self._bounds:
                low, high = min(low, self._bounds[name][0]), max(high, self._bounds[name][1])
            self._bounds[name] = low, high
        table = batch if isinstance(batch, pa.Table) else pa.Table.from_batches([batch])
        self._writer.write_table(table, row_group_size=ROW_GROUP_ROWS)

    def close(self) -> DataFile:
        """Return the complete and durable file."""
        self._writer.close()
        if self._lake.directory is None:
            data = self._target.getvalue().to_pybytes()
            self._lake.write(f"{self._table}/{self._path}", data)
            size = len(data)
        else:
            size = self._target.tell()
            self._target.close()
            _sync(self._lake, f"{self._table}/{self._path}")
        bounds = {name: (_stated(low), _stated(high)) for name, (low, high) in self._bounds.items()}
        return DataFile(self._path, size, self._rows, int(time.time() * 1000), bounds, self._partition)

    def abandon(self) -> None:
        """Discard the file."""
        self._writer.close()
        if self._lake.directory is not None:
            self._target.close()
            self._lake.remove([f"{self._table}/{self._path}"])


def write_file(
    lake: Lake, table: str, schema: Any, batches: Iterable[Any], partition: dict[str, str | None] | None = None
) -> DataFile | None:
    """Write all batches to one file. Return None if there are no rows."""
    writer = FileWriter(lake, table, schema, partition)
    try:
        for batch in batches:
            writer.write(batch)
    except BaseException:
        writer.abandon()
        raise
    if not writer.rows:
        writer.abandon()
        return None
    return writer.close()


def _stated(value: Any) -> str | int:
    """Return a bound as a JSON value."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f") + "Z"
    found: str | int = value
    return found


def _sync(lake: Lake, name: str) -> None:
    assert lake.directory is not None
    fd = os.open(lake.directory / name, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


# --- opening files of the lake --------------------------------------------------------------------------------------


@contextmanager
def open_file(lake: Lake, name: str) -> Iterator[Any]:
    """Open a file for Arrow. Raises FileNotFoundError. A file in an object store is fetched as a whole: table files are
    small enough, and one request is faster than many."""
    directory = lake.directory
    if directory is not None:
        with pa.OSFile(str(directory / name)) as file:
            yield file
        return
    data = lake.read(name)
    if data is None:
        raise FileNotFoundError(lake.place_of(name))
    yield pa.BufferReader(data)


# --- reading Parquet files in tasks, filtered by a condition --------------------------------------------------------

BATCH_ROWS = 65_536


def read_lake_file(
    lake: Lake, name: str, columns: Sequence[str], condition: Any = None, batch_rows: int = BATCH_ROWS
) -> Iterator[Any]:
    """Yield the rows that fulfil the condition, batch by batch, in the order of the file. Raises FileNotFoundError."""
    # It imports pandas if that is installed, which takes long and which exports do not need.
    import pyarrow.dataset as ds

    format = ds.ParquetFileFormat()
    if lake.directory is not None:
        fragment = format.make_fragment(str(lake.directory / name), fs.LocalFileSystem())
    else:
        fragment = format.make_fragment(pa.BufferReader(_fetched(lake, name)))
    for batch in fragment.to_batches(columns=list(columns), filter=condition, batch_size=batch_rows):
        if batch.num_rows:
            yield batch


def _fetched(lake: Lake, name: str) -> bytes:
    data = lake.read(name)
    if data is None:
        raise FileNotFoundError(lake.place_of(name))
    return data
