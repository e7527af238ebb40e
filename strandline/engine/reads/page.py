"""Read a page: where to start, what to skip, when to stop, and which loss to report."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from strandline.engine.errors import BadRequest, MissingFile
from strandline.engine.operations.journaled import let_all_expire
from strandline.engine.record import Page, Reason, Tombstone
from strandline.engine.segments.segment import Segment
from strandline.engine.segments.store import SegmentStore, UnknownSegment
from strandline.engine.segments.writer import Ints
from strandline.engine.state.block import Block, by_last
from strandline.engine.state.forks import ForkLayer, chain, earliest_of, last_retained_below, layers, seq_since
from strandline.engine.state.logbook import Gap, Logbook
from strandline.engine.state.parts import Part, Piece, Run, Segments
from strandline.engine.state.retention import is_stale, needs_expiring
from strandline.key_share import KeyShares

if TYPE_CHECKING:
    from strandline.engine.engine import Engine

T = TypeVar("T")

#: A page examines at most this many records, however few of them pass the filter.
SCAN_RECORDS = 16_384
#: A page of at least this many records is usually followed by the next one, so blocks are loaded ahead.
READ_AHEAD_RECORDS = 64
READ_AHEAD_BYTES = 1 << 20
#: Individually selected seqs of a log are looked up this many at a time.
AMONG_SEQS = 1024


class PageQuery(NamedTuple):
    """A read: records with ``seq > after``, in order, that pass all given filters."""

    after: int = 0
    limit: int = 256
    max_bytes: int | None = None
    #: Omit records from these nodes.
    without_nodes: frozenset[str] | None = None
    key: str | None = None
    key_prefix: str | None = None
    #: Only records with this time or later.
    since: int | None = None
    #: The epoch that ``after`` belongs to, so that a recreated log is recognised.
    epoch: int | None = None
    #: Only records of these shares of the keys.
    shares: KeyShares | None = None
    #: Only records with one of these ascending seqs, and no record after the seq ``through``.
    among: Ints | None = None
    through: int | None = None

    def check(self) -> None:
        if self.after < 0:
            raise BadRequest(f"after must be 0 or more, not {self.after}")
        if self.limit < 1:
            raise BadRequest(f"limit must be 1 or more, not {self.limit}")
        if self.max_bytes is not None and self.max_bytes < 1:
            raise BadRequest(f"max_bytes must be 1 or more, not {self.max_bytes}")


class NotResident(Exception):
    """Data must be fetched from the disk first. ``fetch`` does this without the engine's lock. ``block`` is the index
    of a block, if it is a block."""

    def __init__(self, segment: int, fetch: Callable[[], None], block: int | None = None) -> None:
        self.segment = segment
        self.fetch = fetch
        self.block = block


class Resident:
    """The segments as far as they are in memory. A page is built under the lock and never waits there."""

    def __init__(self, store: SegmentStore) -> None:
        self._store = store
        self._segments: dict[int, Segment] = {}
        self._blocks: dict[tuple[int, int], Block] = {}

    def segment(self, id: int) -> Segment:
        segment = self._segments.get(id) or self._store.opened(id)
        if segment is None:
            raise NotResident(id, lambda: self._open(id))
        return segment

    def load(self, id: int, index: int) -> Block:
        block = self._blocks.get((id, index)) or self._store.cached(id, index)
        if block is None:
            raise NotResident(id, lambda: self._load(id, index), index)
        return block

    def _open(self, id: int) -> None:
        self._segments[id] = self._store.segment(id)

    def _load(self, id: int, index: int) -> None:
        # Keep the blocks for this page, so that a small cache cannot make the page start over forever.
        self._blocks[id, index] = self._store.load(id, index)

    def load_ahead(self, run: Run, index: int, query: PageQuery) -> None:
        """Load the following blocks of a run that the page needs too. Otherwise the page would start over for each of
        them."""
        segment = self._segments.get(run.segment) or self._store.segment(run.segment)
        last = segment.block_of(run.row + run.rows - 1)
        # A reader of many records usually asks for the following records next.
        goes_on = query.limit >= READ_AHEAD_RECORDS
        rows, size = (SCAN_RECORDS, READ_AHEAD_BYTES) if goes_on else (query.limit, query.max_bytes or READ_AHEAD_BYTES)
        while True:
            block = segment.blocks[index]
            rows, size, index = rows - block.rows, size - block.size, index + 1
            if rows <= 0 or size < block.size // 2 or index > last:
                return
            self._load(run.segment, index)


def read(
    engine: Engine,
    book: Logbook,
    wait: bool,
    after: int,
    limit: int,
    max_bytes: int | None,
    without_nodes: Iterable[str] | None,
    key: str | None,
    key_prefix: str | None,
    since: int | None,
    epoch: int | None,
    shares: KeyShares | None = None,
) -> Page | None:
    """See :meth:`Log.read` or, without ``wait``, :meth:`Log.read_resident`."""
    if without_nodes is None and key is None and key_prefix is None and since is None and shares is None:
        # A reader close to the head only needs the last blocks.
        with engine.lock:
            book.check_there()
            if (book.base is None and not book.config.ttl_ms) or not _is_stale(engine, book):
                page = read_tail(book, after, limit, max_bytes, epoch)
                if page is not None:
                    return page
    nodes = None if without_nodes is None else frozenset(without_nodes)
    query = PageQuery(after, limit, max_bytes, nodes, key, key_prefix, since, epoch, shares)
    query.check()
    return read_parts(engine, book, wait, lambda segments: read_page(book, query, segments), query)


def read_parts(
    engine: Engine, book: Logbook, wait: bool, act: Callable[[Segments], T], query: PageQuery | None = None
) -> T | None:
    """Return the result of ``act``, which runs with the engine's lock held. If data is not in memory, fetch it
    without the lock and call ``act`` again; without ``wait``, return None instead. Also fetches what the
    ``query`` needs next."""
    segments = Resident(engine.store)
    while True:
        try:
            with engine.lock:
                book.check_there()
                # Expiring records may also need data from the disk.
                if not wait and needs_the_disk_to_expire(engine, book, segments):
                    return None
                let_all_expire(engine, book)
                return act(segments)
        except NotResident as missing:
            if not wait:
                return None
            fetch(book, missing)
            if query is not None:
                _fetch_ahead(book, missing, query, segments)


def _fetch_ahead(book: Logbook, missing: NotResident, query: PageQuery, segments: Resident) -> None:
    if missing.block is None or query.key is not None or query.key_prefix is not None:
        return
    index = missing.block
    run = next((run for part in chain(book) for run in part.runs if run.segment == missing.segment), None)
    if run is not None:
        fetch(book, NotResident(run.segment, lambda: segments.load_ahead(run, index, query)))


def _is_stale(engine: Engine, book: Logbook) -> bool:
    return any(part.config.ttl_ms and is_stale(part, engine.now()) for part in chain(book))


def needs_the_disk_to_expire(engine: Engine, book: Logbook, segments: Segments) -> bool:
    now = engine.now()
    return any(part.config.ttl_ms and part.runs and needs_expiring(part, now, segments) for part in chain(book))


def fetch(book: Logbook, missing: NotResident) -> None:
    """Fetch data that a reader needs. The engine's lock must not be held."""
    try:
        missing.fetch()
    except (UnknownSegment, MissingFile):
        # The segment was merged or dropped in the meantime, and the log's records are elsewhere or gone.
        if any(run.segment == missing.segment for part in chain(book) for run in part.runs):
            raise


def read_tail(book: Logbook, after: int, limit: int, max_bytes: int | None, epoch: int | None) -> Page | None:
    """Like ``read_page`` without filters, if all requested records are in the tail and unchanged. Otherwise return
    None."""
    head, tail, first = book.shown_head if book.held else book.head, book.tail, after + 1
    if not 0 <= after <= head or limit < 1 or first < book.cap_floor or first < book.ttl_floor:
        return None
    if (epoch is not None and epoch != book.epoch) or (book.gaps and book.gaps[-1].last > after):
        return None
    page = Page(book.epoch, head, book.earliest if book.base is None else earliest_of(book))
    if after == head:
        page.next_after = after
        page.caught_up = True
        return page
    if tail is None or book.held or first < tail.first or (max_bytes is not None and max_bytes < 1):
        return None
    if tail.overlay is not None and not tail.overlay.leaves(first):
        return None
    blocks = tail.blocks
    at = len(blocks) - 1
    if blocks[at].first > first:
        at = bisect_left(blocks, first, key=by_last)
    limit = min(limit, SCAN_RECORDS)
    while limit and at < len(blocks):
        block = blocks[at]
        if max_bytes is None and block.first == block.last:
            # Records that were appended recently, one by one.
            block.copy_row(page, 0)
            limit -= 1
            at += 1
            continue
        start = max(first - block.first, 0)
        end = stop = min(len(block), start + limit)
        if max_bytes is not None:
            stop = block.fitting(start, end, max_bytes)
            if stop == start and not page.seqs:
                stop += 1  # however large it is
            max_bytes -= block.size(start, stop)
        block.copy_to(page, start, stop)
        if stop < end:
            break
        limit -= end - start
        at += 1
    page.next_after = page.seqs[-1]
    page.caught_up = page.next_after >= head
    return page


def read_page(book: Logbook, query: PageQuery, segments: Segments) -> Page:
    shown = layers(book)
    head = book.shown
    page = Page(book.epoch, head, earliest_of(book))
    at = query.after + 1
    if _is_from_another_life(book, query):
        at = 1
        page.tombstone = Tombstone(1, head, "recreated", page.earliest, head)
    if query.since is not None:
        at = max(at, _start_since(book, query.since, segments))
    recreated = page.tombstone is not None
    end = head if query.through is None else min(query.through, head)
    while True:
        at = _cross_losses(shown, page, at)
        stop = next((loss.first - 1 for loss in losses(shown, at)), end)
        stop = min(stop, end)
        reached = _fill(shown, page, query, at, stop, segments)
        if page.seqs or page.tombstone is not None or reached < stop or stop >= end:
            break
        # Nothing precedes the next loss. Report the loss now instead of an empty page.
        at = stop + 1
    page.next_after = reached if recreated else max(reached, query.after)
    page.caught_up = page.next_after >= head
    return page


def _is_from_another_life(book: Logbook, query: PageQuery) -> bool:
    if query.epoch is not None:
        return query.epoch != book.epoch
    return query.after > book.assigned


def _start_since(book: Logbook, since: int, segments: Segments) -> int:
    """Return where the records before a time end. Records lost right after them may be later than that time."""
    last_before = last_retained_below(book, seq_since(book, since, segments), segments)
    return 0 if last_before is None else last_before + 1


def losses(shown: Sequence[ForkLayer], at: int) -> Iterator[Gap]:
    """Yield the gaps that readers from ``at`` on encounter, in order."""
    for book, first, last in shown:
        if last < at:
            continue
        start, floor = max(at, first), book.evict_floor
        if start < floor:
            yield Gap(start, min(floor - 1, last), _reason(book, start))
            start = floor
        for gap in book.gaps:
            if gap.last >= start and gap.first <= last:
                yield Gap(max(gap.first, start), min(gap.last, last), gap.reason)


def _reason(book: Logbook, at: int) -> Reason:
    if book.cap_floor > at and book.ttl_floor > at:
        return "mixed"
    return "cap" if book.cap_floor > at else "ttl"


def _cross_losses(shown: Sequence[ForkLayer], page: Page, at: int) -> int:
    """Step over a loss that begins here and report it in the page. Adjacent losses are reported as one."""
    for loss in losses(shown, at):
        if loss.first > at:
            break
        if page.tombstone is None:
            page.tombstone = Tombstone(at, loss.last, loss.reason, loss.last + 1, page.head)
        elif page.tombstone.reason != "recreated":
            page.tombstone = page.tombstone._replace(gap_to=loss.last, earliest=loss.last + 1)
        at = loss.last + 1
    return at


def _fill(shown: Sequence[ForkLayer], page: Page, query: PageQuery, first: int, last: int, segments: Segments) -> int:
    """Add records to the page. Return the seq up to which the log has been processed."""
    room = _Room(query)
    keyed = query.key is not None or query.key_prefix is not None
    for part, low, high in _parts(shown, first, last):
        if keyed:
            pieces = _keyed(part, query, low, high, segments)
        elif query.among is not None:
            pieces = _among(part, query.among, low, high, segments)
        else:
            pieces = part.visible(low, high, segments)
        for block, start, end in pieces:
            stopped = room.take(page, part, block, start, end)
            if stopped < end:
                return block.seq(stopped) - 1
    return last


def _parts(shown: Sequence[ForkLayer], first: int, last: int) -> Iterator[tuple[Part, int, int]]:
    """Yield the parts that contain the seqs from ``first`` to ``last``, and the range of seqs in each."""
    for book, low, high in shown:
        low, high = max(first, low), min(last, high)
        if low <= high:
            for part in book.parts():
                if part.last >= low and part.first <= high:
                    yield part, low, high


def _keyed(part: Part, query: PageQuery, first: int, last: int, segments: Segments) -> Iterator[Piece]:
    """Yield the records with the key, found through the key index. The rest of the part is not examined."""
    found = None
    if query.key is not None:
        found = part.seqs_with_key(query.key, False, segments)
    if query.key_prefix is not None:
        starting = part.seqs_with_key(query.key_prefix, True, segments)
        found = starting if found is None else sorted(set(found).intersection(starting))
    assert found is not None
    found = found[bisect_left(found, first) : bisect_right(found, last)]
    if query.among is not None:
        found = np.intersect1d(query.among, np.array(found, np.int64), assume_unique=True).tolist()
    for seq in found:
        yield from part.visible(seq, seq, segments)


def _among(part: Part, seqs: Ints, first: int, last: int, segments: Segments) -> Iterator[Piece]:
    """Yield the records with these seqs. A page takes the first of them, so not all are examined at once."""
    start, stop = np.searchsorted(seqs, (max(first, part.first), min(last, part.last) + 1)).tolist()
    for at in range(start, stop, AMONG_SEQS):
        some = seqs[at : min(at + AMONG_SEQS, stop)]
        cuts = [0, *(np.flatnonzero(np.diff(some) != 1) + 1).tolist(), len(some)]
        for low, high in pairwise(cuts):
            yield from part.visible(int(some[low]), int(some[high - 1]), segments)


class _Room:
    """The remaining space in a page."""

    def __init__(self, query: PageQuery) -> None:
        self._limit = query.limit
        self._bytes = query.max_bytes
        self._scan = SCAN_RECORDS
        self._without = query.without_nodes
        self._shares = query.shares

    def take(self, page: Page, part: Part, block: Block, start: int, end: int) -> int:
        """Copy rows into the page until a limit is reached. Return the first row that was not processed."""
        end = min(end, start + self._scan)
        self._scan -= end - start
        amended = part.overlay.amended if part.overlay is not None else None
        stretches = self._passing(block, start, end)
        if amended:
            # Amended records have other data, and another size, than their block says. Process each of them separately.
            stretches = (piece for low, high in stretches for piece in _around(block, low, high, amended))
        for low, high in stretches:
            stop = min(high, low + self._limit)
            if self._bytes is not None:
                stop = self._fitting(page, block, low, stop, amended)
            if stop > low:
                self._copy(page, block, low, stop, amended)
            if stop < high:
                return stop
        return end

    def _passing(self, block: Block, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the ranges of rows that pass the filters by node and by share."""
        nodes = None if self._without is None else block.nodes
        shares = self._shares
        if nodes is None and shares is None:
            yield start, end
            return
        keys = block.keys
        low = start
        for row in range(start, end):
            if (nodes is not None and self._without is not None and nodes[row] in self._without) or (
                shares is not None and not shares.has(None if keys is None else keys[row], block.seq(row))
            ):
                if low < row:
                    yield low, row
                low = row + 1
        if low < end:
            yield low, end

    def _fitting(self, page: Page, block: Block, low: int, stop: int, amended: dict[int, bytes] | None) -> int:
        """Return how many rows fit the byte budget. The first record of a page always fits, however large it is."""
        assert self._bytes is not None
        if amended and stop == low + 1:
            fitting = stop if size_of(block, low, amended) <= self._bytes else low
        else:
            fitting = block.fitting(low, stop, self._bytes)
        return low + 1 if fitting == low < stop and not page.seqs else fitting

    def _copy(self, page: Page, block: Block, start: int, end: int, amended: dict[int, bytes] | None) -> None:
        at = len(page.seqs)
        block.copy_to(page, start, end)
        self._limit -= end - start
        if self._bytes is not None:
            self._bytes -= block.size(start, end)
        if amended and end == start + 1:
            data = amended.get(page.seqs[at])
            if data is not None:
                if self._bytes is not None:
                    self._bytes -= len(data) - len(page.data[at])
                page.data[at] = data


def _around(block: Block, low: int, high: int, amended: dict[int, bytes]) -> Iterator[tuple[int, int]]:
    """Yield the rows as ranges. Every amended row is a separate range."""
    if len(amended) < high - low:
        first, last = block.seq(low), block.seq(high - 1)
        rows = sorted(block.row(seq, low, high) for seq in amended if first <= seq <= last)
    else:
        rows = [row for row in range(low, high) if block.seq(row) in amended]
    for row in rows:
        if low < row:
            yield low, row
        yield row, row + 1
        low = row + 1
    if low < high:
        yield low, high


def size_of(block: Block, row: int, amended: dict[int, bytes]) -> int:
    """Return the size of one row, which may be amended."""
    data = amended.get(block.seq(row))
    size = block.size(row, row + 1)
    return size if data is None else size + len(data) - len(block.payload(row))
