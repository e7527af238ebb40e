"""Counts the elements of a JSON body before it is decoded.

Decoding creates an object for every element, and a body of a few megabytes can have millions. Counting looks only at
the bytes, in pieces, and stops as soon as there are too many.
"""

from __future__ import annotations

import numpy as np

#: The bytes of one piece: it takes a few milliseconds, and little memory beside the body.
PIECE_BYTES = 1 << 20

_QUOTE, _COMMA = ord('"'), ord(",")
#: The bytes that do not show where elements begin and end.
_CONTENT = bytes(set(range(256)) - set(b'"[]{},'))
#: By byte: the change of the nesting depth.
_STEPS = np.zeros(256, np.int8)
for _character, _step in (("[", 1), ("{", 1), ("]", -1), ("}", -1)):
    _STEPS[ord(_character)] = _step


def has_more_elements(body: bytes, most: int, depth: int = 1) -> bool:
    """Whether the arrays and objects down to ``depth`` have more than ``most`` elements together; the outermost is at
    depth 1. The result is meaningless if the body is not valid JSON."""
    return may_have_more_elements(body, most) and _count(body, most, depth) > most


def may_have_more_elements(body: bytes, most: int) -> bool:
    """Whether counting is necessary. An element takes at least two bytes, with its comma."""
    if len(body) <= 2 * most:
        return False
    commas = 0
    for start in range(0, len(body), PIECE_BYTES):
        commas += body.count(b",", start, start + PIECE_BYTES)
        if commas >= most:
            return True
    return False


def _count(body: bytes, most: int, depth: int) -> int:
    """The number of elements; counting stops soon after ``most``. An array or object that is not empty has one element
    more than commas, and counts as an element itself."""
    found, level, inside, start = 1, 0, 0, 0
    while start < len(body) and found <= most:
        end = _end_of_piece(body, start)
        # In a string, a backslash escapes the next character; outside of strings there are no backslashes.
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
    """Where a piece ends without splitting an escaped character. The piece starts after a whole character, so the
    backslashes at its end can be counted."""
    end = min(start + PIECE_BYTES, len(body))
    backslashes = end - start - len(body[start:end].rstrip(b"\\"))
    return min(end + backslashes % 2, len(body))
