"""One page of a stream: found, filtered, converted to the current schema, and turned into a reply."""

from __future__ import annotations

from time import perf_counter
from typing import NamedTuple
from urllib.parse import quote

from strandline.engine import Page
from strandline.engine.record import Tombstone
from strandline.protocols.streams.context import StreamsContext
from strandline.protocols.streams.errors import GONE, bad_request
from strandline.protocols.streams.offsets import encode
from strandline.protocols.streams.read_request import ReadRequest
from strandline.protocols.streams.replies import (
    CLOSED,
    UP_TO_DATE,
    disposition,
    end_offset,
    lifetime,
    next_offset,
)
from strandline.protocols.streams.settings import StreamsSettings
from strandline.protocols.streams.state_messages import with_offsets
from strandline.protocols.streams.stream import Stream
from strandline.query.bound import Bound, bind_filter
from strandline.query.config import SearchConfig
from strandline.query.language import parse
from strandline.query.matcher import filter_rows
from strandline.service.http import NO_STORE, Reply
from strandline.service.problems import Headers, Refusal
from strandline.spans import READ

#: How many records are filtered at a time.
FILTER_PAGE = 4096
FILTER_PAGE_BYTES = 4 << 20

#: Without a search configuration, no field can be queried.
_NOTHING = SearchConfig()

_IMMUTABLE = (b"cache-control", b"immutable, max-age=31536000")
_REVALIDATE = (b"cache-control", b"no-cache")
#: Of long-polls. As long as the protocol suggests: readers of one offset and cursor arrive within a short time.
_COLLAPSED = (b"cache-control", b"max-age=60")


class ReadPage(NamedTuple):
    """The result of a read. ``revision`` is that of the log before it was read, and ``version`` that of the schema to
    which the records were converted. ``scanned`` is the bytes that a filter has scanned; ``capped``: it reached its
    limit."""

    data: list[bytes]
    after: int
    next_after: int
    head: int
    revision: int = 0
    version: int = 0
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

    def __init__(self, stream: Stream, ask: ReadRequest, bound: Bound, settings: StreamsSettings) -> None:
        self._stream = stream
        self._registry = stream.registry
        self._as_json = ask.as_json(stream)
        self.version = self._registry.current_version
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

    def shown(self) -> list[bytes]:
        registry = self._registry
        data = registry.promote_rows(self._seqs, self._data) if registry.promotes else self._data
        return with_offsets(self._stream, self._seqs, data) if self._as_json else data


class StreamPages:
    def __init__(self, context: StreamsContext) -> None:
        self._settings = context.settings
        self._meters = context.meters
        self._workers = context.workers

    def bound_filter(self, stream: Stream, ask: ReadRequest) -> Bound | None:
        """The filter of the request, bound to the stream's search configuration."""
        if ask.filter is None:
            return None
        if not stream.is_json:
            raise bad_request("filter requires application/json stream content-type")
        config = _NOTHING if stream.search is None else stream.search.config
        return bind_filter(parse(ask.filter, "filter"), config)

    def resident(self, stream: Stream, ask: ReadRequest, after: int) -> ReadPage | None:
        """The page, if it is in memory and the request has no filter."""
        if ask.filter is not None or stream.registry.promotes:
            return None
        revision = stream.log.revision
        read = stream.log.read_latest_resident if ask.latest else stream.log.read_resident
        page = read(
            after,
            self._settings.read_max_records,
            max_bytes=self._settings.read_max_bytes,
            key=ask.key,
            since=ask.since,
        )
        return None if page is None else self._found(stream, ask, after, page, revision)

    async def fetched(self, stream: Stream, ask: ReadRequest, after: int, bound: Bound | None) -> ReadPage:
        """The page, read and filtered on a worker thread."""
        begun = perf_counter()
        try:
            return await self._workers.normal.run(self._fetch, stream, ask, after, bound, part=READ)
        finally:
            self._meters.read_fetch.add(int((perf_counter() - begun) * 1_000_000))

    def _fetch(self, stream: Stream, ask: ReadRequest, after: int, bound: Bound | None) -> ReadPage:
        if bound is not None:
            return self._filtered(stream, ask, after, bound)
        revision = stream.log.revision
        read = stream.log.read_latest if ask.latest else stream.log.read
        page = read(
            after,
            self._settings.read_max_records,
            max_bytes=self._settings.read_max_bytes,
            key=ask.key,
            since=ask.since,
        )
        return self._found(stream, ask, after, page, revision)

    def _found(self, stream: Stream, ask: ReadRequest, after: int, page: Page, revision: int) -> ReadPage:
        if page.tombstone is not None and ask.given:
            raise lost(page.tombstone)
        data = page.data
        registry = stream.registry
        if registry.promotes:
            data = registry.promote_rows(page.seqs, data)
        if ask.as_json(stream):
            some = ask.key is not None or ask.latest or ask.since is not None
            data = with_offsets(stream, page.seqs, data, None if some else (after, page.next_after))
        return ReadPage(data, after, page.next_after, page.head, revision, registry.current_version)

    def _filtered(self, stream: Stream, ask: ReadRequest, after: int, bound: Bound) -> ReadPage:
        """Scan records until the page is full, or the scan limit is reached."""
        scan = Scan(stream, ask, bound, self._settings)
        revision, version = stream.log.revision, scan.version
        at, since = after, ask.since
        read = stream.log.read_latest if ask.latest else stream.log.read
        while True:
            page = read(at, FILTER_PAGE, max_bytes=min(FILTER_PAGE_BYTES, scan.budget), since=since)
            if page.tombstone is not None and ask.given and at == after:
                raise lost(page.tombstone)
            at, since = scan.take(page), None
            if scan.full or scan.capped or page.caught_up:
                capped = scan.capped and at < page.head
                return ReadPage(scan.shown(), after, at, page.head, revision, version, scan.scanned, capped)

    # --- replies ---------------------------------------------------------------------------------------------------

    def headers(self, stream: Stream, found: ReadPage) -> Headers:
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

    def caught_up(self, stream: Stream, ask: ReadRequest, found: ReadPage, if_none_match: bytes | None) -> Reply:
        """The reply to a read that does not wait."""
        headers, unchanged = self.caught_up_headers(stream, ask, found, if_none_match)
        return unchanged or self._page(stream, found, ask.as_json(stream), headers)

    def caught_up_headers(
        self, stream: Stream, ask: ReadRequest, found: ReadPage, if_none_match: bytes | None
    ) -> tuple[Headers, Reply | None]:
        """The headers of the reply to a read that does not wait, and the reply itself if the client has the body."""
        last = _is_last(stream, found)
        etag = _etag(stream, ask, found, ask.as_json(stream), last)
        # The records change if they reach the end of an open stream, if their schema evolves, or if they are the last
        # records of keys that get newer ones. A stream that expires is not there any longer then.
        passing = (found.next_after >= found.head and not last) or found.version or ask.latest or stream.expires_at
        caching = _REVALIDATE if passing else _IMMUTABLE
        headers = (*self.headers(stream, found), (b"etag", etag), caching)
        unchanged = if_none_match is not None and _same(if_none_match, etag)
        return headers + disposition(stream), Reply(b"", 304, headers=headers) if unchanged else None

    def live(self, stream: Stream, ask: ReadRequest, found: ReadPage, cursor: int) -> Reply:
        """The reply to a read that waits, or may have waited."""
        empty = not found.data and not found.capped
        # A reader that sends a cursor never sends the same request twice, so it cannot get a kept reply again and
        # again. Its reply may answer other readers that wait at the same offset.
        kept = ask.cursor and not empty and not found.version and stream.expires_at is None
        caching = _COLLAPSED if kept else NO_STORE
        headers = (*self.headers(stream, found), caching, (b"stream-cursor", b"%d" % cursor))
        if empty:
            return Reply(b"", 204, headers=headers)
        return self._page(stream, found, ask.as_json(stream), headers + disposition(stream))

    def _page(self, stream: Stream, found: ReadPage, as_json: bool, headers: Headers) -> Reply:
        return self.reply(stream, body_of(found.data, as_json), len(found.data), headers)

    def reply(self, stream: Stream, body: bytes, records: int, headers: Headers) -> Reply:
        """The reply with this number of records."""
        self._meters.read_records.add(records)
        self._meters.read_bytes.add(len(body))
        return Reply(body, 200, stream.content_type_bytes, headers)


def beyond(stream: Stream, after: int) -> ReadPage:
    """A position past the end: there are no records, and that is not an error."""
    log = stream.log
    return ReadPage([], after, after, log.head, log.revision, stream.registry.current_version)


def _is_last(stream: Stream, found: ReadPage) -> bool:
    """Whether the stream is closed and the page reaches its end, so that no records follow."""
    return found.next_after >= found.head == stream.log.head and stream.ended


def body_of(data: list[bytes], as_json: bool) -> bytes:
    return b"[%b]" % b",".join(data) if as_json else b"".join(data)


def lost(tombstone: Tombstone) -> Refusal:
    """The answer to a reader whose next records were lost to retention."""
    message = f"the records after this offset were removed; the stream begins after {encode(tombstone.earliest - 1)}"
    return Refusal(GONE, message)


def _etag(stream: Stream, ask: ReadRequest, found: ReadPage, as_json: bool, closed: bool) -> bytes:
    """Beside the page, the tag identifies the stream among those of its name, and changes when records are removed."""
    text = (
        f'W/"slice:{encode(found.after)}:{encode(found.next_after)}:key={quote(ask.key or "", safe="")}'
        f":fmt={'json' if as_json else 'raw'}:filter={quote(ask.filter or '', safe='')}"
        f"{f':latest={found.head:x}' if ask.latest else ''}"
        f':{stream.log.epoch:x}.{found.revision:x}.{found.version}{":closed" if closed else ""}"'
    )
    return text.encode()


def _same(if_none_match: bytes, etag: bytes) -> bool:
    if if_none_match.strip() == b"*":
        return True
    plain = etag.removeprefix(b"W/")
    return any(one.strip().removeprefix(b"W/") == plain for one in if_none_match.split(b","))
