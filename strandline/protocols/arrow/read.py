"""Reading records in bulk: an Arrow stream that worker threads make piece by piece, as fast as the reader takes it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import Future
from functools import partial

from strandline.engine import Log
from strandline.engine.errors import EngineError
from strandline.history.live import sweep
from strandline.history.pieces import BATCH_ROWS, RECORDS, Where
from strandline.protocols.arrow.context import ArrowContext
from strandline.protocols.arrow.encoder import COMPRESSIONS, MEDIA_TYPE, encoded
from strandline.protocols.arrow.errors import epoch_changed
from strandline.service.access import Access
from strandline.service.http import NO_STORE, Call
from strandline.service.live import LiveResponse
from strandline.service.parameters import choice, moment, name_of, number
from strandline.service.problems import Headers

log = logging.getLogger(__name__)

#: The largest number of records in one batch.
MAX_BATCH_ROWS = 1 << 20
#: How many routers in a row a reader waits for: each may forward records that the next one forwards again.
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
        context.live.check_room(call.access)
        await self._arrive(found)
        state = found.state()
        await context.settled(found)
        through = state.head if through is None else min(through, state.head)
        headers = (
            NO_STORE,
            (b"strandline-epoch", b"%d" % state.epoch),
            (b"strandline-earliest", b"%d" % state.earliest),
            (b"strandline-through", b"%d" % through),
        )

        def begin() -> tuple[Iterator[bytes], bytes]:
            pieces = encoded(RECORDS, sweep(found, after, through, where, batch_rows), compression)
            # The first piece is made before the answer begins, so an error can still have a status. Later errors can
            # only cut the stream off.
            return pieces, next(pieces)

        pieces, first = await context.work(begin)
        return RecordStream(context, found, call.access, headers, pieces, first)

    async def _arrive(self, found: Log) -> None:
        """Wait until routers have forwarded all records that are on their way into the log."""
        for _ in range(_HOPS):
            unfinished = self._context.kernel.routers.catch_up(found)
            if unfinished is None:
                return
            await self._context.hub.when_done(unfinished, lambda _: None)


class RecordStream(LiveResponse):
    """A piece is made when the reader has taken the one before, so a slow reader holds only one."""

    __slots__ = ("_complete", "_context", "_log", "_making", "_pieces", "_ready", "headers")
    content_type = MEDIA_TYPE.encode()
    finite = True
    heartbeat_seconds = 0.0

    def __init__(
        self, context: ArrowContext, log: Log, access: Access, headers: Headers, pieces: Iterator[bytes], first: bytes
    ) -> None:
        super().__init__(context.live, access)
        self.headers = headers
        self._context = context
        self._log = log
        self._pieces = pieces
        #: The next piece, once it is made.
        self._ready: bytes | None = first
        self._making = False
        #: Whether all pieces were made.
        self._complete = False

    def greeting(self) -> bytes:
        return b""

    def begin(self) -> None:
        self.go_on()

    def leave(self) -> None:
        self._ready = None

    @property
    def waiting_bytes(self) -> int:
        return 0 if self._ready is None else len(self._ready)

    def go_on(self) -> None:
        if self._ready is not None and self.keeps_up:
            piece, self._ready = self._ready, None
            self.write(piece)
        if self.ended or self._ready is not None:
            return
        if self._complete:
            self.finish()
        elif not self._making and not self.paused_at:
            self._making = True
            made = self._context.submit(partial(next, self._pieces, b""))
            made.add_done_callback(lambda made: self._context.hub.post(partial(self._made, made)))

    def _made(self, made: Future[bytes]) -> None:
        self._making = False
        if self.ended:
            return
        try:
            piece = made.result()
        except EngineError as error:
            log.warning("stopped streaming the records of %r: %s", self._log.name, error)
            self.end()
        except Exception:
            log.exception("stopped streaming the records of %r", self._log.name)
            self.end()
        else:
            self._complete = not piece
            self._ready = piece or None
            self.go_on()
