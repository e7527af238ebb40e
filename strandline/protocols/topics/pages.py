"""Pages of the history, cut from rendered spans, since many readers read the same records.

The seqs of a log are divided into spans of equal length. Appends do not change a span below the head, so a rendered
span is valid until records are removed, and every page that overlaps it uses a part of its bytes.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import NamedTuple

from strandline.engine import Page
from strandline.protocols.topics.records import plain_overhead, render_list, render_records, tombstone_json
from strandline.protocols.topics.topics import Topic

#: The number of seqs in a span.
SPAN = 256
#: A span with more data than this is not rendered as a whole, and smaller pages do not use spans.
MAX_SPAN_BYTES = 1 << 20
MIN_LIMIT = 64
#: The maximum bytes of all rendered spans.
MAX_BYTES = 32 << 20


class RenderedPage(NamedTuple):
    """A page as JSON. ``head`` is the end of the log when it was read."""

    records: bytes
    next_after: int
    head: int
    earliest: int
    tombstone: bytes = b"null"

    @classmethod
    def of(cls, page: Page, *, tags: bool, meta: bool) -> RenderedPage:
        tombstone = b"null" if page.tombstone is None else tombstone_json(page.tombstone)
        records = render_records(page, tags=tags, meta=meta)
        return cls(records, page.next_after, page.head, page.earliest, tombstone)


class _Span(NamedTuple):
    """The records of a span, as JSON with commas in between. ``sizes`` are the cumulated sizes of the rows, for the
    byte limit of a page. ``starts`` are the places of the rows in ``blob``. They are None if every row takes
    ``overhead`` bytes besides its size, with the comma: then the places follow from the sizes."""

    revision: int
    seqs: list[int]
    blob: bytes
    sizes: list[int]
    overhead: int
    starts: list[int] | None

    @classmethod
    def of(cls, revision: int, page: Page, *, tags: bool, meta: bool) -> _Span:
        weights = list(map(len, page.data))
        overhead = plain_overhead(page, tags=tags)
        if overhead is not None:
            blob = render_records(page, tags=tags, meta=meta)
            return cls(revision, page.seqs, blob, list(accumulate(weights, initial=0)), overhead + 1, None)
        rows = render_list(page, tags=tags, meta=meta)
        starts = list(accumulate([len(row) + 1 for row in rows], initial=0))
        weights = [size + len(extra or b"") for size, extra in zip(weights, page.metas, strict=True)]
        return cls(revision, page.seqs, b",".join(rows), list(accumulate(weights, initial=0)), 0, starts)

    def records(self, start: int, stop: int) -> bytes:
        """The rows from ``start`` to before ``stop``, at least one."""
        return self.blob[self._place(start) : self._place(stop) - 1]

    def _place(self, row: int) -> int:
        return self.sizes[row] + row * self.overhead if self.starts is None else self.starts[row]

    def fitting(self, start: int, count: int, max_bytes: int) -> int:
        """The first row after those that fit."""
        stop = min(len(self.seqs), start + count, bisect_right(self.sizes, self.sizes[start] + max_bytes) - 1)
        return max(start, stop)


_Key = tuple[int, int, bool, bool]


class TopicPages:
    """Used on the event loop only."""

    def __init__(self) -> None:
        self._spans: dict[_Key, _Span] = {}
        self._bytes = 0

    def get(
        self, topic: Topic, after: int, limit: int, max_bytes: int, *, tags: bool, meta: bool
    ) -> RenderedPage | None:
        """The page, if all of it is in memory and nothing in it was lost; None: read it without spans."""
        # Spans do not help if less than a whole span is left, or before the first record.
        if limit < MIN_LIMIT or (after // SPAN + 1) * SPAN > topic.log.head:
            return None
        state = topic.log.state()
        if after + 1 < state.earliest:
            return None
        head = state.head
        at = after
        parts: list[bytes] = []
        while limit and (at // SPAN + 1) * SPAN <= head:
            span = self._span(topic, at // SPAN, tags, meta)
            if span is None:
                return None
            start = bisect_right(span.seqs, at)
            stop = span.fitting(start, limit, max_bytes)
            if stop == start < len(span.seqs) and not parts:
                stop += 1
            if stop > start:
                parts.append(span.records(start, stop))
                limit -= stop - start
                max_bytes -= span.sizes[stop] - span.sizes[start]
            if stop < len(span.seqs):
                return RenderedPage(b",".join(parts), span.seqs[stop - 1] if stop > start else at, head, state.earliest)
            at = (at // SPAN + 1) * SPAN
        if limit and at < head:
            return self._with_rest(topic, parts, at, limit, max_bytes, tags, meta)
        return RenderedPage(b",".join(parts), at, head, state.earliest)

    def _with_rest(
        self, topic: Topic, parts: list[bytes], at: int, limit: int, max_bytes: int, tags: bool, meta: bool
    ) -> RenderedPage | None:
        """Add the records after the last whole span, which change with every append."""
        page = topic.log.read_resident(at, limit, max_bytes=max(1, max_bytes))
        if page is None or page.tombstone is not None:
            return None
        if page.data and _weight(page) > max_bytes and parts:
            return RenderedPage(b",".join(parts), at, page.head, page.earliest)
        if page.seqs:
            parts.append(render_records(page, tags=tags, meta=meta))
        return RenderedPage(b",".join(parts), page.next_after, page.head, page.earliest)

    def _span(self, topic: Topic, number: int, tags: bool, meta: bool) -> _Span | None:
        log = topic.log
        key = (log.epoch, number, tags, meta)
        span = self._spans.get(key)
        if span is not None:
            if span.revision == log.revision:
                return span
            self._drop(key)
        page = log.read_resident(number * SPAN, SPAN, max_bytes=MAX_SPAN_BYTES)
        if page is None or page.tombstone is not None or page.next_after < (number + 1) * SPAN:
            return None  # not in memory, incomplete because records were lost, or too large
        behind = bisect_right(page.seqs, (number + 1) * SPAN)
        for column in (page.seqs, page.ts, page.data, page.keys, page.nodes, page.metas):
            del column[behind:]
        span = self._spans[key] = _Span.of(log.revision, page, tags=tags, meta=meta)
        self._bytes += len(span.blob)
        while self._bytes > MAX_BYTES and len(self._spans) > 1:
            self._drop(next(iter(self._spans)))
        return span

    def _drop(self, key: _Key) -> None:
        self._bytes -= len(self._spans.pop(key).blob)


def _weight(page: Page) -> int:
    return len(page.data[0]) + len(page.metas[0] or b"")
