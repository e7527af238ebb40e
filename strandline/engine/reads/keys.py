"""Find records by key, count them, and estimate a delete by key. Only the key indexes are read."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from heapq import merge, nsmallest
from itertools import islice
from operator import itemgetter
from time import perf_counter
from typing import NamedTuple

from strandline.engine.errors import BadRequest
from strandline.engine.log import Log
from strandline.engine.reads.latest import within as are_within
from strandline.engine.reads.view import LogView, SealedView, with_view
from strandline.engine.segments.segment import Segment
from strandline.engine.state.parts import Piece, Run

#: Higher than any seq.
_LAST = 1 << 63


class KeyCount(NamedTuple):
    """The number of visible records with the key, and the seq of the last of them."""

    records: int
    last: int


#: The count of a key without a visible record.
NO_RECORDS = KeyCount(0, 0)


def seqs_with(log: Log, *, key: str | None = None, prefix: str | None = None) -> list[int]:
    """Return the ascending seqs of visible records with this key, a key with this prefix, or both. Waits for the
    disk."""
    return with_view(log, lambda seen: _seqs(log, seen, key, prefix))


def count_of(log: Log, key: str) -> KeyCount:
    """Count the visible records with this key. Waits for the disk."""
    seqs = seqs_with(log, key=key)
    return KeyCount(len(seqs), seqs[-1]) if seqs else NO_RECORDS


def _seqs(log: Log, seen: LogView, key: str | None, prefix: str | None) -> list[int]:
    found: list[int] = []
    for part in seen.parts:
        found += seqs_of_part(log, part, key, prefix)
    return found


def seqs_of_part(log: Log, part: SealedView | Piece, key: str | None, prefix: str | None) -> list[int]:
    """Like ``seqs_with``, for one part of a log."""
    return _seqs_of_run(log, part, key, prefix) if isinstance(part, SealedView) else _seqs_of_piece(part, key, prefix)


def _seqs_of_run(log: Log, part: SealedView, key: str | None, prefix: str | None) -> list[int]:
    run, segments = part.run, log.engine.store
    if key is not None:
        seqs = run.seqs_with_key(key, False, segments) if prefix is None or key.startswith(prefix) else []
    else:
        seqs = run.seqs_with_key(prefix or "", True, segments)
    return seqs if part.visible is None else within(seqs, part.visible)


def _seqs_of_piece(piece: Piece, key: str | None, prefix: str | None) -> list[int]:
    block, start, end = piece
    if block.keys is None:
        return []
    return [
        block.seq(row)
        for row, held in enumerate(block.keys[start:end], start)
        if held is not None and (key is None or held == key) and (prefix is None or held.startswith(prefix))
    ]


def within(seqs: Iterable[int], ranges: Sequence[tuple[int, int]]) -> list[int]:
    """Return the seqs that are in one of the ascending ranges."""
    found = []
    for seq in seqs:
        at = bisect_right(ranges, (seq, _LAST)) - 1
        if at >= 0 and seq <= ranges[at][1]:
            found.append(seq)
    return found


class KeyPage(NamedTuple):
    """A page of keys in the order of code points. The log has keys in ``segments`` segments, of which ``loaded`` had to
    be loaded, and ``tail_records`` records of the tail were examined. The other fields are the durations of each part,
    in seconds."""

    keys: list[str]
    has_more: bool
    segments: int
    loaded: int
    tail_records: int
    opening: float
    enumerating: float
    scanning: float
    merging: float


def keys_of(log: Log, after: str | None, limit: int) -> KeyPage:
    """Return the first ``limit`` keys after ``after`` that a visible record has. Waits for the disk."""
    return with_view(log, lambda seen: _page(log, seen.sealed, seen.tail, after, limit))


def key_counts_of(log: Log, after: str | None, limit: int) -> list[tuple[str, KeyCount]]:
    """Return the first ``limit`` keys after ``after`` that a visible record has, with their counts. Waits for the
    disk. Reads the part of the key index that holds these keys, and no payloads."""
    return with_view(log, lambda seen: _counted_page(log, seen, after, limit))


def _counted_page(log: Log, seen: LogView, after: str | None, limit: int) -> list[tuple[str, KeyCount]]:
    ways: list[list[tuple[str, KeyCount]]] = []
    for part in seen.sealed:
        if _may_have(part.run, after):
            counted = _key_counts(part, log.engine.store.segment(part.run.segment), after)
            ways.append(list(islice(counted, limit)))
    names = _tail_keys(seen.tail, after, limit)
    ways.append(list(_tail_counts(seen.tail, names).items()))
    # Each way has all of its keys up to the last key of the page.
    found: dict[str, KeyCount] = {}
    for key, count in merge(*ways, key=itemgetter(0)):
        known = found.get(key)
        if known is not None:
            found[key] = KeyCount(known.records + count.records, max(known.last, count.last))
        elif len(found) < limit:
            found[key] = count
        else:
            break
    return list(found.items())


def _key_counts(part: SealedView, segment: Segment, after: str | None) -> Iterator[tuple[str, KeyCount]]:
    for rows in segment.keys(part.run.row, part.run.rows, after):
        if part.visible is None:
            yield rows.key, KeyCount(rows.records, rows.last())
            continue
        seqs = rows.seqs()
        seqs = seqs[are_within(seqs, part.visible)]
        if len(seqs):
            yield rows.key, KeyCount(len(seqs), int(seqs[-1]))


def _tail_counts(pieces: list[Piece], keys: Sequence[str]) -> dict[str, KeyCount]:
    """Return the counts of these keys, in their order."""
    counts = dict.fromkeys(keys, NO_RECORDS)
    for block, start, end in pieces:
        for row, key in enumerate(() if block.keys is None else block.keys[start:end], start):
            if key in counts:
                assert key is not None
                counts[key] = KeyCount(counts[key].records + 1, block.seq(row))
    return counts


def _page(log: Log, sealed: list[SealedView], tail: list[Piece], after: str | None, limit: int) -> KeyPage:
    begun = perf_counter()
    runs = [(part, log.engine.store.segment(part.run.segment)) for part in sealed if _may_have(part.run, after)]
    opened = perf_counter()
    ways = [list(islice(_keys(part, segment, after), limit + 1)) for part, segment in runs]
    enumerated = perf_counter()
    ways.append(_tail_keys(tail, after, limit + 1))
    scanned = perf_counter()
    keys = list(islice(_distinct(merge(*ways)), limit + 1))
    return KeyPage(
        keys[:limit],
        len(keys) > limit,
        len(sealed),
        len(runs),
        sum(end - start for _, start, end in tail),
        opened - begun,
        enumerated - opened,
        scanned - enumerated,
        perf_counter() - scanned,
    )


def _may_have(run: Run, after: str | None) -> bool:
    return after is None or (run.key_last is not None and run.key_last > after)


def _keys(part: SealedView, segment: Segment, after: str | None) -> Iterator[str]:
    run = part.run
    for rows in segment.keys(run.row, run.rows, after):
        if part.visible is None or are_within(rows.seqs(), part.visible).any():
            yield rows.key


def _tail_keys(pieces: list[Piece], after: str | None, limit: int) -> list[str]:
    keys = set[str | None]()
    for block, start, end in pieces:
        if block.keys is not None:
            keys.update(block.keys[start:end])
    return nsmallest(limit, (key for key in keys if key is not None and (after is None or key > after)))


def _distinct(keys: Iterator[str]) -> Iterator[str]:
    last: str | None = None
    for key in keys:
        if key != last:
            yield key
            last = key


#: The maximum number of seqs in an estimate.
NAMED = 5


class DeleteEstimate(NamedTuple):
    """The number and bytes of the log's own visible records that a delete would remove, the seqs of the first ones, and
    the last seq (0: none)."""

    records: int
    size: int
    first: list[int]
    last: int


NOTHING = DeleteEstimate(0, 0, [], 0)


def estimate_delete(
    log: Log, *, before: int | None = None, key: str | None = None, prefix: str | None = None
) -> DeleteEstimate:
    """Estimate what :meth:`Log.delete` would remove with these conditions. At least one is required. Waits for the
    disk."""
    if key is not None or prefix is not None:
        return with_view(log, lambda seen: _weigh_keyed(log, seen, before, key, prefix), own=True)
    if before is None:
        raise BadRequest("no records selected; pass before, key or prefix")
    return with_view(log, lambda _: _weigh_before(log, before), own=True)


def _weigh_keyed(log: Log, seen: LogView, before: int | None, key: str | None, prefix: str | None) -> DeleteEstimate:
    count = size = last = 0
    named: list[int] = []
    for part in seen.parts:
        seqs = seqs_of_part(log, part, key, prefix)
        if before is not None:
            del seqs[bisect_left(seqs, before) :]
        if not seqs:
            continue
        count, last = count + len(seqs), seqs[-1]
        named += seqs[: NAMED - len(named)]
        if isinstance(part, SealedView):
            size += part.run.weigh(((seq, seq) for seq in seqs), log.engine.store)[1]
        else:
            rows = [part[0].row(seq) for seq in seqs]
            size += sum(part[0].size(row, row + 1) for row in rows)
    return DeleteEstimate(count, size, named, last)


def _weigh_before(log: Log, before: int) -> DeleteEstimate:
    engine, book = log.engine, log.book
    runs: list[tuple[Run, list[tuple[int, int]]]] = []
    count = size = 0
    with engine.lock:
        book.check_there()
        own, last = book.earliest, min(before - 1, book.shown)
        for part in book.parts():
            first, end = max(own, part.first), min(last, part.last)
            if first > end:
                continue
            ranges = [(first, end)] if part.overlay is None else list(part.overlay.visible(first, end))
            if isinstance(part, Run):
                runs.append((part, ranges))
            else:
                count, size = part.weigh(ranges, engine.store)
    for run, ranges in runs:
        some = run.weigh(ranges, engine.store)
        count, size = count + some[0], size + some[1]
    if not count:
        return NOTHING
    named = [seq for seq in log.read(own - 1, NAMED).seqs if seq < before]
    return DeleteEstimate(count, size, named, log.read_back(before, 1).next_after)
