from __future__ import annotations

from typing import Any

import pytest
from support.schema_builders import STRING, lens, op, through

from strandline.schema.errors import SchemaError
from strandline.schema.promotion import compile_steps


def convert(path: str, from_type: str, to_type: str, forward: dict[str, Any]) -> dict[str, Any]:
    backward = {"builtin": "lowercase"}
    return op("convert", path=path, fromType=from_type, toType=to_type, forward=forward, backward=backward)


@pytest.mark.parametrize(
    ("document", "operation", "result"),
    [
        ({"a": 1}, op("rename", from_="/a", to="/b"), {"b": 1}),
        ({"a": 1, "b": 2}, op("rename", from_="/a", to="/b"), {"b": 1}),
        ({"a": {"x": 1}, "b": {}}, op("rename", from_="/a/x", to="/b/y"), {"a": {}, "b": {"y": 1}}),
        ({"a/b": 1}, op("rename", from_="/a~1b", to="/~0"), {"~": 1}),
        ({"a": [1]}, op("copy", from_="/a", to="/b"), {"a": [1], "b": [1]}),
        ({"a": [{"x": 1}]}, op("copy", from_="/a/0/x", to="/a/0"), {"a": [1]}),
        ({"a": 1}, op("copy", from_="", to="/b"), {"a": 1, "b": {"a": 1}}),
        ({}, op("add", path="/a", schema=STRING, default=None), {"a": None}),
        ({"a": 1}, op("add", path="/a", schema=STRING, default=2), {"a": 2}),
        ({"a": 1}, op("add", path="", schema=STRING, default=2), 2),
        ({"a": 1, "b": None}, op("remove", path="/b", schema=STRING), {"a": 1}),
        ({"h": {"a": 1, "b": 2}}, op("hoist", host="/h", name="a", to="/a"), {"h": {"b": 2}, "a": 1}),
        ({"h": {"a": []}}, op("hoist", host="/h", name="a", to="/a", removeFromHost=False), {"h": {"a": []}, "a": []}),
        ({"h": {"a": 1}}, op("hoist", host="/h", name="a", to="/h"), {"h": 1}),
        ({"a": 1}, op("hoist", host="", name="a", to="/b"), {"b": 1}),
        ({"a": 1, "h": {}}, op("plunge", from_="/a", host="/h", name="x"), {"h": {"x": 1}}),
        ({"a": 1}, op("plunge", from_="/a", host="/h", name="x"), {"h": {"x": 1}}),
        ({"a": 1}, op("plunge", from_="/a", host="/a", name="x"), {"a": {"x": 1}}),
        ({"a": 1}, op("plunge", from_="/a", host="/h", name="x", removeFromSource=False), {"a": 1, "h": {"x": 1}}),
        ({"a": 1}, op("wrap", path="/a", mode="singleton"), {"a": [1]}),
        ({"a": [1]}, op("wrap", path="/a", mode="singleton"), {"a": [[1]]}),
        (1, op("wrap", path="", mode="singleton"), [1]),
        ({"a": [1, 2]}, op("head", path="/a"), {"a": 1}),
        ({"a": "X"}, convert("/a", "string", "string", {"builtin": "lowercase"}), {"a": "x"}),
        ({"a": 5}, convert("/a", "number", "string", {"builtin": "int_to_string"}), {"a": "5"}),
        ({"a": True}, convert("/a", "boolean", "integer", {"map": {"true": 1}, "default": 0}), {"a": 1}),
        ({"a": "?"}, convert("/a", "string", "null", {"map": {}, "default": None}), {"a": None}),
        ({"a": {"b": 1}}, op("in", path="/a", ops=[op("rename", from_="/b", to="/c")]), {"a": {"c": 1}}),
        ({"a": [{"b": 1}, {"b": 2}]}, op("map", path="/a", ops=[op("rename", from_="/b", to="/c")]),
         {"a": [{"c": 1}, {"c": 2}]}),
        ({"a": [1, 2]}, op("map", path="/a", ops=[op("wrap", path="", mode="singleton")]), {"a": [[1], [2]]}),
        ({"a": []}, op("map", path="/a", ops=[op("rename", from_="/b", to="/c")]), {"a": []}),
    ],
)  # fmt: skip
def test_operations_do_what_they_say(document: Any, operation: Any, result: Any) -> None:
    assert through(document, operation) == result


@pytest.mark.parametrize(
    ("document", "operation"),
    [
        ({}, op("rename", from_="/a", to="/b")),
        (5, op("rename", from_="/a", to="/b")),
        ({"a": 1}, op("rename", from_="/a", to="/b/c")),
        ({"a": 1}, op("copy", from_="/x", to="/b")),
        ({"a": []}, op("add", path="/a/0", schema=STRING, default=1)),
        ({"a": [1]}, op("add", path="/a/-", schema=STRING, default=1)),
        ({"a": [1]}, op("copy", from_="/a/01", to="/b")),
        ({}, op("remove", path="/a", schema=STRING)),
        ({"a": [1]}, op("remove", path="/a/0", schema=STRING)),
        ({}, op("remove", path="", schema=STRING)),
        ({"h": []}, op("hoist", host="/h", name="0", to="/a")),
        ({"h": {}}, op("hoist", host="/h", name="a", to="/a")),
        ({"a": 1}, op("plunge", from_="/a", host="/h", name="x", createHost=False)),
        ({"a": 1, "h": 2}, op("plunge", from_="/a", host="/h", name="x")),
        ({}, op("plunge", from_="/a", host="/h", name="x")),
        ({"a": []}, op("head", path="/a")),
        ({"a": "x"}, op("head", path="/a")),
        ({}, op("wrap", path="/a", mode="singleton")),
        ({"a": 1}, convert("/a", "string", "string", {"builtin": "lowercase"})),
        ({"a": "x"}, convert("/a", "string", "integer", {"builtin": "string_to_int"})),
        ({"a": "x"}, convert("/a", "string", "integer", {"builtin": "lowercase"})),
        ({"a": "x"}, convert("/a", "string", "string", {"map": {"y": "z"}})),
        ({"a": []}, op("in", path="/a", ops=[op("rename", from_="/b", to="/c")])),
        ({"a": {}}, op("map", path="/a", ops=[op("rename", from_="/b", to="/c")])),
        ({"a": [{"b": 1}, {}]}, op("map", path="/a", ops=[op("rename", from_="/b", to="/c")])),
    ],
)
def test_documents_that_do_not_fit_fail(document: Any, operation: Any) -> None:
    with pytest.raises(SchemaError, match="lens failed: ") as caught:
        through(document, operation)
    assert caught.value.status == 400


def test_operations_run_in_their_order() -> None:
    assert through({"a": "X"}, op("rename", from_="/a", to="/b"), op("wrap", path="/b", mode="singleton")) == {
        "b": ["X"]
    }


def test_a_default_is_never_shared_between_documents() -> None:
    run = compile_steps(lens(op("add", path="/a", schema={"type": "array"}, default=[])).operations)
    first, second = run({}), run({})
    first["a"].append(1)
    assert second == {"a": []}


def test_what_is_copied_is_not_shared() -> None:
    result = through({"a": {"x": []}}, op("copy", from_="/a", to="/b"))
    result["a"]["x"].append(1)
    assert result["b"] == {"x": []}
