"""Reads logs as a stream: ``spark.readStream.format("strandline")``."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from time import monotonic
from typing import Any

import msgspec
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from strandline.history.log_info import LogInfo
from strandline.history.pieces import Where
from strandline.history.source import History
from strandline.pipeline.source.batch_reader import registries
from strandline.pipeline.source.options import ReadOptions
from strandline.pipeline.source.plan import PushedFilters, ReadRange, chosen_logs, wheres, works
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

    def __getstate__(self) -> dict[str, Any]:
        return {"options": self.options, "schema": self.schema, "_lookout": None, "_target": None, "_told": {}}

    # --- offsets ---------------------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Empty: the start of each log is decided and stored with the first batch."""
        return Offset().document()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        rows = self.options.rows_per_batch
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = heads(self._looking.look(), self.options.through)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        before = Offset.of(start)
        logs = self._looking.look()
        self._check_directory(before)
        positions = {each.name: self._position(each, before) for each in logs}
        ends = self._ends(logs)
        waiting = {name: max(ends.get(name, 0) - at.seq, 0) for name, at in positions.items()}
        if isinstance(limit, ReadMaxRows):
            waiting = shares(waiting, limit.max_rows, sum(at.seq for at in positions.values()))
        moved = {
            name: Position(at.epoch, at.seq + waiting.get(name, 0), at.begin)
            for name, at in positions.items()
            if self._target is None or name in ends or name in before.logs
        }
        begun = bool(before.directory) or not self.options.latest
        if begun and all(_stays(at, before.logs.get(name)) for name, at in moved.items()):
            # That a log is gone is stored with the next records; alone it is not a new offset.
            return start
        return Offset(self._looking.directory, moved).document()

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        found = {each.name: Position(each.epoch, each.head) for each in self._looking.seen}
        return Offset(self._looking.directory, found).document()

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
            wheres(self.options, PushedFilters()),
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

    def _ends(self, logs: list[LogInfo]) -> dict[str, int]:
        """The seq up to which each log may be read, if it is the same log as when the end was set."""
        found = heads(logs, self.options.through)
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
            if each.head < known.seq and known.seq > self.options.after:
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
        if options.latest and first:
            return each.head
        seq = max(options.after, each.own_after if options.own else 0, each.earliest - 1)
        if options.since is not None:
            seq = max(seq, self._looking.before_time(each, seq, options.since))
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
            for batch in piece.read(1):
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


# --- Offsets of a stream: the epoch and the last read seq of every log ----------------------------------------------


class Position(msgspec.Struct, frozen=True, omit_defaults=True):
    """``begin``: the log is new in this offset, and its records after this seq are read."""

    epoch: int
    seq: int
    begin: int | None = None


class Offset(msgspec.Struct, frozen=True, omit_defaults=True):
    """``directory`` identifies the data directory; empty before the first batch."""

    directory: str = ""
    logs: dict[str, Position] = {}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Offset:
        return msgspec.convert(document, cls)

    def document(self) -> dict[str, Any]:
        """Equal offsets must give equal text, because Spark takes any other text for a new offset."""
        ordered = {name: self.logs[name] for name in sorted(self.logs)}
        found: dict[str, Any] = msgspec.to_builtins(Offset(self.directory, ordered))
        return found


def shares(wanted: Mapping[str, int], budget: int, turn: int) -> dict[str, int]:
    """Divide a budget of records fairly among logs with ``wanted`` records. If the budget is smaller than the number of
    logs, the logs take turns: ``turn`` must grow by the number of records that were assigned."""
    waiting = sorted(name for name, count in wanted.items() if count > 0)
    if not waiting:
        return {}
    if budget < len(waiting):
        start = turn % len(waiting)
        return dict.fromkeys((waiting + waiting)[start : start + budget], 1)
    given: dict[str, int] = {}
    for place, name in enumerate(sorted(waiting, key=lambda each: wanted[each])):
        fair = budget // (len(waiting) - place)
        given[name] = min(wanted[name], fair)
        budget -= given[name]
    return given


def heads(logs: Sequence[LogInfo], through: int | None) -> dict[str, tuple[int, int]]:
    """The seq up to which each log can be read, by name, with its epoch."""
    return {log.name: (log.epoch, log.head if through is None else min(log.head, through)) for log in logs}
