"""Search: run a query over all records of a log and return the best hits in order, with the coverage of the answer.

Scores are BM25 for texts, multiplied by the boost of the field. A keyword that matches a bare term scores its boost.
AND and OR add the scores of their parts; a bare term over several fields scores as its best field; terms under NOT do
not score.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from time import perf_counter
from typing import Any, Literal

import msgspec
from msgspec import Struct

from strandline.engine import Log
from strandline.engine.errors import DamagedFile
from strandline.engine.reads.single_records import payloads_at
from strandline.query.bound import AndB, AnyOfB, Bound, EqualB, HasB, NotB, OrB, PrefixB, RangeB, TextB
from strandline.query.chunk import Chunk
from strandline.query.columns import NumberColumn
from strandline.query.config import SearchConfig
from strandline.query.evaluator import evaluate
from strandline.query.index import Cover, Versions
from strandline.query.order import OFFSET, SCORE, Hit, SortKey, SortValues, best_hits, in_order
from strandline.query.providers import Provider
from strandline.query.relevance import Relevance, is_scored, mark_of
from strandline.query.requests import SearchRequest
from strandline.query.values import raw_values_of

#: The parts of an index, in the words of the protocol: exact values, ordered values, words, rollups, metrics.
Family = Literal["exact", "col", "fts", "agg", "mblk"]


class Coverage(Struct, frozen=True, kw_only=True):
    """Which records an answer covers. Records are given by seqs, times in milliseconds.

    Index files cover a part of the history, and the index in memory covers everything else, sealed or not.
    ``index_files`` and ``chunks`` are the parts of each that were examined. ``caught_up`` is the number of records that
    were indexed for this request.
    """

    #: The head when the answer was made. The answer covers the records after ``after`` up to ``through``, except those
    #: in ``gaps``.
    head: int
    after: int
    through: int
    gaps: tuple[tuple[int, int], ...] = ()
    #: The latest primary timestamp of the covered records.
    primary_timestamp: int | None
    #: When the first record that is not covered was appended.
    omitted_ts: int | None
    #: Whether the time limit was reached before everything was examined.
    timed_out: bool = False
    index_files: int = 0
    chunks: int = 0
    #: Whether stored sums of rollups were used.
    used_rollups: bool = False
    caught_up: int = 0
    #: Which parts of the index were used.
    families: tuple[Family, ...] = ()

    @property
    def missing(self) -> int:
        """The maximum number of records that are not covered."""
        return self.missing_up_to(self.head)

    def missing_up_to(self, seq: int) -> int:
        """Like ``missing``, for the records up to ``seq``."""
        between = sum(max(min(last, seq) - first + 1, 0) for first, last in self.gaps)
        return min(self.after, seq) + between + max(min(self.head, seq) - self.through, 0)

    @property
    def behind(self) -> bool:
        """Whether records were omitted because of the time limit."""
        return self.through < self.head or bool(self.gaps)

    @property
    def mode(self) -> Literal["complete", "published"]:
        return "published" if self.missing else "complete"

    @property
    def complete(self) -> bool:
        return not self.missing and not self.timed_out


def families_of(bound: Bound) -> Iterator[Family]:
    """Yield the parts of an index that a query uses: "exact" values, ordered or present values ("col"), or words
    ("fts")."""
    match bound:
        case AndB(children) | OrB(children) | AnyOfB(children):
            for child in children:
                yield from families_of(child)
        case NotB(child):
            yield from families_of(child)
        case EqualB(field=field):
            yield "exact" if field.exact else "col"
        case TextB() | PrefixB():
            yield "fts"
        case HasB(field=field):
            yield "fts" if field.kind == "text" else "exact" if field.exact else "col"
        case RangeB():
            yield "col"


#: How long fetching the hits may take beyond the time limit of a search.
GRACE_SECONDS = 1.0

#: Maps a seq and its stored payload to the record as it is shown.
Promote = Callable[[int, bytes], Any]


class FoundRecord(Struct, frozen=True):
    """A hit, with the values of each field as they are in the record, and the record itself."""

    seq: int
    score: float
    sort: SortValues
    fields: dict[str, Any]
    source: Any


class Timing(Struct):
    """Durations in seconds, and the amounts of data processed."""

    catching_up: float = 0.0
    statistics: float = 0.0
    matching: float = 0.0
    sorting: float = 0.0
    decoding: float = 0.0
    #: The number of matching records among those examined. Records that cannot be hits are not examined.
    candidates: int = 0
    #: The highest number of hits held at a time.
    held: int = 0
    #: The payload bytes read to show the hits.
    fetched: int = 0


class SearchResult(Struct, frozen=True):
    hits: list[FoundRecord]
    coverage: Coverage
    timing: Timing
    #: The sort values to continue after if there may be further hits; otherwise None.
    next_after: SortValues | None

    @property
    def relation(self) -> Literal["eq", "gte"]:
        """ "eq" if there are certainly no hits after the returned ones."""
        return "eq" if self.coverage.complete and self.next_after is None else "gte"


class Search:
    """A search in progress."""

    def __init__(
        self, log: Log, config: SearchConfig, request: SearchRequest, versions: Versions, deadline: float
    ) -> None:
        self._log = log
        self._config = config
        self._request = request
        self._versions = versions
        self._deadline = deadline
        self._timed_out = False
        self._index_files = 0
        self._chunks = 0
        self._timing = Timing()

    def run(self, provider: Provider, promote: Promote) -> SearchResult:
        head = self._log.head
        cover, progress = provider.cover(self._log, self._config, self._versions, head, self._deadline)
        self._timing.catching_up = progress.seconds
        head = max(head, cover.through)
        # What waits for an index file is missing without a time-out.
        self._timed_out = (cover.through < head or bool(cover.gaps)) and perf_counter() >= self._deadline
        ranked = self.rank(cover, head)
        hits = self._show(ranked, promote)
        request = self._request
        looked = self._index_files + self._chunks
        families = {*families_of(request.query), *_sorting_families(request.sort)} if looked else set()
        coverage = Coverage(
            head=head,
            after=cover.after,
            through=cover.through,
            gaps=cover.gaps,
            primary_timestamp=latest(cover.chunks, self._config.primary_timestamp),
            omitted_ts=first_omitted(self._log, cover, head),
            timed_out=self._timed_out,
            index_files=self._index_files,
            chunks=self._chunks,
            caught_up=progress.records,
            families=tuple(sorted(families)),
        )
        full = len(ranked) == request.size
        return SearchResult(hits, coverage, self._timing, ranked[-1].sort if full else None)

    def rank(self, cover: Cover, head: int) -> list[Hit]:
        """Return the best hits among the records of a cover, without reading them."""
        request, timing = self._request, self._timing
        relevance = self._weigh(cover.chunks, head) if is_scored(request.query) else None
        hits: list[Hit] = []
        for chunk in self._in_turn(cover.chunks):
            # A late answer has hits if there are some, unless even looking for the first one takes too long.
            if self._is_late() and (hits or perf_counter() >= self._deadline + GRACE_SECONDS):
                break
            if len(hits) == request.size and _comes_after(chunk, hits[-1], request.sort[0]):
                continue
            if chunk.is_from_file:
                self._index_files += 1
            else:
                self._chunks += 1
            # Hits that come after the last hit of a full page are not on it.
            last = hits[-1].sort if len(hits) == request.size else None
            hits += self._best_of(chunk, relevance, last)
            timing.held = max(timing.held, len(hits))
            begun = perf_counter()
            hits = in_order(hits, request.sort)[: request.size]
            timing.sorting += perf_counter() - begun
        return hits

    def _best_of(self, chunk: Chunk, relevance: Relevance | None, last: SortValues | None) -> list[Hit]:
        """Return the best hits of a chunk that do not come after ``last``, unordered."""
        first, size = self._request.sort[0], self._request.size
        if relevance is None or first.name != SCORE or not first.descending:
            return self._above(None, chunk, relevance, last)
        if last is not None:
            return self._above(float(last[0]), chunk, relevance, last)
        for guess in relevance.guesses(self._request.query):
            hits = self._above(guess, chunk, relevance, last)
            if hits and len(hits) == size:
                # A full page: no record with a lower score than these hits is on it.
                least = min(hit.score for hit in hits)
                return hits if least >= guess else self._above(least, chunk, relevance, last)
        return self._above(None, chunk, relevance, last)

    def _above(
        self, least: float | None, chunk: Chunk, relevance: Relevance | None, last: SortValues | None
    ) -> list[Hit]:
        """Return the best hits among the records of a chunk that score at least ``least``, and maybe others."""
        request, timing = self._request, self._timing
        begun = perf_counter()
        matches = evaluate(request.query, chunk, relevance, least)
        matched = perf_counter()
        hits = best_hits(chunk, matches, request.sort, request.after, request.size, last)
        timing.candidates += len(matches.found)
        timing.matching += matched - begun
        timing.sorting += perf_counter() - matched
        return hits

    def _weigh(self, chunks: Sequence[Chunk], head: int) -> Relevance:
        begun = perf_counter()
        relevance, mark = Relevance(self._request.query), mark_of(head)
        for chunk in chunks:
            if self._is_late():
                break
            relevance.add(chunk, mark)
        self._timing.statistics = perf_counter() - begun
        return relevance

    def _in_turn(self, chunks: Sequence[Chunk]) -> Iterable[Chunk]:
        """Return the chunks that can have hits, those with the best hits first if that is known in advance."""
        first, after = self._request.sort[0], self._request.after
        if first.name != OFFSET:
            return chunks
        if first.descending:
            return [chunk for chunk in reversed(chunks) if after is None or chunk.first < after[0]]
        return [chunk for chunk in chunks if after is None or chunk.last > after[0]]

    def _show(self, ranked: list[Hit], promote: Promote) -> list[FoundRecord]:
        begun = perf_counter()
        shown: dict[int, FoundRecord] = {}
        hits = {hit.seq: hit for hit in ranked}
        # In the order of the log, so that nothing is read from the disk twice.
        for seq, payload in payloads_at(self._log, sorted(hits)):
            self._timing.fetched += len(payload)
            try:
                document = msgspec.json.decode(payload)
            except (msgspec.DecodeError, UnicodeError):
                continue  # amended since then
            fields, hit = self._fields(document, seq), hits[seq]
            shown[seq] = FoundRecord(seq, hit.score, hit.sort, fields, promote(seq, payload))
            # Show the found hits, unless the disk is so slow that it exceeds the grace period.
            if perf_counter() > self._deadline + GRACE_SECONDS and len(shown) < len(hits):
                self._timed_out = True
                break
        self._timing.decoding = perf_counter() - begun
        return [shown[hit.seq] for hit in ranked if hit.seq in shown]

    def _fields(self, document: object, seq: int) -> dict[str, Any]:
        version = version_at(self._versions, seq)
        fields: dict[str, Any] = {}
        for name, field in self._config.fields.items():
            values = raw_values_of(field, document, version)
            if values:
                fields[name] = values[0] if len(values) == 1 else values
        return fields

    def _is_late(self) -> bool:
        late = perf_counter() >= self._deadline
        self._timed_out = self._timed_out or late
        return late


def _comes_after(chunk: Chunk, hit: Hit, key: SortKey) -> bool:
    """Return whether all records of a chunk come after a hit, because of their position in the log."""
    if key.name != OFFSET:
        return False
    return chunk.last < hit.seq if key.descending else chunk.first > hit.seq


def version_at(versions: Versions, seq: int) -> int:
    """Return the schema version of a record."""
    return next((version for first, version in reversed(versions) if first <= seq), 0)


def latest(chunks: Sequence[Chunk], name: str | None) -> int | None:
    """Return the latest value of a date field."""
    if name is None:
        return None
    columns = [chunk.columns[name] for chunk in chunks]
    bounds = [column.bounds for column in columns if isinstance(column, NumberColumn)]
    return max((int(each[1]) for each in bounds if each is not None), default=None)


def first_omitted(log: Log, cover: Cover, head: int) -> int | None:
    """Return when the first record that is not covered was appended."""
    if cover.first_missing > head:
        return None
    try:
        page = log.read(cover.first_missing - 1, 1)
    except DamagedFile:  # which is reported where it is read
        return None
    return page.ts[0] if page.ts else None


def _sorting_families(keys: Sequence[SortKey]) -> set[Family]:
    return {"fts" if key.name == SCORE else "col" for key in keys if key.name != OFFSET}
