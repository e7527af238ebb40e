"""The routes of the pipeline: its state, and a request to run it."""

from __future__ import annotations

import msgspec

from strandline.lake.status import Lag, PipelineStatus, RoundSummary
from strandline.server.pipeline.supervisor import Keeper, Standing, State
from strandline.service.access import Access
from strandline.service.http import Call, Reply, Route
from strandline.service.problems import Problem, Refusal

PIPELINE_OFF = Problem("pipeline_off", 409, "The settings of the server turn the pipeline off.")
PIPELINE_MISSING = Problem(
    "pipeline_missing", 409, "Spark or Java is not installed; the message says how to install it."
)


class PipelineAnswer(msgspec.Struct, kw_only=True):
    """The state of the pipeline. ``status`` is the last report of the pipeline itself."""

    state: State
    #: The process, while it runs.
    pid: int | None
    starts: int
    failures: int
    last_error: str | None
    #: The time until the next attempt after a failure.
    retry_seconds: float
    #: What is not installed on this machine.
    missing: list[str]
    #: What is in the logs and not in the lake.
    new_records: int
    new_erasures: int
    #: Why it runs, or would run if it could.
    reason: str
    lake: str
    status: PipelineStatus | None
    status_error: str | None


class RunAnswer(msgspec.Struct):
    state: State


class PipelineRoutes:
    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper

    def routes(self) -> list[Route]:
        return [
            Route(method="GET", path="/pipeline", handler=self.tell, scopes=("read",)),
            Route(method="POST", path="/pipeline/run", handler=self.run, scopes=("admin",)),
        ]

    def tell(self, call: Call) -> Reply:
        """GET /pipeline"""
        return Reply(msgspec.json.encode(answer(self._keeper.standing, self._keeper.lake.url, call.access)))

    def run(self, call: Call) -> Reply:
        """POST /pipeline/run"""
        standing = self._keeper.standing
        if not self._keeper.ask():
            raise Refusal(PIPELINE_OFF, "the settings of this server turn the pipeline off")
        if standing.state == "missing":
            # The supervisor checks again what is missing, which takes a moment; the answer does not wait for that.
            raise Refusal(PIPELINE_MISSING, "; ".join(standing.missing))
        return Reply(msgspec.json.encode(RunAnswer(standing.state)), 202)


def answer(standing: Standing, lake: str, access: Access) -> PipelineAnswer:
    """The state for this API key, without logs that it may not access."""
    status = standing.status
    limited = bool(access.prefixes)
    return PipelineAnswer(
        state=standing.state,
        pid=standing.pid,
        starts=standing.starts,
        failures=standing.failures,
        # Error messages may quote names and data.
        last_error=None if limited else standing.last_error,
        retry_seconds=round(standing.retry_seconds, 1),
        missing=list(standing.missing),
        new_records=standing.new_records,
        new_erasures=standing.new_erasures,
        reason=standing.reason,
        lake="" if limited else lake,
        status=_limited(status, access) if status is not None and limited else status,
        status_error=None if limited else standing.status_error,
    )


def _limited(status: PipelineStatus, access: Access) -> PipelineStatus:
    rows = [row for row in status.lag.rows if access.may_touch(row.log)]
    problems = [one for one in status.problems if one.log is not None and access.may_touch(one.log)]
    rounds = [_without_words(one) for one in status.rounds]
    lag: Lag = msgspec.structs.replace(status.lag, rows=rows)
    return msgspec.structs.replace(status, lag=lag, problems=problems, rounds=rounds, source="", master="")


def _without_words(summary: RoundSummary) -> RoundSummary:
    return summary if summary.error is None else msgspec.structs.replace(summary, error="the round failed")
