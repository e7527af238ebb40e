"""``strandline sql``: DuckDB over logs, what is in the lake and what is not there yet."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from strandline.cli.asking import DEFAULT_URL, Key, Url
from strandline.cli.on_spark import Cold, Data, check_directory
from strandline.cli.showing import counted, print_line


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
    from strandline.cli.sql_answering import Source, answer

    source = Source(path, "" if path else url, key, cold, lake)
    with tempfile.TemporaryDirectory(prefix="strandline-sql-") as directory:
        result = answer(source, text, Path(directory))
        if as_json:
            result.print_json()
        elif as_csv:
            result.print_csv()
        elif parquet is not None:
            result.write_parquet(parquet)
            print_line(f"{counted(result.rows, 'row')}: {parquet}")
        else:
            result.print_table()
