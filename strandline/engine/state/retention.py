"""Retention: what caps and time take, oldest first. Only this moves the floors.

Where a segment cannot be read, the taking waits: the log is over its cap, or keeps what is too old, until it can.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from strandline.engine.errors import DamagedFile
from strandline.engine.operations.removal import doomed_below, remove
from strandline.engine.state.parts import Run, Segments

if TYPE_CHECKING:
    from strandline.engine.state.logbook import Logbook


#: While the first record of a log is from the future, the records after it are looked at no more often than this: it
#: takes about a millisecond per 10,000 of them.
LOOK_MS = 1_000


def evict_over_caps(book: Logbook, segments: Segments) -> None:
    config = book.config
    records = book.count - config.cap_records if config.cap_records else 0
    size = book.size - config.cap_bytes if config.cap_bytes else 0
    if records > 0 or size > 0:
        # With a segment that cannot be read it has to wait: the log is over its cap until it works again.
        with suppress(DamagedFile, OSError):
            last = _last_to_evict(book, records, size, segments)
            doomed = doomed_below(book, last + 1, segments)
            book.cap_floor = last + 1
            remove(book, doomed, last + 1, segments)


def evicts_alike(book: Logbook) -> bool:
    """Whether evicting once, after several appends, leaves the log exactly as evicting after each of them would.

    It does where the oldest records go one by one. Whole runs may go by their size, with empty records at their end;
    and where records are deleted or hidden, where the floor comes to lie depends on when it is moved.
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


def _last_to_evict(book: Logbook, records: int, size: int, segments: Segments) -> int:
    """The seq of the live record with which, oldest first, this many records and bytes have gone."""
    last = 0
    for part in book.parts():
        ends_here = isinstance(part, Run) and part.live >= records and part.live_size >= size
        # Where it ends, records behind the last live one that are hidden must stay: look closely.
        closely = ends_here and part.overlay is not None
        if isinstance(part, Run) and not closely and (part.live <= records or 0 < part.live_size <= size):
            if part.live:
                last = part.last
                records -= part.live
                size -= part.live_size
                if records <= 0 and size <= 0:
                    return last
            continue
        amended = part.overlay is not None and bool(part.overlay.amended)
        for block, start, end in part.visible(book.earliest, book.head, segments):
            while start < end:
                rows = min(max(records, 0), end - start)
                if size > 0:
                    rows = max(rows, block.reaching(start, end, size))
                if amended:
                    # Amended records have another size than their block says: go one by one.
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
    """Whether there may be something for ``expire`` to do; cheap."""
    if book.runs:
        first = book.runs[0].ts_first
    elif book.tail is not None and book.tail.blocks:
        first = book.tail.blocks[0].timestamp(0)
    else:
        return False
    # A first record from the future says nothing about those after it, so these have to be looked at.
    return first < now - book.config.ttl_ms or (first > book.last_ts and now - book.expired_ts >= LOOK_MS)


def needs_expiring(book: Logbook, now: int, segments: Segments) -> bool:
    """Whether time is about to take something."""
    return is_stale(book, now) and book.seq_since(now - book.config.ttl_ms, segments) > book.earliest


def expire(book: Logbook, now: int, segments: Segments) -> bool:
    """Evict what is older than the TTL; tells whether that moved the floor."""
    ttl = book.config.ttl_ms
    if not ttl or book.earliest > book.head:
        return False
    oldest = now - ttl
    book.expired_ts = now
    # As with caps: what cannot be read now goes later.
    with suppress(DamagedFile, OSError):
        floor = book.seq_since(oldest, segments)
        if floor > book.earliest:
            return expire_below(book, floor, segments)
    return False


def expire_below(book: Logbook, floor: int, segments: Segments) -> bool:
    lost = last_retained_below(book, floor, segments)
    if lost is None:
        return False
    doomed = doomed_below(book, lost + 1, segments)
    book.ttl_floor = max(book.ttl_floor, lost + 1)
    remove(book, doomed, lost + 1, segments)
    return True


def evict_below(book: Logbook, floor: int, segments: Segments) -> None:
    """Evict again what a cap once evicted."""
    lost = last_retained_below(book, floor, segments)
    if lost is not None:
        doomed = doomed_below(book, lost + 1, segments)
        book.cap_floor = max(book.cap_floor, lost + 1)
        remove(book, doomed, lost + 1, segments)


def last_retained_below(book: Logbook, floor: int, segments: Segments) -> int | None:
    """The highest seq below ``floor`` that is there and not deleted."""
    for part in reversed(tuple(book.parts())):
        low, high = max(part.first, book.earliest), min(part.last, floor - 1)
        if low > high:
            continue
        ranges = [(low, high)] if part.overlay is None else list(part.overlay.dead.gaps(low, high))
        for first, last in reversed(ranges):
            # Nearly always the last seq of the range is there; else look at what is.
            for start in (last, first):
                found = None
                for block, _, end in part.pieces(start, last, segments):
                    found = block.seq(end - 1)
                if found is not None:
                    return found
    return None
