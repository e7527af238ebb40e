"""The server's own routes, described for those who call them. Their errors have the shared codes and shape."""

from __future__ import annotations

from strandline.server.answers import Alive, Health, Metrics, Ready, SeriesCount
from strandline.server.pipeline.routes import PIPELINE_MISSING, PIPELINE_OFF, PipelineAnswer, RunAnswer
from strandline.service.openapi import JSON, TEXT, Answer, Described, Operation, shown
from strandline.service.problems import (
    DAMAGED_DATA,
    FORBIDDEN,
    INTERNAL,
    NOT_READY,
    READ_ONLY,
    SHUTTING_DOWN,
    THROTTLED,
    UNAUTHORIZED,
    ErrorAnswer,
    by_code,
)

DOCUMENT_PATH = "/openapi.json"

_GROUP = "server"
_HEALTH = Operation(
    group=_GROUP,
    summary="Whether the process is alive",
    description="Always 200 while the process runs; `status` says whether something is wrong with it.",
    answers=shown(Health),
)
_READY = Operation(
    group=_GROUP,
    summary="Whether requests are answered",
    description="503 while the journal is replayed, when the server is about to stop, and once the journal failed.",
    answers=shown(Ready),
    errors=("not_ready", "shutting_down", "read_only"),
)
_FIGURES = "The figures as Prometheus text; as JSON for whoever accepts `application/json`."
_PIPELINE = """The pipeline processes the history on Spark, in a process that the server starts when there is enough to
do and ends when there is not. The state is one of:

- `off`: the settings say so;
- `missing`: Spark or Java is not there, `missing` says what to do about it;
- `idle`: there is nothing to do that is worth starting it;
- `running` and `stopping`: the process is there;
- `backing_off`: it failed, and is tried again after a while;
- `elsewhere`: somebody else runs a pipeline on the same lake.

`status` is what the pipeline itself wrote down: rounds, rates, how far each table is. Of logs that the key may not
touch nothing is told."""

SERVER = Described(
    name="server",
    groups={_GROUP: "How the server is doing."},
    operations={
        ("GET", "/v0/health"): _HEALTH,
        ("GET", "/healthz"): _HEALTH,
        ("GET", "/health"): Operation(group=_GROUP, summary="Whether the process is alive", answers=shown(Alive)),
        ("GET", "/metrics"): Operation(
            group=_GROUP,
            summary="How many series the server's metrics of itself have",
            description="The series are in the stream `__stream_metrics__`.",
            answers=shown(SeriesCount),
        ),
        ("GET", "/v0/ready"): _READY,
        ("GET", "/readyz"): _READY,
        ("GET", "/v0/metrics"): Operation(
            group=_GROUP,
            summary="Figures for monitoring",
            answers=(Answer(200, _FIGURES, {"text/plain": TEXT, JSON: Metrics}),),
        ),
        ("GET", "/pipeline"): Operation(
            group=_GROUP,
            summary="How the pipeline is doing",
            description=_PIPELINE,
            answers=shown(PipelineAnswer),
        ),
        ("POST", "/pipeline/run"): Operation(
            group=_GROUP,
            summary="Let the pipeline run now",
            description="However little there is to do. The answer does not wait for it: see `GET /pipeline`.",
            answers=(Answer(202, "It will run; this is the state before.", {JSON: RunAnswer}),),
            errors=("pipeline_off", "pipeline_missing"),
        ),
        ("GET", DOCUMENT_PATH): Operation(
            group=_GROUP,
            summary="This document",
            answers=(Answer(200, "The OpenAPI document.", {JSON: {"type": "object"}}),),
        ),
    },
    problems=by_code(
        [
            UNAUTHORIZED,
            FORBIDDEN,
            PIPELINE_OFF,
            PIPELINE_MISSING,
            THROTTLED,
            DAMAGED_DATA,
            INTERNAL,
            NOT_READY,
            SHUTTING_DOWN,
            READ_ONLY,
        ]
    ),
    error=ErrorAnswer,
)
