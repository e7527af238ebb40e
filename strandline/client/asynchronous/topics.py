"""Topics: write, read, tail and configure."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, Unpack

from msgspec import UNSET

from strandline.client import topic_calls as calls
from strandline.client.asynchronous.transport import AsyncTransport
from strandline.client.calls import AnswerReader, delete, get, put
from strandline.client.errors import RecordsLost
from strandline.client.task_concurrency import AsyncResult
from strandline.client.topic_calls import Match
from strandline.client.topic_types import (
    Configured,
    ConsumerPosition,
    ConsumerState,
    Draft,
    Page,
    Record,
    RecordsDeleted,
    RouterState,
    Tombstone,
    TopicConfigArguments,
    TopicDeleted,
    TopicState,
    Written,
)

if TYPE_CHECKING:
    from strandline.client.asynchronous.groups import AsyncConsumerGroup
    from strandline.client.asynchronous.topic_producer import AsyncTopicProducer
    from strandline.client.asynchronous.watch import AsyncTail
    from strandline.client.queue_calls import Redriven

T = TypeVar("T")


class AsyncTopic(Generic[T]):
    """One topic. Requests are sent only when a method is called; the topic does not have to exist yet."""

    def __init__(self, transport: AsyncTransport, name: str, kind: Any = Any) -> None:
        self._transport = transport
        self.name = name
        self._kind = kind
        self._path = calls.path_of(name)
        self._page = calls.page_reading(kind)

    # --- writing ---------------------------------------------------------------------------------------------------

    async def write(
        self,
        data: T,
        *,
        tag: str | None = None,
        node: str | None = None,
        meta: Any = None,
        idempotency_key: str | None = None,
        create: bool | None = None,
    ) -> Written:
        """Append one record exactly once: every write has an idempotency key, which is generated unless you give one.
        ``create=False`` refuses to create a missing topic."""
        record = Draft(data, tag, node, meta)
        request = calls.write(self._path, [record], key=idempotency_key, create=create)
        return await self._transport.ask(request, calls.WRITTEN)

    async def write_many(
        self,
        records: Iterable[T | Draft[T]],
        *,
        node: str | None = None,
        idempotency_key: str | None = None,
        create: bool | None = None,
        config: TopicConfigArguments | None = None,
        patient: bool = False,
    ) -> Written:
        """Append records atomically, with consecutive seqs. Pass a ``Draft`` to set more than the data of a record.
        ``config`` is the configuration of a topic that this write creates. ``patient`` makes a busy server wait
        instead of refusing the write."""
        request = calls.write(
            self._path,
            calls.drafts(records),
            key=idempotency_key,
            node=node,
            create=create,
            config=config,
            patient=patient,
        )
        return await self._transport.ask(request, calls.WRITTEN)

    def producer(
        self,
        *,
        node: str | None = None,
        batch_records: int = 5000,
        batch_bytes: int = 4 << 20,
        pending_bytes: int = 16 << 20,
    ) -> AsyncTopicProducer[T]:
        """A producer, which writes many records in batches. ``node`` is the node of records that have none. A batch has
        up to ``batch_records`` records and ``batch_bytes`` bytes, and ``produce`` waits while ``pending_bytes`` bytes
        are not written."""
        from strandline.client.asynchronous.topic_producer import AsyncTopicProducer
        from strandline.client.producer_buffer import ProducerLimits

        limits = ProducerLimits(batch_records, batch_bytes, pending_bytes)
        return AsyncTopicProducer(self._transport, self._path, self._kind, node, limits)

    # --- reading ---------------------------------------------------------------------------------------------------

    async def diff(
        self,
        after: int | None = 0,
        *,
        limit: int | None = None,
        max_bytes: int | None = None,
        wait_ms: int = 0,
        match: Match | None = None,
        since_ts: int | None = None,
        without_nodes: str | Sequence[str] | None = None,
        latest: bool = False,
        consumer: str | None = None,
    ) -> Page[T]:
        """One page of the records after a seq. ``wait_ms`` long-polls if there are none. ``without_nodes`` excludes
        records of these nodes. ``latest`` returns only the last record of each tag. With ``consumer`` and
        ``after=None`` the page starts at the consumer's committed position."""
        request = calls.diff(
            self._path,
            from_seq=after,
            limit=limit,
            max_batch_bytes=max_bytes,
            wait_ms=wait_ms,
            match=match,
            since_ts=since_ts,
            node=without_nodes,
            view="latest" if latest else None,
            consumer=consumer,
            include_tags=True,
        )
        return await self._transport.ask(request, self._page)

    def read(
        self,
        after: int = 0,
        *,
        match: Match | None = None,
        since_ts: int | None = None,
        without_nodes: str | Sequence[str] | None = None,
        latest: bool = False,
        page_size: int = 1000,
        on_loss: Callable[[Tombstone], None] | None = None,
    ) -> AsyncIterator[Record[T]]:
        """The records after a seq, up to the current end, fetched page by page.

        Records that retention or a crash removed are never skipped silently: ``on_loss`` is called for them, or
        RecordsLost is raised if ``on_loss`` is not given.
        """

        async def page(position: int) -> Page[T]:
            return await self.diff(
                position,
                limit=page_size,
                match=match,
                since_ts=since_ts,
                without_nodes=without_nodes,
                latest=latest,
            )

        return read_records(page, after, on_loss)

    def tail(
        self,
        after: int | None = None,
        *,
        match: Match | None = None,
        since_ts: int | None = None,
        without_nodes: str | Sequence[str] | None = None,
        strong: bool = False,
        on_loss: Callable[[Tombstone], None] | None = None,
    ) -> AsyncTail[T]:
        """Records as they arrive: first those after ``after``, or only new ones (None). The tail survives broken
        connections and server restarts. ``strong`` delivers only records that survive a power failure."""
        from strandline.client.asynchronous.watch import AsyncTail, AsyncWatch
        from strandline.client.watch import Start, WatchState

        start = {self.name: Start(after, match, since_ts)}
        watch: AsyncWatch[T] = AsyncWatch(
            self._transport, WatchState(start, self._kind, calls.watch_options(without_nodes, strong))
        )
        return AsyncTail(watch, on_loss)

    # --- consumers -------------------------------------------------------------------------------------------------

    def consumer(self, name: str) -> AsyncConsumer[T]:
        """A named reader of this topic, whose position the server stores."""
        return AsyncConsumer(self._transport, self._path, self._page, name)

    def consumer_group(self, name: str) -> AsyncConsumerGroup[T]:
        """A consumer group of this topic, whose members divide the records among themselves, by tag."""
        from strandline.client.asynchronous.groups import AsyncConsumerGroup

        return AsyncConsumerGroup(self._transport, self._path, self._page, name)

    async def consumers(self) -> dict[str, ConsumerState]:
        """All consumers, by name."""
        return (await self._transport.ask(get(f"{self._path}/consumers"), calls.CONSUMERS)).consumers

    # --- the topic itself ------------------------------------------------------------------------------------------

    async def configure(self, **config: Unpack[TopicConfigArguments]) -> Configured:
        """Create the topic, or replace its whole configuration: members you omit get their defaults, see
        :class:`TopicConfig`. A topic keeps its search configuration unless you give ``search``."""
        return await self._transport.ask(calls.configure(self._path, config), calls.CONFIGURED)

    async def update(self, **changes: Unpack[TopicConfigArguments]) -> Configured:
        """Change members of the configuration and keep the others. The topic must exist.

        The server has no request for this: the client reads the configuration and writes it back with the changes. A
        change that another client makes in between is lost."""
        calls.checked_config(changes, "update")
        current = (await self.state(touch=False)).config
        return await self.configure(**calls.merged_config(current, changes))

    async def state(self, *, touch: bool = True) -> TopicState:
        """The state of the topic. With ``touch=False`` the request does not count as a read."""
        return await self._transport.ask(get(self._path, {"touch": touch}), calls.STATE)

    async def delete_records(self, *, before_seq: int | None = None, match: Match | None = None) -> RecordsDeleted:
        """Delete records permanently: those before a seq, those with a matching tag, or those that meet both."""
        return await self._transport.ask(calls.delete_records(self._path, before_seq, match), calls.RECORDS_DELETED)

    async def redrive(
        self,
        *,
        to: str | None = None,
        limit: int = 0,
        match: Match | None = None,
        seq: int | None = None,
        data: Any = UNSET,
    ) -> Redriven:
        """Move dead letters of this topic back to the queues they came from, or all of them to the topic ``to``. With
        ``seq``, move only the one with this seq; with ``data`` as well, with this data in place of its own."""
        from strandline.client import queue_calls

        request = queue_calls.redrive(self._path, to, limit, match, seq, data)
        return await self._transport.ask(request, queue_calls.REDRIVEN)

    async def delete(self, *, if_empty: bool = False) -> TopicDeleted:
        """Delete the topic with all its records. ``if_empty`` refuses if there are records."""
        request = delete(self._path, {"if_empty": True} if if_empty else None)
        return await self._transport.ask(request, calls.TOPIC_DELETED)


# --- consumers ------------------------------------------------------------------------------------------------------


class AsyncConsumer(Generic[T]):
    """A durable cursor. Records that were read but not committed are delivered again to the next reader."""

    def __init__(self, transport: AsyncTransport, topic: str, page: AnswerReader[Page[Any]], name: str) -> None:
        self._transport = transport
        self._topic = topic
        self._page = page
        self.name = name
        self._path = calls.consumer_path(topic, name)

    async def position(self) -> ConsumerPosition:
        """The committed position and the lag. Raises NotFound if nothing was committed yet."""
        return await self._transport.ask(get(self._path), calls.POSITION)

    async def commit(self, seq: int) -> ConsumerPosition:
        """Commit everything up to this seq as processed. The seq may be lower than before."""
        return await self._transport.ask(put(self._path, {"seq": seq}), calls.POSITION)

    async def seek(self, *, at: Literal["start", "end"] | None = None, since_ts: int | None = None) -> ConsumerPosition:
        """Move the consumer to the start or the end of the log, or before the first record of a time (milliseconds
        since 1970). To move it to a seq, use :meth:`commit`."""
        body = calls.given(at=at, since_ts=since_ts)
        return await self._transport.ask(put(self._path, body), calls.POSITION)

    async def diff(self, *, limit: int | None = None, wait_ms: int = 0) -> Page[T]:
        """One page of the records after the committed seq."""
        request = calls.diff(self._topic, consumer=self.name, limit=limit, wait_ms=wait_ms, include_tags=True)
        return await self._transport.ask(request, self._page)

    async def batches(
        self, *, size: int = 256, on_loss: Callable[[Tombstone], None] | None = None
    ) -> AsyncIterator[list[Record[T]]]:
        """The records after the committed seq up to the end, in batches. A batch is committed when you request the next
        one; if the program fails before that, the batch is delivered again."""

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
        """Delete the consumer. Returns whether it existed."""
        return (await self._transport.ask(delete(self._path), calls.CONSUMER_DELETED)).deleted


# --- routers --------------------------------------------------------------------------------------------------------


class AsyncRouter:
    """One router."""

    def __init__(self, transport: AsyncTransport, name: str) -> None:
        self._transport = transport
        self.name = name
        self._path = calls.router_path(name)

    async def configure(
        self,
        source: str,
        dest: str,
        *,
        filter: Match | None = None,
        preserve_node: bool = True,
        preserve_tag: bool = True,
        create_dest: bool = True,
        allow_cycle: bool = False,
        guarantee: Literal["at_least_once", "exactly_once"] = "at_least_once",
    ) -> RouterState:
        """Create or change the router: new records of ``source`` are copied to ``dest``."""
        body = {
            "source": source,
            "dest": dest,
            "filter": filter,
            "preserve_node": preserve_node,
            "preserve_tag": preserve_tag,
            "create_dest": create_dest,
            "allow_cycle": allow_cycle,
            "guarantee": guarantee,
        }
        return await self._transport.ask(put(self._path, body), calls.ROUTER)

    async def state(self) -> RouterState:
        return await self._transport.ask(get(self._path), calls.ROUTER)

    async def delete(self) -> bool:
        """Delete the router. Returns whether it existed. Copied records stay."""
        return (await self._transport.ask(delete(self._path), calls.ROUTER_DELETED)).deleted


# --- pages ----------------------------------------------------------------------------------------------------------


async def read_pages(page: Callable[[int], AsyncResult[Page[T]]], after: int) -> AsyncIterator[Page[T]]:
    """The pages after a seq, up to the end."""
    position = after
    while True:
        found = await page(position)
        yield found
        if found.caught_up:
            return
        position = found.next_from_seq


async def read_records(
    page: Callable[[int], AsyncResult[Page[T]]], after: int, on_loss: Callable[[Tombstone], None] | None
) -> AsyncIterator[Record[T]]:
    async for found in read_pages(page, after):
        if found.tombstone is not None:
            tell_loss(found.tombstone, on_loss)
        for record in found.records:
            yield record


def tell_loss(tombstone: Tombstone, on_loss: Callable[[Tombstone], None] | None) -> None:
    if on_loss is None:
        raise RecordsLost(f"{tombstone}; pass on_loss to continue after lost records", tombstone, tombstone.after)
    on_loss(tombstone)
