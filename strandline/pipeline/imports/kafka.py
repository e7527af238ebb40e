"""Imports Kafka topics through Spark's connector.

Each partition of a topic is a writer of its own. It appends its messages in order, and its progress, the next offset,
is a note of the log that changes in the same step as the append. So an import reads only what is new, and a task that
runs twice appends a message once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from strandline.client.errors import StrandlineError
from strandline.engine.errors import EngineError, UnknownLog
from strandline.lake.location import Lake
from strandline.lake.reporter import Reporter
from strandline.lake.reporter import StageProgress as Progressing
from strandline.pipeline.imports.files import BadShape
from strandline.pipeline.imports.kafka_cluster import ISOLATION, TopicPartition, open_cluster
from strandline.pipeline.imports.messages import COLUMNS, ImportedPart, MessageRecords, MessageShape, messages_in
from strandline.pipeline.imports.records import NewRecord
from strandline.pipeline.imports.run import CHECKING, STAGE, Bad, ImportReport, staging_place
from strandline.pipeline.imports.staging import MAX_FAULTS, ImportAppender, ImportFailed, put_aside, staged
from strandline.pipeline.imports.staging import staged_batches as batches_of_file
from strandline.pipeline.imports.value_decoder import ValueDecoder
from strandline.pipeline.source.options import LogLocation
from strandline.pipeline.source.targets import AppendTarget, CannotAppend, Progress, open_target

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: The maximum number of messages of a job, and the minimum for one partition. The driver reports after each job; with a
#: data directory, the records of a job are staged on disk.
WAVE_MESSAGES = 2_000_000
PARTITION_MESSAGES = 10_000
#: The maximum size of a batch that Spark passes to a task.
BATCH_BYTES = 32 << 20
#: Options of Spark's connector that the import sets, or that would split a partition over several tasks.
RESERVED = frozenset(
    name.lower()
    for name in (
        "assign", "subscribe", "subscribePattern", "endingOffsets", "startingTimestamp", "endingTimestamp",
        "startingOffsetsByTimestamp", "endingOffsetsByTimestamp", "minPartitions", "maxRecordsPerPartition",
        "includeHeaders", "failOnDataLoss", "kafka.bootstrap.servers",
    )
)  # fmt: skip
STARTING = "startingOffsets"

#: ``stop``: append nothing if messages are missing that the broker had. ``skip``: report how many.
Lost = Literal["stop", "skip"]


class KafkaTopics(msgspec.Struct, frozen=True, kw_only=True):
    """Topics of a cluster. ``options`` are those of Spark's connector."""

    servers: str
    topics: list[str]
    options: dict[str, str] = {}

    def check(self) -> None:
        """Raises BadShape."""
        if taken := sorted(name for name in self.options if name.lower() in RESERVED):
            raise BadShape(f"--option {taken[0]} cannot be set: the import chooses the messages itself")
        self.starting_offsets()

    def starting_offsets(self) -> str | dict[str, dict[str, int]]:
        """Where partitions start that were never imported. Raises BadShape."""
        text = next((value for name, value in self.options.items() if name.lower() == STARTING.lower()), "earliest")
        if text in ("earliest", "latest"):
            return text
        try:
            return msgspec.json.decode(text, type=dict[str, dict[str, int]])
        except msgspec.MsgspecError:
            raise BadShape(
                f"--option {STARTING} is {text!r}; expected earliest, latest, or offsets such as "
                '{"orders":{"0":42}}'
            ) from None

    @property
    def reader_options(self) -> dict[str, str]:
        kept = {name: value for name, value in self.options.items() if name.lower() != STARTING.lower()}
        return {ISOLATION: "read_committed", **kept}


class OffsetRange(msgspec.Struct, frozen=True):
    """Offsets of a partition to import; ``end`` is exclusive."""

    partition: TopicPartition
    start: int
    end: int


class OffsetMarks:
    """The next offset of a partition, and the id of its topic."""

    def __init__(self, topic_id: str) -> None:
        self._topic_id = topic_id

    def left(self, known: Progress | None, rows: Any) -> Any:
        return rows if known is None else rows.filter(pc.greater_equal(rows.column("row"), known["offset"]))

    def after(self, known: Progress | None, rows: Any) -> Progress:
        return {"offset": rows.column("row")[-1].as_py() + 1, "topic": self._topic_id}


def import_topics(
    spark: SparkSession,
    topics: KafkaTopics,
    shape: MessageShape,
    decoder: ValueDecoder,
    place: LogLocation,
    reporter: Reporter,
    *,
    bad: Bad = "stop",
    lost: Lost = "stop",
    job: str = "",
    staging: str | None = None,
) -> ImportReport:
    """Append the messages that are there now and that no earlier run appended, in the order of each partition. With
    another ``job``, everything is appended once more.

    By URL, tasks append; by path, they stage records, and this process appends them. With ``stop``, nothing is appended
    if any message is invalid. Raises BadShape, MissingPackage, ImportFailed, and CannotAppend."""
    topics.check()
    decoder.check()
    options = topics.reader_options
    with open_cluster(spark, topics.servers, options) as cluster, open_target(place, sync=False) as target:
        partitions = cluster.partitions(topics.topics)
        naming = WriterNames(cluster.id, job)
        report = ImportReport(job=naming.job, files=0)
        ranges = _ranges(partitions, topics.starting_offsets(), shape, naming, target, lost, report)
        running = _Import(spark, topics.servers, options, shape, decoder, naming, target, report, reporter)
        if bad == "stop" and not shape.dead_letters and running.check(ranges):
            report.stopped = True
            return report
        running.append(ranges, place, staging)
        return report


class WriterNames(msgspec.Struct, frozen=True):
    """The names under which progress is stored."""

    cluster: str
    name: str

    @property
    def job(self) -> str:
        return self._digest()

    def writer(self, topic: str, partition: int) -> str:
        return f"kafka-{self._digest(topic)}-{partition}"

    def _digest(self, *parts: str) -> str:
        return sha256(msgspec.json.encode([self.cluster, self.name, *parts])).hexdigest()[:24]


# --- What is new ----------------------------------------------------------------------------------------------------


def _ranges(
    partitions: Sequence[TopicPartition],
    starting: str | dict[str, dict[str, int]],
    shape: MessageShape,
    naming: WriterNames,
    target: AppendTarget,
    lost: Lost,
    report: ImportReport,
) -> list[OffsetRange]:
    """The offsets of each partition after the stored ones. Raises ImportFailed if some of them are gone."""
    ranges = []
    for partition in partitions:
        log = shape.log_of(partition.topic, partition.partition)
        noted = _noted(target, log, naming.writer(partition.topic, partition.partition))
        start = _first(partition, starting) if noted is None else noted["offset"]
        if noted is not None:
            report.lost += _lost(partition, noted, log, lost)
        start = max(start, partition.earliest)
        if start < partition.latest:
            ranges.append(OffsetRange(partition, start, partition.latest))
    return ranges


def _noted(target: AppendTarget, log: str, writer: str) -> Progress | None:
    try:
        return target.progress(log, writer)
    except UnknownLog:
        return None


def _first(partition: TopicPartition, starting: str | dict[str, dict[str, int]]) -> int:
    if isinstance(starting, str):
        return partition.earliest if starting == "earliest" else partition.latest
    offset = starting.get(partition.topic, {}).get(str(partition.partition), -2)
    return {-2: partition.earliest, -1: partition.latest}.get(offset, max(offset, 0))


def _lost(partition: TopicPartition, noted: Progress, log: str, lost: Lost) -> int:
    """The number of offsets after the stored one that the broker no longer has."""
    at = noted["offset"]
    if noted["topic"] != partition.topic_id or at > partition.latest:
        raise ImportFailed(
            f"log {log!r} has the messages of {partition.name} up to offset {at - 1}, but the topic was deleted and "
            "created again, or lost its end, since then. Import the new messages as another job with --job NAME"
        )
    gone = max(partition.earliest - at, 0)
    if gone and lost == "stop":
        raise ImportFailed(
            f"the broker no longer has the offsets {at} to {partition.earliest - 1} of {partition.name}, which were "
            "not imported yet. Continue after them with --lost skip"
        )
    return gone


def waves(ranges: Sequence[OffsetRange]) -> Iterator[list[OffsetRange]]:
    """Ranges of bounded size, in the order of each partition."""
    left = list(ranges)
    while left:
        share = max(WAVE_MESSAGES // len(left), PARTITION_MESSAGES)
        wave = [OffsetRange(one.partition, one.start, min(one.start + share, one.end)) for one in left]
        yield wave
        left = [
            OffsetRange(one.partition, now.end, one.end)
            for one, now in zip(left, wave, strict=True)
            if now.end < one.end
        ]


# --- The jobs -------------------------------------------------------------------------------------------------------


class _Import:
    def __init__(
        self,
        spark: SparkSession,
        servers: str,
        options: Mapping[str, str],
        shape: MessageShape,
        decoder: ValueDecoder,
        naming: WriterNames,
        target: AppendTarget,
        report: ImportReport,
        reporter: Reporter,
    ) -> None:
        self._spark = spark
        self._servers = servers
        self._options = options
        self._shape = shape
        self._decoder = decoder
        self._naming = naming
        self._target = target
        self._report = report
        self._reporter = reporter

    def check(self, ranges: Sequence[OffsetRange]) -> bool:
        """Whether there are invalid messages."""
        with self._reporter.stage(CHECKING) as stage:
            for wave in waves(ranges):
                parts = self._results(wave, MessageTask(self._shape))
                self._count(parts)
                stage.advance(sum(part.records for part in parts), sum(part.bytes for part in parts))
        return self._report.bad > 0

    def append(self, ranges: Sequence[OffsetRange], place: LogLocation, staging: str | None) -> None:
        ids = {one.partition.topic: one.partition.topic_id for one in ranges}
        with self._reporter.stage(STAGE) as stage:
            if place.url:
                task = AppendTask(self._shape, place, self._naming, ids)
                for wave in waves(ranges):
                    parts = self._results(wave, task)
                    self._appended(parts, stage)
                return
            with staging_place(staging) as lake:
                for wave in waves(ranges):
                    parts = self._results(wave, StageTask(self._shape, lake))
                    for part in parts:
                        self._append_staged(part, lake, ids[part.topic])
                    self._appended(parts, stage)

    def _append_staged(self, part: ImportedPart, lake: Lake, topic_id: str) -> None:
        if not part.name:
            return
        appender = PartitionAppender(self._target, self._shape, self._naming, part, topic_id)
        for batch in batches_of_file(lake, part.name):
            appender.append(batch)
        lake.remove([part.name])

    def _appended(self, parts: Sequence[ImportedPart], stage: Progressing) -> None:
        self._count(parts)
        for part in parts:
            if part.records:
                log = self._shape.log_of(part.topic, part.partition)
                self._report.appended[log] = self._report.appended.get(log, 0) + part.records
                self._report.records += part.records
            stage.advance(part.records, part.bytes)

    def _count(self, parts: Sequence[ImportedPart]) -> None:
        for part in parts:
            self._report.bad += part.bad
            self._report.places += part.places[: MAX_FAULTS - len(self._report.places)]

    def _results(self, wave: Sequence[OffsetRange], task: MessageTask) -> list[ImportedPart]:
        """The summaries of a job, by topic and partition. Raises ImportFailed."""
        rows = self._frame(wave).mapInArrow(task, "part binary").toArrow()
        parts = [msgspec.msgpack.decode(part, type=ImportedPart) for part in rows.column("part").to_pylist()]
        for part in parts:
            if part.failure:
                raise ImportFailed(part.failure)
        return sorted(parts, key=lambda part: (part.topic, part.partition))

    def _frame(self, wave: Sequence[OffsetRange]) -> DataFrame:
        self._spark.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", BATCH_BYTES)
        chosen: dict[str, list[int]] = {}
        starts: dict[str, dict[str, int]] = {}
        ends: dict[str, dict[str, int]] = {}
        for one in wave:
            topic, number = one.partition.topic, one.partition.partition
            chosen.setdefault(topic, []).append(number)
            starts.setdefault(topic, {})[str(number)] = one.start
            ends.setdefault(topic, {})[str(number)] = one.end
        offsets = {"assign": chosen, "startingOffsets": starts, "endingOffsets": ends}
        options = {
            **self._options,
            **{name: msgspec.json.encode(value).decode() for name, value in offsets.items()},
            "kafka.bootstrap.servers": self._servers, "includeHeaders": "true", "failOnDataLoss": "true",
        }  # fmt: skip
        frame = self._spark.read.format("kafka").options(**options).load()
        frame = self._decoder.decoded(frame.selectExpr("*", "unix_millis(timestamp) AS ts"))
        return frame.select(*COLUMNS)


# --- The tasks ------------------------------------------------------------------------------------------------------


class MessageTask:
    """Runs in a task: turns the messages of a partition into records, and yields a summary. This one only checks
    them."""

    def __init__(self, shape: MessageShape) -> None:
        self._shape = shape

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        by_partition = groupby(messages_in(batches), lambda message: (message.topic, message.partition))
        for (topic, partition), messages in by_partition:
            part = ImportedPart(topic, partition)
            try:
                self._work(part, MessageRecords(self._shape, part).of(messages))
            except (StrandlineError, EngineError, ImportFailed, CannotAppend) as error:
                part.failure = str(error)
            yield pa.record_batch([pa.array([msgspec.msgpack.encode(part)], pa.binary())], ["part"])
            if part.failure:
                return

    def _work(self, part: ImportedPart, records: Iterable[tuple[int, NewRecord]]) -> None:
        for _ in records:
            pass


class StageTask(MessageTask):
    """Stages the records."""

    def __init__(self, shape: MessageShape, lake: Lake) -> None:
        super().__init__(shape)
        self._lake = lake

    def _work(self, part: ImportedPart, records: Iterable[tuple[int, NewRecord]]) -> None:
        part.name, _, _ = put_aside(self._lake, records)


class AppendTask(MessageTask):
    """Appends the records."""

    def __init__(
        self, shape: MessageShape, place: LogLocation, naming: WriterNames, topic_ids: Mapping[str, str]
    ) -> None:
        super().__init__(shape)
        self._place = place
        self._naming = naming
        self._topic_ids = topic_ids

    def _work(self, part: ImportedPart, records: Iterable[tuple[int, NewRecord]]) -> None:
        with open_target(self._place) as target:
            appender = PartitionAppender(target, self._shape, self._naming, part, self._topic_ids[part.topic])
            for batch in staged(records):
                appender.append(batch)


class PartitionAppender:
    """Appends records of one partition."""

    def __init__(
        self, target: AppendTarget, shape: MessageShape, naming: WriterNames, part: ImportedPart, topic_id: str
    ) -> None:
        self._dead_letters = shape.dead_letters
        self._marks = OffsetMarks(topic_id)
        self._appender = ImportAppender(target, naming.writer(part.topic, part.partition), shape.has_times)

    def append(self, batch: Any) -> None:
        """Append the rows that are not appended yet. Dead letters come first: when the progress of the log passes an
        invalid message, its dead letter is there."""
        if self._dead_letters:
            is_dead = pc.equal(batch.column("log"), self._dead_letters)
            for some in (batch.filter(is_dead), batch.filter(pc.invert(is_dead))):
                if some.num_rows:
                    self._appender.append(some, self._marks)
        else:
            self._appender.append(batch, self._marks)
