"""Routing keys that are extracted from the records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET, Struct, field

from strandline.query.errors import BadPointer
from strandline.query.pointers import parse_pointer, resolve
from strandline.schema.errors import SchemaError
from strandline.schema.options import check_members


class RoutingKey(Struct, frozen=True, forbid_unknown_fields=True):
    """Where the key is in a record, and whether every record must have one. Also the JSON form."""

    pointer: str = field(name="jsonPointer")
    required: bool

    def keys_of(self, documents: Sequence[Any]) -> list[str | None]:
        segments = parse_pointer(self.pointer)
        return [self._key(resolve(document, segments)) for document in documents]

    def _key(self, found: object) -> str | None:
        if isinstance(found, str):
            return found
        if found is not UNSET:
            raise SchemaError("routing key must be a string")
        if self.required:
            raise SchemaError("routing key missing")
        return None


def parse_routing_key(document: object) -> RoutingKey | None:
    """Parse a routing key. None clears the key. Raises SchemaError."""
    if document is None:
        return None
    if not isinstance(document, dict):
        raise SchemaError("routingKey must be an object or null")
    check_members(document, RoutingKey, "routingKey")
    pointer, required = document.get("jsonPointer"), document.get("required")
    if not isinstance(pointer, str):
        raise SchemaError("routingKey.jsonPointer must be a string")
    try:
        parse_pointer(pointer)
    except BadPointer as error:
        raise SchemaError(str(error)) from None
    if not isinstance(required, bool):
        raise SchemaError("routingKey.required must be boolean")
    return RoutingKey(pointer, required)
