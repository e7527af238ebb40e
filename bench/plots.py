"""The pictures of a report: which rows each picture shows, and its file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bench.measure import Row
from bench.plots_bars import bars
from bench.plots_lines import lines

#: The titles of pictures, by the ``chart`` of their rows.
TITLES = {
    "appends": "Appends, by what an acknowledgement promises",
    "same-protocol": "Appends, beside servers of the same protocol",
    "work": "Reading, delivering, queueing and coming back",
    "growth-topics": "One append, as the history grows",
    "growth-pages": "A page of 100 in the middle, as the history grows",
    "growth-streams": "One append to a stream, as the history grows",
}
#: The directory of pictures, next to the page that shows them.
DIRECTORY = "images"


class Plot(NamedTuple):
    title: str
    #: The name of the file.
    name: str
    content: str


def plots(group: str, rows: Sequence[Row]) -> list[Plot]:
    """Lines if the length of the history differs between rows, otherwise bars."""
    charts = dict.fromkeys(row.chart for row in rows if row.chart and row.times_peer is not None)
    made = []
    for chart in charts:
        shown = [row for row in rows if row.chart == chart and row.times_peer is not None]
        draw = bars if shown[0].at is None else lines
        made.append(Plot(TITLES[chart], f"bench-{group}-{chart}.svg", draw(TITLES[chart], shown)))
    return made


def write(group: str, rows: Sequence[Row], page: Path) -> list[str]:
    """Write the pictures next to a page, and return the Markdown that shows them."""
    directory = page.parent / DIRECTORY
    shown = []
    for plot in plots(group, rows):
        directory.mkdir(exist_ok=True)
        (directory / plot.name).write_text(plot.content)
        shown.append(f"![{plot.title}]({DIRECTORY}/{plot.name})")
    return shown
