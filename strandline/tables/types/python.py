"""Types of tables in Python: typed dictionaries, which the client accepts as the type of a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from keyword import iskeyword
from typing import TypeGuard

import msgspec

from strandline.tables.declaration import TableDeclaration
from strandline.tables.types.shape import (
    UNKNOWN,
    AllOf,
    Constant,
    Definition,
    DictOf,
    Kind,
    ListOf,
    Member,
    Named,
    ObjectOf,
    OneOf,
    Scalar,
    Shape,
    TableShapes,
    TupleOf,
    one_of,
    shapes_of,
)

_HEAD = '''\
"""The types of the tables of a Strandline server, written by `strandline types --py`. Do not edit."""

# ruff: noqa
from typing import Any, Literal, NotRequired, TypeAlias, TypedDict


class RowFields(TypedDict):
    """The members of a row besides its payload, in answers of the HTTP API. Times are in milliseconds since 1970."""

    id: str
    parent: str
    seq: int
    userId: str | None
    createdAt: int
    updatedAt: int
    idempotencyKey: NotRequired[str]
    own: NotRequired[bool | None]
    author: NotRequired[dict[str, Any] | None]
'''
_SCALARS = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "null": "None",
    "unknown": "Any",
    "never": "Any",
}

_KIND_OF: dict[type, Kind] = {bool: "boolean", float: "number", type(None): "null"}
#: The names that types are made of.
_USED = frozenset((*_SCALARS.values(), "list", "dict", "Literal", "NotRequired"))


def python_types(tables: Iterable[TableDeclaration]) -> str:
    """The types of the tables: for each one a row, its payload and the input of an append."""
    printer = _Printer()
    return "\n\n".join([_HEAD, *(block for table in shapes_of(tables) for block in printer.table(table))])


class _Printer:
    """Prints types in order. The client decodes payloads with msgspec, which has no unions of several dictionaries or
    several lists, and no constants beside the type of their values: such unions are printed as a more general type."""

    def __init__(self) -> None:
        self._definitions: dict[str, Shape] = {}
        self._defined: set[str] = set()

    def table(self, table: TableShapes) -> Iterator[str]:
        payload, input = table.payload, table.input
        for each in (payload.type, *payload.parts, input.type, *input.parts):
            self._definitions[each.name] = each.shape
        yield from (self._definition(part, "") for part in payload.parts)
        yield self._definition(payload.type, f"The payload of a row of `{table.table}`, as the server stores it.")
        if _is_typed_dict(payload.type.shape):
            yield f'class {table.row}({payload.type.name}, RowFields):\n    """A row of `{table.table}`."""\n'
        else:
            yield f"#: A row of `{table.table}`.\n{table.row}: TypeAlias = dict[str, Any]\n"
        yield from (self._definition(part, "") for part in input.parts)
        words = f"What you append to `{table.table}`. The server fills in members that have a default."
        yield self._definition(input.type, words)

    def _definition(self, definition: Definition, words: str) -> str:
        name, shape = definition.name, definition.shape
        words = "\n\n".join(filter(None, (definition.description, words)))
        text = self._typed_dict(name, shape, words) if _is_typed_dict(shape) else self._alias(name, shape, words)
        self._defined.add(name)
        return text

    def _alias(self, name: str, shape: Shape, words: str) -> str:
        return f"{_comment(words, '')}{name}: TypeAlias = {self._quoted(shape)}\n"

    def _typed_dict(self, name: str, shape: ObjectOf, words: str) -> str:
        if all(_is_attribute(member.name) for member in shape.members):
            members = [self._member(member, f"    {member.name}: ", "") for member in shape.members]
            body = "\n".join(filter(None, (_docstring(words), "".join(members))))
            return f"class {name}(TypedDict):\n{body or '    pass' + _END}"
        members = [self._member(member, f"        {_text(member.name)}: ", ",") for member in shape.members]
        start = f"{_comment(words, '')}{name} = TypedDict(\n    {_text(name)},\n    {{\n"
        return f"{start}{''.join(members)}    }},\n)\n"

    def _member(self, member: Member, start: str, end: str) -> str:
        quoted = self._quoted(member.shape)
        marked = quoted if member.required else f"NotRequired[{quoted}]"
        indent = start[: len(start) - len(start.lstrip())]
        return f"{_comment(member.description, indent)}{start}{marked}{end}\n"

    def _quoted(self, shape: Shape) -> str:
        """The type; as text if it refers to a type that follows."""
        shown, names = self._shown(shape)
        return shown if names <= self._defined else _text(shown)

    def _shown(self, shape: Shape) -> tuple[str, frozenset[str]]:
        """The type, and the names that it uses."""
        if isinstance(shape, Named):
            # An alias that is not defined yet refers to itself, which only a class can do.
            is_class = _is_typed_dict(self._definitions[shape.name])
            return (shape.name, frozenset([shape.name])) if is_class or shape.name in self._defined else _ANY
        if isinstance(shape, Constant | OneOf):
            return self._union(shape)
        if isinstance(shape, ListOf):
            shown, names = self._shown(shape.item)
            return f"list[{shown}]", names
        if isinstance(shape, TupleOf):
            # A tuple is a list in JSON.
            return self._shown(ListOf(_items(shape)))
        if isinstance(shape, DictOf):
            shown, names = self._shown(shape.value)
            return f"dict[str, {shown}]", names
        if isinstance(shape, Scalar):
            return _SCALARS[shape.kind], frozenset()
        # An object within another one has no name, and a typed dictionary needs one.
        return ("dict[str, Any]", frozenset()) if isinstance(shape, ObjectOf) else _ANY

    def _union(self, shape: Shape) -> tuple[str, frozenset[str]]:
        constants: list[str | int] = []
        lists: list[Shape] = []
        dicts: list[Shape] = []
        shown: dict[str, None] = {}
        for option in self._options(shape, frozenset()):
            if isinstance(option, Constant):
                if isinstance(option.value, str | int) and not isinstance(option.value, bool):
                    constants.append(option.value)
                else:
                    shown[_SCALARS[_KIND_OF[type(option.value)]]] = None
            elif isinstance(option, ListOf | TupleOf):
                lists.append(option.item if isinstance(option, ListOf) else _items(option))
            elif isinstance(option, Scalar):
                shown[_SCALARS[option.kind]] = None
            elif isinstance(option, AllOf):
                return _ANY
            else:
                dicts.append(option)
        literals = [
            _text(value) if isinstance(value, str) else str(value)
            for value in constants
            if type(value).__name__ not in shown
        ]
        found = [self._shown(ListOf(one_of(lists)))] if lists else []
        if dicts:
            found.append(self._shown(dicts[0] if len(dicts) == 1 else DictOf(UNKNOWN)))
        texts = [*([f"Literal[{', '.join(literals)}]"] if literals else []), *(text for text, _ in found), *shown]
        return _ANY if "Any" in texts else (" | ".join(texts), frozenset().union(*(names for _, names in found)))

    def _options(self, shape: Shape, within: frozenset[str]) -> Iterator[Shape]:
        """The options of a union, with those of the unions in it."""
        if isinstance(shape, OneOf):
            for option in shape.options:
                yield from self._options(option, within)
        elif isinstance(shape, Named) and not _is_typed_dict(self._definitions[shape.name]):
            inner = UNKNOWN if shape.name in within else self._definitions[shape.name]
            yield from self._options(inner, within | {shape.name})
        else:
            yield shape


_ANY = ("Any", frozenset[str]())
_END = "\n"


def _is_typed_dict(shape: Shape) -> TypeGuard[ObjectOf]:
    """A typed dictionary has no members but its own."""
    return isinstance(shape, ObjectOf) and not shape.is_open


def _is_attribute(name: str) -> bool:
    """Whether a class can have a member of this name. It would hide a type of the same name, and names that start with
    two underscores are changed inside a class."""
    is_name = name.isidentifier() and name.isascii() and not iskeyword(name)
    return is_name and not name.startswith("__") and name not in _USED


def _items(shape: TupleOf) -> Shape:
    """The shape of any item."""
    return one_of(shape.items if shape.rest is None else (*shape.items, shape.rest))


def _text(text: str) -> str:
    """A literal. JSON's form is valid in Python, too."""
    return msgspec.json.encode(text).decode()


def _docstring(text: str) -> str:
    if not text:
        return ""
    lines = [f"    {line}".rstrip() for line in text.replace("\\", "\\\\").replace('"', '\\"').splitlines()]
    ending = '"""\n' if len(lines) == 1 else '\n    """\n'
    return f'    """{_END.join(lines).strip()}{ending}'


def _comment(text: str, indent: str) -> str:
    return "".join(f"{indent}#: {line}".rstrip() + "\n" for line in text.splitlines())
