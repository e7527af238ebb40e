"""Words are found by bisection as they are found by looking at all."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from strandline.query.sorted_words import SortedWords


@given(st.sets(st.text(max_size=4)), st.text(max_size=3), st.booleans())
def test_words_and_prefixes_are_found(words: set[str], wanted: str, part: bool) -> None:
    ordered = sorted(words, key=str.encode)
    array = pa.array(["", *ordered], pa.string()).slice(1) if part else pa.array(ordered, pa.string())
    found = SortedWords(array)
    for word in [wanted, *ordered[:5]]:
        assert ordered[slice(*found.place(word))] == [each for each in ordered if each == word]
        assert ordered[slice(*found.starting(word))] == [each for each in ordered if each.startswith(word)]


def test_what_is_not_text_is_in_no_word() -> None:
    low, high = SortedWords(pa.array(["a", "b"])).place("\ud800")
    assert low == high
