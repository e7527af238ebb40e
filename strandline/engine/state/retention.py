"""Retention: remove the oldest records by count, bytes and age, and remove records that a caller deletes.

Only retention moves the floors. It removes nothing that the log keeps for the lake. If a segment is unreadable, removal
waits: the log exceeds its limits, or keeps records beyond their age, until the segment is readable again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from strandline.engine.errors import DamagedFile
from strandline.engine.state.block import by_last
from strandline.engine.state.lake_mark import removable_through
from strandline.engine.state.parts import Part, Run, Segments, Tail

if TYPE_CHECKING:
    from strandline.engine.state.logbook import Logbook


class Doomed(NamedTuple):
    """The records to remove from one part, and the number and bytes of the live and the hidden ones."""

    part: Part
    ranges: list[tuple[int, int]]
    live: tuple[int, int]
    hidden: tuple[int, int]


def doomed_below(book: Logbook, floor: int, segments: Segments) -> list[Doomed]:
    """Return everything below ``floor``. Runs that are removed as a whole are not read."""
    doomed = []
    for part in book.parts():
        if part.first >= floor:
            break
        if isinstance(part, Run) and part.last < floor:
            hidden = _hidden_of(part, part.first, part.last, segments)
            doomed.append(Doomed(part, [], (part.live, part.live_size), hidden))
        else:
            low, high = max(part.first, book.earliest), min(floor - 1, part.last)
            doomed.append(doom(part, [(low, high)], segments))
    return doomed


def doom(part: Part, ranges: Iterable[tuple[int, int]], segments: Segments) -> Doomed:
    """Return these seqs of one part, as far as the part contains them."""
    within = [(max(first, part.first), min(last, part.last)) for first, last in ranges]
    within = [(first, last) for first, last in within if first <= last]
    overlay = part.overlay
    if overlay is None:
        return Doomed(part, within, part.weigh(within, segments), (0, 0))
    live = part.weigh([piece for first, last in within for piece in overlay.visible(first, last)], segments)
    hidden = part.weigh([piece for first, last in within for piece in overlay.hidden.overlap(first, last)], segments)
    return Doomed(part, within, live, hidden)


def _hidden_of(part: Part, first: int, last: int, segments: Segments) -> tuple[int, int]:
    if part.overlay is None or not part.overlay.hidden:
        return 0, 0
    return part.weigh(list(part.overlay.hidden.overlap(first, last)), segments)


def remove(book: Logbook, doomed: list[Doomed], floor: int, segments: Segments) -> tuple[int, int]:
    """Remove everything below ``floor``. Return the number and bytes of the removed records, including hidden ones."""
    book.revision += 1
    count, size = kill(book, doomed)
    book.runs = tuple(run for run in book.runs if run.last >= floor)
    if book.tail is not None and book.tail.blocks and book.tail.first < floor:
        _drop_dead_blocks(book.tail, floor)
    _settle_earliest(book, floor, segments)
    return count, size


def kill(book: Logbook, doomed: Iterable[Doomed]) -> tuple[int, int]:
    """Mark records as deleted. Return the number and bytes of those that were not deleted before."""
    gone = (0, 0)
    for part, ranges, live, hidden in doomed:
        book.account(part, -live[0], -live[1])
        for first, last in ranges:
            overlay = part.change()
            overlay.dead.add(first, last)
            if overlay.hidden:
                overlay.hidden.remove(first, last)
            if overlay.amended:
                for seq in [seq for seq in overlay.amended if first <= seq <= last]:
                    del overlay.amended[seq]
        gone = add_up(gone, add_up(live, hidden))
    return gone


def _settle_earliest(book: Logbook, floor: int, segments: Segments) -> None:
    """Move ``earliest`` up to the first existing record at or after ``floor``."""
    at = max(floor, book.earliest)
    for part in book.parts():
        if part.last < at:
            continue
        low = max(at, part.first)
        ranges = [(low, part.last)] if part.overlay is None else part.overlay.dead.gaps(low, part.last)
        for first, last in ranges:
            found = _first_there(part, first, last, segments)
            if found is not None:
                book.earliest = found
                book.forget_passed_gaps()
                return
    book.earliest = book.head + 1
    book.forget_passed_gaps()


def _first_there(part: Part, first: int, last: int, segments: Segments) -> int | None:
    if isinstance(part, Run) and part.last - part.first + 1 == part.rows:
        return first
    try:
        return next((block.seq(start) for block, start, _ in part.pieces(first, last, segments)), None)
    except (DamagedFile, OSError):
        return first  # or higher, which is unknown


def drop_dead_front(book: Logbook, segments: Segments) -> None:
    """Release everything before the first existing record."""
    before = book.earliest
    _settle_earliest(book, before, segments)
    if book.earliest > before:
        book.runs = tuple(run for run in book.runs if run.last >= book.earliest)
        if book.tail is not None:
            _drop_dead_blocks(book.tail, book.earliest)


def pass_dead_front(book: Logbook, tail: Tail, segments: Segments) -> None:
    """Like ``drop_dead_front``, if the earliest record was in the tail."""
    assert tail.overlay is not None
    first, _ = next(tail.overlay.dead.gaps(book.earliest, tail.last), (0, 0))
    if not first or tail.find(first) is None:
        drop_dead_front(book, segments)
        return
    book.earliest = first
    book.forget_passed_gaps()
    book.runs = ()
    if tail.blocks[0].last < first:
        _drop_dead_blocks(tail, first)


def _drop_dead_blocks(tail: Tail, floor: int) -> None:
    kept = bisect_left(tail.blocks, floor, key=by_last)
    if kept:
        tail.cut(tail.blocks[kept - 1].last)


def add_up(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return one[0] + other[0], one[1] + other[1]


#: While the first record of a log is from the future, the records after it are examined at most once in this time. It
#: takes about a millisecond per 10,000 records.
LOOK_MS = 1_000


def evict_over_caps(book: Logbook, segments: Segments) -> None:
    config = book.config
    records = book.count - config.cap_records if config.cap_records else 0
    size = book.size - config.cap_bytes if config.cap_bytes else 0
    through = removable_through(book)
    if (records > 0 or size > 0) and book.earliest <= through:
        # If a segment is unreadable, eviction waits, and the log exceeds its limit until the segment is readable again.
        with suppress(DamagedFile, OSError):
            last = _last_to_evict(book, records, size, through, segments)
            if last:
                doomed = doomed_below(book, last + 1, segments)
                book.cap_floor = last + 1
                remove(book, doomed, last + 1, segments)


def evicts_alike(book: Logbook) -> bool:
    """Return whether evicting once after several appends has exactly the same result as evicting after each of them.

    It has if the oldest records are evicted one by one. It may not if whole runs are evicted by size, including empty
    records at their end, or if records are deleted or hidden: the position of the floor then depends on when it is
    moved.
    """
    config = book.config
    if not config.cap_records and not config.cap_bytes:
        return True
    if config.cap_bytes and book.runs:
        return False
    for part in book.parts():
        low, overlay = max(part.first, book.earliest), part.overlay
        if overlay is None or low > part.last:
            continue
        if overlay.hidden or overlay.amended or list(overlay.dead.gaps(low, part.last)) != [(low, part.last)]:
            return False
    return True


def _last_to_evict(book: Logbook, records: int, size: int, through: int, segments: Segments) -> int:
    """Return the seq of the live record up to which this many records and bytes are evicted, oldest first; no later
    than ``through``. 0 if no record is evicted."""
    last = 0
    for part in book.parts():
        if part.first > through:
            break
        ends_here = isinstance(part, Run) and part.live >= records and part.live_size >= size
        # If eviction ends in this part, hidden records after the last evicted one must stay, so examine its rows.
        closely = part.last > through or (ends_here and part.overlay is not None)
        if isinstance(part, Run) and not closely and (part.live <= records or 0 < part.live_size <= size):
            if part.live:
                last = part.last
                records -= part.live
                size -= part.live_size
                if records <= 0 and size <= 0:
                    return last
            continue
        amended = part.overlay is not None and bool(part.overlay.amended)
        for block, start, end in part.visible(book.earliest, min(book.head, through), segments):
            while start < end:
                rows = min(max(records, 0), end - start)
                if size > 0:
                    rows = max(rows, block.reaching(start, end, size))
                if amended:
                    # Amended records have another size than in their block, so process them one by one.
                    rows = 1
                last = block.seq(start + rows - 1)
                records -= rows
                size -= (
                    part.weigh([(block.seq(start), last)], segments)[1] if amended else block.size(start, start + rows)
                )
                start += rows
                if records <= 0 and size <= 0:
                    return last
    return last


def is_stale(book: Logbook, now: int) -> bool:
    """Return whether ``expire`` may have something to do. Cheap."""
    if book.earliest > removable_through(book):
        return False
    if book.runs:
        first = book.runs[0].ts_first
    elif book.tail is not None and book.tail.blocks:
        first = book.tail.blocks[0].timestamp(0)
    else:
        return False
    # A first record from the future says nothing about the records after it, so these must be examined.
    return first < now - book.config.ttl_ms or (first > book.last_ts and now - book.expired_ts >= LOOK_MS)


def needs_expiring(book: Logbook, now: int, segments: Segments) -> bool:
    """Return whether ``expire`` would remove records."""
    return is_stale(book, now) and _expired_below(book, now - book.config.ttl_ms, segments) > book.earliest


def _expired_below(book: Logbook, oldest: int, segments: Segments) -> int:
    """Return the seq below which every record is older than ``oldest`` and may be removed."""
    return min(book.seq_since(oldest, segments), removable_through(book) + 1)


def expire(book: Logbook, now: int, segments: Segments) -> bool:
    """Evict records that exceed max age. Return whether that moved the floor."""
    ttl = book.config.ttl_ms
    if not ttl or book.earliest > book.head:
        return False
    oldest = now - ttl
    book.expired_ts = now
    # As with max records and max bytes, records in unreadable segments are removed later.
    with suppress(DamagedFile, OSError):
        floor = _expired_below(book, oldest, segments)
        if floor > book.earliest:
            return expire_below(book, floor, segments)
    return False


def held_back(book: Logbook, now: int, segments: Segments) -> tuple[int, int]:
    """Return how many records and bytes the log has beyond its limits, because it keeps them for the lake. The bytes of
    records that are too many or too old are estimated."""
    config = book.config
    records = max(book.count - config.cap_records, 0) if config.cap_records else 0
    size = max(book.size - config.cap_bytes, 0) if config.cap_bytes else 0
    if config.ttl_ms and book.count:
        with suppress(DamagedFile, OSError):
            old = min(max(book.seq_since(now - config.ttl_ms, segments) - book.earliest, 0), book.count)
            records = max(records, old)
    return records, max(size, book.size * records // book.count) if records else size


def expire_below(book: Logbook, floor: int, segments: Segments) -> bool:
    lost = last_retained_below(book, floor, segments)
    if lost is None:
        return False
    doomed = doomed_below(book, lost + 1, segments)
    book.ttl_floor = max(book.ttl_floor, lost + 1)
    remove(book, doomed, lost + 1, segments)
    return True


def evict_below(book: Logbook, floor: int, segments: Segments) -> None:
    """Evict records again that were evicted before by max records or max bytes."""
    lost = last_retained_below(book, floor, segments)
    if lost is not None:
        doomed = doomed_below(book, lost + 1, segments)
        book.cap_floor = max(book.cap_floor, lost + 1)
        remove(book, doomed, lost + 1, segments)


def last_retained_below(book: Logbook, floor: int, segments: Segments) -> int | None:
    """Return the highest existing seq below ``floor`` that is not deleted."""
    for part in reversed(tuple(book.parts())):
        low, high = max(part.first, book.earliest), min(part.last, floor - 1)
        if low > high:
            continue
        ranges = [(low, high)] if part.overlay is None else list(part.overlay.dead.gaps(low, high))
        for first, last in reversed(ranges):
            # The last seq of the range usually exists; otherwise search for it.
            for start in (last, first):
                found = None
                for block, _, end in part.pieces(start, last, segments):
                    found = block.seq(end - 1)
                if found is not None:
                    return found
    return None
