"""Reading records in bulk: an Arrow stream that worker threads make piece by piece, as fast as the reader takes it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from strandline.engine import Log
from strandline.history.live import sweep
from strandline.history.pieces import BATCH_ROWS, Where, projected
from strandline.protocols.arrow.context import ArrowContext
from strandline.protocols.arrow.encoder import COMPRESSIONS, MEDIA_TYPE, encoded
from strandline.protocols.arrow.errors import epoch_changed
from strandline.service.http import NO_STORE, Call
from strandline.service.parameters import choice, moment, name_of, number
from strandline.service.pieces import PiecewiseResponse
from strandline.service.problems import invalid

#: The largest number of records in one batch.
MAX_BATCH_ROWS = 1 << 20
#: How many routers in a row a reader waits for: each may forward records that the next one forwards again.
_HOPS = 16


class ArrowReads:
    def __init__(self, context: ArrowContext) -> None:
        self._context = context

    async def read(self, call: Call) -> PiecewiseResponse:
        """GET /arrow/records/{name}"""
        context = self._context
        found = context.log(name_of(call), call.access)
        epoch, after = number(call, "epoch"), number(call, "after", 0) or 0
        through = number(call, "through")
        where = Where(call.query.get("key"), moment(call, "since"), moment(call, "until"))
        batch_rows = number(call, "batch_rows", BATCH_ROWS, 1, MAX_BATCH_ROWS) or BATCH_ROWS
        compression = choice(call, "compression", *COMPRESSIONS)
        schema = _schema(call.query.get("columns"))
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
            pieces = encoded(schema, sweep(found, after, through, where, batch_rows, schema=schema), compression)
            # The first piece is made before the answer begins, so an error can still have a status. Later errors can
            # only cut the stream off.
            return pieces, next(pieces)

        pieces, first = await context.work(begin)
        return PiecewiseResponse(
            context.kernel,
            context.workers.bulk,
            call.access,
            f"the records of {found.name!r}",
            MEDIA_TYPE.encode(),
            headers,
            first,
            pieces,
        )

    async def _arrive(self, found: Log) -> None:
        """Wait until routers have forwarded all records that are on their way into the log."""
        for _ in range(_HOPS):
            unfinished = self._context.kernel.routers.catch_up(found)
            if unfinished is None:
                return
            await self._context.hub.when_done(unfinished, lambda _: None)


def _schema(columns: str | None) -> Any:
    try:
        return projected(None if columns is None else columns.split(","))
    except ValueError as error:
        raise invalid(f"columns: {error}") from None
