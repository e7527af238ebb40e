from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import perf_counter

import pytest

from strandline.delivery.hub import Hub
from strandline.engine import Batch, Engine
from strandline.engine.clock import SystemClock
from strandline.protocols.topics.context import Context
from strandline.protocols.topics.settings import TopicsSettings
from strandline.protocols.topics.topics import new_topic
from strandline.protocols.topics.worker_stream import WorkerStreams, WorkStream
from strandline.service.access import FULL_ACCESS
from strandline.service.http import Call, Head, Sink
from strandline.service.kernel import Kernel
from strandline.service.limits import Slots
from strandline.service.live import HEARTBEAT_SECONDS
from strandline.service.log_config import TopicConfig
from strandline.service.problems import Refusal


class Reader(Sink):
    """Takes what is written; one that does not keep up says so."""

    def __init__(self) -> None:
        self.chunks: list[bytes] = []
        self.keeps_up = True
        self.ended = False

    def write(self, data: bytes) -> bool:
        self.chunks.append(data)
        return self.keeps_up

    def close(self) -> None:
        self.ended = True

    @property
    def unread_bytes(self) -> int:
        return 0


class Place:
    """A queue named ``jobs`` and streams on it, without a server around."""

    def __init__(self, path: Path) -> None:
        self.engine = Engine.open(path, background=False)
        self.slots = Slots(total=1)
        hub = Hub(SystemClock().now)
        self.context = Context(Kernel.for_tests(self.engine, hub, self.slots), TopicsSettings())
        self.topic, _ = self.context.topics.create("jobs", new_topic("jobs", TopicConfig(type="queue")))
        self.working = WorkerStreams(self.context)

    def write(self, count: int = 1) -> None:
        self.topic.log.append(Batch([b"1"] * count)).wait()

    def stream(self) -> WorkStream:
        head = Head("GET", "/v0/topics/jobs/work", "node=a&max=2", {})
        head.params = {"topic": "jobs"}
        head.access = FULL_ACCESS
        stream = self.working.work(Call(head, b"", perf_counter()))
        assert isinstance(stream, WorkStream)
        return stream

    def open(self) -> tuple[WorkStream, Reader]:
        stream, reader = self.stream(), Reader()
        stream.opened(reader)
        return stream, reader


def at_place(path: Path, test: Callable[[Place], Awaitable[None]]) -> None:
    async def run() -> None:
        place = Place(path)
        try:
            await test(place)
        finally:
            place.engine.close()

    asyncio.run(run())


def test_a_heartbeat_is_sent_when_nothing_else_was_for_long_enough(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        before = place.context.hub.loop.time()
        stream, reader = place.open()
        assert stream.rings_at is not None
        sent = stream.rings_at - HEARTBEAT_SECONDS
        assert before <= sent <= place.context.hub.loop.time()
        # Something was sent in the meantime, as far as this call is concerned: the next look is when it is due.
        assert stream.ring(sent + 1) == pytest.approx(sent + HEARTBEAT_SECONDS)
        assert len(reader.chunks) == 1
        assert stream.ring(sent + HEARTBEAT_SECONDS) == pytest.approx(sent + 2 * HEARTBEAT_SECONDS)
        assert reader.chunks[-1].startswith(b": hb ")
        assert len(reader.chunks) == 2
        stream.closed()
        assert stream.ring(sent + 5 * HEARTBEAT_SECONDS) is None
        assert stream.rings_at is None

    at_place(tmp_path, test)


def test_a_reader_that_does_not_keep_up_is_given_nothing_until_it_does(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        stream, reader = place.stream(), Reader()
        reader.keeps_up = False
        place.write(2)
        stream.opened(reader)
        assert len(reader.chunks) == 1
        assert stream.ring(place.context.hub.loop.time() + HEARTBEAT_SECONDS) is not None
        assert len(reader.chunks) == 1
        reader.keeps_up = True
        stream.resumed()
        assert reader.chunks[-1].count(b"event: job") == 2
        stream.closed()

    at_place(tmp_path, test)


def test_a_stream_takes_a_slot_from_its_opening_to_its_end(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        never_opened = place.stream()
        assert place.slots.used == 0
        stream, _ = place.open()
        assert place.slots.used == 1
        with pytest.raises(Refusal) as refused:
            place.stream()
        assert (refused.value.status, refused.value.detail) == (429, None)
        assert refused.value.headers == ((b"retry-after", b"1"),)
        # The slot was free when it was asked for, and is not any more.
        late = Reader()
        never_opened.opened(late)
        assert b'"code":429' in late.chunks[-1]
        assert late.ended
        never_opened.closed()
        assert place.slots.used == 1
        stream.closed()
        assert place.slots.used == 0
        assert len(place.context.dispatchers) == 0

    at_place(tmp_path, test)


def test_a_busy_server_says_that_it_holds_jobs_back(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        for _ in range(50):
            place.context.admission.pressure.note(100)
        place.write()
        stream, reader = place.open()
        error = reader.chunks[-1]
        assert error.startswith(b'event: error\ndata: {"code":429,"error":')
        assert b'"retry_after_ms":' in error
        assert error.endswith(b'"topics":["jobs"]}\n\n')
        assert not reader.ended
        stream.closed()

    at_place(tmp_path, test)


def test_the_queue_is_gone_before_the_stream_is_opened(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        stream, reader = place.stream(), Reader()
        place.context.kernel.catalog.drop(place.topic.log)
        stream.opened(reader)
        assert b'"code":409' in reader.chunks[-1]
        assert reader.ended
        stream.closed()
        assert (place.slots.used, len(place.context.dispatchers)) == (0, 0)

    at_place(tmp_path, test)
