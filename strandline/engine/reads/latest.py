"""The last record of every key: which seqs they have, kept up to date as a log grows, and pages of only these records.

The seqs are found from the keys and seqs of segments and tail, without reading payloads. Only visible records count: if
the last record of a key is deleted or hidden, the previous visible one is the last. Records without a key are not
included.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from strandline.arrow import pa, pc
from strandline.engine.operations.journaled import let_all_expire
from strandline.engine.reads.page import NotResident, PageQuery, Resident, fetch, needs_the_disk_to_expire, read_page
from strandline.engine.reads.view import LogView, SealedView, with_view
from strandline.engine.record import Page
from strandline.engine.segments.segment import Segment
from strandline.engine.segments.store import SegmentStore
from strandline.engine.segments.writer import Ints
from strandline.engine.state.forks import revision_of
from strandline.engine.state.parts import Piece
from strandline.key_share import KeyShares

if TYPE_CHECKING:
    from strandline.engine.log import Log

#: Memory for the state of all logs together. The state of the most recently used log is kept even if it exceeds this.
MAX_BYTES = 64 << 20
#: The number of records examined in one step, or the number of known keys if it is larger: a step costs about the sum
#: of both.
STEP_RECORDS = 1 << 18

_KEY_COLUMNS = ("seq", "key")
_NO_SEQS: Ints = np.empty(0, np.int64)


class LatestStep(NamedTuple):
    """One step: the records that are now the last of their key, and the seqs that are not or no longer."""

    by_key: LastByKey
    superseded: Ints


class LastByKey:
    """The keys of a log up to the seq ``through``, unordered, each with the seq of its last record. Immutable."""

    __slots__ = ("keys", "last", "through")

    def __init__(self, keys: Any = None, last: Ints = _NO_SEQS, through: int = 0) -> None:
        self.keys = pa.nulls(0, pa.large_string()) if keys is None else keys
        self.last = last
        self.through = through

    @property
    def nbytes(self) -> int:
        size: int = self.keys.nbytes + self.last.nbytes
        return size

    def steps(self, store: SegmentStore, seen: LogView, to: int) -> Iterator[LatestStep]:
        """Continue through the view to the seq ``to``, a limited number of records at a time. Waits for the disk."""
        at = self
        while at.through < to:
            found = _Found(max(STEP_RECORDS, len(at.last)))
            reached = found.gather(store, seen, at.through + 1, to)
            step = at._with(found, reached)
            yield step
            at = step.by_key

    def _with(self, found: _Found, through: int) -> LatestStep:
        keys, seqs = found.columns()
        if not len(seqs):
            return LatestStep(LastByKey(self.keys, self.last, through), _NO_SEQS)
        encoded = keys.dictionary_encode()
        new_keys, new_last = encoded.dictionary, np.empty(len(encoded.dictionary), np.int64)
        # Seqs ascend, and of several values for one index numpy keeps the last one.
        new_last[encoded.indices.to_numpy()] = seqs
        places = pc.index_in(new_keys, value_set=self.keys).fill_null(-1).to_numpy()
        known = places >= 0
        last = self.last.copy()
        displaced = last[places[known]]
        last[places[known]] = new_last[known]
        superseded = np.concatenate((displaced, np.setdiff1d(seqs, new_last, assume_unique=True)))
        if not known.all():
            last = np.concatenate((last, new_last[~known]))
            keys = pa.concat_arrays([self.keys, new_keys.filter(pa.array(~known))])
        else:
            keys = self.keys
        return LatestStep(LastByKey(keys, last, through), np.sort(superseded))

    def only(self, kept: Any) -> LastByKey:
        """Return a copy without the keys whose last record is not kept."""
        return LastByKey(self.keys.filter(pa.array(kept)), self.last[kept], self.through)


class _Found:
    """Collects the keys and seqs of visible records."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._keys: list[Any] = []
        self._seqs: list[Ints] = []
        self._count = 0

    def gather(self, store: SegmentStore, seen: LogView, first: int, last: int) -> int:
        """Collect records from ``first`` to ``last``. Return the seq up to which everything has been collected."""
        for part in seen.parts:
            for keys, seqs in _rows_of(store, part, first, last):
                if self._take(keys, seqs):
                    return int(seqs[-1])
        return last

    def _take(self, keys: Any, seqs: Ints) -> bool:
        """Add rows. Return whether there are enough."""
        self._keys.append(keys)
        self._seqs.append(seqs)
        self._count += len(seqs)
        return self._count >= self._limit

    def columns(self) -> tuple[Any, Ints]:
        """Return the rows that have a key."""
        if not self._seqs:
            return pa.nulls(0, pa.large_string()), _NO_SEQS
        keys, seqs = pa.concat_arrays(self._keys), np.concatenate(self._seqs)
        if keys.null_count:
            there = keys.is_valid()
            keys, seqs = keys.filter(there), seqs[there.to_numpy(zero_copy_only=False)]
        return keys, seqs


def _rows_of(store: SegmentStore, part: SealedView | Piece, first: int, last: int) -> Iterator[tuple[Any, Ints]]:
    """Yield the keys and seqs of the visible records from ``first`` to ``last``, block by block."""
    if not isinstance(part, SealedView):
        yield from _rows_of_piece(part, first, last)
    elif part.run.first <= last and part.run.last >= first:
        yield from _rows_of_run(store.segment(part.run.segment), part, first, last)


def _rows_of_run(segment: Segment, sealed: SealedView, first: int, last: int) -> Iterator[tuple[Any, Ints]]:
    run = sealed.run
    row, end = segment.row_of(run.row, run.rows, run.first, first), run.row + run.rows
    while row < end:
        index = segment.block_of(row)
        block = segment.blocks[index]
        stop = min(end, block.row + block.rows)
        batch = segment.batch(index, _KEY_COLUMNS).slice(row - block.row, stop - row)
        seqs, keys = batch.column(0).to_numpy(), batch.column(1).dictionary_decode().cast(pa.large_string())
        wanted = seqs <= last
        if sealed.visible is not None:
            wanted &= within(seqs, sealed.visible)
        if wanted.any():
            yield keys.filter(pa.array(wanted)), seqs[wanted]
        if seqs[-1] > last:
            return
        row = stop


def _rows_of_piece(piece: Piece, first: int, last: int) -> Iterator[tuple[Any, Ints]]:
    block, start, end = piece
    start, end = block.row(first, start, end), block.row(last + 1, start, end)
    if start >= end or block.keys is None:
        return
    if block.seqs is None:
        seqs = np.arange(block.first + start, block.first + end, dtype=np.int64)
    else:
        seqs = np.asarray(block.seqs[start:end], np.int64)
    yield pa.array(block.keys[start:end], pa.large_string()), seqs


def within(seqs: Ints, ranges: Sequence[tuple[int, int]]) -> Any:
    """Return which of the seqs are in one of the ascending ranges."""
    if not ranges:
        return np.zeros(len(seqs), bool)
    bounds = np.array(ranges, np.int64)
    at = np.searchsorted(bounds[:, 0], seqs, side="right") - 1
    return (at >= 0) & (seqs <= bounds[np.maximum(at, 0), 1])


class Latest(NamedTuple):
    """The ascending ``seqs`` of the records that are the last of their key, as of the seq ``through``."""

    revision: int
    rewrites: int
    through: int
    seqs: Ints
    by_key: LastByKey

    @property
    def nbytes(self) -> int:
        return self.seqs.nbytes + self.by_key.nbytes


class Latests:
    """Caches the last records of recently used logs. Thread-safe."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._known: OrderedDict[int, Latest] = OrderedDict()
        self._lock = threading.Lock()

    def resident(self, log: Log) -> Latest | None:
        """Return the cached state if the log has not changed since. Never waits."""
        known = self._known.get(log.epoch)
        if known is None or known.through != log.head or known.revision != log.revision:
            return None
        return known

    def of(self, log: Log) -> Latest:
        """Return the current last records. Waits for the disk; the first call examines all keys of the log."""
        known = self.resident(log)
        if known is None:
            known = with_view(log, lambda seen: _found(log, seen, self._known.get(log.epoch)))
        self._keep(log.epoch, known)
        return known

    def _keep(self, epoch: int, latest: Latest) -> None:
        with self._lock:
            self._known[epoch] = latest
            self._known.move_to_end(epoch)
            size = sum(known.nbytes for known in self._known.values())
            while size > self._max_bytes and len(self._known) > 1:
                size -= self._known.popitem(last=False)[1].nbytes


def _found(log: Log, seen: LogView, known: Latest | None) -> Latest:
    by_key = LastByKey() if known is None else _still_last(seen, known)
    for step in by_key.steps(log.engine.store, seen, seen.head):
        by_key = step.by_key
    return Latest(seen.revision, seen.rewrites, seen.head, np.sort(by_key.last), by_key)


def _still_last(seen: LogView, known: Latest) -> LastByKey:
    """Return the part of the known state that is still valid. It is empty if an earlier record has become the last of a
    key."""
    if known.rewrites != seen.rewrites or known.through > seen.head:
        return LastByKey()
    by_key = known.by_key
    if known.revision == seen.revision:
        return by_key
    live = within(by_key.last, list(_live_ranges(seen)))
    if live.all():
        return by_key
    if (by_key.last[~live] >= seen.earliest).any():
        return LastByKey()
    return by_key.only(live)  # no earlier records are left


def _live_ranges(seen: LogView) -> Iterable[tuple[int, int]]:
    for part in seen.parts:
        if isinstance(part, SealedView):
            yield from [(part.run.first, part.run.last)] if part.visible is None else part.visible
        else:
            block, start, end = part
            yield block.seq(start), block.seq(end - 1)


def read_latest(
    log: Log,
    wait: bool,
    after: int = 0,
    limit: int = 256,
    *,
    max_bytes: int | None = None,
    without_nodes: Iterable[str] | None = None,
    key: str | None = None,
    key_prefix: str | None = None,
    since: int | None = None,
    epoch: int | None = None,
    shares: KeyShares | None = None,
) -> Page | None:
    """See :meth:`Log.read_latest` or, without ``wait``, :meth:`Log.read_latest_resident`."""
    engine, book = log.engine, log.book
    nodes = None if without_nodes is None else frozenset(without_nodes)
    query = PageQuery(after, limit, max_bytes, nodes, key, key_prefix, since, epoch, shares)
    query.check()
    segments = Resident(engine.store)
    while True:
        latest = engine.latests.of(log) if wait else engine.latests.resident(log)
        if latest is None:
            return None
        query = query._replace(among=latest.seqs, through=latest.through)
        try:
            with engine.lock:
                book.check_there()
                if not wait and needs_the_disk_to_expire(engine, book, segments):
                    return None
                let_all_expire(engine, book)
                if revision_of(book) == latest.revision:
                    return read_page(book, query, segments)
        except NotResident as missing:
            if not wait:
                return None
            fetch(book, missing)
