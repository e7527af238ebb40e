"""The OpenAPI descriptions of the streams protocol; one entry per route.

The types of bodies and answers are those that the handlers decode and build: :mod:`strandline.protocols.streams.wire`.
"""

from __future__ import annotations

from strandline.protocols.streams.errors import PROBLEMS, RENAMED
from strandline.protocols.streams.openapi.descriptions import DESCRIPTIONS
from strandline.protocols.streams.openapi.operations import INSPECTING, QUESTIONS, SHAPING, TELEMETRY, TOUCH
from strandline.protocols.streams.openapi.parameters import Operations
from strandline.protocols.streams.openapi.records import RECORDS
from strandline.protocols.streams.openapi.subscriptions import SUBSCRIPTIONS
from strandline.protocols.streams.subscriptions.routes import ROOT
from strandline.protocols.streams.wire.values import StreamErrorAnswer
from strandline.service.openapi import Described, Operation, preflight

_GROUPS = {
    "streams": "Append-only sequences of records, of any content type. `/v1/streams/{name}` is an alias of "
    "`/v1/stream/{name}`, for every method and with everything that follows the name; `/v1/streams` is the list.",
    "schemas": "The schemas of records, and the profile of a stream.",
    "questions": "Search and aggregation.",
    "telemetry": "OpenTelemetry traces, logs and metrics, and everything about one request.",
    "touch": "Notifications about changed rows, without reading all changes.",
    "subscriptions": "Notifications about new records in streams.",
    "inspection": "The state of streams and of the server.",
    "browsers": "What web pages of allowed origins may send.",
}

_OPERATIONS: Operations = {**RECORDS, **SHAPING, **QUESTIONS, **TELEMETRY, **TOUCH, **SUBSCRIPTIONS, **INSPECTING}


def _preflights() -> Operations:
    """The preflight requests that browsers send to every path."""
    paths: dict[str, Operation] = {}
    for (_, path), operation in _OPERATIONS.items():
        paths.setdefault(path, operation)
    return {
        ("OPTIONS", path): preflight(
            "browsers", tuple(parameter for parameter in operation.parameters if parameter.place == "path")
        )
        for path, operation in paths.items()
    }


STREAMS = Described(
    name="streams",
    groups=_GROUPS,
    operations={**_OPERATIONS, **_preflights()},
    problems=PROBLEMS,
    error=StreamErrorAnswer,
    renamed=RENAMED,
    descriptions=DESCRIPTIONS,
    nothing=frozenset({ROOT + "/{rest}"}),
)
