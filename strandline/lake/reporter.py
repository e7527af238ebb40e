"""Report how the pipeline is doing while it runs.

Stages only know :class:`Reporter`. :class:`StatusReporter` is the implementation for pipelines: it updates the
:class:`PipelineStatus` of the lake and writes it at most once a second. :class:`Silent` ignores all reports.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

import msgspec

from strandline.lake.status import (
    MAX_LOGS,
    MAX_PROBLEMS,
    MAX_ROUNDS,
    DeclaredStatus,
    Lag,
    LogLag,
    PipelineProblem,
    PipelineStatus,
    RoundSummary,
    StageStatus,
    StageSummary,
    State,
)

log = logging.getLogger(__name__)

#: The minimum time between two writes of the status, unless a stage or round begins or ends.
WRITE_MS = 1_000
_TRACEBACK = "Traceback (most recent call last):"


class Stopped(BaseException):
    """The round ends here because the pipeline should stop. Not an error: stages must not catch it."""


class TaskFailed(Exception):
    """A task failed. The message names the object and the cause: nothing else is returned from a task."""


class StageProgress(Protocol):
    """The progress of a running stage."""

    def advance(self, records: int, bytes: int = 0) -> None:
        """Add to the work done. Call it after the work is committed: it raises Stopped if the pipeline should stop."""


class Reporter(Protocol):
    """Receives the reports of a stage. Thread-safe."""

    def stage(self, name: str, total: int | None = None) -> AbstractContextManager[StageProgress]:
        """Start a stage, which ends with the block. ``total`` is the expected number of records, if known. Raises
        Stopped if the pipeline should stop."""

    def problem(self, stage: str, log: str | None, seq: int | None, message: str) -> None:
        """Report a problem that does not end the round: a record was skipped, or a log was left out."""

    def lag(self, logs: Iterable[LogLag], erasures: int = 0) -> None:
        """Report the head of every log and the progress of the tables. ``erasures``: the last applied erasure event."""


class Silent:
    """Ignores all reports."""

    @contextmanager
    def stage(self, name: str, total: int | None = None) -> Iterator[StageProgress]:
        yield self

    def advance(self, records: int, bytes: int = 0) -> None:
        pass

    def problem(self, stage: str, log: str | None, seq: int | None, message: str) -> None:
        pass

    def lag(self, logs: Iterable[LogLag], erasures: int = 0) -> None:
        pass


class ProgressView(Protocol):
    """Displays the progress: as progress bars, or as lines of text."""

    def began(self, stage: StageStatus) -> None: ...
    def advanced(self, stage: StageStatus) -> None: ...
    def ended(self, stage: StageSummary) -> None: ...
    def problem(self, problem: PipelineProblem) -> None: ...
    def round_ended(self, summary: RoundSummary, lag: Lag) -> None: ...


class StatusReporter:
    """``write`` stores the status, ``now`` returns the time in milliseconds; ``before`` is the status of an earlier
    run, whose counters continue; ``stopping`` returns whether rounds should end. The pipeline continues if the status
    cannot be written."""

    def __init__(
        self,
        write: Callable[[PipelineStatus], None],
        now: Callable[[], int],
        *,
        before: PipelineStatus | None = None,
        master: str = "",
        source: str = "",
        watch: ProgressView | None = None,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._write = write
        self._stopping = stopping
        self._now = now
        self._watch = watch
        self._lock = threading.RLock()
        self._written = 0
        self._failed = False
        self._summaries: list[StageSummary] = []
        before = before or PipelineStatus()
        self.status = msgspec.structs.replace(
            before,
            state="starting",
            since=now(),
            pid=os.getpid(),
            host=socket.gethostname(),
            master=master,
            source=source,
            stages=[],
            missing=[],
        )

    # --- called by stages ------------------------------------------------------------------------------------------

    @contextmanager
    def stage(self, name: str, total: int | None = None) -> Iterator[StageProgress]:
        self._check()
        running = _Running(self, StageStatus(stage=name, since=self._now(), total=total))
        with self._lock:
            self.status.stages.append(running.status)
            if self._watch is not None:
                self._watch.began(running.status)
            self.flush()
        try:
            yield running
        finally:
            self._end(running.status)

    def problem(self, stage: str, log: str | None, seq: int | None, message: str) -> None:
        found = PipelineProblem(time=self._now(), stage=stage, log=log, seq=seq, message=message)
        with self._lock:
            self.status.problems = [*self.status.problems, found][-MAX_PROBLEMS:]
            self.status.problems_total += 1
            if self._watch is not None:
                self._watch.problem(found)
            self._write_in_time()

    def lag(self, logs: Iterable[LogLag], erasures: int = 0) -> None:
        lag = summarize(logs, erasures)
        with self._lock:
            self.status.lag = lag
            self._write_in_time()

    def tables(self, found: DeclaredStatus) -> None:
        """Report the declared tables."""
        with self._lock:
            self.status.declared = found
            self._write_in_time()

    # --- called by the code that runs the pipeline -----------------------------------------------------------------

    @contextmanager
    def round(self) -> Iterator[None]:
        """Enclose a round of all stages. An exception that leaves the block is the error of the round. It is reported
        as a problem unless a stage has reported it."""
        begin = self._now()
        self._summaries = []
        self.change("running")
        error, stopped = None, False
        try:
            yield
        except Stopped:
            stopped = True
            raise
        except BaseException as raised:
            error = describe(raised)
            raise
        finally:
            summary = RoundSummary(begin=begin, end=self._now(), stages=self._summaries, error=error, stopped=stopped)
            with self._lock:
                self.status.rounds = [*self.status.rounds, summary][-MAX_ROUNDS:]
                self.status.rounds_total += 1
                if error is not None:
                    self.problem("round", None, None, error)
                if self._watch is not None:
                    self._watch.round_ended(summary, self.status.lag)
            self.change("idle")

    def change(self, state: State) -> None:
        with self._lock:
            if self.status.state != state:
                self.status.state = state
                self.status.since = self._now()
            self.flush()

    def flush(self) -> None:
        """Write the status now."""
        with self._lock:
            self.status.updated = self._written = self._now()
            try:
                self._write(self.status)
            except OSError as error:
                if not self._failed:
                    log.warning("cannot write the status of the pipeline: %s", error)
                self._failed = True
            else:
                self._failed = False

    # --- internals -------------------------------------------------------------------------------------------------

    def _advance(self, stage: StageStatus, records: int, bytes: int) -> None:
        with self._lock:
            stage.records += records
            stage.bytes += bytes
            stage.rate = _rate(stage.records, self._now() - stage.since)
            if self._watch is not None:
                self._watch.advanced(stage)
            self._write_in_time()
        self._check()

    def _end(self, stage: StageStatus) -> None:
        passed = self._now() - stage.since
        summary = StageSummary(
            stage=stage.stage,
            records=stage.records,
            bytes=stage.bytes,
            seconds=passed / 1000,
            rate=_rate(stage.records, passed),
        )
        with self._lock:
            self.status.stages = [one for one in self.status.stages if one is not stage]
            self._summaries.append(summary)
            totals = self.status.records_total
            totals[stage.stage] = totals.get(stage.stage, 0) + stage.records
            if self._watch is not None:
                self._watch.ended(summary)
            self.flush()

    def _check(self) -> None:
        if self._stopping():
            raise Stopped

    def _write_in_time(self) -> None:
        if self._now() - self._written >= WRITE_MS:
            self.flush()


class _Running:
    def __init__(self, reporter: StatusReporter, status: StageStatus) -> None:
        self._reporter = reporter
        self.status = status

    def advance(self, records: int, bytes: int = 0) -> None:
        self._reporter._advance(self.status, records, bytes)


def summarize(logs: Iterable[LogLag], erasures: int = 0) -> Lag:
    """Return the totals of all logs, and details only of those that lag most."""
    lag = Lag(erasures=erasures)
    rows: list[LogLag] = []
    covered = lag.covered
    for one in logs:
        behind = one.behind
        lag.logs += 1
        lag.heads += one.head
        lag.behind += behind
        for table, seq in one.covered.items():
            covered[table] = covered.get(table, 0) + seq
        # There may be a hundred thousand logs, most of which do not lag.
        if behind or len(rows) < MAX_LOGS:
            rows.append(one)
            if len(rows) >= 2 * MAX_LOGS:
                rows = _furthest(rows)
    lag.rows = _furthest(rows)
    return lag


def describe(error: BaseException) -> str:
    """Describe an error in one line. Spark's errors contain whole stack traces of Python and Java."""
    lines = [line.rstrip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    # Spark Connect puts its own text before the traceback, on the same line.
    begin = next((place for place, line in enumerate(lines) if line.endswith(_TRACEBACK)), None)
    if begin is not None:
        # The exception of a worker's traceback is the first line after it that is not indented.
        raised = next((line for line in lines[begin + 1 :] if not line.startswith(" ")), "")
        if raised:
            return raised.removeprefix(f"{TaskFailed.__module__}.{TaskFailed.__qualname__}: ")
    return f"{type(error).__name__}: {lines[0].strip()}"


def _furthest(rows: list[LogLag]) -> list[LogLag]:
    return sorted(rows, key=lambda row: (-row.behind, row.log))[:MAX_LOGS]


def _rate(records: int, milliseconds: int) -> float:
    return round(records * 1000 / milliseconds, 1) if milliseconds > 0 else 0.0
