"""The parts of pictures: texts, lines and boxes in SVG, in colours for light and dark pages."""

from __future__ import annotations

from html import escape
from math import ceil, floor, log10

WIDTH = 860
#: Colours that colour-blind readers can distinguish, after Okabe and Ito. The second of each is for dark pages.
COLOURS = {
    "text": ("#1f2328", "#e6edf3"),
    "faint": ("#59636e", "#9198a1"),
    "rule": ("#d1d9e0", "#3d444d"),
    "page": ("#ffffff", "#0d1117"),
    "ahead": ("#0072b2", "#56b4e9"),
    "behind": ("#d55e00", "#e69f00"),
    "other0": ("#d55e00", "#ff8c42"),
    "other1": ("#009e73", "#2fd6a3"),
    "other2": ("#b5548c", "#e39cc4"),
    "other3": ("#8a6d00", "#f0e442"),
}


def picture(height: float, title: str, subtitle: str, parts: list[str]) -> str:
    """A whole file. Screen readers read the title aloud."""
    rules = " ".join(_rules(0))
    dark = " ".join(_rules(1))
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" '
        f'height="{height:.0f}" role="img" aria-labelledby="title">',
        f'<title id="title">{escape(title)}</title>',
        f"<style>text {{ font: 13px system-ui, sans-serif; }} .title {{ font-size: 17px; font-weight: 600; }} "
        f".strong {{ font-weight: 600; }} {rules} @media (prefers-color-scheme: dark) {{ {dark} }}</style>",
        f'<rect class="fill-page" width="{WIDTH}" height="{height:.0f}"/>',
        text(16, 28, title, "fill-text title"),
        text(16, 48, subtitle, "fill-faint"),
    ]
    return "\n".join([*head, *parts, "</svg>", ""])


def _rules(number: int) -> list[str]:
    made = []
    for name, colours in COLOURS.items():
        made.append(f".fill-{name} {{ fill: {colours[number]}; }}")
        made.append(f".stroke-{name} {{ stroke: {colours[number]}; }}")
    return made


def text(x: float, y: float, content: str, kind: str = "fill-text", anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">{escape(content)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, kind: str, width: float = 1.0) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}" stroke-width="{width:g}"/>'


def box(x: float, y: float, width: float, height: float, kind: str) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="2" class="{kind}"/>'


class Scale:
    """The position of a value on a logarithmic axis."""

    def __init__(self, low: float, high: float, start: float, end: float) -> None:
        """The axis is widened to whole powers of ten."""
        self._low, self._high = floor(log10(low) + 1e-9), ceil(log10(high) - 1e-9)
        if self._low == self._high:
            self._high += 1
        self._start, self._end = start, end

    def __call__(self, value: float) -> float:
        part = (log10(value) - self._low) / (self._high - self._low)
        return self._start + part * (self._end - self._start)

    def powers(self) -> list[float]:
        return [10.0**power for power in range(self._low, self._high + 1)]
