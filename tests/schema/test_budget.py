from __future__ import annotations

from typing import Any

import pytest
from support.schema_builders import INTEGER, STRING, array_of, body, lens_document, object_of, op

from strandline.schema.errors import SchemaError
from strandline.schema.registry import Registry
from strandline.schema.structure import compatible
from strandline.schema.validation import MAX_EFFORT, bounded, spend

TOO_COMPLEX = "schema is too complex to be checked"


def test_effort_is_counted_within_its_bounds_only() -> None:
    spend(MAX_EFFORT * 10)
    with bounded(3):
        spend(3)
        with pytest.raises(SchemaError, match=TOO_COMPLEX):
            spend()
    spend(MAX_EFFORT * 10)


def test_a_comparison_that_would_take_forever_is_given_up() -> None:
    source = {"anyOf": [array_of(STRING, minItems=number) for number in range(50)]}
    target = {"anyOf": [*[array_of(INTEGER, minItems=number) for number in range(50)], array_of(STRING)]}
    assert compatible(source, target)
    with bounded(2_000), pytest.raises(SchemaError, match=TOO_COMPLEX):
        compatible(source, target)


def renames(count: int) -> dict[str, Any]:
    return lens_document(*[op("rename", from_=f"/a{number}", to=f"/b{number}") for number in range(count)])


def test_hundreds_of_operations_on_thousands_of_properties_are_fine() -> None:
    old = object_of(**{f"a{number}": STRING for number in range(3000)})
    new = object_of(**{f"{'b' if number < 200 else 'a'}{number}": STRING for number in range(3000)})
    registry = Registry.installed("orders", old).update(body(schema=new, lens=renames(200)), next_sequence=1)
    assert registry.current_version == 2


def test_an_update_that_would_take_minutes_is_refused() -> None:
    old = object_of(**{f"a{number}": STRING for number in range(400)})
    del old["type"]
    old["anyOf"] = [{"type": "object", "title": str(number)} for number in range(8000)]
    new = object_of(**{f"b{number}": STRING for number in range(400)})
    with pytest.raises(SchemaError, match=TOO_COMPLEX):
        Registry.installed("orders", old).update(body(schema=new, lens=renames(400)), next_sequence=1)
