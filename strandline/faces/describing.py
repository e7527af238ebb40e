"""The words in which a face describes its routes, for the OpenAPI document that the server makes of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec


class Parameter(msgspec.Struct, frozen=True):
    """One parameter beside the body. ``place`` is ``path``, ``query`` or ``header``."""

    name: str
    place: str
    description: str
    schema: Mapping[str, Any]
    required: bool = False


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """What the code of a route does not say by itself.

    Scopes, media types and the errors that every route of its kind can have are taken from the route.
    """

    group: str
    summary: str
    description: str = ""
    #: The struct of the body, if there is one.
    body: type[msgspec.Struct] | None = None
    #: The struct of the answer, or what an answer looks like that is not JSON.
    answer: type[msgspec.Struct] | str
    #: The media type of an answer that is not JSON.
    media_type: str = "application/json"
    #: The struct of the same answer as JSON, for whoever accepts that.
    as_json: type[msgspec.Struct] | None = None
    #: Said with 201 when the request has made something.
    created: str = ""
    parameters: tuple[Parameter, ...] = ()
    #: Codes of errors, beyond those that every route of its kind can have.
    errors: tuple[str, ...] = ()


class Problem(msgspec.Struct, frozen=True):
    """An error that a client can get: its status, and when it comes."""

    status: int
    meaning: str
    #: Whether the answer says in ``Retry-After`` when to try again.
    retry: bool = False
