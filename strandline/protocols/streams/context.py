"""What the handlers of the streams protocol share: the context, its meters, and the deadlines of appends."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import TypeVar

from strandline.delivery.watch.feed import Feeds
from strandline.engine.commit import Commit
from strandline.protocols.streams.errors import append_timeout, overloaded, request_timeout
from strandline.protocols.streams.grammar import unescape
from strandline.protocols.streams.memory import Memory
from strandline.protocols.streams.settings import StreamsSettings
from strandline.protocols.streams.stream import Stream
from strandline.protocols.streams.streams import Streams
from strandline.query.index_files.indexer import Indexer
from strandline.query.searcher import Searcher
from strandline.service.catalog import SYSTEM, check_change
from strandline.service.http import Call, Later, LaterCommitted, Reply
from strandline.service.kernel import Kernel
from strandline.service.meters import Meter
from strandline.service.problems import FORBIDDEN, Refusal
from strandline.spans import SEARCH

#: How often expired deadlines are checked.
_STEP_SECONDS = 0.1


class PendingAppends:
    """Answers with a deadline, which wait for the same commit. The first of the outcome and the deadline settles
    them."""

    __slots__ = ("answers", "begun", "over", "size", "until")

    def __init__(self, answers: Sequence[Later], size: int, begun: float, until: float) -> None:
        self.answers = answers
        self.size = size
        self.begun = begun
        self.until = until
        self.over = False


class AppendDeadlines:
    """Answers that must not take longer than a fixed time. All have the same time, so they form a queue with one timer.
    ``count`` and ``size`` are the waiting answers and their bytes. ``waits`` gets the waiting times in microseconds."""

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float, refusal: Refusal, waits: Meter) -> None:
        self._loop = loop
        self._seconds = seconds
        self._refusal = refusal
        self._waits = waits
        self._waiting: deque[PendingAppends] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self.count = 0
        self.size = 0

    def begin(self, answers: Sequence[Later], size: int) -> PendingAppends:
        now = self._loop.time()
        pending = PendingAppends(answers, size, now, now + self._seconds)
        self._waiting.append(pending)
        self.count += len(answers)
        self.size += size
        if self._timer is None:
            self._timer = self._loop.call_later(_STEP_SECONDS, self._look)
        return pending

    def end(self, pending: PendingAppends) -> bool:
        """The outcome is known; False if the deadline has passed. The answers no longer count as waiting."""
        self.count -= len(pending.answers)
        self.size -= pending.size
        waited = int((self._loop.time() - pending.begun) * 1_000_000)
        for _ in pending.answers:
            self._waits.add(waited)
        if pending.over:
            return False
        pending.over = True
        return True

    def _look(self) -> None:
        now, waiting = self._loop.time(), self._waiting
        try:
            while waiting and (waiting[0].over or waiting[0].until <= now):
                pending = waiting.popleft()
                if not pending.over:
                    pending.over = True
                    for answer in pending.answers:
                        # Each on its own, so that an error in one of them does not concern the others.
                        self._loop.call_soon(answer.fail, self._refusal)
        finally:
            self._timer = self._loop.call_later(_STEP_SECONDS, self._look) if waiting else None


# --- meters --------------------------------------------------------------------------------------------------------


class Meters:
    """One meter per series; times are microseconds."""

    def __init__(self) -> None:
        #: For every append: its records, the bytes of its body, and how long it waited for its durability. Closing a
        #: stream also counts as a wait.
        self.append_records = Meter()
        self.append_bytes = Meter()
        self.append_wait = Meter()
        #: For every page that was sent, including empty ones: its records, and the bytes of its body.
        self.read_records = Meter()
        self.read_bytes = Meter()
        #: How long it took to fetch a page that was not in memory, or to filter it.
        self.read_fetch = Meter()
        #: The bytes of every event, or of several events that were sent together.
        self.event_bytes = Meter()

    @property
    def by_name(self) -> dict[str, tuple[str, Meter]]:
        """Unit and meter by the name of the series."""
        return {
            "append.records": ("records", self.append_records),
            "append.bytes": ("bytes", self.append_bytes),
            "append.wait": ("us", self.append_wait),
            "read.records": ("records", self.read_records),
            "read.bytes": ("bytes", self.read_bytes),
            "read.fetch": ("us", self.read_fetch),
            "events.bytes": ("bytes", self.event_bytes),
        }

    def fold(self) -> None:
        for _, meter in self.by_name.values():
            meter.fold()


# --- the context ---------------------------------------------------------------------------------------------------

T = TypeVar("T")


class StreamsContext:
    """Created on the event loop's thread, after the engine is opened."""

    def __init__(
        self,
        kernel: Kernel,
        settings: StreamsSettings,
        searcher: Searcher | None = None,
        indexer: Indexer | None = None,
    ) -> None:
        """``searcher`` may be shared with other protocols. Without an ``indexer``, searches index records
        themselves."""
        self.kernel = kernel
        self.engine = kernel.engine
        self.hub = hub = kernel.hub
        self.admission = kernel.admission
        self.workers = kernel.workers
        self.settings = settings
        self.live = kernel.live
        self.streams = Streams(kernel, settings)
        self.feeds = Feeds(hub, kernel.pressure)
        self.meters = Meters()
        #: The appends that wait for their durability.
        self.appends = AppendDeadlines(
            hub.loop, settings.append_timeout_ms / 1000, append_timeout(), self.meters.append_wait
        )
        self.searcher = searcher or Searcher(settings.search_memory_bytes)
        self.memory = Memory(kernel.engine, self.searcher, lambda: self.appends.size)
        kernel.catalog.dropping.append(self.searcher.forget)
        self.indexer = indexer

    @staticmethod
    def check_path(call: Call) -> None:
        """Refuse a path whose names are not valid."""
        unescape(call.head.path)

    def stream(self, call: Call) -> Stream:
        """The stream that the path names; refuses if it does not exist."""
        self.check_path(call)
        return self.streams.get(call.head.params["name"])

    def stream_to_change(self, call: Call) -> Stream:
        """Like ``stream``, for a request that changes the stream; refuses if only another protocol may change it."""
        stream = self.stream(call)
        self.check_change(stream)
        return stream

    @staticmethod
    def check_change(stream: Stream) -> None:
        """Refuse to change a stream that has an owner."""
        if stream.name in SYSTEM:
            raise Refusal(FORBIDDEN, "only the server can change this stream")
        check_change(stream.log)

    def after_append(self, commit: Commit[T], size: int, make: Callable[[T], Reply]) -> Reply | Later:
        """Like ``Admission.after``, with a deadline."""
        if commit.done:
            self.meters.append_wait.add(0)
            return make(commit.wait())
        if self.admission.flushes_in_place():
            begun = perf_counter()
            value = commit.wait()
            self.meters.append_wait.add(int((perf_counter() - begun) * 1_000_000))
            return make(value)
        later = LaterCommitted()
        self.settle_appends(commit, (later,), size, lambda value: later.settle(make(value)))
        return later

    def settle_appends(
        self, commit: Commit[T], answers: Sequence[Later], size: int, settle: Callable[[T], None]
    ) -> None:
        """Call ``settle`` with the value of the commit as soon as it is done. If it fails or takes too long, the
        answers fail instead."""
        if commit.done:
            for _ in answers:
                self.meters.append_wait.add(0)
            settle(commit.wait())
            return
        pending = self.appends.begin(answers, size)

        def done() -> None:
            if not self.appends.end(pending):
                return
            try:
                value = commit.wait()
            except Exception as error:
                for answer in answers:
                    answer.fail(error)
            else:
                settle(value)

        self.hub.on_done(commit, done)

    def check_backlog(self, count: int = 0, size: int = 0) -> None:
        """Refuse the request while too many appends wait for the disk. ``count`` and ``size`` are those of this turn
        that are not made yet, and their bytes."""
        appends, settings = self.appends, self.settings
        if appends.count + count >= settings.max_waiting_appends or appends.size + size >= settings.max_waiting_bytes:
            raise overloaded("too many appends wait for the disk; retry later")

    async def search(self, call: Call, work: Callable[[], T]) -> T:
        """Run a search on a thread for bulk work, within the time limit of a request."""
        try:
            until = call.started + self.settings.request_timeout_ms / 1000
            return await self.workers.bulk.run(work, until=until, part=SEARCH)
        except TimeoutError:
            raise request_timeout() from None
