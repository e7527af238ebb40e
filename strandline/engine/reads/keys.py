"""Which records have a key, and how many: from the indexes of keys, without a look at payloads."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from heapq import merge, nsmallest
from itertools import islice
from time import perf_counter
from typing import NamedTuple

from strandline.engine.log import Log
from strandline.engine.reads.view import Sealed, Seen, looking
from strandline.engine.segments.segment import Segment
from strandline.engine.state.parts import Piece, Run

#: No seq is higher.
_LAST = 1 << 63


class KeyCount(NamedTuple):
    """How many records that readers see have the key, and the seq of the last of them."""

    records: int
    last: int


def seqs_with(log: Log, *, key: str | None = None, prefix: str | None = None, own: bool = False) -> list[int]:
    """The seqs of the records that readers see and that have this key, or this prefix in their key, or both, ascending;
    with ``own``, without what a fork shares with the log that it was forked from. It waits for the disk."""
    return looking(log, lambda seen: _seqs(log, seen, key, prefix), own=own)


def counts_of(log: Log, keys: Iterable[str]) -> dict[str, KeyCount]:
    """The same of several keys, counted. Those that no record has are left out."""
    wanted = list(dict.fromkeys(keys))
    return looking(log, lambda seen: _counts(log, seen, wanted))


def _seqs(log: Log, seen: Seen, key: str | None, prefix: str | None) -> list[int]:
    found: list[int] = []
    for part in seen.parts:
        found += seqs_of_part(log, part, key, prefix)
    return found


def seqs_of_part(log: Log, part: Sealed | Piece, key: str | None, prefix: str | None) -> list[int]:
    """The same as ``seqs_with``, of a part of what is seen of a log."""
    return _seqs_of_run(log, part, key, prefix) if isinstance(part, Sealed) else _seqs_of_piece(part, key, prefix)


def _seqs_of_run(log: Log, part: Sealed, key: str | None, prefix: str | None) -> list[int]:
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


def _counts(log: Log, seen: Seen, keys: list[str]) -> dict[str, KeyCount]:
    counts: dict[str, KeyCount] = {}

    def add(key: str, records: int, last: int) -> None:
        known = counts.get(key)
        counts[key] = KeyCount(records if known is None else known.records + records, last)

    wanted = set(keys)
    for part in seen.parts:
        if isinstance(part, Sealed):
            for key in keys:
                seqs = _seqs_of_run(log, part, key, None)
                if seqs:
                    add(key, len(seqs), seqs[-1])
            continue
        block, start, end = part
        for row, held in enumerate(() if block.keys is None else block.keys[start:end], start):
            if held in wanted:
                assert held is not None
                add(held, 1, block.seq(row))
    return counts


def within(seqs: Iterable[int], ranges: Sequence[tuple[int, int]]) -> list[int]:
    """Those of the seqs that are in one of the ascending ranges."""
    found = []
    for seq in seqs:
        at = bisect_right(ranges, (seq, _LAST)) - 1
        if at >= 0 and seq <= ranges[at][1]:
            found.append(seq)
    return found


# --- The distinct keys of a log in order, from the indexes of keys alone: no payload is looked at -------------------

#: No seq is higher.


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
