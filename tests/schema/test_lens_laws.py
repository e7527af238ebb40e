"""What is proven holds: no document fails on its way through a lens, and then it fits the new schema.

Old schemas, operations and documents are drawn at random. The new schema is what the old one becomes, made wrong here
and there, so that there is something for the proof to find.
"""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from support.schema_builders import BOOLEAN, INTEGER, NUMBER, STRING, array_of, body, lens, lens_document, op

from strandline.schema.errors import SchemaError
from strandline.schema.evolution import evolve, prove
from strandline.schema.promotion import compile_steps
from strandline.schema.registry import Registry
from strandline.schema.structure import Path, find, known_values, types_of
from strandline.schema.validation import Validation

NAMES = ("a", "b", "c", "h")
NULLABLE = {"type": ["string", "null"]}
LEAVES = [
    STRING, INTEGER, NUMBER, BOOLEAN, NULLABLE, {}, {"enum": ["1", "2"]}, {"enum": ["x", "y", 1]}, {"const": "x"},
    {"enum": [["x"], ["y", "z"]]}, {"const": 5},
]  # fmt: skip
TRANSFORMS = [
    {"builtin": "lowercase"}, {"builtin": "string_to_int"}, {"builtin": "int_to_string"},
    {"builtin": "unix_millis_to_rfc3339"}, {"map": {"1": 1, "2": 2}}, {"map": {"x": "X"}, "default": ""},
]  # fmt: skip
TYPES = ["string", "number", "integer", "boolean", "null", "object", "array"]

quick = settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))


def objects_of(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    def build(properties: dict[str, Any], optional: set[str], closed: bool) -> dict[str, Any]:
        schema = {"type": "object", "properties": properties, "required": [n for n in properties if n not in optional]}
        return schema | {"additionalProperties": False} if closed else schema

    optional = st.sets(st.sampled_from(NAMES), max_size=1)
    return st.builds(build, st.dictionaries(st.sampled_from(NAMES), children, max_size=3), optional, st.booleans())


def arrays_of(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.builds(lambda items, least: array_of(items, minItems=least), children, st.integers(0, 2))


leaves = st.sampled_from(LEAVES)
schemas = st.recursive(leaves, lambda children: objects_of(children) | arrays_of(children), max_leaves=6)
old_schemas = objects_of(schemas)


def paths(schema: Any, before: Path = ()) -> list[Path]:
    """Everything that is declared in objects."""
    found: list[Path] = []
    if isinstance(schema, dict):
        for name, below in schema.get("properties", {}).items():
            if below is not False:
                found += [(*before, name), *paths(below, (*before, name))]
    return found


def pointer(path: Path) -> str:
    return "".join(f"/{name}" for name in path)


#: What an operation works on, where it is not anything.
SUITABLE = {"head": "array", "map": "array", "in": "object", "convert": "string"}


def suitable(schema: Any, name: str) -> list[Path]:
    """Places that the operation could be about."""
    there = [path for path in paths(schema) if (place := find(schema, path)) is not None and place.required]
    wanted = SUITABLE.get(name)
    return [path for path in there if wanted is None or types_of(find(schema, path).schema) == {wanted}]  # type: ignore[union-attr]


@st.composite
def operations(draw: st.DrawFn, schema: Any, depth: int = 1) -> list[dict[str, Any]]:
    return [draw(operation(schema, depth)) for _ in range(draw(st.integers(1, 3)))]


@st.composite
def operation(draw: st.DrawFn, schema: Any, depth: int) -> dict[str, Any]:
    """On something that is there, nine times out of ten."""
    names = ["rename", "copy", "add", "remove", "hoist", "plunge", "wrap", "head", "convert", "in", "map"]
    name = draw(st.sampled_from([each for each in names if suitable(schema, each)] or ["add"]))
    places = suitable(schema, name) or [("q",)]
    anything = draw(st.integers(0, 9)) == 0
    source = draw(st.sampled_from([*paths(schema), ("q",)] if anything else places))
    hosts = [(), *suitable(schema, "in")] if not anything else [(), *paths(schema)]
    target = (*draw(st.sampled_from(hosts)), draw(st.sampled_from(["n", "m", *NAMES])))
    match name:
        case "rename" | "copy":
            return op(name, from_=pointer(source), to=pointer(target))
        case "add":
            kind, default = draw(st.sampled_from([("integer", 0), ("string", ""), ("object", {}), ("array", [])]))
            return op(name, path=pointer(target), schema={"type": kind}, default=default)
        case "remove":
            return op(name, path=pointer(source), schema={})
        case "hoist":
            return op(name, host=pointer(source[:-1]), name=source[-1], to=pointer(target),
                      removeFromHost=draw(st.booleans()))  # fmt: skip
        case "plunge":
            return op(name, from_=pointer(source), host=pointer(target), name="x", createHost=draw(st.booleans()),
                      removeFromSource=draw(st.booleans()))  # fmt: skip
        case "wrap":
            return op(name, path=pointer(source), mode="singleton")
        case "head":
            return op(name, path=pointer(source))
        case "convert":
            forward, types = draw(st.sampled_from(TRANSFORMS)), st.sampled_from(TYPES[:3])
            return op(name, path=pointer(source), fromType=draw(types), toType=draw(types), forward=forward,
                      backward=forward)  # fmt: skip
    place = find(schema, source)
    inside = place.schema if place is not None else {}
    if name == "map":
        inside = inside.get("items", {}) if isinstance(inside, dict) else {}
    if depth == 0:
        return op("wrap", path=pointer(source), mode="singleton")
    return op(name, path=pointer(source), ops=draw(operations(inside, depth - 1)))


@st.composite
def spoiled(draw: st.DrawFn, schema: Any, touched: list[str]) -> Any:
    """The schema, in which some of the places that a lens touched say something else."""
    copy = json.loads(json.dumps(schema))
    for text in touched:
        path = tuple(text.split("/")[1:])
        parent = find(copy, path[:-1]) if path else None
        if parent is None or not isinstance(parent.schema, dict) or "properties" not in parent.schema:
            continue
        if draw(st.integers(0, 3)) == 0:
            parent.schema.pop("const", None)
            parent.schema["properties"][path[-1]] = draw(leaves)
        if draw(st.integers(0, 9)) == 0:
            parent.schema.setdefault("required", []).append(path[-1])
    return copy


def touched_by(lens_operations: list[dict[str, Any]]) -> list[str]:
    """The places that operations at the top set or clear. What a lens leaves alone is not what it is proven for."""
    places = []
    for each in lens_operations:
        match each["op"]:
            case "rename":
                places += [each["from"], each["to"]]
            case "copy":
                places.append(each["to"])
            case "hoist":
                places += [each["to"]] + [f"{each['host']}/{each['name']}"] * each["removeFromHost"]
            case "plunge":
                places += [f"{each['host']}/{each['name']}"] + [each["from"]] * each["removeFromSource"]
            case "add" | "remove" | "wrap" | "head" | "convert":
                places.append(each["path"])
    return places


@st.composite
def conforming(draw: st.DrawFn, schema: Any) -> Any:
    """A document that holds what its schema declares."""
    if not isinstance(schema, dict) or not schema:
        return draw(st.sampled_from([None, 0, 1.5, "x", True, [], [1], {}, {"a": 1}]))
    values = known_values(schema)
    if values is not None:
        return draw(st.sampled_from(values))
    kind = schema["type"] if isinstance(schema["type"], str) else draw(st.sampled_from(schema["type"]))
    if kind == "object":
        required = schema.get("required", [])
        names = [name for name in schema["properties"] if name in required or draw(st.booleans())]
        return {name: draw(conforming(schema["properties"][name])) for name in names}
    if kind == "array":
        least = schema.get("minItems", 0)
        return [draw(conforming(schema["items"])) for _ in range(draw(st.integers(least, least + 2)))]
    scalars: dict[str, st.SearchStrategy[Any]] = {
        "string": st.text(max_size=3),
        "integer": st.integers(-(10**20), 10**20),
        "number": st.integers() | st.floats(allow_nan=False, allow_infinity=False),
        "boolean": st.booleans(),
        "null": st.none(),
    }
    return draw(scalars[kind])


@quick
@given(st.data())
def test_what_is_proven_neither_fails_nor_misses_the_new_schema(data: st.DataObject) -> None:
    old = data.draw(old_schemas)
    drawn = data.draw(operations(old))
    parsed = lens(*drawn).operations
    try:
        outcome = evolve(old, parsed)
        new = data.draw(spoiled(outcome, touched_by(drawn)))
        prove(parsed, old, new)
    except SchemaError as error:
        event(f"refused: {str(error)[:40]}")
        return
    event("proven")
    promote, validation = compile_steps(parsed), Validation(new)
    for _ in range(3):
        document = data.draw(conforming(old))
        assert Validation(old).accepts(document)
        promoted = promote(json.loads(json.dumps(document)))
        assert validation.accepts(promoted), (old, drawn, new, document, promoted)


@quick
@given(st.data())
def test_no_record_of_any_version_fails_on_its_way_through_all_lenses(data: st.DataObject) -> None:
    first = data.draw(old_schemas)
    registry = Registry.empty("orders").update(body(schema=first), next_sequence=0)
    rows = [json.dumps(data.draw(conforming(first))).encode()]
    for _ in range(3):
        current = registry.schemas[registry.current_version]
        drawn = data.draw(operations(current))
        try:
            # What the new schema asks for beyond the lens is not proven, and must not matter to later lenses.
            new = data.draw(spoiled(evolve(current, lens(*drawn).operations), [*touched_by(drawn), "/n", "/m"]))
            document = lens_document(*drawn, source=registry.current_version)
            registry = registry.update(body(schema=new, lens=document), next_sequence=len(rows))
        except SchemaError:
            continue
        event(f"version {registry.current_version}")
        if data.draw(st.booleans()):
            rows += [b"null"]
    promoted = registry.promote_rows([1], rows[:1])
    assert len(promoted) == 1


def test_a_document_may_hold_more_than_its_schema_declares() -> None:
    old = {"type": "object", "properties": {"a": STRING}, "required": ["a"]}
    parsed = lens(op("rename", from_="/a", to="/b")).operations
    prove(parsed, old, {"type": "object", "properties": {"b": STRING}})
    assert compile_steps(parsed)({"a": "x", "z": 1}) == {"b": "x", "z": 1}
