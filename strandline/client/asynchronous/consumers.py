"""Named readers of a topic, whose positions the server keeps."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, Generic, TypeVar

from strandline.client import topic_calls as calls
from strandline.client.asynchronous.pages import read_pages
from strandline.client.asynchronous.transport import AsyncTransport
from strandline.client.asynchronous.watch import tell_loss
from strandline.client.calls import Reading, delete, get, put
from strandline.client.topic_types import ConsumerPosition, Page, Record, Tombstone

T = TypeVar("T")


class AsyncConsumer(Generic[T]):
    """A durable cursor. What was read and not committed is read again by whoever reads next under this name."""

    def __init__(self, transport: AsyncTransport, topic: str, page: Reading[Page[Any]], name: str) -> None:
        self._transport = transport
        self._topic = topic
        self._page = page
        self.name = name
        self._path = calls.consumer_path(topic, name)

    async def position(self) -> ConsumerPosition:
        """How far it has committed, and its lag. Raises NotFound if it never has."""
        return await self._transport.ask(get(self._path), calls.POSITION)

    async def commit(self, seq: int) -> ConsumerPosition:
        """Everything up to this seq has been dealt with. Going back is allowed."""
        return await self._transport.ask(put(self._path, {"seq": seq}), calls.POSITION)

    async def diff(self, *, limit: int | None = None, wait_ms: int = 0) -> Page[T]:
        """One page of what is behind the committed seq."""
        request = calls.diff(self._topic, consumer=self.name, limit=limit, wait_ms=wait_ms, include_tags=True)
        return await self._transport.ask(request, self._page)

    async def batches(
        self, *, size: int = 256, on_loss: Callable[[Tombstone], None] | None = None
    ) -> AsyncIterator[list[Record[T]]]:
        """What is behind the committed seq, in batches, up to the end. A batch is committed when the next one is asked
        for: if the program fails on the way, it comes again."""

        async def page(position: int) -> Page[T]:
            if position < 0:
                return await self.diff(limit=size)
            request = calls.diff(self._topic, from_seq=position, limit=size, include_tags=True)
            return await self._transport.ask(request, self._page)

        async for found in read_pages(page, -1):
            if found.tombstone is not None:
                tell_loss(found.tombstone, on_loss)
            if found.records:
                yield found.records
            await self.commit(found.next_from_seq)

    async def delete(self) -> bool:
        """Forget it; whether there was anything to forget."""
        return (await self._transport.ask(delete(self._path), calls.CONSUMER_DELETED)).deleted
