"""The protocol's routes, described for those who call them; one entry per route.

A module per group of operations, with the types of what they take and answer. These types describe what the handlers
read and write by hand; tests hold the two together.
"""

from __future__ import annotations

from strandline.protocols.streams.errors import PROBLEMS, RENAMED
from strandline.protocols.streams.openapi import invalidation, questions, schemas, stream_answers, subscriptions, traces
from strandline.protocols.streams.openapi.answers import StreamErrorAnswer
from strandline.protocols.streams.openapi.inspection import INSPECTING
from strandline.protocols.streams.openapi.parameters import Operations
from strandline.protocols.streams.openapi.records import RECORDS
from strandline.protocols.streams.subscriptions.json import ROOT
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

_OPERATIONS: Operations = {
    **RECORDS,
    **schemas.SHAPING,
    **questions.QUESTIONS,
    **traces.TRACES,
    **invalidation.TOUCH,
    **subscriptions.SUBSCRIPTIONS,
    **INSPECTING,
}


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
    descriptions={
        **schemas.DESCRIPTIONS,
        **questions.DESCRIPTIONS,
        **traces.DESCRIPTIONS,
        **invalidation.DESCRIPTIONS,
        **subscriptions.DESCRIPTIONS,
        **stream_answers.DESCRIPTIONS,
    },
    nothing=frozenset({ROOT + "/{rest}"}),
)
