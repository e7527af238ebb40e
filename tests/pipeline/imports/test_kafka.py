"""Imports of Kafka, without a broker: what tasks and plans decide."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from strandline.engine import Engine
from strandline.engine.record import MAX_RECORD_BYTES
from strandline.pipeline.imports import kafka
from strandline.pipeline.imports.kafka import KafkaTopics, OffsetRange, PartitionAppender, WriterNames, waves
from strandline.pipeline.imports.kafka_cluster import TopicPartition
from strandline.pipeline.imports.messages import ImportedPart, Message, MessageRecords, MessageShape
from strandline.pipeline.imports.records import NewRecord
from strandline.pipeline.imports.staging import ImportFailed, staged
from strandline.pipeline.source.targets import MAX_WRITER, DirectoryTarget

NAMES = WriterNames("cluster", "")


def message(offset: int, value: bytes | None, **parts: Any) -> Message:
    return Message(
        **{
            "topic": "t", "partition": 0, "offset": offset, "ts": 5, "key": None, "headers": None, "value": value,
            "decoded": None, **parts,
        }
    )  # fmt: skip


def batch_of(*rows: tuple[int, bytes], log: str = "orders") -> Any:
    (batch,) = staged((offset, NewRecord(log, None, None, None, None, data)) for offset, data in rows)
    return batch


def data_of(engine: Engine, log: str = "orders") -> list[bytes]:
    found = engine.find(log)
    assert found is not None
    return [bytes(record.data) for record in found.read()]


def test_tasks_that_append_the_same_messages_append_them_once(tmp_path: Path) -> None:
    """As when Spark runs a task again while the first one is still at work."""
    with Engine.open(tmp_path, background=False) as engine:
        part = ImportedPart("t", 0)
        first, second = (
            PartitionAppender(DirectoryTarget(engine), MessageShape(log="orders"), NAMES, part, "id") for _ in range(2)
        )
        first.append(batch_of((3, b"3"), (4, b"4")))
        second.append(batch_of((3, b"3"), (4, b"4"), (7, b"7")))
        first.append(batch_of((7, b"7"), (9, b"9")))
        second.append(batch_of((9, b"9"), (10, b"10")))
        assert data_of(engine) == [b"3", b"4", b"7", b"9", b"10"]
        writer = NAMES.writer("t", 0)
        target = DirectoryTarget(engine)
        assert target.progress("orders", writer) == {"offset": 11, "topic": "id"}
        target.forget("orders", writer)
        with pytest.raises(ImportFailed, match="was deleted"):
            first.append(batch_of((11, b"11")))


def test_a_dead_letter_is_there_when_the_log_is_past_its_message(tmp_path: Path) -> None:
    class Failing(DirectoryTarget):
        def append(self, log: str, *arguments: Any, **more: Any) -> Any:
            if log == "orders":
                raise RuntimeError("killed")
            return super().append(log, *arguments, **more)

    shape = MessageShape(log="orders", dead_letters="dead")
    messages = [message(1, b"1"), message(2, b"no"), message(3, b"3")]

    def append(target: DirectoryTarget) -> None:
        part = ImportedPart("t", 0)
        appender = PartitionAppender(target, shape, NAMES, part, "id")
        for batch in staged(MessageRecords(shape, part).of(messages)):
            appender.append(batch)

    with Engine.open(tmp_path, background=False) as engine:
        with pytest.raises(RuntimeError):
            append(Failing(engine))
        assert [json.loads(letter)["offset"] for letter in data_of(engine, "dead")] == [2]
        append(DirectoryTarget(engine))
        assert data_of(engine) == [b"1", b"3"]
        assert len(data_of(engine, "dead")) == 1


def test_a_dead_letter_that_is_too_large_has_only_its_size() -> None:
    part = ImportedPart("t", 0)
    shape = MessageShape(log="orders", dead_letters="dead")
    ((offset, letter),) = MessageRecords(shape, part).of([message(2, b"x" * (MAX_RECORD_BYTES + 1))])
    found = json.loads(letter.data)
    assert (offset, letter.log, found["value"], found["value_bytes"]) == (2, "dead", None, MAX_RECORD_BYTES + 1)
    assert part.bad == 1


@pytest.mark.parametrize(
    ("shape", "parts", "why"),
    [
        ({}, {"value": b"{"}, "not valid JSON"),
        ({}, {"value": b"1", "key": b"k" * 1025}, "the key has more than 1024 bytes"),
        ({"value": "text"}, {"value": b"\xff"}, "not valid UTF-8"),
        ({"value": "avro"}, {"value": b"\xff"}, "does not match the Avro schema"),
        ({"has_times": True}, {"value": b"1", "ts": -1}, "invalid time -1"),
        ({"has_times": True}, {"value": b"1", "headers": [{"key": "strandline-ts", "value": b"x"}]}, "invalid time"),
    ],
)
def test_messages_that_cannot_be_records(shape: dict[str, Any], parts: dict[str, Any], why: str) -> None:
    part = ImportedPart("t", 0)
    value = parts.pop("value")
    assert list(MessageRecords(MessageShape(log="orders", **shape), part).of([message(7, value, **parts)])) == []
    (place,) = part.places
    assert (place.path, place.number) == ("t/0", 7)
    assert why in place.why


def test_waves_are_bounded_and_keep_the_order_of_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka, "WAVE_MESSAGES", 20)
    monkeypatch.setattr(kafka, "PARTITION_MESSAGES", 5)
    ends = {0: 12, 1: 30, 2: 3}
    partitions = {
        number: TopicPartition(topic="t", partition=number, topic_id="id", earliest=0, latest=end)
        for number, end in ends.items()
    }
    found = [
        [(one.partition.partition, one.start, one.end) for one in wave]
        for wave in waves([OffsetRange(partitions[number], 1, end) for number, end in ends.items()])
    ]
    assert found == [[(0, 1, 7), (1, 1, 7), (2, 1, 3)], [(0, 7, 12), (1, 7, 17)], [(1, 17, 30)]]


def test_offsets_of_partitions_that_were_never_imported() -> None:
    partition = TopicPartition(topic="t", partition=3, topic_id="id", earliest=10, latest=90)

    def first(text: str) -> int:
        topics = KafkaTopics(servers="h:1", topics=["t"], options={"startingoffsets": text})
        return kafka._first(partition, topics.starting_offsets())

    assert [first(text) for text in ("earliest", "latest", '{"t":{"3":42}}', '{"t":{"3":-1}}', '{"t":{}}')] == [
        10, 90, 42, 90, 10
    ]  # fmt: skip


def test_progress_belongs_to_the_cluster_the_topic_and_the_job() -> None:
    writers = {
        WriterNames(*name).writer(topic, 0) for name in (("a", ""), ("b", ""), ("a", "j")) for topic in ("t", "u")
    }
    assert len(writers) == 6
    assert len(WriterNames("a", "").writer("t" * 249, 99_999)) <= MAX_WRITER
