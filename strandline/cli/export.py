"""``strandline export``.

Exit codes: 0 done, 1 failed without a trace, 2 invalid arguments, 3 Spark or Java is missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
import typer
from rich.filesize import decimal

from strandline.cli.options import (
    ApiKey,
    AsJson,
    Cold,
    Conf,
    Data,
    Master,
    NamePrefix,
    RecordKey,
    Remote,
    SourceUrl,
)
from strandline.cli.output import counted, put, say
from strandline.cli.spark import (
    EXIT_FAILED,
    EXIT_USAGE,
    LogSource,
    errors,
    log_source,
    parse_conf,
    session,
    watching,
)
from strandline.cli.times import parse_time
from strandline.lake.location import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from strandline.lake.reporter import Reporter
    from strandline.pipeline.export.run import ExportReport, ExportSelection


def export_command(
    target: Annotated[
        str,
        typer.Option("--to", metavar="LOCATION", help="Destination of the files: a directory or s3://bucket/prefix."),
    ],
    logs: Annotated[
        list[str] | None, typer.Argument(metavar="[LOG]...", help="Logs to export. Default: all logs.")
    ] = None,
    format: Annotated[
        Literal["parquet", "jsonl", "csv"], typer.Option("--format", help="Format of the files.")
    ] = "parquet",
    data: Data = None,
    url: SourceUrl = None,
    api_key: ApiKey = None,
    lake: Annotated[
        str | None,
        typer.Option("--lake", metavar="LOCATION", help="Read this lake: a directory or s3://bucket/prefix."),
    ] = None,
    cold: Cold = "",
    prefix: NamePrefix = "",
    from_seq: Annotated[
        int, typer.Option("--from-seq", metavar="SEQ", min=1, help="Only records from this sequence number on.")
    ] = 1,
    to_seq: Annotated[
        int | None,
        typer.Option("--to-seq", metavar="SEQ", min=1, help="Only records up to this sequence number. Default: all."),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since", metavar="TIME", help="Only records from this time on: ISO 8601 or milliseconds since 1970."
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="TIME", help="Only records before this time, given as for --since."),
    ] = None,
    record_key: RecordKey = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace existing files in the destination.")] = False,
    master: Master = "local[*]",
    remote: Remote = None,
    conf: Conf = None,
    as_json: AsJson = False,
) -> None:
    """Export the records of logs to Parquet, JSON or CSV files.

    Specify one source: --data, --url or --lake. The export is complete or has no effect. The file _export.json in the
    destination describes it. `strandline import --exported` imports the files again.

    Exit codes: 0 done; 1 failed, nothing was exported; 2 invalid arguments; 3 Spark or Java is missing.

    Example:
      strandline export orders --data data --to export/ --format jsonl
    """
    if sum(one is not None for one in (data, url, lake)) != 1:
        raise typer.BadParameter("specify exactly one of --data, --url and --lake")
    source = Lake.at(lake) if lake is not None else log_source(data, url, api_key, cold)
    properties = parse_conf(conf)
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
            with session(master, remote, properties, "strandline export") as spark, watching() as reporter:
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
            f"exported {counted(report.records, 'record')} of {counted(len(report.logs), 'log')} to "
            f"{counted(len(report.files), 'file')}, {decimal(report.bytes)}: {report.target}"
        )


def _export(
    spark: SparkSession,
    reporter: Reporter,
    source: LogSource | Lake,
    target: str,
    format: Literal["parquet", "jsonl", "csv"],
    selection: ExportSelection,
    overwrite: bool,
) -> ExportReport:
    from strandline.pipeline.export.run import export, export_lake

    if isinstance(source, Lake):
        return export_lake(spark, source, target, format, selection, reporter, overwrite=overwrite)
    with source.opened() as history:
        return export(spark, history, target, format, selection, reporter, overwrite=overwrite, source=str(source))
