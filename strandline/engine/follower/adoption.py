"""Adopt a round of housekeeping of the leader: what it has sealed and merged is read from its segments from now on.

The logs are the same before and after. Only where their records are stored changes: a new run takes the place of a
part of the tail, or of earlier runs. Changes of these records since the round, which the segment does not contain, stay
in the overlay of the new run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from strandline.engine.disk import Disk
from strandline.engine.journal.bodies import unpack
from strandline.engine.journal.frame import FrameType
from strandline.engine.state.checkpoints import BookState, Manifest, RunState, read_checkpoint
from strandline.engine.state.logbook import Logbook
from strandline.engine.state.parts import Overlay, Part, Run, Segments


class StoredRuns(msgspec.Struct):
    """What a checkpoint says about the runs of a log."""

    assigned: int
    runs: list[RunState]


def stored_runs(
    disk: Disk, before: Manifest, after: Manifest, books: Iterable[Logbook]
) -> Iterator[tuple[int, StoredRuns]]:
    """Yield, by epoch, the runs of the logs whose records are stored elsewhere since the manifest ``before``."""
    segments = {entry.id for entry in after.segments}
    moved = {
        book.epoch
        for book in books
        if (book.tail is not None and book.tail.blocks) or any(run.segment not in segments for run in book.runs)
    }
    states: dict[int, bytes] = {}
    for name in after.checkpoints:
        if name in before.checkpoints:
            continue
        for frame in read_checkpoint(disk, name):
            if frame.type is FrameType.STATE and frame.epoch in moved:
                states[frame.epoch] = frame.body
    for epoch, raw in states.items():
        state: BookState = unpack(raw, BookState)
        yield epoch, StoredRuns(state.assigned, state.runs)


def adopt_runs(book: Logbook, stored: StoredRuns, segments: Segments) -> None:
    """Store the records of a log as its leader does. The engine's lock is held."""
    known = {run.segment: run for run in book.runs}
    wanted = {state.segment for state in stored.runs}
    replaced = [run for run in book.runs if run.segment not in wanted]
    runs = []
    for state in stored.runs:
        if state.last < book.earliest:
            continue
        run = known.get(state.segment)
        runs.append(_new_run(book, state, stored.assigned, replaced, segments) if run is None else run)
    book.runs = tuple(runs)
    book.filed_in = tuple(state.segment for state in stored.runs)
    if book.tail is not None and book.config.durability != "ephemeral":
        book.tail.cut(stored.assigned)
        if not book.tail.blocks:
            book.tail = None


def _new_run(book: Logbook, state: RunState, sealed: int, replaced: list[Run], segments: Segments) -> Run:
    """Return a run that takes the place of earlier runs, or of a part of the tail, or both."""
    run = state.make()
    parts: list[Part] = [part for part in replaced if part.first <= run.last and part.last >= run.first]
    live = sum(part.live for part in replaced if part in parts)
    live_size = sum(part.live_size for part in replaced if part in parts)
    tail = book.tail
    if tail is not None and tail.blocks and tail.first <= run.last:
        first, last = max(tail.first, run.first, book.earliest), min(run.last, sealed)
        visible = [(first, last)] if tail.overlay is None else list(tail.overlay.visible(first, last))
        count, size = tail.weigh(visible, segments)
        live, live_size = live + count, live_size + size
        parts.append(tail)
    run.live, run.live_size = live, live_size
    merged = Overlay()
    for part in parts:
        if part.overlay is None:
            continue
        for first, last in part.overlay.dead.overlap(run.first, run.last):
            merged.dead.add(first, last)
        for first, last in part.overlay.hidden.overlap(run.first, run.last):
            merged.hidden.add(first, last)
        merged.amended.update((s, data) for s, data in part.overlay.amended.items() if run.first <= s <= run.last)
    if run.first < book.earliest:
        merged.dead.add(run.first, book.earliest - 1)
    if merged.dead or merged.hidden or merged.amended:
        run.overlay = merged
    return run
