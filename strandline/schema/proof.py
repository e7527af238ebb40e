"""Whether a lens can be relied on: that every document of the old schema can be taken through it, and then fits the
new one where the lens touched it.

Each operation is first held against the old and the new schema as they are, then the operations are followed step by
step. The first alone would let operations through that undo or surprise each other, and the failure would show when
somebody reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import UNSET

from strandline.schema.errors import SchemaError
from strandline.schema.evolution import check_parents, check_plunge_host, converted, evolve, first_element, required
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
    accepts,
    any_of,
    compatible,
    demands,
    elements,
    find,
    is_array,
    is_object,
)


def prove(operations: Sequence[Operation], old: Schema, new: Schema) -> None:
    """Raises SchemaError with the first thing that does not hold."""
    for number, operation in enumerate(operations):
        _Proof(old, new, operations, number).check(operation)
    _check_outcome(operations, evolve(old, operations), new)


class _Proof:
    """One operation among the others, held against both schemas."""

    def __init__(self, old: Schema, new: Schema, operations: Sequence[Operation], number: int) -> None:
        self._old = old
        self._new = new
        self._before = operations[:number]
        self._after = operations[number + 1 :]

    def check(self, operation: Operation) -> None:
        match operation:
            case Rename(source, target):
                self._moved("rename", source, target)
            case Copy(source, target):
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
            case Head(path):
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
        # The host may make way for what was in it.
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
            if isinstance(earlier, (Rename, Copy)) and earlier.target == path:
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
    """What was set last must fit the new schema, and what was taken away for good must not be required by it."""
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
            case Copy(_, path):
                yield "copy", path
            case Hoist(target=path):
                yield "hoist", path
            case Plunge(host=host, name=name):
                yield "plunge", (*host, name)
            case Add(path):
                yield "add", path
            case Wrap(path):
                yield "wrap", path
            case Head(path):
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
