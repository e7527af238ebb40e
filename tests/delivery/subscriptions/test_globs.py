from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.delivery.subscriptions.errors import BadPattern
from strandline.delivery.subscriptions.subscription import Glob


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("events/*", "events/a", True),
        ("events/*", "events", False),
        ("events/*", "events/a/b", False),
        ("events/**", "events", True),
        ("events/**", "events/a/b/c", True),
        ("events/**", "eventsource", False),
        ("**", "anything/at/all", True),
        ("**/last", "last", True),
        ("**/last", "a/b/last", True),
        ("**/last", "a/b/last/c", False),
        ("a/**/b/*", "a/b/c", True),
        ("a/**/b/*", "a/x/b/y/b/c", True),
        ("a/**/b/*", "a/x/b", False),
        ("plain", "plain", True),
        ("a/%2A", "a/*", True),
        ("a/%2a", "a/b", False),
    ],
)
def test_a_star_is_one_segment_and_two_are_any_number(pattern: str, name: str, matches: bool) -> None:
    assert Glob(pattern).matches(name) is matches


@pytest.mark.parametrize("pattern", ["ev*", "a/b*c", "a/***", "a/*b"])
def test_a_star_within_a_segment_is_refused(pattern: str) -> None:
    with pytest.raises(BadPattern):
        Glob(pattern)


_parts = st.lists(st.sampled_from(["a", "b", "*", "**"]), min_size=1, max_size=6)
_names = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=6)


def _as_regex(parts: list[str]) -> re.Pattern[str]:
    """The same, said in another way: every segment with a slash behind it."""
    words = {"*": "[^/]+/", "**": "(?:[^/]+/)*"}
    return re.compile("".join(words.get(part, f"{part}/") for part in parts))


@given(_parts, _names)
def test_patterns_mean_what_the_regular_expression_means(parts: list[str], name: list[str]) -> None:
    wanted = _as_regex(parts).fullmatch("".join(f"{part}/" for part in name)) is not None
    assert Glob("/".join(parts)).matches("/".join(name)) is wanted


@given(_parts, _names)
def test_every_name_that_matches_begins_with_the_prefix(parts: list[str], name: list[str]) -> None:
    glob = Glob("/".join(parts))
    if glob.matches("/".join(name)):
        assert "/".join(name).startswith(glob.prefix)


def test_a_pattern_of_many_stars_is_quick() -> None:
    assert not Glob("/".join(["**", "a"] * 20)).matches("/".join(["a"] * 200 + ["b"]))
