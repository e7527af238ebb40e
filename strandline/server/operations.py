"""The server's own routes, described for those who call them. Their refusals look like those of the topics protocol."""

from __future__ import annotations

from strandline.faces.describing import JSON, TEXT, Answer, Described, Operation, shown
from strandline.faces.topics.answers import ErrorAnswer
from strandline.faces.topics.problems import PROBLEMS
from strandline.server.answers import Alive, Health, Metrics, Ready, SeriesCount

DOCUMENT_PATH = "/openapi.json"

_GROUP = "server"
_HEALTH = Operation(group=_GROUP, summary="Whether the process is alive", answers=shown(Health))
_READY = Operation(
    group=_GROUP,
    summary="Whether requests are answered",
    description="503 while the journal is replayed, and when the server is about to stop.",
    answers=shown(Ready),
    errors=("not_ready", "shutting_down"),
)
_FIGURES = "The figures as Prometheus text; as JSON for whoever accepts `application/json`."

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
        ("GET", DOCUMENT_PATH): Operation(
            group=_GROUP,
            summary="This document",
            answers=(Answer(200, "The OpenAPI document.", {JSON: {"type": "object"}}),),
        ),
    },
    problems=PROBLEMS,
    error=ErrorAnswer,
)
