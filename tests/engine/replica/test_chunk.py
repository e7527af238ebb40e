from __future__ import annotations

from random import Random

import pytest

from strandline.engine.errors import DamagedFile, UnsupportedFormat
from strandline.engine.replica.chunk import (
    Content,
    End,
    JournalPart,
    Piece,
    State,
    Term,
    chunk_name,
    chunk_number,
    content_of,
    decode_chunk,
    encode_chunk,
    kind_of,
)

WRITER = b"directoryprocess"
CONTENTS: list[Content] = [
    Term("host:1", 5, [1, 9]),
    JournalPart([Piece(3, 40, b"abc"), Piece(4, 0, Random(1).randbytes(500))], 77),
    State(b"{}\n", ["checkpoints/a", "checkpoints/b"], 12),
    End(),
]


@pytest.mark.parametrize("content", CONTENTS)
def test_a_chunk_is_decoded_as_it_was_encoded(content: Content) -> None:
    raw = encode_chunk(13, 4, WRITER, content, began=9, state=12)
    chunk = decode_chunk("place", 13, raw)
    assert (chunk.number, chunk.term, chunk.writer, chunk.began, chunk.state) == (13, 4, WRITER, 9, 12)
    assert chunk.kind is kind_of(content)
    assert content_of(chunk, type(content)) == content


@pytest.mark.parametrize("content", CONTENTS)
def test_damage_to_any_byte_is_detected(content: Content) -> None:
    raw = encode_chunk(13, 4, WRITER, content, began=9, state=12)
    for at in range(len(raw)):
        damaged = bytearray(raw)
        damaged[at] ^= 0x11
        with pytest.raises((DamagedFile, UnsupportedFormat)):
            decode_chunk("place", 13, bytes(damaged))
    for size in range(len(raw)):
        with pytest.raises(DamagedFile):
            decode_chunk("place", 13, raw[:size])
    with pytest.raises(DamagedFile):
        decode_chunk("place", 13, raw + b"\0")


def test_a_chunk_under_another_number_is_refused() -> None:
    raw = encode_chunk(13, 4, WRITER, End(), began=9, state=12)
    with pytest.raises(DamagedFile, match="its header has the number 13"):
        decode_chunk("place", 14, raw)


def test_a_later_version_is_refused() -> None:
    raw = bytearray(encode_chunk(13, 4, WRITER, End(), began=9, state=12))
    raw[8] = 2
    with pytest.raises(UnsupportedFormat):
        decode_chunk("place", 13, bytes(raw))


def test_a_body_of_another_kind_is_damage() -> None:
    chunk = decode_chunk("place", 1, encode_chunk(1, 1, WRITER, CONTENTS[0], began=1, state=0))
    with pytest.raises(DamagedFile):
        content_of(chunk, State)


def test_the_end_of_a_part_is_the_end_of_its_last_piece() -> None:
    assert JournalPart([Piece(3, 40, b"abc"), Piece(4, 8, b"de")], 1).end == (4, 10)


def test_names_and_numbers_agree() -> None:
    assert chunk_number(chunk_name(1)) == 1
    assert chunk_number(chunk_name(10**12)) == 10**12
    assert chunk_name(9) < chunk_name(10) < chunk_name(10**12)
    for name in ("chunks/1", "other/0000000000000001", "chunks/000000000000000x", "leader"):
        assert chunk_number(name) is None
