"""Finding the records of a request in one stream: by key, which is quick, and by search, which finds them all."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import perf_counter
from typing import Any

import msgspec

from strandline.faces.streams.covering import covered
from strandline.faces.streams.stream import Stream
from strandline.query.binding import bind_search
from strandline.query.coverage import Coverage
from strandline.query.language import Compare, Node, Or
from strandline.query.requests import MAX_SIZE, SearchRequest
from strandline.query.searcher import Searcher
from strandline.query.sorting import OFFSET, SortKey, SortValues

Document = dict[str, Any]

#: Records that are read at a time.
PAGE = 1000

_decode = msgspec.json.Decoder(dict[str, Any]).decode


class Found:
    """Records by seq, up to a limit."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.truncated = False
        self.records: dict[int, Document] = {}

    def add(self, seq: int, document: Document) -> bool:
        """False if there is no room for it."""
        if seq not in self.records and len(self.records) >= self.limit:
            self.truncated = True
            return False
        self.records[seq] = document
        return True

    def in_order(self, time: Callable[[Document], int | None]) -> list[tuple[int, Document]]:
        return sorted(self.records.items(), key=lambda found: (time(found[1]) or 0, found[0]))


class Shelf:
    """One of the streams, for one question. ``deadline`` is a time of ``perf_counter``; records without all of
    ``fields`` are none of the profile's, and passed over. They are taken as they are stored: a lens of the stream does
    not change what the profile knows of them.

    Made on the loop, used in a thread.
    """

    def __init__(self, stream: Stream, fields: Iterable[str], searcher: Searcher, deadline: float) -> None:
        self._fields = frozenset(fields)
        self._name = stream.name
        self._log = stream.log
        self._registry = stream.registry
        self._searcher = searcher
        self._deadline = deadline
        self._coverage: Coverage | None = None
        #: What was looked up without a search: nothing can have been overlooked.
        self._by_key_alone = False
        self._timed_out = False
        self.warnings: list[str] = []

    def find(self, found: Found, field: str, value: str) -> None:
        """Add the records whose field has the value."""
        routing_key = self._registry.routing_key
        keyed = routing_key is not None and routing_key.pointer == f"/{field}"
        if keyed or field != "spanId":
            self._by_key(found, field, value)
        if keyed:
            self._by_key_alone = True
        else:
            self._by_search(found, field, value)

    def _by_key(self, found: Found, field: str, value: str) -> None:
        """Records have the id as their key, unless whoever appended them gave them another."""
        after = 0
        while True:
            page = self._log.read(after, PAGE, key=value)
            for seq, row in zip(page.seqs, page.data, strict=True):
                document = _decode(row)
                if document.get(field) == value and document.keys() >= self._fields and not found.add(seq, document):
                    return
            after = page.next_after
            if page.caught_up:
                return
            if perf_counter() > self._deadline:
                self._give_up()
                return

    def _by_search(self, found: Found, field: str, value: str) -> None:
        config = self._registry.search
        searched = None if config is None else config.fields.get(field)
        if config is None or searched is None or not searched.exact:
            self.warnings.append(f"{self._name} cannot be searched by {field}: only records with that key were found")
            return
        values = dict.fromkeys((value, value.lower()))
        compared: list[Node] = [Compare(field, "=", each, True) for each in values]
        query = bind_search(compared[0] if len(compared) == 1 else Or(tuple(compared)), config)
        sort = (SortKey(OFFSET, False),)
        after: SortValues | None = None
        while True:
            request = SearchRequest(query=query, size=MAX_SIZE, sort=sort, after=after, timeout_ms=0)
            result = self._searcher.search(self._log, config, request, self._registry.versions, _stored, self._deadline)
            self._coverage = result.coverage
            if result.coverage.timed_out:
                self._give_up()
            for hit in result.hits:
                if hit.source.keys() >= self._fields and not found.add(hit.seq, hit.source):
                    return
            after = result.next_after
            if after is None or result.coverage.timed_out:
                return

    def _give_up(self) -> None:
        if not self._timed_out:
            self._timed_out = True
            self.warnings.append(f"the time was up before all of {self._name} was looked at")

    def coverage(self, found: Found) -> Document:
        """How the records were found, and whether there can be others."""
        complete = not found.truncated and not self._timed_out
        if self._coverage is None:
            return {"stream": self._name, "found": len(found.records), "complete": complete and self._by_key_alone}
        return {
            "stream": self._name,
            "found": len(found.records),
            **covered(self._coverage, self._log),
            "complete": complete and self._coverage.complete,
        }


def _stored(seq: int, data: bytes) -> Document:
    return _decode(data)
