"""Where everything that the command line prints goes through.

What a terminal gets has its control characters escaped: records, keys, names and errors may come from anyone. What goes
to a file or to another program is written as it is.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from strandline.control_characters import visible


def put(text: str = "", *, end: str = "\n", flush: bool = False, file: TextIO | None = None) -> None:
    """Print to standard output, or to ``file``."""
    file = sys.stdout if file is None else file
    print(visible(text) if file.isatty() else text, end=end, flush=flush, file=file)


def say(text: str) -> None:
    """Tell people something on standard error, line by line. It is never data, so it is always escaped."""
    for line in text.splitlines() or [""]:
        print(f"strandline: {visible(line)}", file=sys.stderr, flush=True)


class SafeConsole(Console):
    """A terminal with colours and tables, whose text is escaped and whose own control sequences are not."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        segments = super().render(renderable, options)
        return map(_escaped, segments) if self.is_terminal else segments


def _escaped(segment: Segment) -> Segment:
    if segment.control:
        return segment
    return Segment(visible(segment.text), segment.style)


def open_console(*, stderr: bool = False, **options: Any) -> SafeConsole:
    return SafeConsole(stderr=stderr, **options)
