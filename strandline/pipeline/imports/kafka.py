"""Importing topics of Kafka, through Spark's own connector, where its jar is at hand.

The payload is the value as it is, the key is the key. A log keeps, by topic and partition, up to which offset it has
come, so a run that comes later goes on behind that, and takes what is new.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from strandline.lake.location import Lake
from strandline.lake.reporter import Reporter
from strandline.pipeline.imports.files import RowShape
from strandline.pipeline.imports.records import BadRow, Making, NewRecord
from strandline.pipeline.imports.run import Bad, BadPlace, ImportReport, staging_place
from strandline.pipeline.imports.staging import MAX_FAULTS, ImportAppender, put_aside, staged_batches
from strandline.pipeline.source.targets import AppendTarget, Progress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STAGE = "import"
PACKAGE = "org.apache.spark:spark-sql-kafka-0-10_2.13"
#: What the connector gives of a message, and what is looked at.
COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value")


class NoConnector(Exception):
    """Spark has no connector for Kafka. The message says how to get it."""


def messages(spark: SparkSession, servers: str, topics: Sequence[str], options: Mapping[str, str]) -> DataFrame:
    """All messages of the topics that are there now. Raises NoConnector."""
    from pyspark.errors import AnalysisException

    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", ",".join(topics))
    try:
        return reader.options(**{"startingOffsets": "earliest", "endingOffsets": "latest", **options}).load()
    except AnalysisException as error:
        if error.getCondition() not in ("DATA_SOURCE_NOT_FOUND", None) and "kafka" not in str(error).lower():
            raise
        raise NoConnector(
            f"Spark has no connector for Kafka here. Give it with --packages {PACKAGE}:{spark.version} if the machine "
            "reaches a Maven repository, or with --jar FILE (the connector and what it needs, one --jar each)"
        ) from None


def import_messages(
    frame: DataFrame,
    shape: RowShape,
    target: AppendTarget,
    reporter: Reporter,
    *,
    source: str,
    bad: Bad = "stop",
    job: str = "",
    staging: str | None = None,
) -> ImportReport:
    """Append messages, by topic, partition and offset. ``source`` says where they are from; with another one, or with
    another ``job``, everything is appended again. Messages that are no records: as with files."""
    name = sha256(msgspec.json.encode((source, shape.log, shape.ts_column, job))).hexdigest()[:24]
    appender = ImportAppender(target, f"import-{name}", shape.has_times)
    report = ImportReport(job=name, files=0)
    with staging_place(staging) as place, reporter.stage(STAGE) as stage:
        known = msgspec.json.encode(appender.known(shape.log) or {})
        task = _Staging(place, msgspec.json.encode(shape), known)
        rows = frame.select(*COLUMNS).mapInArrow(task, "part binary").toArrow()
        parts = [msgspec.msgpack.decode(part, type=StagedMessages) for part in rows.column("part").to_pylist()]
        parts.sort(key=lambda part: (part.topic, part.partition, part.first))
        for part in parts:
            report.bad += part.bad
            report.places += part.places[: MAX_FAULTS - len(report.places)]
        report.stopped = bad == "stop" and report.bad > 0
        for part in () if report.stopped else parts:
            if part.name:
                marks = OffsetMarks(f"{part.topic}/{part.partition}")
                for batch in staged_batches(place, part.name):
                    stage.advance(appender.append(batch, marks), batch.nbytes)
        place.remove(part.name for part in parts if part.name)
    report.appended, report.there_before = appender.appended, appender.passed
    report.records = sum(report.appended.values())
    return report


class StagedMessages(msgspec.Struct, array_like=True):
    """Messages of one partition that were put aside, from this offset on."""

    topic: str
    partition: int
    first: int
    name: str = ""
    bad: int = 0
    places: list[BadPlace] = []


class OffsetMarks:
    """The next offset, by topic and partition."""

    def __init__(self, source: str) -> None:
        self._source = source

    def left(self, known: Progress | None, rows: Any) -> Any:
        return rows.filter(pc.greater_equal(rows.column("row"), (known or {}).get(self._source, 0)))

    def after(self, known: Progress | None, rows: Any) -> Progress:
        return {**(known or {}), self._source: rows.column("row")[-1].as_py() + 1}


class _Message(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp: Any
    key: bytes | None
    value: bytes | None


class _Staging:
    """In a task: messages go in, and what of them was put aside comes out."""

    def __init__(self, place: Lake, shape: bytes, known: bytes) -> None:
        self._place = place
        self._shape = shape
        self._known = known

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        making = Making(msgspec.json.decode(self._shape, type=RowShape))
        known: dict[str, int] = msgspec.json.decode(self._known)
        for (topic, partition), found in groupby(
            _messages(batches), lambda message: (message.topic, message.partition)
        ):
            after = known.get(f"{topic}/{partition}", 0)
            first = next(found)
            part = StagedMessages(topic, partition, first.offset)
            wanted = (message for message in chain([first], found) if message.offset >= after)
            part.name, _, _ = put_aside(self._place, _records(wanted, making, part))
            yield pa.record_batch([pa.array([msgspec.msgpack.encode(part)], pa.binary())], ["part"])


def _messages(batches: Iterable[Any]) -> Iterator[_Message]:
    for batch in batches:
        yield from map(_Message._make, zip(*(batch.column(name).to_pylist() for name in COLUMNS), strict=True))


def _records(messages: Iterable[_Message], making: Making, part: StagedMessages) -> Iterator[tuple[int, NewRecord]]:
    for message in messages:
        try:
            yield message.offset, making.of_message(message.key, message.value, message.timestamp)
        except BadRow as error:
            part.bad += 1
            if len(part.places) < MAX_FAULTS:
                part.places.append(BadPlace(f"{message.topic}/{message.partition}", message.offset, str(error)))
