from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.protocols.streams.offsets import MAX_SEQ, NOW, START, decode, encode, encode_bytes

SEQS = st.integers(0, MAX_SEQ)


@pytest.mark.parametrize(
    ("seq", "offset"),
    [
        (0, "00000000000000000000000000"),
        (1, "0000000000000000000G000000"),
        (2, "00000000000000000010000000"),
        (3, "0000000000000000001G000000"),
        (100, "000000000000000001J0000000"),
        (775_000, "000000000000000BTDC0000000"),
    ],
)
def test_offsets_are_those_of_other_servers(seq: int, offset: str) -> None:
    assert encode(seq) == offset
    assert decode(offset) == seq


@given(SEQS)
def test_what_is_encoded_is_decoded(seq: int) -> None:
    assert decode(encode(seq)) == seq
    assert encode_bytes(seq) == encode(seq).encode()


@given(SEQS, SEQS)
def test_offsets_sort_like_seqs(one: int, other: int) -> None:
    assert (encode(one) < encode(other)) == (one < other)


@given(SEQS)
def test_an_offset_is_26_characters_that_need_no_escape_and_mean_nothing_else(seq: int) -> None:
    offset = encode(seq)
    assert len(offset) == 26
    assert offset.isascii()
    assert offset.isalnum()
    assert offset not in (START, NOW)


@given(SEQS)
def test_letters_may_be_small_and_misread(seq: int) -> None:
    assert decode(encode(seq).lower()) == seq
    assert decode(encode(seq).replace("0", "O").replace("1", "l")) == seq
    assert decode(encode(seq).replace("0", "o").replace("1", "I")) == seq


def test_the_epoch_of_an_offset_counts_for_nothing() -> None:
    assert decode("0000008000000000000G000000") == 1


def test_the_largest_offset_is_no_larger_than_any_seq() -> None:
    assert decode("Z" * 26) == MAX_SEQ


@pytest.mark.parametrize(
    "text",
    ["", "0", "5", "-1", "now", "0" * 25, "0" * 27, "U" * 26, "0" * 25 + ",", "0" * 25 + "é", " " + "0" * 25,
     "0" * 25 + "\n", "0" * 26 + "\n", "٠" * 26, "0000000000000000_0000000000000000"],
)  # fmt: skip
def test_anything_else_is_no_offset(text: str) -> None:
    assert decode(text) is None


@given(st.text(max_size=40))
def test_decoding_never_fails(text: str) -> None:
    seq = decode(text)
    assert seq is None or 0 <= seq <= MAX_SEQ
