"""The descriptions of the server's own routes, with the shared error codes and error body."""

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
    summary="Check that the process is alive",
    description="200 while the process runs; `status` says whether it has problems.",
    answers=shown(Health),
)
_READY = Operation(
    group=_GROUP,
    summary="Check that the server is ready",
    description="503 while the journal is replayed, while the server stops, and after the journal failed.",
    answers=shown(Ready),
    errors=("not_ready", "shutting_down", "read_only"),
)
_FIGURES = "The metrics as Prometheus text, or as JSON if the client accepts `application/json`."
_PIPELINE = """The pipeline processes the history on Spark. The server starts its process when there is enough to do and
stops it when there is too little. The state is one of:

- `off`: the settings turn the pipeline off;
- `missing`: Spark or Java is not installed; `missing` says how to install it;
- `idle`: there is too little to do to start the process;
- `running` and `stopping`: the process exists;
- `backing_off`: the process failed and is restarted after a delay;
- `elsewhere`: another pipeline works on the same lake.

`status` is the last report of the pipeline: rounds, rates, and the progress of each table. Logs that the API key may
not access are left out."""

SERVER = Described(
    name="server",
    groups={_GROUP: "Health, readiness and metrics of the server."},
    operations={
        ("GET", "/v0/health"): _HEALTH,
        ("GET", "/healthz"): _HEALTH,
        ("GET", "/health"): Operation(group=_GROUP, summary="Check that the process is alive", answers=shown(Alive)),
        ("GET", "/metrics"): Operation(
            group=_GROUP,
            summary="Count the series of the server's own metrics",
            description="The series are in the stream `__stream_metrics__`.",
            answers=shown(SeriesCount),
        ),
        ("GET", "/v0/ready"): _READY,
        ("GET", "/readyz"): _READY,
        ("GET", "/v0/metrics"): Operation(
            group=_GROUP,
            summary="Get metrics",
            answers=(Answer(200, _FIGURES, {"text/plain": TEXT, JSON: Metrics}),),
        ),
        ("GET", "/pipeline"): Operation(
            group=_GROUP,
            summary="Get the state of the pipeline",
            description=_PIPELINE,
            answers=shown(PipelineAnswer),
        ),
        ("POST", "/pipeline/run"): Operation(
            group=_GROUP,
            summary="Run the pipeline now",
            description="Start it however little there is to do. The answer does not wait; see `GET /pipeline`.",
            answers=(Answer(202, "The pipeline will run; this is the state before.", {JSON: RunAnswer}),),
            errors=("pipeline_off", "pipeline_missing"),
        ),
        ("GET", DOCUMENT_PATH): Operation(
            group=_GROUP,
            summary="Get this document",
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
