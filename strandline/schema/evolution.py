"""How a lens changes a schema, and the proof that every document of the old schema passes through the lens and fits the
new one.

An operation is refused if a document can exist for which it fails at that step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from msgspec import UNSET

from strandline.schema.errors import SchemaError
from strandline.schema.lenses import (
    Add,
    Convert,
    CopyOp,
    Each,
    HeadOp,
    Hoist,
    Inside,
    Operation,
    Plunge,
    Remove,
    Rename,
    Wrap,
)
from strandline.schema.structure import (
    Path,
    Schema,
    accepts,
    any_of,
    compatible,
    demands,
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
    """Return the schema of documents after the operations. Raises SchemaError if one of them could fail."""
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
        case CopyOp(source, target):
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
        case HeadOp(path):
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
    """Return the schema of the value that every document has at ``path``. Raises SchemaError if it is optional."""
    place = find(schema, path)
    if place is None or not place.required:
        raise SchemaError(message)
    return place.schema


def check_parents(schema: Schema, path: Path) -> None:
    """Raise unless every document has an object in which ``path`` can be set."""
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
        # A host that was just created is empty.
        schema = put(schema, operation.host, host.schema | {"required": []})
    return put(schema, (*operation.host, operation.name), found)


def check_plunge_host(schema: Schema, operation: Plunge) -> None:
    """Raise unless the host is an object in every document, or can be created."""
    host = find(schema, operation.host)
    if host is not None and not is_object(host.schema):
        raise SchemaError("plunge host invalid")
    if host is None or not host.required:
        parent = find(schema, operation.host[:-1])
        if not operation.create or parent is None or not parent.required or not is_object(parent.schema):
            raise SchemaError("plunge host invalid")


def first_element(schema: Schema) -> Schema:
    """Return the schema of the first element. Raises SchemaError unless the array always has one."""
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
    """Return the schema of the result of a conversion. Raises SchemaError if it could fail."""
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


def prove(operations: Sequence[Operation], old: Schema, new: Schema) -> None:
    """Raise SchemaError for the first condition that does not hold."""
    for number, operation in enumerate(operations):
        _Proof(old, new, operations, number).check(operation)
    _check_outcome(operations, evolve(old, operations), new)


class _Proof:
    """Checks one operation against both schemas."""

    def __init__(self, old: Schema, new: Schema, operations: Sequence[Operation], number: int) -> None:
        self._old = old
        self._new = new
        self._before = operations[:number]
        self._after = operations[number + 1 :]

    def check(self, operation: Operation) -> None:
        match operation:
            case Rename(source, target):
                self._moved("rename", source, target)
            case CopyOp(source, target):
                self._moved("copy", source, target)
            case Add():
                self._added(operation)
            case Remove(path):
                self._removed(path)
            case Hoist():
                self._hoisted(operation)
            case Plunge():
                self._plunged(operation)
            case Wrap(path):
                self._wrapped(path)
            case HeadOp(path):
                found = first_element(required(self._old, path, "head path not required array"))
                self._fits(found, path, "head dest missing", "head schema incompatible")
            case Convert(path):
                found = converted(required(self._old, path, "convert path not required"), operation)
                self._fits(found, path, "convert dest missing", "convert dest incompatible")
            case Inside(path, operations):
                old, new = self._both(path, "in")
                if not is_object(old):
                    raise SchemaError("in path invalid")
                if not is_object(new):
                    raise SchemaError("in dest invalid")
                prove(operations, old, new)
            case Each(path, operations):
                self._mapped(path, operations)

    def _declared(self, path: Path, message: str) -> Schema:
        place = find(self._new, path)
        if place is None:
            raise SchemaError(message)
        return place.schema

    def _fits(self, schema: Schema, path: Path, missing: str, incompatible: str) -> None:
        if not compatible(schema, self._declared(path, missing)):
            raise SchemaError(incompatible)

    def _gone(self, path: Path, message: str) -> None:
        if demands(self._new, path):
            raise SchemaError(message)

    def _both(self, path: Path, name: str) -> tuple[Schema, Schema]:
        old = required(self._old, path, f"{name} path invalid")
        return old, required(self._new, path, f"{name} dest invalid")

    def _moved(self, name: str, source: Path, target: Path) -> None:
        found = required(self._old, source, f"{name} source not required")
        check_parents(self._old, target)
        wanted = self._declared(target, f"{name} dest missing in new schema")
        if compatible(found, wanted):
            return
        wrapped = any(isinstance(later, Wrap) and later.path == target for later in self._after)
        if not wrapped or not is_array(wanted) or not compatible(found, any_of(elements(wanted))):
            raise SchemaError(f"{name} schema incompatible")

    def _added(self, operation: Add) -> None:
        check_parents(self._old, operation.path)
        place = find(self._new, operation.path)
        if place is None or not place.explicit:
            raise SchemaError("add dest missing in new schema")
        if operation.default is UNSET:
            raise SchemaError("add missing default")
        if not accepts(operation.schema, operation.default) or not accepts(place.schema, operation.default):
            raise SchemaError("add default invalid")

    def _removed(self, path: Path) -> None:
        place = find(self._old, path)
        if not path or place is None or not place.required or not place.explicit:
            raise SchemaError("remove path not required")
        self._gone(path, "remove path still required in new schema")

    def _hoisted(self, operation: Hoist) -> None:
        if not is_object(required(self._old, operation.host, "hoist host invalid")):
            raise SchemaError("hoist host invalid")
        place = (*operation.host, operation.name)
        found = required(self._old, place, "hoist name missing/optional")
        check_parents(self._old, operation.target)
        self._fits(found, operation.target, "hoist dest missing in new schema", "hoist schema incompatible")
        # The host may be replaced by its former member.
        if operation.remove and operation.target != operation.host:
            self._gone(place, "hoist removed field still required")

    def _plunged(self, operation: Plunge) -> None:
        found = required(self._old, operation.source, "plunge source not required")
        check_plunge_host(self._old, operation)
        host = self._declared(operation.host, "plunge host missing in new schema")
        place = find(host, (operation.name,))
        if place is None:
            raise SchemaError("plunge name missing in new schema")
        if not compatible(found, place.schema):
            raise SchemaError("plunge schema incompatible")
        if operation.remove:
            self._gone(operation.source, "plunge removed field still required")

    def _wrapped(self, path: Path) -> None:
        source = path
        for earlier in self._before:
            if isinstance(earlier, (Rename, CopyOp)) and earlier.target == path:
                source = earlier.source
        found = required(self._old, source, "wrap path not required")
        place = find(self._new, path)
        if place is None or not is_array(place.schema):
            raise SchemaError("wrap dest not array")
        if not compatible({"type": "array", "items": found}, {"type": "array"} | _items_of(place.schema)):
            raise SchemaError("wrap items incompatible")

    def _mapped(self, path: Path, operations: Sequence[Operation]) -> None:
        old, new = self._both(path, "map")
        if not is_array(old):
            raise SchemaError("map path invalid")
        if not is_array(new) or len(elements(new)) > 1:
            raise SchemaError("map dest invalid")
        for element in elements(old):
            prove(operations, element, any_of(elements(new)))


def _items_of(schema: Schema) -> dict[str, Schema]:
    return {keyword: schema[keyword] for keyword in ("items", "prefixItems") if keyword in schema}


# --- the operations together -----------------------------------------------------------------------------------------


def _check_outcome(operations: Sequence[Operation], outcome: Schema, new: Schema) -> None:
    """Check that the values set last fit the new schema, and that the new schema does not require removed ones."""
    for name, path in _set_by(operations):
        found, wanted = find(outcome, path), find(new, path)
        if found is not None and wanted is not None and not compatible(found.schema, wanted.schema):
            raise SchemaError(f"{name} schema incompatible")
    for name, path in _taken_by(operations):
        if find(outcome, path) is None and demands(new, path):
            raise SchemaError(f"{name} removed field still required")


def _set_by(operations: Sequence[Operation]) -> Iterator[tuple[str, Path]]:
    for operation in operations:
        match operation:
            case Rename(_, path):
                yield "rename", path
            case CopyOp(_, path):
                yield "copy", path
            case Hoist(target=path):
                yield "hoist", path
            case Plunge(host=host, name=name):
                yield "plunge", (*host, name)
            case Add(path):
                yield "add", path
            case Wrap(path):
                yield "wrap", path
            case HeadOp(path):
                yield "head", path
            case Convert(path):
                yield "convert", path


def _taken_by(operations: Sequence[Operation]) -> Iterator[tuple[str, Path]]:
    for operation in operations:
        match operation:
            case Rename(path):
                yield "rename", path
            case Hoist(host=host, name=name, remove=True):
                yield "hoist", (*host, name)
            case Plunge(source=path, remove=True):
                yield "plunge", path
