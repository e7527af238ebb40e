from __future__ import annotations

import pytest
from msgspec import UNSET

from strandline.query.errors import BadPointer
from strandline.query.pointers import parse_pointer, pointer_to, resolve


def at(document: object, pointer: str) -> object:
    return resolve(document, parse_pointer(pointer))


def test_the_empty_pointer_is_the_whole_document() -> None:
    assert at({"a": 1}, "") == {"a": 1}


def test_segments_are_unescaped_once() -> None:
    assert parse_pointer("/a~1b/m~0n/~01") == ("a/b", "m~n", "~1")


def test_a_slash_alone_is_the_empty_key() -> None:
    assert at({"": 7}, "/") == 7


@pytest.mark.parametrize("pointer", ["a", "a/b", "/a~2", "/a~", "#/a"])
def test_what_is_no_pointer_is_refused(pointer: str) -> None:
    with pytest.raises(BadPointer, match="invalid json pointer"):
        parse_pointer(pointer)


def test_digits_are_indexes_in_arrays_and_keys_in_objects() -> None:
    assert at({"a": [10, {"b": 11}]}, "/a/1/b") == 11
    assert at({"a": {"1": 12}}, "/a/1") == 12


@pytest.mark.parametrize("segment", ["2", "-", "-1", "01", "1.0", "x", "", "٠", "9" * 5000])
def test_what_is_no_index_of_an_array_finds_nothing_there(segment: str) -> None:
    assert at([1, 2], f"/{segment}") is UNSET


@pytest.mark.parametrize("path", [(), ("a",), ("a/b", "~1", "~", ""), ("0", "x y")])
def test_a_pointer_to_a_path_is_parsed_into_that_path(path: tuple[str, ...]) -> None:
    assert parse_pointer(pointer_to(path)) == path


def test_a_null_is_something_and_an_absence_is_not() -> None:
    assert at({"a": None}, "/a") is None
    assert at({"a": None}, "/a/b") is UNSET
    assert at({}, "/a") is UNSET
    assert at("text", "/0") is UNSET
