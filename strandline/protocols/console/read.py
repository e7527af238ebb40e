"""Reads records of any log, from any position, forwards and backwards."""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

from strandline.engine import Log, Page, Record, Tombstone
from strandline.engine.reads.keys import seqs_with
from strandline.engine.reads.single_records import records_at
from strandline.protocols.console.context import ConsoleContext
from strandline.protocols.console.records import render_all, render_tombstone
from strandline.service.http import Call, Reply
from strandline.service.parameters import moment, number
from strandline.service.problems import invalid

DEFAULT_LIMIT = 100
MAX_LIMIT = 1000
#: The maximum bytes of a page. A single record is returned whatever its size.
MAX_BYTES = 2 << 20


class RecordColumns(NamedTuple):
    """Consecutive records ordered by seq, and the loss immediately before them, if any.

    ``caught_up``: there are no more records in the direction of the read.
    """

    records: list[Record]
    tombstone: Tombstone | None
    head: int
    earliest: int
    next_after: int
    caught_up: bool


class ConsoleReads:
    def __init__(self, context: ConsoleContext) -> None:
        self._context = context

    async def get(self, call: Call) -> Reply:
        """GET /console/api/log/{name}/records"""
        log = self._context.log(call)
        limit = number(call, "limit", DEFAULT_LIMIT, 1, MAX_LIMIT) or DEFAULT_LIMIT
        after, before, at = number(call, "after"), number(call, "before"), moment(call, "at")
        if sum(each is not None for each in (after, before, at)) > 1:
            raise invalid("after, before and at cannot be combined: give only one of them")
        key, prefix = call.query.get("key") or None, call.query.get("prefix") or None

        def read() -> Reply:
            if before is None:
                return _reply(log, forwards(log, after or 0, at, limit, key, prefix))
            if key is None and prefix is None:
                return _reply(log, backwards(log, before, limit))
            return _reply(log, backwards_with_key(log, before, limit, key, prefix))

        return await self._context.work(read)


def forwards(log: Log, after: int, since: int | None, limit: int, key: str | None, prefix: str | None) -> RecordColumns:
    page = log.read(after, limit, max_bytes=MAX_BYTES, key=key, key_prefix=prefix, since=since)
    return _found(page)


def backwards(log: Log, before: int, limit: int) -> RecordColumns:
    """The last records before a seq. If records were lost among them, only the records after the last loss are
    returned and the earlier ones are on the next page, so that the gap is visible."""
    page = log.read_back(before, limit + 1, max_bytes=MAX_BYTES)
    seqs = page.seqs if page.caught_up and len(page.seqs) <= limit else page.seqs[1:]
    if not seqs:
        # There are no records, or the only one is larger than a page.
        seqs = page.seqs
    behind = page.seqs[0] if len(seqs) < len(page.seqs) else 0 if page.caught_up else seqs[0] - 1
    caught_up, records, tombstone = page.caught_up and len(seqs) == len(page.seqs), list[Record](), None
    # A loss after the last of these records was reported with the previous page.
    end = seqs[-1] if seqs else min(before - 1, page.head)
    while behind < end:
        part = log.read(behind, limit, max_bytes=MAX_BYTES)
        if part.tombstone is not None:
            caught_up = caught_up and not records
            tombstone, records = part.tombstone, []
        records += [record for record in part if record.seq < before]
        behind = part.next_after
        if part.caught_up:
            break
    next_after = records[-1].seq if records else max(end, 0)
    return RecordColumns(records[-limit:], tombstone, page.head, page.earliest, next_after, caught_up)


def backwards_with_key(log: Log, before: int, limit: int, key: str | None, prefix: str | None) -> RecordColumns:
    """Like ``backwards``, for records with a key. Losses are not reported, because lost records have no known key."""
    seqs = seqs_with(log, key=key, prefix=prefix)
    end = bisect_left(seqs, before)
    start = max(end - limit, 0)
    records = list(records_at(log, seqs[start:end]))
    state = log.state()
    next_after = records[-1].seq if records else max(min(before - 1, state.head), 0)
    return RecordColumns(records, None, state.head, state.earliest, next_after, start == 0)


def _found(page: Page) -> RecordColumns:
    return RecordColumns(list(page), page.tombstone, page.head, page.earliest, page.next_after, page.caught_up)


def _reply(log: Log, found: RecordColumns) -> Reply:
    first = b"%d" % found.records[0].seq if found.records else b"null"
    return Reply(
        b'{"records":%b,"tombstone":%b,"head":%d,"earliest":%d,"first":%b,"next_after":%d,"caught_up":%b}'
        % (
            render_all(log, found.records),
            render_tombstone(found.tombstone),
            found.head,
            found.earliest,
            first,
            found.next_after,
            b"true" if found.caught_up else b"false",
        )
    )
