"""A picture as a PNG file: pixels in, bytes out."""

from __future__ import annotations

import struct
import zlib

Colour = tuple[int, int, int]

SIGNATURE = b"\x89PNG\r\n\x1a\n"
_BITS = 8
_TRUE_COLOUR = 2
_UNFILTERED = b"\0"


class Canvas:
    """Pixels, in lines from the top. What is drawn beyond the edge is cut off."""

    def __init__(self, width: int, height: int, background: Colour) -> None:
        self.width = width
        self.height = height
        self._lines = [bytearray(bytes(background) * width) for _ in range(height)]

    def fill(self, left: int, top: int, width: int, height: int, colour: Colour) -> None:
        left, right = max(left, 0), min(left + width, self.width)
        if left >= right:
            return
        stroke = bytes(colour) * (right - left)
        for line in self._lines[max(top, 0) : max(top + height, 0)]:
            line[left * 3 : right * 3] = stroke

    def encode(self) -> bytes:
        pixels = b"".join(_UNFILTERED + line for line in self._lines)
        header = struct.pack(">IIBBBBB", self.width, self.height, _BITS, _TRUE_COLOUR, 0, 0, 0)
        return SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(pixels, 9)) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
