"""The description of one log."""

from __future__ import annotations

from typing import Any

import msgspec

from strandline.engine import Log
from strandline.engine.ownership import CLOSED, media_type_of
from strandline.protocols.console.catalogue import lag_of
from strandline.protocols.console.context import ConsoleContext
from strandline.protocols.console.kinds import belongs, kind_of, note_of, writable_by
from strandline.protocols.console.rates import Rates
from strandline.protocols.console.routers import ConsoleRouters
from strandline.protocols.console.wire import ConsoleLogAnswer, ForkAnswer, LogConsumer
from strandline.service.access import Access
from strandline.service.catalog import CONSUMER, Catalog, profile_of, registry_of
from strandline.service.http import Call, Reply
from strandline.service.log_config import shown_config, traits_of


def row_of(log: Log, rates: Rates) -> dict[str, Any]:
    """The log as a row of a list. May wait for the disk, because retention may have to remove records first."""
    state = log.state()
    return {
        "name": state.name,
        "kind": kind_of(state.config, log.notes),
        "durability": state.config.durability,
        "head": state.head,
        "earliest": state.earliest,
        "records": state.count,
        "bytes": state.size,
        "rate": round(rates.of(state.name), 1),
        "recent": list(rates.recent(log.book.epoch)),
        "lag": lag_of(log.book),
        "last_ts": state.last_ts or None,
    }


class LogDescriptions:
    def __init__(self, context: ConsoleContext, rates: Rates, routing: ConsoleRouters) -> None:
        self._context = context
        self._rates = rates
        self._routing = routing

    async def get(self, call: Call) -> Reply:
        """GET /console/api/log/{name}"""
        log = self._context.log(call)
        routers = self._routing.touching(log.name, call.access)
        row, floor = await self._context.work(lambda: (row_of(log, self._rates), log.state().evict_floor))
        lifetime = self._context.kernel.catalog.lifetime(log)
        answer = ConsoleLogAnswer(
            **row,
            epoch=log.epoch,
            floor=floor,
            config=shown_config(log.config, traits_of(log.config), log.notes, call.access),
            media_type=media_type_of(log.config),
            schema=bool(registry_of(log).schemas),
            profile=profile_of(log).kind,
            closed=CLOSED in log.notes,
            expires_at=None if lifetime is None else lifetime.expires_at,
            fork=_fork(log, call.access),
            forks=log.forks,
            consumers=_consumers(log),
            routers=routers,
            note=belongs(log),
            of=note_of(log),
            writable_by=writable_by(log),
        )
        return Reply(msgspec.json.encode(answer))


def _fork(log: Log, access: Access) -> ForkAnswer | None:
    """The log that this one was forked from, unless the caller may not see it."""
    base = log.base
    if base is None or not Catalog.visible(base[0], access, internal=True):
        return None
    return ForkAnswer(of=base[0].name, through=base[1])


def _consumers(log: Log) -> list[LogConsumer]:
    head = log.head
    return [
        LogConsumer(name=name.removeprefix(CONSUMER), seq=cursor.seq, lag=max(head - cursor.seq, 0), moved_at=cursor.ts)
        for name, cursor in sorted(log.cursors().items())
        if name.startswith(CONSUMER)
    ]
