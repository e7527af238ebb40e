"""A terminal that shows text which anyone may have written."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from strandline.control_characters import visible


class SafeConsole(Console):
    """A terminal with colours and tables, whose text is escaped and whose own control sequences are not."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        segments = super().render(renderable, options)
        return map(_escaped, segments) if self.is_terminal else segments


def _escaped(segment: Segment) -> Segment:
    if segment.control:
        return segment
    return Segment(visible(segment.text), segment.style)
