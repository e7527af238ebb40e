from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strandline.query.config import Binding, Field
from strandline.query.values import (
    EARLIEST_DATE,
    LATEST_DATE,
    format_date,
    parse_date,
    parse_value,
    raw_values_of,
    tokens,
    values_of,
)

#: A busy machine is no failure.
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def field(kind: str, pointer: str = "/f", **settings: Any) -> Field:
    return Field("f", kind, (Binding(1, pointer),), **settings)  # type: ignore[arg-type]


def canonical(kind: str, raw: object, **settings: Any) -> list[Any]:
    return values_of(field(kind, **settings), {"f": raw}, 1)


def test_keywords_are_strings_only() -> None:
    assert canonical("keyword", ["Ab", 1, 1.5, True, None, {"x": "y"}]) == ["Ab"]


def test_keywords_are_lower_case_if_so_normalised() -> None:
    assert canonical("keyword", "ÄbC", normalizer="lowercase_v1") == ["äbc"]
    assert canonical("keyword", "ÄbC", normalizer="identity_v1") == ["ÄbC"]


def test_texts_are_strings_as_they_are() -> None:
    assert canonical("text", ["Two Words", 5]) == ["Two Words"]


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (5, 5),
        (-5, -5),
        (5.0, 5),
        (1e3, 1000),
        ("17", 17),
        ("-17", -17),
        (2**80, 2**80),
        (str(2**80), 2**80),
        (5.5, None),
        ("5.0", None),
        ("five", None),
        ("", None),
        (" 5", None),
        ("1_000", None),
        ("٣", None),
        ("9" * 5000, None),
        (True, None),
        (None, None),
        ({}, None),
    ],
)
def test_integers(raw: object, value: int | None) -> None:
    found = canonical("integer", raw)
    assert found == ([] if value is None else [value])
    assert all(type(each) is int for each in found)


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (1.5, 1.5),
        (2, 2.0),
        ("1.5", 1.5),
        ("-.5e1", -5.0),
        ("3.", 3.0),
        ("1e400", None),
        (10**400, None),
        ("nan", None),
        ("Infinity", None),
        ("1_0", None),
        ("", None),
        (".", None),
        (False, None),
    ],
)
def test_floats(raw: object, value: float | None) -> None:
    found = canonical("float", raw)
    assert found == ([] if value is None else [value])
    assert all(type(each) is float for each in found)


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (True, True),
        (False, False),
        ("true", True),
        ("false", False),
        ("TRUE", True),
        (" False ", False),
        ("yes", None),
        (1, None),
        (0, None),
    ],
)
def test_bools(raw: object, value: bool | None) -> None:
    assert canonical("bool", raw) == ([] if value is None else [value])


MOMENT = 1774432800000


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (MOMENT, MOMENT),
        (MOMENT + 0.9, MOMENT),
        (-1.5, -1),
        (str(MOMENT), MOMENT),
        ("-1", -1),
        ("2026-03-25T10:00:00Z", MOMENT),
        ("2026-03-25T10:00:00.123Z", MOMENT + 123),
        ("2026-03-25T10:00:00.123999999Z", MOMENT + 123),
        ("2026-03-25T10:00:00.5Z", MOMENT + 500),
        ("2026-03-25t10:00:00z", MOMENT),
        ("2026-03-25 10:00:00Z", MOMENT),
        ("2026-03-25 10:00:00 +0000", MOMENT),
        ("2026-03-25T15:30:00+05:30", MOMENT),
        ("2026-03-25T15:30:00+0530", MOMENT),
        ("2026-03-25T08:00:00-02", MOMENT),
        ("2026-03-25T10:00", MOMENT),
        ("2026-03-25T10:00:00", MOMENT),
        ("2026-03-25", MOMENT - 36_000_000),
        ("2026-03", 1772323200000),
        ("Wed, 25 Mar 2026 10:00:00 GMT", MOMENT),
        ("25 Mar 2026 12:00:00 +0200", MOMENT),
        ("1969-12-31T23:59:59.9999Z", -1),
        (True, None),
        ("", None),
        ("yesterday", None),
        ("2026-13-01", None),
        ("2026-02-30", None),
        ("2026-03-25T25:00:00Z", None),
        ("2026-03-25T10:00:00Zulu", None),
        ("2026-W12-1T10:00:00Z", None),
        ("Wed, 99 Mar 2026 10:00:00 GMT", None),
        (10**30, None),
        (1e300, None),
        ("9" * 30, None),
        ("0001-01-01T00:00:00+05:00", None),
    ],
)
def test_dates(raw: object, value: int | None) -> None:
    assert canonical("date", raw) == ([] if value is None else [value])


@PATIENT
@given(st.integers(EARLIEST_DATE, LATEST_DATE))
def test_a_date_that_is_written_reads_the_same(milliseconds: int) -> None:
    assert parse_date(format_date(milliseconds)) == milliseconds


@PATIENT
@given(
    st.datetimes(min_value=datetime(2, 1, 1), max_value=datetime(9998, 1, 1)),
    st.integers(-23 * 60, 23 * 60),
    st.sampled_from(["seconds", "milliseconds", "microseconds"]),
)
def test_dates_in_any_zone_are_the_moment_they_name(local: datetime, offset: int, precision: str) -> None:
    moment = local.replace(tzinfo=timezone(timedelta(minutes=offset)))
    if precision == "seconds":
        moment = moment.replace(microsecond=0)
    expected = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    assert parse_date(moment.isoformat(timespec=precision)) == expected


@PATIENT
@given(st.text(alphabet="0123456789-:TZtz+. GMTMar,", max_size=32))
def test_any_text_is_a_date_or_none(text: str) -> None:
    found = parse_date(text)
    assert found is None or EARLIEST_DATE <= found <= LATEST_DATE


def test_arrays_are_flattened_in_order() -> None:
    assert canonical("integer", [3, [1, ["2"]], [], "x", [[5]]]) == [3, 1, 2, 5]


def test_arrays_may_be_nested_deeper_than_calls() -> None:
    deep: object = 7
    for _ in range(5000):
        deep = [deep]
    assert canonical("integer", deep) == [7]


def test_a_null_an_absence_and_an_object_are_no_value() -> None:
    declared = field("keyword")
    assert values_of(declared, {"f": None}, 1) == []
    assert values_of(declared, {}, 1) == []
    assert values_of(declared, {"f": {"g": "h"}}, 1) == []


@pytest.mark.parametrize("document", [None, 5, "text", ["x"], [{"f": "x"}]])
def test_a_record_that_is_no_object_has_no_values(document: object) -> None:
    assert values_of(field("keyword"), document, 1) == []
    assert values_of(field("keyword", "/0"), document, 1) == []


def test_the_place_of_a_value_depends_on_the_version_of_the_record() -> None:
    moved = Field("f", "keyword", (Binding(2, "/old"), Binding(4, "/new")))
    document = {"old": "o", "new": "n"}
    assert [values_of(moved, document, version) for version in (1, 2, 3, 4, 9)] == [[], ["o"], ["o"], ["n"], ["n"]]


def test_raw_values_stay_as_they_are() -> None:
    declared = field("integer")
    assert raw_values_of(declared, {"f": ["7", 5.0, "x", None, {"a": 1}, [True]]}, 1) == ["7", 5.0, "x", True]
    assert raw_values_of(declared, {"f": None}, 1) == []


def test_values_in_queries_are_read_like_those_in_records() -> None:
    assert parse_value(field("integer"), "-5") == -5
    assert parse_value(field("bool"), "true") is True
    assert parse_value(field("date"), "2026-03-25T10:00Z") == MOMENT
    assert parse_value(field("keyword", normalizer="lowercase_v1"), "ABC") == "abc"
    assert parse_value(field("float"), "much") is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Card declined, twice!", ["card", "declined", "twice"]),
        ("snake_case kebab-case", ["snake", "case", "kebab", "case"]),
        ("Größe ЁЖ 東京 x²", ["größe", "ёж", "東京", "x²"]),
        ("v1.2.3", ["v1", "2", "3"]),
        (" …—! ", []),
    ],
)
def test_words_are_runs_of_letters_and_digits_in_lower_case(text: str, words: list[str]) -> None:
    assert tokens(text) == words
