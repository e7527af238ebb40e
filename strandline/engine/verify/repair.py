"""Repair a data directory: keep everything that is readable, and report lost records and leave a tombstone for them.

Damaged files are copied to ``damaged/`` before anything refers to their replacements. The repaired states become one
complete checkpoint. The engine replays and seals the journal as usual.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import chain

from strandline.engine.clock import SteadyClock
from strandline.engine.disk import Disk, pieces_of
from strandline.engine.engine import Engine, Options
from strandline.engine.errors import DamagedFile
from strandline.engine.file_names import DAMAGED as DAMAGED
from strandline.engine.file_names import damaged_path, number_in, put_aside
from strandline.engine.journal.file import journal_indexes, journal_path, read_journal, read_mark
from strandline.engine.journal.frame import FILE_HEADER, FileKind, Frame, FrameReader, FrameType, file_header
from strandline.engine.journal.inventory import lost_journals
from strandline.engine.journal.recovery import SEQ_LEAP, leap
from strandline.engine.segments.check import DamagedRows, damaged_blocks, stretches
from strandline.engine.segments.cold_tier import ColdStore
from strandline.engine.segments.footer import RunInfo, SegmentInfo
from strandline.engine.segments.jobs import Keep, MergeJob
from strandline.engine.segments.jobs import run as run_job
from strandline.engine.segments.segment import Segment
from strandline.engine.segments.store import HOT_DIRECTORY, SegmentStore, Tier, object_name, segment_id, segment_path
from strandline.engine.state.checkpoints import (
    CHECKPOINTS,
    MANIFEST,
    Manifest,
    SegmentEntry,
    book_frames,
    checkpoint_path,
    load_books,
    manifest_frame,
    write_checkpoint,
    write_manifest,
)
from strandline.engine.state.logbook import Gap, Logbook
from strandline.engine.state.parts import Run
from strandline.engine.state.ranges import SeqRanges
from strandline.engine.verify.directory_check import Check, LostRecords, Report, locked, sentence_of, temporary_store
from strandline.engine.verify.log_check import info_of, recount
from strandline.engine.verify.rebuild import (
    adopt_frames,
    checkpoint_frames,
    rebuild_books,
    rebuild_manifest,
    run_of,
    told_in_journal,
)

#: A repair seals the journal and moves nothing to the cold tier.
OPTIONS = Options(hot_segments=1 << 30)
STATE_LOST = "the newest state of the log is lost"


def repair(disk: Disk, cold: ColdStore | None = None) -> Report:
    """Repair a data directory. An undamaged one is left unchanged. Raises the errors of ``verify``."""
    with locked(disk):
        with temporary_store(disk, cold) as store:
            check = Check(disk, store, cold)
            if check.run().sound:
                return check.report
        before = set(disk.list(DAMAGED))
        with temporary_store(disk, cold) as store:
            work = Repair(disk, store, cold, check)
            work.run()
        _replay_and_seal(disk, cold, work)
        # The engine has unlocked the directory.
        disk.lock()
        with temporary_store(disk, cold) as store:
            report = Check(disk, store, cold).run()
    report.repairs = work.repairs
    report.losses = work.losses
    report.lossy = work.lossy or bool(work.losses)
    report.kept = [f"{DAMAGED}/{name}" for name in disk.list(DAMAGED) if name not in before]
    return report


def _replay_and_seal(disk: Disk, cold: ColdStore | None, work: Repair) -> None:
    engine = Engine(disk, OPTIONS, SteadyClock(), cold, None, repairing=True)
    try:
        recovered = engine.recovered
        work.repairs.extend(map(sentence_of, recovered.losses))
        work.lossy |= any(not loss.allowed for loss in recovered.losses)
        if recovered.damaged_journals or work.incomplete:
            paths = ", ".join(map(journal_path, recovered.damaged_journals)) or work.checkpoints
            why = "damage in the journal" if recovered.damaged_journals else STATE_LOST
            for book in recovered.books.values():
                work.losses.extend(_new_gaps(book, work.gaps.get(book.epoch, ()), paths, why))
        for book in engine.by_epoch.values():
            # The journal may contain states from before the loss.
            engine.touch(book)
            _add_gaps(book, work.lost.get(book.epoch, SeqRanges()).copy())
            recount(book, engine.store)
        engine.seal()
    finally:
        engine.close()


def _new_gaps(book: Logbook, known: tuple[Gap, ...], paths: str, why: str) -> Iterator[LostRecords]:
    lost = SeqRanges((gap.first, gap.last) for gap in book.gaps if gap.reason == "lost")
    for gap in known:
        lost.remove(gap.first, gap.last)
    for first, last in lost:
        yield LostRecords(log=book.name, first=first, last=last, records=None, path=paths, why=why)


class Repair:
    """Repairs checkpoint, manifest and segments, as of the boundary."""

    def __init__(self, disk: Disk, store: SegmentStore, cold: ColdStore | None, check: Check) -> None:
        self._disk = disk
        self._store = store
        self._cold = cold
        self._check = check
        self.repairs: list[str] = []
        self.losses: list[LostRecords] = []
        #: Whether more than records is lost: states of logs, or changes in the journal.
        self.lossy = False
        #: The gaps of every log as of the boundary, after the repair.
        self.gaps: dict[int, tuple[Gap, ...]] = {}
        #: The seqs of every log that were lost with segments.
        self.lost: dict[int, SeqRanges] = {}
        #: The replacements of damaged segments; None if no row is left.
        self._replaced: dict[int, SegmentInfo | None] = {}
        self._lost_rows: dict[int, list[DamagedRows]] = {}
        self._originals: list[tuple[int, Tier]] = []
        #: Whether some logs lack the state that they had at the boundary.
        self.incomplete = False
        #: Epochs of logs that may have assigned more seqs than the remaining files show.
        self._doubtful: set[int] = set()
        #: Whether the manifest is the last one that was written, or a copy of it.
        self._is_current = True

    def run(self) -> None:
        manifest = self._manifest()
        self._heal_journals(manifest)
        for entry in manifest.segments:
            self._store.add(entry, entry.tier)
        books = self._books(manifest)
        for entry in list(manifest.segments):
            if self._check.manifest is None or entry.id in self._check.damaged_segments:
                self._repair_segment(manifest, entry, books)
        for book in books.values():
            self._repair_book(book, manifest)
            if book.epoch in self._doubtful:
                self._leap(book)
            self.gaps[book.epoch] = book.gaps
        self._write(manifest, books)

    # --- the manifest and the states of logs ---------------------------------------------------------------

    def _manifest(self) -> Manifest:
        manifest = self._check.manifest
        if manifest is None:
            if self._disk.exists(MANIFEST):
                self._copy(MANIFEST)
            manifest, self._is_current = rebuild_manifest(self._disk, self._cold)
            self.repairs.append(
                f"{MANIFEST}: rebuilt from {len(manifest.checkpoints)} checkpoints, "
                f"{len(manifest.segments)} segments and the journal from file {manifest.boundary} on."
            )
        names = [*self._disk.list(HOT_DIRECTORY), *([] if self._cold is None else self._cold.list())]
        ids = [id + 1 for name in names if (id := segment_id(name)) is not None]
        manifest.next_segment = max([manifest.next_segment, *ids, *(entry.id + 1 for entry in manifest.segments)])
        numbers = [number_in("checkpoint", name) or 0 for name in self._disk.list(CHECKPOINTS)]
        manifest.next_checkpoint = max([manifest.next_checkpoint, *(number + 1 for number in numbers)])
        return manifest

    def _books(self, manifest: Manifest) -> dict[int, Logbook]:
        frames = list(checkpoint_frames(self._disk, manifest.checkpoints))
        books = load_books(frames)
        dropped = {frame.epoch for frame in frames if frame.type is FrameType.DROP}
        incomplete = not self._is_current or bool(self._check.damaged_checkpoints) or not manifest.checkpoints
        self.incomplete = incomplete
        lost_states: list[str] = []
        if incomplete:
            opened = {entry.id: self._open(entry) for entry in manifest.segments}
            footers = {id: segment.runs for id, segment in opened.items() if segment is not None}
            unreadable = opened.keys() - footers.keys()
            known = {book.epoch: book.gaps for book in books.values()}
            lost_states += rebuild_books(books, dropped, footers, unreadable)
            if unreadable:
                paths = ", ".join(map(segment_path, sorted(unreadable)))
                for book in books.values():
                    why = "the segment is unreadable, and the state of the log is lost"
                    self.losses.extend(_new_gaps(book, known.get(book.epoch, ()), paths, why))
            lost_states += (
                f"{segment_path(id)}: it is unreadable, and so is a checkpoint. Logs that no other file names are lost."
                for id in sorted(unreadable)
            )
        if incomplete or lost_journals(self._disk, manifest, read_mark(self._disk), guess=True):
            lost_states += adopt_frames(self._disk, manifest, books, dropped)
        self.repairs += lost_states
        self.lossy |= bool(lost_states)
        for name in self._check.damaged_checkpoints:
            if self._disk.exists(checkpoint_path(name)):
                self._copy(checkpoint_path(name))
        manifest.next_epoch = max([manifest.next_epoch, *(epoch + 1 for epoch in books)])
        if not self._is_current:
            manifest.next_epoch += SEQ_LEAP
        if incomplete:
            self._find_doubtful(manifest, books)
        return books

    def _find_doubtful(self, manifest: Manifest, books: dict[int, Logbook]) -> None:
        """Find the logs whose number of assigned seqs is not certain from the remaining files."""
        certain: set[int] = set()
        names = manifest.checkpoints
        damaged = [at for at, name in enumerate(names) if name in self._check.damaged_checkpoints]
        if self._is_current:
            sound = checkpoint_frames(self._disk, names[damaged[-1] if damaged else 0 :])
            certain = {frame.epoch for frame in sound if frame.type is FrameType.STATE}
        self._doubtful = books.keys() - certain - told_in_journal(self._disk, manifest)

    def _open(self, entry: SegmentEntry) -> Segment | None:
        try:
            return self._store.segment(entry.id)
        except DamagedFile:
            return None

    # --- the journal ---------------------------------------------------------------------------------------

    def _heal_journals(self, manifest: Manifest) -> None:
        """Rebuild the header of a file if only the header is damaged, and move damaged files aside that are not
        needed."""
        for index in journal_indexes(self._disk):
            path = journal_path(index)
            try:
                damaged = any(not isinstance(item, Frame) for item in read_journal(self._disk, index).frames())
            except DamagedFile:
                damaged = not self._heal_header(index, path)
            if damaged and index < manifest.boundary:
                put_aside(self._disk, path)
                self.repairs.append(f"{path}: moved aside; its records are in segments.")

    def _heal_header(self, index: int, path: str) -> bool:
        size = self._disk.size(path)
        if size <= FILE_HEADER.size:
            return False
        _, _, _, _, seed, boot, _ = FILE_HEADER.unpack(self._disk.read(path, 0, FILE_HEADER.size))
        # With a wrong seed no checksum matches.
        frames = FrameReader(partial(self._disk.read, path), size, seed).frames()
        if not any(isinstance(item, Frame) for item in frames):
            return False
        self._copy(path)
        header = file_header(FileKind.JOURNAL, index, seed, boot)
        self._disk.write_file(path, chain([header], pieces_of(self._disk, path, FILE_HEADER.size, size)))
        self.repairs.append(f"{path}: its header was rebuilt.")
        return True

    # --- segments ------------------------------------------------------------------------------------------

    def _repair_segment(self, manifest: Manifest, entry: SegmentEntry, books: dict[int, Logbook]) -> None:
        segment, tier = self._find(entry)
        path = segment_path(entry.id) if segment is None else segment.path
        if segment is not None and not segment.verify() and segment.rows == entry.rows:
            if tier != entry.tier:
                self._put_entry(manifest, entry.id, SegmentEntry(entry.id, entry.size, entry.edges, entry.rows, tier))
                self._store.add(entry, tier)
                self.repairs.append(f"{path}: replaced by the undamaged copy from the {tier} tier.")
            return
        source = self._copy_segment(entry)
        info = None
        if segment is not None and source is not None:
            damaged = damaged_blocks(segment)
            self._lost_rows[entry.id] = list(stretches(segment, damaged))
            info = self._rewrite(manifest, entry, source, damaged, books)
        self._replaced[entry.id] = info
        if info is None:
            self._put_entry(manifest, entry.id, None)
            self.repairs.append(f"{path}: none of its rows could be kept.")
        else:
            new = SegmentEntry(info.id, info.size, info.edges, info.rows)
            self._put_entry(manifest, entry.id, new)
            self._store.add(new, "hot")
            self.repairs.append(f"{path}: {info.rows} of {entry.rows} rows were kept, in {segment_path(info.id)}.")

    def _find(self, entry: SegmentEntry) -> tuple[Segment | None, Tier]:
        """Return the segment, from the other tier if it cannot be opened in its own."""
        path = segment_path(entry.id)
        if entry.tier == "cold" and self._disk.exists(path) and self._cold is not None:
            # A leftover that would be read instead of the object. Move it aside if an object of the right size exists.
            if self._cold.size(object_name(entry.id)) == entry.size:
                put_aside(self._disk, path)
        tiers: list[Tier] = ["hot", "cold"] if self._cold is not None else ["hot"]
        for tier in sorted(tiers, key=lambda tier: tier != entry.tier):
            self._store.forget(entry.id)
            self._store.add(entry, tier)
            segment = self._open(entry)
            if segment is not None:
                return segment, "hot" if segment.path == path else "cold"
        return None, entry.tier

    def _rewrite(
        self, manifest: Manifest, entry: SegmentEntry, source: str, damaged: list[int], books: dict[int, Logbook]
    ) -> SegmentInfo | None:
        id = manifest.next_segment
        manifest.next_segment += 1
        keep = [
            Keep(book.epoch, book.name, 0)
            for book in books.values()
            if any(run.segment == entry.id for run in book.runs)
        ]
        sources = [(source, entry.id, entry.size, entry.edges)]
        return run_job(
            self._disk, MergeJob(id, segment_path(id), sources, keep, [(entry.id, block) for block in damaged])
        )

    def _copy_segment(self, entry: SegmentEntry) -> str | None:
        """Keep a copy of the damaged segment, from both tiers. Return the path of the copy to read."""
        copies = {}
        path, name = segment_path(entry.id), object_name(entry.id)
        if self._disk.exists(path):
            copies["hot"] = self._copy(path)
            self._originals.append((entry.id, "hot"))
        if self._cold is not None and (size := self._cold.size(name)) is not None:
            target = copies["cold"] = damaged_path(self._disk, path)
            self._disk.write_file(target, self._cold.read(name, 0, size))
            self._originals.append((entry.id, "cold"))
        return copies.get(self._store.tier(entry.id)) or next(iter(copies.values()), None)

    @staticmethod
    def _put_entry(manifest: Manifest, id: int, new: SegmentEntry | None) -> None:
        at = next(at for at, entry in enumerate(manifest.segments) if entry.id == id)
        manifest.segments[at : at + 1] = [] if new is None else [new]

    # --- logs ----------------------------------------------------------------------------------------------

    def _repair_book(self, book: Logbook, manifest: Manifest) -> None:
        known = {entry.id for entry in manifest.segments}
        lost = SeqRanges()
        runs = []
        for run in book.runs:
            repaired = self._repair_run(book, run, known, lost)
            if repaired is not None:
                runs.append(repaired)
        book.runs = tuple(runs)
        if runs:
            book.assigned = book.head = max(book.assigned, runs[-1].last)
            book.last_ts = max(book.last_ts, runs[-1].ts_last)
        self.lost[book.epoch] = lost.copy()
        _add_gaps(book, lost)
        self._recount(book)

    def _leap(self, book: Logbook) -> None:
        """Skip seqs: the log's newest state is lost, so it may have assigned seqs that no file shows."""
        first = book.assigned + 1
        leap(book)
        self.lost[book.epoch].add(first, book.assigned)
        self.losses.append(
            LostRecords(
                log=book.name, first=first, last=book.assigned, records=None, path=self.checkpoints, why=STATE_LOST
            )
        )

    @property
    def checkpoints(self) -> str:
        """The damaged checkpoints, for messages."""
        return ", ".join(map(checkpoint_path, self._check.damaged_checkpoints)) or CHECKPOINTS

    def _repair_run(self, book: Logbook, run: Run, known: set[int], lost: SeqRanges) -> Run | None:
        id, info = run.segment, None
        if id in self._replaced:
            id, info = self._replacement(book, run, lost)
        elif id in known:
            segment = self._store.segment(id)
            info = info_of(run, book.epoch, segment) or _info_in(segment.runs, book)
        if info is None and run.segment not in self._replaced:
            self._lose(book, run, _whole(book, run), lost, "the log's state names a run that does not exist")
        if info is None:
            return None
        new = run_of(id, info)
        new.overlay = run.overlay
        if new.overlay is not None:
            for first, last in lost:
                new.overlay.hidden.remove(first, last)
            new.overlay.amended = {s: d for s, d in new.overlay.amended.items() if s not in lost}
        return new

    def _replacement(self, book: Logbook, run: Run, lost: SeqRanges) -> tuple[int, RunInfo | None]:
        """Return where the rows of a run in a damaged segment are now."""
        replaced = self._replaced[run.segment]
        if replaced is None and run.segment not in self._lost_rows:
            self._lose(book, run, _whole(book, run), lost, "the segment is missing or unreadable")
        for stretch in self._lost_rows.get(run.segment, ()):
            if stretch.run.epoch == book.epoch:
                self._lose(book, run, stretch, lost, "damaged blocks")
        if replaced is None:
            return run.segment, None
        return replaced.id, _info_in(replaced.runs, book)

    def _lose(self, book: Logbook, run: Run, stretch: DamagedRows, lost: SeqRanges, why: str) -> None:
        """Record lost rows. Rows that were deleted before do not count as lost."""
        whole = (stretch.first, stretch.last)
        pieces = [whole] if run.overlay is None else list(run.overlay.dead.gaps(*whole))
        for first, last in pieces:
            records: int | None = None
            if (first, last) == whole:
                records = stretch.rows
            elif stretch.last - stretch.first + 1 == stretch.rows:
                records = last - first + 1
            lost.add(first, last)
            path = segment_path(run.segment)
            self.losses.append(LostRecords(log=book.name, first=first, last=last, records=records, path=path, why=why))

    def _recount(self, book: Logbook) -> None:
        before = (book.count, book.size, book.earliest)
        recount(book, self._store)
        after = (book.count, book.size, book.earliest)
        if after != before:
            self.repairs.append(
                f"Log {book.name!r}: at the last checkpoint it has {after[0]} live records of {after[1]} bytes from "
                f"seq {after[2]} on; its state said {before[0]} of {before[1]} bytes from {before[2]} on."
            )

    # --- writing the result --------------------------------------------------------------------------------

    def _write(self, manifest: Manifest, books: dict[int, Logbook]) -> None:
        used = {run.segment for book in books.values() for run in book.runs}
        manifest.segments = [entry for entry in manifest.segments if entry.id in used]
        name = f"{manifest.next_checkpoint:08d}.full"
        manifest.checkpoints = [name]
        manifest.next_checkpoint += 1
        frames = chain([manifest_frame(manifest)], *(book_frames(book) for book in books.values()))
        self._disk.make_directory(CHECKPOINTS)
        self._disk.make_directory(HOT_DIRECTORY)
        write_checkpoint(self._disk, name, manifest.next_checkpoint - 1, frames)
        write_manifest(self._disk, manifest)
        for id, tier in self._originals:
            if tier == "hot":
                self._disk.remove(segment_path(id))
            elif self._cold is not None:
                self._cold.delete(object_name(id))

    def _copy(self, path: str) -> str:
        """Copy a file to ``damaged/``. The original is removed when nothing refers to it, so a crash in between
        destroys nothing."""
        target = damaged_path(self._disk, path)
        self._disk.write_file(target, self._disk.read(path))
        return target


def _whole(book: Logbook, run: Run) -> DamagedRows:
    info = RunInfo(
        book.epoch, book.name, run.first, run.last, run.row, run.rows, run.live_size,
        run.ts_first, run.ts_last, run.key_first, run.key_last,
    )  # fmt: skip
    return DamagedRows(info, run.first, run.last, run.rows)


def _info_in(runs: list[RunInfo], book: Logbook) -> RunInfo | None:
    return next((info for info in runs if info.epoch == book.epoch), None)


def _add_gaps(book: Logbook, lost: SeqRanges) -> None:
    """Add gaps, so that readers get a tombstone for the lost records."""
    for gap in book.gaps:
        lost.remove(gap.first, gap.last)
    gaps: list[Gap] = []
    for gap in sorted([*book.gaps, *(Gap(first, last, "lost") for first, last in lost)]):
        if gaps and gaps[-1].last + 1 == gap.first and gaps[-1].reason == gap.reason:
            gap = Gap(gaps.pop().first, gap.last, gap.reason)
        if gap.last >= book.evict_floor:
            gaps.append(gap)
    book.gaps = tuple(gaps)
