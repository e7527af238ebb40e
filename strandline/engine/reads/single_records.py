"""Read single records of a log by their seqs.

:func:`payloads_at` reads records scattered over a log. It decompresses only the payloads of a sealed block, once for
all records in the block, and does not use the block cache. :func:`records_at` reads whole records in pages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from strandline.engine.errors import MissingFile
from strandline.engine.log import Log
from strandline.engine.operations.journaled import let_all_expire
from strandline.engine.record import Record
from strandline.engine.segments.store import SegmentStore, UnknownSegment
from strandline.engine.state.forks import chain, layers
from strandline.engine.state.parts import Run, Tail


class _Location(NamedTuple):
    """The location of a record: in memory, or in a run."""

    seq: int
    payload: bytes | None
    run: Run | None


def payloads_at(log: Log, seqs: Sequence[int]) -> Iterator[tuple[int, bytes]]:
    """Yield the payloads of the visible records with these ascending seqs. Missing ones are omitted. Waits for the disk
    between records."""
    waiting = list(seqs)
    while waiting:
        with log.engine.lock:
            log.book.check_there()
            let_all_expire(log.engine, log.book)
            places = _locate(log, waiting)
        waiting = []
        for run, group in groupby(places, key=lambda place: place.run):
            together = list(group)
            if run is None:
                yield from ((place.seq, place.payload) for place in together if place.payload is not None)
                continue
            done = together[0].seq - 1
            try:
                for seq, payload in _of_run(log.engine.store, run, [place.seq for place in together]):
                    yield seq, payload
                    done = seq
            except (UnknownSegment, MissingFile):
                # The segment was merged or dropped in the meantime, and the log's records are elsewhere or gone.
                if any(other.segment == run.segment for book in chain(log.book) for other in book.runs):
                    raise
                waiting = [seq for seq in seqs if seq > done]
                break


def _locate(log: Log, seqs: Sequence[int]) -> list[_Location]:
    """Return the locations of the visible records. The engine's lock is held."""
    found: list[_Location] = []
    at = 0
    for book, first, last in layers(log.book):
        first = max(first, book.earliest)
        for part in book.parts():
            low, high = max(first, part.first), min(last, part.last)
            while at < len(seqs) and seqs[at] < low:
                at += 1
            while at < len(seqs) and seqs[at] <= high:
                seq, overlay = seqs[at], part.overlay
                at += 1
                if overlay is not None and (seq in overlay.dead or seq in overlay.hidden):
                    continue
                amended = None if overlay is None else overlay.amended.get(seq)
                if amended is not None:
                    found.append(_Location(seq, amended, None))
                elif isinstance(part, Run):
                    found.append(_Location(seq, None, part))
                else:
                    assert isinstance(part, Tail)
                    place = part.find(seq)
                    if place is not None:
                        found.append(_Location(seq, place[0].payload(place[1]), None))
    return found


def _of_run(store: SegmentStore, run: Run, seqs: list[int]) -> Iterator[tuple[int, bytes]]:
    segment = store.segment(run.segment)
    rows = [(segment.row_of(run.row, run.rows, run.first, seq), seq) for seq in seqs]
    inside = [(row, seq) for row, seq in rows if row < run.row + run.rows]
    for index, group in groupby(inside, key=lambda place: segment.block_of(place[0])):
        start = segment.blocks[index].row
        block = store.cached(run.segment, index)
        if block is not None:
            yield from ((seq, block.payload(row - start)) for row, seq in group if block.seq(row - start) == seq)
            continue
        # If no seq is missing, the row follows from the seq.
        is_dense = run.last - run.first + 1 == run.rows
        batch = store.batch(run.segment, index, ("data",) if is_dense else ("seq", "data"))
        for row, seq in group:
            if is_dense or batch.column("seq")[row - start].as_py() == seq:
                yield seq, batch.column("data")[row - start].as_py()


#: If at most this many records lie between two requested ones, they are read too, which is cheaper than another read.
READ_ALONG = 16
#: Records per read.
READ_RECORDS = 1024


def records_at(log: Log, seqs: Sequence[int]) -> Iterator[Record]:
    """Yield the existing records with these ascending seqs, in order."""
    start = 0
    while start < len(seqs):
        end = start + 1
        while end < len(seqs) and seqs[end] - seqs[end - 1] <= READ_ALONG and end - start < READ_RECORDS:
            end += 1
        yield from _between(log, seqs[start:end])
        start = end


def _between(log: Log, seqs: Sequence[int]) -> Iterator[Record]:
    wanted, last = set(seqs), seqs[-1]
    after = seqs[0] - 1
    while after < last:
        page = log.read(after, min(last - after, READ_RECORDS))
        for record in page:
            if record.seq in wanted:
                yield record
        if page.caught_up:
            return
        after = page.next_after
