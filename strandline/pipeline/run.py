"""The process of a pipeline: claims the lake, starts Spark, and runs one round or many.

``run`` opens the Spark session after it has claimed the lake, and closes both. Stopping between two commits loses
nothing: the next process continues with the progress that is in the tables.
"""

from __future__ import annotations

import gc
import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import monotonic
from types import FrameType
from typing import TYPE_CHECKING, BinaryIO, Literal

import msgspec

from strandline.engine.clock import SystemClock
from strandline.engine.record import is_internal
from strandline.history.directory import KnownLogs
from strandline.history.log_info import LogInfo
from strandline.history.source import History, open_history
from strandline.lake.declared import DeclaredFiles
from strandline.lake.erasures import PROGRESS, ErasureEvents
from strandline.lake.fence import Fence, LakeInUse, belong, claim, take_fence
from strandline.lake.location import Lake
from strandline.lake.reporter import ProgressView, Reporter, StatusReporter, Stopped, describe
from strandline.lake.status import BadStatus, LogLag, PipelineStatus, read_status, write_status
from strandline.lake.table import LakeTable, TableMoved
from strandline.pipeline import erasures, keys, records, table_upkeep
from strandline.pipeline.chosen_logs import EVERYTHING, Chosen, choose, wall_clock
from strandline.pipeline.companions import stage as companions
from strandline.pipeline.frames import keep_registries
from strandline.pipeline.round import FILE_RETENTION, FileRetention, Round
from strandline.pipeline.spark_session import SparkUnavailable, close_session, open_session
from strandline.pipeline.typed_tables import stage as typed_tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from strandline.pipeline.declared.execution import DeclaredTables

log = logging.getLogger(__name__)

#: Readers consider the process dead if its status is not renewed. In an object store each renewal is a request, so it
#: happens less often there.
RENEW_SECONDS = 5.0
#: A view of a hundred thousand logs is a million objects, and there are hardly any reference cycles.
GC_THRESHOLDS = (50_000, 20, 50)
REMOTE_RENEW_SECONDS = 30.0
#: The longest time between two attempts of a round, in a process that keeps declared tables.
MAX_BACKOFF_SECONDS = 300.0


class PipelineJob(msgspec.Struct, frozen=True, kw_only=True):
    """What to process, where the lake is, where Spark runs, and how long to continue."""

    path: str
    url: str
    key: str | None
    cold: str
    lake: str
    mode: Literal["once", "continuous", "supervised"]
    interval: float
    master: str
    remote: str | None
    conf: dict[str, str]
    logs: tuple[str, ...]
    prefix: str
    #: The directory of a project with declared tables; empty for none.
    project: str = ""
    #: The URL of the server that is running on the data directory, for declared tables. They follow logs more closely
    #: by URL, and only the server can append to them.
    server: str = ""


class TablesFailed(Exception):
    """Declared tables are not up to date. The message names them."""


def run(job: PipelineJob, watch: ProgressView, warn: Callable[[str], None]) -> None:
    """Run the job until it is done or asked to stop.

    Raises LakeInUse, SparkUnavailable, UnknownLogs, LakeOfAnother, and errors of the history, the lake and Spark.
    """
    lake, now = Lake.at(job.lake), SystemClock().now
    collect_rarely()
    requests = Requests()
    if job.mode == "supervised":
        # Listen before Spark starts, because the supervisor may end before that. Read past the buffer: its lock must
        # not be held when the interpreter shuts down.
        listen(requests, getattr(sys.stdin.buffer, "raw", sys.stdin.buffer))
    with claim(lake, now), ExitStack() as stack:
        _run_claimed(job, lake, now, requests, watch, _status_before(lake, warn), stack)


def collect_rarely() -> None:
    """Let the garbage collector look less often at the many objects of a round."""
    gc.set_threshold(*GC_THRESHOLDS)


def _run_claimed(
    job: PipelineJob,
    lake: Lake,
    now: Callable[[], int],
    requests: Requests,
    watch: ProgressView,
    before: PipelineStatus | None,
    stack: ExitStack,
) -> None:
    reporter = StatusReporter(
        lambda status: write_status(lake, status),
        now,
        before=before,
        master=job.remote or job.master,
        source=job.path or job.url,
        watch=watch,
        stopping=lambda: requests.stopping,
    )
    # From here on the status also reports errors, those of Spark's start included.
    stack.enter_context(renewing(reporter, REMOTE_RENEW_SECONDS if lake.directory is None else RENEW_SECONDS))
    try:
        spark = open_session(job.master, job.remote, _conf(job, lake), "strandline pipeline", delta=bool(job.project))
    except SparkUnavailable as error:
        reporter.status.missing = str(error).splitlines()
        raise
    stack.callback(close_session, spark)
    fence = stack.enter_context(take_fence(lake, now))
    stack.enter_context(signals(requests))
    known = KnownLogs()
    tables = _declared_tables(job, spark, lake, reporter)
    if job.mode == "once":
        _run_all_once(lambda: _round(job, spark, lake, reporter, fence, known, True), reporter, requests, tables)
        return
    if tables is not None:
        stack.callback(tables.stop)
        tables.start()
    interval = None if job.mode == "supervised" else job.interval
    run_on(
        lambda: _round(job, spark, lake, reporter, fence, known, False),
        reporter,
        requests,
        interval,
        lasting=tables is not None,
    )


def _conf(job: PipelineJob, lake: Lake) -> dict[str, str]:
    """The configuration of the session. With declared tables, Spark makes a directory for tables of its own, which must
    not be in the current directory."""
    if not job.project or lake.directory is None:
        return job.conf
    return {"spark.sql.warehouse.dir": str(DeclaredFiles.of(lake.directory).warehouse), **job.conf}


def _declared_tables(
    job: PipelineJob, spark: SparkSession, lake: Lake, reporter: StatusReporter
) -> DeclaredTables | None:
    reporter.status.declared = None
    if not job.project:
        return None
    # Only needed for a project, and takes a second to import.
    from strandline.pipeline.declared.execution import DeclaredTables
    from strandline.pipeline.source.options import LogLocation

    url = job.server or job.url
    place = LogLocation(url=url, key=job.key) if url else LogLocation(path=job.path, cold=job.cold)
    assert lake.directory is not None
    files = DeclaredFiles.of(lake.directory)
    return DeclaredTables(spark, Path(job.project), place, files, SystemClock().now, reporter.tables)


def _run_all_once(
    do_round: Callable[[], None], reporter: StatusReporter, requests: Requests, tables: DeclaredTables | None
) -> None:
    """A round, then the declared tables, also if the round fails. Raises TablesFailed."""
    if tables is None:
        run_once(do_round, reporter)
        return
    requests.on_stop(tables.request_stop)
    try:
        run_once(do_round, reporter)
    finally:
        # The order of the two does not matter: declared tables are made from the logs.
        good = requests.stopping or tables.run_once()
        reporter.flush()
    if not good:
        found = reporter.status.declared
        failed = [] if found is None else [each for each in found.tables if each.error is not None]
        told = [f"{each.name}: {each.error}" for each in failed]
        if found is not None and found.error is not None:
            told.append(found.error)
        raise TablesFailed("declared tables failed: " + "; ".join(told))


def _round(
    job: PipelineJob,
    spark: SparkSession,
    lake: Lake,
    reporter: StatusReporter,
    fence: Fence,
    known: KnownLogs,
    complete: bool,
) -> None:
    history = open_history(path=job.path, url=job.url, key=job.key, cold_url=job.cold, known=known)
    try:
        run_round(spark, history, lake, reporter, Chosen(job.logs, job.prefix), complete=complete, fence=fence)
    finally:
        history.close()


def _status_before(lake: Lake, warn: Callable[[str], None]) -> PipelineStatus | None:
    try:
        return read_status(lake)
    except BadStatus as error:
        warn(f"warning: {error}; counters start at zero")
        return None


# --- rounds, and requests from outside -----------------------------------------------------------------------------


class Requests:
    """Requests to a running pipeline, from signals and from its supervisor. Any thread may make them."""

    def __init__(self) -> None:
        self._changed = threading.Event()
        self._stopping = False
        self._on_stop: list[Callable[[], None]] = []

    def stop(self) -> None:
        """End after the next commit."""
        self._stopping = True
        self._changed.set()
        for told in self._on_stop:
            told()

    def on_stop(self, told: Callable[[], None]) -> None:
        """Call a function on a request to stop. It must not wait."""
        self._on_stop.append(told)

    def run(self) -> None:
        """Start the next round now."""
        self._changed.set()

    @property
    def stopping(self) -> bool:
        return self._stopping

    def wait(self, seconds: float | None) -> bool:
        """Wait for a request, at most ``seconds``. Returns False if the pipeline should end."""
        self._changed.wait(seconds)
        if not self._stopping:
            self._changed.clear()
        return not self._stopping


def run_once(do_round: Callable[[], None], reporter: StatusReporter) -> bool:
    """Run one round. Returns False if it was stopped before its end."""
    try:
        with reporter.round():
            do_round()
    except Stopped:
        return False
    return True


def run_on(
    do_round: Callable[[], None],
    reporter: StatusReporter,
    requests: Requests,
    interval: float | None,
    tick: Callable[[], float] = monotonic,
    *,
    lasting: bool = False,
) -> None:
    """Run rounds until a request to stop. A round starts ``interval`` seconds after the start of the previous one, or
    immediately if that one took longer. Without an interval, a round starts on request.

    An error of a round ends this. With ``lasting``, it does not, and the round is tried again later, unless another
    driver has taken over the lake."""
    failures = 0
    while not requests.stopping:
        begin, pause = tick(), interval
        try:
            run_once(do_round, reporter)
            failures = 0
        except LakeInUse:
            raise
        except Exception as error:
            if not lasting:
                raise
            failures += 1
            pause = max(interval or 0.0, min(MAX_BACKOFF_SECONDS, 2.0**failures))
            log.warning("the round failed: %s; next attempt in %.0f s", describe(error), pause)
        if not requests.wait(None if pause is None else max(0.0, pause - (tick() - begin))):
            break


def listen(requests: Requests, stream: BinaryIO) -> None:
    """Take requests from a stream: each line asks for a round, the end of the stream asks to stop."""

    def hear() -> None:
        try:
            for _ in stream:
                requests.run()
        finally:
            requests.stop()

    threading.Thread(target=hear, name="pipeline-requests", daemon=True).start()


@contextmanager
def signals(requests: Requests) -> Iterator[None]:
    """The first SIGTERM or SIGINT asks to stop, the second ends the process. Call it after Spark has started: Spark
    installs its own handler for SIGINT."""

    def handle(number: int, frame: FrameType | None) -> None:
        if requests.stopping:
            raise KeyboardInterrupt
        requests.stop()

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def renewing(reporter: StatusReporter, seconds: float) -> Iterator[None]:
    """Renew the status at this interval; at the end, write that the pipeline has ended."""
    over = threading.Event()

    def renew() -> None:
        while not over.wait(seconds):
            reporter.flush()

    thread = threading.Thread(target=renew, name="pipeline-status", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        reporter.change("ended")


# --- One round: everything that was acknowledged when it started is in the lake when it ends -------------------------

#: Attempts to plan a round while other engines change the tables.
ATTEMPTS = 5


class RoundResult(msgspec.Struct, frozen=True):
    """``records`` by stage; ``problems`` is the number of reported problems."""

    records: dict[str, int]
    problems: int


def run_round(
    spark: SparkSession,
    history: History,
    lake: Lake,
    reporter: Reporter,
    chosen: Chosen = EVERYTHING,
    *,
    complete: bool = True,
    keeping: FileRetention = FILE_RETENTION,
    now: Callable[[], int] = wall_clock,
    fence: Fence | None = None,
) -> RoundResult:
    """Run one round. Raises LakeOfAnother or UnknownLogs before it changes anything, LakeInUse if another driver takes
    over the lake, and any error that ends a round.

    With ``complete`` false, work that is cheaper together with more may be left for a later round. A driver that runs
    several rounds uses one ``fence`` for all of them; without one, the round takes its own.
    """
    if fence is None:
        with take_fence(lake, now) as fence:
            return run_round(
                spark, history, lake, reporter, chosen, complete=complete, keeping=keeping, now=now, fence=fence
            )
    fence.check()
    belong(lake, history.directory)
    events = ErasureEvents(history)
    every = [info for info in history.logs() if not (is_internal(info.name) or info.ephemeral)]
    logs = choose(every, chosen)
    round = Round(spark, history, lake, reporter, logs, every, events, complete, keeping, now, fence=fence)
    for attempt in range(1, ATTEMPTS + 1):
        try:
            _run_stages(round)
            break
        except TableMoved as moved:
            # Another engine changed a table, for example to optimise it. Every stage starts from the current state of
            # the tables, so the round is planned again.
            log.info("planning the round again: %s", moved)
            if attempt == ATTEMPTS:
                raise LakeInUse(
                    f"the tables kept changing: the round was planned {ATTEMPTS} times ({moved})"
                ) from moved
        except Exception:
            # A driver that has taken over the lake removes files that this one may be about to read.
            fence.check()
            raise
    return RoundResult(round.done, round.problems)


def _run_stages(round: Round) -> None:
    keep_registries(round.lake, round.all_logs, round.now())
    records.run(round)
    # Runs before the stages that derive data from records, so that nothing is derived from an erased record.
    erasures.run(round)
    keys.run(round)
    typed = typed_tables.run(round)
    searched = companions.run(round)
    typed_tables.keep_catalog(round)
    table_upkeep.run(round)
    _report_lag(round, searched, typed)


def _report_lag(round: Round, searched: Mapping[int, int], typed: Mapping[int, int]) -> None:
    """``searched`` is the seq up to which each searchable log has companions, by epoch, and ``typed`` the one up to
    which it is in a typed table."""
    progress = {name: LakeTable(round.lake, name, None).progress() for name in ("records", "latest", "keys")}

    def lag_of(info: LogInfo) -> LogLag:
        epoch, shared = str(info.epoch), info.own_after
        covered = {name: max(each.get(epoch, 0), shared) for name, each in progress.items()}
        if info.epoch in searched:
            covered["companions"] = searched[info.epoch]
        if info.epoch in typed:
            covered["tables"] = max(typed[info.epoch], shared)
        return LogLag(log=info.name, epoch=info.epoch, head=info.head, covered=covered)

    lags = map(lag_of, round.all_logs)
    followed = [each[PROGRESS] for each in progress.values() if PROGRESS in each]
    round.reporter.lag(lags, min(followed, default=round.events.head))
