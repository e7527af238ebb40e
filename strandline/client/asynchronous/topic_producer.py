"""Writes many records to a topic, in batches, one after the other."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from strandline.client.asynchronous.transport import AsyncTransport
from strandline.client.errors import Unreachable
from strandline.client.producer_buffer import ProducerBuffer, ProducerLimits
from strandline.client.task_concurrency import AsyncCrew, AsyncFlag
from strandline.client.topic_calls import WRITTEN
from strandline.client.topic_types import Draft

T = TypeVar("T")

log = logging.getLogger("strandline.client.producer")


class AsyncTopicProducer(Generic[T]):
    """Writes records to a topic in batches, in the order in which they are produced, each of them once::

        with client.topic("orders").producer() as producer:
            for order in orders:
                producer.produce(order)

    ``produce`` returns before its record is written; ``flush`` waits until all are. A batch is sent as soon as the one
    before is written, so batches grow with the load. Closing a producer flushes it. Threads and tasks may share one.

    Each batch is a write with an idempotency key, which the client repeats as it repeats other writes. If a batch
    fails after that, no later one is sent: ``produce``, ``flush`` and closing raise the error. ``written`` counts the
    records that are written, and ``unwritten`` returns the others. Those of the batch that failed may have been written
    if the outcome is unknown (``Unreachable`` with ``sent``).
    """

    def __init__(
        self, transport: AsyncTransport, path: str, kind: Any, node: str | None, limits: ProducerLimits
    ) -> None:
        self._transport = transport
        self._path = path
        self._node = node
        self._encode = msgspec.json.Encoder().encode
        self._draft: msgspec.json.Decoder[Draft[T]] = msgspec.json.Decoder(Draft[kind])
        self._buffer = ProducerBuffer(limits)
        self._crew = AsyncCrew(1)
        #: Those who wait until a batch is written.
        self._waiting: list[AsyncFlag] = []
        self._closed = False

    async def __aenter__(self) -> AsyncTopicProducer[T]:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def produce(self, data: T, *, tag: str | None = None, node: str | None = None, meta: Any = None) -> None:
        """Add a record to the next batch. Waits while too much is not written yet."""
        if self._closed:
            raise ValueError("the producer is closed")
        record = self._encode(Draft(data, tag, node, meta))
        buffer = self._buffer
        if not buffer.has_room():
            await self._wait_until(buffer.has_room)
        if buffer.add(record):
            self._crew.start(self._send)

    async def flush(self) -> None:
        """Wait until all records that were produced before are written. Raises the error if that fails."""
        buffer, count = self._buffer, self._buffer.added
        await self._wait_until(lambda: buffer.has_written(count))

    async def aclose(self) -> None:
        """Flush, and accept no more records."""
        self._closed = True
        try:
            await self.flush()
        finally:
            await self._crew.join()

    @property
    def produced(self) -> int:
        """The number of records that were produced."""
        return self._buffer.added

    @property
    def written(self) -> int:
        """The number of records that are written: the first ones that were produced."""
        return self._buffer.written

    def unwritten(self) -> list[Draft[T]]:
        """The records that are not written, or not known to be written, in their order."""
        return [self._draft.decode(record) for record in self._buffer.unwritten()]

    async def _wait_until(self, done: Callable[[], bool]) -> None:
        while not done():
            flag = AsyncFlag()
            self._waiting.append(flag)
            # The last batch may have been written before the flag was there.
            if done():
                return
            await flag.wait()

    async def _send(self) -> None:
        """Write batches until none is left."""
        buffer = self._buffer
        try:
            while (batch := buffer.first()) is not None:
                await self._transport.ask(batch.request(self._path, self._node), WRITTEN)
                buffer.succeeded()
                self._notify()
        except BaseException as error:
            log.error("a producer stops, and %s records are not written: %s", buffer.added - buffer.written, error)
            ended = error if isinstance(error, Exception) else Unreachable("the producer was cancelled", sent=True)
            buffer.failed(ended)
            self._notify()
            if ended is not error:
                raise

    def _notify(self) -> None:
        waiting, self._waiting = self._waiting, []
        for flag in waiting:
            flag.put_up()
