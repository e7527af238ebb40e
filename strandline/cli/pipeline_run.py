"""``strandline pipeline run``: everything that a pipeline needs, put together and taken apart again."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Literal

import msgspec

from strandline.cli.output import say
from strandline.cli.pipeline import EXIT_FAILED, EXIT_IN_USE, EXIT_MISSING, EXIT_USAGE
from strandline.cli.progress import make_watch
from strandline.engine.clock import SystemClock
from strandline.history.source import open_history
from strandline.lake.claim import LakeInUse, claim
from strandline.lake.fence import Fence, take_fence
from strandline.lake.location import Lake
from strandline.lake.status import BadStatus, Status, read_status, write_status
from strandline.pipeline.requirements import SparkUnavailable
from strandline.pipeline.rounds import Chosen, LakeOfAnother, UnknownLogs, run_round
from strandline.pipeline.runner import (
    REMOTE_RENEW_SECONDS,
    RENEW_SECONDS,
    Requests,
    listen,
    renewing,
    run_on,
    run_once,
    signals,
)
from strandline.pipeline.session import open_session
from strandline.pipeline.status import StatusReporter, describe

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What to process, where to put it, where to do it and how long to go on."""

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


def run(job: Job) -> int:
    """Returns the exit code."""
    lake, now = Lake.at(job.lake), SystemClock().now
    requests = Requests()
    if job.mode == "supervised":
        # At once: whoever started this may be gone before Spark is up. Past the buffer, whose lock nobody may hold when
        # Python comes to its end.
        listen(requests, getattr(sys.stdin.buffer, "raw", sys.stdin.buffer))
    try:
        with claim(lake, now), ExitStack() as stack:
            return _run_claimed(job, lake, now, requests, stack)
    except LakeInUse as error:
        say(str(error))
        return EXIT_IN_USE
    except SparkUnavailable as error:
        say(str(error))
        return EXIT_MISSING
    except UnknownLogs as error:
        say(str(error))
        return EXIT_USAGE
    except LakeOfAnother as error:
        say(str(error))
        return EXIT_FAILED


def _run_claimed(job: Job, lake: Lake, now: Callable[[], int], requests: Requests, stack: ExitStack) -> int:
    watch = make_watch()
    stack.callback(watch.close)
    reporter = StatusReporter(
        lambda status: write_status(lake, status),
        now,
        before=_status_before(lake),
        master=job.remote or job.master,
        source=job.path or job.url,
        watch=watch,
        stopping=lambda: requests.stopping,
    )
    # What goes wrong from here on, also while Spark starts, is told in the status as well.
    stack.enter_context(renewing(reporter, REMOTE_RENEW_SECONDS if lake.directory is None else RENEW_SECONDS))
    try:
        spark = open_session(job.master, job.remote, job.conf, "strandline pipeline")
    except SparkUnavailable as error:
        reporter.status.missing = str(error).splitlines()
        raise
    stack.callback(_stop, spark)
    fence = stack.enter_context(take_fence(lake, now))
    stack.enter_context(signals(requests))
    from pyspark.errors import PySparkException

    try:
        if job.mode == "once":
            run_once(lambda: _round(job, spark, lake, reporter, fence, True), reporter)
        else:
            interval = None if job.mode == "supervised" else job.interval
            run_on(lambda: _round(job, spark, lake, reporter, fence, False), reporter, requests, interval)
    except PySparkException as error:
        # Its own words bring pages of Java along, and Spark has said them already.
        say(describe(error))
        return EXIT_FAILED
    return 0


def _round(job: Job, spark: SparkSession, lake: Lake, reporter: StatusReporter, fence: Fence, complete: bool) -> None:
    history = open_history(path=job.path, url=job.url, key=job.key, cold_url=job.cold)
    try:
        run_round(spark, history, lake, reporter, Chosen(job.logs, job.prefix), complete=complete, fence=fence)
    finally:
        history.close()


def _status_before(lake: Lake) -> Status | None:
    try:
        return read_status(lake)
    except BadStatus as error:
        say(f"warning: {error}; counters begin anew")
        return None


def _stop(spark: SparkSession) -> None:
    try:
        spark.stop()
    except Exception:  # what runs elsewhere may be gone already, and Spark is not needed any more
        pass
