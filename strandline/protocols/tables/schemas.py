"""The JSON schemas of a table's bodies and answers for OpenAPI: those of ``wire``, with the table's own schema."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from strandline.protocols.tables.wire import ANSWERS, BODIES, REFERENCE, AppendItem, Key
from strandline.service.openapi import Schema
from strandline.tables import Row, TableDeclaration

#: The prefix of references between schemas.
_PARTS = ("$defs", "definitions")
_NOT_MOVED = ("$id", "$schema", *_PARTS)
#: The characters that all code generators accept in the name of a component.
_NO_NAME = re.compile(r"[^A-Za-z0-9._-]")


_FORMS = (*BODIES.values(), *ANSWERS.values())
_SCHEMAS, _COMPONENTS = msgspec.json.schema_components((*_FORMS, Row, AppendItem), ref_template=REFERENCE)


def _of_tables() -> frozenset[str]:
    """The names of the components that differ by table: payloads, patches, rows, and all that contain them."""
    found = {"payload", "patch", "row", "item"}
    while further := {name for name in _COMPONENTS.keys() - found if _references(_COMPONENTS[name]) & found}:
        found |= further
    return frozenset(found)


def _references(schema: Any) -> set[str]:
    """The names of the components that a schema refers to."""
    found = set[str]()

    def note(reference: str) -> str:
        found.add(reference.rpartition("/")[2])
        return reference

    _mapped(schema, note)
    return found


class TableSchemas:
    """The schemas of one table. ``components`` belong into the document; the other schemas refer to them."""

    def __init__(self, table: TableDeclaration) -> None:
        self._name = f"tables.{table.name}."
        document = table.schema.document
        place = REFERENCE.format(name=f"{self._name}payload")

        def moved(schema: Any) -> Any:
            return _mapped(schema, lambda reference: _there(reference, place))

        members = {key: moved(value) for key, value in fields_of(document).items()}
        own = {
            "payload": moved({key: value for key, value in document.items() if key not in _NOT_MOVED}),
            "patch": {"type": "object", "properties": members, "minProperties": 1},
            "row": _row(table, members),
            "item": moved(_item(document)),
            **{
                f"payload.{_plain(key)}": moved(value)
                for word in _PARTS
                for key, value in document.get(word, {}).items()
            },
            **{name: self._filled(_COMPONENTS[name]) for name in _OF_TABLES & _COMPONENTS.keys()},
        }
        self.components: dict[str, Schema] = {self._name + name: schema for name, schema in own.items()}

    def body(self, op: str) -> Any:
        return self._shared_or_own(BODIES[op])

    def answer(self, op: str) -> Any:
        return self._shared_or_own(ANSWERS[op])

    def _shared_or_own(self, form: Any) -> Any:
        """A reference to a type that all tables share; for other types, the schema with this table's parts."""
        schema = _SCHEMAS[_FORMS.index(form)]
        return self._filled(schema) if _references(schema) & _OF_TABLES else form

    def _filled(self, schema: Any) -> Any:
        """The schema with its references changed to this table's components."""

        def of_table(reference: str) -> str:
            name = reference.rpartition("/")[2]
            return REFERENCE.format(name=self._name + name) if name in _OF_TABLES else reference

        return _mapped(schema, of_table)


def _row(table: TableDeclaration, members: Mapping[str, Schema]) -> Schema:
    """The schema of a row: the members of the payload and the members that every row has."""
    row = _COMPONENTS[Row.__name__]
    own = {name: _never_null(schema) for name, schema in row["properties"].items() if name != "payload"}
    if table.with_author is None:
        del own["author"]
    required = [name for name in row["required"] if name != "payload"]
    return {"type": "object", "properties": {**members, **own}, "required": required}


def _never_null(schema: Schema) -> Schema:
    """Remove null from a member: a member of a row that would be null is left out instead."""
    return schema["anyOf"][0] if schema.get("default", ...) is None else schema


def _item(document: Mapping[str, Any]) -> Schema:
    """The schema of an item of a bulk: a payload that may also have an idempotency key."""
    declared = {key: value for key, value in _declared(document).items() if key not in _NOT_MOVED}
    return {**declared, "properties": {**fields_of(document), "idempotencyKey": msgspec.json.schema(Key)}}


def fields_of(document: Mapping[str, Any]) -> dict[str, Any]:
    """The members that the schema names."""
    fields = _declared(document).get("properties", {})
    return dict(fields) if isinstance(fields, Mapping) else {}


def _declared(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema after following its first reference."""
    declared: Any = document
    for _ in range(16):
        reference = declared.get("$ref") if isinstance(declared, Mapping) else None
        if not isinstance(reference, str) or not reference.startswith("#/"):
            break
        declared = document
        for step in reference[2:].split("/"):
            declared = declared.get(step.replace("~1", "/").replace("~0", "~"), {})
    return declared if isinstance(declared, Mapping) else {}


def _mapped(schema: Any, to: Callable[[str], str]) -> Any:
    """The schema with its references mapped by ``to``."""
    if isinstance(schema, Mapping):
        return {
            key: to(value) if key == "$ref" and isinstance(value, str) and value.startswith("#") else _mapped(value, to)
            for key, value in schema.items()
        }
    if isinstance(schema, list):
        return [_mapped(each, to) for each in schema]
    return schema


def _there(reference: str, place: str) -> str:
    """A reference into the OpenAPI document. Definitions of a schema are components of their own; other parts stay
    inside the component."""
    for word in _PARTS:
        if reference.startswith(f"#/{word}/"):
            name, slash, rest = reference[len(word) + 3 :].partition("/")
            return f"{place}.{_plain(name)}{slash}{rest}"
    return place + reference[1:]


def _plain(name: str) -> str:
    return _NO_NAME.sub("_", name)


_OF_TABLES = _of_tables()
