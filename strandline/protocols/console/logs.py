"""Lists logs page by page."""

from __future__ import annotations

import msgspec

from strandline.engine import Log
from strandline.engine.errors import UnknownLog
from strandline.protocols.console.catalogue import SORTS, Catalogue, Wanted
from strandline.protocols.console.context import ConsoleContext
from strandline.protocols.console.kinds import KINDS, Kind
from strandline.protocols.console.log_description import row_of
from strandline.protocols.console.rates import Rates
from strandline.protocols.console.wire import ConsoleLogsAnswer, LogPrefix, LogPrefixesAnswer, LogRow
from strandline.service.http import Call, Reply
from strandline.service.parameters import choice, number

DEFAULT_LIMIT = 100
MAX_LIMIT = 1000


class ConsoleLogs:
    def __init__(self, context: ConsoleContext, rates: Rates, catalogue: Catalogue) -> None:
        self._context = context
        self._rates = rates
        self._catalogue = catalogue

    async def list(self, call: Call) -> Reply:
        """GET /console/api/logs"""
        offset = number(call, "offset", 0) or 0
        limit = number(call, "limit", DEFAULT_LIMIT, 1, MAX_LIMIT) or DEFAULT_LIMIT
        listed = await self._catalogue.page(wanted_by(call), offset, limit)
        engine = self._context.engine

        def rows() -> Reply:
            found = [log for name in listed.names if (log := engine.find(name)) is not None]
            shown = [row for log in found if (row := self._row(log)) is not None]
            return Reply(msgspec.json.encode(ConsoleLogsAnswer(logs=shown, total=listed.total)))

        return await self._context.work(rows)

    async def prefixes(self, call: Call) -> Reply:
        """GET /console/api/prefixes"""
        under, allowed = call.query.get("under", ""), call.access.prefixes
        table = await self._catalogue.table()
        found = await self._context.work(lambda: table.common_prefixes(under, allowed))
        shown = [LogPrefix(prefix=prefix, logs=number) for prefix, number in found.items()]
        return Reply(msgspec.json.encode(LogPrefixesAnswer(prefixes=shown)))

    def _row(self, log: Log) -> LogRow | None:
        try:
            return LogRow(**row_of(log, self._rates))
        except UnknownLog:  # dropped a moment ago
            return None


def wanted_by(call: Call) -> Wanted:
    found = choice(call, "kind", *KINDS)
    kind: Kind | None = next((each for each in KINDS if each == found), None)
    sort = choice(call, "sort", *SORTS) or "name"
    # Sorting by size, rate or time shows the largest, busiest or latest first.
    order = choice(call, "order", "asc", "desc") or ("asc" if sort == "name" else "desc")
    return Wanted(
        call.query.get("search", ""), kind, call.access.prefixes, sort, order == "desc", call.query.get("under", "")
    )
