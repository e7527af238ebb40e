"""A snapshot: every changed log as it was at the boundary, while the logs themselves go on changing.

A log is taken down right before it changes for the first time after the boundary, or by the housekeeper when it
gets to it. What the round then makes of it (a new run, a merged one) is noted here, and written as a checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from strandline.engine.errors import DamagedFile
from strandline.engine.housekeeping.merges import Merge
from strandline.engine.journal.frame import Encoded
from strandline.engine.segments.footer import RunInfo, SegmentInfo
from strandline.engine.segments.jobs import Keep
from strandline.engine.segments.segment import Segment
from strandline.engine.state.block import Block
from strandline.engine.state.checkpoints import (
    BookState,
    OverlayState,
    RunState,
    drop_frame,
    overlay_frame,
    state_frame,
)
from strandline.engine.state.logbook import Gap, Logbook

#: Logs that are dealt with in one go while the engine's lock is held: well under a millisecond.
SLICE = 64


class Captured:
    """One log as it was at the boundary."""

    def __init__(self, book: Logbook, overlays_of: set[int] | None) -> None:
        """``overlays_of``: the segments whose overlays are needed even if they did not change; None: all."""
        self.book = book
        self.epoch = book.epoch
        self.dropped = book.dropped
        self.state = BookState.of(book)
        self.sealed_last = 0
        self.keep: Keep | None = None
        self.hidden: list[tuple[int, int]] = []
        #: What is in its tail: rows to be sealed, and how many of them are not hidden.
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
        """Records that are in memory only will be gone at the next start; say so in advance."""
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
        """Its tail was sealed."""
        self.state.runs.append(run_state(sealed.id, info, self.live, self.live_size))
        if self.hidden:
            self.overlays[sealed.id] = OverlayState(sealed.id, [], self.hidden, [])
            self.changed.add(sealed.id)

    def replace_runs(self, merge: Merge) -> None:
        """Its runs in the merged segments are one now, or none."""
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

    def keep_in(self, merge: Merge) -> Keep | None:
        """What of it survives a merge; None when it has no run there."""
        involved = [run for run in self.state.runs if run.segment in merge.ids]
        if self.dropped or not involved:
            return None
        overlays = [self.overlay_of(run.segment) for run in involved]
        dead = [piece for overlay in overlays for piece in overlay.dead]
        amended = [item for overlay in overlays for item in overlay.amended]
        first = max(self.state.earliest, involved[0].first)
        return Keep(self.epoch, self.state.name, first, dead, amended)

    def frames(self, full: bool) -> Iterator[Encoded]:
        """What a checkpoint says of it; a full one says nothing of logs that are gone."""
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
    """A tail needs none."""

    def segment(self, id: int) -> Segment:
        raise AssertionError

    def load(self, id: int, index: int) -> Block:
        raise AssertionError


class Snapshot:
    """All changed logs as they were at the boundary, taken down one by one: each before it changes again."""

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
        """Take down a few of those that nobody has touched since; tells whether there are more."""
        for _ in range(min(SLICE, len(self._waiting))):
            book = self._waiting.pop()
            self.captured[book.epoch] = Captured(book, self._overlays_of)
        return bool(self._waiting)

    def take_in(self, sealed: SegmentInfo | None, merges: list[Merge]) -> None:
        """Note what became of tails and runs. Raises DamagedFile when not everything that was to be sealed is."""
        runs = {info.epoch: info for info in sealed.runs} if sealed is not None else {}
        for captured in self.captured.values():
            info = runs.get(captured.epoch)
            sealed_rows = 0 if info is None else info.rows
            if not captured.dropped and sealed_rows != captured.rows:
                what = (
                    f"{captured.rows} records of log {captured.state.name!r} were to be sealed, {sealed_rows} are there"
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
        """Nothing of this was written down: all of it is still to be done."""
        for captured in self.captured.values():
            for run in captured.book.runs:
                run.dirty = run.dirty or run.segment in captured.changed
        return self._waiting | {captured.book for captured in self.captured.values()}


def run_state(segment: int, info: RunInfo, live: int, live_size: int) -> RunState:
    return RunState(
        segment, info.first, info.last, info.row, info.rows, live, live_size,
        info.ts_first, info.ts_last, info.key_first, info.key_last,
    )  # fmt: skip
