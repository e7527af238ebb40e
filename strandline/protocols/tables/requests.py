"""The bodies and query strings of requests."""

from __future__ import annotations

from typing import Any, TypeVar, cast

import msgspec
from msgspec import Struct

from strandline.nearest_name import decode_body
from strandline.protocols.tables.errors import invalid
from strandline.protocols.tables.wire import BODIES
from strandline.service.http import Call

B = TypeVar("B", bound=Struct)

_DECODERS = {kind: msgspec.json.Decoder(kind) for kind in BODIES.values()}


def body_of(call: Call, kind: type[B]) -> B:
    """The decoded body; raises errors that ``Errors`` can answer."""
    return cast(B, decode_body(_DECODERS[kind], call.body))


class Query:
    """The parameters of a read."""

    def __init__(self, call: Call) -> None:
        self._given = call.query

    def text(self, name: str) -> str:
        """A required parameter."""
        value = self._given.get(name)
        if value is None:
            raise invalid(f"{name} is missing", fields=[name], fieldErrors={name: "is required"})
        return value

    def optional(self, name: str) -> str | None:
        return self._given.get(name)

    def number(self, name: str, least: int, default: int | None) -> int | None:
        """An integer of at least ``least``; without a default it is optional."""
        value = self._given.get(name)
        if value is None:
            return default
        if not value.isascii() or not value.isdigit() or len(value) > 18 or int(value) < least:
            message = f"must be an integer, {least} or more"
            raise invalid(f"{name} {message}", fields=[name], fieldErrors={name: message})
        return int(value)

    def json(self, name: str) -> Any:
        """A parameter in JSON; None if it is missing."""
        value = self._given.get(name)
        if value is None:
            return None
        try:
            return msgspec.json.decode(value)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
            raise invalid(
                f"{name} is not valid JSON: {error}", fields=[name], fieldErrors={name: "is not valid JSON"}
            ) from None
