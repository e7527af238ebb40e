"""Propose a JSON Schema from a sample of a log's records.

Every record of the sample is valid for the proposal. It is a start for a person to change: it says which members the
records have, which of them all records have, and of which types their values are.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

#: Members below this level are not described.
MAX_DEPTH = 6
#: An object with more members than this, over all records, has ids as names: its members are described together.
MAX_MEMBERS = 64

_TYPES: dict[type, str] = {
    str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object", type(None): "null"
}  # fmt: skip
#: The order of types in a list of them.
_ORDER = ("object", "array", "string", "number", "integer", "boolean", "null")


def infer_schema(documents: Iterable[Any]) -> dict[str, Any]:
    """A JSON Schema for which all documents are valid. Without documents, every document is valid for it."""
    return _schema(list(documents), 0)


def _schema(values: list[Any], depth: int) -> dict[str, Any]:
    types = {_TYPES[type(value)] for value in values}
    if "number" in types:
        # An integer is a number too.
        types.discard("integer")
    if not types:
        return {}
    named = sorted(types, key=_ORDER.index)
    schema: dict[str, Any] = {"type": named[0] if len(named) == 1 else named}
    if depth < MAX_DEPTH:
        if objects := [value for value in values if isinstance(value, dict)]:
            schema |= _members(objects, depth)
        if items := [item for value in values if isinstance(value, list) for item in value]:
            schema["items"] = _schema(items, depth + 1)
    return schema


def _members(objects: list[dict[str, Any]], depth: int) -> dict[str, Any]:
    values: dict[str, list[Any]] = {}
    for each in objects:
        for name, value in each.items():
            values.setdefault(name, []).append(value)
    if len(values) > MAX_MEMBERS:
        return {"additionalProperties": _schema([value for found in values.values() for value in found], depth + 1)}
    required = [name for name, found in values.items() if len(found) == len(objects)]
    return {
        **({"required": required} if required else {}),
        "properties": {name: _schema(found, depth + 1) for name, found in values.items()},
    }
