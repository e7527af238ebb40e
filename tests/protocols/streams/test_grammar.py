from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.engine.ownership import media_type
from strandline.engine.record import MAX_TIME
from strandline.protocols.streams.grammar import duration_ms, is_true, iso, number, time_ms, ttl_seconds
from strandline.service.parameters import parse_rfc3339
from strandline.service.problems import Refusal


@pytest.mark.parametrize(
    ("text", "value"), [("0", 0), ("7", 7), ("120", 120), ("999999999999999", 999_999_999_999_999)]
)
def test_a_number_is_its_digits(text: str, value: int) -> None:
    assert number("limit", text) == value


@pytest.mark.parametrize("text", ["", "-1", "+1", "1.5", "05", "00", "1e3", "abc", " 1", "1 ", "1\n", "٣", "1" * 16])
def test_anything_else_is_no_number_and_the_message_says_of_what(text: str) -> None:
    with pytest.raises(Refusal, match="limit") as refused:
        number("limit", text)
    assert (refused.value.status, refused.value.code) == (400, "bad_request")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0), ("60", 60), ("60s", 60), ("5000ms", 5), ("2m", 120), ("3h", 10_800), ("1d", 86_400), (" 7 ", 7)],
)
def test_a_time_to_live_is_seconds_or_has_a_unit(text: str, seconds: int) -> None:
    assert ttl_seconds(text) == seconds


@pytest.mark.parametrize(
    "text",
    ["", "abc", "-1", "00060", "+60", "60.5", "1e3", "1500ms", "1w", "s", "60 s", "1h30m", "٦٠", "999999999999999d"],
)
def test_other_times_to_live_are_refused(text: str) -> None:
    with pytest.raises(Refusal) as refused:
        ttl_seconds(text)
    assert refused.value.status == 400


@pytest.mark.parametrize(
    ("text", "milliseconds"), [("0", 0), ("250", 250), ("250ms", 250), ("2s", 2000), ("1m", 60_000), ("1h", 3_600_000)]
)
def test_a_duration_is_milliseconds_or_has_a_unit(text: str, milliseconds: int) -> None:
    assert duration_ms("timeout", text) == milliseconds


@pytest.mark.parametrize("text", ["", "-1", "1.5s", "soon", "1 s", "ms"])
def test_other_durations_are_refused(text: str) -> None:
    with pytest.raises(Refusal, match="timeout"):
        duration_ms("timeout", text)


def test_a_very_long_duration_is_as_long_as_there_is_time() -> None:
    assert duration_ms("timeout", "999999999999999d") == MAX_TIME


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("2024-10-09T00:00:00Z", 1_728_432_000_000),
        ("2024-10-09t00:00:00z", 1_728_432_000_000),
        ("2024-10-09T02:00:00+02:00", 1_728_432_000_000),
        ("2024-10-08T18:30:00-05:30", 1_728_432_000_000),
        ("2024-10-09T00:00:00.5Z", 1_728_432_000_500),
        ("2024-10-09T00:00:00.123456789Z", 1_728_432_000_123),
        ("1728432000000000000", 1_728_432_000_000),
        ("999999", 0),
    ],
)
def test_a_time_is_that_of_a_calendar_or_nanoseconds(text: str, milliseconds: int) -> None:
    assert time_ms("since", text) == milliseconds


@pytest.mark.parametrize(
    "text",
    ["", "yesterday", "2024-10-09", "2024-10-09T00:00:00", "2024-13-09T00:00:00Z", "2024-02-30T00:00:00Z",
     "2024-10-09T25:00:00Z", "2024-10-09T00:00:60Z", "2024-10-09T00:00:00+24:00", "2024-10-09T00:00:00+01:60",
     "2024-10-09 00:00:00Z", "2024-10-09T00:00:00.Z", "-1", "1969-12-31T23:59:59Z", "9" * 30, "9" * 31],
)  # fmt: skip
def test_other_times_are_refused(text: str) -> None:
    with pytest.raises(Refusal, match="since"):
        time_ms("since", text)


@given(st.integers(0, MAX_TIME))
def test_a_time_that_is_shown_is_read_as_the_same(milliseconds: int) -> None:
    assert parse_rfc3339(iso(milliseconds)) == milliseconds
    assert time_ms("since", str(milliseconds * 1_000_000)) == milliseconds


@pytest.mark.parametrize("value", [b"true", b"TRUE", b"True", b" true "])
def test_only_true_is_true(value: bytes) -> None:
    assert is_true(value)


@pytest.mark.parametrize("value", [None, b"", b"1", b"yes", b"false", b"truee"])
def test_everything_else_is_not(value: bytes | None) -> None:
    assert not is_true(value)


@pytest.mark.parametrize(
    "value", ["application/json", "Application/JSON", "application/json; charset=utf-8", " application/json ;x"]
)
def test_media_types_are_compared_without_case_and_parameters(value: str) -> None:
    assert media_type(value) == "application/json"
