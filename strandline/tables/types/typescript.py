"""Types of tables in TypeScript. The text is valid as ``.ts`` and as ``.d.ts`` and imports nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import msgspec

from strandline.tables.declaration import TableDeclaration
from strandline.tables.types.shape import (
    AllOf,
    Constant,
    Definition,
    DictOf,
    ListOf,
    Member,
    Named,
    ObjectOf,
    OneOf,
    Scalar,
    Shape,
    TableShapes,
    TupleOf,
    shapes_of,
)

_HEAD = """\
// The types of the tables of a Strandline server, written by `strandline types --ts`. Do not edit.

/** The members of a row besides its payload. */
export interface RowFields {
  /** `<parent>:<seq>`. */
  readonly id: string;
  readonly parent: string;
  /** 1, 2, 3 … per parent. A number is never used twice. */
  readonly seq: number;
  /** The user who appended the row; null for the program itself. */
  readonly userId: string | null;
  /** Milliseconds since 1970. */
  readonly createdAt: number;
  /** Milliseconds since 1970; equal to `createdAt` until the row is edited. */
  readonly updatedAt: number;
  readonly idempotencyKey?: string;
  /** Whether the reader appended the row. */
  readonly own?: boolean | null;
  /** The author, as returned by the table's `with_author`. */
  readonly author?: Readonly<Record<string, unknown>> | null;
}
"""
_SCALARS = {
    "string": "string",
    "integer": "number",
    "number": "number",
    "boolean": "boolean",
    "null": "null",
    "unknown": "unknown",
    "never": "never",
}
_IDENTIFIER = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")


def typescript_types(tables: Iterable[TableDeclaration]) -> str:
    """The types of the tables: for each one a row, its payload and the input of an append, and ``Tables``."""
    shapes = shapes_of(tables)
    blocks = [_HEAD, *(block for table in shapes for block in _table(table)), _tables(shapes)]
    return "\n".join(blocks)


def _table(table: TableShapes) -> Iterator[str]:
    yield _definition(
        table.payload.type, f"The payload of a row of `{table.table}`, as the server stores it.", is_read=True
    )
    yield from (_definition(part, "", is_read=True) for part in table.payload.parts)
    yield f"/** A row of `{table.table}`. */\nexport type {table.row} = {table.payload.type.name} & RowFields;\n"
    words = f"What you append to `{table.table}`. The server fills in members that have a default."
    yield _definition(table.input.type, words, is_read=False)
    yield from (_definition(part, "", is_read=False) for part in table.input.parts)


def _tables(tables: list[TableShapes]) -> str:
    lines = [
        f"  {_name(table.table)}: {{ payload: {table.payload.type.name}; input: {table.input.type.name} }};"
        for table in tables
    ]
    head = (
        "/** All tables: `connect<Tables>(url)` types the rows and the inputs of each. */\nexport interface Tables {\n"
    )
    return head + "".join(f"{line}\n" for line in lines) + "}\n"


def _definition(definition: Definition, words: str, *, is_read: bool) -> str:
    printer = _Printer(is_read)
    comment = _comment("\n\n".join(filter(None, (definition.description, words))), "")
    if isinstance(definition.shape, ObjectOf):
        return f"{comment}export interface {definition.name} {printer.members(definition.shape, '')}\n"
    return f"{comment}export type {definition.name} = {printer.shown(definition.shape, '')};\n"


class _Printer:
    """Members of what is read are ``readonly``. Lists always are, so that an input accepts lists of both kinds."""

    def __init__(self, is_read: bool) -> None:
        self._is_read = is_read

    def shown(self, shape: Shape, indent: str) -> str:
        if isinstance(shape, Scalar):
            return _SCALARS[shape.kind]
        if isinstance(shape, Constant):
            return msgspec.json.encode(shape.value).decode()
        if isinstance(shape, Named):
            return shape.name
        if isinstance(shape, ListOf):
            return f"readonly {self._inner(shape.item, indent)}[]"
        if isinstance(shape, TupleOf):
            return self._tuple(shape, indent)
        if isinstance(shape, DictOf):
            return f"{{ {self._readonly}[name: string]: {self.shown(shape.value, indent)} }}"
        if isinstance(shape, OneOf):
            return " | ".join(self._inner(option, indent) for option in shape.options)
        if isinstance(shape, AllOf):
            return " & ".join(self._inner(part, indent) for part in shape.parts)
        return self.members(shape, indent)

    def members(self, shape: ObjectOf, indent: str) -> str:
        inner = f"{indent}  "
        lines = [self._member(member, inner) for member in shape.members]
        if shape.is_open:
            lines.append(f"{inner}{self._readonly}[name: string]: unknown;\n")
        return f"{{\n{''.join(lines)}{indent}}}" if lines else "{}"

    def _member(self, member: Member, indent: str) -> str:
        words = member.description
        if member.default and not self._is_read:
            words += f"{chr(10) if words else ''}@default {msgspec.json.encode(member.default[0]).decode()}"
        mark = "" if member.required else "?"
        shown = self.shown(member.shape, indent)
        return f"{_comment(words, indent)}{indent}{self._readonly}{_name(member.name)}{mark}: {shown};\n"

    def _tuple(self, shape: TupleOf, indent: str) -> str:
        items = [
            self._inner(item, indent) + ("" if place < shape.least else "?") for place, item in enumerate(shape.items)
        ]
        if shape.rest is not None:
            items.append(f"...{self._inner(shape.rest, indent)}[]")
        return f"readonly [{', '.join(items)}]"

    def _inner(self, shape: Shape, indent: str) -> str:
        shown = self.shown(shape, indent)
        return f"({shown})" if isinstance(shape, OneOf | AllOf | ListOf | TupleOf) else shown

    @property
    def _readonly(self) -> str:
        return "readonly " if self._is_read else ""


def _name(name: str) -> str:
    return name if _IDENTIFIER.fullmatch(name) else msgspec.json.encode(name).decode()


def _comment(text: str, indent: str) -> str:
    lines = [line.rstrip() for line in text.strip().replace("*/", "*\\/").splitlines()]
    if not lines:
        return ""
    if len(lines) == 1:
        return f"{indent}/** {lines[0]} */\n"
    return f"{indent}/**\n" + "".join(f"{indent} * {line}".rstrip() + "\n" for line in lines) + f"{indent} */\n"
