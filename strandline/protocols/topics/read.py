"""The records after a cursor: pages, and waiting for new records."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import msgspec

from strandline import spans
from strandline.delivery.hub import Waiter
from strandline.engine import Log, Page
from strandline.engine.commit import Commit
from strandline.engine.errors import UnknownLog
from strandline.engine.record import MAX_SEQ
from strandline.key_share import KeyShares
from strandline.protocols.topics.consumers import stored_cursor
from strandline.protocols.topics.context import Context
from strandline.protocols.topics.errors import topic_not_found
from strandline.protocols.topics.match import Match, parse_match
from strandline.protocols.topics.pages import RenderedPage, TopicPages
from strandline.protocols.topics.settings import (
    DEFAULT_LIMIT,
    DEFAULT_PAGE_BYTES,
    MAX_PAGE_BYTES,
    MAX_WAIT_MS,
    TopicsSettings,
)
from strandline.protocols.topics.topics import Topic
from strandline.protocols.topics.wire import DiffBody, NodesField, ShareFilter
from strandline.service.admission import Replying, reply_of
from strandline.service.http import Call, Reply
from strandline.service.problems import invalid

_decoder = msgspec.json.Decoder(DiffBody)


class RecordSelection:
    """Which records of a topic a reader gets, and how many at a time."""

    __slots__ = ("limit", "match", "max_bytes", "nodes", "shares", "since")

    def __init__(
        self,
        limit: int,
        max_bytes: int,
        nodes: frozenset[str] | None,
        match: Match | None,
        since: int | None,
        shares: KeyShares | None = None,
    ) -> None:
        self.limit = limit
        self.max_bytes = max_bytes
        self.nodes = nodes
        self.match = match
        self.since = since
        self.shares = shares

    def arguments(self, topic: Topic) -> dict[str, Any]:
        """The arguments for the engine. A topic may be configured to return a node its own records."""
        return {
            "limit": self.limit,
            "max_bytes": self.max_bytes,
            "without_nodes": self.nodes if topic.traits.dedupe_node else None,
            "key": None if self.match is None else self.match.key,
            "key_prefix": None if self.match is None else self.match.prefix,
            "since": self.since,
            "shares": self.shares,
        }

    @property
    def is_plain(self) -> bool:
        """Whether nothing is left out."""
        return self.nodes is None and self.match is None and self.since is None and self.shares is None

    @property
    def key(self) -> tuple[Any, ...]:
        """Readers with the same key at the same position get the same page."""
        return (self.limit, self.max_bytes, self.nodes, self.match, self.since, self.shares)


def clamp_limit(limit: int, settings: TopicsSettings, default: int = DEFAULT_LIMIT) -> int:
    return min(limit or default, settings.max_limit)


def clamp_bytes(max_bytes: int) -> int:
    return min(max_bytes or DEFAULT_PAGE_BYTES, MAX_PAGE_BYTES)


def _chosen_shares(wanted: ShareFilter | None) -> KeyShares | None:
    if wanted is None:
        return None
    for share in wanted.only:
        if share >= wanted.of:
            raise invalid(f"share {share} does not exist: expected a number from 0 to {wanted.of - 1}")
    return KeyShares(wanted.of, frozenset(wanted.only))


def node_set(node: NodesField) -> frozenset[str] | None:
    if not node:
        return None
    return frozenset((node,) if isinstance(node, str) else node)


class TopicReads:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._polls: set[_LongPoll] = set()
        self._pages = TopicPages()

    def diff(self, call: Call) -> Replying:
        """POST /v0/topics/{topic}/diff"""
        body = _decoder.decode(call.body) if call.body else DiffBody()
        context = self._context
        topic = context.topics.get(call.head.params["topic"])
        return context.admission.read(lambda waited_ms: self._diff_here(call, topic, body, waited_ms), topic)

    def _diff_here(self, call: Call, topic: Topic, body: DiffBody, waited_ms: float) -> Reply | Awaitable[Reply]:
        """Read after all records that are on their way into the topic have arrived."""
        unfinished = self._context.catch_up(topic)
        if unfinished is not None:
            return self._diff_behind(call, topic, body, waited_ms, unfinished)
        return self._diff(call, topic, body, waited_ms)

    async def _diff_behind(
        self, call: Call, topic: Topic, body: DiffBody, waited_ms: float, unfinished: Commit[Any]
    ) -> Reply:
        await self._context.caught_up(topic, unfinished)
        return await reply_of(self._diff(call, topic, body, waited_ms))

    def _diff(self, call: Call, topic: Topic, body: DiffBody, waited_ms: float) -> Reply | Awaitable[Reply]:
        context = self._context
        selection = RecordSelection(
            clamp_limit(body.limit, context.settings),
            clamp_bytes(body.max_batch_bytes),
            node_set(body.node),
            parse_match(body.match),
            None if body.since_ts is None else min(body.since_ts, MAX_SEQ),
            _chosen_shares(body.shares),
        )
        after = body.from_seq
        if after is None:
            after = 0 if body.consumer is None else stored_cursor(topic, body.consumer)
        elif after > MAX_SEQ:
            after = MAX_SEQ
        context.consumed(topic)
        if body.view is not None:
            if body.wait_ms:
                raise invalid("view cannot be combined with wait_ms")
            return self._latest(call, topic, body, after, selection, waited_ms)
        if selection.is_plain:
            rendered = self._pages.get(
                topic, after, selection.limit, selection.max_bytes, tags=body.include_tags, meta=body.include_meta
            )
            if rendered is not None:
                return render_diff(call, topic, after, rendered, waited_ms)
            page = topic.log.read_resident(after, selection.limit, max_bytes=selection.max_bytes)
        else:
            page = topic.log.read_resident(after, **selection.arguments(topic))
        if page is None or (body.wait_ms and _is_empty(page)):
            wait_ms = min(body.wait_ms, MAX_WAIT_MS)
            return self._wait(call, topic, body, after, selection, page, wait_ms, waited_ms)
        rendered = RenderedPage.of(page, tags=body.include_tags, meta=body.include_meta)
        return render_diff(call, topic, after, rendered, waited_ms)

    def _latest(
        self, call: Call, topic: Topic, body: DiffBody, after: int, selection: RecordSelection, waited_ms: float
    ) -> Reply | Awaitable[Reply]:
        arguments = selection.arguments(topic)

        def render(page: Page) -> Reply:
            rendered = RenderedPage.of(page, tags=body.include_tags, meta=body.include_meta)
            return render_diff(call, topic, after, rendered, waited_ms)

        async def read() -> Reply:
            read = topic.log.read_latest
            return render(await self._context.workers.normal.run(read, after, part=spans.READ, **arguments))

        page = topic.log.read_latest_resident(after, **arguments)
        return read() if page is None else render(page)

    async def _wait(
        self,
        call: Call,
        topic: Topic,
        body: DiffBody,
        after: int,
        selection: RecordSelection,
        page: Page | None,
        wait_ms: int,
        waited_ms: float,
    ) -> Reply:
        """Read sealed records on another thread, and wait for a record until the time is up."""
        loop = self._context.hub.loop
        until = loop.time() + wait_ms / 1000
        cursor = after
        while True:
            if page is None:
                page = await self._context.workers.normal.run(
                    topic.log.read, cursor, part=spans.READ, **selection.arguments(topic)
                )
            if not _is_empty(page) or loop.time() >= until:
                break
            cursor = page.next_after
            poll = _LongPoll(loop)
            self._polls.add(poll)
            self._context.hub.watch(topic.log, poll)
            timer = loop.call_at(until, poll.wake, topic.log)
            try:
                # An append before the watch began does not wake the poll.
                page = topic.log.read_resident(cursor, **selection.arguments(topic))
                if page is not None and _is_empty(page):
                    with spans.part(spans.RECORDS):
                        await poll.woken
                    page = topic.log.read_resident(cursor, **selection.arguments(topic))
            except UnknownLog:
                raise topic_not_found(topic.name) from None
            finally:
                timer.cancel()
                self._polls.discard(poll)
                self._context.hub.unwatch(topic.log, poll)
            if page is not None and poll.ended:
                break
        rendered = RenderedPage.of(page, tags=body.include_tags, meta=body.include_meta)
        return render_diff(call, topic, after, rendered, waited_ms)

    def end_polls(self) -> None:
        """Answer all long polls with the records that they have."""
        for poll in list(self._polls):
            poll.ended = True
            poll.wake(None)


class _LongPoll(Waiter):
    __slots__ = ("ended", "woken")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.woken: asyncio.Future[None] = loop.create_future()
        self.ended = False

    def wake(self, log: Log | None) -> None:
        if not self.woken.done():
            self.woken.set_result(None)


def _is_empty(page: Page) -> bool:
    return not page.seqs and page.caught_up and page.tombstone is None


def render_diff(call: Call, topic: Topic, after: int, page: RenderedPage, waited_ms: float) -> Reply:
    return Reply(
        b'{"topic":%b,"records":[%b],"next_from_seq":%d,"head_seq":%d,"earliest_seq":%d,"caught_up":%b,"tombstone":%b,'
        b'"lag":%d,"performance":{"server_total_ms":%.3f,"records_scanned":%d,"throttle_wait_ms":%.3f}}'
        % (
            topic.json_name,
            page.records,
            page.next_after,
            page.head,
            page.earliest,
            b"true" if page.next_after == page.head else b"false",
            page.tombstone,
            max(0, page.head - page.next_after),
            call.elapsed_ms(),
            max(0, page.next_after - max(after, page.earliest - 1)),
            waited_ms,
        )
    )
