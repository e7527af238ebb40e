"""One page of a stream: found, filtered, brought up to the present schema, and made a reply of."""

from __future__ import annotations

import asyncio
from typing import NamedTuple
from urllib.parse import quote

from strandline.engine import Log, Page
from strandline.engine.record import Tombstone
from strandline.faces.streams.asking import Ask
from strandline.faces.streams.context import StreamsContext
from strandline.faces.streams.errors import bad_request
from strandline.faces.streams.offsets import encode
from strandline.faces.streams.replying import CLOSED, NO_STORE, UP_TO_DATE, Headers, end_offset, lifetime, next_offset
from strandline.faces.streams.stream import Stream
from strandline.faces.web import Refusal, Reply
from strandline.query.binding import Bound, bind_filter
from strandline.query.config import SearchConfig
from strandline.query.language import parse
from strandline.query.matching import filter_rows

#: So many records are filtered at a time.
FILTER_PAGE = 4096
FILTER_PAGE_BYTES = 4 << 20

#: Where nothing is declared, no field can be asked for.
_NOTHING = SearchConfig()

_IMMUTABLE = (b"cache-control", b"immutable, max-age=31536000")
_REVALIDATE = (b"cache-control", b"no-cache")


class Found(NamedTuple):
    """What a read found. ``scanned`` counts the bytes that a filter has looked at; ``capped``: it looked no further."""

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


class Pages:
    def __init__(self, context: StreamsContext) -> None:
        self._settings = context.settings

    def bound_filter(self, stream: Stream, ask: Ask) -> Bound | None:
        """The filter that is asked for, ready to be used."""
        if ask.filter is None:
            return None
        if not stream.is_json:
            raise bad_request("filter requires application/json stream content-type")
        if not ask.filter.strip():
            raise bad_request("filter must not be empty")
        return bind_filter(parse(ask.filter), stream.registry.search or _NOTHING)

    def resident(self, stream: Stream, ask: Ask, after: int) -> Found | None:
        """The page, if it is in memory and there is no filter."""
        if ask.filter is not None or stream.registry.promotes:
            return None
        page = stream.log.read_resident(
            after,
            self._settings.read_max_records,
            max_bytes=self._settings.read_max_bytes,
            key=ask.key,
            since=ask.since,
        )
        return None if page is None else self._found(stream, ask, after, page)

    async def fetched(self, stream: Stream, ask: Ask, after: int, bound: Bound | None) -> Found:
        """The page, read and filtered on another thread."""
        return await asyncio.to_thread(self._fetch, stream, ask, after, bound)

    def _fetch(self, stream: Stream, ask: Ask, after: int, bound: Bound | None) -> Found:
        if bound is not None:
            return self._filtered(stream, ask, after, bound)
        page = stream.log.read(
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
        """Look at record after record until there are enough, or enough was looked at."""
        settings, registry = self._settings, stream.registry
        limit, budget, scan = settings.read_max_records, settings.read_max_bytes, settings.filter_scan_bytes
        seqs: list[int] = []
        data: list[bytes] = []
        at, size, scanned = after, 0, 0
        while True:
            page = stream.log.read(
                at,
                FILTER_PAGE,
                max_bytes=min(FILTER_PAGE_BYTES, scan - scanned),
                since=ask.since if at == after else None,
            )
            if page.tombstone is not None and ask.given and at == after:
                raise lost(page.tombstone)
            versions = [registry.version_at(seq) for seq in page.seqs]
            matching = filter_rows(bound, page.data, versions)
            stopped: int | None = None
            for row in matching:
                if ask.key is not None and page.keys[row] != ask.key:
                    continue
                if len(data) == limit or (data and size + len(page.data[row]) > budget):
                    stopped = row
                    break
                seqs.append(page.seqs[row])
                data.append(page.data[row])
                size += len(page.data[row])
            looked_at = len(page.data) if stopped is None else stopped
            scanned += sum(map(len, page.data[:looked_at]))
            if stopped is not None:
                at = page.seqs[stopped] - 1
                return self._promoted(stream, seqs, data, after, at, page.head, scanned, False)
            at = page.next_after
            if page.caught_up:
                return self._promoted(stream, seqs, data, after, at, page.head, scanned, False)
            if scanned >= scan:
                return self._promoted(stream, seqs, data, after, at, page.head, scanned, True)

    @staticmethod
    def _promoted(
        stream: Stream, seqs: list[int], data: list[bytes], after: int, at: int, head: int, scanned: int, capped: bool
    ) -> Found:
        registry = stream.registry
        if registry.promotes:
            data = registry.promote_rows(seqs, data)
        return Found(data, after, at, head, scanned, capped)

    # --- as a reply ----------------------------------------------------------------------------------------------

    def headers(self, stream: Stream, found: Found) -> Headers:
        headers: Headers = (next_offset(found.next_after), end_offset(found.head), *lifetime(stream))
        if found.caught_up:
            headers += (UP_TO_DATE,)
            if stream.ended and found.head == stream.log.head:
                headers += (CLOSED,)
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
        closed = found.caught_up and stream.ended
        etag = _etag(stream, ask, found, as_json, closed)
        # What ends at the end of the stream is another page tomorrow.
        caching = _REVALIDATE if found.caught_up or found.next_after > found.head else _IMMUTABLE
        headers = (*self.headers(stream, found), (b"etag", etag), caching)
        if if_none_match is not None and _same(if_none_match, etag):
            return Reply(b"", 304, headers=headers)
        return Reply(body_of(found.data, as_json), 200, content_type_of(stream, as_json), headers)

    def live(self, stream: Stream, ask: Ask, found: Found, cursor: int) -> Reply:
        """The reply to a read that waits, or may have waited."""
        headers = (*self.headers(stream, found), NO_STORE, (b"stream-cursor", b"%d" % cursor))
        if not found.data and not found.capped:
            return Reply(b"", 204, headers=headers)
        as_json = ask.as_json(stream)
        return Reply(body_of(found.data, as_json), 200, content_type_of(stream, as_json), headers)


def beyond(log: Log, after: int) -> Found:
    """A place behind the end: there is nothing, and nothing is wrong."""
    return Found([], after, after, log.head)


def body_of(data: list[bytes], as_json: bool) -> bytes:
    return b"[%b]" % b",".join(data) if as_json else b"".join(data)


def content_type_of(stream: Stream, as_json: bool) -> bytes:
    return stream.content_type.encode("latin-1")


def lost(tombstone: Tombstone) -> Refusal:
    """The answer to whoever names a place behind which something is gone that nobody removed on purpose."""
    message = f"what follows this offset is no longer there: the stream begins behind {encode(tombstone.earliest - 1)}"
    return Refusal(410, "gone", message)


def _etag(stream: Stream, ask: Ask, found: Found, as_json: bool, closed: bool) -> bytes:
    """Beyond what the page is, it tells one stream of a name from the next, and whether something was removed."""
    log = stream.log
    text = (
        f'W/"slice:{encode(found.after)}:{encode(found.next_after)}:key={quote(ask.key or "", safe="")}'
        f":fmt={'json' if as_json else 'raw'}:filter={quote(ask.filter or '', safe='')}"
        f':{log.epoch:x}.{log.revision:x}.{stream.registry.current_version}{":closed" if closed else ""}"'
    )
    return text.encode()


def _same(if_none_match: bytes, etag: bytes) -> bool:
    if if_none_match.strip() == b"*":
        return True
    plain = etag.removeprefix(b"W/")
    return any(one.strip().removeprefix(b"W/") == plain for one in if_none_match.split(b","))
