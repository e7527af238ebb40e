"""The bodies and query strings of requests."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, TypeVar, cast

import msgspec
from msgspec import Struct

from strandline.nearest_name import MAX_QUOTED, decode_body, did_you_mean, with_nearest
from strandline.protocols.tables.errors import invalid
from strandline.protocols.tables.wire import BODIES, PaginationOptions
from strandline.service.http import Call
from strandline.tables import Item
from strandline.tables.names import check_key
from strandline.tables.schemas import Schema

#: The members of an item of a bulk.
PAYLOAD, KEY = "payload", "idempotencyKey"
PAGINATION = "paginationOpts"

B = TypeVar("B", bound=Struct)

_DECODERS = {kind: msgspec.json.Decoder(kind) for kind in BODIES.values()}


def body_of(call: Call, kind: type[B]) -> B:
    """The decoded body; raises errors that ``Errors`` can answer."""
    return cast(B, decode_body(_DECODERS[kind], call.body))


def item_of(item: dict[str, Any], schema: Schema) -> Item:
    """An item of a bulk: a payload with an optional ``idempotencyKey`` beside its fields, or ``{payload,
    idempotencyKey}`` if the schema does not declare a field ``payload``."""
    key = item.get(KEY)
    if PAYLOAD in item and item.keys() <= {PAYLOAD, KEY} and not schema.declares(PAYLOAD):
        return Item(item[PAYLOAD], check_key(key))
    return Item({name: value for name, value in item.items() if name != KEY}, check_key(key))


def check_query(call: Call, known: Collection[str]) -> None:
    """Refuse parameters that the read does not have: they are most likely misspelt."""
    for name in call.query:
        if name not in known:
            name = name[:MAX_QUOTED]
            expected = did_you_mean(name, known) or (f"; expected {', '.join(known)}" if known else "")
            raise invalid(
                f"unknown parameter {name!r}{expected}",
                fields=[name],
                fieldErrors={name: "is not a parameter of this operation"},
            )


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

    def page(self) -> tuple[int | None, str | None]:
        """The limit and the cursor of a page, each a parameter or both as ``paginationOpts``."""
        options = self.json(PAGINATION)
        if options is None:
            return self.number("limit", 1, None), self.optional("cursor")
        if "limit" in self._given or "cursor" in self._given:
            raise invalid(f"{PAGINATION} cannot be combined with limit or cursor", fields=[PAGINATION])
        try:
            given = msgspec.convert(options, PaginationOptions)
        except msgspec.ValidationError as error:
            why = str(with_nearest(error, PaginationOptions))
            raise invalid(f"{PAGINATION}: {why}", fields=[PAGINATION], fieldErrors={PAGINATION: why}) from None
        return given.num_items, given.cursor

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
