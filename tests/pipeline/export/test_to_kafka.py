"""Exports to Kafka, without a broker: what is sent, in which order, and from where on."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline.engine import Batch, Engine
from strandline.engine.record import Config
from strandline.history.directory import DirectoryHistory
from strandline.pipeline.chosen_logs import Chosen
from strandline.pipeline.export import to_kafka
from strandline.pipeline.export.files import BadTarget
from strandline.pipeline.export.run import ExportFailed, ExportSelection
from strandline.pipeline.export.to_kafka import KafkaExportReport, KafkaTarget, MessageItem, messages_of
from strandline.pipeline.imports.messages import ImportedPart, Message, MessageRecords, MessageShape

TIME = 1_700_000_000_000


class Positions:
    def __init__(self, position: int) -> None:
        self._position = position

    def position(self, log: str) -> int:
        return self._position

    def commit(self, log: str, seq: int) -> None:
        raise AssertionError("nothing is sent here")


@pytest.fixture
def history(tmp_path: Path) -> DirectoryHistory:
    with Engine.open(tmp_path / "data", background=False) as engine:
        for name, records in (("a", 5), ("b", 2), ("empty", 0)):
            log = engine.create(name).wait()
            for number in range(records):
                log.append(Batch([b"%d" % number], ["k"], ["n"], [b'{"m":1}']), ts=TIME + number).wait()
                engine.seal()
    return DirectoryHistory(tmp_path / "data")


def sent(item: MessageItem) -> list[bytes]:
    return [data for piece in item.pieces for batch in piece.read() for data in batch.column("data").to_pylist()]


def test_each_job_has_the_next_records_of_every_log(history: DirectoryHistory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(to_kafka, "WAVE_RECORDS", 2)
    waves = to_kafka._waves(history, history.logs(), {"a": 1}, ExportSelection(Chosen([], "")))
    found = [[(item.log, sent(item), item.through) for item in wave] for wave in waves]
    in_order = [data for wave in found for log, sent_, _ in wave if log == "a" for data in sent_]
    assert in_order == [b"1", b"2", b"3", b"4"]
    assert all(len({log for log, _, _ in wave}) == len(wave) for wave in found)
    assert all(len(sent_) <= 2 for wave in found for _, sent_, _ in wave)
    assert [through for wave in found for log, _, through in wave if log == "a"][-1] == 5
    assert [(sent_, through) for wave in found for log, sent_, through in wave if log == "b"] == [([b"0", b"1"], 2)]


def test_records_that_retention_removed_before_the_export_are_reported(tmp_path: Path) -> None:
    with Engine.open(tmp_path / "data", background=False) as engine:
        log = engine.create("a", Config(cap_records=2)).wait()
        for number in range(6):
            log.append(Batch([b"%d" % number])).wait()
    history = DirectoryHistory(tmp_path / "data")
    info = history.log("a")
    report = KafkaExportReport(target="")
    assert to_kafka._start(info, Positions(4), "stop", report) == 4
    with pytest.raises(ExportFailed, match=r"removed the seqs 3 to 4 of log 'a'.*--lost skip"):
        to_kafka._start(info, Positions(2), "stop", report)
    assert to_kafka._start(info, Positions(2), "skip", report) == 2
    assert report.lost == 2


def test_an_imported_message_is_the_exported_record(history: DirectoryHistory) -> None:
    info = history.log("b")
    records = [batch for piece in history.pieces(info, 0, 2, 100) for batch in piece.read()]
    part = ImportedPart("t", 0)
    messages = [
        Message("t", 0, offset, 0, row["key"], row["headers"], row["value"], None)
        for offset, row in enumerate(row for batch in records for row in messages_of(batch, is_json=True).to_pylist())
    ]
    found = [record for _, record in MessageRecords(MessageShape(log="b", has_times=True), part).of(messages)]
    assert [tuple(record) for record in found] == [
        ("b", TIME + number, "k", "n", b'{"m":1}', b"%d" % number) for number in range(2)
    ]


@pytest.mark.parametrize("location", ["kafka://h:1", "kafka:///t", "kafka://h:1/", "kafka://h:1/a/b", "kafka://h:1/.."])
def test_a_place_that_is_no_topic_is_refused(location: str) -> None:
    with pytest.raises(BadTarget, match="expected kafka://HOST:PORT/TOPIC"):
        KafkaTarget.at(location, {})


def test_a_topic() -> None:
    target = KafkaTarget.at("kafka://a:1,b:2/orders.v1", {"kafka.acks": "all"})
    assert (target.servers, target.topic, target.options) == ("a:1,b:2", "orders.v1", {"kafka.acks": "all"})
    with pytest.raises(BadTarget, match="--option topic cannot be set"):
        KafkaTarget.at("kafka://a:1/t", {"topic": "other"})
