"""Housekeeping: the journal becomes segments, small segments become large ones, old ones move to the cold tier.

One round switches to a new journal file and takes down every changed log as it was at that boundary. Then, while
appends go on, everything before the boundary is sealed into one segment, segments are merged, and the outcome is
written as a checkpoint. Replacing the manifest makes all of it true at once; only then do files go.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain
from threading import Lock
from typing import TYPE_CHECKING, Protocol

import msgspec

from strandline.engine.care.damaged import put_aside
from strandline.engine.catalog import (
    CHECKPOINTS,
    JournalEntry,
    Manifest,
    SegmentEntry,
    checkpoint_path,
    manifest_frame,
    write_checkpoint,
    write_manifest,
)
from strandline.engine.errors import DamagedFile, EngineError
from strandline.engine.housekeeping.installing import install
from strandline.engine.housekeeping.memory import give_back
from strandline.engine.housekeeping.merging import Merge, Merging
from strandline.engine.housekeeping.snapshot import Snapshot
from strandline.engine.journal import journal_indexes, journal_path
from strandline.engine.segments.footer import SegmentInfo
from strandline.engine.segments.sealing import MergeJob, SealJob
from strandline.engine.segments.sealing import run as run_here
from strandline.engine.segments.store import segment_path

if TYPE_CHECKING:
    from strandline.engine.engine import Engine
    from strandline.engine.replay import Recovered

#: Every restart begins a journal file; so many small ones are sealed even if they hold little.
MAX_JOURNAL_FILES = 16
#: Forwarded records are in the journal once and in the tails of many logs: sealed at so many times a journal's size.
MAX_COPIED = 4

log = logging.getLogger(__name__)


class Runner(Protocol):
    """Carries out a sealing or merging job: the worker process, or this very thread."""

    def run(self, job: SealJob | MergeJob) -> SegmentInfo | None: ...

    def close(self) -> None: ...


class Maintenance:
    def __init__(self, engine: Engine, recovered: Recovered, worker: Runner | None) -> None:
        self._engine = engine
        self._manifest: Manifest = recovered.manifest
        #: The journal files from the boundary on to which nothing more is added.
        self._closed_journals = recovered.journals
        self._runner: Runner = worker or _InThisThread(engine)
        self._replayed_bytes = recovered.replayed_bytes
        self._replayed_copies = recovered.copied_bytes
        self._checkpoint_sizes = {
            name: engine.disk.size(checkpoint_path(name)) for name in recovered.manifest.checkpoints
        }
        #: What went wrong in the last round, None when it went well. Nothing is lost by it; it is tried again.
        self.failure: Exception | None = None
        #: A round failed and is to be tried again.
        self._unfinished = False
        self._files = len(journal_indexes(engine.disk))
        self._kept_journals: list[tuple[int, int]] = [(engine.now(), index) for index in recovered.kept_journals]
        self._damaged_journals = set(recovered.damaged_journals)
        self._unreadable_journals = set(recovered.unreadable_journals)
        #: How many logs have a run in each segment, by what is written down.
        self._uses = recovered.uses
        self._merging = Merging(engine.store, engine.by_epoch, engine.options.segment_bytes)
        #: One round at a time, whoever asks for it.
        self._turn = Lock()

    def unsealed_bytes(self) -> int:
        return self._replayed_bytes + self._engine.journal.size

    @property
    def due(self) -> bool:
        limit = self._engine.options.journal_bytes
        return (
            self._unfinished
            or self.unsealed_bytes() >= limit
            or self._replayed_copies + self._engine.journal.copied >= MAX_COPIED * limit
            or self._files >= MAX_JOURNAL_FILES
        )

    @property
    def manifest(self) -> Manifest:
        return self._manifest

    def close(self) -> None:
        self._runner.close()

    def run(self, everything: bool = False) -> bool:
        """One round, if one is due. A round that fails leaves everything as it was.

        Errors are logged, and raised only if ``everything`` was to be sealed.
        """
        try:
            return self.attempt(everything)
        except (EngineError, OSError) as error:
            log.error("housekeeping failed and will be tried again: %s", error)
            if everything:
                raise
            return True

    def attempt(self, everything: bool = False) -> bool:
        """As ``run``, but an error is always raised, and never logged."""
        with self._turn:
            try:
                merges = self._merging.wanted(self._manifest.segments)
                if not self._engine.writable or not (everything or self.due or merges):
                    return self._relocate()
                # The journal goes on in a new file even if the round fails: its size no longer says that one is due.
                self._unfinished = True
                self._round(merges)
                self._unfinished = False
                self._relocate()
                self.failure = None
            except Exception as error:
                self.failure = error
                raise
            return True

    # --- which journal files there are ---------------------------------------------------------------------

    def name_journals(self, *further: JournalEntry) -> None:
        """Write down in the manifest which journal files there are: those so far, the one in use, and ``further``."""
        journal = self._engine.journal
        journals = [*self._closed_journals, JournalEntry(journal.index), *further]
        if journals != self._manifest.journals:
            manifest = msgspec.structs.replace(self._manifest, journals=journals)
            write_manifest(self._engine.disk, manifest)
            self._manifest = manifest

    def note_stop(self) -> None:
        """Everything is flushed: write down where the journal ends, so that it is noticed if it is cut off later."""
        journal = self._engine.journal
        try:
            with self._turn:
                journals = [*self._closed_journals, JournalEntry(journal.index, journal.size)]
                write_manifest(self._engine.disk, msgspec.structs.replace(self._manifest, journals=journals))
        except OSError as error:
            log.warning("the final size of the journal could not be written to the manifest: %s", error)

    def _rotate(self, begin: Callable[[], Snapshot]) -> Snapshot:
        """Go on in a new journal file, which the manifest names before anything is written to it."""
        engine = self._engine
        left = engine.journal.index
        engine.journal.prepare()
        self.name_journals(JournalEntry(left + 1))
        snapshot = engine.begin_snapshot(begin)
        self._closed_journals = [*self._closed_journals, JournalEntry(left, engine.journal.left_size)]
        return snapshot

    # --- one round -----------------------------------------------------------------------------------------

    def _round(self, merges: list[Merge]) -> None:
        engine = self._engine
        full = self._wants_full_checkpoint()
        merging = list(self._merging.books_in(merges))

        def begin() -> Snapshot:
            overlays_of = None if full else set[int]().union(*(merge.ids for merge in merges))
            snapshot = Snapshot(engine.journal.index, engine.next_epoch, engine.now(), overlays_of)
            snapshot.add(book for book in merging if not book.dropped)
            if full:
                snapshot.add(engine.by_epoch.values())
            return snapshot

        snapshot = self._rotate(begin)
        done = False
        try:
            # Sealing takes its time; until it is done, the file that was left is needed whole.
            self.name_journals()
            self._capture_all(snapshot)
            sealed = self._seal(snapshot)
            merges = [merge for merge in merges if self._merge(merge, snapshot)]
            manifest = self._write(snapshot, sealed, merges, full)
            done = True
        finally:
            engine.end_snapshot(None if done else snapshot)
        install(snapshot, sealed, merges, engine.store, engine.lock)
        give_back()
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

    def _merge(self, merge: Merge, snapshot: Snapshot) -> bool:
        """Tells whether it could be done."""
        kept = (captured.keep_in(merge) for captured in snapshot.captured.values())
        keep = [what for what in kept if what is not None]
        sources = [(segment_path(entry.id), entry.id, entry.size, entry.edges) for entry in merge.sources]
        try:
            merge.done(self._run(lambda id: MergeJob(id, segment_path(id), sources, keep)) if keep else None)
        except DamagedFile as error:
            self._merging.failed(merge, error)
            return False
        return True

    def _run(self, job_for: Callable[[int], SealJob | MergeJob]) -> SegmentInfo | None:
        id = self._manifest.next_segment
        self._manifest.next_segment += 1
        return self._runner.run(job_for(id))

    def _write(self, snapshot: Snapshot, sealed: SegmentInfo | None, merges: list[Merge], full: bool) -> Manifest:
        """Checkpoint and manifest. When the manifest is in place, the round has happened."""
        engine, old = self._engine, self._manifest
        snapshot.take_in(sealed, merges)
        # A number is used once, even if this comes to nothing: an unsynced manifest may name the file already.
        number = old.next_checkpoint
        old.next_checkpoint += 1
        name = f"{number:08d}.{'full' if full else 'changes'}"
        uses = self._uses_after(snapshot)
        segments = [entry for entry in self._segments_after(old.segments, sealed, merges) if uses[entry.id] > 0]
        manifest = Manifest(
            id=old.id,
            boundary=snapshot.boundary,
            journals=[JournalEntry(snapshot.boundary)],
            checkpoints=[name] if full else [*old.checkpoints, name],
            segments=segments,
            next_segment=old.next_segment,
            next_checkpoint=old.next_checkpoint,
            next_epoch=snapshot.next_epoch,
            last_ts=snapshot.last_ts,
        )
        frames = chain([manifest_frame(manifest)], snapshot.frames(full))
        size = write_checkpoint(engine.disk, name, number, frames)
        write_manifest(engine.disk, manifest)
        self._checkpoint_sizes = {} if full else self._checkpoint_sizes
        self._checkpoint_sizes[name] = size
        self._uses = uses
        for captured in snapshot.captured.values():
            captured.book.filed_in = tuple(run.segment for run in captured.state.runs)
            self._merging.worn |= captured.changed
        for info in [sealed, *(merge.info for merge in merges)]:
            if info is not None:
                engine.store.add(info, "hot")
        self._manifest = manifest
        self._closed_journals = []
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
        self._replayed_bytes = self._replayed_copies = 0

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

    def _wants_full_checkpoint(self) -> bool:
        """Changes are written until together they outgrow the complete one under them."""
        sizes = list(self._checkpoint_sizes.values())
        return not sizes or sum(sizes[1:]) > max(sizes[0], 1 << 16)

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
        moving = {entry.id for entry in hot[: len(hot) - keep] if self._merging.is_readable(entry)}
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


def _entry(info: SegmentInfo) -> SegmentEntry:
    return SegmentEntry(info.id, info.size, info.edges, info.rows)
