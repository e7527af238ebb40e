from __future__ import annotations

import pytest
import typer

from strandline.cli.times import parse_length, parse_moment, show_length, show_time

NOW = 1_700_000_000_000


def test_lengths_of_time_are_read_and_written() -> None:
    for text, length in {"500ms": 500, "30s": 30_000, "15m": 900_000, "1h": 3_600_000, "2d": 172_800_000}.items():
        assert (parse_length(text, "--ttl"), show_length(length)) == (length, text)
    assert show_length(0) == "0ms"


@pytest.mark.parametrize("text", ["", "1", "h", "-1h", "1.5h", "1 h", "99999999999999w", "١h"])
def test_what_is_no_length_of_time_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="length of time"):
        parse_length(text, "--ttl")


def test_moments_are_so_long_ago_or_written_out() -> None:
    assert parse_moment("1h", "--since", NOW) == NOW - 3_600_000
    assert parse_moment("1700000000000", "--since") == NOW
    assert parse_moment("2023-11-14T22:13:20Z", "--since") == NOW
    assert show_time(NOW + 7) == "2023-11-14T22:13:20.007Z"
    with pytest.raises(typer.BadParameter, match="no time"):
        parse_moment("yesterday", "--since")
