"""Lines of costs as a history grows, one line for each side."""

from __future__ import annotations

from collections.abc import Sequence

from bench.measure import Figure, Row
from bench.plots_svg import WIDTH, Scale, line, picture, text

LEFT, RIGHT, TOP, BOTTOM = 90, WIDTH - 170, 80, 380
HEIGHT = 424
OURS = "Strandline"
#: The number of colours for the other sides.
OTHERS = 4
#: The minimum distance between the names at the ends of lines.
APART = 17.0

#: The cost by side and by length of the history.
Series = dict[str, dict[int, Figure]]


def lines(title: str, rows: Sequence[Row]) -> str:
    series = _series(rows)
    figures = [figure for points in series.values() for figure in points.values()]
    sizes = sorted({size for points in series.values() for size in points})
    across = Scale(sizes[0], max(sizes[-1], sizes[0] * 10), LEFT, RIGHT)
    up = Scale(min(f.low for f in figures), max(f.high for f in figures), BOTTOM, TOP)
    parts = _axes(across, up)
    ends: list[tuple[float, str, str]] = []
    for number, (name, points) in enumerate(series.items()):
        colour = "ahead" if name == OURS else f"other{(number - 1) % OTHERS}"
        parts += _curve(points, across, up, colour, 3.0 if name == OURS else 1.8)
        ends.append((up(points[max(points)].median), name, colour))
    parts += _names(ends)
    unit = rows[0].unit
    return picture(
        HEIGHT, title, f"{unit} each, by the records in the history; less is better. Both axes are logarithmic.", parts
    )


def _series(rows: Sequence[Row]) -> Series:
    series: Series = {OURS: {}}
    for row in rows:
        assert row.at is not None
        assert row.peer is not None
        series[OURS][row.at] = row.result
        series.setdefault(row.peer_is.partition(",")[0], {})[row.at] = row.peer
    return series


def _axes(across: Scale, up: Scale) -> list[str]:
    parts = []
    for power in up.powers():
        parts.append(line(LEFT, up(power), RIGHT, up(power), "stroke-rule"))
        parts.append(text(LEFT - 8, up(power) + 4, f"{power:,.10g}", "fill-faint", "end"))
    for power in across.powers():
        parts.append(line(across(power), TOP, across(power), BOTTOM, "stroke-rule"))
        parts.append(text(across(power), BOTTOM + 20, f"{power:,.0f}", "fill-faint", "middle"))
    return parts


def _curve(points: dict[int, Figure], across: Scale, up: Scale, colour: str, width: float) -> list[str]:
    placed = [(across(size), points[size]) for size in sorted(points)]
    path = " ".join(f"{x:.1f},{up(figure.median):.1f}" for x, figure in placed)
    parts = [f'<polyline points="{path}" fill="none" class="stroke-{colour}" stroke-width="{width:g}"/>']
    for x, figure in placed:
        parts.append(line(x, up(figure.low), x, up(figure.high), f"stroke-{colour}"))
        parts.append(f'<circle cx="{x:.1f}" cy="{up(figure.median):.1f}" r="4" class="fill-{colour}"/>')
    return parts


def _names(ends: list[tuple[float, str, str]]) -> list[str]:
    """Names at the ends of the lines, moved apart if they would overlap."""
    parts, last = [], float("-inf")
    for y, name, colour in sorted(ends):
        last = max(y, last + APART)
        parts.append(text(RIGHT + 12, last + 4, name, f"fill-{colour} strong"))
    return parts
