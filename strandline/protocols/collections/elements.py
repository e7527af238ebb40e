"""Elements as JSON, cut out of a log: from a time on, or the last so many, as of one moment.

What is in memory is put together on the loop if there is not too much of it; everything else is read page by page on
another thread. Many clients ask for the same, so what was put together is kept for a while.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any, NamedTuple

from strandline.engine import Page
from strandline.engine.record import MAX_TIME
from strandline.protocols.collections.documents import Document, Version
from strandline.protocols.collections.pull_request import Wanted
from strandline.signing.canonical_json import canonical, parse

#: Elements that are read at a time.
PAGE = 1000
PAGE_BYTES = 4 << 20
#: So many elements, and so many bytes, are put together on the loop; that takes about a millisecond.
AT_ONCE = 2000
AT_ONCE_BYTES = 1 << 20
#: So many if fields are to be left out of them, for which each is parsed.
PARSED_AT_ONCE = 200
#: All that is kept, in bytes, and the largest that is.
KEPT_BYTES = 16 << 20
KEPT_AT_MOST = 1 << 20


class Elements(NamedTuple):
    """A JSON array without its brackets. ``more``: there were further ones behind these."""

    json: bytes
    more: bool = False


NONE = Elements(b"")


class Reader:
    """Lives on the loop; ``read_from_disk`` may be called on any thread."""

    def __init__(self) -> None:
        self._kept: dict[tuple[Any, ...], Elements] = {}
        self._bytes = 0

    def read(
        self, document: Document, version: Version, wanted: Wanted, hidden: frozenset[str] = frozenset()
    ) -> Elements | None:
        """What is wanted of the document as it was at that version, without the fields that are hidden; None if that is
        not for the loop to do."""
        if wanted.newest == 0 or not version.total:
            return NONE
        log = document.log
        key = (log.epoch, version.head, log.revision, wanted, hidden)
        found = self._kept.get(key)
        if found is None:
            everything = wanted.since is None and wanted.newest is None and wanted.oldest is None
            if everything and version.total > AT_ONCE:
                return None
            try:
                found = _read(document, version, wanted, hidden, wait=False)
            except _NotNow:
                return None
            self._keep(key, found)
        return found

    @staticmethod
    def read_from_disk(document: Document, version: Version, wanted: Wanted, hidden: frozenset[str]) -> Elements:
        """The same, however long it takes."""
        if wanted.newest == 0 or not version.total:
            return NONE
        return _read(document, version, wanted, hidden, wait=True)

    def _keep(self, key: tuple[Any, ...], elements: Elements) -> None:
        size = len(elements.json)
        if not 1024 <= size <= KEPT_AT_MOST:
            return  # not worth it, or too much
        self._kept[key] = elements
        self._bytes += size
        while self._bytes > KEPT_BYTES:
            self._bytes -= len(self._kept.pop(next(iter(self._kept))).json)


class _NotNow(Exception):
    """Not everything is in memory, or it is too much for the loop."""


class _Cutting:
    """Puts pages together. Unless it may ``wait``, raises _NotNow instead of waiting or taking long."""

    def __init__(self, document: Document, version: Version, wait: bool, at_once: int) -> None:
        self._log = document.log
        self._head = version.head
        self._wait = wait
        self._at_once = at_once
        self._pages: list[Page] = []
        self._count = 0
        self._size = 0

    def newest(self, most: int, since: int | None) -> list[Page]:
        """The last so many elements, without those that are not behind a time."""
        log, before = self._log, self._head + 1
        read = log.read_back if self._wait else log.read_back_resident
        while most:
            page = self._take(read(before, min(most, PAGE), max_bytes=PAGE_BYTES))
            most -= len(page)
            ended = page.caught_up or not page.seqs
            if since is not None:
                old = bisect_right(page.ts, since)
                _drop(page, slice(0, old))
                ended = ended or old > 0
            if ended:
                break
            before = page.seqs[0]
        self._pages.reverse()
        return self._pages

    def oldest(self, most: int | None, since: int | None) -> tuple[list[Page], bool]:
        """The first so many elements behind a time, and whether there are more."""
        log, after = self._log, 0
        read = log.read if self._wait else log.read_resident
        time = None if since is None else min(since, MAX_TIME) + 1
        while True:
            # One further, to see whether there is one.
            limit = PAGE if most is None else min(most + 1, PAGE)
            page = self._take(read(after, limit, max_bytes=PAGE_BYTES, since=time))
            _drop(page, slice(bisect_right(page.seqs, self._head), None))
            if most is not None:
                if len(page) > most:
                    _drop(page, slice(most, None))
                    return self._pages, True
                most -= len(page)
            after = page.next_after
            if page.caught_up or after >= self._head:
                return self._pages, False

    def _take(self, page: Page | None) -> Page:
        if page is None:
            raise _NotNow
        self._pages.append(page)
        self._count += len(page)
        self._size += sum(map(len, page.data))
        if not self._wait and (self._count > self._at_once or self._size > AT_ONCE_BYTES):
            raise _NotNow
        return page


def _drop(page: Page, rows: slice) -> None:
    for column in (page.seqs, page.ts, page.data, page.metas):
        del column[rows]


def _read(document: Document, version: Version, wanted: Wanted, hidden: frozenset[str], *, wait: bool) -> Elements:
    cutting = _Cutting(document, version, wait, PARSED_AT_ONCE if hidden else AT_ONCE)
    if wanted.newest is not None:
        pages, more = cutting.newest(wanted.newest, wanted.since), False
    else:
        pages, more = cutting.oldest(wanted.oldest, wanted.since)
    return Elements(b",".join([render(page, hidden) for page in pages if page.seqs]), more)


def render(page: Page, hidden: frozenset[str] = frozenset()) -> bytes:
    """The elements of a page, with commas between them. The proof of an author is a meta of just the members that an
    element shows of it."""
    data = [_without(each, hidden) for each in page.data] if hidden else page.data
    return b",".join(
        [
            b'{"ts":%d,"data":%b}' % (ts, each) if meta is None else b'{"ts":%d,"data":%b,%b' % (ts, each, meta[1:])
            for ts, each, meta in zip(page.ts, data, page.metas, strict=True)
        ]
    )


def _without(data: bytes, hidden: frozenset[str]) -> bytes:
    document = parse(data)
    if hidden.isdisjoint(document):
        return data
    return canonical({name: value for name, value in document.items() if name not in hidden})
