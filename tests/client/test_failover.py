"""A client with the URLs of a leader and its standby, over real takeovers."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import httpx
import pytest
from support.server_process import ServerProcess
from support.topics_client import eventually

from strandline.client import START, Client, Patience
from strandline.engine.replica.leader import request_takeover
from strandline.engine.replica.store import ObjectStoreReplica

PATIENCE = Patience(60, first_wait=0.01, longest_wait=0.1)
#: A paused server answers nothing, so its clients wait this long.
TIMEOUT_SECONDS = 3.0
COUNT = 40


class Pair:
    """A leader and its standby, in processes of their own."""

    def __init__(self, directory: Path) -> None:
        self._store = ObjectStoreReplica(str(directory / "replica"))
        settings: dict[str, object] = {"replica": directory / "replica", "replica_interval_ms": 1}
        self.leader = ServerProcess(directory / "leader", settings=settings)
        self.standby = ServerProcess(directory / "standby", settings={**settings, "standby": True})

    def start(self) -> None:
        self.leader.start()
        self.standby.launch()
        # A standby notices requests that are made after it has begun to wait.
        eventually(lambda: "standing by for the leader" in self.standby.log())

    @property
    def urls(self) -> list[str]:
        return [self.leader.url, self.standby.url]

    def take_over(self) -> None:
        request_takeover(self._store)
        eventually(self.standby.is_ready)

    def end(self) -> None:
        self.leader.end()
        self.standby.end()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    pair = Pair(tmp_path)
    try:
        pair.start()
        yield pair
    finally:
        pair.end()


def in_thread(function: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    return thread


def test_writes_are_applied_once_when_the_leader_is_killed(pair: Pair) -> None:
    half = threading.Event()

    def kill() -> None:
        half.wait()
        pair.leader.kill()
        pair.take_over()

    with Client(pair.urls, patience=PATIENCE) as client:
        topic, queue = client.topic("orders"), client.queue("jobs")
        topic.configure(durability="replicated")
        queue.configure(durability="replicated")
        killer = in_thread(kill)
        with topic.producer() as producer:
            for number in range(COUNT):
                producer.produce(number)
                queue.enqueue(number)
                if number == COUNT // 2:
                    half.set()
        killer.join()
        # The last write may have been made before the leader was dead.
        topic.write(COUNT)
        assert client.url == pair.standby.url
        assert [record.data for record in topic.read()] == list(range(COUNT + 1))
        assert [record.data for record in queue.topic.read()] == list(range(COUNT))
        assert [record.seq for record in topic.read()] == list(range(1, COUNT + 2))
        done: list[int] = []
        queue.worker(lambda job: done.append(job.data)).run(until_empty=True)
        assert done == list(range(COUNT))


def test_readers_leave_a_leader_that_was_paused_and_replaced(pair: Pair) -> None:
    seen: dict[str, list[int]] = {"topic": [], "stream": []}

    def follow_topic() -> None:
        with Client(pair.urls, patience=PATIENCE) as client, client.topic("orders").tail(0) as records:
            for record in islice(records, COUNT):
                seen["topic"].append(record.data)

    def follow_stream() -> None:
        with Client(pair.urls, patience=PATIENCE) as client, client.stream("orders").tail(START) as pages:
            for value in islice(pages.values(), COUNT):
                seen["stream"].append(value)

    with Client(pair.urls, patience=PATIENCE, timeout=TIMEOUT_SECONDS) as client:
        topic = client.topic("orders")
        topic.configure(durability="replicated")
        topic.write_many(range(COUNT // 2))
        readers = [in_thread(follow_topic), in_thread(follow_stream)]
        eventually(lambda: all(len(found) == COUNT // 2 for found in seen.values()))
        os.kill(pair.leader.pid, signal.SIGSTOP)
        try:
            pair.take_over()
            topic.write_many(range(COUNT // 2, COUNT))
        finally:
            os.kill(pair.leader.pid, signal.SIGCONT)
        assert client.url == pair.standby.url
        # The old leader notices with its next change that it was replaced. Its readers must not wait there for records.
        late = httpx.post(
            f"{pair.leader.url}/v0/topics/orders", json={"records": [{"data": 0}]}, timeout=60, trust_env=False
        )
        assert late.status_code == 503
        for reader in readers:
            reader.join(60)
        assert seen == {"topic": list(range(COUNT)), "stream": list(range(COUNT))}
