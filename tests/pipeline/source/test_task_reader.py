"""What tasks meet that read from a server: records lost, and logs gone, since the query was planned."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from support.arrow_client import ArrowClient, table
from support.server_process import ServerProcess, StartServer
from support.topics_client import Client

from strandline.engine.errors import UnknownLog
from strandline.pipeline.source.batch_reader import BatchReader, offered_schema
from strandline.pipeline.source.options import read_options
from strandline.pipeline.source.stream_reader import StreamReader
from strandline.pipeline.source.task_reader import DataLoss, together


@pytest.fixture
def running(start_server: StartServer) -> ServerProcess:
    return start_server()


@pytest.fixture
def arrow(running: ServerProcess) -> Iterator[ArrowClient]:
    client = ArrowClient(running.url)
    yield client
    client.close()


@pytest.fixture
def topics(running: ServerProcess) -> Iterator[Client]:
    client = Client(running.url)
    yield client
    client.close()


def stream_of(url: str, **options: str) -> StreamReader:
    chosen = read_options({"url": url, **options}, stream=True)
    return StreamReader(chosen, offered_schema(chosen))


def planned(reader: StreamReader) -> list[Any]:
    """The partitions of a first batch."""
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    return reader.partitions(start, json.loads(json.dumps(end)))


def seqs(reader: Any, partitions: list[Any]) -> list[int]:
    return [seq for each in partitions for batch in reader.read(each) for seq in batch.column("seq").to_pylist()]


def test_what_is_lost_between_planning_and_reading_is_told(
    running: ServerProcess, arrow: ArrowClient, topics: Client, caplog: pytest.LogCaptureFixture
) -> None:
    topics.put("capped", cap_records=5)
    arrow.append("capped", table(*range(5)))
    strict, lenient = (
        stream_of(running.url, logs="capped"),
        stream_of(running.url, logs="capped", failOnDataLoss="false"),
    )
    plans = [(reader, planned(reader)) for reader in (strict, lenient)]
    assert [seqs(*plan) for plan in plans] == [[1, 2, 3, 4, 5]] * 2
    arrow.append("capped", table(*range(3)))
    with pytest.raises(DataLoss, match="retention removed records 1 to 3 of log 'capped'"):
        seqs(*plans[0])
    assert seqs(*plans[1]) == [4, 5]
    arrow.append("capped", table(*range(9)))
    assert seqs(*plans[1]) == []
    assert "retention removed records 1 to 5 of log 'capped'" in caplog.text


def test_a_stream_goes_on_without_a_log_that_was_dropped_and_a_batch_does_not(
    running: ServerProcess, arrow: ArrowClient, topics: Client, caplog: pytest.LogCaptureFixture
) -> None:
    arrow.append("gone", table(*range(3)), create="true", status=201)
    stream = stream_of(running.url, logs="gone", failOnDataLoss="false")
    strict = stream_of(running.url, logs="gone")
    chosen = read_options({"url": running.url, "logs": "gone"})
    batch = BatchReader(chosen, offered_schema(chosen))
    plans = planned(stream), batch.partitions()
    strict_plan = planned(strict)
    topics.drop("gone")
    assert seqs(strict, strict_plan) == [], "somebody dropped it on purpose"
    for _ in range(2):
        assert seqs(stream, plans[0]) == []
        with pytest.raises(UnknownLog):
            seqs(batch, plans[1])
        # There is another one of that name then, which is not meant.
        topics.write("gone", [{"data": 1}] * 9)
    assert "log 'gone' was dropped during the read" in caplog.text
    with pytest.raises(DataLoss, match="'gone' was dropped and created again before its records 1 to 3 were read"):
        seqs(strict, strict_plan)


def test_small_batches_are_put_together_and_large_ones_left_alone() -> None:
    def batch(first: int, count: int) -> Any:
        return pa.record_batch({"n": pa.array(range(first, first + count))})

    sizes = [1, 2, 5000, 3, 4, 5, 3000, 1]
    starts = [sum(sizes[:place]) for place in range(len(sizes))]
    found = list(together(iter([batch(*each) for each in zip(starts, sizes, strict=True)]), 8))
    assert [each.num_rows for each in found] == [3, 5000, 7, 5, 3000, 1]
    assert pa.Table.from_batches(found).column("n").to_pylist() == list(range(sum(sizes)))
