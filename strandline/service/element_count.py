"""Counts the elements of a JSON body before it is decoded.

Decoding creates an object per element, and a body of a few megabytes can have millions of elements. Counting scans the
bytes in pieces and stops when the limit is exceeded.
"""

from __future__ import annotations

import numpy as np

#: The bytes that are scanned at a time: this takes a few milliseconds and little memory in addition to the body.
PIECE_BYTES = 1 << 20

_QUOTE, _COMMA = ord('"'), ord(",")
#: All bytes that do not delimit elements.
_CONTENT = bytes(set(range(256)) - set(b'"[]{},'))
#: By byte: the change of the nesting depth.
_STEPS = np.zeros(256, np.int8)
for _character, _step in (("[", 1), ("{", 1), ("]", -1), ("}", -1)):
    _STEPS[ord(_character)] = _step


def has_more_elements(body: bytes, most: int, depth: int = 1) -> bool:
    """Whether the arrays and objects down to ``depth`` have more than ``most`` elements in total. The outermost value
    is at depth 1. The result is undefined for a body that is not valid JSON."""
    return may_have_more_elements(body, most) and _count(body, most, depth) > most


def may_have_more_elements(body: bytes, most: int) -> bool:
    """A quick check whether counting is necessary. An element takes at least two bytes, including its comma."""
    if len(body) <= 2 * most:
        return False
    commas = 0
    for start in range(0, len(body), PIECE_BYTES):
        commas += body.count(b",", start, start + PIECE_BYTES)
        if commas >= most:
            return True
    return False


def _count(body: bytes, most: int, depth: int) -> int:
    """One more than the number of commas down to ``depth``. Counting stops when the number exceeds ``most``."""
    found, level, inside, start = 1, 0, 0, 0
    while start < len(body) and found <= most:
        end = _end_of_piece(body, start)
        # Remove escaped backslashes and quotes, which occur only in strings.
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
    """The end of the piece that begins at ``start``, moved so that it does not split an escape sequence. The piece
    never begins inside an escape sequence, so an odd number of backslashes at its end starts one."""
    end = min(start + PIECE_BYTES, len(body))
    backslashes = end - start - len(body[start:end].rstrip(b"\\"))
    return min(end + backslashes % 2, len(body))
