"""``strandline import``.

Exit codes: 0 done, 1 failed or invalid rows, 2 invalid arguments, 3 Spark or Java is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeVar

import msgspec
import typer

from strandline.cli.options import SERVER_PANEL, SPARK_PANEL, ApiKey, AsJson, Conf, OptionalMaster, Remote, UseSpark
from strandline.cli.output import counted, put, say
from strandline.cli.spark import EXIT_FAILED, EXIT_USAGE, SparkOptions, errors, parse_conf, watching
from strandline.cli.startup import keep_pandas_out

if TYPE_CHECKING:
    from strandline.pipeline.imports.files import Format, RowShape, SourceFile
    from strandline.pipeline.imports.run import ImportReport
    from strandline.pipeline.source.options import LogLocation

T = TypeVar("T")

#: The name of the job in Spark.
NAME = "strandline import"
#: Maximum number of invalid rows that are printed; --json has more.
SHOWN = 20


class ImportPlan(NamedTuple):
    """What to import, and how."""

    sources: list[str]
    #: The files, if they are known already.
    files: list[SourceFile] | None
    is_kafka: bool
    topics: list[str]
    options: dict[str, str]
    bad: Literal["stop", "skip"]
    job: str
    staging: str | None


def import_command(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE...",
            help="Files, directories, patterns or s3://bucket/prefix; for Kafka: bootstrap servers, host:port.",
        ),
    ],
    format: Annotated[
        Literal["parquet", "jsonl", "csv", "kafka"] | None,
        typer.Option(
            "--format",
            help="Format of the source. Default: the extension of the files: .csv, .jsonl, .ndjson or .parquet.",
        ),
    ] = None,
    log: Annotated[
        str, typer.Option("--log", metavar="LOG", help="Log to append to; created if it does not exist.")
    ] = "",
    url: Annotated[
        str | None,
        typer.Option(
            "--url", metavar="URL", help="Append through the server at this URL.", rich_help_panel=SERVER_PANEL
        ),
    ] = None,
    api_key: ApiKey = None,
    data: Annotated[
        str | None,
        typer.Option("--data", metavar="DIR", help="Append to this data directory. No server may be running on it."),
    ] = None,
    exported: Annotated[
        bool,
        typer.Option(
            "--exported",
            help="The files are from `strandline export`. Without --log, each record goes to the log it came from.",
        ),
    ] = False,
    keep_ts: Annotated[
        bool, typer.Option("--keep-ts", help="With --exported: keep the timestamps of the records.")
    ] = False,
    data_column: Annotated[
        str | None,
        typer.Option("--data-column", metavar="COLUMN", help="Column of the payload. Default: the whole row."),
    ] = None,
    key_column: Annotated[
        str | None, typer.Option("--key-column", metavar="COLUMN", help="Column of the record key. Default: no key.")
    ] = None,
    key_path: Annotated[
        str | None,
        typer.Option(
            "--key-path", metavar="POINTER", help="JSON pointer to the record key in the payload, such as /user/id."
        ),
    ] = None,
    node_column: Annotated[
        str | None, typer.Option("--node-column", metavar="COLUMN", help="Column of the node. Default: no node.")
    ] = None,
    meta_column: Annotated[
        str | None,
        typer.Option("--meta-column", metavar="COLUMN", help="Column of the metadata, in JSON. Default: no metadata."),
    ] = None,
    ts_column: Annotated[
        str | None,
        typer.Option(
            "--ts-column",
            metavar="COLUMN",
            help="Column of the time: ISO 8601 or milliseconds since 1970. For Kafka: timestamp.",
        ),
    ] = None,
    log_column: Annotated[
        str | None, typer.Option("--log-column", metavar="COLUMN", help="Column with the name of the log to append to.")
    ] = None,
    delimiter: Annotated[
        str, typer.Option("--delimiter", metavar="CHARACTER", help="CSV only: the delimiter of the columns.")
    ] = ",",
    types: Annotated[
        list[str] | None,
        typer.Option(
            "--type",
            metavar="COLUMN=TYPE",
            help="CSV only: type of a column (long, double, boolean, json). Default: text. Repeatable.",
        ),
    ] = None,
    topics: Annotated[
        list[str] | None, typer.Option("--topic", metavar="TOPIC", help="Kafka only: topic to import. Repeatable.")
    ] = None,
    options: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="NAME=VALUE", help="Kafka only: option of Spark's connector. Repeatable."),
    ] = None,
    jars: Annotated[
        list[str] | None,
        typer.Option("--jar", metavar="FILE", help="Jar that Spark needs. Repeatable.", rich_help_panel=SPARK_PANEL),
    ] = None,
    packages: Annotated[
        list[str] | None,
        typer.Option(
            "--packages",
            metavar="PACKAGE",
            help="Maven package that Spark downloads. Repeatable.",
            rich_help_panel=SPARK_PANEL,
        ),
    ] = None,
    bad: Annotated[
        Literal["stop", "skip"],
        typer.Option("--bad", help="Rows that cannot become records: stop and append nothing, or skip them."),
    ] = "stop",
    job: Annotated[
        str,
        typer.Option("--job", metavar="NAME", help="Name of the import; a new name imports the same source once more."),
    ] = "",
    staging: Annotated[
        str | None,
        typer.Option(
            "--staging",
            metavar="LOCATION",
            help="Directory for temporary files. On a cluster: a location that all machines share.",
        ),
    ] = None,
    spark: UseSpark = None,
    master: OptionalMaster = None,
    remote: Remote = None,
    conf: Conf = None,
    as_json: AsJson = False,
) -> None:
    """Import the rows of files, or the messages of Kafka topics, into logs.

    Specify the destination with --data or --url. Every row is appended once: after a crash, the same command continues,
    and a repeated import appends nothing. If a row is invalid, nothing is appended, unless --bad skip is given. Spark
    is used for Kafka, for files of 1 GiB or more if it is installed, and with --spark or another option of Spark.

    Exit codes: 0 done; 1 failed, or invalid rows; 2 invalid arguments; 3 Spark or Java is missing.

    Example:
      strandline import orders.csv --log orders --type cents=long --url http://127.0.0.1:4000
      strandline import exported/ --exported --data data
      strandline import s3://bucket/orders/ --format jsonl --log orders --data data --spark
    """
    if (data is None) == (url is None):
        raise typer.BadParameter("specify either --data or --url")
    properties = parse_conf(conf)
    if jars:
        properties["spark.jars"] = ",".join(jars)
    if packages:
        properties["spark.jars.packages"] = ",".join(packages)
    spark_options = SparkOptions(spark, master, remote, properties)
    spark_options.check()
    if staging is None and spark_options.is_cluster:
        raise typer.BadParameter(
            "a Spark cluster needs --staging: specify a location for temporary files that all machines share"
        )
    if format == "kafka" and spark is False:
        raise typer.BadParameter("--format kafka needs Spark: leave out --no-spark")
    with errors():
        from strandline.pipeline.imports.files import BadShape, RowShape, find_files, format_of
        from strandline.pipeline.source.options import LogLocation

        files = None
        if format is None:
            files = _failures(lambda: find_files(sources))
        row_format: Format = "jsonl"
        if format != "kafka":
            row_format = _failures(lambda: format_of(files or [])) if format is None else format
        try:
            shape = RowShape(
                format=row_format,
                log=log, exported=exported, keep_ts=keep_ts, log_column=log_column, key_column=key_column,
                key_path=key_path, node_column=node_column, meta_column=meta_column, ts_column=ts_column,
                data_column=data_column, delimiter=delimiter, types=_types(types or []),
            )  # fmt: skip
            shape.check()
        except BadShape as error:
            raise typer.BadParameter(str(error)) from None
        plan = ImportPlan(
            sources, files, format == "kafka", topics or [], _pairs(options or [], "--option"), bad, job, staging
        )
        _check_kafka(plan, shape)
        place = LogLocation(url or "", api_key, data or "")
        report = _failures(lambda: _run(plan, shape, place, spark_options))
    _show(report, as_json)
    raise typer.Exit(EXIT_FAILED if report.stopped else 0)


def _pairs(texts: list[str], option: str) -> dict[str, str]:
    pairs = dict(text.partition("=")[::2] for text in texts)
    for text in texts:
        if "=" not in text:
            raise typer.BadParameter(f"{text!r} is not valid; expected name=value", param_hint=option)
    return pairs


def _types(texts: list[str]) -> dict[str, Any]:
    from strandline.pipeline.imports.files import CSV_TYPES

    pairs = _pairs(texts, "--type")
    for name, kind in pairs.items():
        if kind not in CSV_TYPES:
            raise typer.BadParameter(
                f"unknown type {kind!r} of column {name!r}; expected one of: {', '.join(CSV_TYPES)}",
                param_hint="--type",
            )
    return pairs


def _check_kafka(plan: ImportPlan, shape: RowShape) -> None:
    if not plan.is_kafka:
        if plan.topics or plan.options:
            raise typer.BadParameter("--topic and --option need --format kafka")
        return
    if not plan.topics:
        raise typer.BadParameter("--format kafka needs --topic: specify the topics to import")
    others = set(shape.columns) - {"timestamp"}
    if others or shape.exported or not shape.log or shape.key_path:
        raise typer.BadParameter(
            "--format kafka needs --log and accepts no columns: the value of a message is the payload, its key the key"
        )


def _failures(run: Callable[[], T]) -> T:
    from strandline.pipeline.imports.files import NothingToImport, UnknownFormat, UnreadableFile
    from strandline.pipeline.imports.kafka import NoConnector
    from strandline.pipeline.imports.staging import ImportFailed
    from strandline.pipeline.source.targets import CannotAppend

    try:
        return run()
    except (NothingToImport, UnknownFormat) as error:
        say(str(error))
        raise typer.Exit(EXIT_USAGE) from None
    except (UnreadableFile, ImportFailed, CannotAppend, NoConnector) as error:
        say(str(error))
        raise typer.Exit(EXIT_FAILED) from None


def _run(plan: ImportPlan, shape: RowShape, place: LogLocation, spark: SparkOptions) -> ImportReport:
    from strandline.pipeline.imports.files import find_files
    from strandline.pipeline.imports.run import SPARK_FROM_BYTES, import_files, knowing
    from strandline.pipeline.source.targets import open_target

    if plan.is_kafka:
        return _run_kafka(plan, shape, place, spark)
    keep_pandas_out()
    # Find errors in the arguments before Spark starts.
    files = find_files(plan.sources) if plan.files is None else plan.files
    shape = knowing(shape, place)
    is_much = sum(file.size for file in files) >= SPARK_FROM_BYTES
    with (
        open_target(place, sync=False) as target,
        spark.workers(NAME, is_much) as workers,
        watching() as reporter,
    ):
        return import_files(workers, files, shape, target, reporter, bad=plan.bad, job=plan.job, staging=plan.staging)


def _run_kafka(plan: ImportPlan, shape: RowShape, place: LogLocation, spark: SparkOptions) -> ImportReport:
    from strandline.pipeline.imports.kafka import import_messages, messages
    from strandline.pipeline.imports.run import knowing
    from strandline.pipeline.source.targets import open_target

    shape = knowing(shape, place)
    with open_target(place, sync=False) as target, spark.session(NAME) as session, watching() as reporter:
        servers = ",".join(plan.sources)
        frame = messages(session, servers, plan.topics, plan.options)
        return import_messages(
            frame, shape, target, reporter, source=servers, bad=plan.bad, job=plan.job, staging=plan.staging
        )


def _show(report: ImportReport, as_json: bool) -> None:
    for place in report.places[:SHOWN]:
        say(f"{place.path}:{place.number}: {place.why}")
    if report.bad > SHOWN:
        say(f"… and {counted(report.bad - min(len(report.places), SHOWN), 'more invalid row')}")
    if as_json:
        put(msgspec.json.encode(report).decode())
    elif report.stopped:
        put(f"appended nothing: {counted(report.bad, 'invalid row')}; fix the rows, or skip them with --bad skip")
    else:
        before = f"; {report.there_before:,} were imported before" if report.there_before else ""
        skipped = f"; skipped {counted(report.bad, 'invalid row')}" if report.bad else ""
        put(f"appended {counted(report.records, 'record')} to {counted(len(report.appended), 'log')}{before}{skipped}")
