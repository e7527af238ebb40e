"""The output of all commands.

At a terminal, control characters are escaped, because anyone may have written the records, keys, names and errors that
are printed. Output to a file or to another program is not changed.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TextIO, TypeAlias

from strandline.control_characters import visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text


def put(text: str = "", *, end: str = "\n", flush: bool = False, file: TextIO | None = None) -> None:
    """Print to standard output, or to ``file``."""
    file = sys.stdout if file is None else file
    print(visible(text) if file.isatty() else text, end=end, flush=flush, file=file)


def say(text: str) -> None:
    """Print a message for people on standard error, line by line. It is never data, so it is always escaped."""
    for line in text.splitlines() or [""]:
        print(f"strandline: {visible(line)}", file=sys.stderr, flush=True)


def discard_output() -> None:
    """Discard buffered output: flushing it at exit would fail again and change the exit code."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def open_console(*, stderr: bool = False, **options: Any) -> Console:
    """A terminal with colours and tables, whose text is escaped and whose own control sequences are not."""
    # Only commands that write to a terminal import rich.
    from strandline.cli.safe_console import SafeConsole

    return SafeConsole(stderr=stderr, **options)


# --- Printing: tables and colours at a terminal, plain text everywhere else, JSON for programs ----------------------

Cell: TypeAlias = "str | Text"


def print_json(value: object) -> None:
    """One line, flushed: a program may wait for it."""
    # Data is printed as it was written and may have line breaks between its members; JSON strings have none.
    import msgspec

    line = msgspec.json.encode(value).replace(b"\r", b" ").replace(b"\n", b" ")
    put(line.decode(), flush=True)


def counted(number: int, word: str) -> str:
    """``1 record``, ``2,000 records``."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def at_terminal() -> bool:
    """Whether standard output is a terminal."""
    return sys.stdout.isatty()


@lru_cache(maxsize=1)
def terminal() -> Console:
    """The terminal. Call it only if :func:`at_terminal`."""
    return open_console(highlight=False)


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    right: Sequence[str] = (),
    raw: Sequence[Sequence[object]] | None = None,
) -> None:
    """``right`` names the columns of numbers, which are aligned right. ``raw``: the rows as CSV, if they differ."""
    if prints_csv():
        put_csv(columns)
        for row in rows if raw is None else raw:
            put_csv([_number(cell) if name in right else cell for name, cell in zip(columns, row, strict=True)])
        return
    if not at_terminal():
        print_plain(columns, rows, right)
        return
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(name, justify="right" if name in right else "left", overflow="fold", no_wrap=name in right)
    for row in rows:
        # Escaped before it is wrapped: escapes are wider than the characters, and would not fit afterwards.
        table.add_row(*(cell if isinstance(cell, Text) else Text(visible(cell)) for cell in row))
    terminal().print(table)


def print_plain(columns: Sequence[str], rows: Sequence[Sequence[Cell]], right: Sequence[str] = ()) -> None:
    lines = [tuple(columns), *(tuple(_one_line(str(cell)) for cell in row) for row in rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(columns))]
    for line in lines:
        cells = [
            cell.rjust(width) if name in right else cell.ljust(width)
            for cell, width, name in zip(line, widths, columns, strict=True)
        ]
        put("  ".join(cells).rstrip())


def print_fields(fields: Mapping[str, Any]) -> None:
    """One line per field that has a value."""
    if prints_csv():
        put_csv(list(fields))
        put_csv([_number(value) for value in fields.values()])
        return
    shown = {name: str(value) for name, value in fields.items() if value not in (None, "")}
    width = max((len(name) for name in shown), default=0)
    if at_terminal():
        from rich.text import Text
    for name, value in shown.items():
        if at_terminal():
            terminal().print(Text(name.ljust(width), "bold"), Text(value), sep="  ", soft_wrap=True)
        else:
            put(f"{name.ljust(width)}  {_one_line(value)}")


def print_line(text: Cell) -> None:
    """A line for people. It is not part of a table, so it is a message where the output is CSV."""
    if prints_csv():
        say(str(text))
    elif at_terminal():
        from rich.text import Text

        terminal().print(text if isinstance(text, Text) else Text(text), soft_wrap=True)
    else:
        put(str(text), flush=True)


# --- CSV ------------------------------------------------------------------------------------------------------------

_csv = False
#: A number as people read it.
_GROUPED = re.compile(r"\d{1,3}(,\d{3})+")


@contextmanager
def printing_csv() -> Iterator[None]:
    """Print tables, objects and records as CSV."""
    global _csv
    _csv = True
    try:
        yield
    finally:
        _csv = False


def prints_csv() -> bool:
    return _csv


def put_csv(values: Sequence[object]) -> None:
    """Print a row of CSV."""
    import csv
    import io

    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(["" if value is None else str(value) for value in values])
    put(line.getvalue(), end="")


def _number(value: object) -> object:
    """A number for programs: without commas between its digits."""
    return value.replace(",", "") if isinstance(value, str) and _GROUPED.fullmatch(value) else value


def _one_line(text: str) -> str:
    return text.replace("\n", "\\n") if "\n" in text else text
