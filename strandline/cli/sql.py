"""``strandline sql``: DuckDB over logs, what is in the lake and what is not there yet."""

from __future__ import annotations

import csv
import sys
import tempfile
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from strandline.cli.connection import DEFAULT_URL, Key, Url
from strandline.cli.output import counted, print_json, print_line, print_table, put, say
from strandline.cli.spark import Cold, Data, check_directory

if TYPE_CHECKING:
    from strandline.sql.results import Result

#: The most rows of a table for people.
SHOWN_ROWS = 1000


def sql_command(
    statement: Annotated[
        str, typer.Argument(metavar="STATEMENT", help="One statement of DuckDB's SQL; - reads it from standard input.")
    ],
    data: Data = None,
    lake: Annotated[
        str | None,
        typer.Option("--lake", metavar="PLACE", help="Where the lake is; else DIR/lake, or what the server says."),
    ] = None,
    cold: Cold = "",
    as_json: Annotated[bool, typer.Option("--json", help="A JSON object per row.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="CSV, with a header.")] = False,
    parquet: Annotated[Path | None, typer.Option("--parquet", metavar="FILE", help="Write a Parquet file.")] = None,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """Query logs with SQL: every log is a table, with the columns seq, ts, key, node, meta and data (JSON).

    A name that is no plain word goes in quotes: select data->>'item' from "shop/orders". Only logs that are named are
    read: what the pipeline has put into the lake from there, everything newer from the log. What a cap or time took
    from a log stays in the lake, what was deleted is in neither.
    """
    if as_json + as_csv + (parquet is not None) > 1:
        raise typer.BadParameter("give one of --json, --csv and --parquet")
    text = sys.stdin.read() if statement == "-" else statement
    if not text.strip(" \t\r\n;"):
        raise typer.BadParameter("it is empty", param_hint="STATEMENT")
    path = check_directory(data)
    # DuckDB and the lake, which no other command needs.
    from strandline.sql.engine import SqlSource, answer

    source = SqlSource(path, "" if path else url, key, cold, lake, say)
    with tempfile.TemporaryDirectory(prefix="strandline-sql-") as directory:
        result = answer(source, text, Path(directory))
        if as_json:
            for row in result.objects():
                print_json(row)
        elif as_csv:
            _print_csv(result)
        elif parquet is not None:
            result.write_parquet(parquet)
            print_line(f"{counted(result.rows, 'row')}: {parquet}")
        else:
            _print_table(result)


def _print_table(result: Result) -> None:
    if not result.names:
        return
    rows = [tuple(value or "" for value in row) for row in islice(result.texts(), SHOWN_ROWS)]
    print_table(result.names, rows, right=result.numbers)
    if result.rows > SHOWN_ROWS:
        print_line(f"the first {SHOWN_ROWS:,} of {result.rows:,} rows: --json, --csv and --parquet have all of them")


def _print_csv(result: Result) -> None:
    writer = csv.writer(_Output(), lineterminator="\n")
    writer.writerow(result.names)
    writer.writerows(result.texts())


class _Output:
    """Standard output, as a file to write to."""

    def write(self, text: str) -> None:
        put(text, end="")
