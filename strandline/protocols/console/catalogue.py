"""All logs in any order, fast enough for a million of them.

The engine has the logs ordered by name. For any other order, a thread builds a table of the values to sort and select
by, in short steps. A large table is kept for a while with its sorted views, so that turning pages is fast. The values
shown for a log are always current.
"""

from __future__ import annotations

import asyncio
import re
from array import array
from bisect import bisect_left
from collections.abc import Collection
from heapq import nlargest
from itertools import count
from time import sleep
from typing import Any, NamedTuple

import numpy as np

from strandline.engine.ownership import COLLECTION
from strandline.engine.state.log_names import Span
from strandline.engine.state.logbook import Logbook
from strandline.protocols.console.context import ConsoleContext
from strandline.protocols.console.kinds import KINDS, Kind, kind_of
from strandline.protocols.console.rates import Rates
from strandline.service.access import FULL_ACCESS, Access
from strandline.service.catalog import CONSUMER, Catalog, spans

#: Tables of at most this many logs are built quickly and never kept, so they are always current.
SMALL = 10_000
#: A kept table is used for this long. After that a new one is built, and the old one stays in use until STALE_MS.
KEEP_MS = 5_000
STALE_MS = 60_000
#: Sorted views that are kept with a table.
MAX_VIEWS = 8
#: Logs processed before other threads get a turn: about half a millisecond.
STEP = 500

#: Ends a part of a name.
SEPARATOR = re.compile("[:/]")
#: The maximum number of prefixes in an answer.
MAX_PREFIXES = 50

SORTS = ("name", "records", "bytes", "rate", "lag", "last")
NO_LAG = -1

_CODES = {kind: code for code, kind in enumerate(KINDS)}
_LAST = np.iinfo(np.int64).max

Ints = Any  # a numpy array; numpy's types do not name the element type


class Wanted(NamedTuple):
    """Which logs to list, and in which order. A log must meet every given condition."""

    #: A part of the name after ``under``.
    search: str = ""
    kind: Kind | None = None
    prefixes: tuple[str, ...] = ()
    sort: str = "name"
    descending: bool = False
    #: The beginning of the names.
    under: str = ""


class Listed(NamedTuple):
    """The names on a page, and the number of logs on all pages."""

    names: list[str]
    total: int


class LogSums(NamedTuple):
    """What several logs have together. ``last`` is the time of the last record; 0 if there never was one."""

    logs: int = 0
    records: int = 0
    size: int = 0
    last: int = 0


class LogTable:
    """The logs at one moment, ordered by name. Immutable."""

    def __init__(self, catalog: Catalog, made_at: int) -> None:
        self.made_at = made_at
        self.names: list[str] = []
        self._kinds, numbers = array("b"), [array("q") for _ in range(4)]
        #: For each log the code of the collection that created it; 0 for all other logs.
        self._owners = array("i")
        self._collections: dict[str | None, int] = {None: 0}
        self._fill(catalog, numbers)
        self.kinds: Ints = np.frombuffer(self._kinds, np.int8)
        self.records, self.size, self.last, self.lag = (np.frombuffer(each, np.int64) for each in numbers)
        self.owners: Ints = np.frombuffer(self._owners, np.int32)
        self._views: dict[Wanted, Ints] = {}

    def _fill(self, catalog: Catalog, numbers: list[array[int]]) -> None:
        names, kinds, (records, sizes, lasts, lags) = self.names, self._kinds, numbers
        for at, name in enumerate(catalog.walk(FULL_ACCESS), 1):
            if at % STEP == 0:
                sleep(0)
            log = catalog.engine.find(name)
            if log is None:  # dropped a moment ago
                continue
            book = log.book
            names.append(name)
            notes, owners = log.notes, self._collections
            kinds.append(_CODES[kind_of(book.config, notes)])
            self._owners.append(owners.setdefault(notes.get(COLLECTION) if notes else None, len(owners)))
            records.append(book.count)
            sizes.append(book.size)
            lasts.append(book.last_ts)
            lag = lag_of(book)
            lags.append(NO_LAG if lag is None else lag)

    def rows(self, wanted: Wanted, rates: Rates) -> Ints:
        """The indexes of the wanted logs, in order."""
        rows = self._views.get(wanted)
        if rows is None:
            rows = self._sorted(np.flatnonzero(self._mask(wanted)), wanted, rates)
            while len(self._views) >= MAX_VIEWS:
                self._views.pop(next(iter(self._views)), None)
            self._views[wanted] = rows
        return rows

    def _mask(self, wanted: Wanted) -> Ints:
        mask = np.ones(len(self.names), bool)
        if wanted.prefixes:
            mask[:] = False
            for start, end in self._between(spans(wanted.prefixes)):
                mask[start:end] = True
        if wanted.under:
            ((start, end),) = self._between(spans((wanted.under,), internal=True))
            mask[:start] = mask[end:] = False
        if wanted.kind is not None:
            mask &= self.kinds == _CODES[wanted.kind]
        if wanted.search:
            mask &= self._containing(wanted.search.lower(), len(wanted.under))
        return mask

    def sums(self, under: str, kind: Kind, allowed: tuple[str, ...], owners: Collection[str] = ()) -> LogSums:
        """What the logs of a kind have together whose names start with ``under``; with ``owners``, only those that one
        of these collections created."""
        ((first, end),) = self._between(spans((under,), internal=True))
        codes, found = [self._collections[owner] for owner in owners if owner in self._collections], LogSums()
        for low, high in self._between(spans(allowed)) if allowed else [(first, end)]:
            part = slice(max(low, first), max(min(high, end), low, first))
            mask = self.kinds[part] == _CODES[kind]
            if owners:
                mask &= np.isin(self.owners[part], codes)
            count = int(mask.sum())
            if count:
                records, size, last = (each[part][mask] for each in (self.records, self.size, self.last))
                found = LogSums(
                    found.logs + count,
                    found.records + int(records.sum()),
                    found.size + int(size.sum()),
                    max(found.last, int(last.max())),
                )
        return found

    def _between(self, wanted: list[Span]) -> list[tuple[int, int]]:
        names = self.names
        return [
            (bisect_left(names, low), len(names) if high is None else bisect_left(names, high)) for low, high in wanted
        ]

    def common_prefixes(self, under: str, allowed: tuple[str, ...]) -> dict[str, int]:
        """The prefixes that several names after ``under`` share, up to their next separator, with the number of logs of
        each: the ones with the most logs, by name."""
        everything = [(0, len(self.names))]
        ((first, end),) = self._between(spans((under,), internal=True)) if under else everything
        found: dict[str, int] = {}
        for low, high in self._between(spans(allowed)) if allowed else everything:
            at, stop = max(low, first), min(high, end)
            for step in count(1):
                if at >= stop:
                    break
                if step % STEP == 0:
                    sleep(0)
                after = at + 1
                if separator := SEPARATOR.search(self.names[at], len(under)):
                    prefix = self.names[at][: separator.end()]
                    ((_, after),) = self._between(spans((prefix,), internal=True))
                    found[prefix] = found.get(prefix, 0) + min(after, stop) - at
                at = after
        shared = [(number, prefix) for prefix, number in found.items() if number > 1]
        return {prefix: number for number, prefix in sorted(nlargest(MAX_PREFIXES, shared), key=lambda one: one[1])}

    def _containing(self, text: str, start: int) -> Ints:
        """Which names contain the text at ``start`` or after it."""
        found = bytearray()
        for at in range(0, len(self.names), STEP * 10):
            found += bytes([text in name[start:].lower() for name in self.names[at : at + STEP * 10]])
            sleep(0)
        return np.frombuffer(found, bool)

    def _sorted(self, rows: Ints, wanted: Wanted, rates: Rates) -> Ints:
        if wanted.sort == "name":
            return rows[::-1] if wanted.descending else rows
        values = self._column(wanted.sort, rates)[rows]
        # Unknown values come last in either order.
        if wanted.sort in ("lag", "last"):
            nothing = values < 0 if wanted.sort == "lag" else values == 0
            values = np.where(nothing, _LAST, -values if wanted.descending else values)
        elif wanted.descending:
            values = -values
        return rows[np.argsort(values, kind="stable")]

    def _column(self, sort: str, rates: Rates) -> Ints:
        if sort != "rate":
            return {"records": self.records, "bytes": self.size, "lag": self.lag, "last": self.last}[sort]
        column = np.zeros(len(self.names))
        for name, rate in rates.now.items():
            at = bisect_left(self.names, name)
            if at < len(self.names) and self.names[at] == name:
                column[at] = rate.appends
        return column


def lag_of(book: Logbook) -> int | None:
    """The lag of the slowest consumer of the log; None without consumers."""
    cursors = book.cursors
    if not cursors:
        return None
    seqs = [cursor.seq for name, cursor in list(cursors.items()) if name.startswith(CONSUMER)]
    return max(book.head - min(seqs), 0) if seqs else None


class Catalogue:
    """Lists logs. Call it on the event loop's thread."""

    def __init__(self, context: ConsoleContext, rates: Rates, small: int = SMALL) -> None:
        self._context = context
        self._rates = rates
        self._small = small
        self._kept: LogTable | None = None
        self._making: asyncio.Future[LogTable] | None = None

    async def page(self, wanted: Wanted, offset: int, limit: int) -> Listed:
        """The wanted logs from ``offset``."""
        catalog = self._context.kernel.catalog
        # Remove expired logs, so that they are not counted.
        catalog.sweep()
        if wanted == Wanted():
            return await self._context.work(lambda: self._by_name(offset, limit))
        table = await self.table()
        return await self._context.work(lambda: self._page(table, wanted, offset, limit))

    def _by_name(self, offset: int, limit: int) -> Listed:
        catalog = self._context.kernel.catalog
        with catalog.engine.lock:
            return Listed(catalog.names(FULL_ACCESS, limit, position=offset), catalog.visible_count)

    def _page(self, table: LogTable, wanted: Wanted, offset: int, limit: int) -> Listed:
        rows = table.rows(wanted, self._rates)
        return Listed([table.names[row] for row in rows[offset : offset + limit].tolist()], len(rows))

    async def totals(self, access: Access) -> tuple[int, int, int]:
        """The number of logs, records and bytes that the caller may see."""
        engine = self._context.engine
        if not access.prefixes:
            return self._context.kernel.catalog.visible_count, engine.totals.records, engine.totals.size
        table, wanted = await self.table(), Wanted(prefixes=access.prefixes)

        def count() -> tuple[int, int, int]:
            rows = table.rows(wanted, self._rates)
            return len(rows), int(table.records[rows].sum()), int(table.size[rows].sum())

        return await self._context.work(count)

    async def table(self) -> LogTable:
        """A current table, or one that is a few seconds old."""
        while True:
            kept, now = self._kept, self._context.hub.now()
            age = None if kept is None else now - kept.made_at
            if kept is not None and age is not None and 0 <= age < KEEP_MS:
                return kept
            if kept is not None and age is not None and 0 <= age < STALE_MS:
                if self._making is None:
                    self._begin(now)
                return kept
            if self._making is None:
                return await asyncio.shield(self._begin(now))
            # A table is being built, but it may have started before a change that this caller expects to see.
            await self.made()

    async def made(self) -> None:
        """Wait for the table that is being built, if any."""
        if self._making is not None:
            await asyncio.wait([self._making])

    def _begin(self, now: int) -> asyncio.Future[LogTable]:
        making = self._making = asyncio.wrap_future(
            self._context.workers.bulk.submit(LogTable, self._context.kernel.catalog, now)
        )
        making.add_done_callback(self._made)
        return making

    def _made(self, making: asyncio.Future[LogTable]) -> None:
        self._making = None
        if making.cancelled() or making.exception() is not None:
            return
        table = making.result()
        self._kept = table if len(table.names) > self._small else None
        if self._kept is not None:
            self._context.hub.loop.call_later(STALE_MS / 1000, self._forget, table)

    def _forget(self, table: LogTable) -> None:
        if self._kept is table:
            self._kept = None
