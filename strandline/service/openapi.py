"""The words in which a face describes its routes, for the OpenAPI document that the server makes of them."""

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
#: Of event streams the description says what events there are: no schema of this version of OpenAPI can.
EVENTS: Schema = {"description": "Server-sent events."}


class Parameter(msgspec.Struct, frozen=True):
    """One parameter beside the body. ``place`` is ``path``, ``query`` or ``header``."""

    name: str
    place: str
    description: str
    schema: Schema
    required: bool = False


class Header(msgspec.Struct, frozen=True):
    """A header of an answer. ``required``: every answer of this status has it."""

    name: str
    description: str
    schema: Schema
    required: bool = False


class Answer(msgspec.Struct, frozen=True):
    """An answer that is no refusal. Without content it has no body."""

    status: int
    description: str
    content: Content = {}
    headers: tuple[Header, ...] = ()


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """What the code of a route does not say by itself.

    Scopes and the errors that every route of its kind can have are taken from the route.
    """

    group: str
    summary: str
    description: str = ""
    #: What may be sent; None: nothing.
    body: Content | None = None
    #: Whether something must be sent, where the route leaves that to its handler.
    needs_body: bool = False
    answers: tuple[Answer, ...]
    parameters: tuple[Parameter, ...] = ()
    #: Codes of errors, beyond those that every route of its kind can have.
    errors: tuple[str, ...] = ()
    #: Headers that refusals of a status can have.
    error_headers: Mapping[int, tuple[Header, ...]] = {}

    @property
    def is_event_stream(self) -> bool:
        """Whether all it answers with is an event stream."""
        return all(list(answer.content) == [EVENT_STREAM] for answer in self.answers)


class Described(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a protocol has to say about its routes."""

    name: str
    #: What the groups of operations are about, in the order in which they are shown.
    groups: Mapping[str, str]
    #: By method and path, as the routes have them.
    operations: Mapping[tuple[str, str], Operation]
    problems: Mapping[str, Problem]
    #: The body of a refusal.
    error: type[msgspec.Struct]
    #: Whether that has the code of the problem; if not, it says in words what is wrong.
    coded: bool = True
    #: What the protocol calls the shared problems.
    renamed: Mapping[Problem, Problem] = {}
    #: What fields mean, by the name of their struct.
    descriptions: Mapping[str, Mapping[str, str]] = {}
    #: By name: those that operations refer to as ``#/components/schemas/…`` by themselves.
    schemas: Mapping[str, Schema] = {}
    #: By path: WebSockets, which are no routes.
    sockets: Mapping[str, Operation] = {}
    #: Paths where there is nothing, in other words than the server would say so.
    nothing: frozenset[str] = frozenset()


def shown(form: Any, *, created: str = "") -> tuple[Answer, ...]:
    """The usual answer, JSON; with 201 when the request has made something, as ``created`` says."""
    answer = Answer(200, "The answer.", {JSON: form})
    return (answer, Answer(201, created, {JSON: form})) if created else (answer,)
