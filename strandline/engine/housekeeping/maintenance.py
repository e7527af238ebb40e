"""Housekeeping: the journal becomes segments, small segments are merged, old segments move to the cold tier."""

from __future__ import annotations

import errno
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain
from threading import Lock, RLock
from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec

from strandline.engine.disk import Disk
from strandline.engine.errors import DamagedFile, EngineError
from strandline.engine.file_names import put_aside
from strandline.engine.housekeeping.round import MergePolicy, RoundSnapshot, SegmentMerge, install
from strandline.engine.journal.backlog import MAX_COPIED, ROUND_SHARE
from strandline.engine.journal.file import journal_indexes, journal_path
from strandline.engine.process import give_back
from strandline.engine.segments.footer import SegmentInfo
from strandline.engine.segments.jobs import MergeJob, SealJob
from strandline.engine.segments.jobs import run as run_here
from strandline.engine.segments.store import segment_path
from strandline.engine.state.checkpoints import (
    CHECKPOINTS,
    JournalEntry,
    Manifest,
    SegmentEntry,
    checkpoint_path,
    manifest_frame,
    write_checkpoint,
    write_manifest,
)
from strandline.spans import background, part

if TYPE_CHECKING:
    from strandline.engine.engine import Engine
    from strandline.engine.journal.replay import Recovered


#: Every restart begins a journal file. This number of small files is sealed even if they hold little.
MAX_JOURNAL_FILES = 16

T = TypeVar("T")

log = logging.getLogger(__name__)


class Runner(Protocol):
    """Runs a sealing or merging job in the worker process or in the calling thread."""

    def run(self, job: SealJob | MergeJob) -> SegmentInfo | None: ...

    def close(self) -> None: ...


class Maintenance:
    def __init__(self, engine: Engine, recovered: Recovered, worker: Runner | None) -> None:
        self._engine = engine
        self._manifest: Manifest = recovered.manifest
        #: The closed journal files from the boundary on.
        self._closed_journals = recovered.journals
        self._runner: Runner = worker or InThisThread(engine.disk)
        #: The size at which a journal file is full. A full file starts a round, or only the next file if a round is in
        #: progress.
        self.file_bytes = min(engine.options.journal_bytes, max(engine.backlog.budget // ROUND_SHARE, 1))
        self._checkpoint_sizes = {
            name: engine.disk.size(checkpoint_path(name)) for name in recovered.manifest.checkpoints
        }
        #: The error of the last round, or None if it succeeded. A failed round loses nothing and is retried.
        self.failure: Exception | None = None
        #: Whether a round failed and must be retried.
        self._unfinished = False
        self._files = len(journal_indexes(engine.disk))
        self._kept_journals: list[tuple[int, int]] = [(engine.now(), index) for index in recovered.kept_journals]
        self._damaged_journals = set(recovered.damaged_journals)
        self._unreadable_journals = set(recovered.unreadable_journals)
        #: The number of logs with a run in each segment, as of the last checkpoint.
        self._uses = recovered.uses
        self._merging = MergePolicy(engine.store, engine.by_epoch, engine.options.segment_bytes)
        #: Only one round runs at a time.
        self._turn = Lock()
        #: Guards the manifest and the list of journal files, which also change during a round. Take it before the
        #: engine's locks.
        self._files_lock = RLock()
        #: The number of successful rounds, and the journal bytes that the last one sealed.
        self.rounds = 0
        self.round_bytes = 0

    @property
    def due(self) -> bool:
        limit, backlog = self.file_bytes, self._engine.backlog
        return (
            self._unfinished
            or backlog.size >= limit
            or backlog.copied >= MAX_COPIED * limit
            or backlog.round_wanted
            or self._files >= MAX_JOURNAL_FILES
        )

    @property
    def file_is_full(self) -> bool:
        """Return whether there is a full journal file that no round has taken yet."""
        return self._engine.journal.size >= self.file_bytes

    @property
    def manifest(self) -> Manifest:
        return self._manifest

    def follow(self, manifest: Manifest) -> None:
        """Note the manifest of the leader that this engine follows."""
        self._manifest = manifest

    def close(self) -> None:
        """Cancel the current job and start no other. An unfinished round changes nothing."""
        self._runner.close()

    def run(self, everything: bool = False) -> bool:
        """Run one round if one is due. A failed round changes nothing.

        Errors are logged. They are raised only if ``everything`` is set.
        """
        try:
            return self.attempt(everything)
        except (EngineError, OSError) as error:
            log.error("housekeeping failed and will be retried: %s", error)
            if everything:
                raise
            return True

    def attempt(self, everything: bool = False) -> bool:
        """Like ``run``, but errors are always raised and never logged."""
        with self._turn:
            try:
                merges = self._wanted_merges()
                if not self._engine.writable or not (everything or self.due or merges):
                    return self._relocate()
                # The journal continues in a new file even if the round fails, so its size no longer shows that a round
                # is due.
                self._unfinished = True
                with background(self._engine.tracer, "housekeeping"):
                    self._round(merges)
                self._unfinished = False
                self._relocate()
                self.failure = None
            except Exception as error:
                self.failure = error
                raise
            return True

    def _wanted_merges(self) -> list[SegmentMerge]:
        try:
            return self._merging.wanted(self._manifest.segments)
        except OSError as error:
            # An open segment holds a file descriptor, and one that only the replica has is fetched first. Merging can
            # wait, sealing cannot.
            if error.errno != errno.EMFILE and self._engine.replica is None:
                raise
            return []

    # --- the list of journal files -------------------------------------------------------------------------

    def name_journals(self, *further: JournalEntry) -> None:
        """Write the list of journal files to the manifest: the closed ones, the current one, and ``further``."""
        with self._files_lock:
            journal = self._engine.journal
            journals = [*self._closed_journals, JournalEntry(journal.index), *further]
            if journals != self._manifest.journals:
                manifest = msgspec.structs.replace(self._manifest, journals=journals)
                write_manifest(self._engine.disk, manifest)
                self._manifest = manifest

    def note_stop(self) -> None:
        """Write the final size of the journal to the manifest after everything is flushed, so that a later truncation
        is noticed."""
        journal = self._engine.journal
        try:
            with self._turn, self._files_lock:
                journals = [*self._closed_journals, JournalEntry(journal.index, journal.size)]
                write_manifest(self._engine.disk, msgspec.structs.replace(self._manifest, journals=journals))
        except OSError as error:
            log.warning("the final size of the journal could not be written to the manifest: %s", error)

    def rotate_full(self) -> None:
        """Continue in a new journal file if the current one is full while a round is in progress."""
        # Otherwise the next round rotates, because its boundary is a new file.
        if self._turn.locked() and self.file_is_full and self._engine.writable:
            self._rotate(self._engine.switch_journal)

    def _rotate(self, switch: Callable[[], T]) -> T:
        """Continue in a new journal file. The manifest names the file before anything is written to it."""
        engine = self._engine
        with self._files_lock:
            left = engine.journal.index
            engine.journal.prepare()
            self.name_journals(JournalEntry(left + 1))
            result = switch()
            self._closed_journals = [*self._closed_journals, JournalEntry(left, engine.journal.left_size)]
            return result

    # --- one round -----------------------------------------------------------------------------------------

    def _round(self, merges: list[SegmentMerge]) -> None:
        engine = self._engine
        full = self._wants_full_checkpoint()
        merging = list(self._merging.books_in(merges))
        mark = engine.backlog.mark()
        engine.backlog.round_wanted = False

        def begin() -> RoundSnapshot:
            nonlocal mark
            mark = engine.backlog.mark()
            overlays_of = None if full else set[int]().union(*(merge.ids for merge in merges))
            snapshot = RoundSnapshot(engine.journal.index, engine.next_epoch, engine.now(), overlays_of)
            snapshot.add(book for book in merging if not book.dropped)
            if full:
                snapshot.add(engine.by_epoch.values())
            return snapshot

        snapshot = self._rotate(lambda: engine.begin_snapshot(begin))
        done = False
        try:
            # Sealing takes time. Until it is done, the previous file is needed in full.
            self.name_journals()
            self._capture_all(snapshot)
            sealed = self._seal(snapshot)
            merges = [merge for merge in merges if self._merge(merge, snapshot)]
            manifest = self._write(snapshot, sealed, merges, full)
            done = True
        finally:
            engine.end_snapshot(None if done else snapshot)
        install(snapshot, sealed, merges, engine.store, engine.lock)
        with engine.lock:
            size = engine.backlog.size
            engine.backlog.sealed(mark)
            self.rounds, self.round_bytes = self.rounds + 1, size - engine.backlog.size
        give_back()
        self._clean_up(manifest)
        engine.tell_kept(each.book for each in snapshot.captured.values() if not each.dropped)

    def _capture_all(self, snapshot: RoundSnapshot) -> None:
        more = True
        while more:
            with self._engine.lock:
                more = snapshot.capture_some()

    def _seal(self, snapshot: RoundSnapshot) -> SegmentInfo | None:
        keep = [c.keep for c in snapshot.captured.values() if c.keep is not None and not c.dropped]
        journals = [
            journal_path(index)
            for index in journal_indexes(self._engine.disk)
            if self._manifest.boundary <= index < snapshot.boundary and index not in self._unreadable_journals
        ]
        if not keep or not journals:
            return None
        with part("seal"):
            return self._run(lambda id: SealJob(id, segment_path(id), journals, keep))

    def _merge(self, merge: SegmentMerge, snapshot: RoundSnapshot) -> bool:
        """Merge segments and return whether it succeeded."""
        kept = (captured.keep_in(merge) for captured in snapshot.captured.values())
        keep = [what for what in kept if what is not None]
        sources = [(segment_path(entry.id), entry.id, entry.size, entry.edges) for entry in merge.sources]
        try:
            with part("merge"):
                merge.done(self._run(lambda id: MergeJob(id, segment_path(id), sources, keep)) if keep else None)
        except DamagedFile as error:
            self._merging.failed(merge, error)
            return False
        return True

    def _run(self, job_for: Callable[[int], SealJob | MergeJob]) -> SegmentInfo | None:
        with self._files_lock:
            id = self._manifest.next_segment
            self._manifest.next_segment += 1
        return self._runner.run(job_for(id))

    def _write(
        self, snapshot: RoundSnapshot, sealed: SegmentInfo | None, merges: list[SegmentMerge], full: bool
    ) -> Manifest:
        """Write the checkpoint and the manifest. The round takes effect when the manifest is in place."""
        snapshot.take_in(sealed, merges)
        with part("checkpoint"), self._files_lock:
            return self._write_files(snapshot, sealed, merges, full)

    def _write_files(
        self, snapshot: RoundSnapshot, sealed: SegmentInfo | None, merges: list[SegmentMerge], full: bool
    ) -> Manifest:
        engine, old = self._engine, self._manifest
        closed = [entry for entry in self._closed_journals if entry.index >= snapshot.boundary]
        # A number is used only once, even if this fails: an unsynced manifest may already name the file.
        number = old.next_checkpoint
        old.next_checkpoint += 1
        name = f"{number:08d}.{'full' if full else 'changes'}"
        uses = self._uses_after(snapshot)
        segments = [entry for entry in self._segments_after(old.segments, sealed, merges) if uses[entry.id] > 0]
        manifest = Manifest(
            id=old.id,
            boundary=snapshot.boundary,
            journals=[*closed, JournalEntry(engine.journal.index)],
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
        self._closed_journals = closed
        return manifest

    def _uses_after(self, snapshot: RoundSnapshot) -> Counter[int]:
        """Return the number of logs with a run in each segment after this round. A segment without any can be
        removed."""
        uses = self._uses.copy()
        for captured in snapshot.captured.values():
            uses.subtract(captured.book.filed_in)
            if not captured.dropped:
                uses.update(run.segment for run in captured.state.runs)
        return uses

    @staticmethod
    def _segments_after(
        old: list[SegmentEntry], sealed: SegmentInfo | None, merges: list[SegmentMerge]
    ) -> Iterator[SegmentEntry]:
        by_first_source = {merge.sources[0].id: merge for merge in merges}
        merged = set[int]().union(*(merge.ids for merge in merges))
        for entry in old:
            merge = by_first_source.get(entry.id)
            if merge is not None and merge.info is not None:
                yield entry_of(merge.info)
            if entry.id not in merged:
                yield entry
        if sealed is not None:
            yield entry_of(sealed)

    # --- cleaning up ---------------------------------------------------------------------------------------

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
            if since <= oldest and not (engine.replica is not None and engine.replica.needs(index)):
                engine.disk.remove(journal_path(index))
                self._kept_journals.remove((since, index))
        self._files = len([index for index in indexes if index >= boundary])

    def _wants_full_checkpoint(self) -> bool:
        """Return whether the next checkpoint must be full: the checkpoints of changes together outgrew the last full
        one."""
        sizes = list(self._checkpoint_sizes.values())
        return not sizes or sum(sizes[1:]) > max(sizes[0], 1 << 16)

    # --- the cold tier -------------------------------------------------------------------------------------

    def _relocate(self) -> bool:
        """Copy the oldest segments to the cold tier, record it in the manifest, then remove the local files."""
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
        moving = {
            entry.id
            for entry in hot[: len(hot) - keep]
            if self._merging.is_readable(entry) and (engine.replica is None or engine.replica.has(entry))
        }
        if not moving:
            return False
        engine.store.claim_cold_tier(self._manifest.id)
        for id in moving:
            with background(engine.tracer, "upload to the cold tier"):
                engine.store.relocate(id)
        segments = [
            SegmentEntry(e.id, e.size, e.edges, e.rows, "cold") if e.id in moving else e
            for e in self._manifest.segments
        ]
        with self._files_lock:
            manifest = msgspec.structs.replace(self._manifest, segments=segments)
            write_manifest(engine.disk, manifest)
            self._manifest = manifest
        for id in moving:
            engine.store.mark_cold(id)
        if engine.replica is not None:
            engine.replica.files_changed()
        return True


class InThisThread:
    """Runs the worker's jobs in the calling thread, for tests and for systems without worker processes."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def run(self, job: SealJob | MergeJob) -> SegmentInfo | None:
        return run_here(self._disk, job)

    def close(self) -> None:
        pass


def entry_of(info: SegmentInfo) -> SegmentEntry:
    return SegmentEntry(info.id, info.size, info.edges, info.rows)
