"""The output of the demo: a panel per chapter at a terminal, plain lines everywhere else.

Plain lines are printed at once; only prose is wrapped. NO_COLOR turns colours off.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from textwrap import wrap
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.panel import Panel
from rich.status import Status
from rich.table import Table
from rich.text import Text

#: Longer lines are hard to read.
WIDEST = 100
_INDENT = "   "


class Teller:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._number = 0
        self._at_terminal = console.is_terminal

    @contextmanager
    def chapter(self, title: str) -> Iterator[Chapter]:
        """Everything in the block is one chapter. At a terminal, it is shown when the block ends."""
        self._number += 1
        if not self._at_terminal:
            self._plain(f"\n{self._number}. {title}")
            yield PlainChapter(self._console)
            return
        with self._console.status(f"[bold]{self._number}. {escape(title)}[/]") as status:
            chapter = PanelChapter(status, title)
            yield chapter
        head = Text.assemble((f"{self._number}", "bold cyan"), f" · {title}", style="bold")
        self._show(Panel(chapter.told(), title=head, title_align="left", border_style="cyan", padding=(0, 2)))

    def around(self, title: str, lines: Sequence[str]) -> None:
        """Text before the first chapter and after the last one."""
        if not self._at_terminal:
            self._plain(f"\n{title}" if self._number else title)
            for line in lines:
                self._plain(_INDENT + line)
            return
        body = Group(*(Text(line) for line in lines))
        self._show(Panel(body, title=Text(title, "bold green"), border_style="green", padding=(0, 2)))

    def _show(self, panel: Panel) -> None:
        self._console.print(panel, width=min(self._console.width, WIDEST))

    def _plain(self, line: str) -> None:
        self._console.print(line, markup=False, soft_wrap=True)


class Chapter(Protocol):
    """The kinds of output in a chapter."""

    def say(self, sentences: str) -> None:
        """Prose, wrapped."""

    def quote(self, line: str) -> None:
        """A line to copy; it is not wrapped."""

    def show(self, columns: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str] = ()) -> None:
        """A table; ``right`` names the columns that are aligned right."""

    def draw(self, lines: Sequence[tuple[str, str]]) -> None:
        """Labels with bars; they are not wrapped."""

    def proved(self, sentence: str) -> None:
        """A result that the demo has checked."""

    def doing(self, what: str) -> None:
        """The current step, shown while it runs."""


class PanelChapter(Chapter):
    def __init__(self, status: Status, title: str) -> None:
        self._status = status
        self._title = title
        self._parts: list[RenderableType] = []

    def told(self) -> RenderableType:
        return Group(*self._parts)

    def say(self, sentences: str) -> None:
        self._parts.append(Text(sentences))

    def quote(self, line: str) -> None:
        self._parts.append(Padding(Text(line, "cyan", overflow="fold"), (0, 2)))

    def show(self, columns: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str] = ()) -> None:
        table = Table(box=None, pad_edge=False, header_style="dim")
        for name in columns:
            table.add_column(name, justify="right" if name in right else "left", overflow="fold")
        for row in rows:
            table.add_row(*(Text(cell) for cell in row))
        self._parts.append(Padding(table, (1, 2)))

    def draw(self, lines: Sequence[tuple[str, str]]) -> None:
        drawn = [Text.assemble(text, "  ", (bar, "cyan"), overflow="crop", no_wrap=True) for text, bar in lines]
        self._parts.append(Padding(Group(*drawn), (1, 2)))

    def proved(self, sentence: str) -> None:
        self._parts.append(Text.assemble(("✔ ", "bold green"), sentence))

    def doing(self, what: str) -> None:
        self._status.update(f"[bold]{escape(self._title)}[/]: {escape(what)}")


class PlainChapter(Chapter):
    def __init__(self, console: Console) -> None:
        self._console = console

    def say(self, sentences: str) -> None:
        for line in _lines(sentences):
            self._line(line)

    def quote(self, line: str) -> None:
        self._line(f"  {line}")

    def show(self, columns: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str] = ()) -> None:
        lines = [columns, *rows]
        widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
        for line in lines:
            cells = (
                cell.rjust(width) if name in right else cell.ljust(width)
                for cell, width, name in zip(line, widths, columns, strict=True)
            )
            self.quote("  ".join(cells).rstrip())

    def draw(self, lines: Sequence[tuple[str, str]]) -> None:
        for text, bar in lines:
            self.quote(f"{text}  {bar}")

    def proved(self, sentence: str) -> None:
        self.say(f"✔ {sentence}")

    def doing(self, what: str) -> None:
        pass

    def _line(self, line: str) -> None:
        self._console.print(_INDENT + line, markup=False, soft_wrap=True)


def _lines(sentences: str) -> list[str]:
    return wrap(sentences, WIDEST - len(_INDENT), break_long_words=False, break_on_hyphens=False)
