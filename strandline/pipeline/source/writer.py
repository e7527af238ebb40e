"""Writing a data frame to logs: ``df.write.format("strandline")``.

By url every task appends its own rows, in chunks. A task that is tried again finds in the log how many of its rows are
there, and goes on behind them; so within one job every row is appended once, as long as a task gets the same rows in
the same order again, which is so unless the frame is made of something random. What a job that failed has appended
stays: logs take nothing back.

By path only one process can have the directory open. So tasks send their rows to the driver, which appends them when
all are there; ``spark.driver.maxResultSize`` bounds how many that can be.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from strandline.engine.errors import UnknownLog
from strandline.history.remote import ProgressConflict
from strandline.pipeline.source.frames import FrameShape, appended, by_log, packed, unpacked
from strandline.pipeline.source.options import BadOption, WriteOptions
from strandline.pipeline.source.progress import MAX_APPEND_BYTES, LostCheckpoint, NotedProgress, in_order, steps
from strandline.pipeline.source.targets import MAX_WRITER, AppendTarget, CannotAppend, open_target

#: Every task keeps a note in the log until the job is done, and a log has room for a megabyte of them.
MAX_TASKS = 4000


@dataclass
class TaskDone(WriterCommitMessage):
    """What a task did: into which logs it appended, or which rows are to be appended."""

    partition: int
    logs: list[str] = field(default_factory=list)
    rows: bytes = b""


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        check_overwrite(overwrite)
        self._options = options
        self._shape = schema, options.log
        #: Its tasks find their own notes by this.
        self._job = uuid4().hex[:16]
        FrameShape(*self._shape)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        shape = FrameShape(*self._shape)
        context = TaskContext.get()
        assert context is not None
        partition = context.partitionId()
        batches = (shape.rows(batch) for batch in iterator if batch.num_rows)
        if self._options.place.path:
            return TaskDone(partition, rows=packed(list(batches)))
        if partition >= MAX_TASKS:
            raise CannotAppend(f"a frame is written by {MAX_TASKS} tasks at most: use coalesce({MAX_TASKS}) or fewer")
        with open_target(self._options.place) as target:
            appender = FrameAppender(target, f"job-{self._job}-{partition}", self._options, context.attemptNumber() > 0)
            for batch in batches:
                for name, rows in by_log(batch):
                    appender.append(name, rows)
            return TaskDone(partition, appender.logs)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        done = [message for message in messages if isinstance(message, TaskDone)]
        if self._options.place.path:
            self._append_all([message.rows for message in done])
        else:
            self._forget(done)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        if self._options.place.url:
            known = [message for message in messages if isinstance(message, TaskDone)]
            failed = [
                TaskDone(partition, [self._options.log])
                for partition, message in enumerate(messages)
                if message is None and self._options.log is not None
            ]
            self._forget(known + failed)

    def _append_all(self, parts: list[bytes]) -> None:
        rows = unpacked(parts)
        if not rows.num_rows:
            return
        with open_target(self._options.place) as target:
            appender = FrameAppender(target, None, self._options, False)
            for name, found in by_log(rows):
                appender.append(name, found)

    def _forget(self, done: list[TaskDone]) -> None:
        with open_target(self._options.place) as target:
            for message in done:
                for name in message.logs:
                    try:
                        target.forget(name, f"job-{self._job}-{message.partition}")
                    except UnknownLog:
                        pass


class FrameAppender:
    """The rows of a task, log by log. ``writer`` notes how many are there; ``again``: an earlier attempt may have
    begun. What an attempt that still runs appends meanwhile shows as a conflict, and is not appended again."""

    def __init__(self, target: AppendTarget, writer: str | None, options: WriteOptions, again: bool) -> None:
        self._target = target
        self._writer = writer
        self._options = options
        self._again = again
        self._noted: dict[str, int] = {}
        self._reached: dict[str, int] = {}

    @property
    def logs(self) -> list[str]:
        return sorted(self._noted)

    def append(self, log: str, rows: Any) -> None:
        for start, end in chunks(rows, self._options.batch_rows):
            self._chunk(log, rows.slice(start, end - start))

    def _chunk(self, log: str, rows: Any) -> None:
        first = self._reached.get(log, 0)
        last = self._reached[log] = first + rows.num_rows
        if log not in self._noted:
            self._noted[log] = self._known(log) if self._again else 0
        while self._noted[log] < last:
            there = max(self._noted[log] - first, 0)
            before = {"rows": self._noted[log]} if self._noted[log] else None
            after = {"rows": last}
            try:
                if self._writer is None:
                    self._target.append(log, appended(rows), create=self._options.create)
                else:
                    left = appended(rows.slice(there))
                    self._target.append(log, left, self._writer, before, after, create=self._options.create)
                self._noted[log] = last
            except ProgressConflict as conflict:
                self._noted[log] = int((conflict.progress or {}).get("rows", 0))

    def _known(self, log: str) -> int:
        assert self._writer is not None
        try:
            return int((self._target.progress(log, self._writer) or {}).get("rows", 0))
        except UnknownLog:
            return 0


def chunks(rows: Any, batch_rows: int, batch_bytes: int = MAX_APPEND_BYTES) -> Iterator[tuple[int, int]]:
    """Where appends begin and end: so many rows, or so many bytes."""
    start = size = 0
    lengths = [len(value) for value in rows.column("data").to_pylist()]
    for place, length in enumerate(lengths):
        if place > start and (place - start >= batch_rows or size + length > batch_bytes):
            yield start, place
            start, size = place, 0
        size += length
    if start < len(lengths):
        yield start, len(lengths)


def check_overwrite(overwrite: bool) -> None:
    if overwrite:
        raise CannotAppend('a log takes nothing back: write with mode("append"), or output mode "append" or "update"')


# --- Writing a stream to logs: ``df.writeStream.format("strandline")`` ----------------------------------------------

#: Where Spark tells a task which query it belongs to.
_QUERY = "sql.streaming.queryId"


@dataclass
class BatchRows(WriterCommitMessage):
    query: str
    rows: bytes


class StreamWriter(DataSourceStreamArrowWriter):
    """Made anew for every batch, in tasks and on the driver."""

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
                "Spark does not tell which query this is, and without that no batch can be told from another"
            )
        return BatchRows(query, packed([shape.rows(batch) for batch in iterator if batch.num_rows]))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        found = [message for message in messages if isinstance(message, BatchRows)]
        rows = unpacked([message.rows for message in found])
        if not rows.num_rows:
            return
        positions = FrameShape(*self._shape).has_positions
        with open_target(self._options.place) as target:
            append_batch(target, rows, found[0].query, batchId, self._options, self._writer, positions=positions)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing was appended: that is done when all tasks have ended well."""


def append_batch(
    target: AppendTarget, rows: Any, query: str, batch: int, options: WriteOptions, writer: str, *, positions: bool
) -> None:
    """Append what is not there yet of a batch. Whether it can be appended to all logs is known before the first."""
    planned = []
    for name, found in by_log(rows):
        found = in_order(found) if positions else found
        noted = _noted(target, name, writer)
        left = steps(
            found, noted, query, batch,
            positions=positions, batch_rows=options.batch_rows, log=name, writer=writer,
        )  # fmt: skip
        planned.append((name, noted, left))
    for name, noted, left in planned:
        before = None if noted is None else noted.document()
        for step in left:
            after = step.noted.document()
            try:
                target.append(name, appended(step.rows), writer, before, after, create=options.create)
            except ProgressConflict as conflict:
                raise LostCheckpoint(
                    f"somebody else writes to log {name!r} as {writer!r} at the same time: every query needs an option "
                    f"writer of its own ({conflict})"
                ) from None
            before = after


def _noted(target: AppendTarget, log: str, writer: str) -> NotedProgress | None:
    try:
        return NotedProgress.of(target.progress(log, writer))
    except UnknownLog:
        return None


def writer_name(options: WriteOptions) -> str:
    """Whose progress it is. It must be the same when the checkpoint is lost, so it does not come out of it."""
    if options.writer is not None:
        if len(options.writer) > MAX_WRITER or not options.writer.isprintable():
            raise BadOption(f"writer must be 1 to {MAX_WRITER} printable characters, not {options.writer!r}")
        return options.writer
    if options.checkpoint is None:
        raise BadOption("give the option writer, or checkpointLocation: without a name no progress can be kept")
    place = options.checkpoint.removeprefix("file://").removeprefix("file:").rstrip("/")
    return f"spark-{sha256(place.encode()).hexdigest()[:32]}"
