"""Tokens of many texts are the tokens of each."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.query.payloads import Tokenised, tokenise, tokenise_each
from strandline.query.values import tokens

texts = st.lists(st.one_of(st.text(max_size=12), st.text("aB1 _-.\n", max_size=12), st.text("éßİΣςa ", max_size=8)))


def split(found: Tokenised) -> list[list[str]]:
    codes, words, bounds = found
    flat = [words[code].as_py() for code in codes.tolist()]
    return [flat[start:end] for start, end in pairwise(bounds.tolist())]


@settings(deadline=None)
@given(texts, st.booleans())
def test_all_texts_are_split_as_one_is(texts: list[str], ascii: bool) -> None:
    if ascii:
        texts = [text.encode("ascii", "ignore").decode() for text in texts]
    expected = [tokens(text) for text in texts]
    # A column that is a part of another one, as they come out of filters.
    column = pa.array(["before", *texts, "behind"], pa.string()).slice(1, len(texts))
    assert split(tokenise(column)) == expected
    assert split(tokenise_each(texts)) == expected
