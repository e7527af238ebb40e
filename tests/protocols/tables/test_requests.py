"""The items of a bulk: plain payloads, or payloads with a key around them."""

from __future__ import annotations

from typing import Any

import pytest

from strandline.protocols.tables.requests import item_of
from strandline.tables import Item, TableError
from strandline.tables.schemas import schema_of

OPEN = {"type": "object"}
ENVELOPE = {"type": "object", "properties": {"payload": {}, "to": {"type": "string"}}}


@pytest.mark.parametrize(
    ("schema", "item", "expected"),
    [
        (OPEN, {"a": 1}, Item({"a": 1})),
        (OPEN, {}, Item({})),
        (OPEN, {"a": 1, "idempotencyKey": "k"}, Item({"a": 1}, "k")),
        (OPEN, {"idempotencyKey": "k"}, Item({}, "k")),
        (OPEN, {"payload": {"a": 1}}, Item({"a": 1})),
        (OPEN, {"payload": {"a": 1}, "idempotencyKey": "k"}, Item({"a": 1}, "k")),
        (OPEN, {"payload": {"a": 1}, "b": 2}, Item({"payload": {"a": 1}, "b": 2})),
        (ENVELOPE, {"payload": {"a": 1}}, Item({"payload": {"a": 1}})),
        (ENVELOPE, {"payload": {"a": 1}, "idempotencyKey": "k"}, Item({"payload": {"a": 1}}, "k")),
    ],
)
def test_the_form_of_an_item_follows_from_its_members_and_the_schema(
    schema: dict[str, Any], item: dict[str, Any], expected: Item
) -> None:
    assert item_of(item, schema_of(schema)) == expected


def test_a_key_must_be_text() -> None:
    with pytest.raises(TableError, match="idempotencyKey must be text"):
        item_of({"a": 1, "idempotencyKey": 7}, schema_of(OPEN))
