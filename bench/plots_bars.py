"""Bars of ratios of this server to each peer, for each workload."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from bench.measure import COSTS, Figure, Row
from bench.plots_svg import WIDTH, Scale, box, line, picture, text

#: The left and right ends of the bars, and the right end of the names of peers.
LEFT, RIGHT, NAMES = 190, WIDTH - 90, 180
TOP, HEADING, BAR, GAP = 92, 26, 18, 10
SUBTITLE = "A value above 1 is in favour of Strandline, below 1 in favour of the peer. Thin lines: all rounds."


def advantage(row: Row) -> Figure:
    """The ratio to the peer, inverted for costs, so that more is always better for us."""
    assert row.times_peer is not None
    ratio = row.times_peer
    return Figure(1 / ratio.median, 1 / ratio.high, 1 / ratio.low) if row.unit in COSTS else ratio


def bars(title: str, rows: Sequence[Row]) -> str:
    figures = [advantage(row) for row in rows]
    scale = Scale(min(0.5, *(f.low for f in figures)), max(2.0, *(f.high for f in figures)), LEFT, RIGHT)
    parts: list[str] = []
    y = float(TOP)
    for name, group in groupby(rows, key=lambda row: row.name):
        parts.append(text(16, y + 16, name, "fill-text strong"))
        y += HEADING
        for row in group:
            parts += _bar(row, scale, y)
            y += BAR
        y += GAP
    return picture(y + 8, title, SUBTITLE, [*_axis(scale, y), *parts])


def _axis(scale: Scale, bottom: float) -> list[str]:
    parts = []
    for power in scale.powers():
        x = scale(power)
        parts.append(
            line(x, TOP - 8, x, bottom, "stroke-faint" if power == 1 else "stroke-rule", 1.5 if power == 1 else 1)
        )
        parts.append(text(x, TOP - 14, f"{power:g}×", "fill-faint", "middle"))
    return parts


def _bar(row: Row, scale: Scale, y: float) -> list[str]:
    figure = advantage(row)
    ahead = figure.median >= 1
    start, end = sorted((scale(1), scale(figure.median)))
    middle = y + BAR / 2
    edge = scale(figure.high) if ahead else scale(figure.low)
    label = (
        text(edge + 6, middle + 4, times(figure.median))
        if ahead
        else text(edge - 6, middle + 4, times(figure.median), anchor="end")
    )
    # A label that would overlap the names goes to the other side of the line.
    if not ahead and edge - 50 < NAMES:
        label = text(scale(1) + 6, middle + 4, times(figure.median))
    return [
        text(NAMES, middle + 4, row.peer_is.partition(",")[0], "fill-faint", "end"),
        box(start, y + 3, max(end - start, 1), BAR - 6, "fill-ahead" if ahead else "fill-behind"),
        line(scale(figure.low), middle, scale(figure.high), middle, "stroke-text"),
        label,
    ]


def times(value: float) -> str:
    return f"{value:.0f}×" if value >= 20 else f"{value:.1f}×" if value >= 1 else f"{value:.2g}×"
