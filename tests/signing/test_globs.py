from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from starfish_protocol.cap import path_glob_match

from strandline.signing.globs import covers, matches

VECTORS = json.loads(Path(__file__).with_name("vectors.json").read_text())["glob"]
#: Published matchers follow only the last star, and miss this one.
MISSED = ["**/x*z", "a/xb/xyz", False]


@pytest.mark.parametrize(("pattern", "path", "matched"), [each for each in VECTORS if each != MISSED])
def test_patterns_match_what_they_match_elsewhere(pattern: str, path: str, matched: bool) -> None:
    assert matches(pattern, path) is matched


def test_all_stars_are_followed() -> None:
    assert MISSED in VECTORS
    assert matches("**/x*z", "a/xb/xyz")


patterns = st.lists(st.sampled_from(["**", "*", "***", "a", "b", "/", "\n"])).map("".join)
paths = st.text("ab/\n", max_size=12)


def reference(pattern: str, path: str) -> bool:
    pieces = {"**": r"[\s\S]*", "*": "[^/]*"}
    tokens = re.findall(r"\*\*|[\s\S]", pattern)
    return re.fullmatch("".join(pieces.get(token, re.escape(token)) for token in tokens), path) is not None


@given(patterns, paths)
@example("**/x*z", "a/xb/xyz")
@example("a***b", "a/b")
def test_a_pattern_matches_what_its_regular_expression_does(pattern: str, path: str) -> None:
    assert matches(pattern, path) == reference(pattern, path)


@given(patterns, paths)
def test_what_published_matchers_match_is_matched(pattern: str, path: str) -> None:
    if path_glob_match(pattern, path):
        assert matches(pattern, path)


def test_patterns_made_to_take_long_do_not() -> None:
    assert not matches("*a" * 2000 + "*b", "a" * 4000)
    assert not matches("**a" * 2000 + "**b", "a" * 4000)


@pytest.mark.parametrize(
    ("given_patterns", "path", "covered"),
    [
        (None, "anything", True),
        ([], "anything", True),
        (["events/**"], "events/a", True),
        (["events/**"], "events", False),
        (["!events/_keyring"], "events/a", False),
        (["events/**", "!events/_keyring"], "events/a", True),
        (["events/**", "!events/_keyring"], "events/_keyring", False),
        (["events/**", "!events/_keyring"], "events/_keyring/below", False),
        (["events/**", "!events/_keyring"], "events/_keyrings", True),
        (["users/{identity}/*"], "users/me/a", True),
        (["users/{identity}/*"], "users/you/a", False),
        (["**", "!users/{identity}"], "users/me/a", False),
    ],
)
def test_covering(given_patterns: list[str] | None, path: str, covered: bool) -> None:
    assert covers(given_patterns, path, "me") is covered
