from __future__ import annotations

import pytest
import typer

from strandline.cli.times import parse_duration, parse_moment, show_age, show_duration, show_time

NOW = 1_700_000_000_000


def test_durations_are_read_and_written() -> None:
    for text, duration in {"500ms": 500, "30s": 30_000, "15m": 900_000, "1h": 3_600_000, "2d": 172_800_000}.items():
        assert (parse_duration(text, "--max-age"), show_duration(duration)) == (duration, text)
    assert show_duration(0) == "0ms"


@pytest.mark.parametrize("text", ["", "1", "h", "-1h", "1.5h", "1 h", "99999999999999w", "١h"])
def test_what_is_not_a_duration_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is not a duration"):
        parse_duration(text, "--max-age")


def test_moments_are_so_long_ago_or_written_out() -> None:
    assert parse_moment("1h", "--since", NOW) == NOW - 3_600_000
    assert parse_moment("1700000000000", "--since") == NOW
    assert parse_moment("2023-11-14T22:13:20Z", "--since") == NOW
    assert show_time(NOW + 7) == "2023-11-14T22:13:20.007Z"
    with pytest.raises(typer.BadParameter, match="is not a time"):
        parse_moment("yesterday", "--since")


@pytest.mark.parametrize(
    ("milliseconds", "shown"),
    [
        (-5, "0ms"),
        (999, "999ms"),
        (12_999, "12s"),
        (185_000, "3m 5s"),
        (3_600_000, "1h"),
        (3_605_000, "1h"),
        (187_200_000, "2d 4h"),
    ],
)
def test_ages_are_shown_in_two_units(milliseconds: int, shown: str) -> None:
    assert show_age(milliseconds) == shown
