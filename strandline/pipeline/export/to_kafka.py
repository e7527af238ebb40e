"""Exports logs to a Kafka topic through Spark's connector.

Spark's sink delivers at least once: a task that is repeated sends its messages again. So every message has headers that
identify its record. A log is sent by one task at a time, in order. After each job the position of the named consumer
is committed, if there is one, so that a later export continues there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast
from urllib.parse import unquote

import msgspec
import pyarrow as pa

from strandline.client.errors import StrandlineError
from strandline.engine.errors import EngineError
from strandline.engine.ownership import JSON
from strandline.history.log_info import LogInfo
from strandline.history.source import AnyPiece, History
from strandline.lake.reporter import Reporter, TaskFailed, describe
from strandline.pipeline.export.files import BadTarget
from strandline.pipeline.export.run import STAGE, ExportFailed, ExportSelection, records_in
from strandline.pipeline.imports.kafka_cluster import PACKAGE, missing
from strandline.pipeline.kafka_messages import headers_of, key_bytes
from strandline.pipeline.tasks import items_frame

if TYPE_CHECKING:
    from pyspark import Accumulator
    from pyspark.sql import SparkSession

SCHEME = "kafka://"
#: The names that topics can have.
TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)
#: The maximum number of logs of a job, and the approximate number of records of a log in a job. An export that fails
#: sends the records of one job again.
WAVE_LOGS = 64
WAVE_RECORDS = 200_000
MESSAGES = "key binary, value binary, headers array<struct<key:string,value:binary>>"
_MESSAGES = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))),
    ]
)
#: Options of the connector that the export sets.
RESERVED = frozenset(("topic", "kafka.bootstrap.servers", "includeheaders"))

#: ``stop``: fail if retention removed records after the position of the consumer. ``skip``: report how many.
Lost = Literal["stop", "skip"]


class KafkaTarget(msgspec.Struct, frozen=True, kw_only=True):
    """A topic. ``options`` are those of Spark's connector."""

    servers: str
    topic: str
    options: dict[str, str] = {}

    @classmethod
    def at(cls, location: str, options: Mapping[str, str]) -> KafkaTarget:
        """The target at ``kafka://host:port,host:port/topic``. Raises BadTarget."""
        servers, _, topic = location.removeprefix(SCHEME).partition("/")
        topic = unquote(topic)
        if not servers or TOPIC.fullmatch(topic) is None or topic in (".", ".."):
            raise BadTarget(f"{location!r} is not a Kafka topic; expected kafka://HOST:PORT/TOPIC")
        if taken := sorted(name for name in options if name.lower() in RESERVED):
            raise BadTarget(f"--option {taken[0]} cannot be set: it is part of --to {SCHEME}HOST:PORT/TOPIC")
        return cls(servers=servers, topic=topic, options=dict(options))


class ConsumerPositions(Protocol):
    """The positions of a named consumer, by log."""

    def position(self, log: str) -> int:
        """The last seq that was processed; 0 if there is none."""

    def commit(self, log: str, seq: int) -> None:
        """Everything up to this seq is processed."""


class KafkaExportReport(msgspec.Struct, kw_only=True):
    """``through`` has the last seq of each log that was sent. ``lost`` counts the seqs that retention removed before
    they were exported."""

    target: str
    records: int = 0
    through: dict[str, int] = {}
    lost: int = 0


class MessageItem(msgspec.Struct, array_like=True):
    """Records of one log to send; ``through`` is their last seq."""

    pieces: list[AnyPiece]
    log: str
    through: int
    is_json: bool = True


def export_to_kafka(
    spark: SparkSession,
    history: History,
    logs: Iterable[LogInfo],
    target: KafkaTarget,
    selection: ExportSelection,
    reporter: Reporter,
    *,
    positions: ConsumerPositions | None = None,
    lost: Lost = "stop",
) -> KafkaExportReport:
    """Send the records of logs to a topic, each log in order. With ``positions``, only the records after the position
    of the consumer, which moves with every job. Raises MissingPackage and ExportFailed."""
    logs = list(logs)
    report = KafkaExportReport(target=f"{SCHEME}{target.servers}/{target.topic}")
    starts = {} if positions is None else {info.name: _start(info, positions, lost, report) for info in logs}
    with reporter.stage(STAGE, records_in(logs, selection) if positions is None else None) as stage:
        remaining = iter(logs)
        while group := list(islice(remaining, WAVE_LOGS)):
            for wave in _waves(history, group, starts, selection):
                count = _send(spark, wave, target)
                report.records += count
                for item in wave:
                    report.through[item.log] = item.through
                    if positions is not None:
                        positions.commit(item.log, item.through)
                stage.advance(count)
    return report


def _start(info: LogInfo, positions: ConsumerPositions, lost: Lost, report: KafkaExportReport) -> int:
    """The position in a log. Raises ExportFailed."""
    position = positions.position(info.name)
    gone = max(info.floor - 1 - position, 0) if position else 0
    if gone and lost == "stop":
        raise ExportFailed(
            f"retention removed the seqs {position + 1} to {info.floor - 1} of log {info.name!r} before they were "
            "exported. Continue after them with --lost skip"
        )
    report.lost += gone
    return position


def _waves(
    history: History, logs: Iterable[LogInfo], starts: Mapping[str, int], selection: ExportSelection
) -> Iterator[list[MessageItem]]:
    """One item per log at a time, so that its records stay in order."""
    left = {}
    for info in logs:
        through = info.head if selection.to_seq is None else min(selection.to_seq, info.head)
        after = max(starts.get(info.name, 0), selection.from_seq - 1)
        if after < through:
            pieces = history.pieces(info, after, through, WAVE_RECORDS, selection.where)
            left[info.name] = _items(info, cast(Sequence[AnyPiece], pieces), through)
    while left:
        wave = {name: next(items, None) for name, items in left.items()}
        left = {name: left[name] for name, item in wave.items() if item is not None}
        if left:
            yield [item for item in wave.values() if item is not None]


def _items(info: LogInfo, pieces: Sequence[AnyPiece], through: int) -> Iterator[MessageItem]:
    is_json = info.media_type == JSON
    gathered: list[AnyPiece] = []
    for piece in pieces:
        if gathered and sum(one.rows for one in gathered) + piece.rows > WAVE_RECORDS:
            yield MessageItem(gathered, info.name, gathered[-1].last, is_json)
            gathered = []
        gathered.append(piece)
    # The last item covers the end, even if no record is left there.
    yield MessageItem(gathered, info.name, through, is_json)


def _send(spark: SparkSession, wave: list[MessageItem], target: KafkaTarget) -> int:
    """Returns the number of records. Raises MissingPackage."""
    from pyspark.errors import AnalysisException

    items = [item for item in wave if item.pieces]
    if not items:
        return 0
    counted = spark.sparkContext.accumulator(0)
    frame = items_frame(spark, items).mapInArrow(MessageTask(counted), MESSAGES)
    options = {**target.options, "kafka.bootstrap.servers": target.servers, "topic": target.topic}
    try:
        frame.write.format("kafka").options(**options).save()
    except AnalysisException as error:
        if "kafka" not in str(error).lower() or "find data source" not in str(error).lower():
            raise
        raise missing("Kafka connector", PACKAGE, spark) from None
    return counted.value


class MessageTask:
    """Runs in a task: turns the records of items into messages, and counts them."""

    def __init__(self, counted: Accumulator[int]) -> None:
        self._counted = counted

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        decode = msgspec.msgpack.Decoder(MessageItem).decode
        for batch in batches:
            for encoded in batch.column(0).to_pylist():
                item = decode(encoded)
                for records in _records(item):
                    self._counted.add(records.num_rows)
                    yield messages_of(records, is_json=item.is_json)


def _records(item: MessageItem) -> Iterator[Any]:
    for piece in item.pieces:
        try:
            yield from piece.read()
        except (EngineError, StrandlineError, pa.ArrowException) as error:
            raise TaskFailed(
                f"cannot read seqs {piece.first} to {piece.last} of log {piece.log!r}: {describe(error)}"
            ) from None


def messages_of(records: Any, *, is_json: bool) -> Any:
    """A batch of records as messages. The payload null is a message without a value."""
    names = ("log", "epoch", "seq", "ts", "node", "meta")
    parts = {name: records.column(name) for name in names}
    parts["ts"] = parts["ts"].cast(pa.timestamp("ms", "UTC")).cast(pa.int64())
    headers = [
        [{"key": name, "value": value} for name, value in headers_of(*row)]
        for row in zip(*(parts[name].to_pylist() for name in names), strict=True)
    ]
    values = records.column("data")
    if is_json:
        values = pa.array([None if value == b"null" else value for value in values.to_pylist()], pa.binary())
    keys = [key_bytes(key) for key in records.column("key").to_pylist()]
    columns = [pa.array(keys, pa.binary()), values, pa.array(headers, _MESSAGES.field("headers").type)]
    return pa.record_batch(columns, schema=_MESSAGES)
