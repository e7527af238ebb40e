"""Lenses: how a document of one version becomes one of the next. This module defines lenses and parses them from JSON.

``evolution.py`` proves that a lens is safe; ``promotion.py`` applies it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, Literal, get_args

from msgspec import UNSET, Meta, Struct, UnsetType, field

from strandline.nearest_name import did_you_mean
from strandline.query.pointers import parse_pointer
from strandline.schema.errors import SchemaError
from strandline.schema.structure import Path, Schema, elements, find
from strandline.schema.transforms import BUILTINS, TYPES, ByTable, Transform
from strandline.schema.validation import refuse_references

ApiVersion = Literal["durable.lens/v1"]
OperationName = Literal["rename", "copy", "add", "remove", "hoist", "plunge", "wrap", "head", "convert", "in", "map"]
Version = Annotated[int, Meta(ge=0)]

#: Maximum operations of a lens, including nested ones. The proof follows each of them through the whole schema.
MAX_OPERATIONS = 500

_POINTER = re.compile(r"(?:/(?:[^~/]|~0|~1)*)*")


class Rename(Struct, frozen=True, tag="rename"):
    source: Path
    target: Path


class CopyOp(Struct, frozen=True, tag="copy"):
    source: Path
    target: Path


class Add(Struct, frozen=True, tag="add"):
    """``default`` is unset only if none was given and none could be derived."""

    path: Path
    schema: Any
    default: Any | UnsetType


class Remove(Struct, frozen=True, tag="remove"):
    path: Path


class Hoist(Struct, frozen=True, tag="hoist"):
    host: Path
    name: str
    target: Path
    remove: bool


class Plunge(Struct, frozen=True, tag="plunge"):
    source: Path
    host: Path
    name: str
    create: bool
    remove: bool


class Wrap(Struct, frozen=True, tag="wrap"):
    path: Path


class HeadOp(Struct, frozen=True, tag="head"):
    path: Path


class Convert(Struct, frozen=True, tag="convert"):
    path: Path
    from_type: str
    to_type: str
    forward: Transform


class Inside(Struct, frozen=True, tag="in"):
    path: Path
    operations: tuple[Operation, ...]


class Each(Struct, frozen=True, tag="map"):
    path: Path
    operations: tuple[Operation, ...]


Operation = Rename | CopyOp | Add | Remove | Hoist | Plunge | Wrap | HeadOp | Convert | Inside | Each


class LensOperation(Struct):
    """The other members depend on ``op``; paths are JSON pointers."""

    op: OperationName


class LensDocument(Struct, forbid_unknown_fields=True, kw_only=True):
    """A lens as JSON."""

    api_version: ApiVersion = field(name="apiVersion")
    schema: str
    source: Version = field(name="from")
    target: Version = field(name="to")
    description: str | UnsetType = UNSET
    ops: Annotated[list[LensOperation], Meta(min_length=1)]


class Lens(Struct, frozen=True):
    """``document`` is stored and shown: the given lens, with the defaults of ``add`` filled in."""

    schema: str
    source: int
    target: int
    operations: tuple[Operation, ...]
    document: dict[str, Any]


def parse_lens(document: object, new_schema: Schema = True) -> Lens:
    """Parse a lens to ``new_schema``, which gives the defaults of ``add`` where the lens does not. A stored lens has
    all its defaults and needs no schema. Raises SchemaError, "invalid lens: …"."""
    try:
        return _lens(document, new_schema)
    except _Invalid as error:
        raise SchemaError(f"invalid lens: {error}") from None


class _Invalid(ValueError):
    pass


class _Fields:
    """The keys of one object of a lens, each read once. Unread keys are refused at the end."""

    def __init__(self, document: object, place: str) -> None:
        if not isinstance(document, dict):
            raise _Invalid(f"{place} must be an object")
        self._left = dict(document)
        self._known: list[str] = []
        self.place = place

    def take(self, name: str, default: Any = UNSET, *, optional: bool = False) -> Any:
        self._known.append(name)
        if name not in self._left and default is UNSET and not optional:
            raise _Invalid(f"{self.place}.{name} is required")
        return self._left.pop(name, default)

    def one_of(self, name: str, allowed: tuple[Any, ...], default: Any = UNSET) -> Any:
        value = self.take(name, default)
        if not any(value is each or (isinstance(value, str) and value == each) for each in allowed):
            choices = ", ".join(str(each).lower() if isinstance(each, bool) else each for each in allowed)
            raise _Invalid(f"{self.place}.{name} must be {choices}" if len(allowed) == 1 else
                           f"{self.place}.{name} must be one of {choices}")  # fmt: skip
        return value

    def text(self, name: str) -> str:
        value = self.take(name)
        if not isinstance(value, str):
            raise _Invalid(f"{self.place}.{name} must be a string")
        return value

    def version(self, name: str) -> int:
        value = self.take(name)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise _Invalid(f"{self.place}.{name} must be a version number")
        return value

    def flag(self, name: str) -> bool:
        """Return a flag that defaults to true."""
        return bool(self.one_of(name, (True, False), True))

    def path(self, name: str) -> Path:
        value = self.text(name)
        if _POINTER.fullmatch(value) is None:
            raise _Invalid(f"{self.place}.{name} must be a JSON pointer")
        return parse_pointer(value)

    def schema(self, name: str) -> Any:
        value = self.take(name)
        if not isinstance(value, (dict, bool)):
            raise _Invalid(f"{self.place}.{name} must be a schema")
        refuse_references(value)
        return value

    def end(self) -> None:
        for name in self._left:
            raise _Invalid(f"{self.place}.{name} is not supported{did_you_mean(name, self._known)}")


def _lens(document: object, new_schema: Schema) -> Lens:
    fields = _Fields(document, "lens")
    fields.one_of("apiVersion", get_args(ApiVersion))
    schema = fields.text("schema")
    source, target = fields.version("from"), fields.version("to")
    if not isinstance(fields.take("description", ""), str):
        raise _Invalid("lens.description must be a string")
    operations, filled = _operations(fields.take("ops"), "lens.ops", new_schema)
    if _count(operations) > MAX_OPERATIONS:
        raise _Invalid(f"lens.ops has more than {MAX_OPERATIONS} operations")
    fields.end()
    assert isinstance(document, dict)
    return Lens(schema, source, target, operations, document | {"ops": filled})


def _count(operations: tuple[Operation, ...]) -> int:
    return sum(1 + _count(each.operations) if isinstance(each, (Inside, Each)) else 1 for each in operations)


def _operations(document: object, place: str, new_schema: Schema) -> tuple[tuple[Operation, ...], list[dict[str, Any]]]:
    """Return the operations, and their documents with defaults filled in. ``new_schema`` is that of the value that they
    work on."""
    if not isinstance(document, list) or not document:
        raise _Invalid(f"{place} must be a non-empty array")
    operations, filled = [], []
    for number, each in enumerate(document):
        fields = _Fields(each, f"{place}[{number}]")
        name = fields.one_of("op", get_args(OperationName))
        additions: dict[str, Any] = {}
        operations.append(_PARSERS[name](fields, additions, new_schema))
        fields.end()
        filled.append(each | additions)
    return tuple(operations), filled


def _rename(fields: _Fields, _: dict[str, Any], __: Schema) -> Operation:
    return Rename(fields.path("from"), fields.path("to"))


def _copy(fields: _Fields, _: dict[str, Any], __: Schema) -> Operation:
    return CopyOp(fields.path("from"), fields.path("to"))


def _add(fields: _Fields, additions: dict[str, Any], new_schema: Schema) -> Operation:
    path, schema = fields.path("path"), fields.schema("schema")
    default = fields.take("default", optional=True)
    if default is UNSET:
        found = find(new_schema, path)
        default = _derived_default(*([] if found is None else [found.schema]), schema)
    if default is not UNSET:
        additions["default"] = default
    return Add(path, schema, default)


def _derived_default(*schemas: Schema) -> Any:
    """Return the default of the first schema that declares one, otherwise an empty object or array if the first schema
    that declares a type allows it."""
    declared = [schema for schema in schemas if isinstance(schema, dict)]
    for schema in declared:
        if "default" in schema:
            return schema["default"]
    for schema in declared:
        if "type" in schema:
            types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
            return {} if "object" in types else [] if "array" in types else UNSET
    return UNSET


def _remove(fields: _Fields, _: dict[str, Any], __: Schema) -> Operation:
    path = fields.path("path")
    fields.schema("schema")
    fields.take("default", optional=True)
    return Remove(path)


def _hoist(fields: _Fields, _: dict[str, Any], __: Schema) -> Operation:
    return Hoist(fields.path("host"), fields.text("name"), fields.path("to"), fields.flag("removeFromHost"))


def _plunge(fields: _Fields, _: dict[str, Any], __: Schema) -> Operation:
    source, host, name = fields.path("from"), fields.path("host"), fields.text("name")
    return Plunge(source, host, name, fields.flag("createHost"), fields.flag("removeFromSource"))


def _wrap(fields: _Fields, _: dict[str, Any], __: Schema) -> Operation:
    fields.one_of("mode", ("singleton",))
    fields.one_of("reverseMode", ("first",), "first")
    return Wrap(fields.path("path"))


def _head(fields: _Fields, _: dict[str, Any], __: Schema) -> Operation:
    fields.one_of("reverseMode", ("singleton",), "singleton")
    return HeadOp(fields.path("path"))


def _convert(fields: _Fields, _: dict[str, Any], __: Schema) -> Operation:
    path, from_type, to_type = fields.path("path"), fields.one_of("fromType", TYPES), fields.one_of("toType", TYPES)
    _transform(fields.take("backward"), f"{fields.place}.backward")
    return Convert(path, from_type, to_type, _transform(fields.take("forward"), f"{fields.place}.forward"))


def _in(fields: _Fields, additions: dict[str, Any], new_schema: Schema) -> Operation:
    path = fields.path("path")
    found = find(new_schema, path)
    inner = True if found is None else found.schema
    operations, additions["ops"] = _operations(fields.take("ops"), f"{fields.place}.ops", inner)
    return Inside(path, operations)


def _map(fields: _Fields, additions: dict[str, Any], new_schema: Schema) -> Operation:
    path = fields.path("path")
    found = find(new_schema, path)
    items = [] if found is None else elements(found.schema)
    # If elements can have several forms, the lens must give the default itself.
    inner = items[0] if len(items) == 1 else True
    operations, additions["ops"] = _operations(fields.take("ops"), f"{fields.place}.ops", inner)
    return Each(path, operations)


_PARSERS: dict[OperationName, Callable[[_Fields, dict[str, Any], Schema], Operation]] = {
    "rename": _rename, "copy": _copy, "add": _add, "remove": _remove, "hoist": _hoist, "plunge": _plunge,
    "wrap": _wrap, "head": _head, "convert": _convert, "in": _in, "map": _map,
}  # fmt: skip


def _transform(document: object, place: str) -> Transform:
    fields = _Fields(document, place)
    name = fields.take("builtin", None)
    if name is not None:
        if not isinstance(name, str) or name not in BUILTINS:
            raise _Invalid(f"{place}.builtin must be one of {', '.join(BUILTINS)}")
        fields.end()
        return BUILTINS[name]
    table, default = fields.take("map"), fields.take("default", optional=True)
    fields.end()
    if not isinstance(table, dict) or not all(_is_scalar(value) for value in table.values()):
        raise _Invalid(f"{place}.map must be an object of scalars")
    if default is not UNSET and not _is_scalar(default):
        raise _Invalid(f"{place}.default must be a scalar")
    return ByTable(table, default)


def _is_scalar(value: object) -> bool:
    return not isinstance(value, (dict, list))
