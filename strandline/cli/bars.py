"""A chart of text: a line per value, with a bar as long as the value is large."""

from __future__ import annotations

from typing import NamedTuple

from rich.text import Text

from strandline.cli.output import print_line

WIDTH = 40
#: A cell that is filled from the left by so many eighths.
_EIGHTHS = (" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█")


class Bar(NamedTuple):
    label: str
    value: float
    shown: str


def bar_of(value: float, highest: float, width: int = WIDTH) -> str:
    """As long as ``value`` is beside ``highest``, which fills the width; what is more than nothing can be seen."""
    if value <= 0 or highest <= 0:
        return ""
    eighths = max(round(value / highest * width * 8), 1)
    return "█" * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")


def print_bars(bars: list[Bar], highest: float) -> None:
    labels = max(len(bar.label) for bar in bars)
    numbers = max(len(bar.shown) for bar in bars)
    for bar in bars:
        line = Text.assemble(f"{bar.label:<{labels}}  {bar.shown:>{numbers}}  ", (bar_of(bar.value, highest), "cyan"))
        line.rstrip()
        print_line(line)
