"""Putting the records of a part aside, in a task: the driver takes them from there, in order."""

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

BATCH_ROWS = 8192
#: Of so many bad rows it is told where they are; of the others how many there are.
MAX_FAULTS = 100


class StageItem(msgspec.Struct, array_like=True):
    """``place`` is where the records go; None: it is only looked at them."""

    part: SourcePart
    shape: RowShape
    place: Lake | None = None


class Fault(msgspec.Struct, array_like=True):
    number: int
    why: str


class Staged(msgspec.Struct, array_like=True):
    """``name`` is where the records are, empty if there are none. ``lines`` is the number of the last row."""

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
    """Write records, which have ascending numbers, to a file of their own: its name (empty if there are none), how many
    records, and how many bytes."""
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
        for group in _groups(records):
            writer.write(_batch(group))
            rows += len(group)
    return rows, sink.tell()


def _groups(records: Iterable[tuple[int, NewRecord]]) -> Iterator[list[tuple[int, NewRecord]]]:
    group: list[tuple[int, NewRecord]] = []
    for record in records:
        group.append(record)
        if len(group) == BATCH_ROWS:
            yield group
            group = []
    if group:
        yield group


def _batch(records: list[tuple[int, NewRecord]]) -> Any:
    logs, times, keys, nodes, metas, data = zip(*(record for _, record in records), strict=True)
    columns = [logs, [number for number, _ in records], times, keys, nodes, metas, data]
    return pa.record_batch(
        [pa.array(column, field.type) for column, field in zip(columns, STAGED, strict=True)], schema=STAGED
    )


def staged_batches(place: Lake, name: str) -> Iterator[Any]:
    """What was put aside. Raises UnreadableFile if it is not there."""
    try:
        with place.open(name) as reader, pa.ipc.open_stream(reader) as stream:
            yield from stream
    except FileNotFoundError:
        raise UnreadableFile(
            f"{place.place_of(name)} is not here: it was written by a task that runs elsewhere; say with --staging "
            "where all of them can write, and this process can read"
        ) from None


# --- Appending what was put aside, and noting with every append how far that is -------------------------------------

#: An append has at most so many records, and about so many bytes: a server takes more, but what is repeated is repeated
#: as a whole.
APPEND_ROWS = 10_000
APPEND_BYTES = 4 << 20


class ImportFailed(Exception):
    """It could not go on. The message says why; what was appended stays, and the next run goes on behind it."""


class Marks(Protocol):
    """How far an import has come, in a form that the log keeps."""

    def left(self, known: Progress | None, rows: Any) -> Any:
        """Which of the rows, whose order is that of the import, are not appended yet."""

    def after(self, known: Progress | None, rows: Any) -> Progress:
        """How far it is once these are."""


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
    """``writer`` is the name under which progress is noted."""

    def __init__(self, target: AppendTarget, writer: str, has_times: bool) -> None:
        self._target = target
        self._writer = writer
        self._has_times = has_times
        self._known: dict[str, Progress | None] = {}
        #: How many were appended, by log; and how many had been before.
        self.appended: dict[str, int] = {}
        self.passed = 0

    def known(self, log: str) -> Progress | None:
        """How far the import has come in a log."""
        if log not in self._known:
            try:
                self._known[log] = self._target.progress(log, self._writer)
            except UnknownLog:
                self._known[log] = None
        return self._known[log]

    def append(self, batch: Any, marks: Marks) -> int:
        """Append the rows of a batch that are not there yet; how many were."""
        done = 0
        for log, rows in _by_log(batch):
            left = marks.left(self.known(log), rows)
            self.passed += rows.num_rows - left.num_rows
            for part in self._cut(left):
                self._append(log, part, marks)
            done += left.num_rows
        return done

    def _append(self, log: str, rows: Any, marks: Marks) -> None:
        before = self.known(log)
        after = marks.after(before, rows)
        table = pa.Table.from_batches([rows.select(["key", "node", "meta", "data"])])
        ts = rows.column("ts")[0].as_py() if self._has_times else None
        try:
            self._target.append(log, table, self._writer, before, after, ts=ts)
        except ProgressConflict as error:
            raise ImportFailed(f"another run of this import is under way: {error}") from None
        self._known[log] = after
        self.appended[log] = self.appended.get(log, 0) + rows.num_rows

    def _cut(self, rows: Any) -> Iterator[Any]:
        """What goes into one append: records of one time, if they have times."""
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
    """The rows of each log, in their order."""
    names = batch.column("log").unique().to_pylist()
    if len(names) == 1:
        yield names[0], batch
        return
    for name in names:
        yield name, batch.filter(pc.equal(batch.column("log"), name))
