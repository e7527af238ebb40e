from __future__ import annotations

import re
from io import StringIO

import pytest
from rich.console import Console

from strandline.cli.demo.narration import WIDEST, Chapter, Teller

LONG = "Sentences are broken into lines where they would be too long to read, and never in the middle of a word. "


def tell(console: Console) -> str:
    teller = Teller(console)
    teller.around("Before", ["a line [bold]as it is[/]"])
    with teller.chapter("The first") as chapter:
        say_everything(chapter)
    teller.around("After", ["that was all"])
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def say_everything(chapter: Chapter) -> None:
    chapter.doing("something")
    chapter.say(LONG)
    chapter.quote("/a/path/" + "x" * 120)
    chapter.show(("name", "number"), (("one", "1"), ("ten", "10")), right=("number",))
    chapter.draw([("Mon", "███")])
    chapter.proved("It is true.")


def terminal(width: int) -> Console:
    return Console(file=StringIO(), force_terminal=True, width=width, highlight=False)


def test_without_a_terminal_it_is_plain_lines() -> None:
    text = tell(Console(file=StringIO(), highlight=False))
    assert text.splitlines() == [
        "Before",
        "   a line [bold]as it is[/]",
        "",
        "1. The first",
        "   Sentences are broken into lines where they would be too long to read, and never in the middle of",
        "   a word.",
        "     /a/path/" + "x" * 120,
        "     name  number",
        "     one        1",
        "     ten       10",
        "     Mon  ███",
        "   ✔ It is true.",
        "",
        "After",
        "   that was all",
    ]


@pytest.mark.parametrize("width", [40, 80, 200])
def test_at_a_terminal_there_are_panels_that_fit(width: int) -> None:
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", tell(terminal(width)))
    assert text.count("╭") == text.count("╰") == 3
    assert max(len(line) for line in text.splitlines() if line.startswith(("╭", "│", "╰"))) == min(width, WIDEST)
    assert "It is true." in text


def test_colours_go_with_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b[36m" in tell(terminal(80))
    monkeypatch.setenv("NO_COLOR", "1")
    text = tell(terminal(80))
    assert "\x1b[36m" not in text
    assert "╭" in text
