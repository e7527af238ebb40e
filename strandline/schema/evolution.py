"""What a schema becomes under the operations of a lens: the schema of documents after each step.

An operation is refused where there can be a document for which it fails at that step.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from strandline.schema.errors import SchemaError
from strandline.schema.lenses import (
    Add,
    Convert,
    Copy,
    Each,
    Head,
    Hoist,
    Inside,
    Operation,
    Path,
    Plunge,
    Remove,
    Rename,
    Wrap,
)
from strandline.schema.structure import (
    Schema,
    any_of,
    drop,
    element_at,
    elements,
    find,
    is_array,
    is_object,
    known_values,
    minimum_items,
    put,
    schema_of,
    types_of,
    types_within,
)
from strandline.schema.transforms import Builtin, TransformFailed, has_type


def evolve(schema: Schema, operations: Sequence[Operation]) -> Schema:
    """The schema of what the operations make of a document; raises SchemaError if one of them could fail."""
    for operation in operations:
        schema = _after(schema, operation)
    return schema


def _after(schema: Schema, operation: Operation) -> Schema:
    match operation:
        case Rename(source, target):
            if source[: len(target)] == target or target[: len(source)] == source:
                raise SchemaError("rename paths overlap")
            found = required(schema, source, "rename source not required")
            return _dropped(_put(schema, target, found), source, "rename source not required")
        case Copy(source, target):
            return _put(schema, target, required(schema, source, "copy source not required"))
        case Add(path, _, default):
            return _put(schema, path, schema_of(default))
        case Remove(path):
            required(schema, path, "remove path not required")
            return _dropped(schema, path, "remove path not required")
        case Hoist():
            return _hoisted(schema, operation)
        case Plunge():
            return _plunged(schema, operation)
        case Wrap(path):
            found = required(schema, path, "wrap path not required")
            return _put(schema, path, {"type": "array", "items": found, "minItems": 1})
        case Head(path):
            return _put(schema, path, first_element(required(schema, path, "head path not required array")))
        case Convert(path):
            return _put(schema, path, converted(required(schema, path, "convert path not required"), operation))
        case Inside(path, operations):
            found = required(schema, path, "in path invalid")
            if not is_object(found):
                raise SchemaError("in path invalid")
            return _put(schema, path, evolve(found, operations))
        case Each(path, operations):
            found = required(schema, path, "map path invalid")
            if not is_array(found):
                raise SchemaError("map path invalid")
            items = any_of([evolve(element, operations) for element in elements(found)])
            return _put(schema, path, {"type": "array", "items": items, "minItems": minimum_items(found)})


def required(schema: Schema, path: Path, message: str) -> Schema:
    """The schema of what every document has at ``path``; raises SchemaError where it need not be there."""
    place = find(schema, path)
    if place is None or not place.required:
        raise SchemaError(message)
    return place.schema


def check_parents(schema: Schema, path: Path) -> None:
    """Raise unless every document has an object that ``path`` can be set in."""
    if path and not is_object(required(schema, path[:-1], "parent path not required")):
        raise SchemaError("parent path not object")


def _put(schema: Schema, path: Path, value: Schema) -> Schema:
    if find(schema, path) is None:
        check_parents(schema, path)
    elif path:
        required(schema, path[:-1], "parent path not required")
    return put(schema, path, value)


def _dropped(schema: Schema, path: Path, message: str) -> Schema:
    required(schema, path, message)
    if not path or not is_object(required(schema, path[:-1], message)):
        raise SchemaError(message)
    return drop(schema, path)


def _hoisted(schema: Schema, operation: Hoist) -> Schema:
    if not is_object(required(schema, operation.host, "hoist host invalid")):
        raise SchemaError("hoist host invalid")
    place = (*operation.host, operation.name)
    found = required(schema, place, "hoist name missing/optional")
    if operation.remove:
        schema = drop(schema, place)
    return _put(schema, operation.target, found)


def _plunged(schema: Schema, operation: Plunge) -> Schema:
    found = required(schema, operation.source, "plunge source not required")
    if operation.remove:
        schema = _dropped(schema, operation.source, "plunge source not required")
    check_plunge_host(schema, operation)
    host = find(schema, operation.host)
    if host is None:
        schema = put(schema, operation.host, {"type": "object"})
    elif not host.required:
        # One that was made just now has nothing in it.
        schema = put(schema, operation.host, host.schema | {"required": []})
    return put(schema, (*operation.host, operation.name), found)


def check_plunge_host(schema: Schema, operation: Plunge) -> None:
    """Raise unless the host is an object in every document, or can be made."""
    host = find(schema, operation.host)
    if host is not None and not is_object(host.schema):
        raise SchemaError("plunge host invalid")
    if host is None or not host.required:
        parent = find(schema, operation.host[:-1])
        if not operation.create or parent is None or not parent.required or not is_object(parent.schema):
            raise SchemaError("plunge host invalid")


def first_element(schema: Schema) -> Schema:
    """The schema of the first element; raises SchemaError unless there always is one."""
    if not is_array(schema):
        raise SchemaError("head path not required array")
    values = known_values(schema)
    if values is not None:
        if not all(values):
            constant = "const" in schema
            raise SchemaError("head requires non-empty array" if constant else "head requires enum non-empty")
        return any_of([schema_of(value[0]) for value in values])
    if minimum_items(schema) < 1:
        raise SchemaError("head requires minItems")
    return element_at(schema, 0)


def converted(schema: Schema, operation: Convert) -> Schema:
    """The schema of what the conversion gives; raises SchemaError if it could fail."""
    forward, values = operation.forward, known_values(schema)
    if values is not None:
        return {"enum": [_convert(value, operation) for value in values]}
    if not forward.total:
        raise SchemaError("schema must be enum/const for non-total transform")
    types = types_of(schema)
    if not types <= types_within(operation.from_type):
        raise SchemaError(f"convert source is not always {operation.from_type}")
    if isinstance(forward, Builtin):
        if not types <= types_within(forward.takes):
            raise SchemaError(f"convert source is not always {forward.takes}, which {forward.name} needs")
        if not types_within(forward.gives) <= types_within(operation.to_type):
            raise SchemaError(f"convert does not give {operation.to_type}")
        return {"type": forward.gives}
    results = forward.results()
    if not all(has_type(result, operation.to_type) for result in results):
        raise SchemaError(f"convert does not give {operation.to_type}")
    return {"enum": results}


def _convert(value: object, operation: Convert) -> object:
    if not has_type(value, operation.from_type):
        raise SchemaError(f"convert source is not always {operation.from_type}")
    try:
        result = operation.forward(value)
    except TransformFailed:
        raise SchemaError(f"convert fails for {msgspec.json.encode(value).decode()}") from None
    if not has_type(result, operation.to_type):
        raise SchemaError(f"convert does not give {operation.to_type}")
    return result
