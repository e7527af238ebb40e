"""Offsets: the position of a reader in a stream, as 26 characters that sort like the records.

An offset is 128 bits: epoch, seq and a position inside a record. The first and the last are always 0 here. The bits are
shifted left by two and written in Crockford's base 32. A reader sends the offset of a record to get the records after
it; the offset of seq 0 is before the first record.

Cursors are numbers that change over time, so that caches between client and server can tell one wait from the next.
"""

from __future__ import annotations

import random
import re
from functools import lru_cache

from strandline.engine.record import MAX_SEQ

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
#: How far the seq is shifted: the position inside a record, and the two bits that fill 26 characters.
_SHIFT = 34
_SEQ_MASK = (1 << 64) - 1

_VALUES = {character: value for value, character in enumerate(_ALPHABET)}
_VALUES |= {"O": 0, "I": 1, "L": 1}
_VALUES |= {character.lower(): value for character, value in _VALUES.items()}
_FORM = re.compile(r"[0-9A-HJKMNP-TV-ZOILa-hjkmnp-tv-zoil]{26}", re.ASCII)
_PAIRS = tuple(a + b for a in _ALPHABET for b in _ALPHABET)
#: The other characters; the last six are always 0.
_ENDS = tuple(_PAIRS[seq << 4] + "000000" for seq in range(64))

#: The epoch in every offset.
EPOCH = 0

START = "-1"
NOW = "now"


def encode(seq: int) -> str:
    """The offset of the record with this seq."""
    return _beginning(seq >> 6) + _ENDS[seq & 63]


@lru_cache(maxsize=8192)
def _beginning(block: int) -> str:
    """The first 18 characters, which 64 consecutive records share."""
    characters = []
    for _ in range(9):
        characters.append(_PAIRS[block & 1023])
        block >>= 10
    return "".join(reversed(characters))


@lru_cache(maxsize=8192)
def encode_bytes(seq: int) -> bytes:
    return encode(seq).encode()


def decode(text: str) -> int | None:
    """The seq of an offset; None if the text is not an offset. The epoch is ignored."""
    if _FORM.fullmatch(text) is None:
        return None
    value = 0
    for character in text:
        value = value << 5 | _VALUES[character]
    return min(value >> _SHIFT & _SEQ_MASK, MAX_SEQ)


# --- cursors -------------------------------------------------------------------------------------------------------

#: The start of the protocol's intervals: 2024-10-09, in milliseconds.
_FIRST_MS = 1_728_432_000_000
_INTERVAL_MS = 20_000
#: A cursor that is ahead of time moves forward by up to this number of intervals, which is an hour.
_JITTER = 180
_CURSOR = re.compile("[0-9]{1,15}", re.ASCII)


def cursor(now: int, theirs: str) -> int:
    """The cursor of an answer; ``theirs`` is the cursor of the request. The result is always higher."""
    present = max(0, now - _FIRST_MS) // _INTERVAL_MS
    if _CURSOR.fullmatch(theirs) is not None and int(theirs) >= present:
        return int(theirs) + random.randint(1, _JITTER)
    return present
