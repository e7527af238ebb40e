"""The index of a log for one search configuration: its records as chunks of columns, in memory, up to some seq.

The index is built on first use, and each request extends it to the head of the log. The work of a search that timed out
is kept for the next one. A chunk is joined with the previous chunk while that one is at most twice as large, so there
are few chunks, and no record is copied often.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from time import perf_counter
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from strandline.engine import Log
from strandline.engine.reads.status import live_ranges_of
from strandline.query.chunk import Chunk, Ranges, join_chunks, live_part
from strandline.query.config import Binding, Field, SearchConfig
from strandline.query.extraction import Extractor

#: The number of records that are read and indexed at a time. The deadline is checked in between.
BATCH_ROWS = 16_384
BATCH_BYTES = 16 << 20
#: Chunks are not joined beyond this size, because a search checks the deadline between two chunks.
MAX_CHUNK_ROWS = 131_072

#: The first seq of each schema version, ascending, as (seq, version).
Versions = Sequence[tuple[int, int]]


class IndexPlan(Struct, frozen=True):
    """What is indexed. Search configurations with equal plans share an index."""

    fields: tuple[Field, ...]
    histograms: tuple[str, ...]


def plan_of(config: SearchConfig) -> IndexPlan:
    """Return the plan: all fields, and the parts of the summaries that rollups sum up, each as a column named by its
    pointer."""
    parts: dict[str, None] = {}
    histograms: dict[str, None] = {}
    for rollup in config.rollups.values():
        for measure in rollup.measures.values():
            if measure.pointers is not None:
                parts.update(dict.fromkeys(measure.pointers[:4]))
                histograms.update(dict.fromkeys(measure.pointers[4:]))
    fields = [config.fields[name] for name in sorted(config.fields)]
    fields += [Field(part_name(pointer), "float", (Binding(0, pointer),)) for pointer in sorted(parts)]
    return IndexPlan(tuple(fields), tuple(sorted(histograms)))


def part_name(pointer: str) -> str:
    """Return the column name for a part of a summary. No field has such a name."""
    return f"={pointer}"


class Progress(NamedTuple):
    """The work that was needed to update an index."""

    records: int
    size: int
    seconds: float


class Cover(NamedTuple):
    """The records available for an answer: those after ``after`` up to ``through``, except for those in ``gaps``
    (ascending, inclusive). The chunks are in the order of the log."""

    chunks: tuple[Chunk, ...]
    after: int
    through: int
    gaps: tuple[tuple[int, int], ...] = ()

    @property
    def first_missing(self) -> int:
        """The first seq that is not covered."""
        if self.after:
            return 1
        return self.gaps[0][0] if self.gaps else self.through + 1


class Index:
    """The records of a log after the seq ``begin``, up to ``until`` or without an end.

    Thread-safe: one thread at a time extends it, and all threads see immutable chunks.
    """

    def __init__(self, log: Log, plan: IndexPlan, begin: int = 0, until: int | None = None) -> None:
        self.log = log
        self.begin = begin
        self.until = until
        self._extractor = Extractor(plan.fields, plan.histograms)
        self._extending = threading.Lock()
        self._cover = self._nothing()
        self._revision, self._rewrites, _ = live_ranges_of(log)
        self._versions: Versions = ()

    @property
    def nbytes(self) -> int:
        return sum(chunk.nbytes for chunk in self._cover.chunks)

    @property
    def through(self) -> int:
        """The last seq that is indexed."""
        return self._cover.through

    def cover(self, versions: Versions, head: int, deadline: float, batch: int | None = None) -> tuple[Cover, Progress]:
        """Extend the index to ``head``, or until ``deadline`` (of ``perf_counter``) has passed. The deadline is checked
        after every ``batch`` records (default: ``BATCH_ROWS``). An empty index is extended by one batch in any case, so
        that a late answer has records."""
        begun = perf_counter()
        records = size = 0
        if self.until is not None:
            head = min(head, self.until)
        if self._extending.acquire(timeout=max(deadline - begun, 0)):
            try:
                self._forget_what_changed(versions)
                is_due = not self._cover.chunks
                while self._cover.through < head and (perf_counter() < deadline or is_due):
                    more, more_bytes = self._extend(versions, batch or BATCH_ROWS)
                    records, size = records + more, size + more_bytes
                    is_due = False
                return self._cover, Progress(records, size, perf_counter() - begun)
            finally:
                self._extending.release()
        return self.held(), Progress(0, 0, perf_counter() - begun)

    def held(self) -> Cover:
        """Return the valid part of the current index, without removed records. Does not extend it."""
        # In this order: while the number of rewrites is current, so is a cover that is read later.
        rewrites, revision, cover = self._rewrites, self._revision, self._cover
        live = live_ranges_of(self.log)
        if live.rewrites != rewrites:
            return self._nothing()
        return cover if live.revision == revision else _visible(cover, live.ranges)

    def begin_behind(self, seq: int) -> None:
        """Drop records up to ``seq`` and start after it from now on. If the index is being extended, this is left to
        the next call."""
        if self._extending.acquire(blocking=False):
            try:
                self.begin = max(self.begin, seq)
                chunks = [each for chunk in self._cover.chunks if (each := behind(chunk, seq)) is not None]
                after, through = max(self._cover.after, seq), max(self._cover.through, seq)
                self._cover = Cover(tuple(chunks), after, through)
            finally:
                self._extending.release()

    def _nothing(self) -> Cover:
        return Cover((), self.begin, self.begin)

    def shrink(self, budget: int) -> None:
        """Drop the oldest records until the index fits the budget."""
        with self._extending:
            chunks, after = self._cover.chunks, self._cover.after
            while len(chunks) > 1 and sum(chunk.nbytes for chunk in chunks) > budget:
                after, chunks = chunks[0].last, chunks[1:]
            self._cover = Cover(chunks, after, self._cover.through)

    def _forget_what_changed(self, versions: Versions) -> None:
        """Drop records that are no longer visible. Start again if records were restored or amended, or if the schema
        version of indexed records has changed."""
        through = self._cover.through
        if [each for each in versions if each[0] <= through] != [each for each in self._versions if each[0] <= through]:
            self._cover = self._nothing()
        self._versions = versions
        if self.log.revision == self._revision:
            return
        live = live_ranges_of(self.log)
        if live.rewrites != self._rewrites:
            self._cover = self._nothing()
        else:
            self._cover = _visible(self._cover, live.ranges)
        self._revision, self._rewrites = live.revision, live.rewrites

    def _extend(self, versions: Versions, batch: int) -> tuple[int, int]:
        chunks, after, through, _ = self._cover
        seqs: list[int] = []
        data: list[bytes] = []
        size = 0
        while len(seqs) < batch and size < BATCH_BYTES:
            page = self.log.read(through, batch - len(seqs), max_bytes=BATCH_BYTES)
            seqs += page.seqs
            data += page.data
            size += sum(map(len, page.data))
            through = page.next_after
            if page.caught_up or (self.until is not None and through >= self.until):
                break
        if self.until is not None and through > self.until:
            through = self.until
            kept = bisect_right(seqs, through)
            seqs, data = seqs[:kept], data[:kept]
        for chunk in _extracted(self._extractor, seqs, data, versions):
            chunks = _joined((*chunks, chunk))
        self._cover = Cover(chunks, after, through)
        return len(seqs), size


def chunks_of(plan: IndexPlan, seqs: list[int], data: list[bytes], versions: Versions) -> Iterator[Chunk]:
    """Yield the chunks of some records, in their order."""
    return _extracted(Extractor(plan.fields, plan.histograms), seqs, data, versions)


def _extracted(extractor: Extractor, seqs: list[int], data: list[bytes], versions: Versions) -> Iterator[Chunk]:
    for start, end, version in stretches_of(seqs, versions):
        rows, columns = extractor.extract(data[start:end], version)
        if rows:
            yield Chunk(np.array(seqs[start:end], np.int64)[rows], columns)


def stretches_of(seqs: list[int], versions: Versions) -> Iterator[tuple[int, int, int]]:
    """Yield the start, end and version of each range of records with the same schema version."""
    start = 0
    firsts = [first for first, _ in versions]
    while start < len(seqs):
        at = bisect_right(firsts, seqs[start])
        version = versions[at - 1][1] if at else 0
        end = bisect_right(seqs, firsts[at] - 1, start) if at < len(firsts) else len(seqs)
        yield start, end, version
        start = end


def _visible(cover: Cover, live: Ranges) -> Cover:
    """Return a cover without the records outside of the live ranges."""
    left = [live_part(chunk, live) for chunk in cover.chunks]
    return cover._replace(chunks=tuple(chunk for chunk in left if chunk is not None))


def behind(chunk: Chunk, seq: int) -> Chunk | None:
    """Return the records of a chunk after ``seq``; None if there are none."""
    if chunk.first > seq:
        return chunk
    return chunk.only(chunk.seqs > seq) if chunk.last > seq else None


def _joined(chunks: tuple[Chunk, ...]) -> tuple[Chunk, ...]:
    """Join the last chunks while it is worthwhile, all in one step."""
    first, rows = len(chunks) - 1, len(chunks[-1])
    while first and len(chunks[first - 1]) <= 2 * rows and len(chunks[first - 1]) + rows <= MAX_CHUNK_ROWS:
        first -= 1
        rows += len(chunks[first])
    if first == len(chunks) - 1:
        return chunks
    return (*chunks[:first], join_chunks(chunks[first:]))
