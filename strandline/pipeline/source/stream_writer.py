"""Writing a stream to logs: ``df.writeStream.format("strandline")``.

Tasks send the rows of a micro-batch to the driver, which appends them in order and notes in the same step how far it
has come. So a batch is small enough for the driver: ``spark.driver.maxResultSize`` bounds it, and the source's own
options (``rowsPerBatch`` here) keep it small.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from strandline.engine.errors import UnknownLog
from strandline.history.http import ProgressConflict
from strandline.pipeline.source.frames import FrameShape, appended, by_log, packed, unpacked
from strandline.pipeline.source.options import BadOption, WriteOptions
from strandline.pipeline.source.progress import LostCheckpoint, Noted, in_order, steps
from strandline.pipeline.source.targets import MAX_WRITER, CannotAppend, Target, open_target
from strandline.pipeline.source.writer import check_overwrite

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
    target: Target, rows: Any, query: str, batch: int, options: WriteOptions, writer: str, *, positions: bool
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


def _noted(target: Target, log: str, writer: str) -> Noted | None:
    try:
        return Noted.of(target.progress(log, writer))
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
