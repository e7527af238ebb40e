"""``strandline import``.

Exit codes: 0 it is done; 1 it failed, or there were bad rows; 2 the command makes no sense; 3 Spark or Java is missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import msgspec
import typer

from strandline.cli.output import put, say
from strandline.cli.pipeline import parse_conf
from strandline.cli.spark import EXIT_FAILED, EXIT_USAGE, AsJson, Conf, Key, Master, Remote, errors, session, watching

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from strandline.lake.reporter import Reporter
    from strandline.pipeline.imports.files import RowShape
    from strandline.pipeline.imports.run import ImportReport
    from strandline.pipeline.source.options import LogLocation

#: Bad rows that are told one by one; --json has more.
SHOWN = 20


class Wishes(NamedTuple):
    """How to go about it."""

    sources: list[str]
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
            metavar="SOURCE...", help="Files, directories, patterns, s3://bucket/prefix; for kafka: host:port,…"
        ),
    ],
    format: Annotated[
        Literal["parquet", "jsonl", "csv", "kafka"], typer.Option("--format", help="What the source is.")
    ],
    log: Annotated[
        str, typer.Option("--log", metavar="NAME", help="Where the records go. Made if it is not there.")
    ] = "",
    url: Annotated[str | None, typer.Option("--url", metavar="URL", help="A server.")] = None,
    key: Key = None,
    data: Annotated[
        str | None, typer.Option("--data", metavar="DIR", help="A data directory that no server runs on.")
    ] = None,
    exported: Annotated[
        bool,
        typer.Option(
            "--exported",
            help="The files are from `strandline export`. Without --log, each record goes to the log it was from.",
        ),
    ] = False,
    keep_ts: Annotated[bool, typer.Option("--keep-ts", help="With --exported: records keep their times.")] = False,
    data_column: Annotated[
        str | None, typer.Option("--data-column", metavar="COLUMN", help="This is the payload; else the whole row is.")
    ] = None,
    key_column: Annotated[str | None, typer.Option("--key-column", metavar="COLUMN", help="This is the key.")] = None,
    key_path: Annotated[
        str | None, typer.Option("--key-path", metavar="POINTER", help="The key is there in the payload: /user/id.")
    ] = None,
    node_column: Annotated[
        str | None, typer.Option("--node-column", metavar="COLUMN", help="This is the node.")
    ] = None,
    meta_column: Annotated[
        str | None, typer.Option("--meta-column", metavar="COLUMN", help="This is the meta, which is JSON.")
    ] = None,
    ts_column: Annotated[
        str | None,
        typer.Option(
            "--ts-column", metavar="COLUMN", help="This is the time: ISO 8601 or milliseconds. For kafka: timestamp."
        ),
    ] = None,
    log_column: Annotated[
        str | None, typer.Option("--log-column", metavar="COLUMN", help="This says which log it goes to.")
    ] = None,
    delimiter: Annotated[str, typer.Option("--delimiter", metavar="CHARACTER", help="For csv.")] = ",",
    types: Annotated[
        list[str] | None,
        typer.Option(
            "--type", metavar="COLUMN=TYPE", help="For csv, where all is text else: long, double, boolean, json."
        ),
    ] = None,
    topics: Annotated[
        list[str] | None, typer.Option("--topic", metavar="NAME", help="For kafka. Can be given more than once.")
    ] = None,
    options: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="NAME=VALUE", help="For kafka: an option of Spark's connector."),
    ] = None,
    jars: Annotated[list[str] | None, typer.Option("--jar", metavar="FILE", help="A jar that Spark needs.")] = None,
    packages: Annotated[
        list[str] | None, typer.Option("--packages", metavar="NAME", help="What Spark is to fetch from Maven.")
    ] = None,
    bad: Annotated[
        Literal["stop", "skip"], typer.Option("--bad", help="What to do about rows that cannot be records.")
    ] = "stop",
    job: Annotated[str, typer.Option("--job", metavar="NAME", help="With another name it is imported once more.")] = "",
    staging: Annotated[
        str | None,
        typer.Option("--staging", metavar="PLACE", help="Where records are put aside; a cluster needs a shared place."),
    ] = None,
    master: Master = "local[*]",
    remote: Remote = None,
    conf: Conf = None,
    as_json: AsJson = False,
) -> None:
    """Append the rows of files, or of topics of Kafka, to logs.

    Every row is appended once: after a crash, the same command goes on where it was; run once more, it finds that all
    is there. If there are bad rows nothing is appended, unless --bad skip says to leave them out.

    Exit code 0: done; 1: failed, or there were bad rows; 2: the command makes no sense; 3: Spark or Java is missing.
    """
    if (data is None) == (url is None):
        raise typer.BadParameter("give either --data or --url")
    if staging is None and (remote is not None or not master.startswith("local")):
        raise typer.BadParameter(
            "say with --staging where tasks can put records aside: a place that all machines share"
        )
    settings = parse_conf(conf or [])
    if jars:
        settings["spark.jars"] = ",".join(jars)
    if packages:
        settings["spark.jars.packages"] = ",".join(packages)
    with errors():
        from strandline.pipeline.imports.files import BadShape, RowShape
        from strandline.pipeline.source.options import LogLocation

        try:
            shape = RowShape(
                format="jsonl" if format == "kafka" else format,
                log=log, exported=exported, keep_ts=keep_ts, log_column=log_column, key_column=key_column,
                key_path=key_path, node_column=node_column, meta_column=meta_column, ts_column=ts_column,
                data_column=data_column, delimiter=delimiter, types=_types(types or []),
            )  # fmt: skip
            shape.check()
        except BadShape as error:
            raise typer.BadParameter(str(error)) from None
        wishes = Wishes(sources, format == "kafka", topics or [], _pairs(options or [], "--option"), bad, job, staging)
        _check_kafka(wishes, shape)
        place = LogLocation(url or "", key, data or "")
        report = _failures(lambda: _run(wishes, shape, place, master, remote, settings))
    _show(report, as_json)
    raise typer.Exit(EXIT_FAILED if report.stopped else 0)


def _pairs(texts: list[str], option: str) -> dict[str, str]:
    pairs = dict(text.partition("=")[::2] for text in texts)
    for text in texts:
        if "=" not in text:
            raise typer.BadParameter(f"{text!r} is not like name=value", param_hint=option)
    return pairs


def _types(texts: list[str]) -> dict[str, Any]:
    from strandline.pipeline.imports.files import CSV_TYPES

    pairs = _pairs(texts, "--type")
    for name, kind in pairs.items():
        if kind not in CSV_TYPES:
            raise typer.BadParameter(f"{name}={kind}: there are {', '.join(CSV_TYPES)}", param_hint="--type")
    return pairs


def _check_kafka(wishes: Wishes, shape: RowShape) -> None:
    if not wishes.is_kafka:
        if wishes.topics or wishes.options:
            raise typer.BadParameter("--topic and --option are for kafka")
        return
    if not wishes.topics:
        raise typer.BadParameter("say with --topic what to import")
    others = set(shape.columns) - {"timestamp"}
    if others or shape.exported or not shape.log or shape.key_path:
        raise typer.BadParameter("of messages, the value is the payload and the key the key: give --log, nothing else")


def _failures(run: Any) -> ImportReport:
    from strandline.pipeline.imports.files import NothingToImport, UnreadableFile
    from strandline.pipeline.imports.kafka import NoConnector
    from strandline.pipeline.imports.staging import ImportFailed
    from strandline.pipeline.source.targets import CannotAppend

    try:
        report: ImportReport = run()
        return report
    except NothingToImport as error:
        say(str(error))
        raise typer.Exit(EXIT_USAGE) from None
    except (UnreadableFile, ImportFailed, CannotAppend, NoConnector) as error:
        say(str(error))
        raise typer.Exit(EXIT_FAILED) from None


def _run(
    wishes: Wishes, shape: RowShape, place: LogLocation, master: str, remote: str | None, conf: dict[str, str]
) -> ImportReport:
    from strandline.pipeline.imports.files import find_files
    from strandline.pipeline.imports.run import knowing
    from strandline.pipeline.source.targets import open_target

    # Whatever can be known to go wrong goes wrong before Spark is started.
    files = [] if wishes.is_kafka else find_files(wishes.sources)
    shape = knowing(shape, place)
    with (
        open_target(place, sync=False) as target,
        session(master, remote, conf, "strandline import") as spark,
        watching() as reporter,
    ):
        return _import(spark, wishes, shape, files, target, reporter)


def _import(
    spark: SparkSession, wishes: Wishes, shape: RowShape, files: list[Any], target: Any, reporter: Reporter
) -> ImportReport:
    from strandline.pipeline.imports.kafka import import_messages, messages
    from strandline.pipeline.imports.run import import_files

    if not wishes.is_kafka:
        return import_files(
            spark, files, shape, target, reporter, bad=wishes.bad, job=wishes.job, staging=wishes.staging
        )
    servers = ",".join(wishes.sources)
    frame = messages(spark, servers, wishes.topics, wishes.options)
    return import_messages(
        frame, shape, target, reporter, source=servers, bad=wishes.bad, job=wishes.job, staging=wishes.staging
    )


def _show(report: ImportReport, as_json: bool) -> None:
    for place in report.places[:SHOWN]:
        say(f"{place.path}:{place.number}: {place.why}")
    if report.bad > SHOWN:
        say(f"… and {report.bad - min(len(report.places), SHOWN)} more bad rows")
    if as_json:
        put(msgspec.json.encode(report).decode())
    elif report.stopped:
        put(f"nothing was appended: {report.bad} rows are bad")
    else:
        before = f", {report.there_before} were there before" if report.there_before else ""
        left_out = f", {report.bad} bad rows were left out" if report.bad else ""
        put(f"{report.records} records appended to {len(report.appended)} logs{before}{left_out}")
