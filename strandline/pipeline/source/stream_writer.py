"""Writes a streaming DataFrame to logs: ``df.writeStream.format("strandline")``.

By URL every task stages its rows on the server. When all tasks are done, the driver appends the staged rows of a log by
reference, in order, in one step with the progress of the query: the payloads do not pass through it. So a batch is in a
log completely or not at all, whatever rows the tasks of a repeated batch have. What tasks that were killed staged is
never appended, and expires.

By path only one process can open the directory. So tasks send their rows to the driver, which appends them in the same
steps; ``spark.driver.maxResultSize`` limits their size.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from strandline.client.errors import StrandlineError
from strandline.engine.errors import UnknownLog
from strandline.history.remote import ProgressConflict, ServerTarget
from strandline.pipeline.source.frames import FrameShape, appended, by_log, packed, unpacked
from strandline.pipeline.source.option_values import BadOption
from strandline.pipeline.source.options import WriteOptions
from strandline.pipeline.source.progress import (
    MARKS,
    MAX_APPEND_ROWS,
    LostCheckpoint,
    NotedProgress,
    in_order,
    marked,
    steps,
)
from strandline.pipeline.source.targets import MAX_WRITER, AppendTarget, CannotAppend, Progress, open_target
from strandline.pipeline.source.writer import check_overwrite, chunks

log = logging.getLogger(__name__)

#: The property that identifies the query in a task.
_QUERY = "sql.streaming.queryId"
#: Rows of a log are staged together up to this size.
STAGED_BYTES = 8 << 20


@dataclass
class StagedPart:
    """Rows of a log that a task has staged, with the marks of the rows."""

    log: str
    id: str
    marks: bytes


@dataclass
class BatchRows(WriterCommitMessage):
    """What a task leaves to the driver: references to its rows, or by path the rows."""

    query: str
    rows: bytes = b""
    staged: list[StagedPart] = field(default_factory=list)


class StreamWriter(DataSourceStreamArrowWriter):
    """Created for every batch, in tasks and on the driver."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        check_overwrite(overwrite)
        self._options = options
        self._writer = writer_name(options)
        self._shape = schema, options.log
        FrameShape(*self._shape)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        shape = FrameShape(*self._shape)
        context = TaskContext.get()
        query = None if context is None else context.getLocalProperty(_QUERY)
        if not query:
            raise CannotAppend(
                f"Spark did not pass the id of the query (property {_QUERY}), which is needed to recognise batches"
            )
        batches = (shape.rows(batch) for batch in iterator if batch.num_rows)
        if self._options.place.path:
            return BatchRows(query, packed(list(batches)))
        return BatchRows(query, staged=staged(batches, self._options, positions=shape.has_positions))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        found = [message for message in messages if isinstance(message, BatchRows)]
        if not found:
            return
        positions = FrameShape(*self._shape).has_positions
        rows: Sequence[LogRows]
        if self._options.place.path:
            rows = local_rows(unpacked([message.rows for message in found]), positions=positions)
        else:
            rows = staged_rows([part for message in found for part in message.staged])
        with open_target(self._options.place) as target:
            append_batch(
                target, rows, found[0].query, batchId, self._writer,
                positions=positions, create=self._options.create,
            )  # fmt: skip
            unstage(target, found)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Rows are appended only after all tasks have succeeded, so nothing but staged rows is left."""
        found = [message for message in messages if isinstance(message, BatchRows)]
        if self._options.place.url:
            with open_target(self._options.place) as target:
                unstage(target, found)


# --- in tasks ------------------------------------------------------------------------------------------------------


def staged(batches: Iterator[Any], options: WriteOptions, *, positions: bool) -> list[StagedPart]:
    """Stage the rows of a task on the server, in their order."""
    target = ServerTarget(options.place.url, options.place.key)
    parts: list[StagedPart] = []
    gathered: dict[str, list[Any]] = {}
    size = 0

    def stage() -> None:
        for name, batch in gathered.items():
            rows = pa.concat_tables(batch)
            for start, end in chunks(rows, options.batch_rows):
                chunk = rows.slice(start, end - start)
                id = target.stage(name, appended(chunk), create=options.create)
                parts.append(StagedPart(name, id, _written(marked(chunk, positions=positions))))
        gathered.clear()

    try:
        for batch in batches:
            for name, rows in by_log(pa.Table.from_batches([batch])):
                gathered.setdefault(name, []).append(rows)
            size += batch.nbytes
            if size >= STAGED_BYTES:
                stage()
                size = 0
        stage()
    except BaseException:
        _unstage(target, parts)
        raise
    return parts


def _written(table: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    marks: bytes = sink.getvalue().to_pybytes()
    return marks


# --- on the driver -------------------------------------------------------------------------------------------------


class LogRows(Protocol):
    """The rows of a batch for one log. ``table`` has the columns of ``MARKS``."""

    log: str
    table: Any

    def append(
        self, target: Any, rows: Any, writer: str, before: Progress | None, after: Progress, *, create: bool
    ) -> None:
        """Append some of the rows of ``table``. Raises ProgressConflict."""


@dataclass
class LocalRows:
    """Rows that are here. ``table`` has the columns of an append as well."""

    log: str
    table: Any

    def append(
        self, target: Any, rows: Any, writer: str, before: Progress | None, after: Progress, *, create: bool
    ) -> None:
        target.append(self.log, appended(rows), writer, before, after, create=create)


@dataclass
class ReferencedRows:
    """Rows that are staged on the server. ``table`` has a ``part`` and a ``row`` for each."""

    log: str
    table: Any
    parts: list[str]

    def append(
        self, target: Any, rows: Any, writer: str, before: Progress | None, after: Progress, *, create: bool
    ) -> None:
        numbers, runs = runs_of(rows.column("part").to_numpy(), rows.column("row").to_numpy())
        ids = [self.parts[number] for number in numbers]
        target.append_staged(self.log, ids, runs, writer, before, after, create=create)


def local_rows(rows: Any, *, positions: bool) -> list[LocalRows]:
    found = []
    for name, table in by_log(rows):
        marks = marked(table, positions=positions)
        for column in ("size", "digest"):
            table = table.append_column(MARKS.field(column), marks.column(column))
        found.append(LocalRows(name, table))
    return found


def staged_rows(parts: Sequence[StagedPart]) -> list[ReferencedRows]:
    found = []
    for name in sorted({part.log for part in parts}):
        own = [part for part in parts if part.log == name]
        tables = []
        for number, part in enumerate(own):
            marks = pa.ipc.open_stream(part.marks).read_all()
            marks = marks.append_column("part", pa.array(np.full(marks.num_rows, number, np.int64)))
            tables.append(marks.append_column("row", pa.array(np.arange(marks.num_rows, dtype=np.int64))))
        found.append(ReferencedRows(name, pa.concat_tables(tables), [part.id for part in own]))
    return found


def runs_of(parts: Any, rows: Any) -> tuple[list[int], list[tuple[int, int, int]]]:
    """Consecutive rows as runs: the numbers of the parts in use, and for each run the index of the part in that list,
    the first row and the number of rows."""
    if not len(rows):
        return [], []
    used, index = np.unique(parts, return_inverse=True)
    starts = np.flatnonzero(np.r_[True, (parts[1:] != parts[:-1]) | (rows[1:] != rows[:-1] + 1)])
    counts = np.diff(np.r_[starts, len(rows)])
    runs = list(zip(index[starts].tolist(), rows[starts].tolist(), counts.tolist(), strict=True))
    return used.tolist(), runs


def append_batch(
    target: AppendTarget,
    batch_rows: Sequence[LogRows],
    query: str,
    batch: int,
    writer: str,
    *,
    positions: bool,
    create: bool = True,
    max_rows: int = MAX_APPEND_ROWS,
) -> None:
    """Append the remaining rows of a batch. Errors of any log are raised before the first append."""
    planned = []
    for rows in batch_rows:
        found = in_order(rows.table) if positions else rows.table
        noted = _noted(target, rows.log, writer)
        left = steps(
            found, noted, query, batch, positions=positions, log=rows.log, writer=writer, max_rows=max_rows
        )  # fmt: skip
        planned.append((rows, noted, left))
    for rows, noted, left in planned:
        before = None if noted is None else noted.document()
        for step in left:
            after = step.noted.document()
            try:
                rows.append(target, step.rows, writer, before, after, create=create)
            except ProgressConflict as conflict:
                raise LostCheckpoint(
                    f"another query writes to log {rows.log!r} as {writer!r} at the same time: set a different option "
                    f"writer for each query ({conflict})"
                ) from None
            before = after


def _noted(target: AppendTarget, log: str, writer: str) -> NotedProgress | None:
    try:
        return NotedProgress.of(target.progress(log, writer))
    except UnknownLog:
        return None


def unstage(target: Any, messages: Sequence[BatchRows]) -> None:
    _unstage(target, [part for message in messages for part in message.staged])


def _unstage(target: Any, parts: Sequence[StagedPart]) -> None:
    """Remove staged rows. If that fails, they expire."""
    ids_of: dict[str, list[str]] = {}
    for part in parts:
        ids_of.setdefault(part.log, []).append(part.id)
    try:
        for name, ids in ids_of.items():
            target.unstage(name, ids)
    except StrandlineError as error:
        log.warning("staged rows were not removed, and expire: %s", error)


def writer_name(options: WriteOptions) -> str:
    """The name under which progress is stored. It must survive a lost checkpoint, so it does not come from it."""
    if options.writer is not None:
        if len(options.writer) > MAX_WRITER or not options.writer.isprintable():
            raise BadOption(f"writer must be 1 to {MAX_WRITER} printable characters, got {options.writer!r}")
        return options.writer
    if options.checkpoint is None:
        raise BadOption("set the option writer or checkpointLocation: progress is stored under one of these names")
    place = options.checkpoint.removeprefix("file://").removeprefix("file:").rstrip("/")
    return f"spark-{sha256(place.encode()).hexdigest()[:32]}"
