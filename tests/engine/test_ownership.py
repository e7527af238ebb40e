"""Which logs records can be appended to without the streams protocol."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from strandline.engine.ownership import checks_records, closed_to_others

SEARCH = {"fields": {}}


def registry(**members: Any) -> bytes:
    return msgspec.json.encode({"schema": "log", "currentVersion": 0, "schemas": {}, **members})


@pytest.mark.parametrize(
    ("notes", "checked"),
    [
        ({}, False),
        ({"progress:writer": 1}, False),
        ({"registry": registry()}, False),
        ({"registry": registry(search=SEARCH)}, False),
        ({"registry": registry(search=SEARCH, currentVersion=1)}, True),
        ({"registry": registry(search=SEARCH, routingKey={"jsonPointer": "/a", "required": True})}, True),
        ({"registry": b"damaged"}, True),
        ({"registry": registry(search=SEARCH), "profile": b"{}"}, True),
    ],
)
def test_a_registry_that_only_declares_searchable_fields_concerns_no_append(
    notes: dict[str, Any], checked: bool
) -> None:
    assert checks_records(notes) is checked
    assert (closed_to_others("log", notes) is not None) is checked
