"""``strandline export``.

Exit codes: 0 it is done; 1 it failed, and nothing was exported; 2 the command makes no sense; 3 Spark or Java is
missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import msgspec
import typer
from rich.filesize import decimal

from strandline.cli.output import put, say
from strandline.cli.pipeline import parse_conf
from strandline.cli.spark import (
    EXIT_FAILED,
    EXIT_USAGE,
    AsJson,
    Cold,
    Conf,
    Data,
    Key,
    Master,
    Remote,
    Url,
    check_directory,
    errors,
    session,
    watching,
)
from strandline.cli.times import parse_time

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from strandline.lake.reporter import Reporter
    from strandline.pipeline.export.run import ExportReport, ExportSelection


class ExportSource(NamedTuple):
    """Where the records are: one of the path of a data directory, the url of a server, and the place of a lake."""

    path: str
    url: str
    key: str | None
    cold: str
    lake: str | None


def export_command(
    target: Annotated[
        str, typer.Option("--to", metavar="PLACE", help="Where the files go: a directory or s3://bucket/prefix.")
    ],
    logs: Annotated[
        list[str] | None, typer.Argument(metavar="[LOG]...", help="The logs; all, if none is named.")
    ] = None,
    format: Annotated[
        Literal["parquet", "jsonl", "csv"], typer.Option("--format", help="What the files are.")
    ] = "parquet",
    data: Data = None,
    url: Url = None,
    key: Key = None,
    lake: Annotated[str | None, typer.Option("--lake", metavar="PLACE", help="A lake.")] = None,
    cold: Cold = "",
    prefix: Annotated[str, typer.Option("--prefix", metavar="TEXT", help="Only logs whose names begin so.")] = "",
    from_seq: Annotated[int, typer.Option("--from-seq", metavar="SEQ", min=1, help="From this seq on.")] = 1,
    to_seq: Annotated[int | None, typer.Option("--to-seq", metavar="SEQ", min=1, help="Up to this seq.")] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="Of this time or later: ISO 8601 or milliseconds.")
    ] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="TIME", help="Of before this time.")] = None,
    record_key: Annotated[
        str | None, typer.Option("--record-key", metavar="TEXT", help="Only records with this key.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")] = False,
    master: Master = "local[*]",
    remote: Remote = None,
    conf: Conf = None,
    as_json: AsJson = False,
) -> None:
    """Write the records of logs to files, from a data directory, a server or a lake.

    Everything is there in the end, or nothing. What is in it is told in the file _export.json. `strandline import
    --exported` takes it back.

    Exit code 0: done; 1: failed, and nothing was exported; 2: the command makes no sense; 3: Spark or Java is missing.
    """
    if sum(one is not None for one in (data, url, lake)) != 1:
        raise typer.BadParameter("give one of --data, --url and --lake")
    path = check_directory(data)
    source = ExportSource(path, url or "", key, cold, lake)
    settings = parse_conf(conf or [])
    times = [
        None if text is None else parse_time(text, option) for text, option in ((since, "--since"), (until, "--until"))
    ]
    with errors():
        from strandline.history.pieces import Where
        from strandline.pipeline.export.files import TargetNotEmpty
        from strandline.pipeline.export.run import ExportFailed, ExportSelection
        from strandline.pipeline.round import Chosen

        selection = ExportSelection(
            Chosen(list(logs or ()), prefix), from_seq, to_seq, Where(record_key, times[0], times[1])
        )
        try:
            with session(master, remote, settings, "strandline export") as spark, watching() as reporter:
                report = _export(spark, reporter, source, target, format, selection, overwrite)
        except TargetNotEmpty as error:
            say(str(error))
            raise typer.Exit(EXIT_USAGE) from None
        except ExportFailed as error:
            say(str(error))
            raise typer.Exit(EXIT_FAILED) from None
    if as_json:
        put(msgspec.json.encode(report).decode())
    else:
        put(
            f"{report.records} records of {len(report.logs)} logs in {len(report.files)} files, "
            f"{decimal(report.bytes)}: {report.target}"
        )


def _export(
    spark: SparkSession,
    reporter: Reporter,
    source: ExportSource,
    target: str,
    format: Literal["parquet", "jsonl", "csv"],
    selection: ExportSelection,
    overwrite: bool,
) -> ExportReport:
    from strandline.history.source import open_history
    from strandline.lake.location import Lake
    from strandline.pipeline.export.run import export, export_lake

    if source.lake is not None:
        return export_lake(spark, Lake.at(source.lake), target, format, selection, reporter, overwrite=overwrite)
    history = open_history(path=source.path, url=source.url, key=source.key, cold_url=source.cold)
    try:
        return export(
            spark, history, target, format, selection, reporter, overwrite=overwrite, source=source.path or source.url
        )
    finally:
        history.close()
