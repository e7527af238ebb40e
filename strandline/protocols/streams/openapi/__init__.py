"""The OpenAPI descriptions of the streams protocol; one entry per route.

The types of bodies and answers are those that the handlers decode and build: :mod:`strandline.protocols.streams.wire`.
"""

from __future__ import annotations

from strandline.protocols.streams.errors import PROBLEMS, RENAMED
from strandline.protocols.streams.openapi.descriptions import DESCRIPTIONS
from strandline.protocols.streams.openapi.operations import INSPECTING, QUESTIONS, SHAPING, TOUCH, TRACES
from strandline.protocols.streams.openapi.parameters import Operations
from strandline.protocols.streams.openapi.records import RECORDS
from strandline.protocols.streams.openapi.subscriptions import SUBSCRIPTIONS
from strandline.protocols.streams.subscriptions.routes import ROOT
from strandline.protocols.streams.wire.values import StreamErrorAnswer
from strandline.service.openapi import TEXT, Answer, Described, Header, Operation

_GROUPS = {
    "streams": "Append-only sequences of records, of any content type.",
    "schemas": "The schemas of records, and the profile of a stream.",
    "questions": "Search and aggregation.",
    "traces": "OpenTelemetry traces, and everything about one request.",
    "touch": "Notifications about changed rows, without reading all changes.",
    "subscriptions": "Notifications about new records in streams.",
    "inspection": "The state of streams and of the server.",
    "browsers": "What web pages of allowed origins may send.",
}

_OPERATIONS: Operations = {**RECORDS, **SHAPING, **QUESTIONS, **TRACES, **TOUCH, **SUBSCRIPTIONS, **INSPECTING}


def _preflights() -> Operations:
    """The preflight requests that browsers send to every path."""
    headers = tuple(
        Header(f"Access-Control-{name}", words, TEXT)
        for name, words in (
            ("Allow-Methods", "The methods of this path."),
            ("Allow-Headers", "The headers that pages may send."),
            ("Max-Age", "How many seconds the answer is valid."),
        )
    )
    answers = (Answer(204, "What pages of allowed origins may send.", headers=headers),)
    paths: dict[str, Operation] = {}
    for (_, path), operation in _OPERATIONS.items():
        paths.setdefault(path, operation)
    return {
        ("OPTIONS", path): Operation(
            group="browsers",
            summary="Ask what pages may send",
            answers=answers,
            parameters=tuple(parameter for parameter in operation.parameters if parameter.place == "path"),
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
