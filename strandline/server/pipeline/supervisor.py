"""Supervises the pipeline: observes the logs and the lake at intervals, decides, and starts or stops its process.

It runs on a thread of its own; the event loop only reads the last observation.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Literal, get_args

import msgspec

from strandline.engine.background import BackgroundThread, Task
from strandline.engine.clock import SystemClock
from strandline.engine.engine import Engine
from strandline.engine.reads.status import EngineExtent, extent_of
from strandline.lake.fence import is_claimed
from strandline.lake.location import Lake
from strandline.lake.status import BadStatus, PipelineStatus, read_status
from strandline.server.pipeline.process import Child
from strandline.server.pipeline.schedule import Decider, Thresholds
from strandline.server.settings import Settings

log = logging.getLogger("strandline.pipeline")

#: The interval of observations. In an object store, reading the status takes a request each time.
LOOK_SECONDS = 1.0
REMOTE_LOOK_SECONDS = 30.0
#: Observing all logs takes at most one part in this many of the time.
REACH_SHARE = 200
#: How often it checks whether missing software is installed now.
MISSING_SECONDS = 300.0
#: How long a stopping server waits for the pipeline to finish a commit.
STOP_SECONDS = 10.0
#: How long it waits for the system to end a killed process.
KILL_SECONDS = 30.0

#: Exit codes of the process: software is missing, or another pipeline works on the lake.
EXIT_MISSING = 3
EXIT_IN_USE = 4

State = Literal["off", "missing", "idle", "backing_off", "running", "stopping", "elsewhere"]
STATES: tuple[State, ...] = get_args(State)


class Program(msgspec.Struct, frozen=True):
    """How to run the pipeline, which the server itself does not know: its command line, and what is missing on this
    machine, one sentence each."""

    command: Sequence[str]
    missing: Callable[[], list[str]]


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the pipeline at the last observation."""

    state: State = "off"
    pid: int | None = None
    starts: int = 0
    #: How often the process failed.
    failures: int = 0
    last_error: str | None = None
    #: The time until the next attempt.
    retry_seconds: float = 0.0
    missing: Sequence[str] = ()
    new_records: int = 0
    new_erasures: int = 0
    #: Why it runs, or would run.
    reason: str = ""
    status: PipelineStatus | None = None
    status_error: str | None = None


class Keeper:
    """Without a ``program``, there is no pipeline. Tests advance the clock and call ``look`` themselves."""

    def __init__(
        self,
        settings: Settings,
        program: Program | None,
        engine: Engine,
        *,
        tick: Callable[[], float] = monotonic,
        wall: Callable[[], int] | None = None,
    ) -> None:
        chosen = settings.pipeline
        self._wanted = program is not None and chosen.pipeline != "off"
        self._must = chosen.pipeline == "on"
        self._program = program
        self._engine = engine
        self.lake = Lake.at(settings.lake)
        self._tick = tick
        self._wall = wall or SystemClock().now
        self._decider = Decider(
            Thresholds(
                start_records=chosen.pipeline_start_records,
                start_bytes=chosen.pipeline_start_bytes,
                start_s=chosen.pipeline_start_s,
                idle_s=chosen.pipeline_idle_s,
            )
        )
        self._interval = chosen.pipeline_interval_s
        self._child: Child | None = None
        self._stopping = False
        #: When the process last began a round, or got the command to.
        self._told_at = 0.0
        self._missing: list[str] | None = None
        self._missing_at = 0.0
        self._told_on = False
        self._reach = EngineExtent()
        self._reach_at = -1.0
        self._status_at = -1.0
        self._wake = threading.Event()
        self._closed = False
        self._thread: BackgroundThread | None = None
        self._asked = False
        self.standing = Standing()

    # --- start and stop --------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start observing."""
        if not self._wanted:
            log.info("the pipeline is off: history is not processed on Spark")
        else:
            task = Task("pipeline keeper", self.look, self._engine.health)
            self._thread = BackgroundThread(task, self._wait, self._wake.set)
            # The first observation is made at once.
            self._wake.set()
            self._thread.start()

    def _wait(self) -> None:
        self._wake.wait(LOOK_SECONDS)
        self._wake.clear()

    def request_stop(self) -> None:
        """The server is about to stop: ask the pipeline to stop."""
        self._closed = True
        if self._thread is not None:
            self._thread.end()
        child = self._child
        if child is not None:
            child.stop()

    def close(self) -> None:
        """Stop the process and wait for it; kill it if it takes too long."""
        self.request_stop()
        if self._thread is not None:
            self._thread.join()
        child = self._child
        if child is not None:
            child.stop()  # it may have just been started
            if not child.wait(STOP_SECONDS):
                log.warning("the pipeline (process %d) did not stop in time and is killed; no data is lost", child.pid)
                child.kill()
                child.wait(KILL_SECONDS)
            child.close()
            self._child = None

    def ask(self) -> bool:
        """Run now, however little there is to do; False if the pipeline cannot run here."""
        if not self._wanted or self._closed:
            return False
        self._asked = True
        self._wake.set()
        return True

    # --- observation -----------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Observe the state and act on it."""
        if not self._wanted:
            return
        tick = self._tick()
        status, status_error = self._read_status(tick)
        decider = self._decider
        decider.see(tick, self._wall(), self._look_at_logs(tick), status)
        if self._asked:
            self._asked = False
            self._missing = None
            decider.ask()
        if self._child is not None:
            self._look_at_child(self._child, tick, status)
        reason, elsewhere = decider.why_due(tick), False
        if self._missing is None or (self._missing and tick - self._missing_at >= MISSING_SECONDS):
            self._look_what_is_missing(tick)
        if self._child is None and not self._missing and decider.why_start(tick) and not self._closed:
            elsewhere = is_claimed(self.lake)
            if not elsewhere:
                self._begin(tick, reason)
        self._tell(tick, status, status_error, reason, elsewhere)

    def _look_at_logs(self, tick: float) -> EngineExtent:
        """Observe all logs: less often if there are many, and not at all while nothing is written."""
        if self._reach_at < 0 or (tick >= self._reach_at and self._engine.journal.written != self._reach.written):
            self._reach = extent_of(self._engine)
            self._reach_at = tick + (self._tick() - tick) * REACH_SHARE
        return self._reach

    def _read_status(self, tick: float) -> tuple[PipelineStatus | None, str | None]:
        if tick < self._status_at and not self._asked:
            return self.standing.status, self.standing.status_error
        self._status_at = tick + (REMOTE_LOOK_SECONDS if self.lake.directory is None else 0.0)
        try:
            return read_status(self.lake), None
        except (OSError, BadStatus) as error:
            return self.standing.status, str(error)

    def _look_what_is_missing(self, tick: float) -> None:
        assert self._program is not None
        before, self._missing = self._missing, self._program.missing()
        self._missing_at = tick
        if self._missing and self._missing != before:
            level = logging.ERROR if self._must else logging.INFO
            log.log(level, "the pipeline cannot run; history is not processed on Spark: %s", "; ".join(self._missing))
        elif not self._missing and not self._told_on:
            self._told_on = True
            log.info("the pipeline is on: Spark starts when there is enough history; the lake is in %s", self.lake.url)

    def _begin(self, tick: float, reason: str) -> None:
        assert self._program is not None
        try:
            self._child = Child(self._program.command)
        except OSError as error:
            self._failed(tick, f"the process cannot be started: {error}")
            return
        self._stopping = False
        self._told_at = tick
        self._decider.started(tick)
        self.standing = msgspec.structs.replace(self.standing, starts=self.standing.starts + 1)
        log.info("started the pipeline as process %d: %s", self._child.pid, reason)

    def _look_at_child(self, child: Child, tick: float, status: PipelineStatus | None) -> None:
        code = child.exit_code()
        if code is not None:
            child.close()
            self._child = None
            self._ended(tick, child, code)
            return
        own = status if status is not None and status.pid == child.pid else None
        at_rest = own is not None and own.state == "idle"
        if self._decider.asked or (at_rest and self._decider.has_news and tick - self._told_at >= self._interval):
            self._told_at = tick
            child.run_now()
            self._decider.told()
        if not self._stopping and self._decider.should_end(tick, own):
            self._stopping = True
            log.info("stopping the pipeline: there is nothing to do")
            child.stop()

    def _ended(self, tick: float, child: Child, code: int) -> None:
        if code == 0 or self._stopping:
            self._decider.ended(tick, well=True)
            return
        if code == EXIT_MISSING:
            self._missing = None
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        said = next((line for line in reversed(child.last_lines) if line.startswith("strandline: ")), "")
        said = said or (child.last_lines[-1] if child.last_lines else "")
        self._failed(tick, f"the process ended with {how}" + (f": {said.removeprefix('strandline: ')}" if said else ""))

    def _failed(self, tick: float, error: str) -> None:
        self._decider.ended(tick, well=False)
        self.standing = msgspec.structs.replace(self.standing, failures=self.standing.failures + 1, last_error=error)
        log.warning("the pipeline failed: %s; next attempt in %.0f s", error, self._decider.wait_seconds(tick))

    def _tell(
        self, tick: float, status: PipelineStatus | None, status_error: str | None, reason: str, elsewhere: bool
    ) -> None:
        child = self._child
        state: State = "idle"
        if child is not None:
            state = "stopping" if self._stopping else "running"
        elif self._missing:
            state = "missing"
        elif elsewhere:
            state = "elsewhere"
        elif reason and self._decider.wait_seconds(tick):
            state = "backing_off"
        self.standing = msgspec.structs.replace(
            self.standing,
            state=state,
            pid=None if child is None else child.pid,
            retry_seconds=self._decider.wait_seconds(tick) if state == "backing_off" else 0.0,
            missing=tuple(self._missing or ()),
            new_records=self._decider.new_records,
            new_erasures=self._decider.new_erasures,
            reason=reason,
            status=status,
            status_error=status_error,
        )
