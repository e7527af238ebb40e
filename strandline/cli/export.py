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
    NamePrefix,
    OptionalMaster,
    RecordKey,
    Remote,
    SourceUrl,
    UseSpark,
)
from strandline.cli.output import counted, put, say
from strandline.cli.spark import (
    EXIT_FAILED,
    EXIT_USAGE,
    LogSource,
    SparkOptions,
    errors,
    log_source,
    parse_conf,
    watching,
)
from strandline.cli.startup import keep_pandas_out
from strandline.cli.times import parse_time
from strandline.lake.location import Lake

if TYPE_CHECKING:
    from strandline.pipeline.export.files import Format
    from strandline.pipeline.export.run import ExportReport, ExportSelection

#: The name of the job in Spark.
NAME = "strandline export"


def export_command(
    target: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="LOCATION",
            help="A file .parquet, .jsonl or .csv, or a directory for several files; also s3://bucket/prefix.",
        ),
    ],
    logs: Annotated[
        list[str] | None, typer.Argument(metavar="[LOG]...", help="Logs to export. Default: all logs.")
    ] = None,
    format: Annotated[
        Literal["parquet", "jsonl", "csv"] | None,
        typer.Option("--format", help="Format of the files. Default: the extension of the file, or parquet."),
    ] = None,
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
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the file or the previous export in the destination.")
    ] = False,
    spark: UseSpark = None,
    master: OptionalMaster = None,
    remote: Remote = None,
    conf: Conf = None,
    as_json: AsJson = False,
) -> None:
    """Export the records of logs to Parquet, JSON or CSV files.

    Specify one source: --data, --url or --lake. The export is complete or has no effect. A name with the extension of a
    format is one file; any other name is a directory, which the file _export.json describes. `strandline import
    --exported` imports both again. Spark is used for --lake, for a directory with 5,000,000 records or more if it is
    installed, and with --spark or another option of Spark.

    Exit codes: 0 done; 1 failed, nothing was exported; 2 invalid arguments; 3 Spark or Java is missing.

    Example:
      strandline export orders --data data --to orders.parquet
      strandline export --url http://127.0.0.1:4000 --to exported/ --format jsonl
    """
    if sum(one is not None for one in (data, url, lake)) != 1:
        raise typer.BadParameter("specify exactly one of --data, --url and --lake")
    source = Lake.at(lake) if lake is not None else log_source(data, url, api_key, cold)
    spark_options = SparkOptions(spark, master, remote, parse_conf(conf))
    spark_options.check()
    times = [
        None if text is None else parse_time(text, option) for text, option in ((since, "--since"), (until, "--until"))
    ]
    with errors():
        from strandline.history.pieces import Where
        from strandline.pipeline.chosen_logs import Chosen
        from strandline.pipeline.export.files import BadTarget, TargetNotEmpty, format_for, format_of_file
        from strandline.pipeline.export.run import ExportFailed, ExportSelection

        selection = ExportSelection(
            Chosen(list(logs or ()), prefix), from_seq, to_seq, Where(record_key, times[0], times[1])
        )
        try:
            chosen_format = format_for(target, format)
        except BadTarget as error:
            raise typer.BadParameter(str(error)) from None
        if isinstance(source, Lake) and spark is False:
            raise typer.BadParameter("--lake needs Spark: leave out --no-spark")
        if format_of_file(target) is not None and (isinstance(source, Lake) or spark_options.is_wanted):
            raise typer.BadParameter(
                f"Spark and --lake write several files: name a directory, such as {target.rpartition('.')[0]}/",
                param_hint="--to",
            )
        try:
            report = _export(source, target, chosen_format, selection, overwrite, spark_options)
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
    source: LogSource | Lake,
    target: str,
    format: Format,
    selection: ExportSelection,
    overwrite: bool,
    spark: SparkOptions,
) -> ExportReport:
    if isinstance(source, Lake):
        from strandline.pipeline.export.from_lake import export_lake

        with spark.session(NAME) as session, watching() as reporter:
            return export_lake(session, source, target, format, selection, reporter, overwrite=overwrite)
    from strandline.pipeline.export.files import format_of_file
    from strandline.pipeline.export.run import SPARK_FROM_RECORDS, chosen_logs, export, records_in

    keep_pandas_out()
    with source.opened() as history:
        logs = chosen_logs(history, selection)
        # One file is written from beginning to end, so Spark cannot help.
        is_much = format_of_file(target) is None and records_in(logs, selection) >= SPARK_FROM_RECORDS
        with spark.workers(NAME, is_much) as workers, watching() as reporter:
            return export(
                workers, history, target, format, selection, reporter,
                logs=logs, overwrite=overwrite, source=str(source),
            )  # fmt: skip
