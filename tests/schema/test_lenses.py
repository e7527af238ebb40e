from __future__ import annotations

from typing import Any, get_args

import pytest
from support.schema_builders import INTEGER, STRING, lens, lens_document, op

from strandline.schema.errors import SchemaError
from strandline.schema.lenses import (
    _PARSERS,
    MAX_OPERATIONS,
    Add,
    Each,
    Hoist,
    Inside,
    OperationName,
    Plunge,
    parse_lens,
)

RENAME = op("rename", from_="/a", to="/b")
LOWER = {"builtin": "lowercase"}


def refusal(document: Any) -> str:
    with pytest.raises(SchemaError) as caught:
        parse_lens(document)
    assert str(caught.value).startswith("invalid lens: ")
    return str(caught.value).removeprefix("invalid lens: ")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"apiVersion": "durable.lens/v2"}, "lens.apiVersion must be durable.lens/v1"),
        ({"schema": 5}, "lens.schema must be a string"),
        ({"from": -1}, "lens.from must be a version number"),
        ({"from": True}, "lens.from must be a version number"),
        ({"to": 2.0}, "lens.to must be a version number"),
        ({"description": 5}, "lens.description must be a string"),
        ({"ops": []}, "lens.ops must be a non-empty array"),
        ({"ops": {}}, "lens.ops must be a non-empty array"),
        ({"ops": [5]}, "lens.ops[0] must be an object"),
        ({"more": 1}, "lens.more is not supported"),
    ],
)
def test_a_bad_lens_says_why(fields: dict[str, Any], message: str) -> None:
    assert refusal(lens_document(RENAME) | fields) == message


def test_a_lens_is_an_object_with_all_its_keys() -> None:
    assert refusal([]) == "lens must be an object"
    for key in ("apiVersion", "schema", "from", "to", "ops"):
        document = lens_document(RENAME)
        del document[key]
        assert refusal(document) == f"lens.{key} is required"


def test_a_lens_with_too_many_operations_is_refused() -> None:
    inside = op("in", path="", ops=[RENAME] * (MAX_OPERATIONS // 2))
    assert lens(inside, *[RENAME] * (MAX_OPERATIONS // 2 - 1))
    assert refusal(lens_document(inside, inside)) == f"lens.ops has more than {MAX_OPERATIONS} operations"


def test_an_unknown_operation_is_refused() -> None:
    assert refusal(lens_document(op("move", path="/a"))).startswith("lens.ops[0].op must be one of rename, copy, add")


EVERY = [
    RENAME,
    op("copy", from_="/a", to="/b"),
    op("add", path="/a", schema=STRING, default=""),
    op("remove", path="/a", schema=STRING, default=5),
    op("hoist", host="/h", name="a", to="/a", removeFromHost=False),
    op("plunge", from_="/a", host="/h", name="a", createHost=False, removeFromSource=False),
    op("wrap", path="/a", mode="singleton", reverseMode="first"),
    op("head", path="/a", reverseMode="singleton"),
    op(
        "convert",
        path="/a",
        fromType="string",
        toType="string",
        forward=LOWER,
        backward={"map": {"a": 1}, "default": 2},
    ),
    op("in", path="/a", ops=[RENAME]),
    op("map", path="/a", ops=[RENAME]),
]


@pytest.mark.parametrize("operation", EVERY, ids=lambda operation: operation["op"])
def test_every_operation_is_read_and_kept_as_it_was_given(operation: dict[str, Any]) -> None:
    document = lens_document(operation, description="what it is for")
    assert parse_lens(document).document == document


@pytest.mark.parametrize("operation", EVERY, ids=lambda operation: operation["op"])
def test_every_operation_refuses_unknown_keys(operation: dict[str, Any]) -> None:
    assert refusal(lens_document(operation | {"xyzzy": 1})) == "lens.ops[0].xyzzy is not supported"


def test_an_unknown_key_is_refused_with_the_nearest_one() -> None:
    misspelt = op("rename", form="/a", to="/b") | {"from": "/a"}
    assert refusal(lens_document(misspelt)) == "lens.ops[0].form is not supported; did you mean 'from'?"


def test_the_operations_that_are_described_are_those_that_are_parsed() -> None:
    assert set(get_args(OperationName)) == set(_PARSERS)


@pytest.mark.parametrize("operation", EVERY, ids=lambda operation: operation["op"])
def test_every_operation_needs_its_keys(operation: dict[str, Any]) -> None:
    optional = {"op", "default", "removeFromHost", "createHost", "removeFromSource", "reverseMode"}
    for key in operation.keys() - optional:
        rest = {name: value for name, value in operation.items() if name != key}
        assert refusal(lens_document(rest)) == f"lens.ops[0].{key} is required"


@pytest.mark.parametrize("pointer", ["a", "/a~", "/~2", "a/b", "#/a"])
def test_pointers_are_json_pointers(pointer: str) -> None:
    assert refusal(lens_document(op("copy", from_=pointer, to="/b"))) == "lens.ops[0].from must be a JSON pointer"


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        (op("copy", from_=1, to="/b"), "from must be a string"),
        (op("add", path="/a", schema=5), "schema must be a schema"),
        (op("hoist", host="", name=1, to="/a"), "name must be a string"),
        (op("hoist", host="", name="a", to="/a", removeFromHost="yes"), "removeFromHost must be one of true, false"),
        (op("wrap", path="/a", mode="twice"), "mode must be singleton"),
        (op("head", path="/a", reverseMode="first"), "reverseMode must be singleton"),
        (
            op("convert", path="/a", fromType="text", toType="string", forward=LOWER, backward=LOWER),
            "fromType must be one of string, number, integer, boolean, null, object, array",
        ),
    ],
)
def test_values_of_the_wrong_kind_are_refused(operation: Any, message: str) -> None:
    assert refusal(lens_document(operation)) == f"lens.ops[0].{message}"


@pytest.mark.parametrize(
    ("transform", "message"),
    [
        ("lowercase", " must be an object"),
        ({}, ".map is required"),
        ({"builtin": "reverse"}, ".builtin must be one of lowercase, uppercase, string_to_int, int_to_string, "
         "rfc3339_to_unix_millis, unix_millis_to_rfc3339"),
        ({"builtin": "lowercase", "map": {}}, ".map is not supported"),
        ({"map": {"a": []}}, ".map must be an object of scalars"),
        ({"map": [], "default": 1}, ".map must be an object of scalars"),
        ({"map": {}, "default": {}}, ".default must be a scalar"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("key", ["forward", "backward"])
def test_bad_transforms_are_refused(key: str, transform: Any, message: str) -> None:
    other = "backward" if key == "forward" else "forward"
    convert = op("convert", path="/a", fromType="string", toType="string", **{key: transform, other: LOWER})
    assert refusal(lens_document(convert)) == f"lens.ops[0].{key}{message}"


def test_a_schema_within_a_lens_has_no_references() -> None:
    with pytest.raises(SchemaError, match=r"external \$ref is not supported"):
        lens(op("add", path="/a", schema={"$ref": "#"}, default=1))


@pytest.mark.parametrize(
    ("schema", "default"),
    [
        ({"type": "integer", "default": 7}, 7),
        ({"type": "object"}, {}),
        ({"type": "array"}, []),
        ({"type": ["string", "null"], "default": None}, None),
        ({"type": "integer", "default": 0}, 0),
        ({"type": "boolean", "default": False}, False),
        ({"type": "string", "default": ""}, ""),
    ],
)
def test_the_default_of_add_is_derived_and_filled_in(schema: dict[str, Any], default: Any) -> None:
    parsed = lens(op("in", path="", ops=[op("map", path="/b", ops=[op("add", path="/a", schema=schema)])]))
    filled = parsed.document["ops"][0]["ops"][0]["ops"][0]
    assert filled == op("add", path="/a", schema=schema, default=default)
    (inside,) = parsed.operations
    assert isinstance(inside, Inside)
    (each,) = inside.operations
    assert isinstance(each, Each)
    (add,) = each.operations
    assert isinstance(add, Add)
    assert add.default == default
    assert type(add.default) is type(default)


@pytest.mark.parametrize("default", [None, 0, False, ""])
def test_a_falsy_default_of_add_is_a_default(default: Any) -> None:
    (add,) = lens(op("add", path="/a", schema={"type": "integer", "default": 5}, default=default)).operations
    assert isinstance(add, Add)
    assert add.default is default


def test_what_is_optional_has_its_default() -> None:
    hoist, plunge = lens(
        op("hoist", host="/h", name="a", to="/a"), op("plunge", from_="/a", host="/h", name="a")
    ).operations
    assert hoist == Hoist(("h",), "a", ("a",), remove=True)
    assert plunge == Plunge(("a",), ("h",), "a", create=True, remove=True)


def test_a_given_document_is_not_changed() -> None:
    document = lens_document(op("add", path="/a", schema={"type": "object"}))
    parse_lens(document)
    assert "default" not in document["ops"][0]


def test_integers_in_operations_are_just_schemas() -> None:
    assert lens(op("remove", path="/a", schema=INTEGER)).document["ops"] == [op("remove", path="/a", schema=INTEGER)]
