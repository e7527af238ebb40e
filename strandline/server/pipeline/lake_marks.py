"""Logs that keep records until the lake has them: tell the engine what the lake has, and observe how far it is behind.

What the lake has is read from the progress of its table ``records``. The pipeline that the server runs may have moved
it, or one that runs elsewhere on the same lake. So a mark is never later than the lake, and a lake that was removed
moves the marks back.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import cached_property
from time import monotonic
from typing import TYPE_CHECKING

import msgspec

from strandline.engine.background import BackgroundThread, Task
from strandline.engine.engine import Engine
from strandline.engine.errors import UnknownLog
from strandline.engine.log import Log
from strandline.engine.operations.erasures import NAME as ERASURES
from strandline.lake.fence import LakeOfAnother, belongs
from strandline.lake.location import Lake
from strandline.lake.transaction_log import NO_TABLE, commit_state
from strandline.late_import import LateModule

if TYPE_CHECKING:
    from strandline.lake import erasures, layout
    from strandline.lake.table import LakeTable
else:
    # They import Arrow, which a server without such logs does not need.
    layout = LateModule("strandline.lake.layout")
    erasures = LateModule("strandline.lake.erasures")

log = logging.getLogger("strandline.pipeline")

#: The interval of observations. In an object store, every observation is a few requests.
LOOK_SECONDS = 1.0
REMOTE_LOOK_SECONDS = 30.0
#: Observing takes at most one part in this number of the time, if there are many such logs.
SHARE = 50
#: The number of logs whose lag is reported one by one: those that lag most.
MAX_ROWS = 100
#: The name under which the probes and metrics report that the lake is too far behind.
ALARM = "lake"


class LakeBehind(Exception):
    """The lake is too far behind logs that keep records for it."""


class RetainedLog(msgspec.Struct, frozen=True, kw_only=True):
    """The lag of a log that keeps records until the lake has them.

    ``lag_records`` are the records after the last one that the lake has, ``lag_seconds`` is the age of the first of
    them. ``held_records`` and ``held_bytes`` exceed the log's retention; what compaction would remove is not known and
    not included.
    """

    log: str
    lag_records: int
    lag_seconds: float
    held_records: int
    held_bytes: int


class RetentionLag(msgspec.Struct, frozen=True, kw_only=True):
    """All logs that keep records until the lake has them, and those that lag most. ``lag_seconds`` is the highest."""

    logs: int = 0
    lag_records: int = 0
    lag_seconds: float = 0.0
    held_records: int = 0
    held_bytes: int = 0
    rows: tuple[RetainedLog, ...] = ()


class LakeMarks:
    """``not_run`` says why the server does not run the pipeline; it returns an empty text if it does. With an
    ``alarm_s`` of 0 there is no alarm. Tests call ``look`` themselves."""

    def __init__(
        self,
        engine: Engine,
        lake: Lake,
        alarm_s: float,
        not_run: Callable[[], str] = lambda: "",
        *,
        tick: Callable[[], float] = monotonic,
    ) -> None:
        self._engine = engine
        self._lake = lake
        self._alarm_s = alarm_s
        self._not_run = not_run
        self._tick = tick
        self._version = NO_TABLE
        self._commit: object = None
        self._progress: dict[str, int] = {}
        #: By epoch, the number of restored and amended records, and the erasure event that the lake must have applied
        #: to have them as they are.
        self._rewrites: dict[int, tuple[int, int]] = {}
        #: By epoch, the mark, and the time of the first record after it.
        self._waiting: dict[int, tuple[int, int]] = {}
        self._warned = ""
        self._alarmed = False
        self._next = 0.0
        self._wake = threading.Event()
        self._thread: BackgroundThread | None = None
        self.lag = RetentionLag()

    @cached_property
    def _table(self) -> LakeTable:
        return layout.records(self._lake)

    # --- from start to end -------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._engine.health.know(ALARM)
        task = Task("lake marks", self.look, self._engine.health)
        self._thread = BackgroundThread(task, self._wait, self._wake.set)
        self._wake.set()
        self._thread.start()

    def _wait(self) -> None:
        self._wake.wait(max(LOOK_SECONDS, self._next - self._tick()))
        self._wake.clear()

    def close(self) -> None:
        if self._thread is not None:
            self._thread.end()
            self._thread.join()
            self._thread = None

    @property
    def warning(self) -> str:
        """What someone should know who configures a log to keep records for the lake; empty if all is well."""
        why = self._not_run()
        return why and (
            f"the server does not run the pipeline ({why}): a log with retain_until_in_lake keeps all its records "
            "until `strandline pipeline run` has copied them to the server's lake"
        )

    @property
    def warnings(self) -> list[str]:
        """The warning, if there are logs that it concerns."""
        warning = self.warning if self._engine.retaining else ""
        return [warning] if warning else []

    # --- one look ----------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Move the marks of all logs to what the lake has, and observe their lag."""
        begin = self._tick()
        logs = self._logs()
        if logs:
            self._warn()
            rewrites = self._observe_rewrites(logs)
            try:
                self._read_progress()
            finally:
                for each in logs:
                    self._move(each, *rewrites[each.epoch])
                self._observe_lag(logs)
        else:
            self.lag = RetentionLag()
        self._alarm()
        least = REMOTE_LOOK_SECONDS if self._lake.directory is None else LOOK_SECONDS
        end = self._tick()
        self._next = end + max(least, (end - begin) * SHARE)

    def _logs(self) -> list[Log]:
        with self._engine.lock:
            logs = [Log(self._engine, book) for book in self._engine.retaining]
        for known in (self._rewrites, self._waiting):
            for epoch in known.keys() - {each.epoch for each in logs}:
                del known[epoch]
        return logs

    def _warn(self) -> None:
        warning = self.warning
        if warning and warning != self._warned:
            log.warning("%s", warning)
        self._warned = warning

    def _observe_rewrites(self, logs: list[Log]) -> dict[int, tuple[int, int]]:
        """Return, by epoch, the number of rewrites and the erasure event to wait for. It must be read before the
        progress of the lake, which then includes the rewrites if it includes the event."""
        with self._engine.lock:
            found = self._engine.find(ERASURES)
            last = 0 if found is None else found.book.assigned
            for each in logs:
                rewrites = each.book.rewrites
                known = self._rewrites.get(each.epoch)
                if known is None or known[0] != rewrites:
                    self._rewrites[each.epoch] = rewrites, last if rewrites else 0
        return dict(self._rewrites)

    def _read_progress(self) -> None:
        """Read the progress of the lake if it has changed. Raises OSError, BrokenLog or LakeOfAnother."""
        try:
            is_ours = belongs(self._lake, self._engine.recovered.manifest.id)
        except LakeOfAnother:
            self._forget()
            raise
        if not is_ours:
            self._forget()
            return
        name, version = self._table.name, self._version
        if (
            version != NO_TABLE
            and commit_state(self._lake, name, version + 1) is None
            and commit_state(self._lake, name, version) == self._commit
        ):
            return
        snapshot = self._table.snapshot()
        # A lake that was replaced must not keep the old progress if the new one cannot be read.
        if snapshot.version < version:
            self._forget()
        self._progress = snapshot.progress()
        self._version = snapshot.version
        self._commit = commit_state(self._lake, name, snapshot.version)

    def _forget(self) -> None:
        self._progress, self._version, self._commit = {}, NO_TABLE, None

    def _move(self, each: Log, rewrites: int, event: int) -> None:
        through = min(self._progress.get(str(each.epoch), 0), each.head)
        if through > each.lake_mark and self._progress.get(erasures.PROGRESS, 0) < event:
            return
        try:
            each.reach_lake(through, rewrites)
        except UnknownLog:  # dropped a moment ago
            pass

    # --- lag ---------------------------------------------------------------------------------------------------------

    def _observe_lag(self, logs: list[Log]) -> None:
        rows = []
        for each in logs:
            try:
                rows.append(self._lag_of(each))
            except UnknownLog:
                continue
        rows.sort(key=lambda row: (-row.lag_seconds, -row.held_records, row.log))
        self.lag = RetentionLag(
            logs=len(rows),
            lag_records=sum(row.lag_records for row in rows),
            lag_seconds=max((row.lag_seconds for row in rows), default=0.0),
            held_records=sum(row.held_records for row in rows),
            held_bytes=sum(row.held_bytes for row in rows),
            rows=tuple(rows[:MAX_ROWS]),
        )

    def _lag_of(self, each: Log) -> RetainedLog:
        base = each.base
        mark = max(each.lake_mark, 0 if base is None else base[1])
        held = each.held_back()
        records = max(0, each.head - mark)
        seconds = 0.0
        if records:
            known = self._waiting.get(each.epoch)
            if known is None or known[0] != mark:
                page = each.read(mark, 1)
                known = self._waiting[each.epoch] = mark, page.ts[0] if len(page) else each.last_ts
            seconds = max(0, self._engine.now() - known[1]) / 1000
        return RetainedLog(
            log=each.name,
            lag_records=records,
            lag_seconds=round(seconds, 1),
            held_records=held[0],
            held_bytes=held[1],
        )

    def _alarm(self) -> None:
        behind = 0 < self._alarm_s < self.lag.lag_seconds
        if behind and not self._alarmed:
            error = LakeBehind(
                f"logs that keep records until the lake has them wait for more than {self._alarm_s:g} s; they hold "
                f"{self.lag.held_records} records more than their retention allows"
            )
            self._engine.health.failed(ALARM, error)
            log.error("%s; check the pipeline with `strandline pipeline status`", error)
        elif self._alarmed and not behind:
            self._engine.health.succeeded(ALARM)
        self._alarmed = behind
