"""The JSON schemas of a table's requests and answers, for the OpenAPI document: its own schema is a part of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from strandline.service.openapi import Schema
from strandline.tables import TableDeclaration
from strandline.tables.table import MAX_BULK

TEXT: Schema = {"type": "string"}
FLAG: Schema = {"type": "boolean"}
SEQ: Schema = {"type": "integer", "minimum": 1}
COUNT: Schema = {"type": "integer", "minimum": 0}
TIME: Schema = {"type": "integer", "minimum": 0, "description": "Milliseconds since 1970."}
_NULLABLE_TEXT: Schema = {"type": ["string", "null"]}
_PARENT: Schema = {"type": "string", "minLength": 1, "maxLength": 256, "pattern": "^[^/]+$"}
_ID: Schema = {"type": "string", "pattern": "^.+:[1-9][0-9]*$", "description": "The parent, a colon, the seq."}
_KEY: Schema = {"type": ["string", "null"], "maxLength": 256}
#: Where schemas keep what they refer to.
_PARTS = ("$defs", "definitions")
_NOT_MOVED = ("$id", "$schema", *_PARTS)
#: What every generator takes in the name of a component.
_NO_NAME = re.compile(r"[^A-Za-z0-9._-]")


def obj(required: str, properties: Mapping[str, Schema], **more: Any) -> dict[str, Any]:
    """An object with these members; ``required`` are those that are always there."""
    return {"type": "object", "properties": dict(properties), "required": required.split(), **more}


def listed(items: Schema) -> dict[str, Any]:
    return {"type": "array", "items": items}


class TableSchemas:
    """Those of one table. ``components`` are for the document as a whole, the others refer to them."""

    def __init__(self, table: TableDeclaration) -> None:
        name = f"tables.{table.name}."
        self._place = f"#/components/schemas/{name}"
        document = table.schema.document
        place = self._place + "payload"
        payload = _moved({key: value for key, value in document.items() if key not in _NOT_MOVED}, place)
        members = {key: _moved(value, place) for key, value in _fields(document).items()}
        parts = {key: value for word in _PARTS for key, value in document.get(word, {}).items()}
        self.components: dict[str, Schema] = {
            name + "payload": payload,
            **{f"{name}payload.{_plain(key)}": _moved(value, place) for key, value in parts.items()},
            name + "patch": {"type": "object", "properties": members, "minProperties": 1},
            name + "row": self._row(table, members),
            name + "appended": obj("seq created id", {"seq": SEQ, "created": FLAG, "id": _ID}),
            name + "removed": obj("deleted id soft", {"deleted": FLAG, "id": TEXT, "soft": FLAG}),
        }
        self.payload, self.patch, self.row, self.appended, self.removed = (
            {"$ref": self._place + each} for each in ("payload", "patch", "row", "appended", "removed")
        )

    def _row(self, table: TableDeclaration, members: Mapping[str, Schema]) -> Schema:
        own: dict[str, Schema] = {
            "id": _ID,
            "parent": TEXT,
            "seq": SEQ,
            "userId": {**_NULLABLE_TEXT, "description": "The author."},
            "createdAt": TIME,
            "updatedAt": TIME,
            "idempotencyKey": TEXT,
            "own": {"type": "boolean", "description": "Whether whoever asks is the author."},
        }
        if table.with_author is not None:
            own["author"] = {"type": ["object", "null"], "description": "What is known of the author."}
        return obj("id parent seq userId createdAt updatedAt", {**members, **own})

    # --- requests --------------------------------------------------------------------------------------------------

    def body(self, op: str) -> Schema:
        closed = {"additionalProperties": False}
        item = obj("payload", {"payload": self.payload, "idempotencyKey": _KEY}, **closed)
        bodies: dict[str, Schema] = {
            "append": obj(
                "parent payload", {"parent": _PARENT, "payload": self.payload, "idempotencyKey": _KEY}, **closed
            ),
            "appendBulk": obj(
                "parent items",
                {"parent": _PARENT, "items": {**listed(item), "minItems": 1, "maxItems": MAX_BULK}},
                **closed,
            ),
            "update": obj(
                "id patch",
                {"id": _ID, "patch": self.patch, "expectedUpdatedAt": {"type": ["integer", "null"], "minimum": 0}},
                **closed,
            ),
            "rm": obj("id", {"id": _ID, "hard": FLAG}, **closed),
            "rmBulk": obj("ids", {"ids": {**listed(_ID), "minItems": 1, "maxItems": MAX_BULK}, "hard": FLAG}, **closed),
            "purgeByParent": obj("parent", {"parent": _PARENT, "hard": FLAG}, **closed),
            "restoreByParent": obj("parent", {"parent": _PARENT}, **closed),
            "restore": obj("id", {"id": _ID}, **closed),
        }
        return bodies[op]

    # --- answers ---------------------------------------------------------------------------------------------------

    def answer(self, op: str) -> Schema:
        rows = listed(self.row)
        previous = {"type": "object", "description": "The payload as it was before."}
        edit = obj("at user previous", {"at": TIME, "user": _NULLABLE_TEXT, "previous": previous})
        answers: dict[str, Schema] = {
            "append": self.appended,
            "appendBulk": obj("count results", {"count": COUNT, "results": listed(self.appended)}),
            "update": self.row,
            "rm": self.removed,
            "rmBulk": obj("count results", {"count": COUNT, "results": listed(self.removed)}),
            "purgeByParent": obj("deleted soft", {"deleted": COUNT, "soft": FLAG}),
            "restoreByParent": obj("restored", {"restored": COUNT}),
            "restore": self.row,
            "list": obj("page isDone continueCursor", {"page": rows, "isDone": FLAG, "continueCursor": _NULLABLE_TEXT}),
            "listAfter": obj("rows head hasMore last", {"rows": rows, "head": COUNT, "hasMore": FLAG, "last": COUNT}),
            "read": {"anyOf": [self.row, {"type": "null"}]},
            "search": obj("rows complete", {"rows": rows, "complete": FLAG}),
            "indexed": {"type": "object", "additionalProperties": rows},
            "counts": obj(
                "counts total", {"counts": {"type": "object", "additionalProperties": COUNT}, "total": COUNT}
            ),
            "history": obj("edits", {"edits": listed(edit)}),
        }
        return answers[op]


def _fields(document: Mapping[str, Any]) -> dict[str, Any]:
    """The members that the schema names, wherever its first reference leads."""
    declared: Any = document
    for _ in range(16):
        reference = declared.get("$ref") if isinstance(declared, Mapping) else None
        if not isinstance(reference, str) or not reference.startswith("#/"):
            break
        declared = document
        for step in reference[2:].split("/"):
            declared = declared.get(step.replace("~1", "/").replace("~0", "~"), {})
    fields = declared.get("properties", {}) if isinstance(declared, Mapping) else {}
    return dict(fields) if isinstance(fields, Mapping) else {}


def _moved(schema: Any, place: str) -> Any:
    """The schema with its references into itself leading to where it is in the document."""
    if isinstance(schema, Mapping):
        return {
            key: _there(value, place)
            if key == "$ref" and isinstance(value, str) and value.startswith("#")
            else _moved(value, place)
            for key, value in schema.items()
        }
    if isinstance(schema, list):
        return [_moved(each, place) for each in schema]
    return schema


def _there(reference: str, place: str) -> str:
    """Parts of a schema are components of their own; everything else is inside of the one that it is."""
    for word in _PARTS:
        if reference.startswith(f"#/{word}/"):
            name, slash, rest = reference[len(word) + 3 :].partition("/")
            return f"{place}.{_plain(name)}{slash}{rest}"
    return place + reference[1:]


def _plain(name: str) -> str:
    return _NO_NAME.sub("_", name)
