"""Tasks for the table ``records``: pieces of history in, data files out."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa

from strandline.client.errors import Forbidden, NotAuthenticated, Unreachable
from strandline.history.source import AnyPiece
from strandline.lake import layout
from strandline.lake.files import ROW_GROUP_ROWS, DataFile, FileWriter
from strandline.lake.layout import Versions, lake_rows_of
from strandline.lake.location import Lake
from strandline.lake.reporter import describe
from strandline.lake.table import LakeTable

#: A file is closed at this size. It is large enough that a table of terabytes has some ten thousand files, and small
#: enough that a file is rewritten in seconds when a record in it is erased.
FILE_BYTES = 128 << 20
#: Rows are written in groups of at most this many bytes before compression, or this many rows.
GROUP_BYTES = 64 << 20
#: The records of small logs are combined until there are this many rows, or this many bytes.
FEW_ROWS = 4096
FEW_BYTES = 4 << 20

#: Errors that are not about the log being read: they affect all logs.
_EVERYTHING = {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EROFS}


class RecordsItem(msgspec.Struct, frozen=True, array_like=True):
    """Pieces in the order of their logs and seqs. ``versions``: by epoch, if the log has a schema."""

    number: int
    lake: Lake
    pieces: list[AnyPiece]
    versions: dict[int, list[tuple[int, int]]] = {}


class ReadFailure(msgspec.Struct, frozen=True, array_like=True):
    """A log could not be read after the seq ``through``."""

    log: str
    epoch: int
    through: int
    message: str


class RecordsDone(msgspec.Struct, frozen=True, array_like=True):
    """The result. For a log that failed, the files contain the records before the failure."""

    number: int
    files: list[DataFile]
    failures: list[ReadFailure]

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


def write_records(item: RecordsItem) -> RecordsDone:
    failures: dict[int, ReadFailure] = {}
    with RowsWriter(layout.records(item.lake)) as writer:
        few: list[tuple[Any, Versions]] = []
        rows = size = 0
        for piece in item.pieces:
            if piece.epoch in failures:
                continue
            reached = piece.first - 1
            for batch in readable(piece, failures):
                if batch.num_rows:
                    few.append((batch, item.versions.get(piece.epoch, ())))
                    rows += batch.num_rows
                    size += batch.nbytes
                    reached = batch.column("seq")[-1].as_py()
                if rows >= FEW_ROWS or size >= FEW_BYTES:
                    writer.write(lake_rows_of(few))
                    few, rows, size = [], 0, 0
            if piece.epoch in failures:
                failures[piece.epoch] = msgspec.structs.replace(failures[piece.epoch], through=reached)
        if few:
            writer.write(lake_rows_of(few))
        return RecordsDone(item.number, writer.close(), list(failures.values()))


def readable(piece: AnyPiece, failures: dict[int, ReadFailure]) -> Iterator[Any]:
    """Yield the batches of a piece, up to where it is unreadable."""
    reading = piece.read()
    while True:
        try:
            batch = next(reading, None)
        except Exception as error:
            if concerns_everything(error):
                raise
            failures[piece.epoch] = ReadFailure(piece.log, piece.epoch, piece.first - 1, describe(error))
            return
        if batch is None:
            return
        yield batch


def concerns_everything(error: Exception) -> bool:
    """Return whether an error while reading a log affects all logs."""
    if isinstance(error, OSError):
        return error.errno in _EVERYTHING
    return isinstance(error, (MemoryError, Unreachable, NotAuthenticated, Forbidden))


class RowsWriter:
    """Writes rows to files of suitable size, in groups of suitable size. If the block is left by an error, no file is
    left behind."""

    def __init__(self, table: LakeTable, partition: dict[str, str | None] | None = None) -> None:
        self._table = table
        self._partition = partition
        self._schema = table.schema
        for name in table.partition_by:
            self._schema = self._schema.remove(self._schema.get_field_index(name))
        self._waiting: list[Any] = []
        self._rows = self._bytes = 0
        self._writer: FileWriter | None = None
        self._files: list[DataFile] = []

    def __enter__(self) -> RowsWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            if self._writer is not None:
                self._writer.abandon()
            self._table.lake.remove(f"{self._table.name}/{file.path}" for file in self._files)

    def write(self, batch: Any) -> None:
        """Write a record batch or a table with the columns of the table."""
        self._waiting += batch.to_batches() if isinstance(batch, pa.Table) else [batch]
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        if self._rows >= ROW_GROUP_ROWS or self._bytes >= GROUP_BYTES:
            self._flush()

    def close(self) -> list[DataFile]:
        self._flush()
        self._end_file()
        return self._files

    def _flush(self) -> None:
        if not self._rows:
            return
        if self._writer is None:
            self._writer = FileWriter(self._table.lake, self._table.name, self._schema, self._partition)
        self._writer.write(pa.Table.from_batches(self._waiting, self._schema))
        self._waiting, self._rows, self._bytes = [], 0, 0
        if self._writer.size >= FILE_BYTES:
            self._end_file()

    def _end_file(self) -> None:
        if self._writer is not None:
            self._files.append(self._writer.close())
            self._writer = None
