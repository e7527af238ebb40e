from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from msgspec import UNSET, Meta, UnsetType

from strandline.schema.errors import SchemaError
from strandline.schema.options import DeclaredOptions, LowerNames, Name, Positive, read_options


class Inner(DeclaredOptions, frozen=True):
    size_ms: Positive = 5
    depth: Annotated[int, Meta(ge=1, le=8)] = 2


class Outer(DeclaredOptions, frozen=True):
    inner: Inner = Inner()
    names: LowerNames = ()
    word: Name | UnsetType = UNSET
    mode: Literal["b", "a"] = "b"
    on: bool = False


def test_what_was_set_is_given_in_the_order_of_the_declaration() -> None:
    document = {"on": False, "names": [" X ", "x", "y"], "inner": {"sizeMs": 7.0}, "word": " w "}
    options, given = read_options(Outer, document, "o")
    assert options == Outer(inner=Inner(size_ms=7), names=("x", "y"), word="w")
    assert list(given.items()) == [("inner", {"sizeMs": 7}), ("names", ["x", "y"]), ("word", "w"), ("on", False)]
    assert read_options(Outer, {}, "o") == (Outer(), {})


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "o must be an object"),
        ({"inner": 1}, "o.inner must be an object"),
        ({"iner": {}}, "o.iner is not supported; did you mean 'inner'?"),
        ({"inner": {"size_ms": 1}}, "o.inner.size_ms is not supported; did you mean 'sizeMs'?"),
        ({"inner": {"sizeMs": 0}}, "o.inner.sizeMs must be an integer >= 1"),
        ({"inner": {"depth": 9}}, "o.inner.depth must be an integer between 1 and 8"),
        ({"inner": {"depth": True}}, "o.inner.depth must be an integer between 1 and 8"),
        ({"names": "x"}, "o.names must be an array of strings"),
        ({"names": ["x"] * 65}, "o.names must have at most 64 entries"),
        ({"names": ["x", " "]}, "o.names[1] must be a non-empty string"),
        ({"word": None}, "o.word must be a non-empty string"),
        ({"mode": "c"}, "o.mode must be b|a"),
        ({"on": 1}, "o.on must be boolean"),
    ],
)
def test_the_first_error_is_reported_with_its_place(document: Any, message: str) -> None:
    with pytest.raises(SchemaError) as refused:
        read_options(Outer, document, "o")
    assert str(refused.value) == message
