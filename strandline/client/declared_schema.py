"""Schemas of logs from Python types: a JSON Schema, and which fields can be searched."""

from __future__ import annotations

import dataclasses
import enum
import types
import typing
from collections.abc import Iterator, Mapping
from datetime import date, datetime
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from strandline.client.search_types import SearchConfig, SearchField

_ABSENT = (type(None), msgspec.UnsetType)
_NUMBERS: dict[type, Literal["integer", "float"]] = {int: "integer", float: "float"}


class Search(msgspec.Struct, frozen=True):
    """Marks a field as searchable: ``page: Annotated[str, Search(prefix=True)]``. The kind of the field follows from
    its type. ``text`` searches for the words of a string instead of the whole string, ``lowercase`` ignores case, and
    ``prefix`` allows queries such as ``page:/pay*``. ``name`` is the name in queries, instead of that in the record."""

    text: bool = False
    lowercase: bool = False
    prefix: bool = False
    name: str | None = None


def log_schema(
    model: type,
    *,
    version: int = 1,
    timestamp: str | None = None,
    default_fields: typing.Sequence[str] = (),
    rollups: Mapping[str, dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """What ``Stream.set_schema`` installs for a msgspec Struct or a dataclass: its JSON Schema and, if fields are
    marked with :class:`Search`, the search configuration.

    ``version`` is the version that the schema gets; an update to version 2 or later needs a lens as well. ``timestamp``
    is the date field that searches sort and aggregate by, ``default_fields`` are searched by bare words. Raises
    TypeError for types that have no JSON Schema or cannot be searched, and ValueError for unknown fields.
    """
    if not _is_model(model):
        raise TypeError(f"expected a msgspec Struct or a dataclass, got {model!r}")
    # Also finds out whether a type refers to itself.
    update: dict[str, Any] = {"schema": _json_schema(model)}
    fields = dict(_searched(model, "", "", version))
    for name in (*default_fields, *(() if timestamp is None else (timestamp,))):
        if name not in fields:
            raise ValueError(f"{name!r} is not a field of {model.__name__} that is marked with Search")
    if not fields:
        if rollups:
            raise ValueError(f"rollups need fields of {model.__name__} that are marked with Search")
        return update
    config: SearchConfig = {"fields": fields}
    if timestamp is not None:
        config["primaryTimestampField"] = timestamp
    if default_fields:
        config["defaultFields"] = [{"field": name} for name in default_fields]
    if rollups:
        config["rollups"] = dict(rollups)
    return {**update, "search": config}


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and (issubclass(kind, msgspec.Struct) or dataclasses.is_dataclass(kind))


def _json_schema(model: type) -> dict[str, Any]:
    """The JSON Schema without references, which schemas of logs cannot have."""
    schema = msgspec.json.schema(model)
    definitions = schema.pop("$defs", {})

    def inlined(part: Any, path: tuple[str, ...]) -> Any:
        if isinstance(part, list):
            return [inlined(each, path) for each in part]
        if not isinstance(part, dict):
            return part
        reference = part.get("$ref")
        if not isinstance(reference, str):
            return {key: inlined(value, path) for key, value in part.items()}
        name = reference.rpartition("/")[2]
        if name in path:
            raise TypeError(f"{model.__name__} cannot be the schema of a log: {name} refers to itself")
        rest = {key: value for key, value in part.items() if key != "$ref"}
        return {**inlined(definitions[name], (*path, name)), **rest}

    document: dict[str, Any] = inlined(schema, ())
    return document


def _searched(model: Any, prefix: str, pointer: str, version: int) -> Iterator[tuple[str, SearchField]]:
    """The marked fields of a type, and of the types of its members."""
    encoded = {}
    if issubclass(model, msgspec.Struct):
        encoded = {field.name: field.encode_name for field in msgspec.structs.fields(model)}
    for attribute, hint in typing.get_type_hints(model, include_extras=True).items():
        if get_origin(hint) is typing.ClassVar:
            continue
        member = encoded.get(attribute, attribute)
        here = f"{pointer}/{member.replace('~', '~0').replace('/', '~1')}"
        kind, mark = _unwrapped(hint)
        if mark is not None:
            name = mark.name or prefix + member
            yield name, {**_options(name, kind, mark), "bindings": [{"version": version, "jsonPointer": here}]}
        elif _is_model(kind):
            yield from _searched(kind, f"{prefix}{member}.", here, version)


def _unwrapped(hint: Any) -> tuple[Any, Search | None]:
    """The type without annotations, None and lists, and its mark."""
    mark: Search | None = None
    while True:
        origin, arguments = get_origin(hint), get_args(hint)
        if origin is Annotated:
            mark = mark or next((each for each in arguments[1:] if isinstance(each, Search)), None)
            hint = arguments[0]
        elif origin in (Union, types.UnionType):
            left = [each for each in arguments if each not in _ABSENT]
            if len(left) != 1:
                return hint, mark
            hint = left[0]
        elif origin in (list, tuple, set, frozenset) and arguments:
            hint = arguments[0]
        else:
            return hint, mark


def _options(name: str, kind: Any, mark: Search) -> SearchField:
    values = get_args(kind) if get_origin(kind) is Literal else ()
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        values = tuple(member.value for member in kind)
    if values and len({type(value) for value in values}) == 1:
        kind = type(values[0])
    is_text, is_word = kind is str, mark.lowercase or mark.prefix
    if (mark.text and is_word) or ((mark.text or is_word) and not is_text):
        raise TypeError(f"the field {name!r} cannot be searched like that: {mark} does not fit its type")
    if mark.text:
        return {"kind": "text", "bindings": [], "analyzer": "unicode_word_v1", "positions": True}
    if is_text:
        found: SearchField = {"kind": "keyword", "bindings": [], "exact": True, "sortable": True}
        if mark.lowercase:
            found["normalizer"] = "lowercase_v1"
        if mark.prefix:
            found["prefix"] = True
        return found
    ordered: SearchField = {"kind": "bool", "bindings": [], "exact": True, "column": True, "sortable": True}
    if kind is bool:
        return ordered
    if kind in _NUMBERS:
        return {**ordered, "kind": _NUMBERS[kind], "aggregatable": True}
    if kind in (date, datetime):
        return {**ordered, "kind": "date"}
    raise TypeError(
        f"the field {name!r} cannot be searched: its type is {kind!r}; expected text, a number, bool or a date"
    )
