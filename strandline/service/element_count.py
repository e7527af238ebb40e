"""How many elements a JSON body has, found out before anything is made of them.

Decoding makes an object of every element, and only then could they be counted: a body of a few megabytes has millions
of them. Counting looks at the bytes alone, in pieces, and stops as soon as there are too many.
"""

from __future__ import annotations

import numpy as np

#: So much is looked at a time: a few milliseconds, and little memory beside the body.
PIECE_BYTES = 1 << 20

_QUOTE, _COMMA = ord('"'), ord(",")
#: Everything that does not say where elements begin and end.
_CONTENT = bytes(set(range(256)) - set(b'"[]{},'))
#: By byte: how much deeper what follows is nested.
_STEPS = np.zeros(256, np.int8)
for _character, _step in (("[", 1), ("{", 1), ("]", -1), ("}", -1)):
    _STEPS[ord(_character)] = _step


def has_more_elements(body: bytes, most: int, depth: int = 1) -> bool:
    """Whether the arrays and objects down to ``depth`` have more than ``most`` elements together; the outermost is at
    depth 1. Nothing is said about a body that is not valid JSON."""
    return may_have_more_elements(body, most) and _count(body, most, depth) > most


def may_have_more_elements(body: bytes, most: int) -> bool:
    """Whether it is worth counting. An element takes at least two bytes, with the comma behind it."""
    if len(body) <= 2 * most:
        return False
    commas = 0
    for start in range(0, len(body), PIECE_BYTES):
        commas += body.count(b",", start, start + PIECE_BYTES)
        if commas >= most:
            return True
    return False


def _count(body: bytes, most: int, depth: int) -> int:
    """The elements, or as many as are found when there are too many: one more than commas in everything that is not
    empty, so the arrays and objects themselves count as well."""
    found, level, inside, start = 1, 0, 0, 0
    while start < len(body) and found <= most:
        end = _end_of_piece(body, start)
        # Within a string a backslash takes the next character with it; elsewhere there is none.
        piece = body[start:end].replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _CONTENT)
        start = end
        if not piece:
            continue
        data = np.frombuffer(piece, np.uint8)
        outside = (np.cumsum(data == _QUOTE, dtype=np.uint8) + np.uint8(inside)) & 1 == 0
        levels = np.cumsum(_STEPS[data] * outside, dtype=np.int32) + level
        found += int(np.count_nonzero((data == _COMMA) & outside & (levels <= depth)))
        inside, level = int(not outside[-1]), int(levels[-1])
    return found


def _end_of_piece(body: bytes, start: int) -> int:
    """Where a piece ends that does not cut an escaped character in two. It begins behind a whole character, so the
    backslashes at its end can be counted."""
    end = min(start + PIECE_BYTES, len(body))
    backslashes = end - start - len(body[start:end].rstrip(b"\\"))
    return min(end + backslashes % 2, len(body))
