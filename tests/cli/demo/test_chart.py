"""The picture is read again here, chunk by chunk, as any program that shows it would."""

from __future__ import annotations

import struct
import zlib

from strandline.cli.demo import chart
from strandline.cli.demo.chart import INK, PAPER, SIGNATURE, WEEKDAY, WEEKEND, Canvas, draw_week, step_for
from strandline.cli.demo.shop import DAY_MS, HOUR_MS, MONDAY

Pixels = list[list[tuple[int, ...]]]


def pixels_of(picture: bytes) -> Pixels:
    assert picture.startswith(SIGNATURE)
    at, chunks = len(SIGNATURE), {}
    while at < len(picture):
        (length,) = struct.unpack_from(">I", picture, at)
        kind, data = picture[at + 4 : at + 8], picture[at + 8 : at + 8 + length]
        assert struct.unpack_from(">I", picture, at + 8 + length) == (zlib.crc32(kind + data),)
        chunks[kind] = data
        at += length + 12
    assert list(chunks) == [b"IHDR", b"IDAT", b"IEND"]
    width, height, *how = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    assert how == [8, 2, 0, 0, 0]
    raw = zlib.decompress(chunks[b"IDAT"])
    stride = width * 3 + 1
    assert len(raw) == height * stride
    lines = [raw[line * stride : (line + 1) * stride] for line in range(height)]
    assert {line[0] for line in lines} == {0}
    return [[tuple(line[at : at + 3]) for at in range(1, stride, 3)] for line in lines]


def count(pixels: Pixels, colour: tuple[int, ...]) -> int:
    return sum(line.count(colour) for line in pixels)


def test_what_is_filled_is_filled_and_the_rest_is_not() -> None:
    canvas = Canvas(4, 3, PAPER)
    canvas.fill(1, 1, 2, 1, INK)
    assert pixels_of(canvas.encode()) == [[PAPER] * 4, [PAPER, INK, INK, PAPER], [PAPER] * 4]


def test_what_is_beyond_the_edge_is_cut_off() -> None:
    canvas = Canvas(2, 2, PAPER)
    for left, top in ((-5, 0), (7, 0), (0, -5), (0, 7), (1, 1)):
        canvas.fill(left, top, 3, 3, INK)
    assert pixels_of(canvas.encode()) == [[PAPER, PAPER], [PAPER, INK]]


def test_letters_are_drawn_and_unknown_ones_left_blank() -> None:
    canvas = Canvas(20, 7, PAPER)
    chart.write(canvas, 0, 0, "T?1", INK, 1)
    top = pixels_of(canvas.encode())[0]
    assert top[:5] == [INK] * 5
    assert top[6:11] == [PAPER] * 5
    assert top[14] == INK


def test_a_week_has_bars_as_high_as_its_hours() -> None:
    monday, sunday = MONDAY, MONDAY + 6 * DAY_MS + 20 * HOUR_MS
    pixels = pixels_of(draw_week({monday: 50_000, sunday: 100_000}))
    assert count(pixels, WEEKDAY) * 2 == count(pixels, WEEKEND) > 0
    assert count(pixels, INK) > 1_000


def test_a_week_without_takings_is_a_picture_too() -> None:
    assert count(pixels_of(draw_week({})), WEEKDAY) == 0


def test_the_steps_of_the_axis_are_round_and_reach_over_everything() -> None:
    assert [step_for(highest) for highest in (0, 4, 5, 19_990, 20_000, 20_001)] == [1, 1, 2, 5_000, 5_000, 10_000]
