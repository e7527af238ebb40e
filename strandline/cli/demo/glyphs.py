"""Letters for pictures, five dots wide and seven high: those that the chart needs."""

from __future__ import annotations

from strandline.cli.demo.png import Canvas, Colour

WIDTH = 5
HEIGHT = 7
#: From one letter to the next.
ADVANCE = WIDTH + 1

#: The letters of a line, and under each of them how it is drawn.
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
    """``text`` with its upper left corner there; a letter that is not known is left blank."""
    for letter in text:
        for row, line in enumerate(_DOTS.get(letter, ())):
            for column, dot in enumerate(line):
                if dot == "#":
                    canvas.fill(left + column * scale, top + row * scale, scale, scale, colour)
        left += ADVANCE * scale
