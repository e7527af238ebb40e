"""Reading records in bulk: an Arrow stream that a thread makes piece by piece, as quickly as its reader takes it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import Future
from functools import partial

from strandline.engine import Log
from strandline.engine.errors import EngineError
from strandline.history.columns import RECORDS
from strandline.history.live import sweep
from strandline.history.pieces import BATCH_ROWS, Where
from strandline.protocols import http
from strandline.protocols.access import Access
from strandline.protocols.arrow.context import ArrowContext
from strandline.protocols.arrow.encoder import COMPRESSIONS, MEDIA_TYPE, encoded
from strandline.protocols.arrow.errors import epoch_changed
from strandline.protocols.arrow.request import choice, moment, name_of, number
from strandline.protocols.http import Call, Refusal

log = logging.getLogger(__name__)

#: More records than this are never in one batch.
MAX_BATCH_ROWS = 1 << 20
#: Over so many logs in a row a reader waits for what is on its way.
_HOPS = 16


class Reading:
    def __init__(self, context: ArrowContext) -> None:
        self._context = context

    async def read(self, call: Call) -> RecordStream:
        """GET /arrow/records/{name}"""
        context = self._context
        found = context.log(name_of(call), call.access)
        epoch, after = number(call, "epoch"), number(call, "after", 0) or 0
        through = number(call, "through")
        where = Where(call.query.get("key"), moment(call, "since"), moment(call, "until"))
        batch_rows = number(call, "batch_rows", BATCH_ROWS, 1, MAX_BATCH_ROWS) or BATCH_ROWS
        compression = choice(call, "compression", *COMPRESSIONS)
        if epoch is not None and epoch != found.epoch:
            raise epoch_changed(found.name, found.epoch)
        if not context.slots.room(call.access):
            raise Refusal(429, "throttled", "too many streams are open", retry_after=1)
        await self._arrive(found)
        state = found.state()
        await context.settled(found)
        through = state.head if through is None else min(through, state.head)
        headers = (
            (b"cache-control", b"no-store"),
            (b"strandline-epoch", b"%d" % state.epoch),
            (b"strandline-earliest", b"%d" % state.earliest),
            (b"strandline-through", b"%d" % through),
        )

        def begin() -> tuple[Iterator[bytes], bytes]:
            pieces = encoded(RECORDS, sweep(found, after, through, where, batch_rows), compression)
            # What cannot be read at all is told as an error. Later there is no other way than to cut the stream off.
            return pieces, next(pieces)

        pieces, first = await context.work(begin)
        return RecordStream(context, found, call.access, headers, pieces, first)

    async def _arrive(self, found: Log) -> None:
        """Wait for what routers have on its way into the log, and what that sets going."""
        for _ in range(_HOPS):
            unfinished = self._context.topics.routers.catch_up(found)
            if unfinished is None:
                return
            await self._context.hub.when_done(unfinished, lambda _: None)


class RecordStream(http.Stream):
    """A piece is made when the reader has taken the one before, so a reader that does not keep up holds one."""

    __slots__ = ("_access", "_context", "_ended", "_gone", "_held", "_log", "_making", "_paused", "_pieces", "_ready",
                 "_sink", "headers")  # fmt: skip
    content_type = MEDIA_TYPE.encode()

    def __init__(
        self,
        context: ArrowContext,
        log: Log,
        access: Access,
        headers: tuple[tuple[bytes, bytes], ...],
        pieces: Iterator[bytes],
        first: bytes,
    ) -> None:
        self.headers = headers
        self._context = context
        self._log = log
        self._access = access
        self._pieces = pieces
        #: The piece that is next, if it is made.
        self._ready: bytes | None = first
        self._sink: http.Sink | None = None
        self._making = False
        self._paused = False
        self._held = False
        #: There are no more pieces; nobody takes any more.
        self._ended = False
        self._gone = False

    def opened(self, sink: http.Sink) -> None:
        self._sink = sink
        self._held = self._context.slots.acquire(self._access)
        if self._held:
            self._go_on()
        else:
            self._cut()

    def resumed(self) -> None:
        self._paused = False
        self._go_on()

    def closed(self) -> None:
        self._gone = True
        self._ready = None
        if self._held:
            self._held = False
            self._context.slots.release(self._access)

    @property
    def waiting_bytes(self) -> int:
        return 0 if self._ready is None else len(self._ready)

    def too_slow(self) -> None:
        self._cut()

    def _go_on(self) -> None:
        sink = self._sink
        if self._gone or sink is None:
            return
        if self._ready is not None and not self._paused:
            piece, self._ready = self._ready, None
            self._paused = not sink.write(piece)
        if self._ready is None and self._ended:
            self._gone = True
            sink.close()
        elif self._ready is None and not self._making and not self._paused:
            self._making = True
            made = self._context.submit(partial(next, self._pieces, b""))
            made.add_done_callback(lambda made: self._context.hub.post(partial(self._made, made)))

    def _made(self, made: Future[bytes]) -> None:
        self._making = False
        if self._gone:
            return
        try:
            piece = made.result()
        except EngineError as error:
            log.warning("a stream of the records of %r is cut off: %s", self._log.name, error)
            self._cut()
        except Exception:
            log.exception("a stream of the records of %r is cut off", self._log.name)
            self._cut()
        else:
            self._ended = not piece
            self._ready = piece or None
            self._go_on()

    def _cut(self) -> None:
        """End the connection instead of the stream: the reader must not take it for whole."""
        self._gone = True
        assert self._sink is not None
        self._sink.abort()
