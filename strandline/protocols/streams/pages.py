"""One page of a stream: found, filtered, converted to the current schema, and turned into a reply."""

from __future__ import annotations

from time import perf_counter
from typing import NamedTuple
from urllib.parse import quote

from strandline.engine import Log, Page
from strandline.engine.record import Tombstone
from strandline.protocols.streams.context import StreamsContext
from strandline.protocols.streams.errors import GONE, bad_request
from strandline.protocols.streams.offsets import encode
from strandline.protocols.streams.read_request import Ask
from strandline.protocols.streams.replies import (
    CLOSED,
    UP_TO_DATE,
    disposition,
    end_offset,
    lifetime,
    next_offset,
)
from strandline.protocols.streams.settings import StreamsSettings
from strandline.protocols.streams.stream import Stream
from strandline.query.bound import Bound, bind_filter
from strandline.query.config import SearchConfig
from strandline.query.language import parse
from strandline.query.matcher import filter_rows
from strandline.service.http import NO_STORE, Reply
from strandline.service.problems import Headers, Refusal

#: How many records are filtered at a time.
FILTER_PAGE = 4096
FILTER_PAGE_BYTES = 4 << 20

#: Without a search configuration, no field can be queried.
_NOTHING = SearchConfig()

_IMMUTABLE = (b"cache-control", b"immutable, max-age=31536000")
_REVALIDATE = (b"cache-control", b"no-cache")


class Found(NamedTuple):
    """The result of a read. ``scanned`` is the bytes that a filter has scanned; ``capped``: it reached its limit."""

    data: list[bytes]
    after: int
    next_after: int
    head: int
    scanned: int = 0
    capped: bool = False

    @property
    def caught_up(self) -> bool:
        return self.next_after == self.head

    @property
    def nothing(self) -> bool:
        return not self.data and not self.capped and self.next_after >= self.head


class Scan:
    """A filtered page while it is built."""

    def __init__(self, stream: Stream, ask: Ask, bound: Bound, settings: StreamsSettings) -> None:
        self._registry = stream.registry
        self._key = ask.key
        self._bound = bound
        self._room = settings.read_max_records
        self._bytes = settings.read_max_bytes
        self._scan_bytes = settings.filter_scan_bytes
        self._seqs: list[int] = []
        self._data: list[bytes] = []
        #: How many bytes were scanned.
        self.scanned = 0
        #: Whether the page is full.
        self.full = False

    @property
    def budget(self) -> int:
        """How many bytes may still be scanned."""
        return max(1, self._scan_bytes - self.scanned)

    @property
    def capped(self) -> bool:
        return self.scanned >= self._scan_bytes

    def take(self, page: Page) -> int:
        """Add the matching records; returns the seq up to which the log was scanned."""
        for row in self._passing(page):
            size = len(page.data[row])
            if self._data and (not self._room or size > self._bytes):
                self.full = True
                self.scanned += sum(map(len, page.data[:row]))
                return page.seqs[row] - 1
            self._seqs.append(page.seqs[row])
            self._data.append(page.data[row])
            self._room -= 1
            self._bytes -= size
        self.scanned += sum(map(len, page.data))
        return page.next_after

    def _passing(self, page: Page) -> list[int]:
        versions = self._registry.versions_at(page.seqs)
        if self._key is None:
            return filter_rows(self._bound, page.data, versions)
        rows = [row for row, key in enumerate(page.keys) if key == self._key]
        chosen = filter_rows(self._bound, [page.data[row] for row in rows], [versions[row] for row in rows])
        return [rows[at] for at in chosen]

    def promoted(self) -> list[bytes]:
        registry = self._registry
        return registry.promote_rows(self._seqs, self._data) if registry.promotes else self._data


class Pages:
    def __init__(self, context: StreamsContext) -> None:
        self._settings = context.settings
        self._meters = context.meters
        self._workers = context.workers

    def bound_filter(self, stream: Stream, ask: Ask) -> Bound | None:
        """The filter of the request, bound to the stream's search configuration."""
        if ask.filter is None:
            return None
        if not stream.is_json:
            raise bad_request("filter requires application/json stream content-type")
        return bind_filter(parse(ask.filter, "filter"), stream.registry.search or _NOTHING)

    def resident(self, stream: Stream, ask: Ask, after: int) -> Found | None:
        """The page, if it is in memory and the request has no filter."""
        if ask.filter is not None or stream.registry.promotes:
            return None
        read = stream.log.read_latest_resident if ask.latest else stream.log.read_resident
        page = read(
            after,
            self._settings.read_max_records,
            max_bytes=self._settings.read_max_bytes,
            key=ask.key,
            since=ask.since,
        )
        return None if page is None else self._found(stream, ask, after, page)

    async def fetched(self, stream: Stream, ask: Ask, after: int, bound: Bound | None) -> Found:
        """The page, read and filtered on a worker thread."""
        begun = perf_counter()
        try:
            return await self._workers.normal.run(self._fetch, stream, ask, after, bound)
        finally:
            self._meters.read_fetch.add(int((perf_counter() - begun) * 1_000_000))

    def _fetch(self, stream: Stream, ask: Ask, after: int, bound: Bound | None) -> Found:
        if bound is not None:
            return self._filtered(stream, ask, after, bound)
        read = stream.log.read_latest if ask.latest else stream.log.read
        page = read(
            after,
            self._settings.read_max_records,
            max_bytes=self._settings.read_max_bytes,
            key=ask.key,
            since=ask.since,
        )
        return self._found(stream, ask, after, page)

    def _found(self, stream: Stream, ask: Ask, after: int, page: Page) -> Found:
        if page.tombstone is not None and ask.given:
            raise lost(page.tombstone)
        data = page.data
        registry = stream.registry
        if registry.promotes:
            data = registry.promote_rows(page.seqs, data)
        return Found(data, after, page.next_after, page.head)

    def _filtered(self, stream: Stream, ask: Ask, after: int, bound: Bound) -> Found:
        """Scan records until the page is full, or the scan limit is reached."""
        scan = Scan(stream, ask, bound, self._settings)
        at, since = after, ask.since
        read = stream.log.read_latest if ask.latest else stream.log.read
        while True:
            page = read(at, FILTER_PAGE, max_bytes=min(FILTER_PAGE_BYTES, scan.budget), since=since)
            if page.tombstone is not None and ask.given and at == after:
                raise lost(page.tombstone)
            at, since = scan.take(page), None
            if scan.full or scan.capped or page.caught_up:
                return Found(scan.promoted(), after, at, page.head, scan.scanned, scan.capped and at < page.head)

    # --- replies ---------------------------------------------------------------------------------------------------

    def headers(self, stream: Stream, found: Found) -> Headers:
        headers: Headers = (next_offset(found.next_after), end_offset(found.head), *lifetime(stream))
        if _is_last(stream, found):
            headers += (UP_TO_DATE, CLOSED)
        elif found.caught_up:
            headers += (UP_TO_DATE,)
        if found.capped:
            headers += (
                (b"stream-filter-scan-limit-reached", b"true"),
                (b"stream-filter-scan-limit-bytes", b"%d" % self._settings.filter_scan_bytes),
                (b"stream-filter-scanned-bytes", b"%d" % found.scanned),
            )
        return headers

    def caught_up(self, stream: Stream, ask: Ask, found: Found, if_none_match: bytes | None) -> Reply:
        """The reply to a read that does not wait."""
        as_json = ask.as_json(stream)
        etag = _etag(stream, ask, found, as_json, _is_last(stream, found))
        # A page changes if it ends at the end of the stream, if its schema evolves, or if it shows the last records of
        # keys that get newer ones.
        passing = found.next_after >= found.head or stream.registry.current_version or ask.latest
        caching = _REVALIDATE if passing else _IMMUTABLE
        headers = (*self.headers(stream, found), (b"etag", etag), caching)
        if if_none_match is not None and _same(if_none_match, etag):
            return Reply(b"", 304, headers=headers)
        return self._page(stream, found, as_json, headers)

    def live(self, stream: Stream, ask: Ask, found: Found, cursor: int) -> Reply:
        """The reply to a read that waits, or may have waited."""
        headers = (*self.headers(stream, found), NO_STORE, (b"stream-cursor", b"%d" % cursor))
        if not found.data and not found.capped:
            return Reply(b"", 204, headers=headers)
        return self._page(stream, found, ask.as_json(stream), headers)

    def _page(self, stream: Stream, found: Found, as_json: bool, headers: Headers) -> Reply:
        body = body_of(found.data, as_json)
        self._meters.read_records.add(len(found.data))
        self._meters.read_bytes.add(len(body))
        return Reply(body, 200, stream.content_type_bytes, headers + disposition(stream))


def beyond(log: Log, after: int) -> Found:
    """A position past the end: there are no records, and that is not an error."""
    return Found([], after, after, log.head)


def _is_last(stream: Stream, found: Found) -> bool:
    """Whether the stream is closed and the page reaches its end, so that no records follow."""
    return found.next_after >= found.head == stream.log.head and stream.ended


def body_of(data: list[bytes], as_json: bool) -> bytes:
    return b"[%b]" % b",".join(data) if as_json else b"".join(data)


def lost(tombstone: Tombstone) -> Refusal:
    """The answer to a reader whose next records were lost to retention."""
    message = f"the records after this offset were removed; the stream begins after {encode(tombstone.earliest - 1)}"
    return Refusal(GONE, message)


def _etag(stream: Stream, ask: Ask, found: Found, as_json: bool, closed: bool) -> bytes:
    """Beside the page, the tag identifies the stream among those of its name, and changes when records are removed."""
    log = stream.log
    text = (
        f'W/"slice:{encode(found.after)}:{encode(found.next_after)}:key={quote(ask.key or "", safe="")}'
        f":fmt={'json' if as_json else 'raw'}:filter={quote(ask.filter or '', safe='')}"
        f"{f':latest={found.head:x}' if ask.latest else ''}"
        f':{log.epoch:x}.{log.revision:x}.{stream.registry.current_version}{":closed" if closed else ""}"'
    )
    return text.encode()


def _same(if_none_match: bytes, etag: bytes) -> bool:
    if if_none_match.strip() == b"*":
        return True
    plain = etag.removeprefix(b"W/")
    return any(one.strip().removeprefix(b"W/") == plain for one in if_none_match.split(b","))
