"""The keys of a log, and an estimate of a delete by key."""

from __future__ import annotations

import msgspec

from strandline.engine import Log
from strandline.engine.reads.keys import KeyCount, count_of, estimate_delete, key_counts_of
from strandline.engine.reads.single_records import records_at
from strandline.protocols.console.context import ConsoleContext
from strandline.protocols.console.records import render_all
from strandline.protocols.console.wire import KeyRow, KeysAnswer
from strandline.service.http import Call, Reply
from strandline.service.parameters import number
from strandline.service.problems import invalid

DEFAULT_LIMIT = 100
MAX_LIMIT = 500


class ConsoleKeys:
    def __init__(self, context: ConsoleContext) -> None:
        self._context = context

    async def keys(self, call: Call) -> Reply:
        """GET /console/api/log/{name}/keys"""
        log = self._context.log(call)
        limit = number(call, "limit", DEFAULT_LIMIT, 1, MAX_LIMIT) or DEFAULT_LIMIT
        prefix, after = call.query.get("prefix", ""), call.query.get("after") or None
        return await self._context.work(lambda: Reply(msgspec.json.encode(_page(log, prefix, after, limit))))

    async def removal(self, call: Call) -> Reply:
        """GET /console/api/log/{name}/removal"""
        log = self._context.log(call)
        key, prefix = call.query.get("key") or None, call.query.get("prefix") or None
        before = number(call, "before")
        if key is None and prefix is None and before is None:
            raise invalid("nothing selects the records: give key, prefix or before")

        def look() -> Reply:
            weighed = estimate_delete(log, before=before, key=key, prefix=prefix)
            sample = render_all(log, records_at(log, weighed.first))
            first = b"%d" % weighed.first[0] if weighed.first else b"null"
            last = b"%d" % weighed.last if weighed.last else b"null"
            return Reply(
                b'{"records":%d,"bytes":%d,"first_seq":%b,"last_seq":%b,"sample":%b}'
                % (weighed.records, weighed.size, first, last, sample)
            )

        return await self._context.work(look)


def _page(log: Log, prefix: str, after: str | None, limit: int) -> KeysAnswer:
    found: list[tuple[str, KeyCount]] = []
    if prefix and (after is None or after < prefix):
        # The keys after the prefix start with it, as long as there are any. The prefix may be a key itself.
        after = prefix
        count = count_of(log, prefix)
        if count.records:
            found.append((prefix, count))
    found += [each for each in key_counts_of(log, after, limit + 1) if each[0].startswith(prefix)]
    rows = [KeyRow(key=key, records=count.records, last_seq=count.last) for key, count in found[:limit]]
    return KeysAnswer(keys=rows, more=len(found) > limit)
