from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.control_characters import visible, visible_line

DANGEROUS = st.sampled_from("\x00\x07\x08\r\x1b\x7f\x9b\x9d\u061c\u200e\u202a\u202e\u2066\u2069\u2028\u2029")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, Grüße, 日本, 👩‍🚀", "plain, Grüße, 日本, 👩‍🚀"),
        ("\x1b]0;title\x07", "\\u001b]0;title\\u0007"),
        ("one\rtwo", "one\\rtwo"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\x9b31m", "\\u009b31m"),
        ("tab\tand\nline", "tab\tand\nline"),
    ],
)
def test_control_characters_are_shown(text: str, shown: str) -> None:
    assert visible(text) == shown
    assert visible_line(text) == shown.replace("\t", "\\t").replace("\n", "\\n")


@given(st.text(st.characters() | DANGEROUS))
def test_nothing_that_acts_on_a_terminal_is_left(text: str) -> None:
    line = visible_line(text)
    assert not [each for each in line if unicodedata.category(each) in ("Cc", "Zl", "Zp")]
    assert not [each for each in line if unicodedata.bidirectional(each) in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI")]
    assert visible(line) == line


@given(st.text(st.characters(exclude_categories=["Cs"]) | DANGEROUS))
def test_json_means_the_same(text: str) -> None:
    assert json.loads(visible(json.dumps(text, ensure_ascii=False))) == text
