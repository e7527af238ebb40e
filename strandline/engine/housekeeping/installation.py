"""Making a finished round true in memory: tails give way to runs, runs to merged ones.

Between the boundary and this moment logs went on changing; whatever happened to the records stays with them.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from strandline.engine.housekeeping.merges import Merge
from strandline.engine.housekeeping.snapshot import SLICE, Captured, Snapshot, run_state
from strandline.engine.segments.footer import RunInfo, SegmentInfo
from strandline.engine.state.parts import Overlay, Run, Segments


def install(
    snapshot: Snapshot,
    sealed: SegmentInfo | None,
    merges: list[Merge],
    segments: Segments,
    lock: AbstractContextManager[object],
) -> None:
    """A few logs at a time, so that nobody waits long for the lock."""
    infos = {info.epoch: info for info in sealed.runs} if sealed is not None else {}
    everyone = list(snapshot.captured.values())
    for start in range(0, len(everyone), SLICE):
        with lock:
            for captured in everyone[start : start + SLICE]:
                if captured.book.dropped:
                    continue
                for merge in merges:
                    _install_merge(captured, merge)
                if captured.sealed_last:
                    _install_run(captured, sealed, infos.get(captured.epoch), segments)


def _install_run(captured: Captured, sealed: SegmentInfo | None, info: RunInfo | None, segments: Segments) -> None:
    """Replace the sealed part of a tail by the run in the segment. Changes made since the boundary stay."""
    book = captured.book
    tail = book.tail
    if tail is None:
        return
    if info is not None and sealed is not None and info.last >= book.earliest:
        live, live_size = tail.weigh(
            [(info.first, info.last)] if tail.overlay is None else list(tail.overlay.visible(info.first, info.last)),
            segments,
        )
        run = run_state(sealed.id, info, live, live_size).make()
        if tail.overlay is not None:
            assert captured.keep is not None
            _take_over(run, [tail.overlay], captured.keep.dead, captured.keep.amended, captured.hidden)
        if info.first < book.earliest:
            run.change().dead.add(info.first, book.earliest - 1)
        book.runs = (*book.runs, run)
    tail.cut(captured.sealed_last)
    if not tail.blocks:
        book.tail = None


def _install_merge(captured: Captured, merge: Merge) -> None:
    book = captured.book
    involved = [run for run in book.runs if run.segment in merge.ids]
    if not involved:
        return
    at = book.runs.index(involved[0])
    rest = tuple(run for run in book.runs if run.segment not in merge.ids)
    info = merge.run_of(book.epoch)
    if info is None or merge.info is None or info.last < book.earliest:
        book.runs = rest
        return
    live, live_size = sum(run.live for run in involved), sum(run.live_size for run in involved)
    run = run_state(merge.info.id, info, live, live_size).make()
    captures = [captured.overlay_of(id) for id in merge.ids]
    _take_over(
        run,
        [known.overlay for known in involved if known.overlay is not None],
        [piece for overlay in captures for piece in overlay.dead],
        [item for overlay in captures for item in overlay.amended],
        [piece for overlay in captures for piece in overlay.hidden],
    )
    if info.first < involved[0].first:
        # The runs in front were evicted while the merge went on.
        run.change().dead.add(info.first, involved[0].first - 1)
    book.runs = (*rest[:at], run, *rest[at:])


def _take_over(
    run: Run,
    overlays: list[Overlay],
    dead: list[tuple[int, int]],
    amended: list[tuple[int, bytes]],
    hidden: list[tuple[int, int]],
) -> None:
    """Give a run what became of its records, less what was already left out or replaced when it was written."""
    merged = Overlay()
    for overlay in overlays:
        for first, last in overlay.dead.overlap(run.first, run.last):
            merged.dead.add(first, last)
        for first, last in overlay.hidden.overlap(run.first, run.last):
            merged.hidden.add(first, last)
        merged.amended.update((s, d) for s, d in overlay.amended.items() if run.first <= s <= run.last)
    for first, last in dead:
        merged.dead.remove(first, last)
    for seq, data in amended:
        if merged.amended.get(seq) is data:
            del merged.amended[seq]
    if merged.dead or merged.hidden or merged.amended:
        run.overlay = merged
    run.dirty = bool(merged.dead or merged.amended) or list(merged.hidden) != list(hidden)
