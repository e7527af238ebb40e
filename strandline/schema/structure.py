"""What a schema implies about the documents that conform to it.

The conclusions are about structure: types, which members exist and which are required, and enumerated values. Bounds
(lengths, ranges, patterns) are not considered. Properties that a schema tolerates but does not declare are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from strandline.query.pointers import ARRAY_INDEX
from strandline.schema.transforms import TYPES, type_of
from strandline.schema.validation import Validation, spend

#: An object of keywords, or a boolean.
Schema = Any
#: The segments of a pointer.
Path = tuple[str, ...]

ALL_TYPES = frozenset(TYPES)
_NUMBERS = frozenset({"number", "integer"})
#: Constraints that only a list of values, or an identical schema, is known to meet.
_UNPROVABLE = frozenset({"const", "enum", "not", "if"})
_KEPT = ("properties", "required", "additionalProperties", "patternProperties", "items", "additionalItems",
         "prefixItems", "minItems")  # fmt: skip


def same(left: Any, right: Any) -> bool:
    """Compare JSON values: true is not 1, but 1.0 is."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(value, right[name]) for name, value in left.items())
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return isinstance(left, bool) == isinstance(right, bool) and bool(left == right)


def accepts(schema: Schema, value: Any) -> bool:
    return Validation(schema).accepts(value)


def known_values(schema: Schema) -> list[Any] | None:
    """Return the only possible values, if the schema lists them."""
    listed = _listed(schema) if isinstance(schema, dict) else None
    if listed is None:
        return None
    spend(len(listed))
    validation = Validation(schema)
    return [value for value in listed if validation.accepts(value)]


def _listed(schema: dict[str, Any]) -> list[Any] | None:
    if "const" in schema:
        return [schema["const"]]
    listed = schema.get("enum")
    return listed if isinstance(listed, list) else None


def types_within(name: str) -> frozenset[str]:
    """Return the types that are allowed where this one is."""
    return _NUMBERS if name == "number" else frozenset({name})


def types_of(schema: Schema) -> frozenset[str]:
    """Return the types that a value can have, possibly with additional ones where they are hard to determine."""
    spend()
    if not isinstance(schema, dict):
        return ALL_TYPES if schema else frozenset()
    declared = schema.get("type")
    if isinstance(declared, str):
        return types_within(declared)
    types = ALL_TYPES if declared is None else _union(map(types_within, declared))
    listed = _listed(schema)
    if listed is not None:
        spend(len(listed))
        return types & frozenset(map(type_of, listed))
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            types &= _union(map(types_of, schema[keyword]))
    for each in schema.get("allOf", ()):
        types &= types_of(each)
    return types


def _union(sets: Iterable[frozenset[str]]) -> frozenset[str]:
    return frozenset[str]().union(*sets)


def is_object(schema: Schema) -> bool:
    return types_of(schema) == {"object"}


def is_array(schema: Schema) -> bool:
    return types_of(schema) == {"array"}


def minimum_items(schema: Schema) -> int:
    return int(schema.get("minItems", 0)) if isinstance(schema, dict) else 0


def elements(schema: Schema) -> list[Schema]:
    """Return schemas such that each element of the array conforms to one; empty if there cannot be elements."""
    if not isinstance(schema, dict) or "prefixItems" in schema:
        return [True]
    items = schema.get("items", True)
    listed = [*items, schema.get("additionalItems", True)] if isinstance(items, list) else [items]
    return [each for item in listed for each in _alternatives(item) if each is not False]


def _alternatives(schema: Schema) -> list[Schema]:
    return list(schema["anyOf"]) if isinstance(schema, dict) and schema.keys() == {"anyOf"} else [schema]


def element_at(schema: Schema, index: int) -> Schema:
    if "prefixItems" in schema:
        return True
    items = schema.get("items", True)
    if isinstance(items, list):
        return items[index] if index < len(items) else schema.get("additionalItems", True)
    return items


# --- paths -----------------------------------------------------------------------------------------------------------


class PathFacts(NamedTuple):
    """What a schema says about a path. ``required``: every document has it. ``explicit``: every step is declared by
    name."""

    schema: Schema
    required: bool
    explicit: bool


def find(schema: Schema, path: Path) -> PathFacts | None:
    """Return None if nothing is declared, or if no value can exist."""
    place = PathFacts(schema, True, True)
    for segment in path:
        step = _step(place.schema, segment)
        if step is None or step.schema is False:
            return None
        place = PathFacts(step.schema, place.required and step.required, place.explicit and step.explicit)
    return place


def demands(schema: Schema, path: Path) -> bool:
    """Return whether the object that contains ``path`` must have it, declared or not."""
    parent = find(schema, path[:-1]) if path else None
    return parent is not None and isinstance(parent.schema, dict) and path[-1] in parent.schema.get("required", ())


def _step(schema: Schema, name: str) -> PathFacts | None:
    if not isinstance(schema, dict):
        return None
    if is_array(schema):
        if not ARRAY_INDEX.match(name):
            return None
        return PathFacts(element_at(schema, int(name)), int(name) < minimum_items(schema), True)
    required = name in schema.get("required", ()) and is_object(schema)
    properties = schema.get("properties", {})
    if name in properties:
        return PathFacts(properties[name], required, True)
    additional = schema.get("additionalProperties")
    if isinstance(additional, dict) and not schema.get("patternProperties"):
        return PathFacts(additional, required, False)
    return None


def put(schema: Schema, path: Path, value: Schema) -> Schema:
    """Return the schema of documents after a value of schema ``value`` was set at ``path``."""
    if not path:
        return value
    name, rest = path[0], path[1:]
    if is_array(schema):
        changed = put(element_at(schema, int(name)), rest, value)
        return {
            "type": "array",
            "items": any_of([*elements(schema), changed]),
            "minItems": minimum_items(schema),
        }
    step = _step(schema, name)
    node = _structure(schema)
    node["properties"] = node.get("properties", {}) | {name: put(True if step is None else step.schema, rest, value)}
    if not rest:
        node["required"] = [*dict.fromkeys([*node.get("required", ()), name])]
    return node


def drop(schema: Schema, path: Path) -> Schema:
    """Return the schema of documents after the property at ``path`` was removed."""
    parent = find(schema, path[:-1])
    assert parent is not None
    node = _structure(parent.schema)
    node["properties"] = node.get("properties", {}) | {path[-1]: False}
    node["required"] = [name for name in node.get("required", ()) if name != path[-1]]
    return put(schema, path[:-1], node)


def _structure(schema: Schema) -> dict[str, Any]:
    """Return what remains true of an object when one of its members changes."""
    assert isinstance(schema, dict)
    return {"type": "object"} | {keyword: schema[keyword] for keyword in _KEPT if keyword in schema}


def any_of(schemas: list[Schema]) -> Schema:
    distinct: list[Schema] = []
    for schema in schemas:
        if not any(same(schema, other) for other in distinct):
            distinct.append(schema)
    if len(distinct) == 1:
        return distinct[0]
    return {"anyOf": distinct} if distinct else False


def schema_of(value: Any) -> dict[str, Any]:
    """Return the schema of exactly this value."""
    if isinstance(value, dict):
        properties = {name: schema_of(each) for name, each in value.items()}
        return {"const": value, "type": "object", "properties": properties, "required": list(value)}
    if isinstance(value, list):
        items = any_of([schema_of(each) for each in value])
        return {"const": value, "type": "array", "items": items, "minItems": len(value)}
    return {"const": value}


# --- compatibility ---------------------------------------------------------------------------------------------------


def compatible(source: Schema, target: Schema) -> bool:
    """Return whether a value of schema ``source`` is known to fit ``target``, apart from bounds."""
    return _Comparison().compatible(source, target)


class _Comparison:
    """One comparison of two schemas. It caches results, because all alternatives are compared with each other."""

    def __init__(self) -> None:
        # By identity. The schemas are kept alive with the results, so that no id is reused.
        self._types: dict[int, tuple[Schema, frozenset[str]]] = {}
        self._validations: dict[int, tuple[Schema, Validation]] = {}

    def compatible(self, source: Schema, target: Schema) -> bool:
        spend()
        if source is False or target is True or target == {} or same(source, target):
            return True
        if target is False:
            return False
        values = known_values(source)
        if values is not None:
            return all(map(self._validation(target).accepts, values))
        if source is True:
            source = {}
        variants = _variants(source)
        if len(variants) > 1:
            return all(self.compatible(variant, target) for variant in variants)
        if not _UNPROVABLE.isdisjoint(target) or not self._types_of(source) <= self._types_of(target):
            return False
        return self._combinations(source, target) and self._contents(source, target)

    def _types_of(self, schema: Schema) -> frozenset[str]:
        known = self._types.get(id(schema))
        if known is None:
            known = self._types[id(schema)] = schema, types_of(schema)
        return known[1]

    def _validation(self, schema: Schema) -> Validation:
        known = self._validations.get(id(schema))
        if known is None:
            known = self._validations[id(schema)] = schema, Validation(schema)
        return known[1]

    def _combinations(self, source: Schema, target: dict[str, Any]) -> bool:
        if not all(self.compatible(source, each) for each in target.get("allOf", ())):
            return False
        if "anyOf" in target and not any(self.compatible(source, each) for each in target["anyOf"]):
            return False
        if "oneOf" in target:
            types = self._types_of(source)
            fitting = [each for each in target["oneOf"] if self.compatible(source, each)]
            possible = [each for each in target["oneOf"] if not types.isdisjoint(self._types_of(each))]
            return len(fitting) == len(possible) == 1
        return True

    def _contents(self, source: dict[str, Any], target: dict[str, Any]) -> bool:
        types = self._types_of(source)
        if "object" in types and not self._properties(source, target):
            return False
        return "array" not in types or self._items(source, target)

    def _properties(self, source: dict[str, Any], target: dict[str, Any]) -> bool:
        if not set(target.get("required", ())) <= set(source.get("required", ())):
            return False
        declared, wanted = source.get("properties", {}), target.get("properties", {})
        others: Schema = True if target.get("patternProperties") else target.get("additionalProperties", True)
        if not all(self.compatible(schema, wanted.get(name, others)) for name, schema in declared.items()):
            return False
        additional = source.get("additionalProperties")
        if not isinstance(additional, dict):
            return True
        undeclared = [schema for name, schema in wanted.items() if name not in declared]
        return all(self.compatible(additional, schema) for schema in [*undeclared, others])

    def _items(self, source: dict[str, Any], target: dict[str, Any]) -> bool:
        wanted = target.get("items", True)
        if isinstance(wanted, list) or "prefixItems" in target:
            return False
        return all(self.compatible(element, wanted) for element in elements(source))


def _variants(schema: dict[str, Any]) -> list[Schema]:
    """Return schemas such that each value fits one: every type and every alternative separately."""
    if isinstance(schema.get("type"), list):
        return [schema | {"type": name} for name in schema["type"]]
    if "type" not in schema:
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                return list(schema[keyword])
    return [schema]
