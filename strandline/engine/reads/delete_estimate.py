"""What a delete would take: counted and weighed beforehand, without the engine's lock for longer than a look takes."""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

from strandline.engine.errors import BadRequest
from strandline.engine.log import Log
from strandline.engine.reads.keys import seqs_of_part
from strandline.engine.reads.view import Sealed, Seen, looking
from strandline.engine.state.parts import Run

#: Records that are named.
NAMED = 5


class Weighed(NamedTuple):
    """How many of the log's own records that readers see are meant, and their bytes; the seqs of the first of them, and
    of the last (0: there is none)."""

    records: int
    size: int
    first: list[int]
    last: int


NOTHING = Weighed(0, 0, [], 0)


def weigh(log: Log, *, before: int | None = None, key: str | None = None, prefix: str | None = None) -> Weighed:
    """What :meth:`Log.delete` would take with these conditions, of which there must be one. It waits for the disk."""
    if key is not None or prefix is not None:
        return looking(log, lambda seen: _weigh_keyed(log, seen, before, key, prefix), own=True)
    if before is None:
        raise BadRequest("say which records: before, key or prefix")
    return looking(log, lambda _: _weigh_before(log, before), own=True)


def _weigh_keyed(log: Log, seen: Seen, before: int | None, key: str | None, prefix: str | None) -> Weighed:
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
        if isinstance(part, Sealed):
            size += part.run.weigh(((seq, seq) for seq in seqs), log.engine.store)[1]
        else:
            rows = [part[0].row(seq) for seq in seqs]
            size += sum(part[0].size(row, row + 1) for row in rows)
    return Weighed(count, size, named, last)


def _weigh_before(log: Log, before: int) -> Weighed:
    engine, book = log.engine, log.book
    runs: list[tuple[Run, list[tuple[int, int]]]] = []
    count = size = 0
    with engine.lock:
        book.check_there()
        own, last = book.earliest, min(before - 1, book.head)
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
    return Weighed(count, size, named, log.read_back(before, 1).next_after)
