"""The supervisor of the pipeline: observes the logs and the lake, and starts and stops the process.

It runs on its own thread. The event loop only reads the result of the last observation.
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
from strandline.server.pipeline.schedule import StartSchedule, Thresholds
from strandline.server.settings import Settings

log = logging.getLogger("strandline.pipeline")

#: The interval of observations. In an object store, every read of the status is a request.
LOOK_SECONDS = 1.0
REMOTE_LOOK_SECONDS = 30.0
#: Reading the extent of all logs takes at most one part in this number of the time.
REACH_SHARE = 200
#: How often the keeper checks whether missing programs were installed.
MISSING_SECONDS = 300.0
#: How long a stopping server waits for the pipeline to finish its commit.
STOP_SECONDS = 10.0
#: How long it waits for a killed process to disappear.
KILL_SECONDS = 30.0

#: The exit codes of the process if a program is missing, and if another process works on the lake.
EXIT_MISSING = 3
EXIT_IN_USE = 4

State = Literal["off", "missing", "idle", "backing_off", "running", "stopping", "elsewhere"]
STATES: tuple[State, ...] = get_args(State)


class Program(msgspec.Struct, frozen=True):
    """How to run the pipeline. The caller of the server provides it.

    ``command`` is the command line. ``missing`` returns a sentence for each program that is not installed.
    """

    command: Sequence[str]
    missing: Callable[[], list[str]]


class OwnServer(msgspec.Struct, frozen=True):
    """How the process reaches the server that has started it. ``key`` is an API key that only it knows."""

    url: str
    key: str


class PipelineSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the pipeline at the last observation."""

    state: State = "off"
    pid: int | None = None
    starts: int = 0
    #: The number of times that the process failed or could not start.
    failures: int = 0
    last_error: str | None = None
    #: The time until the next start.
    retry_seconds: float = 0.0
    missing: Sequence[str] = ()
    new_records: int = 0
    new_erasures: int = 0
    #: Why the pipeline runs, or why it should start.
    reason: str = ""
    status: PipelineStatus | None = None
    status_error: str | None = None


class PipelineSupervisor:
    """Without a ``program`` there is no pipeline. Tests use a manual clock and call ``look`` themselves."""

    def __init__(
        self,
        settings: Settings,
        program: Program | None,
        engine: Engine,
        *,
        own: OwnServer | None = None,
        tick: Callable[[], float] = monotonic,
        wall: Callable[[], int] | None = None,
    ) -> None:
        chosen = settings.pipeline
        #: Declared tables follow the logs by URL.
        self._own = own if chosen.pipeline_project else None
        # A follower has only a copy of the logs. Its leader processes them.
        self._follows = engine.follower is not None
        self._wanted = program is not None and chosen.pipeline != "off" and not self._follows
        self._must = chosen.pipeline == "on"
        self._program = program
        self._engine = engine
        self.lake = Lake.at(settings.lake)
        self._tick = tick
        self._wall = wall or SystemClock().now
        self._decider = StartSchedule(
            Thresholds(
                start_records=chosen.pipeline_start_records,
                start_bytes=chosen.pipeline_start_bytes,
                start_s=chosen.pipeline_start_s,
                idle_s=chosen.pipeline_idle_s,
                lasting=bool(chosen.pipeline_project),
            )
        )
        self._interval = chosen.pipeline_interval_s
        self._child: Child | None = None
        self._stopping = False
        #: When the process was last started or asked to run a round.
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
        self.standing = PipelineSnapshot()

    # --- from start to end -----------------------------------------------------------------------------------------

    def not_run(self) -> str:
        """Why this server does not run the pipeline; empty if it does."""
        if self._follows:
            return "this server follows another one, which processes the history"
        return "; ".join(self._missing or ()) if self._wanted else "`pipeline` is off"

    def start(self) -> None:
        """Start the thread."""
        if not self._wanted:
            log.info("the pipeline is off: the server does not process history on Spark")
            if self.lake.directory is None:
                return
        task = Task("pipeline keeper", self.look, self._engine.health)
        self._thread = BackgroundThread(task, self._wait, self._wake.set)
        # The first look must not wait.
        self._wake.set()
        self._thread.start()

    def _wait(self) -> None:
        self._wake.wait(LOOK_SECONDS)
        self._wake.clear()

    def request_stop(self) -> None:
        """Ask the process to stop, without waiting, because the server is about to stop."""
        self._closed = True
        if self._thread is not None:
            self._thread.end()
        child = self._child
        if child is not None:
            child.stop()

    def close(self) -> None:
        """Stop the process and wait for its end. Kill it if it does not stop in time."""
        self.request_stop()
        if self._thread is not None:
            self._thread.join()
        child = self._child
        if child is not None:
            child.stop()  # the thread may have started it after request_stop
            if not child.wait(STOP_SECONDS):
                log.warning("killing the pipeline (process %d), which did not stop in time; no data is lost", child.pid)
                child.kill()
                child.wait(KILL_SECONDS)
            child.close()
            self._child = None

    def ask(self) -> bool:
        """Request a run now, even if little has changed. Returns False if the pipeline is off. Raises FollowsLeader."""
        if self._engine.follower is not None:
            raise self._engine.follower.refusal
        if not self._wanted or self._closed:
            return False
        self._asked = True
        self._wake.set()
        return True

    # --- one look --------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Observe the logs, the lake and the process, and start or stop the process. Without a pipeline of its own, the
        server shows the status of one that others run on the lake."""
        tick = self._tick()
        status, status_error = self._read_status(tick)
        if not self._wanted:
            self.standing = msgspec.structs.replace(self.standing, status=status, status_error=status_error)
            return
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
        """The extent of the logs. It is not read again if nothing was written, or too often if there are many logs."""
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
            log.log(
                level, "cannot run the pipeline, so history is not processed on Spark: %s", "; ".join(self._missing)
            )
        elif not self._missing and not self._told_on:
            self._told_on = True
            log.info(
                "the pipeline is on: the server starts Spark when there is enough history; the lake is in %s",
                self.lake.url,
            )

    def _begin(self, tick: float, reason: str) -> None:
        assert self._program is not None
        try:
            own = self._own
            if own is None:
                self._child = Child(self._program.command)
            else:
                # The key is not an argument, because every user of the machine can see those.
                self._child = Child([*self._program.command, "--server", own.url], {"STRANDLINE_KEY": own.key})
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
            log.info("stopping the pipeline, which has had too little to do")
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
        said = said.removeprefix("strandline: ")
        self._failed(tick, f"the process ended with {how}" + (f": {said}" if said else ""))

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
