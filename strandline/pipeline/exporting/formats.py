"""Files of exported records, format by format."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable
from typing import Any, Literal, get_args

import msgspec
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from strandline.lake.files import COMPRESSION, COMPRESSION_LEVEL, ROW_GROUP_ROWS
from strandline.lake.place import Lake
from strandline.pipeline.exporting.rows import AS_TEXT, EXPORTED, as_lines, as_text, exported

Format = Literal["parquet", "jsonl", "csv"]
FORMATS: tuple[Format, ...] = get_args(Format)


class Part(msgspec.Struct, array_like=True):
    """A file that is written. ``logs`` says by log how many records it has."""

    name: str
    rows: int
    size: int
    logs: dict[str, int]


def write_part(place: Lake, name: str, format: Format, batches: Iterable[Any]) -> Part | None:
    """Write a file, in one step however often it is tried; None, and no file, if there are no records."""
    directory = place.directory
    if directory is None:
        buffer = pa.BufferOutputStream()
        rows, logs = _write(buffer, format, batches)
        data = buffer.getvalue().to_pybytes()
        if rows:
            place.write(name, data)
        return Part(name, rows, len(data), logs) if rows else None
    temporary = directory / f".{name}.{uuid.uuid4().hex}"
    try:
        with pa.OSFile(str(temporary), "wb") as file:
            rows, logs = _write(file, format, batches)
        if not rows:
            return None
        _sync(temporary)
        os.replace(temporary, directory / name)
        return Part(name, rows, (directory / name).stat().st_size, logs)
    finally:
        temporary.unlink(missing_ok=True)


def _write(sink: Any, format: Format, batches: Iterable[Any]) -> tuple[int, dict[str, int]]:
    rows = 0
    logs: dict[str, int] = {}
    with _Writer(sink, format) as writer:
        for batch in batches:
            if batch.num_rows:
                writer.write(exported(batch))
                rows += batch.num_rows
                for each in batch.column("log").value_counts().to_pylist():
                    logs[each["values"]] = logs.get(each["values"], 0) + each["counts"]
    return rows, logs


class _Writer:
    def __init__(self, sink: Any, format: Format) -> None:
        self._sink = sink
        self._writer: Any = None
        if format == "parquet":
            self._writer = pq.ParquetWriter(
                sink, EXPORTED, compression=COMPRESSION, compression_level=COMPRESSION_LEVEL,
                use_dictionary=["log", "key", "node"],
            )  # fmt: skip
        elif format == "csv":
            self._writer = pyarrow.csv.CSVWriter(sink, AS_TEXT)

    def write(self, batch: Any) -> None:
        if isinstance(self._writer, pq.ParquetWriter):
            self._writer.write_batch(batch, row_group_size=ROW_GROUP_ROWS)
        elif self._writer is not None:
            self._writer.write_batch(as_text(batch))
        else:
            self._sink.write(as_lines(batch))

    def __enter__(self) -> _Writer:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()


def _sync(path: os.PathLike[str]) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
