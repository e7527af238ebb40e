"""Postings say what the tokens in memory say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.query.columns import TextColumn, TokenColumn
from strandline.query.payloads import tokenise_each
from strandline.query.text_postings import BITMAP, PAGE, PostedTextColumn, post_texts

WORDS = ["red", "re", "reds", "green", "été", "x1", "x"]
texts = st.lists(st.lists(st.sampled_from(WORDS), max_size=9).map(" ".join), max_size=25)
searched = st.tuples(st.sampled_from([*WORDS, "nowhere", "r"]), st.booleans())


def in_memory(values: list[str]) -> TokenColumn:
    return TokenColumn(*tokenise_each(values), None)


def posted(column: TokenColumn, positions: bool = True) -> PostedTextColumn:
    return PostedTextColumn(post_texts(column, positions).__getitem__, column.rows, positions)


def listed(column: TextColumn, word: str, prefix: bool) -> dict[int, int]:
    values, counts = column.occurrences(word, prefix).listed()
    return dict(zip(values.tolist(), counts.tolist(), strict=True))


def texts_of(column: TokenColumn) -> list[list[str]]:
    words = column.words.to_pylist()
    tokens = [words[code] for code in column.tokens.tolist()]
    return [tokens[low:high] for low, high in zip(column.bounds[:-1], column.bounds[1:], strict=True)]


@settings(deadline=None)
@given(texts, searched, st.data())
def test_words_occur_where_they_occur_in_memory(values: list[str], word: tuple[str, bool], data: st.DataObject) -> None:
    plain = in_memory(values)
    column = posted(plain, data.draw(st.booleans()))
    assert listed(column, *word) == listed(plain, *word)
    found, expected = column.occurrences(*word), plain.occurrences(*word)
    assert found.size == expected.size
    some = np.array(sorted(data.draw(st.sets(st.sampled_from(range(len(values))))) if values else []), np.int64)
    assert found.counts_at(some).tolist() == expected.counts_at(some).tolist()
    for least in (2, 3):
        assert [each.tolist() for each in found.repeated(least)] == [each.tolist() for each in expected.repeated(least)]
    until = data.draw(st.integers(0, len(values)))
    gone = np.array([data.draw(st.booleans()) for _ in range(until)], np.bool_)
    assert found.having(until, None) == expected.having(until, None)
    assert found.having(until, gone) == expected.having(until, gone)
    assert column.tokens_before(until) == plain.tokens_before(until)
    assert column.lengths(some).tolist() == plain.lengths(some).tolist()
    assert column.shortest(3).tolist() == plain.shortest(3).tolist()


@settings(deadline=None)
@given(texts, st.lists(st.sampled_from(WORDS), min_size=2, max_size=4), st.booleans(), st.data())
def test_phrases_are_found_where_they_are_in_memory(
    values: list[str], words: list[str], prefix: bool, data: st.DataObject
) -> None:
    plain = in_memory(values)
    column = posted(plain)
    found, expected = (each.phrase(tuple(words), prefix, None) for each in (column, plain))
    assert [each.tolist() for each in found] == [each.tolist() for each in expected]
    within = np.array(sorted(data.draw(st.sets(st.sampled_from(range(len(values))))) if values else []), np.int64)
    some = dict(zip(*(each.tolist() for each in column.phrase(tuple(words), prefix, within)), strict=True))
    counts = dict(zip(*(each.tolist() for each in expected), strict=True))
    assert some == {value: count for value, count in counts.items() if value in within}


@settings(deadline=None)
@given(texts)
def test_the_tokens_can_be_restored(values: list[str]) -> None:
    plain = in_memory(values)
    assert texts_of(posted(plain).plain()) == texts_of(plain)
    bags = [sorted(tokens) for tokens in texts_of(posted(plain, positions=False).plain())]
    assert bags == [sorted(tokens) for tokens in texts_of(plain)]


@pytest.fixture(scope="module")
def many() -> TokenColumn:
    """Values on several pages, with words in nearly all, in some and in few of them."""
    rng = np.random.default_rng(8)
    lengths = rng.integers(0, 7, 2 * PAGE + 5000)
    bounds = np.concatenate(([0], np.cumsum(lengths)))
    tokens = np.minimum(rng.geometric(0.35, int(bounds[-1])) - 1, 15).astype(np.int32)
    # One word is on the last page only.
    tokens[int(bounds[-3000]) : int(bounds[-3000]) + 9] = 16
    return TokenColumn(tokens, pa.array([f"w{code:02}" for code in range(17)]), bounds, None)


@pytest.mark.parametrize("prefix", [False, True])
@pytest.mark.parametrize("word", ["w00", "w01", "w05", "w12", "w15", "w16", "w0", "w1"])
def test_words_are_found_on_every_page(many: TokenColumn, word: str, prefix: bool) -> None:
    column = posted(many)
    assert listed(column, word, prefix) == listed(many, word, prefix)
    some = np.arange(0, many.count, 3)
    found, expected = column.occurrences(word, prefix), many.occurrences(word, prefix)
    assert found.counts_at(some).tolist() == expected.counts_at(some).tolist()
    assert found.counts_at(some[:20]).tolist() == expected.counts_at(some[:20]).tolist()
    assert found.size == expected.size


@pytest.mark.parametrize(
    "words", [("w00", "w00"), ("w00", "w01"), ("w03", "w00", "w01"), ("w12", "w11"), ("w16", "w16")]
)
def test_phrases_are_found_on_every_page(many: TokenColumn, words: tuple[str, ...]) -> None:
    found, expected = (each.phrase(words, False, None) for each in (posted(many), many))
    assert len(expected[0])
    assert [each.tolist() for each in found] == [each.tolist() for each in expected]


def test_frequent_words_are_bitmaps_and_tokens_are_restored_from_them(many: TokenColumn) -> None:
    parts = post_texts(many, True)
    assert (parts["sizes"] == BITMAP).any()
    assert (parts["sizes"] < BITMAP).any()
    assert int(parts["pages"].max()) == 2
    for positions in (True, False):
        plain: Any = posted(many, positions).plain()
        assert plain.bounds.tolist() == many.bounds.tolist()
        if positions:
            assert plain.tokens.tolist() == many.tokens.tolist()
        again = post_texts(plain, positions)
        assert all(again[name].tolist() == parts[name].tolist() for name in again)


@pytest.mark.parametrize("count", [BITMAP - 1, BITMAP, BITMAP + 1, PAGE, PAGE + 1])
def test_lists_and_bitmaps_meet_without_a_gap(count: int) -> None:
    column = TokenColumn(np.zeros(count, np.int32), pa.array(["all"]), np.arange(count + 1), None)
    assert listed(posted(column), "all", False) == dict.fromkeys(range(count), 1)
    assert posted(column).occurrences("all", False).size == count


def test_long_texts_and_frequent_repetitions_need_wider_numbers() -> None:
    column = in_memory(["red " * 70_000 + "green", "green red"])
    found = posted(column)
    assert listed(found, "red", False) == {0: 70_000, 1: 1}
    assert [each.tolist() for each in found.phrase(("red", "green"), False, None)] == [[0], [1]]
    assert texts_of(found.plain()) == texts_of(column)
