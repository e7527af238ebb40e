"""GET _details and _index_status: documents about a stream, and waiting for their changes.

Requests that wait for the same document of a stream share one board. The log wakes the board, and the board checks once
a second for changes that logs do not report, such as sealing.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from hashlib import sha1
from typing import Literal, NamedTuple

import msgspec

from strandline.delivery.hub import Waiter
from strandline.engine import Log
from strandline.engine.reads.status import status_of
from strandline.engine.segments.store import segment_path
from strandline.protocols.streams.context import StreamsContext
from strandline.protocols.streams.details import details
from strandline.protocols.streams.errors import JSON, bad_request, not_found, request_timeout
from strandline.protocols.streams.grammar import duration_ms
from strandline.protocols.streams.index_status import Inspected, index_status
from strandline.protocols.streams.stream import Stream
from strandline.protocols.streams.wire.inspection import IndexStatus, StreamDetails
from strandline.query.index import IndexPlan
from strandline.service.access import Access
from strandline.service.http import NO_STORE, Answer, Call, Later, LaterRecords, Reply

#: How often a board checks for changes that logs do not report.
LOOK_SECONDS = 1.0
#: For how many segments the time of writing is cached.
MAX_REMEMBERED = 10_000

Kind = Literal["details", "index_status"]
_DOCUMENTS: dict[Kind, Callable[[Inspected], StreamDetails | IndexStatus]] = {
    "details": details,
    "index_status": index_status,
}
_LIVE = {"": False, "0": False, "false": False, "1": True, "true": True, "long-poll": True}


class Shown(NamedTuple):
    """A document with its ETag."""

    body: bytes
    etag: bytes

    def reply(self) -> Reply:
        return Reply(self.body, 200, JSON, ((b"etag", self.etag), NO_STORE))

    def unchanged(self) -> Reply:
        return Reply(b"", 304, JSON, ((b"etag", self.etag), NO_STORE))

    def is_known(self, if_none_match: bytes | None) -> bool:
        """Whether the client already has the document. All tags here are weak, and are compared as such."""
        if if_none_match is None:
            return False
        known = [tag.strip().removeprefix(b"W/") for tag in if_none_match.split(b",")]
        return b"*" in known or self.etag.removeprefix(b"W/") in known


class StreamInspection:
    def __init__(self, context: StreamsContext) -> None:
        self._context = context
        self._boards: dict[tuple[int, Kind, tuple[str, ...]], Board] = {}
        self._plans: dict[int, tuple[IndexPlan, int]] = {}
        self._written: dict[int, int | None] = {}
        context.kernel.catalog.dropping.append(self._forget)

    # --- answering -----------------------------------------------------------------------------------------------

    def details(self, call: Call) -> Reply | Later | Awaitable[Answer]:
        """GET /v1/stream/{name}/_details"""
        return self._answer(call, "details")

    def index_status(self, call: Call) -> Reply | Later | Awaitable[Answer]:
        """GET /v1/stream/{name}/_index_status"""
        return self._answer(call, "index_status")

    def _answer(self, call: Call, kind: Kind) -> Reply | Later | Awaitable[Answer]:
        stream = self._context.stream(call)
        if self._wants_look(stream):
            return self._answer_after_look(call, kind, stream)
        return self._answer_at_once(call, kind, stream)

    async def _answer_after_look(self, call: Call, kind: Kind, stream: Stream) -> Answer:
        """Look up the index files of the lake first: they are on a disk, or in an object store."""
        await self._context.search(call, lambda: self._look(stream))
        answer = self._answer_at_once(call, kind, stream)
        return await answer if isinstance(answer, Later) else answer

    def _wants_look(self, stream: Stream) -> bool:
        if stream.search is None:
            return False
        indexer = self._context.indexer
        if indexer is not None and indexer.known_progress(stream.log) is None:
            return True
        return self._context.searcher.wants_look(stream.log, stream.search[0])

    def _look(self, stream: Stream) -> None:
        if stream.search is not None:
            (self._context.indexer or self._context.searcher).look(stream.log, *stream.search)

    def look_later(self, stream: Stream) -> None:
        """Look up the index files in the background, for the next request."""
        if stream.search is not None and self._context.indexer is not None and self._wants_look(stream):
            self._context.indexer.look_later(stream.log, *stream.search)

    def _answer_at_once(self, call: Call, kind: Kind, stream: Stream) -> Reply | Later:
        live = _LIVE.get(call.query.get("live", ""))
        if live is None:
            raise bad_request(f"live must be true, 1 or long-poll, not {call.query['live']!r}")
        timeout = call.query.get("timeout", call.query.get("timeout_ms"))
        wait_ms = self._context.settings.long_poll_ms if timeout is None else duration_ms("timeout", timeout)
        shown = self.show(stream, kind, call.access)
        if not shown.is_known(call.head.headers.get(b"if-none-match")):
            return shown.reply()
        return self._wait(stream, kind, call.access, shown, wait_ms) if live else shown.unchanged()

    def _wait(self, stream: Stream, kind: Kind, access: Access, shown: Shown, wait_ms: int) -> Later:
        key = stream.log.epoch, kind, access.prefixes
        board = self._boards.get(key)
        if board is not None and board.shown.etag != shown.etag:
            # The document has changed since the board's last check.
            board.look()
            board = self._boards.get(key)
        if board is None:
            board = self._boards[key] = Board(self, self._context, stream, kind, access, shown)
            board.begin()
        poll = Poll(self._context, board, wait_ms)
        board.add(poll)
        return poll.later

    def show(self, stream: Stream, kind: Kind, access: Access) -> Shown:
        document = _DOCUMENTS[kind](self._inspect(stream, access))
        body = msgspec.json.encode(document)
        if isinstance(document, StreamDetails) and stream.traits.ttl_seconds is not None:
            # Every read moves the expiry time of such a stream, which does not count as a change.
            document.stream.expires_at = None
            return Shown(body, _tag(kind, msgspec.json.encode(document)))
        return Shown(body, _tag(kind, body))

    def marks(self, stream: Stream) -> tuple[object, ...]:
        """Cheap marks: while they are equal, no document of the stream has changed."""
        log = stream.log
        return log.head, log.notes, log.revision, status_of(log), self._context.searcher.indexes.changes

    # --- inspecting ------------------------------------------------------------------------------------------------

    def _inspect(self, stream: Stream, access: Access) -> Inspected:
        log, search = stream.log, stream.search
        holdings = status_of(log)
        held = None if search is None else self._context.searcher.held(log, search.config)
        return Inspected(
            stream,
            holdings,
            log.engine.store.has_cold_tier,
            held,
            None if search is None or self._context.indexer is None else self._context.indexer.known_progress(log),
            0 if held is None else self._generation(log, held.plan),
            self._written_at(holdings.sealed[-1].segment) if holdings.sealed else None,
            access,
        )

    def _generation(self, log: Log, plan: IndexPlan) -> int:
        known, generation = self._plans.get(log.epoch, (None, 0))
        if known != plan:
            generation += 1
            self._plans[log.epoch] = plan, generation
        return generation

    def _forget(self, log: Log) -> None:
        self._plans.pop(log.epoch, None)

    def _written_at(self, segment: int) -> int | None:
        """When the file of a segment was written, in milliseconds; None if it is no longer in the data directory."""
        if segment not in self._written:
            if len(self._written) >= MAX_REMEMBERED:
                self._written.clear()
            path = self._context.engine.disk.local_path(segment_path(segment))
            try:
                self._written[segment] = os.stat(path).st_mtime_ns // 1_000_000
            except OSError:
                self._written[segment] = None
        return self._written[segment]

    # --- waiting -------------------------------------------------------------------------------------------------

    def done(self, board: Board) -> None:
        self._boards.pop((board.stream.log.epoch, board.kind, board.access.prefixes), None)

    @property
    def waiting(self) -> int:
        return sum(len(board.polls) for board in self._boards.values())

    def drain(self) -> None:
        """Answer all waiting requests."""
        for board in list(self._boards.values()):
            for poll in list(board.polls):
                poll.time_up()


def _tag(kind: Kind, body: bytes) -> bytes:
    return f'W/"{kind}:{sha1(body, usedforsecurity=False).hexdigest()}"'.encode()


class Board(Waiter):
    """The requests with the same access that wait for one document of a stream; all have its current version."""

    __slots__ = ("_context", "_inspecting", "_marks", "access", "kind", "polls", "rings_at", "shown", "stream")

    def __init__(
        self,
        inspecting: StreamInspection,
        context: StreamsContext,
        stream: Stream,
        kind: Kind,
        access: Access,
        shown: Shown,
    ) -> None:
        self._inspecting = inspecting
        self._context = context
        self._marks: tuple[object, ...] = ()
        self.stream = stream
        self.kind = kind
        self.access = access
        self.shown = shown
        self.polls: dict[Poll, None] = {}
        self.rings_at: float | None = None

    def begin(self) -> None:
        hub = self._context.hub
        hub.watch(self.stream.log, self)
        self._context.live.alarms.set(self, hub.loop.time() + LOOK_SECONDS)

    def add(self, poll: Poll) -> None:
        self.polls[poll] = None
        poll.begin()
        # Changes before the watch began wake no board.
        self.look()

    def remove(self, poll: Poll) -> None:
        self.polls.pop(poll, None)
        if not self.polls:
            self._end()

    def wake(self, log: Log) -> None:
        self.look()

    def ring(self, now: float) -> float | None:
        self._inspecting.look_later(self.stream)
        self.look()
        return now + LOOK_SECONDS if self.polls else None

    def look(self) -> None:
        """Answer all requests if the document has changed."""
        log = self.stream.log
        if log.dropped or self.stream.gone:
            for poll in self._leave():
                poll.later.fail(not_found())
            return
        marks = self._inspecting.marks(self.stream)
        if marks == self._marks:
            return
        self._marks = marks
        shown = self._inspecting.show(self.stream, self.kind, self.access)
        if shown.etag != self.shown.etag:
            for poll in self._leave():
                poll.later.settle(shown.reply())

    def _leave(self) -> list[Poll]:
        polls = list(self.polls)
        self.polls.clear()
        for poll in polls:
            self._context.live.alarms.cancel(poll)
        self._end()
        return polls

    def _end(self) -> None:
        self._context.live.alarms.cancel(self)
        self._context.hub.unwatch(self.stream.log, self)
        self._inspecting.done(self)


class Poll:
    """One waiting request and its time limit."""

    __slots__ = ("_board", "_context", "_wait_ms", "later", "rings_at")

    def __init__(self, context: StreamsContext, board: Board, wait_ms: int) -> None:
        self._context = context
        self._board = board
        self._wait_ms = wait_ms
        self.later = LaterRecords()
        self.rings_at: float | None = None

    def begin(self) -> None:
        wait_ms = min(self._wait_ms, self._context.settings.request_timeout_ms)
        self._context.live.alarms.set(self, self._context.hub.loop.time() + wait_ms / 1000)

    def ring(self, now: float) -> float | None:
        if self._wait_ms > self._context.settings.request_timeout_ms:
            self._board.remove(self)
            self.later.fail(request_timeout())
        else:
            self.time_up()
        return None

    def time_up(self) -> None:
        self._context.live.alarms.cancel(self)
        self._board.remove(self)
        self.later.settle(self._board.shown.unchanged())
