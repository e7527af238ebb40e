from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.tables_in_process import NOW, Bed

from strandline.tables import Row, TableError, make_log
from strandline.tables.view import compile_where, is_same


def row(seq: int = 1, user: str | None = "u", **payload: Any) -> Row:
    return Row(id=f"r:{seq}", parent="r", seq=seq, payload=payload, user=user, created_at=NOW, updated_at=NOW)


def holds(where: object, of: Row, user: str | None = "u") -> bool:
    return compile_where(where, user, None)(of)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ({}, True),
        ({"n": 3}, True),
        ({"n": 3.0}, True),
        ({"n": "3"}, False),
        ({"flag": True}, True),
        ({"flag": 1}, False),
        ({"one": True}, False),
        ({"nothing": None}, True),
        ({"missing": None}, False),
        ({"tags": ["a", 1]}, True),
        ({"tags": ["a"]}, False),
        ({"inner": {"x": 1}}, True),
        ({"inner": {"x": True}}, False),
        ({"n": {"$gt": 2}}, True),
        ({"n": {"$gt": 3}}, False),
        ({"n": {"$gte": 3}}, True),
        ({"n": {"$lt": 4, "$gt": 2}}, True),
        ({"n": {"$lte": 2}}, False),
        ({"n": {"$between": [3, 4]}}, True),
        ({"n": {"$between": [4, 5]}}, False),
        ({"name": {"$gt": "a"}}, True),
        ({"name": {"$gt": 1}}, False),
        ({"flag": {"$gte": 0}}, False),
        ({"missing": {"$gt": 0}}, False),
        ({"own": True}, True),
        ({"or": [{"n": 9}, {"name": "bob"}]}, True),
        ({"or": [{"n": 9}, {"name": "eve"}]}, False),
        ({"n": 3, "or": [{"name": "eve"}, {"own": True, "flag": True}]}, True),
        ({"seq": 1, "userId": "u", "createdAt": {"$lte": NOW}}, True),
        ({"seq": {"$gt": 1}}, False),
    ],
    ids=str,
)
def test_a_condition_holds_or_does_not(where: Any, expected: bool) -> None:
    of = row(n=3, name="bob", flag=True, one=1, nothing=None, tags=["a", 1], inner={"x": 1})
    assert holds(where, of) is expected


def test_own_is_of_whoever_asks() -> None:
    assert not holds({"own": True}, row(user="other"))
    assert holds({"own": True}, row(user=None), user=None)


@pytest.mark.parametrize(
    "where",
    [
        [],
        "x",
        1,
        {"own": False},
        {"own": "u"},
        {"or": {}},
        {"or": []},
        {"or": [1]},
        {"n": {"$near": 1}},
        {"n": {"$gt": None}},
        {"n": {"$gt": True}},
        {"n": {"$gt": [1]}},
        {"n": {"$between": [1]}},
        {"n": {"$between": "ab"}},
        {"n": {"$between": [1, None]}},
        {"n": {"$gt": 1, "other": 2}},
        {str(n): n for n in range(300)},
    ],
    ids=lambda where: str(where)[:40],
)
def test_a_bad_condition_is_not_valid(where: object) -> None:
    with pytest.raises(TableError) as error:
        compile_where(where, "u", None)
    assert (error.value.code, error.value.fields) == ("VALIDATION_FAILED", ["where"])


def test_a_condition_nested_too_deeply_is_not_valid() -> None:
    where: Any = {"n": 1}
    for _ in range(20):
        where = {"or": [where]}
    with pytest.raises(TableError):
        compile_where(where, "u", None)


def test_a_field_that_there_is_not_is_not_valid() -> None:
    with pytest.raises(TableError, match="optoin"):
        compile_where({"optoin": 1}, "u", ("option",))


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-2, 2) | st.text(max_size=2),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=1), inner, max_size=2),
    max_leaves=4,
)


@given(_JSON, _JSON)
def test_equality_is_an_equivalence(one: Any, other: Any) -> None:
    assert is_same(one, one)
    assert is_same(one, other) == is_same(other, one)


@given(st.lists(st.integers(0, 5), max_size=20), st.integers(0, 5), st.integers(0, 5))
def test_between_is_both_bounds(numbers: list[int], low: int, high: int) -> None:
    for number in numbers:
        both = holds({"n": {"$gte": low, "$lte": high}}, row(n=number))
        assert holds({"n": {"$between": [low, high]}}, row(n=number)) == both == (low <= number <= high)


def test_pages_are_of_rows_that_fulfil_the_condition(bed: Bed) -> None:
    numbers = bed.bind(make_log("n", parent="p", schema={"type": "object"}))["n"]
    for number in range(30):
        bed.done(numbers.append("p", {"n": number % 3}, user="ab"[number % 2]))
    page = numbers.list("p", limit=3, where={"n": 0})
    assert [row.seq for row in page.rows] == [28, 25, 22]
    assert not page.is_done
    page = numbers.list("p", limit=50, where={"n": 0}, cursor=page.cursor)
    assert [row.seq for row in page.rows] == [19, 16, 13, 10, 7, 4, 1]
    assert page.is_done
    assert [row.seq for row in numbers.list("p", where={"n": {"$gte": 2}, "own": True}, user="a").rows] == [
        27,
        21,
        15,
        9,
        3,
    ]


def test_a_page_that_ends_with_the_last_row_that_fits_is_followed_by_an_end(bed: Bed) -> None:
    numbers = bed.bind(make_log("n", parent="p", schema={"type": "object"}))["n"]
    for number in range(4):
        bed.done(numbers.append("p", {"n": number}))
    page = numbers.list("p", limit=1, where={"n": 0})
    assert ([row.seq for row in page.rows], page.is_done) == ([1], True)
    page = numbers.list("p", limit=1, where={"n": 3})
    assert ([row.seq for row in page.rows], page.is_done) == ([4], False)
    assert numbers.list("p", limit=1, where={"n": 3}, cursor=page.cursor).rows == []
