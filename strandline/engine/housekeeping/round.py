"""One round of housekeeping in memory: which segments it merges, its snapshot of the logs, and installing its result.

The snapshot holds every changed log as it was at the boundary, while the logs themselves keep changing. A log is copied
right before its first change after the boundary, or when housekeeping reaches it. The runs that the round writes are
recorded in the snapshot and go into the checkpoint. Installing replaces tails by runs, and runs by merged runs. Changes
made after the boundary are kept.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager

from strandline.engine.errors import DamagedFile
from strandline.engine.journal.frame import Encoded
from strandline.engine.segments.footer import RunInfo, SegmentInfo
from strandline.engine.segments.jobs import Keep
from strandline.engine.segments.segment import Segment
from strandline.engine.segments.store import SegmentStore, segment_path
from strandline.engine.state.block import Block
from strandline.engine.state.checkpoints import (
    BookState,
    OverlayState,
    RunState,
    SegmentEntry,
    drop_frame,
    overlay_frame,
    state_frame,
)
from strandline.engine.state.logbook import Gap, Logbook
from strandline.engine.state.parts import Overlay, Run, Segments

#: This number of neighbouring segments of similar size is merged into one.
MERGE_SEGMENTS = 4
#: Merging takes about 300 bytes of memory per row in the worker.
MAX_MERGE_ROWS = 4_000_000
#: A segment with a smaller share of live rows than this is rewritten without the deleted rows.
MIN_LIVE = 0.5

log = logging.getLogger(__name__)


class SegmentMerge:
    """Neighbouring segments to merge into one. A single segment is rewritten without its deleted rows."""

    def __init__(self, sources: list[SegmentEntry]) -> None:
        self.sources = sources
        self.ids = {entry.id for entry in sources}
        self.info: SegmentInfo | None = None
        self._runs: dict[int, RunInfo] = {}

    def done(self, info: SegmentInfo | None) -> None:
        self.info = info
        self._runs = {} if info is None else {run.epoch: run for run in info.runs}

    def run_of(self, epoch: int) -> RunInfo | None:
        return self._runs.get(epoch)


class MergePolicy:
    """Chooses merges. Only neighbours are merged, so that a log's runs never interleave. Segments in the cold tier are
    not merged."""

    def __init__(self, store: SegmentStore, books: Mapping[int, Logbook], segment_bytes: int) -> None:
        self._store = store
        self._books = books
        self._segment_bytes = segment_bytes
        #: Segments with deletions since they were last examined.
        self.worn: set[int] = set()
        #: Segments that were found damaged. A restart examines them again.
        self._unreadable: set[int] = set()

    def wanted(self, segments: list[SegmentEntry]) -> list[SegmentMerge]:
        merges = [SegmentMerge([entry]) for entry in segments if self._is_worn_out(entry)]
        alone = {merge.sources[0].id for merge in merges}
        group: list[SegmentEntry] = []
        for entry in segments:
            if entry.tier == "cold" or entry.id in alone or entry.id in self._unreadable:
                group = []
                continue
            if group and _level(entry) != _level(group[0]):
                group = []
            group.append(entry)
            if len(group) == MERGE_SEGMENTS:
                small = sum(member.size for member in group) <= self._segment_bytes
                few = sum(member.rows for member in group) <= MAX_MERGE_ROWS
                if small and few and all(map(self.is_readable, group)):
                    merges.append(SegmentMerge(group))
                group = []
        return merges

    def books_in(self, merges: list[SegmentMerge]) -> Iterator[Logbook]:
        for merge in merges:
            for entry in merge.sources:
                for info in self._store.segment(entry.id).runs:
                    book = self._books.get(info.epoch)
                    if book is not None:
                        yield book

    def failed(self, merge: SegmentMerge, error: DamagedFile) -> None:
        """Leave damaged segments as they are, so that they do not block other merges."""
        self._unreadable.update(entry.id for entry in merge.sources if segment_path(entry.id) == error.path)
        self._unreadable.update(merge.ids if not merge.ids & self._unreadable else ())
        log.error("cannot merge segments %s: %s", sorted(merge.ids), error)

    def is_readable(self, entry: SegmentEntry) -> bool:
        if entry.id not in self._unreadable:
            try:
                self._store.segment(entry.id)
            except DamagedFile as error:
                self._unreadable.add(entry.id)
                log.error("%s", error)
        return entry.id not in self._unreadable

    def _is_worn_out(self, entry: SegmentEntry) -> bool:
        """Return whether rewriting a segment is worthwhile because of its deleted rows."""
        if entry.id not in self.worn or entry.tier == "cold":
            return False
        if not self.is_readable(entry):
            return False
        live = 0
        for info in self._store.segment(entry.id).runs:
            book = self._books.get(info.epoch)
            for run in book.runs if book is not None else ():
                if run.segment == entry.id:
                    live += run.live if run.overlay is None or not run.overlay.hidden else run.rows
        if live < entry.rows * MIN_LIVE:
            return True
        self.worn.discard(entry.id)
        return False


def _level(entry: SegmentEntry) -> int:
    """Return the size class of a segment: level 0 up to 1 MiB, level 1 up to 4 MiB, and so on."""
    return ((entry.size >> 20).bit_length() + 1) // 2


#: The number of logs processed each time the engine's lock is taken. This takes well under a millisecond.
SLICE = 64


class Captured:
    """One log as it was at the boundary."""

    def __init__(self, book: Logbook, overlays_of: set[int] | None) -> None:
        """``overlays_of``: the segments whose overlays are needed even if they did not change; None: all segments."""
        self.book = book
        self.epoch = book.epoch
        self.dropped = book.dropped
        self.state = BookState.of(book)
        self.sealed_last = 0
        self.keep: Keep | None = None
        self.hidden: list[tuple[int, int]] = []
        #: The rows in the tail that are to be sealed, and the number and size of those that are not hidden.
        self.rows = self.live = self.live_size = 0
        self.changed = {run.segment for run in book.runs if run.dirty}
        self.overlays = {
            run.segment: OverlayState.of(run.segment, run.overlay)
            for run in book.runs
            if run.dirty or overlays_of is None or run.segment in overlays_of
        }
        for run in book.runs:
            run.dirty = False
        if 0 < book.volatile_from <= book.assigned:
            self._leave_out_volatile(book)
        if book.tail is not None and book.tail.blocks:
            self._capture_tail(book)

    def _leave_out_volatile(self, book: Logbook) -> None:
        """Mark records that are only in memory as lost in advance: they will not exist after the next start."""
        state, first = self.state, book.volatile_from
        if book.tail is not None:
            visible = book.tail.visible(first, book.assigned, _NoSegments())
            for block, start, end in visible:
                count, size = book.tail.weigh([(block.seq(start), block.seq(end - 1))], _NoSegments())
                state.count -= count
                state.size -= size
        state.gaps = [gap._replace(last=min(gap.last, first - 1)) for gap in state.gaps if gap.first < first]
        state.gaps.append(Gap(first, book.assigned, "lost"))
        if state.earliest >= first:
            state.earliest = book.assigned + 1

    def _capture_tail(self, book: Logbook) -> None:
        tail = book.tail
        assert tail is not None
        tail.join_no_further()
        last = tail.last if not book.volatile_from else min(tail.last, book.volatile_from - 1)
        if tail.first > last:
            return
        self.sealed_last = last
        dead: list[tuple[int, int]] = []
        amended: list[tuple[int, bytes]] = []
        ranges = [(tail.first, last)]
        if tail.overlay is not None:
            dead = list(tail.overlay.dead.overlap(tail.first, last))
            self.hidden = list(tail.overlay.hidden.overlap(tail.first, last))
            amended = [(seq, data) for seq, data in tail.overlay.amended.items() if seq <= last]
            ranges = list(tail.overlay.visible(tail.first, last))
        self.keep = Keep(book.epoch, book.name, max(tail.first, book.earliest), dead, amended)
        self.live, self.live_size = tail.weigh(ranges, _NoSegments())
        self.rows = self.live + tail.weigh(self.hidden, _NoSegments())[0]

    def overlay_of(self, segment: int) -> OverlayState:
        return self.overlays.get(segment) or OverlayState.of(segment, None)

    def add_run(self, sealed: SegmentInfo, info: RunInfo) -> None:
        """Add the run of the sealed tail."""
        self.state.runs.append(run_state(sealed.id, info, self.live, self.live_size))
        if self.hidden:
            self.overlays[sealed.id] = OverlayState(sealed.id, [], self.hidden, [])
            self.changed.add(sealed.id)

    def replace_runs(self, merge: SegmentMerge) -> None:
        """Replace the runs in the merged segments by the merged run, or remove them if no run is left."""
        state = self.state
        involved = [run for run in state.runs if run.segment in merge.ids]
        if not involved:
            return
        at = state.runs.index(involved[0])
        state.runs = [run for run in state.runs if run.segment not in merge.ids]
        info = merge.run_of(self.epoch)
        if info is None or merge.info is None:
            return
        live = sum(run.live for run in involved)
        state.runs.insert(at, run_state(merge.info.id, info, live, sum(run.live_size for run in involved)))
        hidden = [piece for run in involved for piece in self.overlay_of(run.segment).hidden]
        if hidden:
            self.overlays[merge.info.id] = OverlayState(merge.info.id, [], hidden, [])
            self.changed.add(merge.info.id)

    def keep_in(self, merge: SegmentMerge) -> Keep | None:
        """Return the rows that survive a merge, or None if the log has no run in the merged segments."""
        involved = [run for run in self.state.runs if run.segment in merge.ids]
        if self.dropped or not involved:
            return None
        overlays = [self.overlay_of(run.segment) for run in involved]
        dead = [piece for overlay in overlays for piece in overlay.dead]
        amended = [item for overlay in overlays for item in overlay.amended]
        first = max(self.state.earliest, involved[0].first)
        return Keep(self.epoch, self.state.name, first, dead, amended)

    def frames(self, full: bool) -> Iterator[Encoded]:
        """Yield the frames of this log for a checkpoint. A full checkpoint omits dropped logs."""
        if self.dropped:
            if not full:
                yield drop_frame(self.epoch)
            return
        yield state_frame(self.epoch, self.state)
        for run in self.state.runs:
            overlay = self.overlays.get(run.segment)
            if overlay is None:
                continue
            if run.segment in self.changed or (full and overlay.make() is not None):
                yield overlay_frame(self.epoch, overlay)


class _NoSegments:
    """A segment lookup for tails, which need no segments."""

    def segment(self, id: int) -> Segment:
        raise AssertionError

    def load(self, id: int, index: int) -> Block:
        raise AssertionError


class RoundSnapshot:
    """All changed logs as they were at the boundary. Each log is copied before it changes again."""

    def __init__(self, boundary: int, next_epoch: int, last_ts: int, overlays_of: set[int] | None) -> None:
        self.boundary = boundary
        self.next_epoch = next_epoch
        self.last_ts = last_ts
        self._overlays_of = overlays_of
        self.captured: dict[int, Captured] = {}
        self._waiting: set[Logbook] = set()

    def add(self, books: Iterable[Logbook]) -> None:
        self._waiting.update(books)

    def capture_first(self, book: Logbook) -> None:
        if book in self._waiting:
            self._waiting.discard(book)
            self.captured[book.epoch] = Captured(book, self._overlays_of)

    def capture_some(self) -> bool:
        """Capture a few of the logs that have not changed since the boundary. Return whether there are more."""
        for _ in range(min(SLICE, len(self._waiting))):
            book = self._waiting.pop()
            self.captured[book.epoch] = Captured(book, self._overlays_of)
        return bool(self._waiting)

    def take_in(self, sealed: SegmentInfo | None, merges: list[SegmentMerge]) -> None:
        """Record the new runs of tails and merges. Raises DamagedFile if not everything was sealed."""
        runs = {info.epoch: info for info in sealed.runs} if sealed is not None else {}
        for captured in self.captured.values():
            info = runs.get(captured.epoch)
            sealed_rows = 0 if info is None else info.rows
            if not captured.dropped and sealed_rows != captured.rows:
                what = (
                    f"{captured.rows} records of log {captured.state.name!r} should be sealed, "
                    f"but the segment has {sealed_rows}"
                )
                raise DamagedFile("journal", what)
            if info is not None and sealed is not None:
                captured.add_run(sealed, info)
        for captured in self.captured.values():
            for merge in merges:
                captured.replace_runs(merge)

    def frames(self, full: bool) -> Iterator[Encoded]:
        for captured in self.captured.values():
            yield from captured.frames(full)

    def give_up(self) -> set[Logbook]:
        """Cancel the snapshot. Return the logs that still have to be captured: nothing of this snapshot was written."""
        for captured in self.captured.values():
            for run in captured.book.runs:
                run.dirty = run.dirty or run.segment in captured.changed
        return self._waiting | {captured.book for captured in self.captured.values()}


def run_state(segment: int, info: RunInfo, live: int, live_size: int) -> RunState:
    return RunState(
        segment, info.first, info.last, info.row, info.rows, live, live_size,
        info.ts_first, info.ts_last, info.key_first, info.key_last,
    )  # fmt: skip


def install(
    snapshot: RoundSnapshot,
    sealed: SegmentInfo | None,
    merges: list[SegmentMerge],
    segments: Segments,
    lock: AbstractContextManager[object],
) -> None:
    """Install the result of a round, a few logs at a time, so that no thread waits long for the lock."""
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
    """Replace the sealed part of a tail by its run in the segment. Changes made since the boundary are kept."""
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


def _install_merge(captured: Captured, merge: SegmentMerge) -> None:
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
        # The earlier runs were evicted during the merge.
        run.change().dead.add(info.first, involved[0].first - 1)
    book.runs = (*rest[:at], run, *rest[at:])


def _take_over(
    run: Run,
    overlays: list[Overlay],
    dead: list[tuple[int, int]],
    amended: list[tuple[int, bytes]],
    hidden: list[tuple[int, int]],
) -> None:
    """Apply changes to the records of a run, except those already applied when the run was written."""
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
