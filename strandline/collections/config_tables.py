"""Tables of a configuration file, which know the lines of their keys, and values in messages about the file."""

from __future__ import annotations

from reprlib import Repr
from typing import Any

_shown = Repr()
_shown.maxstring = _shown.maxlong = _shown.maxother = 80


def shown(value: object) -> str:
    """A value in a message, shortened: it can be as long as the file."""
    return _shown.repr(value)


class BadConfigFile(ValueError):
    """A file that cannot be read. The message names the file and, if known, the line."""


class Table(dict[str, Any]):
    """A table in a file. ``line`` is the line on which it starts, ``lines`` are the lines of its keys."""

    def __init__(self, values: dict[str, Any], line: int, lines: dict[str, int]) -> None:
        super().__init__(values)
        self.line = line
        self.lines = lines


def line_of(given: object, key: str | None = None) -> str:
    """The line of a table, or of one of its keys, as a part of a message; empty if it is not known."""
    if not isinstance(given, Table):
        return ""
    line = given.line if key is None else given.lines.get(key)
    return "" if line is None else f" (line {line})"
