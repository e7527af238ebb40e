"""Stages the records of a part in a task, and appends them in the driver, in order."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.engine.errors import UnknownLog
from strandline.history.remote import ProgressConflict
from strandline.lake.location import Lake
from strandline.pipeline.imports.files import RowShape, SourcePart, UnreadableFile
from strandline.pipeline.imports.records import STAGED, NewRecord
from strandline.pipeline.imports.rows import SourceRow, read_rows
from strandline.pipeline.source.targets import AppendTarget, Progress

#: The maximum rows and approximate bytes of a staged batch, which is in memory as a whole.
BATCH_ROWS = 8192
BATCH_BYTES = 32 << 20
#: The maximum number of invalid rows that are listed. All of them are counted.
MAX_FAULTS = 100


class StageItem(msgspec.Struct, array_like=True):
    """``place`` is where the records are staged; None only checks them."""

    part: SourcePart
    shape: RowShape
    place: Lake | None = None


class Fault(msgspec.Struct, array_like=True):
    number: int
    why: str


class Staged(msgspec.Struct, array_like=True):
    """``name`` is the staged file, empty without records. ``lines`` is the number of the last row."""

    part: SourcePart
    rows: int = 0
    lines: int = 0
    name: str = ""
    size: int = 0
    bad: int = 0
    faults: list[Fault] = []
    unreadable: str = ""


def stage(item: StageItem) -> Staged:
    staged = Staged(item.part)
    try:
        records = _records(read_rows(item.part, item.shape), staged)
        if item.place is None:
            for _ in records:
                staged.rows += 1
        else:
            staged.name, staged.rows, staged.size = put_aside(item.place, enumerate(records))
    except UnreadableFile as error:
        return Staged(item.part, unreadable=str(error))
    return staged


def _records(rows: Iterator[SourceRow], staged: Staged) -> Iterator[NewRecord]:
    for row in rows:
        staged.lines = row.number
        if row.record is not None:
            yield row.record
        elif row.fault:
            staged.bad += 1
            if len(staged.faults) < MAX_FAULTS:
                staged.faults.append(Fault(row.number, row.fault))


def put_aside(place: Lake, records: Iterable[tuple[int, NewRecord]]) -> tuple[str, int, int]:
    """Write records with ascending numbers to a new file. Returns its name (empty without records), the number of
    records, and the number of bytes."""
    name = f"{uuid.uuid4().hex}.arrow"
    if place.directory is None:
        buffer = pa.BufferOutputStream()
        rows, size = _write(buffer, records)
        if rows:
            place.write(name, buffer.getvalue().to_pybytes())
    else:
        with pa.OSFile(str(place.directory / name), "wb") as file:
            rows, size = _write(file, records)
        if not rows:
            place.remove([name])
    return (name, rows, size) if rows else ("", 0, 0)


def _write(sink: Any, records: Iterable[tuple[int, NewRecord]]) -> tuple[int, int]:
    rows = 0
    with pa.ipc.new_stream(sink, STAGED, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        for batch in staged(records):
            writer.write(batch)
            rows += batch.num_rows
    return rows, sink.tell()


def staged(records: Iterable[tuple[int, NewRecord]]) -> Iterator[Any]:
    """Records with ascending numbers as batches of bounded size."""
    for group in _groups(records):
        yield _batch(group)


def _groups(records: Iterable[tuple[int, NewRecord]]) -> Iterator[list[tuple[int, NewRecord]]]:
    group: list[tuple[int, NewRecord]] = []
    size = 0
    for record in records:
        group.append(record)
        size += len(record[1].data) + len(record[1].meta or b"")
        if len(group) == BATCH_ROWS or size >= BATCH_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def _batch(records: list[tuple[int, NewRecord]]) -> Any:
    logs, times, keys, nodes, metas, data = zip(*(record for _, record in records), strict=True)
    columns = [logs, [number for number, _ in records], times, keys, nodes, metas, data]
    return pa.record_batch(
        [pa.array(column, field.type) for column, field in zip(columns, STAGED, strict=True)], schema=STAGED
    )


def staged_batches(place: Lake, name: str) -> Iterator[Any]:
    """The staged records. Raises UnreadableFile if the file is missing."""
    try:
        with place.open(name) as reader, pa.ipc.open_stream(reader) as stream:
            yield from stream
    except FileNotFoundError:
        raise UnreadableFile(
            f"{place.place_of(name)} is missing: a task on another machine wrote it; give --staging with a location "
            "that all tasks can write to and this process can read"
        ) from None


# --- Appending staged records, with progress ------------------------------------------------------------------------

#: The maximum records and approximate bytes of an append. A server accepts more, but a repeated append is repeated as a
#: whole.
APPEND_ROWS = 10_000
APPEND_BYTES = 4 << 20


class ImportFailed(Exception):
    """The import stopped. The message gives the reason. Appended records stay, and the next run continues there."""


class Marks(Protocol):
    """The progress of an import, in the form that the log stores."""

    def left(self, known: Progress | None, rows: Any) -> Any:
        """The rows that are not appended yet. Rows are in the order of the import."""

    def after(self, known: Progress | None, rows: Any) -> Progress:
        """The progress after these rows."""


class PartMarks:
    """The number of a part, and of the next row in it."""

    def __init__(self, number: int) -> None:
        self._number = number

    def left(self, known: Progress | None, rows: Any) -> Any:
        if known is None or known["part"] < self._number:
            return rows
        if known["part"] > self._number:
            return rows.slice(0, 0)
        return rows.filter(pc.greater_equal(rows.column("row"), known["row"]))

    def after(self, known: Progress | None, rows: Any) -> Progress:
        return {"part": self._number, "row": rows.column("row")[-1].as_py() + 1}


class ImportAppender:
    """Appends staged records. ``writer`` is the name under which progress is stored."""

    def __init__(self, target: AppendTarget, writer: str, has_times: bool) -> None:
        self._target = target
        self._writer = writer
        self._has_times = has_times
        self._known: dict[str, Progress | None] = {}
        #: The number of appended records by log, and of those that an earlier run appended.
        self.appended: dict[str, int] = {}
        self.passed = 0

    def known(self, log: str) -> Progress | None:
        """The progress of the import in a log."""
        if log not in self._known:
            try:
                self._known[log] = self._target.progress(log, self._writer)
            except UnknownLog:
                self._known[log] = None
        return self._known[log]

    def append(self, batch: Any, marks: Marks) -> int:
        """Append the rows of a batch that are not appended yet. Returns their number."""
        done = 0
        for log, rows in _by_log(batch):
            left = marks.left(self.known(log), rows)
            while left.num_rows:
                for part in self._cut(left):
                    if not self._append(log, part, marks):
                        break
                    left = left.slice(part.num_rows)
                    done += part.num_rows
                left = marks.left(self.known(log), left)
        self.passed += batch.num_rows - done
        return done

    def _append(self, log: str, rows: Any, marks: Marks) -> bool:
        """Whether the rows were appended; otherwise another run appends them, and its progress is known now."""
        before = self.known(log)
        after = marks.after(before, rows)
        table = pa.Table.from_batches([rows.select(["key", "node", "meta", "data"])])
        ts = rows.column("ts")[0].as_py() if self._has_times else None
        try:
            self._target.append(log, table, self._writer, before, after, ts=ts)
        except ProgressConflict as error:
            if error.progress is None:
                raise ImportFailed(f"the progress of this import in log {log!r} was deleted meanwhile") from None
            self._known[log] = error.progress
            return False
        self._known[log] = after
        self.appended[log] = self.appended.get(log, 0) + rows.num_rows
        return True

    def _cut(self, rows: Any) -> Iterator[Any]:
        """Split rows into appends. An append has one time, if records have times."""
        if not rows.num_rows:
            return
        ends = [rows.num_rows]
        if self._has_times:
            times = rows.column("ts").to_numpy()
            ends = [*(np.flatnonzero(np.diff(times)) + 1).tolist(), rows.num_rows]
        sizes = np.cumsum(pc.binary_length(rows.column("data")).to_numpy())
        start = 0
        for end in ends:
            while start < end:
                before = int(sizes[start - 1]) if start else 0
                fitting = int(np.searchsorted(sizes, before + APPEND_BYTES, "right"))
                stop = min(end, start + APPEND_ROWS, max(fitting, start + 1))
                yield rows.slice(start, stop - start)
                start = stop


def _by_log(batch: Any) -> Iterator[tuple[str, Any]]:
    """The rows of each log, in order."""
    names = batch.column("log").unique().to_pylist()
    if len(names) == 1:
        yield names[0], batch
        return
    for name in names:
        yield name, batch.filter(pc.equal(batch.column("log"), name))
