from __future__ import annotations

from typing import Any

import msgspec
import pytest

from strandline.schema.errors import SchemaError
from strandline.schema.routing import RoutingKey, parse_routing_key


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "routingKey must be an object or null"),
        ("x", "routingKey must be an object or null"),
        ({}, "routingKey.jsonPointer must be a string"),
        ({"jsonPointer": 1, "required": True}, "routingKey.jsonPointer must be a string"),
        ({"jsonPointer": "a", "required": True}, "invalid json pointer"),
        ({"jsonPointer": "/~2", "required": True}, "invalid json pointer"),
        ({"jsonPointer": "/a", "required": 1}, "routingKey.required must be boolean"),
        ({"jsonPointer": "/a"}, "routingKey.required must be boolean"),
        ({"jsonPointer": "/a", "required": True, "json_pointer": ""}, "routingKey.json_pointer is not supported"),
    ],
)
def test_a_bad_routing_key_says_why(document: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        parse_routing_key(document)


def test_null_is_no_routing_key() -> None:
    assert parse_routing_key(None) is None


def test_a_routing_key_is_shown_as_it_was_given() -> None:
    document = {"jsonPointer": "", "required": False}
    key = parse_routing_key(document)
    assert key is not None
    assert msgspec.to_builtins(key) == document


def test_keys_are_found_by_pointer() -> None:
    key = RoutingKey("/customer/ids/0", True)
    assert key.keys_of([{"customer": {"ids": ["a", "b"]}}, {"customer": {"ids": [""]}}]) == ["a", ""]


def test_the_whole_document_can_be_the_key() -> None:
    assert RoutingKey("", True).keys_of(["a", "b"]) == ["a", "b"]


def test_a_missing_key_matters_only_if_it_is_required() -> None:
    assert RoutingKey("/a", False).keys_of([{}, {"a": "x"}, 5]) == [None, "x", None]
    with pytest.raises(SchemaError, match="routing key missing"):
        RoutingKey("/a", True).keys_of([{"a": "x"}, {}])


@pytest.mark.parametrize("value", [1, None, True, ["a"], {}])
def test_a_key_that_is_no_string_is_refused(value: Any) -> None:
    with pytest.raises(SchemaError, match="routing key must be a string"):
        RoutingKey("/a", False).keys_of([{"a": value}])
