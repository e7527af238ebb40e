"""The routes of the pipeline: its state, and a request to run it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from strandline.lake.status import Lag, PipelineStatus, RoundSummary
from strandline.server.pipeline.lake_marks import LakeMarks, RetentionLag
from strandline.server.pipeline.supervisor import PipelineSnapshot, PipelineSupervisor, State
from strandline.service.access import Access
from strandline.service.http import Call, Reply, Route
from strandline.service.problems import Problem, Refusal

PIPELINE_OFF = Problem("pipeline_off", 409, "The server does not run the pipeline. Set `pipeline` to `auto` or `on`.")
PIPELINE_MISSING = Problem(
    "pipeline_missing", 409, "Spark or Java is not installed; the message says how to install it."
)


NOTHING_RETAINED = RetentionLag()


class PipelineAnswer(msgspec.Struct, kw_only=True):
    """The state of the pipeline. ``status`` is the pipeline's own last report."""

    state: State
    #: The id of the process; null while it does not run.
    pid: int | None
    starts: int
    failures: int
    last_error: str | None
    #: The time until the next start after a failure.
    retry_seconds: float
    #: The programs that the pipeline needs and that are not installed.
    missing: list[str]
    #: The number of records and erasures that are not in the lake yet.
    new_records: int
    new_erasures: int
    #: Why the pipeline runs, or why it should start.
    reason: str
    lake: str
    #: The logs that keep records until the lake has them; `warnings` says what prevents that.
    retained: RetentionLag
    warnings: list[str]
    status: PipelineStatus | None
    status_error: str | None


class RunAnswer(msgspec.Struct):
    state: State


class PipelineRoutes:
    def __init__(self, keeper: PipelineSupervisor, marks: LakeMarks) -> None:
        self._keeper = keeper
        self._marks = marks

    def routes(self) -> list[Route]:
        return [
            Route(method="GET", path="/pipeline", handler=self.tell, scopes=("read",)),
            Route(method="POST", path="/pipeline/run", handler=self.run, scopes=("admin",)),
        ]

    def tell(self, call: Call) -> Reply:
        """GET /pipeline"""
        keeper, marks = self._keeper, self._marks
        told = answer(keeper.standing, keeper.lake.url, call.access, marks.lag, marks.warnings)
        return Reply(msgspec.json.encode(told))

    def run(self, call: Call) -> Reply:
        """POST /pipeline/run"""
        standing = self._keeper.standing
        if not self._keeper.ask():
            raise Refusal(
                PIPELINE_OFF,
                "this server does not run the pipeline; set STRANDLINE_PIPELINE to auto or on, or use "
                "`strandline pipeline run`",
            )
        if standing.state == "missing":
            # The keeper checks again whether it is still missing; the answer does not wait for the check.
            raise Refusal(PIPELINE_MISSING, "; ".join(standing.missing))
        return Reply(msgspec.json.encode(RunAnswer(standing.state)), 202)


def answer(
    standing: PipelineSnapshot,
    lake: str,
    access: Access,
    retained: RetentionLag = NOTHING_RETAINED,
    warnings: Sequence[str] = (),
) -> PipelineAnswer:
    """The answer for an API key, which leaves out logs that the key may not access."""
    status = standing.status
    limited = bool(access.prefixes)
    return PipelineAnswer(
        state=standing.state,
        pid=standing.pid,
        starts=standing.starts,
        failures=standing.failures,
        # An error may quote any name.
        last_error=None if limited else standing.last_error,
        retry_seconds=round(standing.retry_seconds, 1),
        missing=list(standing.missing),
        new_records=standing.new_records,
        new_erasures=standing.new_erasures,
        reason=standing.reason,
        lake="" if limited else lake,
        retained=msgspec.structs.replace(
            retained, rows=tuple(row for row in retained.rows if access.may_touch(row.log))
        ),
        warnings=list(warnings),
        status=_limited(status, access) if status is not None and limited else status,
        status_error=None if limited else standing.status_error,
    )


def _limited(status: PipelineStatus, access: Access) -> PipelineStatus:
    rows = [row for row in status.lag.rows if access.may_touch(row.log)]
    problems = [one for one in status.problems if one.log is not None and access.may_touch(one.log)]
    rounds = [_without_words(one) for one in status.rounds]
    lag: Lag = msgspec.structs.replace(status.lag, rows=rows)
    return msgspec.structs.replace(
        status, lag=lag, problems=problems, rounds=rounds, source="", master="", declared=None
    )


def _without_words(summary: RoundSummary) -> RoundSummary:
    return summary if summary.error is None else msgspec.structs.replace(summary, error="the round failed")
