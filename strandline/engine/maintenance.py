"""Housekeeping: the journal becomes segments, small segments become large ones, old ones move to the cold tier.

One round switches to a new journal file and takes down every changed log as it was at that boundary. Then, while
appends go on, everything before the boundary is sealed into one segment, segments are merged, and the outcome is
written as a checkpoint. Replacing the manifest makes all of it true at once; only then do files go.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Protocol

import msgspec

from strandline.engine.block import Block
from strandline.engine.catalog import (
    CHECKPOINTS,
    BookState,
    Manifest,
    OverlayState,
    RunState,
    SegmentEntry,
    checkpoint_path,
    drop_frame,
    manifest_frame,
    overlay_frame,
    state_frame,
    write_checkpoint,
    write_manifest,
)  # fmt: skip
from strandline.engine.damaged import put_aside
from strandline.engine.errors import DamagedFile, EngineError
from strandline.engine.footer import RunInfo, SegmentInfo
from strandline.engine.frame import Encoded
from strandline.engine.journal import journal_indexes, journal_path
from strandline.engine.logbook import Gap, Logbook
from strandline.engine.parts import Overlay, Run
from strandline.engine.sealing import Keep, MergeJob, SealJob
from strandline.engine.sealing import run as run_here
from strandline.engine.segment import Segment
from strandline.engine.store import segment_path

if TYPE_CHECKING:
    from strandline.engine.engine import Engine
    from strandline.engine.recovery import Recovered

#: So many neighbouring segments of like size are merged into one.
MERGE_SEGMENTS = 4
#: A segment of which less than this part is live is written anew without the rest.
MIN_LIVE = 0.5
#: Every restart begins a journal file; so many small ones are sealed even if they hold little.
MAX_JOURNAL_FILES = 16
#: Logs that are dealt with in one go while the engine's lock is held: well under a millisecond.
SLICE = 64

log = logging.getLogger(__name__)


class Runner(Protocol):
    """Carries out a sealing or merging job: the worker process, or this very thread."""

    def run(self, job: SealJob | MergeJob) -> SegmentInfo | None: ...

    def close(self) -> None: ...


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
        self.live = self.live_size = 0
        self.changed = {run.segment for run in book.runs if run.dirty}
        self.overlays = {
            run.segment: OverlayState.of(run.segment, run.overlay)
            for run in book.runs
            if run.dirty or overlays_of is None or run.segment in overlays_of
        }
        for run in book.runs:
            run.dirty = False
        if book.volatile_from:
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

    def overlay_of(self, segment: int) -> OverlayState:
        return self.overlays.get(segment) or OverlayState.of(segment, None)


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

    def give_up(self) -> set[Logbook]:
        """Nothing of this was written down: all of it is still to be done."""
        for captured in self.captured.values():
            for run in captured.book.runs:
                run.dirty = run.dirty or run.segment in captured.changed
        return self._waiting | {captured.book for captured in self.captured.values()}


class Merge:
    """Neighbouring segments that become one."""

    def __init__(self, sources: list[SegmentEntry]) -> None:
        self.sources = sources
        self.ids = {entry.id for entry in sources}
        self.info: SegmentInfo | None = None


class Maintenance:
    def __init__(self, engine: Engine, recovered: Recovered, worker: Runner | None) -> None:
        self._engine = engine
        self._manifest: Manifest = recovered.manifest
        self._runner: Runner = worker or _InThisThread(engine)
        self._replayed_bytes = recovered.replayed_bytes
        self._checkpoint_sizes = {
            name: engine.disk.size(checkpoint_path(name)) for name in recovered.manifest.checkpoints
        }
        #: What went wrong in the last round, None when it went well. Nothing is lost by it; it is tried again.
        self.failure: Exception | None = None
        self._files = len(journal_indexes(engine.disk))
        self._kept_journals: list[tuple[int, int]] = [(engine.now(), index) for index in recovered.kept_journals]
        self._damaged_journals = set(recovered.damaged_journals)
        self._unreadable_journals = set(recovered.unreadable_journals)
        #: How many logs have a run in each segment, by what is written down.
        self._uses = recovered.uses
        #: Segments in which something was deleted since they were last looked at.
        self._worn: set[int] = set()
        #: Segments that were found damaged; a restart looks at them again.
        self._unreadable: set[int] = set()

    def unsealed_bytes(self) -> int:
        return self._replayed_bytes + self._engine.journal.size

    @property
    def due(self) -> bool:
        return self.unsealed_bytes() >= self._engine.options.journal_bytes or self._files >= MAX_JOURNAL_FILES

    @property
    def manifest(self) -> Manifest:
        return self._manifest

    def close(self) -> None:
        self._runner.close()

    def run(self, everything: bool = False) -> bool:
        """One round, if one is due. A round that fails leaves everything as it was."""
        try:
            if not self._engine.writable or not (everything or self.due or self._wanted_merges()):
                return self._relocate()
            self._round()
            self._relocate()
            self.failure = None
        except (EngineError, OSError) as error:
            self.failure = error
            log.error("housekeeping failed and will be tried again: %s", error)
            if everything:
                raise
        return True

    # --- one round -----------------------------------------------------------------------------------------

    def _round(self) -> None:
        engine = self._engine
        merges = self._wanted_merges()
        full = self._wants_full_checkpoint()
        merging = list(self._books_in(merges))

        def begin() -> Snapshot:
            overlays_of = None if full else set[int]().union(*(merge.ids for merge in merges))
            snapshot = Snapshot(engine.journal.index, engine.next_epoch, engine.now(), overlays_of)
            snapshot.add(book for book in merging if not book.dropped)
            if full:
                snapshot.add(engine.by_epoch.values())
            return snapshot

        snapshot = engine.begin_snapshot(begin)
        done = False
        try:
            self._capture_all(snapshot)
            sealed = self._seal(snapshot)
            merges = [merge for merge in merges if self._can_merge(merge, snapshot)]
            manifest = self._write(snapshot, sealed, merges, full)
            done = True
        finally:
            engine.end_snapshot(None if done else snapshot)
        self._install(snapshot, sealed, merges)
        self._clean_up(manifest)

    def _capture_all(self, snapshot: Snapshot) -> None:
        more = True
        while more:
            with self._engine.lock:
                more = snapshot.capture_some()

    def _seal(self, snapshot: Snapshot) -> SegmentInfo | None:
        keep = [c.keep for c in snapshot.captured.values() if c.keep is not None and not c.dropped]
        journals = [
            journal_path(index)
            for index in journal_indexes(self._engine.disk)
            if self._manifest.boundary <= index < snapshot.boundary and index not in self._unreadable_journals
        ]
        if not keep or not journals:
            return None
        return self._run(lambda id: SealJob(id, segment_path(id), journals, keep))

    def _can_merge(self, merge: Merge, snapshot: Snapshot) -> bool:
        """Merge. Damaged segments stay as they are: what is wrong with one must not hold up everything else."""
        try:
            merge.info = self._merge(merge, snapshot)
        except DamagedFile as error:
            self._unreadable.update(entry.id for entry in merge.sources if segment_path(entry.id) == error.path)
            self._unreadable.update(merge.ids if not merge.ids & self._unreadable else ())
            log.error("segments %s are not merged: %s", sorted(merge.ids), error)
            return False
        return True

    def _merge(self, merge: Merge, snapshot: Snapshot) -> SegmentInfo | None:
        keep = []
        for captured in snapshot.captured.values():
            if captured.dropped:
                continue
            involved = [run for run in captured.state.runs if run.segment in merge.ids]
            if involved:
                overlays = [captured.overlay_of(run.segment) for run in involved]
                dead = [piece for overlay in overlays for piece in overlay.dead]
                amended = [item for overlay in overlays for item in overlay.amended]
                first = max(captured.state.earliest, involved[0].first)
                keep.append(Keep(captured.epoch, captured.state.name, first, dead, amended))
        if not keep:
            return None
        sources = [(segment_path(entry.id), entry.id, entry.size, entry.edges) for entry in merge.sources]
        return self._run(lambda id: MergeJob(id, segment_path(id), sources, keep))

    def _run(self, job_for: Callable[[int], SealJob | MergeJob]) -> SegmentInfo | None:
        id = self._manifest.next_segment
        self._manifest.next_segment += 1
        return self._runner.run(job_for(id))

    def _write(self, snapshot: Snapshot, sealed: SegmentInfo | None, merges: list[Merge], full: bool) -> Manifest:
        """Checkpoint and manifest. When the manifest is in place, the round has happened."""
        engine, old = self._engine, self._manifest
        if sealed is not None:
            self._add_runs(snapshot, sealed)
        for merge in merges:
            self._replace_runs(snapshot, merge)
        # A number is used once, even if this comes to nothing: an unsynced manifest may name the file already.
        number = old.next_checkpoint
        old.next_checkpoint += 1
        name = f"{number:08d}.{'full' if full else 'changes'}"
        uses = self._uses_after(snapshot)
        segments = [entry for entry in self._segments_after(old.segments, sealed, merges) if uses[entry.id] > 0]
        manifest = Manifest(
            id=old.id,
            boundary=snapshot.boundary,
            checkpoints=[name] if full else [*old.checkpoints, name],
            segments=segments,
            next_segment=old.next_segment,
            next_checkpoint=old.next_checkpoint,
            next_epoch=snapshot.next_epoch,
            last_ts=snapshot.last_ts,
        )
        frames = chain([manifest_frame(manifest)], self._frames(snapshot, full))
        size = write_checkpoint(engine.disk, name, number, frames)
        write_manifest(engine.disk, manifest)
        self._checkpoint_sizes = {} if full else self._checkpoint_sizes
        self._checkpoint_sizes[name] = size
        self._uses = uses
        for captured in snapshot.captured.values():
            captured.book.filed_in = tuple(run.segment for run in captured.state.runs)
            self._worn |= captured.changed
        for info in [sealed, *(merge.info for merge in merges)]:
            if info is not None:
                engine.store.add(info, "hot")
        self._manifest = manifest
        return manifest

    def _uses_after(self, snapshot: Snapshot) -> Counter[int]:
        """How many logs, by what is written down, have a run in each segment. One with none can go."""
        uses = self._uses.copy()
        for captured in snapshot.captured.values():
            uses.subtract(captured.book.filed_in)
            if not captured.dropped:
                uses.update(run.segment for run in captured.state.runs)
        return uses

    @staticmethod
    def _segments_after(
        old: list[SegmentEntry], sealed: SegmentInfo | None, merges: list[Merge]
    ) -> Iterator[SegmentEntry]:
        by_first_source = {merge.sources[0].id: merge for merge in merges}
        merged = set[int]().union(*(merge.ids for merge in merges))
        for entry in old:
            merge = by_first_source.get(entry.id)
            if merge is not None and merge.info is not None:
                yield _entry(merge.info)
            if entry.id not in merged:
                yield entry
        if sealed is not None:
            yield _entry(sealed)

    @staticmethod
    def _add_runs(snapshot: Snapshot, sealed: SegmentInfo) -> None:
        for info in sealed.runs:
            captured = snapshot.captured[info.epoch]
            captured.state.runs.append(_run_state(sealed.id, info, captured.live, captured.live_size))
            if captured.hidden:
                captured.overlays[sealed.id] = OverlayState(sealed.id, [], captured.hidden, [])
                captured.changed.add(sealed.id)

    @staticmethod
    def _replace_runs(snapshot: Snapshot, merge: Merge) -> None:
        infos = {info.epoch: info for info in merge.info.runs} if merge.info is not None else {}
        for captured in snapshot.captured.values():
            state = captured.state
            involved = [run for run in state.runs if run.segment in merge.ids]
            if not involved:
                continue
            at = state.runs.index(involved[0])
            state.runs = [run for run in state.runs if run.segment not in merge.ids]
            info = infos.get(captured.epoch)
            if info is None or merge.info is None:
                continue
            live = sum(run.live for run in involved)
            state.runs.insert(at, _run_state(merge.info.id, info, live, sum(run.live_size for run in involved)))
            hidden = [piece for run in involved for piece in captured.overlay_of(run.segment).hidden]
            if hidden:
                captured.overlays[merge.info.id] = OverlayState(merge.info.id, [], hidden, [])
                captured.changed.add(merge.info.id)

    @staticmethod
    def _frames(snapshot: Snapshot, full: bool) -> Iterator[Encoded]:
        for captured in snapshot.captured.values():
            if captured.dropped:
                if not full:
                    yield drop_frame(captured.epoch)
                continue
            yield state_frame(captured.epoch, captured.state)
            for run in captured.state.runs:
                overlay = captured.overlays.get(run.segment)
                if overlay is None:
                    continue
                if run.segment in captured.changed or (full and overlay.make() is not None):
                    yield overlay_frame(captured.epoch, overlay)

    # --- making it true in memory --------------------------------------------------------------------------

    def _install(self, snapshot: Snapshot, sealed: SegmentInfo | None, merges: list[Merge]) -> None:
        infos = {info.epoch: info for info in sealed.runs} if sealed is not None else {}
        everyone = list(snapshot.captured.values())
        for start in range(0, len(everyone), SLICE):
            with self._engine.lock:
                for captured in everyone[start : start + SLICE]:
                    if captured.book.dropped:
                        continue
                    for merge in merges:
                        self._install_merge(captured, merge)
                    if captured.sealed_last:
                        self._install_run(captured, sealed, infos.get(captured.epoch))

    def _install_run(self, captured: Captured, sealed: SegmentInfo | None, info: RunInfo | None) -> None:
        """Replace the sealed part of a tail by the run in the segment. Changes made since the boundary stay."""
        book = captured.book
        tail = book.tail
        if tail is None:
            return
        if info is not None and sealed is not None and info.last >= book.earliest:
            live, live_size = tail.weigh(
                [(info.first, info.last)]
                if tail.overlay is None
                else list(tail.overlay.visible(info.first, info.last)),
                self._engine.store,
            )
            run = _run_state(sealed.id, info, live, live_size).make()
            if tail.overlay is not None:
                assert captured.keep is not None
                _take_over(run, [tail.overlay], captured.keep.dead, captured.keep.amended, captured.hidden)
            if info.first < book.earliest:
                run.change().dead.add(info.first, book.earliest - 1)
            book.runs = (*book.runs, run)
        tail.cut(captured.sealed_last)
        if not tail.blocks:
            book.tail = None

    def _install_merge(self, captured: Captured, merge: Merge) -> None:
        book = captured.book
        involved = [run for run in book.runs if run.segment in merge.ids]
        if not involved:
            return
        at = book.runs.index(involved[0])
        rest = tuple(run for run in book.runs if run.segment not in merge.ids)
        info = None
        if merge.info is not None:
            found = bisect_right(merge.info.runs, book.name, key=lambda known: known.name) - 1
            if found >= 0 and merge.info.runs[found].epoch == book.epoch:
                info = merge.info.runs[found]
        if info is None or merge.info is None or info.last < book.earliest:
            book.runs = rest
            return
        live, live_size = sum(run.live for run in involved), sum(run.live_size for run in involved)
        run = _run_state(merge.info.id, info, live, live_size).make()
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

    # --- tidying up ----------------------------------------------------------------------------------------

    def _clean_up(self, manifest: Manifest) -> None:
        engine = self._engine
        known = {entry.id for entry in manifest.segments}
        for id in engine.store.ids():
            if id not in known:
                engine.store.forget(id)
                engine.store.drop(id)
        for name in engine.disk.list(CHECKPOINTS):
            if name not in manifest.checkpoints:
                engine.disk.remove(checkpoint_path(name))
        self._remove_journals(manifest.boundary)
        self._replayed_bytes = 0

    def _remove_journals(self, boundary: int) -> None:
        engine = self._engine
        now = engine.now()
        kept = {index for _, index in self._kept_journals}
        indexes = journal_indexes(engine.disk)
        for index in [index for index in indexes if index < boundary and index in self._damaged_journals]:
            put_aside(engine.disk, journal_path(index))
            indexes.remove(index)
        self._kept_journals += [(now, index) for index in indexes if index < boundary and index not in kept]
        oldest = now - engine.options.keep_journal_ms
        for since, index in list(self._kept_journals):
            if since <= oldest:
                engine.disk.remove(journal_path(index))
                self._kept_journals.remove((since, index))
        self._files = len([index for index in indexes if index >= boundary])

    # --- what is worth doing -------------------------------------------------------------------------------

    def _wants_full_checkpoint(self) -> bool:
        """Changes are written until together they outgrow the complete one under them."""
        sizes = list(self._checkpoint_sizes.values())
        return not sizes or sum(sizes[1:]) > max(sizes[0], 1 << 16)

    def _books_in(self, merges: list[Merge]) -> Iterator[Logbook]:
        for merge in merges:
            for entry in merge.sources:
                for info in self._engine.store.segment(entry.id).runs:
                    book = self._engine.by_epoch.get(info.epoch)
                    if book is not None:
                        yield book

    def _wanted_merges(self) -> list[Merge]:
        merges = [Merge([entry]) for entry in self._manifest.segments if self._is_worn_out(entry)]
        alone = {merge.sources[0].id for merge in merges}
        group: list[SegmentEntry] = []
        for entry in self._manifest.segments:
            if entry.tier == "cold" or entry.id in alone or entry.id in self._unreadable:
                group = []
                continue
            if group and _level(entry) != _level(group[0]):
                group = []
            group.append(entry)
            if len(group) == MERGE_SEGMENTS:
                small = sum(member.size for member in group) <= self._engine.options.segment_bytes
                if small and all(map(self._is_readable, group)):
                    merges.append(Merge(group))
                group = []
        return merges

    def _is_readable(self, entry: SegmentEntry) -> bool:
        if entry.id not in self._unreadable:
            try:
                self._engine.store.segment(entry.id)
            except DamagedFile as error:
                self._unreadable.add(entry.id)
                log.error("%s", error)
        return entry.id not in self._unreadable

    def _is_worn_out(self, entry: SegmentEntry) -> bool:
        """Whether so much of a segment was deleted that it is worth writing anew."""
        if entry.id not in self._worn or entry.tier == "cold":
            return False
        if not self._is_readable(entry):
            return False
        live = 0
        for info in self._engine.store.segment(entry.id).runs:
            book = self._engine.by_epoch.get(info.epoch)
            for run in book.runs if book is not None else ():
                if run.segment == entry.id:
                    live += run.live if run.overlay is None or not run.overlay.hidden else run.rows
        if live < entry.rows * MIN_LIVE:
            return True
        self._worn.discard(entry.id)
        return False

    # --- the cold tier -------------------------------------------------------------------------------------

    def _relocate(self) -> bool:
        """Copy the oldest segments to the cold tier, note it in the manifest, then remove them here."""
        engine, options = self._engine, self._engine.options
        if not engine.store.has_cold_tier or not engine.writable:
            return False
        hot = [entry for entry in self._manifest.segments if entry.tier == "hot"]
        keep = 0
        size = 0
        for entry in reversed(hot):
            size += entry.size
            if keep >= options.hot_segments or (options.hot_bytes and size > options.hot_bytes):
                break
            keep += 1
        moving = {entry.id for entry in hot[: len(hot) - keep] if self._is_readable(entry)}
        if not moving:
            return False
        for id in moving:
            engine.store.relocate(id)
        segments = [
            SegmentEntry(e.id, e.size, e.edges, e.rows, "cold") if e.id in moving else e
            for e in self._manifest.segments
        ]
        manifest = msgspec.structs.replace(self._manifest, segments=segments)
        write_manifest(engine.disk, manifest)
        self._manifest = manifest
        for id in moving:
            engine.store.mark_cold(id)
        return True


class _InThisThread:
    """Does the worker's work without a process: for tests, and where processes cannot be had."""

    def __init__(self, engine: Engine) -> None:
        self._disk = engine.disk

    def run(self, job: SealJob | MergeJob) -> SegmentInfo | None:
        return run_here(self._disk, job)

    def close(self) -> None:
        pass


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


def _run_state(segment: int, info: RunInfo, live: int, live_size: int) -> RunState:
    return RunState(
        segment, info.first, info.last, info.row, info.rows, live, live_size,
        info.ts_first, info.ts_last, info.key_first, info.key_last,
    )  # fmt: skip


def _entry(info: SegmentInfo) -> SegmentEntry:
    return SegmentEntry(info.id, info.size, info.edges, info.rows)


def _level(entry: SegmentEntry) -> int:
    """Segments up to 1 MiB are on level 0, up to 4 MiB on level 1, and so on."""
    return ((entry.size >> 20).bit_length() + 1) // 2
