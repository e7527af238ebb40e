"""Shapes: what a JSON Schema says about the types of values, without its other conditions.

A shape accepts every value that the schema accepts, and possibly more: a condition that a type cannot express, such as
a length, is left out. A schema without a shape of its own is :data:`UNKNOWN`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from inspect import cleandoc
from typing import Any, Literal

from msgspec import Struct

from strandline.tables.declaration import TableDeclaration
from strandline.tables.schema_forms import referenced
from strandline.tables.schemas import Schema

Kind = Literal["string", "integer", "number", "boolean", "null", "unknown", "never"]


class Scalar(Struct, frozen=True):
    kind: Kind


class Constant(Struct, frozen=True):
    """Exactly this value."""

    value: str | bool | int | float | None


class ListOf(Struct, frozen=True):
    item: Shape


class TupleOf(Struct, frozen=True):
    """A list with a shape for each position. At least ``least`` positions are present; ``rest`` is the shape of
    further items, if there can be any."""

    items: tuple[Shape, ...]
    least: int
    rest: Shape | None


class DictOf(Struct, frozen=True):
    """An object with any members."""

    value: Shape


class Member(Struct, frozen=True):
    name: str
    shape: Shape
    required: bool
    description: str
    #: The default that the server fills in, as JSON Schema has it; a tuple, because the default may be null.
    default: tuple[Any, ...] = ()


class ObjectOf(Struct, frozen=True):
    """An object with these members. ``is_open``: the schema allows other members explicitly."""

    members: tuple[Member, ...]
    is_open: bool


class OneOf(Struct, frozen=True):
    options: tuple[Shape, ...]


class AllOf(Struct, frozen=True):
    """Every part applies."""

    parts: tuple[Shape, ...]


class Named(Struct, frozen=True):
    """A type that is defined elsewhere, by name."""

    name: str


Shape = Scalar | Constant | ListOf | TupleOf | DictOf | ObjectOf | OneOf | AllOf | Named

UNKNOWN = Scalar("unknown")
NEVER = Scalar("never")
_KINDS: dict[str, Scalar] = {
    kind: Scalar(kind) for kind in ("string", "integer", "number", "boolean", "null", "unknown", "never")
}


class Definition(Struct, frozen=True):
    """A type with a name."""

    name: str
    shape: Shape
    description: str


class RootShape(Struct, frozen=True):
    """A type and the types that it refers to. A type follows those that it refers to, unless they refer to it."""

    type: Definition
    parts: tuple[Definition, ...]


class TableShapes(Struct, frozen=True):
    """The types of one table."""

    table: str
    #: The name of the type of a row.
    row: str
    #: What the payload of a row looks like to readers: the server has filled in the defaults.
    payload: RootShape
    #: What a writer sends: members with a default can be left out.
    input: RootShape


def shapes_of(tables: Iterable[TableDeclaration]) -> list[TableShapes]:
    """The shapes of all tables. Names of types are unique."""
    tables = list(tables)
    names = UniqueNames()
    bases = [names.base(table.name) for table in tables]
    return [_table(table, base, names) for table, base in zip(tables, bases, strict=True)]


class UniqueNames:
    """Names of types, none of which is used twice."""

    def __init__(self) -> None:
        self._used: set[str] = set()

    def base(self, text: str) -> str:
        """A name that is unique with each of the suffixes of a table's types."""
        wanted = type_name(text)
        for name in _numbered(wanted):
            if not {name + suffix for suffix in _SUFFIXES} & self._used:
                self._used |= {name + suffix for suffix in _SUFFIXES}
                return name
        raise AssertionError("numbers do not end")

    def add(self, text: str) -> str:
        name = next(name for name in _numbered(text) if name not in self._used)
        self._used.add(name)
        return name


_SUFFIXES = ("Row", "Payload", "Input")


def _numbered(name: str) -> Iterator[str]:
    yield name
    number = 2
    while True:
        yield f"{name}{number}"
        number += 1


def type_name(text: str) -> str:
    """``chat-message`` is ``ChatMessage``."""
    parts = re.findall(r"[A-Za-z0-9]+", text)
    name = "".join(part[0].upper() + part[1:] for part in parts)
    return name if name and not name[0].isdigit() else f"Part{name}"


def _table(table: TableDeclaration, base: str, names: UniqueNames) -> TableShapes:
    schema = table.schema
    payload = ShapeReader(schema, f"{base}Payload", names, filled=schema.fills_defaults).root()
    input = ShapeReader(schema, f"{base}Input", names, filled=False).root()
    return TableShapes(table.name, f"{base}Row", payload, input)


class ShapeReader:
    """Reads the shapes of one schema. ``filled``: members with a default are always present."""

    def __init__(self, schema: Schema, name: str, names: UniqueNames, *, filled: bool) -> None:
        self._schema = schema
        self._document = schema.document
        self._name = name
        self._names = names
        self._filled = filled
        #: The names of types by the reference to them.
        self._known = {"#": name}
        self._parts: list[Definition] = []

    def root(self) -> RootShape:
        """The shape of the whole document. A reference at the top is followed, because the type has a name already."""
        declared: Any = self._document
        while isinstance(declared, Mapping) and declared.get("$ref", "#") not in self._known:
            target = referenced(declared["$ref"], self._document)
            if target is None:
                break
            self._known[declared["$ref"]] = self._name
            declared = target
        shape = self.shape(declared)
        if isinstance(shape, Scalar | Named):
            # A schema that does not say what it accepts accepts objects here.
            shape = DictOf(UNKNOWN)
        if isinstance(shape, ObjectOf) and self._schema.fields is not None:
            # The schema has exactly these members.
            shape = ObjectOf(shape.members, is_open=False)
        return RootShape(Definition(self._name, shape, _description(declared)), tuple(self._parts))

    def shape(self, declared: Any) -> Shape:
        if declared is False:
            return NEVER
        if not isinstance(declared, Mapping):
            return UNKNOWN
        parts = [part for part in self._statements(declared) if part != UNKNOWN]
        return parts[0] if len(parts) == 1 else AllOf(tuple(parts)) if parts else UNKNOWN

    def _statements(self, declared: Mapping[str, Any]) -> Iterator[Shape]:
        """All that the keywords of a schema say about the type, each for itself."""
        if "$ref" in declared:
            yield self._reference(declared["$ref"])
        if "const" in declared:
            yield _constant(declared["const"])
        elif isinstance(declared.get("enum"), list):
            yield one_of(map(_constant, declared["enum"]))
        elif "type" in declared:
            kinds = declared["type"]
            yield one_of(self._of_kind(kind, declared) for kind in (kinds if isinstance(kinds, list) else [kinds]))
        elif isinstance(declared.get("properties"), Mapping):
            # Strictly, values that are not objects are accepted as well. A schema with members means objects.
            yield self._object(declared)
        for word in ("anyOf", "oneOf"):
            if isinstance(declared.get(word), list):
                yield one_of(map(self.shape, declared[word]))
        if isinstance(declared.get("allOf"), list):
            yield from map(self.shape, declared["allOf"])

    def _reference(self, reference: object) -> Shape:
        target = referenced(reference, self._document) if isinstance(reference, str) else None
        if not isinstance(reference, str) or target is None:
            return UNKNOWN
        name = self._known.get(reference)
        if name is None:
            name = self._known[reference] = self._names.add(self._name + type_name(reference.rpartition("/")[2]))
            shape = self.shape(target)
            # A definition that only refers to itself says nothing.
            self._parts.append(Definition(name, UNKNOWN if shape == Named(name) else shape, _description(target)))
        return Named(name)

    def _of_kind(self, kind: object, declared: Mapping[str, Any]) -> Shape:
        if kind == "array":
            return self._array(declared)
        if kind == "object":
            return self._object(declared)
        return _KINDS.get(str(kind), UNKNOWN)

    def _array(self, declared: Mapping[str, Any]) -> Shape:
        items = declared.get("items", True)
        first = declared.get("prefixItems")
        if isinstance(items, list):
            # The form of earlier drafts.
            first, items = items, declared.get("additionalItems", True)
        if not isinstance(first, list):
            return ListOf(self.shape(items))
        rest = None if items is False else self.shape(items)
        least = declared.get("minItems", 0)
        shapes = tuple(map(self.shape, first))
        return TupleOf(shapes, min(least, len(shapes)) if isinstance(least, int) else 0, rest)

    def _object(self, declared: Mapping[str, Any]) -> Shape:
        properties = declared.get("properties")
        more = declared.get("additionalProperties")
        is_open = more not in (None, False) or "patternProperties" in declared
        if not isinstance(properties, Mapping) or not properties:
            # An object whose members are not named can have any, unless the schema forbids them.
            if more is False and "patternProperties" not in declared:
                return ObjectOf((), is_open=False)
            named = "patternProperties" in declared or more is None
            return DictOf(UNKNOWN if named else self.shape(more))
        required = declared.get("required", ())
        members = tuple(self._member(name, each, name in required) for name, each in properties.items())
        return ObjectOf(members, is_open)

    def _member(self, name: str, declared: Any, is_required: bool) -> Member:
        has_default = isinstance(declared, Mapping) and "default" in declared
        return Member(
            name,
            self.shape(declared),
            is_required or (has_default and self._filled),
            _description(declared),
            (declared["default"],) if has_default else (),
        )


def _constant(value: Any) -> Shape:
    if value is None or isinstance(value, str | bool | int | float):
        return Constant(value)
    return DictOf(UNKNOWN) if isinstance(value, Mapping) else ListOf(UNKNOWN)


def one_of(shapes: Iterable[Shape]) -> Shape:
    """The options without repetitions."""
    options: list[Shape] = []
    for shape in shapes:
        for option in shape.options if isinstance(shape, OneOf) else (shape,):
            # True equals 1, but they are different constants.
            if all(repr(option) != repr(known) for known in options):
                options.append(option)
    if UNKNOWN in options:
        return UNKNOWN
    if not options:
        return NEVER
    return options[0] if len(options) == 1 else OneOf(tuple(options))


#: Control characters except line feeds. Source files cannot contain all of them.
_CONTROLS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f]")


def _description(declared: Any) -> str:
    text = declared.get("description") if isinstance(declared, Mapping) else None
    return cleandoc(_CONTROLS.sub(" ", text)) if isinstance(text, str) else ""
