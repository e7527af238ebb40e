from __future__ import annotations

from typing import Any

import pytest
from support.schema_builders import INTEGER, NUMBER, STRING, array_of, object_of

from strandline.schema.structure import compatible, drop, find, known_values, put, same, schema_of, types_of
from strandline.schema.validation import Validation

NULL = {"type": "null"}


def test_true_is_not_one_and_one_is_one() -> None:
    assert same({"a": [1, {"b": None}]}, {"a": [1.0, {"b": None}]})
    assert not same([True], [1])
    assert not same({"a": 0}, {"a": False})
    assert not same([1], [1, 2])
    assert not same({}, [])


@pytest.mark.parametrize(
    ("schema", "types"),
    [
        (STRING, {"string"}),
        (NUMBER, {"number", "integer"}),
        ({"type": ["integer", "null"]}, {"integer", "null"}),
        ({"enum": [1, 1.5, "x", None, True, [], {}]},
         {"integer", "number", "string", "null", "boolean", "array", "object"}),
        ({"type": "string", "enum": [1, "x"]}, {"string"}),
        ({"const": 1.0}, {"integer"}),
        ({"anyOf": [STRING, NULL]}, {"string", "null"}),
        ({"oneOf": [STRING, INTEGER], "type": ["string", "null"]}, {"string"}),
        ({"enum": [1, "x"], "type": ["string", "null"]}, {"string"}),
        ({"allOf": [{"type": ["string", "null"]}, STRING]}, {"string"}),
        (False, set()),
    ],
)  # fmt: skip
def test_types_are_those_that_a_value_can_have(schema: Any, types: set[str]) -> None:
    assert types_of(schema) == types


def test_without_a_word_every_type_is_possible() -> None:
    assert types_of({}) == types_of(True) == types_of({"minimum": 3})
    assert len(types_of({})) == 7


def test_listed_values_that_the_schema_itself_excludes_are_none() -> None:
    assert known_values({"enum": ["a", "bb", 1], "type": "string", "minLength": 2}) == ["bb"]
    assert known_values({"const": None}) == [None]
    assert known_values(STRING) is None


def test_a_place_is_required_if_every_step_is() -> None:
    schema = object_of({"o": object_of(x=STRING)}, h=object_of({"y": STRING}, x=STRING))
    assert find(schema, ("h", "x")) == (STRING, True, True)
    assert find(schema, ("h", "y")) == (STRING, False, True)
    assert find(schema, ("o", "x")) == (STRING, False, True)
    assert find(schema, ("h", "z")) is None
    assert find(schema, ("h", "x", "q")) is None
    assert find(schema, ()) == (schema, True, True)


def test_a_property_of_something_that_need_not_be_an_object_is_not_required() -> None:
    schema = object_of(x=STRING) | {"type": ["object", "null"]}
    assert find(schema, ("x",)) == (STRING, False, True)


def test_a_property_that_is_not_declared_by_name_is_not_explicit() -> None:
    schema = {"type": "object", "additionalProperties": STRING, "required": ["a"]}
    assert find(schema, ("a",)) == (STRING, True, False)
    assert find(schema | {"patternProperties": {"^a": INTEGER}}, ("a",)) is None


def test_an_element_is_required_if_there_are_always_enough() -> None:
    assert find(array_of(STRING, minItems=2), ("1",)) == (STRING, True, True)
    assert find(array_of(STRING, minItems=2), ("2",)) == (STRING, False, True)
    assert find(array_of([STRING, INTEGER], additionalItems=NULL, minItems=3), ("1",)) == (INTEGER, True, True)
    assert find(array_of([STRING, INTEGER], additionalItems=NULL, minItems=3), ("2",)) == (NULL, True, True)
    assert find(array_of(STRING, minItems=2), ("-",)) is None


def test_what_is_put_is_there_and_what_is_dropped_is_not() -> None:
    schema = object_of(h=object_of(x=STRING), a=INTEGER)
    changed = put(schema, ("h", "y"), INTEGER)
    assert find(changed, ("h", "y")) == (INTEGER, True, True)
    assert find(changed, ("h", "x")) == (STRING, True, True)
    dropped = drop(changed, ("h", "x"))
    assert find(dropped, ("h", "x")) is None
    assert find(dropped, ("a",)) == (INTEGER, True, True)
    assert schema == object_of(h=object_of(x=STRING), a=INTEGER)


def test_a_changed_constant_is_no_constant_any_more() -> None:
    changed = put(schema_of({"a": 1, "b": [2]}), ("a",), STRING)
    assert known_values(changed) is None
    assert find(changed, ("b",)) == (schema_of([2]), True, True)


@pytest.mark.parametrize("value", [None, 0, "x", [], [1, "a", 1], {}, {"a": {"b": [{"c": 1}]}}])
def test_the_schema_of_a_value_accepts_it_and_nothing_else(value: Any) -> None:
    validation = Validation(schema_of(value))
    assert validation.accepts(value)
    assert not validation.accepts("something else")


COMPATIBLE = [
    (STRING, STRING),
    (STRING, {}),
    (STRING, True),
    (INTEGER, NUMBER),
    (STRING, {"type": ["string", "null"]}),
    (STRING, {"type": "string", "minLength": 3}),
    ({"type": ["string", "null"]}, {"anyOf": [STRING, NULL]}),
    ({"anyOf": [STRING, NULL]}, {"type": ["null", "string"]}),
    ({"type": ["string", "null"]}, {"oneOf": [STRING, NULL]}),
    ({"enum": ["aaa", "bbbb"]}, {"type": "string", "minLength": 3}),
    ({"enum": [1, "x"]}, {"enum": ["x", 1, 2]}),
    ({"not": STRING}, {"not": STRING}),
    (STRING, {"allOf": [STRING, {}]}),
    (object_of(x=STRING, y=STRING), object_of(x=STRING)),
    (object_of(x=STRING), object_of({"y": INTEGER}, x=STRING)),
    (object_of(x=STRING), object_of(x=STRING) | {"additionalProperties": False}),
    (object_of(x=INTEGER), {"type": "object", "additionalProperties": NUMBER}),
    ({"type": "object", "additionalProperties": INTEGER}, {"type": "object", "additionalProperties": NUMBER}),
    (array_of(INTEGER), array_of(NUMBER)),
    (array_of([INTEGER], additionalItems=INTEGER), array_of(NUMBER)),
    (array_of(False), array_of(STRING)),
    (False, STRING),
]
INCOMPATIBLE = [
    (NUMBER, INTEGER),
    ({}, STRING),
    (True, STRING),
    (STRING, False),
    (STRING, {"enum": ["x"]}),
    (STRING, {"const": "x"}),
    (STRING, {"not": INTEGER}),
    ({"enum": ["aa"]}, {"type": "string", "minLength": 3}),
    ({"type": ["string", "null"]}, STRING),
    (STRING, {"anyOf": [INTEGER, NULL]}),
    (STRING, {"oneOf": [STRING, {"type": "string", "maxLength": 5}]}),
    (STRING, {"allOf": [STRING, INTEGER]}),
    (object_of({"x": STRING}), object_of(x=STRING)),
    (object_of(x=STRING), object_of(x=INTEGER)),
    (object_of(x=STRING, y=STRING), object_of(x=STRING) | {"additionalProperties": False}),
    ({"type": "object", "additionalProperties": STRING}, object_of({"x": INTEGER})),
    (array_of(STRING), array_of(INTEGER)),
    ({"type": "array"}, array_of(STRING)),
    (array_of(STRING), array_of([STRING])),
]


@pytest.mark.parametrize(("source", "target"), COMPATIBLE)
def test_what_is_known_to_fit_is_compatible(source: Any, target: Any) -> None:
    assert compatible(source, target)


@pytest.mark.parametrize(("source", "target"), INCOMPATIBLE)
def test_what_is_not_known_to_fit_is_not_compatible(source: Any, target: Any) -> None:
    assert not compatible(source, target)
