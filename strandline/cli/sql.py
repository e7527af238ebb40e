"""``strandline sql``: DuckDB over logs, from the lake and from everything newer."""

from __future__ import annotations

import csv
import sys
import tempfile
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from strandline.cli.options import ApiKey, Cold, Data, Url
from strandline.cli.output import counted, print_json, print_line, print_table, put, say
from strandline.cli.server_choice import DEFAULT_URL
from strandline.cli.spark import check_directory

if TYPE_CHECKING:
    from strandline.sql.results import Result

#: Maximum number of rows of a printed table.
SHOWN_ROWS = 1000


def sql_command(
    statement: Annotated[
        str,
        typer.Argument(
            metavar="STATEMENT", help="One SQL statement in DuckDB's dialect; - reads it from standard input."
        ),
    ],
    data: Data = None,
    lake: Annotated[
        str | None,
        typer.Option(
            "--lake",
            metavar="LOCATION",
            help="Location of the lake: a directory or s3://bucket/prefix. Default: DIR/lake, or the server's lake.",
        ),
    ] = None,
    cold: Cold = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per row.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV with a header.")] = False,
    parquet: Annotated[
        Path | None, typer.Option("--parquet", metavar="FILE", help="Write the rows to a Parquet file.")
    ] = None,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Query logs with SQL. Every log is a table with the columns seq, ts, key, node, meta and data.

    The name of a table or a collection queries all its rows or elements, with a column for each field of the payload.
    A declared table of the lake is a table with its own columns.
    `show tables` lists all of them, and `describe NAME` their columns.
    Quote the name of a log that is not an identifier: "shop/orders". Only logs that the statement names are read:
    records that the pipeline has copied to the lake come from the lake, newer ones from the log. Records that retention
    removed from a log stay in the lake; deleted records are in neither.

    Example:
      strandline sql "show tables"
      strandline sql "select key, count(*) from orders group by key"
      strandline sql --data data 'from "shop/orders" limit 10' --csv
      strandline sql "select * from revenue order by minute desc limit 10"
      strandline sql 'select parent, count(*) from vote group by parent'
    """
    if as_json + as_csv + (parquet is not None) > 1:
        raise typer.BadParameter("specify only one of --json, --csv and --parquet")
    text = sys.stdin.read() if statement == "-" else statement
    if not text.strip(" \t\r\n;"):
        raise typer.BadParameter("the statement is empty; expected one SQL statement", param_hint="STATEMENT")
    path = check_directory(data)
    # Only this command imports DuckDB.
    from strandline.sql.engine import SqlSource, answer

    source = SqlSource(path, "" if path else url, api_key, cold, lake, say)
    with tempfile.TemporaryDirectory(prefix="strandline-sql-") as directory:
        result = answer(source, text, Path(directory))
        if as_json:
            for row in result.objects():
                print_json(row)
        elif as_csv:
            _print_csv(result)
        elif parquet is not None:
            result.write_parquet(parquet)
            print_line(f"wrote {counted(result.rows, 'row')} to {parquet}")
        else:
            _print_table(result)


def _print_table(result: Result) -> None:
    if not result.names:
        return
    rows = [tuple(value or "" for value in row) for row in islice(result.texts(), SHOWN_ROWS)]
    print_table(result.names, rows, right=result.numbers)
    if result.rows > SHOWN_ROWS:
        print_line(f"{SHOWN_ROWS:,} of {result.rows:,} rows; print all of them with --json, --csv or --parquet")


def _print_csv(result: Result) -> None:
    writer = csv.writer(_Output(), lineterminator="\n")
    writer.writerow(result.names)
    writer.writerows(result.texts())


class _Output:
    """Standard output, as a file to write to."""

    def write(self, text: str) -> None:
        put(text, end="")
