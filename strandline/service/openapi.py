"""The structs with which a protocol describes its routes. The server builds the OpenAPI document from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from strandline.service.problems import Problem

#: A JSON schema.
Schema = Mapping[str, Any]
#: The content of a body by media type: a type that msgspec can decode, for JSON of a known shape, or a tuple of such
#: types, or else a schema.
Content = Mapping[str, Any]

JSON = "application/json"
EVENT_STREAM = "text/event-stream"
TEXT: Schema = {"type": "string"}
#: This version of OpenAPI cannot describe events in a schema; the description of the operation lists them.
EVENTS: Schema = {"description": "Server-sent events."}


class Parameter(msgspec.Struct, frozen=True):
    """One parameter outside the body. ``place`` is ``path``, ``query`` or ``header``."""

    name: str
    place: str
    description: str
    schema: Schema
    required: bool = False


class Header(msgspec.Struct, frozen=True):
    """A header of an answer. ``required`` means that every answer with this status has it."""

    name: str
    description: str
    schema: Schema
    required: bool = False


class AnswerShape(msgspec.Struct, frozen=True):
    """A successful answer. Without content it has no body."""

    status: int
    description: str
    content: Content = {}
    headers: tuple[Header, ...] = ()


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """The description of a route: everything that cannot be derived from its code.

    The scopes and the errors that all routes of its kind share are derived from the route.
    """

    group: str
    summary: str
    description: str = ""
    #: The body of a request; None: it has none.
    body: Content | None = None
    #: Whether the body is required, if the route leaves the check to its handler.
    needs_body: bool = False
    answers: tuple[AnswerShape, ...]
    parameters: tuple[Parameter, ...] = ()
    #: Error codes besides those that all routes of its kind share.
    errors: tuple[str, ...] = ()
    #: By status: headers that an error can have.
    error_headers: Mapping[int, tuple[Header, ...]] = {}

    @property
    def is_event_stream(self) -> bool:
        """Whether every answer is an event stream."""
        return all(list(answer.content) == [EVENT_STREAM] for answer in self.answers)


class Described(msgspec.Struct, frozen=True, kw_only=True):
    """A protocol's description of all its routes."""

    name: str
    #: The descriptions of the groups of operations, in the order in which they are shown.
    groups: Mapping[str, str]
    #: By the method and path of the route.
    operations: Mapping[tuple[str, str], Operation]
    problems: Mapping[str, Problem]
    #: The body of an error.
    error: type[msgspec.Struct]
    #: Whether the body of an error contains the error code. Otherwise it contains only a message.
    coded: bool = True
    #: The protocol's names for shared problems.
    renamed: Mapping[Problem, Problem] = {}
    #: Descriptions of fields, by the name of their struct.
    descriptions: Mapping[str, Mapping[str, str]] = {}
    #: Further schemas by name, to which operations refer as ``#/components/schemas/…``.
    schemas: Mapping[str, Schema] = {}
    #: WebSockets by path. They have no routes.
    sockets: Mapping[str, Operation] = {}
    #: Paths that answer "not found" with the protocol's own code.
    nothing: frozenset[str] = frozenset()


_PREFLIGHT_HEADERS = (
    ("Allow-Methods", "The methods of this path."),
    ("Allow-Headers", "The headers that pages may send."),
    ("Max-Age", "How many seconds the answer is valid."),
)


def preflight(group: str, parameters: tuple[Parameter, ...] = ()) -> Operation:
    """The operation OPTIONS of a path."""
    headers = tuple(Header(f"Access-Control-{name}", words, TEXT) for name, words in _PREFLIGHT_HEADERS)
    return Operation(
        group=group,
        summary="Ask what pages may send",
        answers=(AnswerShape(204, "What pages of allowed origins may send.", headers=headers),),
        parameters=parameters,
    )


def shown(form: Any, *, created: str = "") -> tuple[AnswerShape, ...]:
    """A JSON answer with status 200. With ``created``, the description of a 201 answer, there is also that answer."""
    answer = AnswerShape(200, "The answer.", {JSON: form})
    return (answer, AnswerShape(201, created, {JSON: form})) if created else (answer,)
