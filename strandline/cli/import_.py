"""``strandline import``.

Exit codes: 0 done, 1 failed or invalid rows, 2 invalid arguments, 3 Spark or Java is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeVar

import msgspec
import typer

from strandline.cli.options import (
    KAFKA_PANEL,
    SERVER_PANEL,
    ApiKey,
    AsJson,
    Conf,
    ConnectorOptions,
    Jars,
    OptionalMaster,
    Packages,
    Remote,
    UseSpark,
)
from strandline.cli.output import counted, put, say
from strandline.cli.spark import (
    EXIT_FAILED,
    EXIT_USAGE,
    SparkOptions,
    errors,
    parse_conf,
    parse_pairs,
    watching,
    with_jars,
)
from strandline.cli.startup import keep_pandas_out

if TYPE_CHECKING:
    from strandline.pipeline.imports.files import Format, RowShape, SourceFile
    from strandline.pipeline.imports.kafka import KafkaTopics, Lost
    from strandline.pipeline.imports.messages import MessageShape, ValueFormat
    from strandline.pipeline.imports.run import Bad, ImportReport
    from strandline.pipeline.imports.value_decoder import ValueDecoder
    from strandline.pipeline.source.options import LogLocation

T = TypeVar("T")

#: The name of the job in Spark.
NAME = "strandline import"
#: Maximum number of invalid rows that are printed; --json has more.
SHOWN = 20


class FilePlan(NamedTuple):
    """The files to import, and how."""

    sources: list[str]
    #: The files, if they are known already.
    files: list[SourceFile] | None
    shape: RowShape


class KafkaPlan(NamedTuple):
    """The topics to import, and how."""

    topics: KafkaTopics
    shape: MessageShape
    decoder: ValueDecoder
    lost: Lost


class ImportWishes(NamedTuple):
    """What imports of files and topics share."""

    place: LogLocation
    bad: Bad
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
        list[str] | None,
        typer.Option(
            "--topic", metavar="TOPIC", help="Kafka only: topic to import. Repeatable.", rich_help_panel=KAFKA_PANEL
        ),
    ] = None,
    value_format: Annotated[
        Literal["json", "text", "base64", "bytes", "avro", "protobuf"] | None,
        typer.Option(
            "--value-format",
            help="Kafka only: content of the values. Default: json; bytes for logs of another content type.",
            rich_help_panel=KAFKA_PANEL,
        ),
    ] = None,
    schema: Annotated[
        Path | None,
        typer.Option(
            "--schema",
            metavar="FILE",
            help="Kafka only: Avro schema in JSON, or Protobuf descriptor set, of the values.",
            rich_help_panel=KAFKA_PANEL,
        ),
    ] = None,
    message: Annotated[
        str,
        typer.Option(
            "--message",
            metavar="NAME",
            help="Kafka only: Protobuf message of the values, such as shop.Order.",
            rich_help_panel=KAFKA_PANEL,
        ),
    ] = "",
    skip_bytes: Annotated[
        int,
        typer.Option(
            "--skip-bytes",
            metavar="N",
            min=0,
            help="Kafka only: bytes before the Avro or Protobuf content of a value; 5 for Avro with a schema registry.",
            rich_help_panel=KAFKA_PANEL,
        ),
    ] = 0,
    dead_letters: Annotated[
        str,
        typer.Option(
            "--dead-letters",
            metavar="LOG",
            help="Kafka only: append invalid messages to this log, with the reason.",
            rich_help_panel=KAFKA_PANEL,
        ),
    ] = "",
    lost: Annotated[
        Literal["stop", "skip"],
        typer.Option(
            "--lost",
            help="Kafka only: messages that the broker removed since the last import: stop, or skip and count them.",
            rich_help_panel=KAFKA_PANEL,
        ),
    ] = "stop",
    options: ConnectorOptions = None,
    jars: Jars = None,
    packages: Packages = None,
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
    and a repeated import appends nothing. If a row is invalid, nothing is appended, unless --bad skip is given. An
    import of Kafka topics appends the messages that are new since the last one. Spark is used for Kafka, for files of
    1 GiB or more if it is installed, and with --spark or another option of Spark.

    Exit codes: 0 done; 1 failed, or invalid rows; 2 invalid arguments; 3 Spark or Java is missing.

    Example:
      strandline import orders.csv --log orders --type cents=long --url http://127.0.0.1:4000
      strandline import exported/ --exported --data data
      strandline import s3://bucket/orders/ --format jsonl --log orders --data data --spark
      strandline import broker-1:9092 --format kafka --topic orders --log orders --url http://127.0.0.1:4000
    """
    if (data is None) == (url is None):
        raise typer.BadParameter("specify either --data or --url")
    spark_options = SparkOptions(spark, master, remote, with_jars(parse_conf(conf), jars, packages))
    spark_options.check()
    is_kafka = format == "kafka"
    _check_kafka_only(
        is_kafka, topics=topics, value_format=value_format, schema=schema, message=message, skip_bytes=skip_bytes,
        dead_letters=dead_letters, lost=lost != "stop", option=options,
    )  # fmt: skip
    if is_kafka:
        _check_kafka(spark_options, topics, bad, dead_letters)
    # Tasks append the messages of Kafka to a server themselves.
    if staging is None and spark_options.is_cluster and not (is_kafka and url is not None):
        raise typer.BadParameter(
            "a Spark cluster needs --staging: specify a location for temporary files that all machines share"
        )
    with errors():
        from strandline.pipeline.imports.files import BadShape, RowShape, find_files, format_of
        from strandline.pipeline.source.options import LogLocation

        files = None
        if format is None:
            files = _failures(lambda: find_files(sources))
        row_format: Format = "jsonl"
        if not is_kafka:
            row_format = _failures(lambda: format_of(files or [])) if format is None else _file_format(format)
        wishes = ImportWishes(LogLocation(url or "", api_key, data or ""), bad, job, staging)
        try:
            shape = RowShape(
                format=row_format,
                log=log, exported=exported, keep_ts=keep_ts, log_column=log_column, key_column=key_column,
                key_path=key_path, node_column=node_column, meta_column=meta_column, ts_column=ts_column,
                data_column=data_column, delimiter=delimiter, types=_types(types or []),
            )  # fmt: skip
            shape.check()
            if is_kafka:
                source = _topics(sources, topics or [], parse_pairs(options, "--option"))
                kafka_plan = _kafka_plan(
                    source, shape, wishes.place, value_format, schema, message, skip_bytes, dead_letters, lost
                )
                report = _failures(lambda: _run_kafka(kafka_plan, wishes, spark_options))
            else:
                plan = FilePlan(sources, files, shape)
                report = _failures(lambda: _run(plan, wishes, spark_options))
        except BadShape as error:
            raise typer.BadParameter(str(error)) from None
    _show(report, as_json, is_kafka, dead_letters)
    raise typer.Exit(EXIT_FAILED if report.stopped else 0)


def _file_format(format: Literal["parquet", "jsonl", "csv", "kafka"]) -> Format:
    assert format != "kafka"
    return format


def _types(texts: list[str]) -> dict[str, Any]:
    from strandline.pipeline.imports.files import CSV_TYPES

    pairs = parse_pairs(texts, "--type")
    for name, kind in pairs.items():
        if kind not in CSV_TYPES:
            raise typer.BadParameter(
                f"unknown type {kind!r} of column {name!r}; expected one of: {', '.join(CSV_TYPES)}",
                param_hint="--type",
            )
    return pairs


# --- Kafka ------------------------------------------------------------------------------------------------------------


def _check_kafka_only(is_kafka: bool, **given: object) -> None:
    for name, value in given.items():
        if value and not is_kafka:
            option = {"topics": "topic"}.get(name, name).replace("_", "-")
            raise typer.BadParameter(f"--{option} needs --format kafka")


def _check_kafka(spark: SparkOptions, topics: list[str] | None, bad: Bad, dead_letters: str) -> None:
    spark.check_for_kafka("--format kafka")
    if not topics:
        raise typer.BadParameter("--format kafka needs --topic: specify the topics to import")
    if bad == "skip" and dead_letters:
        raise typer.BadParameter("--bad skip cannot be combined with --dead-letters")


def _topics(sources: list[str], topics: list[str], options: dict[str, str]) -> KafkaTopics:
    from strandline.pipeline.imports.kafka import KafkaTopics

    found = KafkaTopics(servers=",".join(sources), topics=topics, options=options)
    found.check()
    return found


def _kafka_plan(
    topics: KafkaTopics,
    shape: RowShape,
    place: LogLocation,
    value_format: ValueFormat | None,
    schema: Path | None,
    message: str,
    skip_bytes: int,
    dead_letters: str,
    lost: Lost,
) -> KafkaPlan:
    """Find errors in the arguments before Spark starts. Raises BadShape."""
    from strandline.pipeline.imports.messages import MessageShape, fitting
    from strandline.pipeline.imports.value_decoder import ValueDecoder

    others = set(shape.columns) - ({"timestamp"} if shape.ts_column == "timestamp" else set())
    if others or shape.exported or not shape.log or shape.key_path:
        raise typer.BadParameter(
            "--format kafka needs --log and accepts no columns: the value of a message is the payload, its key the "
            "key, its headers the metadata. --ts-column timestamp keeps its time"
        )
    messages = MessageShape(
        log=shape.log, value=value_format or "json", has_times=shape.has_times, dead_letters=dead_letters
    )
    messages.check()
    messages = fitting(messages, place, topics.topics, is_chosen=value_format is not None)
    decoder = ValueDecoder(format=messages.value, schema=_content(schema), message=message, skip_bytes=skip_bytes)
    decoder.check()
    return KafkaPlan(topics, messages, decoder, lost)


def _content(schema: Path | None) -> bytes:
    if schema is None:
        return b""
    try:
        return schema.read_bytes()
    except OSError as error:
        raise typer.BadParameter(f"cannot read {schema}: {error.strerror}", param_hint="--schema") from None


def _run_kafka(plan: KafkaPlan, wishes: ImportWishes, spark: SparkOptions) -> ImportReport:
    from strandline.pipeline.imports.kafka import import_topics

    with spark.session(NAME) as session, watching() as reporter:
        return import_topics(
            session, plan.topics, plan.shape, plan.decoder, wishes.place, reporter,
            bad=wishes.bad, lost=plan.lost, job=wishes.job, staging=wishes.staging,
        )  # fmt: skip


# --- files and topics -------------------------------------------------------------------------------------------------


def _failures(run: Callable[[], T]) -> T:
    from strandline.pipeline.imports.files import NothingToImport, UnknownFormat, UnreadableFile
    from strandline.pipeline.imports.kafka_cluster import MissingPackage
    from strandline.pipeline.imports.staging import ImportFailed
    from strandline.pipeline.source.targets import CannotAppend

    try:
        return run()
    except (NothingToImport, UnknownFormat) as error:
        say(str(error))
        raise typer.Exit(EXIT_USAGE) from None
    except (UnreadableFile, ImportFailed, CannotAppend, MissingPackage) as error:
        say(str(error))
        raise typer.Exit(EXIT_FAILED) from None


def _run(plan: FilePlan, wishes: ImportWishes, spark: SparkOptions) -> ImportReport:
    from strandline.pipeline.imports.files import find_files
    from strandline.pipeline.imports.run import SPARK_FROM_BYTES, import_files, knowing
    from strandline.pipeline.source.targets import open_target

    keep_pandas_out()
    # Find errors in the arguments before Spark starts.
    files = find_files(plan.sources) if plan.files is None else plan.files
    shape = knowing(plan.shape, wishes.place)
    is_much = sum(file.size for file in files) >= SPARK_FROM_BYTES
    with (
        open_target(wishes.place, sync=False) as target,
        spark.workers(NAME, is_much) as workers,
        watching() as reporter,
    ):
        return import_files(
            workers, files, shape, target, reporter, bad=wishes.bad, job=wishes.job, staging=wishes.staging
        )


def _show(report: ImportReport, as_json: bool, is_kafka: bool, dead_letters: str) -> None:
    thing = "message" if is_kafka else "row"
    for place in report.places[:SHOWN]:
        say(f"{place.path}:{place.number}: {place.why}")
    if report.bad > SHOWN:
        say(f"… and {counted(report.bad - min(len(report.places), SHOWN), f'more invalid {thing}')}")
    bad = counted(report.bad, f"invalid {thing}")
    if as_json:
        put(msgspec.json.encode(report).decode())
    elif report.stopped:
        advice = "keep them with --dead-letters LOG" if is_kafka else "fix the rows"
        put(f"appended nothing: {bad}; {advice}, or skip them with --bad skip")
    else:
        before = f"; {report.there_before:,} were imported before" if report.there_before else ""
        skipped = f"; {bad} went to log {dead_letters}" if dead_letters else f"; skipped {bad}"
        lost = f"; the broker had removed {counted(report.lost, 'offset')}" if report.lost else ""
        logs = counted(len(report.appended), "log")
        put(f"appended {counted(report.records, 'record')} to {logs}{before}{skipped if report.bad else ''}{lost}")
