"""The distinct keys of a log in order, from the indexes of keys alone: no payload is looked at."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from heapq import merge, nsmallest
from itertools import islice
from time import perf_counter
from typing import NamedTuple

from strandline.engine.log import Log
from strandline.engine.looking import Sealed, looking
from strandline.engine.parts import Piece, Run
from strandline.engine.segments.segment import Segment

#: No seq is higher.
_LAST = 1 << 63


class KeyPage(NamedTuple):
    """``keys`` ascend by code points. The log has keys in so many ``segments``, of which some had to be ``loaded``; so
    many ``tail_records`` were looked at; the rest is how long each part of it took, in seconds."""

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
    """The first ``limit`` keys behind ``after`` that a record has which readers see. It waits for the disk."""
    return looking(log, lambda seen: _page(log, seen.sealed, seen.tail, after, limit))


def _page(log: Log, sealed: list[Sealed], tail: list[Piece], after: str | None, limit: int) -> KeyPage:
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


def _keys(part: Sealed, segment: Segment, after: str | None) -> Iterator[str]:
    run = part.run
    for key in segment.keys(run.row, run.rows, after):
        if part.visible is None or _any_within(segment.seqs_with_key(run.row, run.rows, key), part.visible):
            yield key


def _any_within(seqs: list[int], ranges: Sequence[tuple[int, int]]) -> bool:
    for seq in seqs:
        at = bisect_right(ranges, (seq, _LAST)) - 1
        if at >= 0 and seq <= ranges[at][1]:
            return True
    return False


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
