"""GET: the records of a stream, now or when there are new ones; HEAD; and opening event streams."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from strandline.delivery.hub import Waiter
from strandline.engine import Log
from strandline.protocols.streams.catch_up import CatchUpReads
from strandline.protocols.streams.context import StreamsContext
from strandline.protocols.streams.errors import gone, not_found, overloaded, request_timeout
from strandline.protocols.streams.events import EventStream
from strandline.protocols.streams.offsets import cursor
from strandline.protocols.streams.pages import ReadPage, StreamPages, beyond, body_of, lost
from strandline.protocols.streams.read_request import ReadRequest
from strandline.protocols.streams.replies import CLOSED, UP_TO_DATE, end_offset, kept, lifetime, next_offset
from strandline.protocols.streams.stream import Stream
from strandline.query.bound import Bound
from strandline.service.http import NO_STORE, Answer, Call, Later, LaterRecords, Reply
from strandline.service.problems import Headers


class StreamReads:
    def __init__(self, context: StreamsContext) -> None:
        self._context = context
        self._pages = StreamPages(context)
        self._catch_up = CatchUpReads(context, self._pages)
        self._polls: set[LongPoll] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    # --- GET -----------------------------------------------------------------------------------------------------

    def get(self, call: Call) -> Answer | Later:
        """GET /v1/stream/{name} and GET /v1/stream/{name}/pk/{key}"""
        context = self._context
        stream = context.stream(call)
        ask: ReadRequest | None = call.head.memo
        if ask is None:
            ask = call.head.memo = ReadRequest.of(call.head)
        bound = self._pages.bound_filter(stream, ask)
        ask.as_json(stream)
        now = context.hub.now()
        stream.use(now)
        stream.consumed_at = now
        if ask.live == "sse":
            return self._listen(call, stream, ask)
        if ask.live:
            return self._poll(stream, ask, bound)
        if ask.after is None:
            return _at_the_end(stream, ask)
        found = self.resident(stream, ask, ask.after)
        if found is None or self._catch_up.wants(call, stream, ask, found):
            return self._later(call, stream, ask, ask.after, bound, found)
        return self._pages.caught_up(stream, ask, found, call.head.headers.get(b"if-none-match"))

    def resident(self, stream: Stream, ask: ReadRequest, after: int) -> ReadPage | None:
        """The page, if it is in memory."""
        if after > stream.log.head:
            return beyond(stream, after)
        return self._pages.resident(stream, ask, after)

    def _later(
        self, call: Call, stream: Stream, ask: ReadRequest, after: int, bound: Bound | None, page: ReadPage | None
    ) -> Later:
        """Fetch the first page if it is not in memory, and the following ones."""
        later = Later()

        async def fetch() -> None:
            try:
                found = page or await self._pages.fetched(stream, ask, after, bound)
                if self._catch_up.wants(call, stream, ask, found):
                    later.settle(await self._catch_up.answer(call, stream, ask, found))
                else:
                    later.settle(self._pages.caught_up(stream, ask, found, call.head.headers.get(b"if-none-match")))
            except Exception as error:
                later.fail(error)

        self.begin(fetch())
        return later

    # --- waiting -------------------------------------------------------------------------------------------------

    def _poll(self, stream: Stream, ask: ReadRequest, bound: Bound | None) -> Reply | Later:
        after = stream.log.head if ask.after is None else ask.after
        if bound is None:
            found = self.resident(stream, ask, after)
            if found is not None and (not found.nothing or stream.ended):
                return self.answer(stream, ask, found)
        poll = LongPoll(self, self._context, stream, ask, bound, after)
        self._polls.add(poll)
        poll.begin()
        return poll.later

    def answer(self, stream: Stream, ask: ReadRequest, found: ReadPage) -> Reply:
        return self._pages.live(stream, ask, found, cursor(self._context.hub.now(), ask.cursor))

    @property
    def pages(self) -> StreamPages:
        return self._pages

    def done(self, poll: LongPoll) -> None:
        self._polls.discard(poll)

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine as a task, and keep a reference to it meanwhile."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- event streams -------------------------------------------------------------------------------------------

    def _listen(self, call: Call, stream: Stream, ask: ReadRequest) -> EventStream:
        context = self._context
        if ask.given and ask.after is not None:
            page = stream.log.read_resident(ask.after, 1) if ask.after < stream.log.head else None
            if page is not None and page.tombstone is not None:
                raise lost(page.tombstone)
        if not context.live.has_room(call.access):
            raise overloaded("too many streams are open")
        return EventStream(context, stream, ask, call.access)

    def drain(self) -> None:
        """Answer all long-polls."""
        for poll in list(self._polls):
            poll.time_up()

    @property
    def waiting(self) -> int:
        """The number of waiting reads: long-polls and event streams."""
        return len(self._polls) + self._context.live.count(EventStream)

    # --- HEAD ----------------------------------------------------------------------------------------------------

    def head(self, call: Call) -> Reply:
        """HEAD /v1/stream/{name}"""
        stream = self._context.stream(call)
        end = stream.log.head
        headers: Headers = (next_offset(end), end_offset(end), *kept(stream), NO_STORE)
        if stream.ended:
            headers += (CLOSED,)
        return Reply(b"", 200, stream.content_type_bytes, headers)


def _at_the_end(stream: Stream, ask: ReadRequest) -> Reply:
    """offset=now: an empty page with the offset of the end."""
    as_json = ask.as_json(stream)
    end = stream.log.head
    headers: Headers = (next_offset(end), end_offset(end), *lifetime(stream), UP_TO_DATE, NO_STORE)
    if stream.ended:
        headers += (CLOSED,)
    return Reply(body_of([], as_json), 200, stream.content_type_bytes, headers)


class LongPoll(Waiter):
    """A read that waits until there are records, the stream is closed, or its time is up. It needs an entry in a heap
    and one in the waiters of the log, and no task."""

    __slots__ = ("_after", "_ask", "_bound", "_busy", "_context", "_over", "_reading", "_stream", "later", "rings_at")

    def __init__(
        self,
        reading: StreamReads,
        context: StreamsContext,
        stream: Stream,
        ask: ReadRequest,
        bound: Bound | None,
        after: int,
    ) -> None:
        self._reading = reading
        self._context = context
        self._stream = stream
        self._ask = ask
        self._bound = bound
        self._after = after
        self._busy = False
        self._over = False
        self.later = LaterRecords()
        self.rings_at: float | None = None

    def begin(self) -> None:
        settings, hub = self._context.settings, self._context.hub
        wait_ms = settings.long_poll_ms if self._ask.timeout_ms is None else self._ask.timeout_ms
        wait_ms = min(wait_ms, settings.request_timeout_ms)
        hub.watch(self._stream.log, self)
        self._context.live.alarms.set(self, hub.loop.time() + wait_ms / 1000)
        # Records that were appended before the watch began wake no reader.
        self.wake(self._stream.log)

    def wake(self, log: Log) -> None:
        if self._busy or self._over:
            return
        stream, ask = self._stream, self._ask
        if log.dropped or stream.gone:
            self._fail(not_found() if log.dropped else gone())
            return
        try:
            found = None if self._bound is not None else self._reading.resident(stream, ask, self._after)
        except Exception as error:
            self._fail(error)
            return
        if found is None:
            self._busy = True
            self._reading.begin(self._fetch())
        else:
            self._take(found)

    async def _fetch(self) -> None:
        try:
            found = await self._reading.pages.fetched(self._stream, self._ask, self._after, self._bound)
        except Exception as error:
            self._busy = False
            self._fail(error)
            return
        self._busy = False
        self._take(found)
        if not self._over and self._stream.log.head > self._after:
            self.wake(self._stream.log)

    def _take(self, found: ReadPage) -> None:
        self._after = max(self._after, found.next_after)
        if not found.nothing or self._stream.ended:
            self._settle(found)

    def ring(self, now: float) -> float | None:
        timeout_ms = self._ask.timeout_ms
        if timeout_ms is not None and timeout_ms > self._context.settings.request_timeout_ms:
            self._fail(request_timeout())
        else:
            self.time_up()
        return None

    def time_up(self) -> None:
        if not self._over:
            self._settle(ReadPage([], self._after, self._after, self._stream.log.head))

    def _settle(self, found: ReadPage) -> None:
        self._end()
        self.later.settle(self._reading.answer(self._stream, self._ask, found))

    def _fail(self, error: Exception) -> None:
        if not self._over:
            self._end()
            self.later.fail(error)

    def _end(self) -> None:
        self._over = True
        self._context.live.alarms.cancel(self)
        self._context.hub.unwatch(self._stream.log, self)
        self._reading.done(self)
