"""Imports Kafka topics through Spark's connector.

The payload of a record is the value of the message, its key is the key. Each log stores the imported offset of every
topic and partition, so that a later run continues with new messages.
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
#: The columns of a message that are read from the connector.
COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value")


class NoConnector(Exception):
    """Spark has no Kafka connector. The message says how to get it."""


def messages(spark: SparkSession, servers: str, topics: Sequence[str], options: Mapping[str, str]) -> DataFrame:
    """All current messages of the topics. Raises NoConnector."""
    from pyspark.errors import AnalysisException

    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", ",".join(topics))
    try:
        return reader.options(**{"startingOffsets": "earliest", "endingOffsets": "latest", **options}).load()
    except AnalysisException as error:
        if error.getCondition() not in ("DATA_SOURCE_NOT_FOUND", None) and "kafka" not in str(error).lower():
            raise
        raise NoConnector(
            f"Spark has no Kafka connector. Add it with --packages {PACKAGE}:{spark.version} if a Maven repository is "
            "reachable, or with --jar FILE for the connector and each of its dependencies"
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
    """Append messages in the order of topic, partition and offset. ``source`` identifies their origin; with another
    source or ``job``, everything is appended again. Invalid messages are handled as in files."""
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
    """Staged messages of one partition, starting at an offset."""

    topic: str
    partition: int
    first: int
    name: str = ""
    bad: int = 0
    places: list[BadPlace] = []


class OffsetMarks:
    """The next offset by topic and partition."""

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
    """Runs in a task: stages messages and yields a summary."""

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
