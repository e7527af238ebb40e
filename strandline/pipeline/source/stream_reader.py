"""Reads logs as a stream: ``spark.readStream.format("strandline")``."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from time import monotonic
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from strandline.history.log_info import LogInfo
from strandline.history.pieces import Where
from strandline.history.source import History
from strandline.pipeline.source.batch_reader import registries
from strandline.pipeline.source.offsets import Offset, Position, allotted, dropped, heads, lag, record_bytes
from strandline.pipeline.source.options import LATEST, ReadOptions, TriggerLimits
from strandline.pipeline.source.plan import PushedFilters, ReadRange, chosen_logs, works
from strandline.pipeline.source.task_reader import (
    fingerprint,
    fresh,
    read_work,
    told_backwards,
    told_loss,
    told_replaced,
)

log = logging.getLogger(__name__)

#: Spark polls a hundred times a second. A server is polled at most at this interval.
LOOK_SECONDS = 0.1


class OtherDirectory(Exception):
    """The checkpoint belongs to another data directory."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives as long as the query and plans its batches. Each task reads with a copy."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self.options = options
        self.schema = schema
        self._lookout: Lookout | None = None
        self._target: dict[str, tuple[int, int]] | None = None
        self._told: dict[str, int] = {}
        #: The last offset that a batch reaches, and when it was planned.
        self._reached = Offset()
        self._planned_at = float("-inf")

    def __getstate__(self) -> dict[str, Any]:
        return StreamReader(self.options, self.schema).__dict__

    # --- offsets ---------------------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Empty: the start of each log is decided and stored with the first batch."""
        return Offset().document()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The source applies its limits itself, because Spark knows one limit at a time. ReadAllAvailable, which Spark
        also passes for Trigger.Once, means none."""
        limits = self.options.limits
        if limits is None:
            return ReadAllAvailable()
        if limits.max_offsets is not None:
            return ReadMaxRows(limits.max_offsets)
        if limits.max_bytes is not None:
            return ReadMaxBytes(limits.max_bytes)
        assert limits.min_offsets is not None
        return ReadMinRows(limits.min_offsets)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = heads(self._looking.look(), self.options.ends)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        before = Offset.of(start)
        logs = self._looking.look()
        self._check_directory(before)
        positions = {each.name: self._position(each, before) for each in logs}
        ends = self._ends(logs)
        waiting = {name: max(ends.get(name, 0) - at.seq, 0) for name, at in positions.items()}
        limits = None if isinstance(limit, ReadAllAvailable) else self.options.limits
        if limits is not None and self._waits(sum(waiting.values()), limits):
            waiting = {}
        elif limits is not None:
            sizes = {each.name: record_bytes(each) for each in logs}
            waiting = allotted(waiting, limits, sizes, sum(at.seq for at in positions.values()))
        moved = {
            name: Position(at.epoch, at.seq + waiting.get(name, 0), at.begin)
            for name, at in positions.items()
            if self._target is None or name in ends or name in before.logs
        }
        begun = bool(before.directory) or LATEST not in (self.options.starts.all, *self.options.starts.logs.values())
        if begun and all(_stays(at, before.logs.get(name)) for name, at in moved.items()):
            # That a log is gone is stored with the next records; alone it is not a new offset.
            self._reached = before
            return start
        moved |= dropped(before.logs, {each.name for each in logs}, self.options.logs or ())
        self._planned_at = monotonic()
        self._reached = Offset(self._looking.directory, moved)
        return self._reached.document()

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        """The ends of the logs, for the progress of the query, with ``lag``: Python sources cannot report metrics."""
        seen = self._looking.seen
        ends = {each.name: Position(each.epoch, each.head) for each in seen}
        waiting = {}
        for name, (epoch, end) in heads(seen, self.options.ends).items():
            at = self._reached.logs.get(name)
            waiting[name] = max(end - (at.seq if at is not None and at.epoch == epoch else 0), 0)
        behind = lag(waiting, {each.name: record_bytes(each) for each in seen})
        return Offset(self._looking.directory, ends).document() | {"lag": behind}

    # --- the records of a batch ------------------------------------------------------------------------------------

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        before, after = Offset.of(start), Offset.of(end)
        self._check_directory(after)
        history, logs = self._looking.for_batch(after)
        there = {each.name: each for each in logs}
        stretches = []
        for name, at in after.logs.items():
            since = at.begin if at.begin is not None else before.logs[name].seq
            found = there.get(name)
            if since >= at.seq:
                continue
            if found is None:
                log.warning("log %r was dropped before its records %d to %d were read", name, since + 1, at.seq)
            elif found.epoch != at.epoch:
                told_replaced(name, since + 1, at.seq, fail=self.options.fail_on_data_loss)
            else:
                stretches.append(ReadRange(found, since, at.seq))
        encoded = works(
            history,
            stretches,
            PushedFilters(),
            self.options,
            registries=registries([each.log for each in stretches], self.options),
            stream=True,
        )
        return [InputPartition(work) for work in encoded]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_work(partition.value, self.schema, self.options.payload, self.options.batch_rows)

    def commit(self, end: dict[str, Any]) -> None:
        """Does nothing. Spark calls this only while the next batch runs, and never for the last one, so files are
        released when the next batch is planned."""

    def stop(self) -> None:
        if self._lookout is not None:
            self._lookout.close()

    # --- inside ----------------------------------------------------------------------------------------------------

    @property
    def _looking(self) -> Lookout:
        if self._lookout is None:
            self._lookout = Lookout(self.options)
        return self._lookout

    def _check_directory(self, offset: Offset) -> None:
        here = self._looking.directory
        if offset.directory and offset.directory != here:
            raise OtherDirectory(
                f"the checkpoint belongs to data directory {offset.directory}, but {self.options.place} is directory "
                f"{here}, which has other sequence numbers: use a new checkpoint location"
            )

    def _waits(self, waiting: int, limits: TriggerLimits) -> bool:
        """Whether the stream waits for more records. A new query and one that reads up to a target do not."""
        if limits.min_offsets is None or waiting >= limits.min_offsets or self._target is not None:
            return False
        return (monotonic() - self._planned_at) * 1000 < limits.delay_ms

    def _ends(self, logs: list[LogInfo]) -> dict[str, int]:
        """The seq up to which each log may be read, if it is the same log as when the end was set."""
        found = heads(logs, self.options.ends)
        if self._target is None:
            return {name: seq for name, (_, seq) in found.items()}
        return {
            name: min(seq, self._target[name][1])
            for name, (epoch, seq) in found.items()
            if name in self._target and self._target[name][0] == epoch
        }

    def _position(self, each: LogInfo, before: Offset) -> Position:
        """The position from which a log is read."""
        known = before.logs.get(each.name)
        if known is not None and known.epoch == each.epoch:
            # A stream may start after the head, where nothing is yet.
            if each.head < known.seq and known.seq > self.options.after(each.name):
                told_backwards(each.name, each.head, known.seq, fail=self.options.fail_on_data_loss)
                return Position(each.epoch, each.head, each.head)
            if each.floor > known.seq + 1:
                self._tell_loss(each, known.seq)
            return _seen(known)
        if known is not None:
            told_replaced(each.name, known.seq + 1, fail=self.options.fail_on_data_loss)
        seq = self._begin(each, first=not before.directory)
        return Position(each.epoch, seq, seq)

    def _tell_loss(self, each: LogInfo, seq: int) -> None:
        if self._told.get(each.name) != seq:
            self._told[each.name] = seq
            told_loss(each.name, seq + 1, each.floor - 1, fail=self.options.fail_on_data_loss)

    def _begin(self, each: LogInfo, *, first: bool) -> int:
        """The seq after which a new log is read. "latest" applies to the logs that exist when the stream starts; later
        logs are read from their beginning, so that nothing is missed."""
        options = self.options
        if first and options.is_latest(each.name):
            return each.head
        seq = max(options.after(each.name), each.own_after if options.own else 0, each.earliest - 1)
        since = options.since.of(each.name)
        if since is not None:
            seq = max(seq, self._looking.before_time(each, seq, since))
        # This may be after the head, where nothing is yet.
        return seq


def _stays(at: Position, before: Position | None) -> bool:
    return before is not None and (at.epoch, at.seq) == (before.epoch, before.seq)


def _seen(at: Position) -> Position:
    return Position(at.epoch, at.seq)


class Lookout:
    """Polls for new records, and holds the files of the running batch until the next one is planned."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._print = None if options.place.url else fingerprint(options.place.path)
        self._history = fresh(options.place)
        self._running: History | None = None
        self._looked = float("-inf")
        #: The logs at the last poll.
        self.seen: list[LogInfo] = []

    @property
    def directory(self) -> str:
        return self._history.directory

    def look(self) -> list[LogInfo]:
        if self._options.place.url:
            if monotonic() - self._looked >= LOOK_SECONDS:
                self.seen = self._logs()
                self._looked = monotonic()
            return self.seen
        now = fingerprint(self._options.place.path)
        if now != self._print:
            taken = fresh(self._options.place)
            self._let_go(self._history)
            self._history, self._print = taken, now
            self.seen = self._logs()
        return self.seen or self._first_look()

    def for_batch(self, end: Offset) -> tuple[History, list[LogInfo]]:
        """A history that contains everything up to an offset. It is readable until the next call."""
        if any(each.head < end.logs[each.name].seq for each in self.seen if each.name in end.logs) or not self.seen:
            self._looked = float("-inf")
            self.look()
        before, self._running = self._running, self._history
        if before is not None and before is not self._history:
            before.close()
        return self._history, self.seen

    def before_time(self, log: LogInfo, after: int, since: int) -> int:
        """The last seq before a time. Times never decrease within a log."""
        for piece in self._history.pieces(log, after, log.head, max(log.head, 1), Where(since=since)):
            for batch in piece.read(1, ("seq",)):
                if batch.num_rows:
                    return int(batch.column("seq")[0].as_py()) - 1
        return log.head

    def close(self) -> None:
        for history in (self._running, self._history):
            if history is not None:
                history.close()

    def _logs(self) -> list[LogInfo]:
        return chosen_logs(self._history, self._options, all_there=False)

    def _first_look(self) -> list[LogInfo]:
        self.seen = self._logs()
        return self.seen

    def _let_go(self, history: History) -> None:
        if history is not self._running:
            history.close()
