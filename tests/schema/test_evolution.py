from __future__ import annotations

from typing import Any

import pytest
from support.schema_builders import INTEGER, STRING, array_of, lens, object_of, op

from strandline.schema.errors import SchemaError
from strandline.schema.evolution import evolve
from strandline.schema.structure import find, known_values


def after(schema: Any, *operations: Any) -> Any:
    return evolve(schema, lens(*operations).operations)


def schema_at(schema: Any, *path: str) -> Any:
    place = find(schema, path)
    assert place is not None
    assert place.required
    return place.schema


def test_each_operation_goes_on_from_what_the_one_before_left() -> None:
    schema = after(
        object_of(a=STRING),
        op("rename", from_="/a", to="/b"),
        op("wrap", path="/b", mode="singleton"),
        op("plunge", from_="/b", host="/h", name="x"),
        op("copy", from_="/h/x", to="/c"),
        op("head", path="/c"),
    )
    assert schema_at(schema, "c") == STRING
    assert schema_at(schema, "h", "x") == array_of(STRING, minItems=1)
    assert find(schema, ("a",)) is None
    assert find(schema, ("b",)) is None


def test_an_added_value_is_known_exactly() -> None:
    schema = after(object_of(), op("add", path="/a", schema={}, default={"x": [1]}), op("copy", from_="/a/x", to="/b"))
    assert known_values(schema_at(schema, "b")) == [[1]]


def test_an_added_array_without_elements_can_be_mapped() -> None:
    schema = after(
        object_of(),
        op("add", path="/l", schema={"type": "array"}),
        op("map", path="/l", ops=[op("rename", from_="/x", to="/y")]),
    )
    assert schema_at(schema, "l")["items"] is False


def test_elements_of_several_kinds_are_followed_each_by_itself() -> None:
    added = op("add", path="/l", schema={}, default=[{"x": 1}, {"x": "a", "z": 2}])
    schema = after(object_of(), added, op("map", path="/l", ops=[op("rename", from_="/x", to="/y")]))
    assert len(schema_at(schema, "l")["items"]["anyOf"]) == 2
    with pytest.raises(SchemaError, match="rename source not required"):
        after(object_of(), added, op("map", path="/l", ops=[op("rename", from_="/z", to="/y")]))


def test_a_host_that_may_have_been_made_just_now_guarantees_nothing() -> None:
    old = object_of({"h": object_of(x=STRING)}, a=INTEGER)
    plunge = op("plunge", from_="/a", host="/h", name="y")
    assert schema_at(after(old, plunge), "h", "y") == INTEGER
    with pytest.raises(SchemaError, match="copy source not required"):
        after(old, plunge, op("copy", from_="/h/x", to="/b"))


def test_an_element_that_was_replaced_can_be_of_either_kind() -> None:
    old = object_of(l=array_of(object_of(x=STRING), minItems=1))
    schema = after(old, op("wrap", path="/l/0/x", mode="singleton"))
    alternatives = schema_at(schema, "l")["items"]["anyOf"]
    assert [each["properties"]["x"]["type"] for each in alternatives] == ["string", "array"]
    with pytest.raises(SchemaError, match="parent path not required"):
        after(object_of(l=array_of(STRING)), op("add", path="/l/0/x", schema=STRING, default=""))


@pytest.mark.parametrize(
    ("schema", "operation", "message"),
    [
        (object_of(a=STRING), op("in", path="/a", ops=[op("copy", from_="/x", to="/y")]), "in path invalid"),
        (object_of(a=STRING), op("map", path="/a", ops=[op("copy", from_="", to="")]), "map path invalid"),
        (object_of(h=STRING), op("hoist", host="/h", name="a", to="/b"), "hoist host invalid"),
        (object_of(a=array_of(STRING)), op("head", path="/a"), "head requires minItems"),
        (object_of(a=STRING), op("rename", from_="/a", to=""), "rename paths overlap"),
    ],
)
def test_what_could_fail_is_refused(schema: Any, operation: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        after(schema, operation)
