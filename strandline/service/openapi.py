"""The types with which a protocol describes its routes, for the OpenAPI document that the server generates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from strandline.service.problems import Problem

#: A JSON schema.
Schema = Mapping[str, Any]
#: What a body looks like, by media type: a type that msgspec knows where it is JSON of a known shape, else a schema.
Content = Mapping[str, Any]

JSON = "application/json"
EVENT_STREAM = "text/event-stream"
TEXT: Schema = {"type": "string"}
#: The schema of event streams. OpenAPI 3.1 has no schema for events, so the description of an operation lists them.
EVENTS: Schema = {"description": "Server-sent events."}


class Parameter(msgspec.Struct, frozen=True):
    """One parameter outside the body. ``place`` is ``path``, ``query`` or ``header``."""

    name: str
    place: str
    description: str
    schema: Schema
    required: bool = False


class Header(msgspec.Struct, frozen=True):
    """A header of an answer. ``required``: every answer with this status has it."""

    name: str
    description: str
    schema: Schema
    required: bool = False


class Answer(msgspec.Struct, frozen=True):
    """An answer that is not an error. Without content, it has no body."""

    status: int
    description: str
    content: Content = {}
    headers: tuple[Header, ...] = ()


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """The description of a route, except for what the route itself declares.

    Scopes, and the errors that every route of its kind can return, are taken from the route.
    """

    group: str
    summary: str
    description: str = ""
    #: The accepted bodies; None: no body.
    body: Content | None = None
    #: Whether a body is required, if the route leaves that to its handler.
    needs_body: bool = False
    answers: tuple[Answer, ...]
    parameters: tuple[Parameter, ...] = ()
    #: Error codes in addition to those that every route of its kind can return.
    errors: tuple[str, ...] = ()
    #: Headers of error answers, by status.
    error_headers: Mapping[int, tuple[Header, ...]] = {}

    @property
    def is_event_stream(self) -> bool:
        """Whether the only answer is an event stream."""
        return all(list(answer.content) == [EVENT_STREAM] for answer in self.answers)


class Described(msgspec.Struct, frozen=True, kw_only=True):
    """The description of all routes of a protocol."""

    name: str
    #: The descriptions of the groups of operations, in the order in which they are shown.
    groups: Mapping[str, str]
    #: By method and path of the routes.
    operations: Mapping[tuple[str, str], Operation]
    problems: Mapping[str, Problem]
    #: The body of an error.
    error: type[msgspec.Struct]
    #: Whether the body contains the error code; if not, it has only a message.
    coded: bool = True
    #: The protocol's codes for the shared problems.
    renamed: Mapping[Problem, Problem] = {}
    #: The descriptions of fields, by the name of their struct.
    descriptions: Mapping[str, Mapping[str, str]] = {}
    #: Further schemas by name, for operations that refer to ``#/components/schemas/…`` themselves.
    schemas: Mapping[str, Schema] = {}
    #: WebSockets by path, which are not routes.
    sockets: Mapping[str, Operation] = {}
    #: Paths that answer 404 with the error body of this protocol.
    nothing: frozenset[str] = frozenset()


def shown(form: Any, *, created: str = "") -> tuple[Answer, ...]:
    """The usual JSON answer; with ``created``, also the answer 201 and its description."""
    answer = Answer(200, "The answer.", {JSON: form})
    return (answer, Answer(201, created, {JSON: form})) if created else (answer,)
