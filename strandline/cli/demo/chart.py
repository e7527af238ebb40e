"""The shop's takings by the hour, drawn as bars."""

from __future__ import annotations

from collections.abc import Mapping

from strandline.cli.demo import glyphs
from strandline.cli.demo.png import Canvas, Colour
from strandline.cli.demo.shop import DAY_MS, HOUR_MS, MONDAY, WEEK_MS

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
    """A PNG file of a week; the keys are the moments at which the hours begin."""
    hours = range(MONDAY, MONDAY + WEEK_MS, HOUR_MS)
    canvas = Canvas(LEFT + len(hours) * (BAR + GAP) + RIGHT, HEIGHT, PAPER)
    floor = HEIGHT - BOTTOM
    step = step_for(max(cents_by_hour.values(), default=0) / 100)
    glyphs.write(canvas, LEFT, 20, "Takings of the week per hour, in EUR", INK, 2)
    for number in range(STEPS + 1):
        height = floor - round(number / STEPS * (floor - TOP))
        canvas.fill(LEFT, height, canvas.width - LEFT - RIGHT, 1, INK if not number else GRID)
        label = f"{number * step:,}"
        glyphs.write(canvas, LEFT - 12 - glyphs.width_of(label, 2), height - glyphs.HEIGHT, label, INK, 2)
    for at, moment in enumerate(hours):
        share = cents_by_hour.get(moment, 0) / 100 / (STEPS * step)
        height, left = round(share * (floor - TOP)), LEFT + at * (BAR + GAP)
        canvas.fill(left, floor - height, BAR, height, WEEKEND if (moment - MONDAY) // DAY_MS >= 5 else WEEKDAY)
    for day, name in enumerate(DAYS):
        middle = LEFT + (day * 24 + 12) * (BAR + GAP)
        glyphs.write(canvas, middle - glyphs.width_of(name, 2) // 2, floor + 14, name, INK, 2)
    return canvas.encode()


def step_for(highest: float) -> int:
    """A round number of which so many as there are lines reach over the highest bar."""
    size = 1
    while True:
        for factor in (1, 2, 5):
            if factor * size * STEPS >= highest:
                return factor * size
        size *= 10
