"""Writes a DataFrame to logs: ``df.write.format("strandline")``.

By URL every task appends its own rows in chunks. A retried task finds in the log how many of its rows are appended and
continues after them. So within one job every row is appended once, provided that a task gets the same rows in the same
order again, which holds unless the DataFrame depends on randomness. Rows that a failed job appended stay in the log.

By path only one process can open the directory. So tasks send their rows to the driver, which appends them when all
tasks are done; ``spark.driver.maxResultSize`` limits their size.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from strandline.engine.errors import UnknownLog
from strandline.history.remote import ProgressConflict
from strandline.pipeline.source.frames import FrameShape, appended, by_log, packed, unpacked
from strandline.pipeline.source.options import WriteOptions
from strandline.pipeline.source.targets import AppendTarget, CannotAppend, open_target

#: The bytes of one request.
REQUEST_BYTES = 4 << 20
#: Every task stores a note in the log until the job is done, and a log has room for a megabyte of notes.
MAX_TASKS = 4000


@dataclass
class TaskDone(WriterCommitMessage):
    """The result of a task: the logs that it appended to, or the rows to append."""

    partition: int
    logs: list[str] = field(default_factory=list)
    rows: bytes = b""


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        check_overwrite(overwrite)
        self._options = options
        self._shape = schema, options.log
        #: Identifies the notes of its tasks.
        self._job = uuid4().hex[:16]
        FrameShape(*self._shape, positions=False)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        shape = FrameShape(*self._shape, positions=False)
        context = TaskContext.get()
        assert context is not None
        partition = context.partitionId()
        batches = (shape.rows(batch) for batch in iterator if batch.num_rows)
        if self._options.place.path:
            return TaskDone(partition, rows=packed(list(batches)))
        if partition >= MAX_TASKS:
            raise CannotAppend(f"at most {MAX_TASKS} tasks can write a DataFrame: use coalesce({MAX_TASKS}) or fewer")
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
    """Appends the rows of a task, log by log. The number of appended rows is stored under ``writer``. ``again``: an
    earlier attempt may have started. Rows that a concurrent attempt appends show as a conflict and are skipped."""

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


def chunks(rows: Any, batch_rows: int, batch_bytes: int = REQUEST_BYTES) -> Iterator[tuple[int, int]]:
    """The ranges of appends, limited by rows and bytes."""
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
        raise CannotAppend('a log cannot be overwritten: use mode("append"), or output mode "append" or "update"')
