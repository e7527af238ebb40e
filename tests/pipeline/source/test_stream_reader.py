"""A stream by path, without Spark: the calls that Spark makes, in its order."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from strandline.engine import Batch, Config, Engine, Log
from strandline.engine.reads.directory_view import VIEWS
from strandline.pipeline.source.batch_reader import offered_schema
from strandline.pipeline.source.options import read_options
from strandline.pipeline.source.stream_reader import OtherDirectory, StreamReader
from strandline.pipeline.source.task_reader import DataLoss


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with Engine.open(tmp_path / "data", background=False) as engine:
        yield engine


class Query:
    """What Spark does with a source; ``offsets`` is what is in the checkpoint."""

    def __init__(self, engine: Engine, offsets: list[str] | None = None, **options: str) -> None:
        chosen = read_options({"path": str(engine.disk.local_path("")), **options}, stream=True)
        self.reader = StreamReader(chosen, offered_schema(chosen))
        self.offsets = [] if offsets is None else offsets

    def plan(self) -> bool:
        """Write down the next batch; tells whether there is one."""
        start = self._offset(len(self.offsets) - 1)
        end = json.dumps(self.reader.latestOffset(json.loads(start), self.reader.getDefaultReadLimit()))
        if end != start:
            self.offsets.append(end)
        return end != start

    def run(self, batch: int = -1) -> list[tuple[str, int]]:
        """The records of a batch that was written down."""
        number = batch % len(self.offsets)
        start, end = (json.loads(self._offset(each)) for each in (number - 1, number))
        found = [
            part
            for partition in self.reader.partitions(start, end)
            for part in StreamReader.read(self.reader, partition)
        ]
        rows = pa.Table.from_batches(found).to_pylist() if found else []
        return [(row["log"], row["seq"]) for row in rows]

    def next(self) -> list[tuple[str, int]]:
        return self.run() if self.plan() else []

    def everything(self) -> list[tuple[str, int]]:
        found = []
        while self.plan():
            found += self.run()
        return found

    def _offset(self, batch: int) -> str:
        return json.dumps(self.reader.initialOffset()) if batch < 0 else self.offsets[batch]

    def close(self) -> None:
        self.reader.stop()


def put(log: Log, count: int) -> None:
    log.append(Batch([b"1"] * count)).wait()


def numbered(name: str, first: int, last: int) -> list[tuple[str, int]]:
    return [(name, seq) for seq in range(first, last + 1)]


def test_records_and_logs_that_come_are_read_once(engine: Engine) -> None:
    a = engine.create("a").wait()
    put(a, 3)
    query = Query(engine)
    assert query.next() == numbered("a", 1, 3)
    assert not query.plan()
    put(a, 2)
    engine.seal()
    put(engine.create("b").wait(), 2)
    assert query.next() == numbered("a", 4, 5) + numbered("b", 1, 2)
    assert not query.plan()
    query.close()
    again = Query(engine, query.offsets)
    assert not again.plan()
    put(a, 1)
    assert again.next() == numbered("a", 6, 6)
    again.close()
    assert list(Path(engine.disk.local_path(VIEWS)).iterdir()) == []


def test_a_batch_that_is_repeated_has_the_same_records(engine: Engine) -> None:
    a = engine.create("a").wait()
    put(a, 3)
    query = Query(engine, startSeq="latest")
    assert query.next() == []
    put(a, 2)
    assert query.plan()
    query.close()
    put(a, 5)
    again = Query(engine, query.offsets, startSeq="latest")
    assert again.run(0) == []
    assert again.run(1) == numbered("a", 4, 5)
    assert again.next() == numbered("a", 6, 10)
    again.close()


def test_the_latest_is_said_of_logs_that_are_there_and_of_others_everything_is_read(engine: Engine) -> None:
    put(engine.create("a").wait(), 3)
    query = Query(engine, startSeq="latest")
    query.next()
    put(engine.create("b").wait(), 2)
    assert query.next() == numbered("b", 1, 2)
    query.close()


def test_that_is_so_even_if_there_is_no_log_at_first(engine: Engine) -> None:
    query = Query(engine, startSeq="latest")
    query.next()
    put(engine.create("a").wait(), 2)
    assert query.next() == numbered("a", 1, 2)
    query.close()


def test_a_stream_begins_and_ends_where_it_is_told(engine: Engine) -> None:
    log = engine.create("a").wait()
    for number in range(10):
        log.append(Batch([b"1"]), ts=1000 + number).wait()
    engine.seal()
    for options, found in (
        ({"startSeq": "4", "endSeq": "6"}, numbered("a", 4, 6)),
        ({"startTime": "1003", "endTime": "1006"}, numbered("a", 4, 6)),
        ({"startTime": "1003", "maxOffsetsPerTrigger": "2"}, numbered("a", 4, 10)),
        ({"startSeq": "40"}, []),
        ({"startTime": "9000"}, []),
    ):
        query = Query(engine, **options)
        assert query.everything() == found
        # What lies before the time is not gone through batch by batch.
        assert len(query.offsets) <= 4
        query.close()


def test_batches_are_as_large_as_they_may_be_and_shared_by_all_logs(engine: Engine) -> None:
    put(engine.create("large").wait(), 20)
    put(engine.create("small").wait(), 3)
    query = Query(engine, maxOffsetsPerTrigger="8")
    assert query.next() == numbered("large", 1, 5) + numbered("small", 1, 3)
    assert query.next() == numbered("large", 6, 13)
    end = query.reader.latestOffset(json.loads(query.offsets[-1]), ReadAllAvailable())
    assert end["logs"]["large"]["seq"] == 20
    query.close()


def test_available_now_ends_with_what_was_there(engine: Engine) -> None:
    a = engine.create("a").wait()
    put(a, 5)
    query = Query(engine, maxOffsetsPerTrigger="2")
    query.reader.prepareForTriggerAvailableNow()
    put(a, 5)
    put(engine.create("b").wait(), 1)
    assert query.everything() == numbered("a", 1, 5)
    query.close()
    again = Query(engine, query.offsets)
    again.reader.prepareForTriggerAvailableNow()
    b = engine.find("b")
    assert b is not None
    b.drop().wait()
    put(engine.create("b").wait(), 2)
    assert again.everything() == numbered("a", 6, 10)
    assert again.reader.reportLatestOffset()["logs"]["a"]["seq"] == 10
    again.close()


def test_a_log_that_was_made_anew_is_another_one(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    log = engine.create("a").wait()
    put(log, 5)
    strict, lenient = Query(engine), Query(engine, failOnDataLoss="false")
    for query in (strict, lenient):
        query.next()
    log.drop().wait()
    for query in (strict, lenient):
        assert not query.plan(), "that a log is gone is no loss: somebody dropped it"
    put(engine.create("a").wait(), 3)
    with pytest.raises(DataLoss, match="'a' was dropped and created again before its records from 6 were read; with"):
        strict.plan()
    assert lenient.next() == numbered("a", 1, 3)
    assert "log 'a' was dropped and created again" in caplog.text
    strict.close()
    lenient.close()


def test_a_log_that_goes_backwards_is_a_loss(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    """As after an older copy of the data directory was put in place."""
    log = engine.create("a").wait()
    put(log, 3)
    first = Query(engine)
    first.next()
    (offset,) = first.offsets
    first.close()
    later = offset.replace('"seq": 3', '"seq": 7')
    assert later != offset
    strict, lenient = Query(engine, [later]), Query(engine, [later], failOnDataLoss="false")
    with pytest.raises(DataLoss, match="log 'a' ends at 3, but was read up to 7: it lost records"):
        strict.plan()
    assert lenient.next() == []
    put(log, 2)
    assert lenient.next() == numbered("a", 4, 5)
    assert "log 'a' ends at 3, but was read up to 7" in caplog.text
    strict.close()
    lenient.close()


def test_what_was_dropped_before_its_batch_ran_is_left_out(engine: Engine) -> None:
    log = engine.create("a").wait()
    put(log, 5)
    query = Query(engine)
    assert query.plan()
    query.close()
    log.drop().wait()
    put(engine.create("a").wait(), 9)
    strict, again = Query(engine, query.offsets), Query(engine, query.offsets, failOnDataLoss="false")
    with pytest.raises(DataLoss, match="'a' was dropped and created again before its records 1 to 5 were read"):
        strict.run(0)
    assert again.run(0) == []
    assert again.next() == numbered("a", 1, 9)
    strict.close()
    again.close()


def test_the_files_of_a_batch_stay_until_the_next_one_is_planned(engine: Engine) -> None:
    log = engine.create("a").wait()
    put(log, 5)
    query = Query(engine)
    assert query.plan()
    planned = query.reader.partitions(query.reader.initialOffset(), json.loads(query.offsets[0]))
    for _ in range(3):
        put(log, 1)
        engine.seal()
        query.reader.latestOffset(json.loads(query.offsets[0]), ReadAllAvailable())
    found = [batch for partition in planned for batch in query.reader.read(partition)]
    assert sum(batch.num_rows for batch in found) == 5
    assert len(list(Path(engine.disk.local_path(VIEWS)).iterdir())) == 2
    assert query.next() == numbered("a", 6, 8)
    assert len(list(Path(engine.disk.local_path(VIEWS)).iterdir())) == 1
    query.close()


def test_what_is_lost_before_the_stream_begins_is_not_missed_and_what_is_lost_later_is_told(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    log = engine.create("a", Config(cap_records=5)).wait()
    put(log, 8)
    strict, lenient = Query(engine), Query(engine, failOnDataLoss="false")
    for query in (strict, lenient):
        assert query.next() == numbered("a", 4, 8)
    put(log, 7)
    with pytest.raises(DataLoss, match=r"retention removed records 9 to 10 of log 'a'.*failOnDataLoss=false"):
        strict.plan()
    assert lenient.next() == numbered("a", 11, 15)
    assert "retention removed records 9 to 10 of log 'a'" in caplog.text
    strict.close()
    lenient.close()


def test_deleted_records_are_no_loss(engine: Engine) -> None:
    log = engine.create("a").wait()
    put(log, 2)
    query = Query(engine)
    query.next()
    put(log, 5)
    log.delete(before=6).wait()
    assert query.next() == numbered("a", 6, 7)
    query.close()


def test_a_checkpoint_of_another_directory_is_refused(engine: Engine, tmp_path: Path) -> None:
    put(engine.create("a").wait(), 2)
    query = Query(engine)
    query.next()
    query.close()
    with Engine.open(tmp_path / "other", background=False) as other:
        put(other.create("a").wait(), 5)
        wrong = Query(other, query.offsets)
        with pytest.raises(OtherDirectory, match="use a new checkpoint location"):
            wrong.plan()
        wrong.close()


def test_logs_that_are_named_may_come_later(engine: Engine) -> None:
    put(engine.create("a").wait(), 1)
    query = Query(engine, logs="later")
    assert not query.plan()
    put(engine.create("later").wait(), 2)
    assert query.next() == numbered("later", 1, 2)
    query.close()


def test_a_log_that_comes_again_is_recognised_long_after_it_was_dropped(engine: Engine) -> None:
    a, b = engine.create("a").wait(), engine.create("b").wait()
    put(a, 3)
    query = Query(engine, logs="a,b")
    lenient = Query(engine, logs="a,b", failOnDataLoss="false")
    assert query.next() == lenient.next() == numbered("a", 1, 3)
    a.drop().wait()
    put(b, 1)
    assert query.next() == lenient.next() == numbered("b", 1, 1)
    put(engine.create("a").wait(), 2)
    with pytest.raises(DataLoss, match=r"log 'a' was dropped and created again.*failOnDataLoss=false"):
        query.plan()
    again = Query(engine, query.offsets, logs="a,b")
    with pytest.raises(DataLoss):
        again.plan()
    assert lenient.next() == numbered("a", 1, 2)
    for each in (query, lenient, again):
        each.close()


def test_positions_and_times_are_those_of_each_log(engine: Engine) -> None:
    for name in "abc":
        put(engine.create(name).wait(), 4)
    query = Query(engine, startSeq='{"a": 3, "b": "latest"}', endSeq='{"c": 2}')
    assert query.next() == numbered("a", 3, 4) + numbered("c", 1, 2)
    for name in "abc":
        log = engine.find(name)
        assert log is not None
        put(log, 1)
    assert query.next() == [("a", 5), ("b", 5)]
    query.close()


def test_a_pattern_selects_logs_that_come_later(engine: Engine) -> None:
    put(engine.create("orders-1").wait(), 1)
    put(engine.create("other").wait(), 1)
    query = Query(engine, subscribePattern="orders-[0-9]+")
    assert query.next() == [("orders-1", 1)]
    put(engine.create("orders-2").wait(), 1)
    put(engine.create("orders-x").wait(), 1)
    assert query.next() == [("orders-2", 1)]
    query.close()


def test_a_stream_waits_for_enough_records_but_not_for_ever(engine: Engine) -> None:
    log = engine.create("a").wait()
    put(log, 1)
    query = Query(engine, minOffsetsPerTrigger="3")
    patient = Query(engine, minOffsetsPerTrigger="3", maxTriggerDelay="0")
    assert query.next() == patient.next() == numbered("a", 1, 1)
    put(log, 2)
    assert not query.plan()
    assert patient.next() == numbered("a", 2, 3)
    put(log, 1)
    assert query.next() == numbered("a", 2, 4)
    put(log, 1)
    assert not query.plan()
    # Up to a target, a stream does not wait.
    query.reader.prepareForTriggerAvailableNow()
    assert query.next() == numbered("a", 5, 5)
    query.close()
    patient.close()


def test_a_batch_has_about_as_many_bytes_as_it_may(engine: Engine) -> None:
    for name, size in (("large", 1000), ("small", 10)):
        engine.create(name).wait().append(Batch([b"1" * size] * 20)).wait()
    query = Query(engine, maxBytesPerTrigger="2k")
    first = query.next()
    assert [name for name, _ in first].count("large") == 1
    assert [name for name, _ in first].count("small") == 20
    assert query.next() == numbered("large", 2, 3)
    tiny = Query(engine, logs="large", maxBytesPerTrigger="1")
    assert len(tiny.everything()) == 20
    assert len(tiny.offsets) == 20
    query.close()
    tiny.close()


def test_the_lag_is_reported_with_the_latest_offset(engine: Engine) -> None:
    log = engine.create("a").wait()
    put(log, 10)
    query = Query(engine, maxOffsetsPerTrigger="4")
    assert query.next() == numbered("a", 1, 4)
    report = query.reader.reportLatestOffset()
    assert report["logs"] == {"a": {"epoch": log.epoch, "seq": 10}}
    assert report["lag"] == {
        "offsetsBehindLatest": 6, "bytesBehindLatest": 6, "minOffsetsBehindLatest": 6, "avgOffsetsBehindLatest": 6.0,
        "maxOffsetsBehindLatest": 6, "furthestBehind": "a",
    }  # fmt: skip
    query.close()
