"""The result of a statement: stored in a file until it is complete, then read as text, JSON or Parquet."""

from __future__ import annotations

import base64
import csv
import io
import math
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import chain
from pathlib import Path
from typing import Any
from uuid import UUID

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Raw

from strandline.sql.request import Format, Limits
from strandline.sql.statement import QueryFailed

BATCH_ROWS = 10_000
#: The largest number that JavaScript holds exactly.
MAX_EXACT = (1 << 53) - 1
_NUMBERS = ("INT", "DECIMAL", "DOUBLE", "FLOAT")


class Result:
    """The rows of a statement. Rows are available only after all of them are computed, so that a statement that fails
    halfway prints nothing."""

    def __init__(self, relation: duckdb.DuckDBPyRelation | None, file: Path, limits: Limits | None = None) -> None:
        """``relation`` is None for a statement without rows. With ``limits``, rows beyond them are left out."""
        self.names = [] if relation is None else list(relation.columns)
        self.types = [] if relation is None else [str(kind) for kind in relation.types]
        self._file = file
        self.rows = 0
        #: Whether there are more rows than the limits allow.
        self.truncated = False
        size = 0
        empty = pa.schema([])
        reader: Any = None if relation is None else relation.to_arrow_reader(BATCH_ROWS)
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, reader.schema if reader else empty) as writer:
            for batch in reader or ():
                if limits is not None:
                    size += batch.nbytes
                    self.truncated = self.rows + batch.num_rows > limits.rows or size > limits.result_bytes
                    batch = batch.slice(0, _fitting(batch, limits.rows - self.rows, size - limits.result_bytes))
                writer.write_batch(batch)
                self.rows += batch.num_rows
                if self.truncated:
                    break

    def _batches(self) -> Iterator[Any]:
        with pa.memory_map(str(self._file)) as source, pa.ipc.open_file(source) as reader:
            for number in range(reader.num_record_batches):
                yield reader.get_batch(number)

    def _values(self) -> Iterator[tuple[Any, ...]]:
        for batch in self._batches():
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)

    # --- forms -------------------------------------------------------------------------------------------------------

    def texts(self) -> Iterator[tuple[str | None, ...]]:
        """Each row as text. None stands for NULL."""
        for row in self._values():
            yield tuple(None if value is None else _text(value) for value in row)

    def objects(self) -> Iterator[dict[str, Any]]:
        """Each row as a JSON object."""
        for row in self._values():
            yield {name: _json(value, kind) for name, value, kind in zip(self.names, row, self.types, strict=True)}

    @property
    def numbers(self) -> list[str]:
        """The names of the columns that hold numbers."""
        return [name for name, kind in zip(self.names, self.types, strict=True) if _is_number(kind)]

    def write(self, form: Format, file: Path, most: int) -> None:
        """Write the result to a file of at most ``most`` bytes. Raises QueryFailed if it is larger."""
        if form == "parquet":
            self.write_parquet(file)
            if file.stat().st_size > most:
                raise _too_large(most)
            return
        lines = {"table": self._table_lines, "csv": self._csv_lines, "json": self._json_lines}[form]()
        size = 0
        with file.open("wb") as sink:
            for line in lines:
                size += len(line)
                if size > most:
                    raise _too_large(most)
                sink.write(line)

    def _table_lines(self) -> Iterator[bytes]:
        """A JSON array of rows, each an array of values. A number that JavaScript would round is a string."""
        yield b"["
        for number, row in enumerate(self._values()):
            cells = [_exact(_json(value, kind)) for value, kind in zip(row, self.types, strict=True)]
            yield (b",\n" if number else b"\n") + msgspec.json.encode(cells)
        yield b"\n]"

    def _json_lines(self) -> Iterator[bytes]:
        """A JSON array of objects."""
        yield b"["
        for number, row in enumerate(self.objects()):
            yield (b",\n" if number else b"\n") + msgspec.json.encode(row)
        yield b"\n]\n"

    def _csv_lines(self) -> Iterator[bytes]:
        line = io.StringIO()
        writer = csv.writer(line, lineterminator="\n")
        for row in chain([self.names], self.texts()):
            writer.writerow(row)
            yield line.getvalue().encode()
            line.seek(0)
            line.truncate()

    def write_parquet(self, file: Path) -> None:
        """Write a Parquet file. It appears under its name when it is complete."""
        partial = file.with_name(f".{file.name}.partial")
        try:
            with pa.memory_map(str(self._file)) as source, pa.ipc.open_file(source) as reader:
                schema = pa.schema([(field.name, _plain(field.type)) for field in reader.schema])
                with pq.ParquetWriter(partial, schema, compression="zstd") as writer:
                    for number in range(reader.num_record_batches):
                        batch = reader.get_batch(number)
                        writer.write_table(pa.table(_storage(batch.columns), schema=schema))
            partial.replace(file)
        finally:
            partial.unlink(missing_ok=True)


def _fitting(batch: pa.RecordBatch, rows: int, over: int) -> int:
    """How many rows of a batch fit: at most ``rows``, and fewer if the batch is ``over`` bytes too large."""
    if over > 0:
        rows = min(rows, batch.num_rows * max(batch.nbytes - over, 0) // batch.nbytes)
    return int(min(rows, batch.num_rows))


def _too_large(most: int) -> QueryFailed:
    return QueryFailed(f"the result is larger than {most >> 20} MB; select fewer rows or columns", "limit")


def _exact(value: Any) -> Any:
    return str(value) if isinstance(value, int) and abs(value) > MAX_EXACT else value


def _plain(kind: Any) -> Any:
    """The storage type of a JSON column: not every reader knows a JSON type in Parquet, so it is written as text."""
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def _storage(columns: list[Any]) -> list[Any]:
    return [column.storage if isinstance(column, pa.ExtensionArray) else column for column in columns]


def _is_number(kind: str) -> bool:
    return any(word in kind for word in _NUMBERS) and "[" not in kind and "(" not in kind.replace("DECIMAL(", "")


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return _moment(value)
    if isinstance(value, bytes):
        return f"base64:{base64.b64encode(value).decode()}"
    if isinstance(value, dict | list):
        return msgspec.json.encode(_json(value, "")).decode()
    return str(value)


def _json(value: Any, kind: str) -> Any:
    """A value for JSON. Values that are JSON already are kept unchanged."""
    if kind == "JSON" and isinstance(value, str):
        return Raw(value.encode())
    if isinstance(value, datetime):
        return _moment(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {str(name): _json(each, "") for name, each in value.items()}
    if isinstance(value, list):
        return [_json(each, "") for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, date | time | timedelta | UUID):
        return str(value)
    return value


def _moment(value: datetime) -> str:
    if value.tzinfo is None:
        return value.isoformat()
    text = value.isoformat(timespec="milliseconds" if value.microsecond % 1000 == 0 else "microseconds")
    return text.replace("+00:00", "Z")
