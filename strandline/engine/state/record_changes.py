"""Changes to records: delete, hide, restore and amend; and selecting the affected records.

As in ``retention``, everything that must be read from segments is read before anything is changed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import TYPE_CHECKING

from strandline.engine.journal.bodies import Select
from strandline.engine.record import Deleted
from strandline.engine.state.lake_mark import move_back
from strandline.engine.state.parts import Part, Run, Segments
from strandline.engine.state.retention import (
    add_up,
    doom,
    doomed_below,
    drop_dead_front,
    evict_over_caps,
    kill,
    pass_dead_front,
    remove,
)

if TYPE_CHECKING:
    from strandline.engine.state.logbook import Logbook


def delete(book: Logbook, select: Select, segments: Segments) -> Deleted:
    """Remove the selected records permanently. Readers get no tombstone: the floors do not move."""
    if select.key is None and select.prefix is None and select.seqs is None:
        assert select.before is not None
        before = min(select.before, select.bound + 1)
        if before <= book.earliest:
            return Deleted(0, 0)
        return Deleted(*remove(book, doomed_below(book, before, segments), before, segments))
    if _is_in_tail(book, select):
        return _delete_in_tail(book, select, segments)
    doomed = [doom(part, ranges, segments) for part, ranges in _selected(book, select, segments)]
    count, size = kill(book, doomed)
    if count:
        drop_dead_front(book, segments)
    return Deleted(count, size)


def _is_in_tail(book: Logbook, select: Select) -> bool:
    """Return whether only seqs are given, all of records that are not sealed yet."""
    seqs, tail = select.seqs, book.tail
    if not seqs or tail is None or not tail.blocks:
        return False
    if select.key is not None or select.prefix is not None or select.before is not None:
        return False
    return min(seqs) >= tail.first


def _delete_in_tail(book: Logbook, select: Select, segments: Segments) -> Deleted:
    """Delete a few seqs, one by one: the usual end of a job in a queue."""
    tail = book.tail
    assert tail is not None
    assert select.seqs is not None
    count = size = live = live_size = 0
    passed = False
    for seq in sorted(set(select.seqs)):
        found = tail.find(seq) if book.earliest <= seq <= select.bound else None
        overlay = tail.overlay
        if found is None or (overlay is not None and seq in overlay.dead):
            continue
        weight = found[0].size(found[1], found[1] + 1)
        overlay = tail.change()
        if overlay.amended and seq in overlay.amended:
            weight += len(overlay.amended.pop(seq)) - len(found[0].payload(found[1]))
        count, size = count + 1, size + weight
        if overlay.hidden and seq in overlay.hidden:
            overlay.hidden.remove(seq, seq)
        else:
            live, live_size = live + 1, live_size + weight
        overlay.dead.add(seq, seq)
        passed = passed or seq == book.earliest
    book.account(tail, -live, -live_size)
    if passed:
        pass_dead_front(book, tail, segments)
    return Deleted(count, size)


def hide(book: Logbook, select: Select, segments: Segments) -> Deleted:
    """Hide the selected records. ``restore`` makes them visible again."""
    chosen = []
    for part, ranges in _selected(book, select, segments):
        for first, last in ranges:
            alive = [(first, last)] if part.overlay is None else list(part.overlay.visible(first, last))
            live = part.weigh(alive, segments)
            if live[0]:
                chosen.append((part, alive, live))
    gone = (0, 0)
    for part, alive, live in chosen:
        book.account(part, -live[0], -live[1])
        for first, last in alive:
            part.change().hidden.add(first, last)
        gone = add_up(gone, live)
    return Deleted(*gone)


def restore(book: Logbook, select: Select, segments: Segments) -> Deleted:
    chosen = []
    earliest: int | None = None
    for part, ranges in _selected(book, select, segments):
        if part.overlay is None:
            continue
        for first, last in ranges:
            hidden = list(part.overlay.hidden.overlap(first, last))
            back = part.weigh(hidden, segments)
            if back[0]:
                chosen.append((part, first, last, back))
                earliest = hidden[0][0] if earliest is None else earliest
    gone = (0, 0)
    book.rewrites += bool(chosen)
    if earliest is not None:
        move_back(book, earliest)
    for part, first, last, back in chosen:
        book.account(part, *back)
        part.change().hidden.remove(first, last)
        gone = add_up(gone, back)
    if book.config.cap_records or book.config.cap_bytes:
        evict_over_caps(book, segments)
    return Deleted(*gone)


def amend(book: Logbook, seq: int, data: bytes, segments: Segments) -> None:
    """Replace the data of a record under the same seq and time. The caller has checked that the record exists."""
    for part in book.parts():
        if not part.first <= seq <= part.last:
            continue
        before = part.weigh([(seq, seq)], segments)
        if not before[0]:
            return
        part.change().amended[seq] = data
        book.rewrites += 1
        move_back(book, seq)
        assert part.overlay is not None
        if seq not in part.overlay.hidden:
            book.account(part, 0, part.weigh([(seq, seq)], segments)[1] - before[1])
    if book.config.cap_bytes:
        evict_over_caps(book, segments)


def check_readable(book: Logbook, select: Select, segments: Segments) -> None:
    """Raise unless everything that hiding or restoring the selected records needs can be read."""
    for part, ranges in _selected(book, select, segments):
        # The tail is in memory.
        if isinstance(part, Run):
            part.weigh(ranges, segments)


def check_removable(book: Logbook, select: Select, segments: Segments) -> None:
    """Like ``check_readable``, for a delete. Runs that are removed as a whole need not be read."""
    if select.key is None and select.prefix is None and select.seqs is None:
        assert select.before is not None
        doomed_below(book, min(select.before, select.bound + 1), segments)
    elif not _is_in_tail(book, select):
        check_readable(book, select, segments)


def _selected(book: Logbook, select: Select, segments: Segments) -> Iterator[tuple[Part, list[tuple[int, int]]]]:
    """Yield the ranges of seqs of each part that match the selection. Not all of these seqs need to exist."""
    bound = select.bound if select.before is None else min(select.bound, select.before - 1)
    wanted = None if select.seqs is None else sorted(set(select.seqs))
    for part in tuple(book.parts()):
        low, high = max(part.first, book.earliest), min(part.last, bound)
        if low > high:
            continue
        if select.key is None and select.prefix is None and wanted is None:
            yield part, [(low, high)]
            continue
        found: list[int] | None = None
        if select.key is not None:
            found = part.seqs_with_key(select.key, False, segments)
        if select.prefix is not None:
            found = _both(found, part.seqs_with_key(select.prefix, True, segments))
        if wanted is not None:
            found = _both(found, wanted)
        assert found is not None
        inside = found[bisect_left(found, low) : bisect_left(found, high + 1)]
        if inside:
            yield part, list(_ranges_of(inside))


def _both(one: list[int] | None, other: list[int]) -> list[int]:
    if one is None:
        return other
    members = set(one)
    return [seq for seq in other if seq in members]


def _ranges_of(seqs: list[int]) -> Iterator[tuple[int, int]]:
    """Group ascending seqs into ranges of adjacent ones."""
    first = last = seqs[0]
    for seq in seqs[1:]:
        if seq != last + 1:
            yield first, last
            first = seq
        last = seq
    yield first, last
