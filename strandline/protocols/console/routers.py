"""Routers: source and destination, rate and lag."""

from __future__ import annotations

import msgspec

from strandline.delivery.routers import Router
from strandline.protocols.console.context import ConsoleContext
from strandline.protocols.console.wire import ConsoleRoutersAnswer, FilterAnswer, ShownRouter
from strandline.service.access import Access
from strandline.service.http import Call, Reply

#: The maximum number of routers in an answer. A larger graph would not be readable.
MAX_ROUTERS = 1_000


class ConsoleRouters:
    """Runs on the event loop's thread, like the routers."""

    def __init__(self, context: ConsoleContext) -> None:
        self._context = context
        self._measured_at = 0
        self._forwarded: dict[str, int] = {}
        self._rates: dict[str, float] = {}

    def measure(self, now: int) -> None:
        """Measure how many records each router forwarded since the last call."""
        routers, _ = self._context.kernel.routers.page(limit=MAX_ROUTERS)
        seconds = (now - self._measured_at) / 1000
        if seconds <= 0:
            return
        forwarded = {router.name: router.forwarded_total for router in routers}
        known = self._forwarded
        self._rates = {
            name: max(count - known[name], 0) / seconds for name, count in forwarded.items() if name in known
        }
        self._forwarded, self._measured_at = forwarded, now

    def routers(self, call: Call) -> Reply:
        """GET /console/api/routers"""
        routers, _ = self._context.kernel.routers.page(limit=MAX_ROUTERS, prefixes=call.access.prefixes)
        rows = [self._row(router) for router in routers if _may_see(router, call.access)]
        names = sorted({name for row in rows for name in (row.source, row.destination)})
        return Reply(msgspec.json.encode(ConsoleRoutersAnswer(routers=rows, logs=names)))

    def touching(self, name: str, access: Access) -> list[ShownRouter]:
        """The routers from or to a log."""
        page = self._context.kernel.routers.page
        found = [*page(dest=name, limit=MAX_ROUTERS)[0], *page(source=name, limit=MAX_ROUTERS)[0]]
        return [self._row(router) for router in found if access.may_touch(router.name) and _may_see(router, access)]

    def _row(self, router: Router) -> ShownRouter:
        definition = router.definition
        wanted, rate = definition.filter, self._rates.get(router.name)
        return ShownRouter(
            name=router.name,
            source=definition.source,
            destination=definition.dest,
            filter=None if wanted is None else FilterAnswer(key=wanted.key, prefix=wanted.prefix),
            lag=router.lag,
            forwarded=router.forwarded_total,
            rate=None if rate is None else round(rate, 1),
            paused=router.blocked,
            guarantee="exactly_once" if definition.stamped else "at_least_once",
            allow_cycle=definition.allow_cycle,
        )


def _may_see(router: Router, access: Access) -> bool:
    """Whether the caller may access both ends, because a router reveals something about each."""
    return access.may_touch(router.source.name) and access.may_touch(router.dest.name)
