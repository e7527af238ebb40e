"""Short words for schemas, lenses and updates in tests."""

from __future__ import annotations

import json
from typing import Any

from strandline.schema.lenses import Lens, parse_lens
from strandline.schema.promotion import compile_steps, duplicate

STRING = {"type": "string"}
INTEGER = {"type": "integer"}
NUMBER = {"type": "number"}
BOOLEAN = {"type": "boolean"}


def object_of(optional: dict[str, Any] | None = None, /, **required: Any) -> dict[str, Any]:
    """An object with these properties, required unless they are in ``optional``."""
    return {"type": "object", "properties": {**required, **(optional or {})}, "required": list(required)}


def array_of(items: Any, **keywords: Any) -> dict[str, Any]:
    return {"type": "array", "items": items, **keywords}


def op(name: str, /, **fields: Any) -> dict[str, Any]:
    """An operation; ``from_`` stands for "from"."""
    return {"op": name, **{key.rstrip("_"): value for key, value in fields.items()}}


def lens_document(*operations: Any, source: int = 1, schema: str = "orders", **fields: Any) -> dict[str, Any]:
    lens = {"apiVersion": "durable.lens/v1", "schema": schema, "from": source, "to": source + 1}
    return {**lens, "ops": list(operations), **fields}


def lens(*operations: Any) -> Lens:
    return parse_lens(lens_document(*operations))


def through(document: Any, *operations: Any) -> Any:
    """What the operations make of the document."""
    return compile_steps(lens(*operations).operations)(duplicate(document))


def body(**update: Any) -> bytes:
    return json.dumps(update).encode()
