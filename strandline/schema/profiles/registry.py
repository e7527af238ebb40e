"""The registry that comes with a profile."""

from __future__ import annotations

from typing import Any

from strandline.query.config_parser import parse_search_config
from strandline.schema.registry import Registry
from strandline.schema.routing import RoutingKey


class Installed:
    """A first schema and what can be searched, for every stream of a profile."""

    def __init__(self, schema: dict[str, Any], search: dict[str, Any], *, routing_key: str | None = None) -> None:
        self._schema = schema
        self._search = parse_search_config(search)
        self._routing_key = None if routing_key is None else RoutingKey(routing_key, True)

    def registry(self, stream_name: str) -> Registry:
        return Registry.installed(stream_name, self._schema, routing_key=self._routing_key, search=self._search)


def closed_object(properties: dict[str, Any]) -> dict[str, Any]:
    """The schema of an object that has these keys, all of them, and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def field(kind: str, pointer: str, *flags: str, **settings: str) -> dict[str, Any]:
    """A searchable field of version 1."""
    bindings = [{"version": 1, "jsonPointer": pointer}]
    return {"kind": kind, "bindings": bindings, **settings, **dict.fromkeys(flags, True)}


def text_field(pointer: str) -> dict[str, Any]:
    return field("text", pointer, "exists", "positions", analyzer="unicode_word_v1")
