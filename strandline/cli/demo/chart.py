"""The chart of the demo: a PNG file, drawn and encoded without a library."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping

from strandline.cli.demo.shop import DAY_MS, HOUR_MS, MONDAY, WEEK_MS

Colour = tuple[int, int, int]

SIGNATURE = b"\x89PNG\r\n\x1a\n"
_BITS = 8
_TRUE_COLOUR = 2
_UNFILTERED = b"\0"


class Canvas:
    """Pixels, in lines from the top. Drawing outside of the canvas has no effect."""

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


# --- a font of five by seven dots, with the letters that the chart needs ---------------------------------------------

WIDTH = 5
GLYPH_HEIGHT = 7
#: Distance from one letter to the next.
ADVANCE = WIDTH + 1

#: Letters, and their dots below them.
_SHEETS = (
    (
        "0123456789,",
        ".###. ..#.. .###. ##### ...#. ##### ..##. ##### .###. .###. .....",
        "#...# .##.. #...# ...#. ..##. #.... .#... ....# #...# #...# .....",
        "#..## ..#.. ....# ..#.. .#.#. ####. #.... ...#. #...# #...# .....",
        "#.#.# ..#.. ..##. ...#. #..#. ....# ####. ..#.. .###. .#### .....",
        "##..# ..#.. .#... ....# ##### ....# #...# .#... #...# ....# ..##.",
        "#...# ..#.. #.... #...# ...#. #...# #...# .#... #...# ...#. ..#..",
        ".###. .###. ##### .###. ...#. .###. .###. .#... .###. .##.. .#...",
    ),
    (
        "abcdefghikno",
        "..... #.... ..... ....# ..... ..##. ..... #.... ..#.. #.... ..... .....",
        "..... #.... ..... ....# ..... .#..# .#### #.... ..... #.... ..... .....",
        ".###. ####. .###. .#### .###. .#... #...# ####. .##.. #..#. ####. .###.",
        "....# #...# #...# #...# #...# ###.. #...# #...# ..#.. #.#.. #...# #...#",
        ".#### #...# #.... #...# ##### .#... .#### #...# ..#.. ##... #...# #...#",
        "#...# #...# #...# #...# #.... .#... ....# #...# ..#.. #.#.. #...# #...#",
        ".#### ####. .###. .#### .###. .#... .###. #...# .###. #..#. #...# .###.",
    ),
    (
        "prstuw",
        "..... ..... ..... .#... ..... .....",
        "####. ..... ..... .#... ..... .....",
        "#...# #.##. .#### ###.. #...# #...#",
        "#...# ##..# #.... .#... #...# #...#",
        "####. #.... .###. .#... #...# #.#.#",
        "#.... #.... ....# .#..# #..## #.#.#",
        "#.... #.... ####. ..##. .##.# .#.#.",
    ),
    (
        "EFMRSTUW",
        "##### ##### #...# ####. .#### ##### #...# #...#",
        "#.... #.... ##.## #...# #.... ..#.. #...# #...#",
        "#.... #.... #.#.# #...# #.... ..#.. #...# #...#",
        "####. ####. #.#.# ####. .###. ..#.. #...# #.#.#",
        "#.... #.... #...# #.#.. ....# ..#.. #...# #.#.#",
        "#.... #.... #...# #..#. ....# ..#.. #...# #.#.#",
        "##### #.... #...# #...# ####. ..#.. .###. .#.#.",
    ),
)

_DOTS = {
    letter: [line[at * ADVANCE : at * ADVANCE + WIDTH] for line in lines]
    for letters, *lines in _SHEETS
    for at, letter in enumerate(letters)
}


def width_of(text: str, scale: int) -> int:
    return (len(text) * ADVANCE - 1) * scale


def write(canvas: Canvas, left: int, top: int, text: str, colour: Colour, scale: int) -> None:
    """Write ``text`` with its upper left corner at this point; unknown letters are blank."""
    for letter in text:
        for row, line in enumerate(_DOTS.get(letter, ())):
            for column, dot in enumerate(line):
                if dot == "#":
                    canvas.fill(left + column * scale, top + row * scale, scale, scale, colour)
        left += ADVANCE * scale


# --- revenue by hour, as bars ---------------------------------------------------------------------------------------

PAPER: Colour = (255, 255, 255)
INK: Colour = (55, 65, 81)
GRID: Colour = (229, 231, 235)
WEEKDAY: Colour = (14, 116, 144)
WEEKEND: Colour = (217, 119, 6)

HEIGHT = 420
LEFT, RIGHT, TOP, BOTTOM = 90, 20, 60, 40
BAR, GAP = 4, 1
STEPS = 4
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def draw_week(cents_by_hour: Mapping[int, float]) -> bytes:
    """A PNG file of a week; the keys are the start times of the hours."""
    hours = range(MONDAY, MONDAY + WEEK_MS, HOUR_MS)
    canvas = Canvas(LEFT + len(hours) * (BAR + GAP) + RIGHT, HEIGHT, PAPER)
    floor = HEIGHT - BOTTOM
    step = step_for(max(cents_by_hour.values(), default=0) / 100)
    write(canvas, LEFT, 20, "Takings of the week per hour, in EUR", INK, 2)
    for number in range(STEPS + 1):
        height = floor - round(number / STEPS * (floor - TOP))
        canvas.fill(LEFT, height, canvas.width - LEFT - RIGHT, 1, INK if not number else GRID)
        label = f"{number * step:,}"
        write(canvas, LEFT - 12 - width_of(label, 2), height - GLYPH_HEIGHT, label, INK, 2)
    for at, moment in enumerate(hours):
        share = cents_by_hour.get(moment, 0) / 100 / (STEPS * step)
        height, left = round(share * (floor - TOP)), LEFT + at * (BAR + GAP)
        canvas.fill(left, floor - height, BAR, height, WEEKEND if (moment - MONDAY) // DAY_MS >= 5 else WEEKDAY)
    for day, name in enumerate(DAYS):
        middle = LEFT + (day * 24 + 12) * (BAR + GAP)
        write(canvas, middle - width_of(name, 2) // 2, floor + 14, name, INK, 2)
    return canvas.encode()


def step_for(highest: float) -> int:
    """The smallest round number of which STEPS reach the highest value."""
    size = 1
    while True:
        for factor in (1, 2, 5):
            if factor * size * STEPS >= highest:
                return factor * size
        size *= 10
