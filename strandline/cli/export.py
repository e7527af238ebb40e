"""``strandline export``.

Exit codes: 0 done, 1 failed without a trace, 2 invalid arguments, 3 Spark or Java is missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
import typer
from rich.filesize import decimal

from strandline.cli.options import (
    KAFKA_PANEL,
    ApiKey,
    AsJson,
    Cold,
    Conf,
    ConnectorOptions,
    Data,
    Jars,
    NamePrefix,
    OptionalMaster,
    Packages,
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
    parse_pairs,
    watching,
    with_jars,
)
from strandline.cli.startup import keep_pandas_out
from strandline.cli.times import parse_time
from strandline.lake.location import Lake

if TYPE_CHECKING:
    from strandline.client import Client
    from strandline.pipeline.export.files import Format
    from strandline.pipeline.export.run import ExportReport, ExportSelection
    from strandline.pipeline.export.to_kafka import ConsumerPositions, KafkaExportReport, KafkaTarget, Lost

#: The name of the job in Spark.
NAME = "strandline export"


def export_command(
    target: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="LOCATION",
            help="A file .parquet, .jsonl or .csv, or a directory for several files; also s3://bucket/prefix, or "
            "kafka://HOST:PORT/TOPIC.",
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
    consumer: Annotated[
        str | None,
        typer.Option(
            "--consumer",
            metavar="NAME",
            help="Kafka only: export the records after the position of this consumer, and move it. Needs --url.",
            rich_help_panel=KAFKA_PANEL,
        ),
    ] = None,
    lost: Annotated[
        Literal["stop", "skip"],
        typer.Option(
            "--lost",
            help="Kafka only: records that retention removed before the consumer had them: stop, or skip and count "
            "them.",
            rich_help_panel=KAFKA_PANEL,
        ),
    ] = "stop",
    options: ConnectorOptions = None,
    jars: Jars = None,
    packages: Packages = None,
    spark: UseSpark = None,
    master: OptionalMaster = None,
    remote: Remote = None,
    conf: Conf = None,
    as_json: AsJson = False,
) -> None:
    """Export the records of logs to Parquet, JSON or CSV files, or to a Kafka topic.

    Specify one source: --data, --url or --lake. The export is complete or has no effect. A name with the extension of a
    format is one file; any other name is a directory, which the file _export.json describes. `strandline import
    --exported` imports both again. Spark is used for --lake, for Kafka, for a directory with 5,000,000 records or more
    if it is installed, and with --spark or another option of Spark.

    An export to Kafka sends each record at least once, in the order of its log. With --consumer, a repeated export
    continues after the last one; without it, everything is sent again.

    Exit codes: 0 done; 1 failed, nothing was exported; 2 invalid arguments; 3 Spark or Java is missing.

    Example:
      strandline export orders --data data --to orders.parquet
      strandline export --url http://127.0.0.1:4000 --to exported/ --format jsonl
      strandline export orders --url http://127.0.0.1:4000 --to kafka://broker-1:9092/orders --consumer to-kafka
    """
    if sum(one is not None for one in (data, url, lake)) != 1:
        raise typer.BadParameter("specify exactly one of --data, --url and --lake")
    source = Lake.at(lake) if lake is not None else log_source(data, url, api_key, cold)
    spark_options = SparkOptions(spark, master, remote, with_jars(parse_conf(conf), jars, packages))
    spark_options.check()
    times = [
        None if text is None else parse_time(text, option) for text, option in ((since, "--since"), (until, "--until"))
    ]
    with errors():
        from strandline.history.pieces import Where
        from strandline.pipeline.chosen_logs import Chosen
        from strandline.pipeline.export.files import BadTarget, TargetNotEmpty, format_for, format_of_file
        from strandline.pipeline.export.run import ExportFailed, ExportSelection
        from strandline.pipeline.export.to_kafka import SCHEME, KafkaTarget
        from strandline.pipeline.imports.kafka_cluster import MissingPackage

        selection = ExportSelection(
            Chosen(list(logs or ()), prefix), from_seq, to_seq, Where(record_key, times[0], times[1])
        )
        is_kafka = target.startswith(SCHEME)
        _check_kafka_only(is_kafka, consumer=consumer, lost=lost != "stop", option=options)
        try:
            if is_kafka:
                topic = KafkaTarget.at(target, parse_pairs(options, "--option"))
                selected = from_seq > 1 or since is not None or until is not None
                _check_kafka(source, spark_options, consumer, selected, overwrite or format is not None)
            else:
                chosen_format = format_for(target, format)
        except BadTarget as error:
            raise typer.BadParameter(str(error)) from None
        if is_kafka:
            assert not isinstance(source, Lake)
            try:
                sent = _export_to_kafka(source, topic, selection, consumer, lost, spark_options)
            except (ExportFailed, MissingPackage) as error:
                say(str(error))
                raise typer.Exit(EXIT_FAILED) from None
            _show_sent(sent, as_json)
            return
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


# --- Kafka ------------------------------------------------------------------------------------------------------------


def _check_kafka_only(is_kafka: bool, **given: object) -> None:
    for name, value in given.items():
        if value and not is_kafka:
            raise typer.BadParameter(f"--{name} needs --to kafka://HOST:PORT/TOPIC")


def _check_kafka(
    source: LogSource | Lake, spark: SparkOptions, consumer: str | None, is_selected: bool, is_of_files: bool
) -> None:
    if isinstance(source, Lake):
        raise typer.BadParameter("an export to Kafka needs --data or --url instead of --lake")
    spark.check_for_kafka("an export to Kafka")
    if is_of_files:
        raise typer.BadParameter("--format and --overwrite are for files, not for Kafka")
    if consumer is not None and not source.url:
        raise typer.BadParameter("--consumer needs --url: the server keeps the positions of consumers")
    if consumer is not None and is_selected:
        raise typer.BadParameter(
            "--consumer cannot be combined with --from-seq, --since or --until: it says where to start"
        )


def _export_to_kafka(
    source: LogSource,
    target: KafkaTarget,
    selection: ExportSelection,
    consumer: str | None,
    lost: Lost,
    spark: SparkOptions,
) -> KafkaExportReport:
    from strandline.pipeline.export.run import chosen_logs
    from strandline.pipeline.export.to_kafka import export_to_kafka

    with source.opened() as history:
        logs = chosen_logs(history, selection)
        with _positions(source, consumer) as positions, spark.session(NAME) as session, watching() as reporter:
            return export_to_kafka(session, history, logs, target, selection, reporter, positions=positions, lost=lost)


@contextmanager
def _positions(source: LogSource, consumer: str | None) -> Iterator[ConsumerPositions | None]:
    if consumer is None:
        yield None
        return
    from strandline.client import Client

    with Client(source.url, source.api_key) as client:
        yield ServerConsumer(client, consumer)


class ServerConsumer:
    """A named consumer of the logs of a server."""

    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self._name = name

    def position(self, log: str) -> int:
        from strandline.client.errors import NotFound

        try:
            return self._client.topic(log).consumer(self._name).position().seq
        except NotFound:
            return 0

    def commit(self, log: str, seq: int) -> None:
        self._client.topic(log).consumer(self._name).commit(seq)


def _show_sent(report: KafkaExportReport, as_json: bool) -> None:
    if as_json:
        put(msgspec.json.encode(report).decode())
        return
    lost = f"; retention had removed {counted(report.lost, 'record')} before" if report.lost else ""
    put(
        f"exported {counted(report.records, 'record')} of {counted(len(report.through), 'log')} to "
        f"{report.target}{lost}"
    )
