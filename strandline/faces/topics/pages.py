"""Pages that were rendered before: many readers read the same history.

A page that ends before the head does not change by appends, so it is good until something is removed. It is kept when
it is asked for the second time; who reads everything once leaves no trace.
"""

from __future__ import annotations

from typing import NamedTuple

from strandline.engine import Page
from strandline.faces.topics.records import render_records, tombstone_json
from strandline.faces.topics.topics import Topic

#: All pages that are kept, in bytes, and the smallest that is worth it.
MAX_BYTES = 32 << 20
MIN_BYTES = 4 << 10
#: How many pages are remembered as having been asked for once.
MAX_SEEN = 1024

#: Which page: log, place, bounds, what is shown.
Key = tuple[int, int, int, int, bool, bool]


class Rendered(NamedTuple):
    """A page as JSON. ``head`` is where the log ended when it was read."""

    records: bytes
    next_after: int
    head: int
    earliest: int
    tombstone: bytes

    @classmethod
    def of(cls, page: Page, *, tags: bool, meta: bool) -> Rendered:
        tombstone = b"null" if page.tombstone is None else tombstone_json(page.tombstone)
        records = render_records(page, tags=tags, meta=meta)
        return cls(records, page.next_after, page.head, page.earliest, tombstone)


class Pages:
    """Lives on the loop."""

    def __init__(self) -> None:
        self._kept: dict[Key, tuple[int, Rendered]] = {}
        self._bytes = 0
        self._seen: dict[Key, None] = {}

    def get(self, key: Key, topic: Topic) -> Rendered | None:
        """The page, if it was kept and is as it was."""
        kept = self._kept.get(key)
        if kept is None:
            return None
        revision, rendered = kept
        if revision != topic.log.revision:
            self._drop(key)
            return None
        self._kept[key] = self._kept.pop(key)
        return rendered._replace(head=topic.log.head)

    def offer(self, key: Key, topic: Topic, rendered: Rendered) -> None:
        """Keep the page if it will not change by itself and was asked for before."""
        size = len(rendered.records)
        if rendered.next_after >= rendered.head or size < MIN_BYTES:
            return
        if key not in self._seen:
            if len(self._seen) >= MAX_SEEN:
                del self._seen[next(iter(self._seen))]
            self._seen[key] = None
            return
        if key in self._kept:
            self._drop(key)
        self._kept[key] = (topic.log.revision, rendered)
        self._bytes += size
        while self._bytes > MAX_BYTES:
            self._drop(next(iter(self._kept)))

    def _drop(self, key: Key) -> None:
        self._bytes -= len(self._kept.pop(key)[1].records)
