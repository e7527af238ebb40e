from __future__ import annotations

from typing import Any

import pytest
from support.schema_builders import BOOLEAN, INTEGER, NUMBER, STRING, array_of, lens, object_of, op

from strandline.schema.errors import SchemaError
from strandline.schema.evolution import prove

RENAME = op("rename", from_="/a", to="/b")
COPY = op("copy", from_="/a", to="/b")
HOIST = op("hoist", host="/h", name="a", to="/b")
PLUNGE = op("plunge", from_="/a", host="/h", name="x")
WRAP = op("wrap", path="/a", mode="singleton")
HEAD = op("head", path="/a")
NULLABLE = {"type": ["string", "null"]}


def convert(from_type: str = "string", to_type: str = "string", **forward: Any) -> dict[str, Any]:
    backward = {"builtin": "lowercase"}
    return op("convert", path="/a", fromType=from_type, toType=to_type, forward=forward, backward=backward)


def add(default: Any = None, **schema: Any) -> dict[str, Any]:
    return op("add", path="/b", schema=schema, default=default)


def refusal(old: Any, new: Any, *operations: Any) -> str:
    with pytest.raises(SchemaError) as caught:
        prove(lens(*operations).operations, old, new)
    assert caught.value.status == 400
    return str(caught.value)


ACCEPTED: dict[str, tuple[Any, Any, list[Any]]] = {
    "rename": (object_of(a=STRING), object_of(b=STRING), [RENAME]),
    "rename to a wider type": (object_of(a=INTEGER), object_of(b=NUMBER), [RENAME]),
    "rename of listed values": (object_of(a={"enum": ["x", "y"]}), object_of(b={"enum": ["x", "y", "z"]}), [RENAME]),
    "rename of a constant": (object_of(a={"const": 5}), object_of(b={"type": "integer", "minimum": 3}), [RENAME]),
    "rename of an object": (object_of(a=object_of(x=INTEGER)), object_of(b=object_of(x=NUMBER)), [RENAME]),
    "rename to where anything goes": (object_of(a=STRING), object_of(b={}), [RENAME]),
    "rename to a declared kind of property":
        (object_of(a=STRING), {"type": "object", "additionalProperties": STRING}, [RENAME]),
    "rename within": (object_of(h=object_of(a=STRING)), object_of(h=object_of(b=STRING)),
        [op("rename", from_="/h/a", to="/h/b")]),
    "rename, then wrap": (object_of(a=STRING), object_of(b=array_of(STRING)),
        [RENAME, op("wrap", path="/b", mode="singleton")]),
    "rename, then put something in its place": (object_of(a=STRING), object_of(a=INTEGER, b=STRING),
        [RENAME, op("add", path="/a", schema=INTEGER, default=0)]),
    "copy": (object_of(a=STRING), object_of(a=STRING, b=STRING), [COPY]),
    "copy, then remove": (object_of(a=STRING), object_of(b=STRING), [COPY, op("remove", path="/a", schema=STRING)]),
    "copy, then wrap": (object_of(a=STRING), object_of(a=STRING, b=array_of(STRING)),
        [COPY, op("wrap", path="/b", mode="singleton")]),
    "add": (object_of(), object_of(b=INTEGER), [add(0, type="integer")]),
    "add an empty object": (object_of(), object_of(b={"type": "object"}),
        [op("add", path="/b", schema={"type": "object"})]),
    "add null": (object_of(), object_of(b=NULLABLE), [add(None, type=["string", "null"])]),
    "add false": (object_of(), object_of(b=BOOLEAN), [add(False, type="boolean")]),
    "add nothing but quotes": (object_of(), object_of(b=STRING), [add("", type="string")]),
    "add over an optional field": (object_of({"b": STRING}), object_of(b=STRING), [add("x", type="string")]),
    "remove": (object_of(a=STRING, b=STRING), object_of(b=STRING), [op("remove", path="/a", schema=STRING)]),
    "remove to optional": (object_of(a=STRING), object_of({"a": STRING}), [op("remove", path="/a", schema=STRING)]),
    "hoist": (object_of(h=object_of(a=STRING)), object_of(h=object_of(), b=STRING), [HOIST]),
    "hoist and keep": (object_of(h=object_of(a=STRING)), object_of(h=object_of(a=STRING), b=STRING),
        [HOIST | {"removeFromHost": False}]),
    "hoist in place of the host": (object_of(h=object_of(a=STRING)), object_of(h=STRING),
        [op("hoist", host="/h", name="a", to="/h")]),
    "plunge": (object_of(a=STRING, h=object_of()), object_of(h=object_of(x=STRING)), [PLUNGE]),
    "plunge into a new host": (object_of(a=STRING), object_of(h=object_of(x=STRING)), [PLUNGE]),
    "plunge into an optional host": (object_of({"h": object_of()}, a=STRING), object_of(h=object_of(x=STRING)),
        [PLUNGE]),
    "plunge and keep": (object_of(a=STRING), object_of(a=STRING, h=object_of(x=STRING)),
        [PLUNGE | {"removeFromSource": False}]),
    "wrap": (object_of(a=STRING), object_of(a=array_of(STRING)), [WRAP]),
    "wrap without items": (object_of(a=STRING), object_of(a={"type": "array"}), [WRAP]),
    "head": (object_of(a=array_of(STRING, minItems=1)), object_of(a=STRING), [HEAD]),
    "head of listed arrays": (object_of(a={"enum": [["x"], ["y", 1]]}), object_of(a={"enum": ["x", "y"]}), [HEAD]),
    "head of a constant": (object_of(a={"const": [1, "x"]}), object_of(a=INTEGER), [HEAD]),
    "convert": (object_of(a=STRING), object_of(a=STRING), [convert(builtin="uppercase")]),
    "convert to another type": (object_of(a=INTEGER), object_of(a=STRING),
        [convert("integer", "string", builtin="int_to_string")]),
    "convert listed texts": (object_of(a={"enum": ["1", "2"]}), object_of(a=INTEGER),
        [convert("string", "integer", builtin="string_to_int")]),
    "convert a constant time": (object_of(a={"const": "1970-01-01T00:00:01Z"}), object_of(a={"const": 1000}),
        [convert("string", "integer", builtin="rfc3339_to_unix_millis")]),
    "convert milliseconds": (object_of(a=NUMBER), object_of(a={"type": "string", "format": "date-time"}),
        [convert("number", "string", builtin="unix_millis_to_rfc3339")]),
    "convert by a table": (object_of(a={"enum": ["x", "y"]}), object_of(a={"enum": [1, 2]}),
        [convert("string", "integer", map={"x": 1, "y": 2})]),
    "convert by a table with a default": (object_of(a=STRING), object_of(a={"enum": [1, 0]}),
        [convert("string", "integer", map={"x": 1}, default=0)]),
    "convert by a table with null for all else": (object_of(a=STRING), object_of(a={"enum": [None]}),
        [convert("string", "null", map={}, default=None)]),
    "in": (object_of(h=object_of(a=STRING)), object_of(h=object_of(b=STRING)), [op("in", path="/h", ops=[RENAME])]),
    "map": (object_of(l=array_of(object_of(a=STRING))), object_of(l=array_of(object_of(b=STRING))),
        [op("map", path="/l", ops=[RENAME])]),
    "map of scalars": (object_of(l=array_of(STRING)), object_of(l=array_of(array_of(STRING))),
        [op("map", path="/l", ops=[op("wrap", path="", mode="singleton")])]),
    "through an element that is there": (object_of(l=array_of(object_of(a=STRING), minItems=1)), object_of(
        l=array_of(object_of(a=STRING), minItems=1), b=STRING), [op("copy", from_="/l/0/a", to="/b")]),
}  # fmt: skip


@pytest.mark.parametrize("what", ACCEPTED)
def test_what_can_be_proven_is_accepted(what: str) -> None:
    old, new, operations = ACCEPTED[what]
    prove(lens(*operations).operations, old, new)


REFUSED: list[tuple[str, Any, Any, Any]] = [
    ("rename source not required", object_of({"a": STRING}), object_of(b=STRING), RENAME),
    ("rename source not required", object_of(), object_of(b=STRING), RENAME),
    ("rename source not required", {"properties": {"a": STRING}, "required": ["a"]}, object_of(b=STRING), RENAME),
    ("rename source not required", object_of({"h": object_of(a=STRING)}), object_of(b=STRING),
        op("rename", from_="/h/a", to="/b")),
    ("rename source not required", object_of(a=array_of(STRING)), object_of(b=STRING),
        op("rename", from_="/a/0", to="/b")),
    ("rename source not required", object_of(a=array_of(STRING, minItems=1)), object_of(b=STRING),
        op("rename", from_="/a/0", to="/b")),
    ("parent path not required", object_of(a=STRING), object_of(h=object_of(b=STRING)),
        op("rename", from_="/a", to="/h/b")),
    ("parent path not required", object_of({"h": object_of()}, a=STRING), object_of(h=object_of(b=STRING)),
        op("rename", from_="/a", to="/h/b")),
    ("parent path not object", object_of(a=STRING, h=STRING), object_of(h=object_of(b=STRING)),
        op("rename", from_="/a", to="/h/b")),
    ("rename dest missing in new schema", object_of(a=STRING), object_of(), RENAME),
    ("rename schema incompatible", object_of(a=STRING), object_of(b=INTEGER), RENAME),
    ("rename schema incompatible", object_of(a=NUMBER), object_of(b=INTEGER), RENAME),
    ("rename schema incompatible", object_of(a=NULLABLE), object_of(b=STRING), RENAME),
    ("rename schema incompatible", object_of(a={}), object_of(b=STRING), RENAME),
    ("rename schema incompatible", object_of(a={"enum": ["x", 1]}), object_of(b=STRING), RENAME),
    ("rename schema incompatible", object_of(a=STRING), object_of(b={"enum": ["x"]}), RENAME),
    ("rename schema incompatible", object_of(a=STRING), object_of(b={"type": "string", "const": "x"}), RENAME),
    ("rename schema incompatible", object_of(a=STRING), object_of(b=array_of(STRING)), RENAME),
    ("rename removed field still required", object_of(a=STRING), object_of(a=STRING, b=STRING), RENAME),
    ("rename paths overlap", object_of(a=object_of(x=STRING)), object_of(a=STRING),
        op("rename", from_="/a/x", to="/a")),
    ("rename paths overlap", object_of(a=STRING), object_of(a=STRING), op("rename", from_="/a", to="/a")),
    ("copy source not required", object_of({"a": STRING}), object_of(b=STRING), COPY),
    ("copy dest missing in new schema", object_of(a=STRING), object_of(a=STRING), COPY),
    ("copy schema incompatible", object_of(a=STRING), object_of(b=BOOLEAN), COPY),
    ("parent path not required", object_of(a=STRING), object_of(a=STRING), op("copy", from_="/a", to="/h/b")),
    ("parent path not required", object_of(), object_of(), op("add", path="/h/b", schema=STRING, default="")),
    ("parent path not object", object_of(h={"type": ["object", "null"]}), object_of(),
        op("add", path="/h/b", schema=STRING, default="")),
    ("add dest missing in new schema", object_of(), object_of(), add("", type="string")),
    ("add dest missing in new schema", object_of(), {"type": "object", "additionalProperties": STRING},
        add("", type="string")),
    ("add missing default", object_of(), object_of(b=STRING), op("add", path="/b", schema=STRING)),
    ("add default invalid", object_of(), object_of(b=STRING), add(5, type="string")),
    ("add default invalid", object_of(), object_of(b=INTEGER), add("x", type="string")),
    ("add default invalid", object_of(), object_of(b=object_of(x=STRING)),
        op("add", path="/b", schema={"type": "object"})),
    ("remove path not required", object_of({"a": STRING}), object_of(), op("remove", path="/a", schema=STRING)),
    ("remove path not required", object_of(), object_of(), op("remove", path="", schema=STRING)),
    ("remove path not required", {"type": "object", "additionalProperties": STRING, "required": ["a"]}, object_of(),
        op("remove", path="/a", schema=STRING)),
    ("remove path still required in new schema", object_of(a=STRING), object_of(a=STRING),
        op("remove", path="/a", schema=STRING)),
    ("hoist host invalid", object_of({"h": object_of(a=STRING)}), object_of(b=STRING), HOIST),
    ("hoist host invalid", object_of(h=STRING), object_of(b=STRING), HOIST),
    ("hoist name missing/optional", object_of(h=object_of()), object_of(b=STRING), HOIST),
    ("hoist name missing/optional", object_of(h=object_of({"a": STRING})), object_of(b=STRING), HOIST),
    ("hoist dest missing in new schema", object_of(h=object_of(a=STRING)), object_of(), HOIST),
    ("hoist schema incompatible", object_of(h=object_of(a=STRING)), object_of(b=INTEGER), HOIST),
    ("hoist removed field still required", object_of(h=object_of(a=STRING)), object_of(h=object_of(a=STRING), b=STRING),
        HOIST),
    ("plunge source not required", object_of({"a": STRING}), object_of(h=object_of(x=STRING)), PLUNGE),
    ("plunge host invalid", object_of(a=STRING, h=STRING), object_of(h=object_of(x=STRING)), PLUNGE),
    ("plunge host invalid", object_of(a=STRING), object_of(h=object_of(x=STRING)), PLUNGE | {"createHost": False}),
    ("plunge host invalid", object_of(a=STRING), object_of(h=object_of(x=STRING)),
        op("plunge", from_="/a", host="/g/h", name="x")),
    ("plunge host missing in new schema", object_of(a=STRING), object_of(), PLUNGE),
    ("plunge name missing in new schema", object_of(a=STRING), object_of(h=object_of()), PLUNGE),
    ("plunge schema incompatible", object_of(a=STRING), object_of(h=object_of(x=INTEGER)), PLUNGE),
    ("plunge removed field still required", object_of(a=STRING), object_of(a=STRING, h=object_of(x=STRING)), PLUNGE),
    ("wrap path not required", object_of({"a": STRING}), object_of(a=array_of(STRING)), WRAP),
    ("wrap dest not array", object_of(a=STRING), object_of(a=STRING), WRAP),
    ("wrap dest not array", object_of(a=STRING), object_of(), WRAP),
    ("wrap items incompatible", object_of(a=STRING), object_of(a=array_of(INTEGER)), WRAP),
    ("head path not required array", object_of({"a": array_of(STRING, minItems=1)}), object_of(a=STRING), HEAD),
    ("head path not required array", object_of(a=STRING), object_of(a=STRING), HEAD),
    ("head requires minItems", object_of(a=array_of(STRING)), object_of(a=STRING), HEAD),
    ("head requires enum non-empty", object_of(a={"enum": [["x"], []]}), object_of(a=STRING), HEAD),
    ("head requires non-empty array", object_of(a={"const": []}), object_of(a=STRING), HEAD),
    ("head dest missing", object_of(a=array_of(STRING, minItems=1)), object_of(), HEAD),
    ("head schema incompatible", object_of(a=array_of(STRING, minItems=1)), object_of(a=INTEGER), HEAD),
    ("convert path not required", object_of({"a": STRING}), object_of(a=STRING), convert(builtin="lowercase")),
    ("schema must be enum/const for non-total transform", object_of(a=STRING), object_of(a=STRING),
        convert(map={"x": "y"})),
    ("schema must be enum/const for non-total transform", object_of(a=STRING), object_of(a=INTEGER),
        convert("string", "integer", builtin="string_to_int")),
    ("schema must be enum/const for non-total transform", object_of(a=STRING), object_of(a=INTEGER),
        convert("string", "integer", builtin="rfc3339_to_unix_millis")),
    ('convert fails for "y"', object_of(a={"enum": ["x", "y"]}), object_of(a=STRING), convert(map={"x": "z"})),
    ('convert fails for "x"', object_of(a={"enum": ["1", "x"]}), object_of(a=INTEGER),
        convert("string", "integer", builtin="string_to_int")),
    ("convert source is not always string", object_of(a=NULLABLE), object_of(a=STRING), convert(builtin="lowercase")),
    ("convert source is not always string", object_of(a={"enum": ["x", 1]}), object_of(a=STRING),
        convert(builtin="lowercase")),
    ("convert source is not always integer, which int_to_string needs", object_of(a=NUMBER), object_of(a=STRING),
        convert("number", "string", builtin="int_to_string")),
    ("convert does not give integer", object_of(a=STRING), object_of(a=INTEGER),
        convert("string", "integer", builtin="lowercase")),
    ("convert does not give integer", object_of(a=STRING), object_of(a=INTEGER),
        convert("string", "integer", map={"x": "y"}, default=0)),
    ("convert does not give null", object_of(a={"const": "x"}), object_of(a=INTEGER),
        convert("string", "null", map={"x": 0})),
    ("convert dest missing", object_of(a=STRING), object_of(), convert(builtin="lowercase")),
    ("convert dest incompatible", object_of(a=STRING), object_of(a=INTEGER), convert(builtin="lowercase")),
    ("convert dest incompatible", object_of(a=STRING), object_of(a={"enum": [1]}),
        convert("string", "integer", map={"x": 1}, default=0)),
    ("in path invalid", object_of({"h": object_of(a=STRING)}), object_of(), op("in", path="/h", ops=[RENAME])),
    ("in path invalid", object_of(h=array_of(STRING)), object_of(h=object_of()), op("in", path="/h", ops=[RENAME])),
    ("in dest invalid", object_of(h=object_of(a=STRING)), object_of(), op("in", path="/h", ops=[RENAME])),
    ("in dest invalid", object_of(h=object_of(a=STRING)), object_of(h=STRING), op("in", path="/h", ops=[RENAME])),
    ("rename dest missing in new schema", object_of(h=object_of(a=STRING)), object_of(h=object_of(c=STRING)),
        op("in", path="/h", ops=[RENAME])),
    ("map path invalid", object_of(h=object_of(a=STRING)), object_of(h=array_of(STRING)),
        op("map", path="/h", ops=[RENAME])),
    ("map path invalid", object_of(), object_of(h=array_of(STRING)), op("map", path="/h", ops=[RENAME])),
    ("map dest invalid", object_of(h=array_of(object_of(a=STRING))), object_of(h=object_of()),
        op("map", path="/h", ops=[RENAME])),
    ("rename source not required", object_of(h=array_of(STRING)), object_of(h=array_of(STRING)),
        op("map", path="/h", ops=[RENAME])),
]  # fmt: skip


@pytest.mark.parametrize(("message", "old", "new", "operation"), REFUSED, ids=[entry[0] for entry in REFUSED])
def test_what_cannot_be_proven_is_refused(message: str, old: Any, new: Any, operation: Any) -> None:
    assert refusal(old, new, operation) == message


def test_operations_are_held_against_the_old_schema_as_it_was() -> None:
    lower_b = convert(builtin="lowercase") | {"path": "/b"}
    assert refusal(object_of(a=STRING), object_of(b=STRING), RENAME, lower_b) == "convert path not required"


def test_an_operation_cannot_use_what_an_earlier_one_took_away() -> None:
    old, new = object_of(a=STRING), object_of(b=STRING, c=STRING)
    assert refusal(old, new, RENAME, op("copy", from_="/a", to="/c")) == "copy source not required"
    assert refusal(old, new, RENAME, RENAME) == "rename source not required"


def test_an_operation_cannot_pass_on_what_an_earlier_one_converted() -> None:
    to_text = convert("integer", "string", builtin="int_to_string")
    old, new = object_of(a=INTEGER), object_of(a=STRING, b=INTEGER)
    assert refusal(old, new, to_text, COPY) == "copy schema incompatible"


def test_elements_are_not_mapped_after_they_were_wrapped() -> None:
    lists = array_of(object_of(a=STRING))
    old, new = object_of(a=lists), object_of(a=array_of(array_of(object_of(b=STRING))))
    assert "incompatible" in refusal(old, new, WRAP, op("map", path="/a", ops=[RENAME]))


def test_a_rename_of_all_that_a_later_one_replaces_is_no_loss() -> None:
    swap = [op("rename", from_="/a", to="/c"), op("rename", from_="/b", to="/a")]
    prove(lens(*swap).operations, object_of(a=STRING, b=STRING), object_of(a=STRING, c=STRING))


def test_a_schema_of_an_operation_must_compile() -> None:
    assert refusal(object_of(), object_of(b=STRING), add("x", type="nonsense")).startswith("schema/type is invalid")
