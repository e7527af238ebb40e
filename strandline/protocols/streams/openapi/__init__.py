"""The protocol's routes, described for those who call them; one entry per route.

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
    "schemas": "What the records of a stream must be like, and what kind of stream it is.",
    "questions": "Searching and adding up the records of a stream.",
    "traces": "Traces of OpenTelemetry, and what is known about a request.",
    "touch": "Being told which rows have changed, without reading them all.",
    "subscriptions": "Being woken when there is something new in streams.",
    "inspection": "How streams and the server are doing.",
    "browsers": "What pages of allowed origins may send.",
}

_OPERATIONS: Operations = {**RECORDS, **SHAPING, **QUESTIONS, **TRACES, **TOUCH, **SUBSCRIPTIONS, **INSPECTING}


def _preflights() -> Operations:
    """Browsers ask at every path what they may send there."""
    headers = tuple(
        Header(f"Access-Control-{name}", words, TEXT)
        for name, words in (
            ("Allow-Methods", "The methods that there are."),
            ("Allow-Headers", "The headers that may be sent."),
            ("Max-Age", "For how many seconds this holds."),
        )
    )
    answers = (Answer(204, "What may be sent, by pages of allowed origins.", headers=headers),)
    paths: dict[str, Operation] = {}
    for (_, path), operation in _OPERATIONS.items():
        paths.setdefault(path, operation)
    return {
        ("OPTIONS", path): Operation(
            group="browsers",
            summary="Ask what may be sent",
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
