"""Recovery: rebuild the logbooks from the files of a data directory.

Checkpoints give every log as it was at the boundary, and the journal is replayed from there. Unreadable data is skipped
and reported, and readers see it as a gap. Recovery never invents data.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from contextlib import closing

from strandline.engine.disk import NO_SPACE, Disk, pieces_of
from strandline.engine.errors import DamagedFile, JournalIncomplete
from strandline.engine.journal.append_runs import with_runs
from strandline.engine.journal.file import (
    DIRECTORY,
    FlushMark,
    JournalFile,
    boot_mark,
    journal_indexes,
    journal_path,
    read_journal,
    read_mark,
)
from strandline.engine.journal.frame import FILE_HEADER, Frame, FrameDamage, IncompleteWrite, whole_writes
from strandline.engine.journal.inventory import LostJournal, final_sizes, least_sizes, lost_journals
from strandline.engine.journal.replay import Recovered, RecoveryLoss, Replay
from strandline.engine.ownership import STREAMS
from strandline.engine.segments.store import HOT_DIRECTORY, SegmentStore
from strandline.engine.state.checkpoints import (
    CHECKPOINTS,
    Manifest,
    checkpoint_path,
    load_books,
    read_checkpoint,
    read_manifest,
    write_manifest,
)
from strandline.engine.state.logbook import Logbook
from strandline.engine.state.parts import Segments

log = logging.getLogger(__name__)


#: Called with the share of the journal that has been replayed, from 0.0 to 1.0.
Progress = Callable[[float], None]
#: The bytes of the journal between two progress reports.
REPORT_BYTES = 1 << 20


#: Called before every replayed journal file, with the state recovered so far and the number of the file.
BeforeFile = Callable[[Recovered, int], None]


def recover(
    disk: Disk,
    store: SegmentStore,
    progress: Progress | None = None,
    *,
    repairing: bool = False,
    before_file: BeforeFile | None = None,
) -> Recovered:
    """Recover a data directory, or set up a new one.

    Raises JournalIncomplete if journal files are lost, unless ``repairing`` is set. In a repair, every log that may
    have had records in lost files skips the seqs that may have been assigned there.
    """
    manifest = read_manifest(disk)
    if manifest is None:
        manifest = _begin(disk)
    mark = read_mark(disk)
    lost = lost_journals(disk, manifest, mark, guess=repairing)
    if lost and not repairing:
        raise JournalIncomplete([(each.path, each.why) for each in lost])
    for entry in manifest.segments:
        store.add(entry, entry.tier)
    books = load_books(frame for name in manifest.checkpoints for frame in read_checkpoint(disk, name))
    recovered = replay(disk, store, manifest, books, mark, lost, progress, before_file)
    _make_durable(disk, recovered, mark)
    recovered.journals = final_sizes(disk, recovered.manifest, mark, recovered.next_journal)
    _remove_leftovers(disk, store, recovered.manifest)
    return recovered


def _begin(disk: Disk) -> Manifest:
    """Set up a new directory. The manifest is written last: without it, the directory counts as new."""
    if disk.had_data and not any(map(disk.list, (DIRECTORY, HOT_DIRECTORY, CHECKPOINTS))):
        raise DamagedFile(
            "MANIFEST",
            "all files are missing, but the file LOCK says that this directory had data. Put the"
            " files back, or restore a backup. To start with an empty directory, remove the file LOCK",
        )
    for directory in (DIRECTORY, HOT_DIRECTORY, CHECKPOINTS):
        if disk.list(directory) and directory != DIRECTORY:
            raise DamagedFile("MANIFEST", f"it is missing, but {directory}/ has files")
        disk.make_directory(directory)
    for index in journal_indexes(disk):
        if disk.size(journal_path(index)) > FILE_HEADER.size:
            raise DamagedFile("MANIFEST", f"it is missing, but {journal_path(index)} has records")
    disk.sync_directory("")
    manifest = Manifest()
    write_manifest(disk, manifest)
    return manifest


def replay(
    disk: Disk,
    segments: Segments,
    manifest: Manifest,
    books: dict[int, Logbook],
    mark: FlushMark | None,
    lost_files: list[LostJournal],
    progress: Progress | None = None,
    before_file: BeforeFile | None = None,
) -> Recovered:
    """Replay the journal from the boundary into the books. Writes nothing itself.

    Logs that may have had records in ``lost_files`` skip their seqs, as in a repair.
    """
    recovered = Recovered(
        manifest=manifest,
        books=books,
        changed=set(),
        next_journal=manifest.boundary,
        next_epoch=manifest.next_epoch,
        last_ts=manifest.last_ts,
        uses=Counter(segment for book in books.values() for segment in book.filed_in),
    )
    found = journal_indexes(disk)
    recovered.kept_journals = [index for index in found if index < manifest.boundary]
    indexes = [index for index in found if index >= manifest.boundary]
    lost = {each.number: each for each in lost_files}
    final = {entry.index for entry in manifest.journals if entry.size}
    least = least_sizes(manifest, mark)
    named = max((entry.index for entry in manifest.journals), default=0)
    # The next file may exist already after the current one, because it is created in advance.
    sizes = {index: disk.size(journal_path(index)) for index in indexes}
    written = [index for index, size in sizes.items() if size > FILE_HEADER.size]
    report = _Report(progress, sum(sizes.values()))
    replay = Replay(books, segments, recovered)
    for book in books.values():
        replay.link(book)
    replay.clean = not indexes
    boot = boot_mark(disk)
    doubts = _Doubts(recovered)
    for index in sorted({*indexes, *lost}):
        recovered.next_journal = index + 1
        file = _open(disk, index, recovered, lost.get(index))
        if file is None:
            if index in lost:
                doubts.add(lost[index])
            elif index == indexes[-1]:
                # A crash while the file was created. Nothing was written to it, and it is started again. It will have
                # records, so it must be sealed like any other.
                recovered.next_journal = index
                recovered.unreadable_journals.remove(index)
            continue
        if file.boot != boot and index != indexes[0]:
            # The machine stopped between this file and the previous one. The following start has reported the loss.
            _settle_all(recovered, doubts.aside, crashed=not replay.clean, tell=False)
        boot = file.boot
        if before_file is not None:
            before_file(recovered, index)
        may_be_torn = bool(written) and index == written[-1] and index not in final
        torn_from = least.get(index, 0) if may_be_torn else file.size
        end = _replay_file(file, replay, torn_from, report)
        report.passed += file.size
        recovered.replayed_bytes += file.size - FILE_HEADER.size
        if end < file.size:
            recovered.torn = RecoveryLoss(file.path, end, file.size - end, "the last frame is incomplete", allowed=True)
        if index in lost:
            doubts.add(lost[index])
            replay.clean = False
        elif index == indexes[-1] and index > named and file.size == FILE_HEADER.size:
            # The last file may have been created just before a crash and may not be durable.
            recovered.next_journal = index
    recovered.next_journal = max(recovered.next_journal, named + 1)
    report.tell(0, done=True)
    recovered.clean = replay.clean
    _settle_all(recovered, doubts.aside, crashed=not recovered.clean and boot != boot_mark(disk))
    doubts.settle()
    for book in books.values():
        if not book.created_ts:
            book.created_ts = _first_known_time(book) or recovered.last_ts
            recovered.changed.add(book)
    return recovered


def _first_known_time(book: Logbook) -> int:
    """Return an estimate of when a log of an older release was created, which did not store it: what the log was
    created with as a stream, or the time of its first record; 0 if it has none. The next checkpoint stores it."""
    declared = book.config.attributes.get(STREAMS, {}).get("created_at", 0)
    if declared:
        return int(declared)
    if book.runs:
        return book.runs[0].ts_first
    if book.tail is not None and book.tail.blocks:
        return book.tail.blocks[0].timestamp(0)
    return book.last_ts


#: The maximum number of seqs that a log can have assigned in a lost journal file. A record takes at least 4 bytes of
#: the journal, so more seqs need a file of 1 GiB; by default, files are sealed at 64 MiB.
SEQ_LEAP = 1 << 28
#: While the replica is away, a server may fill this many journal files that the replica lacks.
UNSHIPPED_FILES = 16
#: Records of an ephemeral log are not in the journal, so the size of the journal does not bound them. This allows
#: 100,000 records a second for four months in one journal file. Seqs stay below 2^53, the largest integer that all JSON
#: readers preserve.
EPHEMERAL_LEAP = 1 << 40


class _Doubts:
    """The logs whose last assigned seq is unknown because journal files are lost."""

    def __init__(self, recovered: Recovered) -> None:
        self._recovered = recovered
        self._files = 0
        #: Changed logs for which no frame since the last lost file says how many seqs were assigned.
        self.aside: set[Logbook] = set()

    def add(self, lost: LostJournal) -> None:
        """Add a lost file. Any log may have had records in it. Later frames show for some logs how many seqs were
        assigned."""
        recovered = self._recovered
        recovered.lost_journals.append(lost)
        recovered.losses.append(RecoveryLoss(lost.path, lost.cut_at, 0, lost.why))
        if lost.number not in recovered.damaged_journals:
            recovered.damaged_journals.append(lost.number)
        if not lost.cut_at:
            recovered.unreadable_journals.append(lost.number)
        self._files += lost.files
        self.aside |= recovered.changed
        recovered.changed = set()
        recovered.amended.clear()

    def settle(self) -> None:
        """Skip the seqs that may have been assigned, so that readers get a tombstone. Skip epochs of new logs
        likewise."""
        recovered = self._recovered
        if self._files:
            told = recovered.changed - recovered.amended
            for book in recovered.books.values():
                if book not in told:
                    leap(book, self._files)
                    recovered.changed.add(book)
            recovered.next_epoch += SEQ_LEAP * self._files
        recovered.changed |= self.aside


def leap(book: Logbook, files: int = 1) -> None:
    """Skip the seqs that a log may have assigned in this number of lost files."""
    step = EPHEMERAL_LEAP if book.config.durability == "ephemeral" else SEQ_LEAP
    book.skip(book.assigned + 1, book.assigned + files * step, "lost")
    book.reserved = book.reserved_durable = book.assigned


def skip_unreplicated(recovered: Recovered, complete: bool) -> None:
    """Skip the seqs that the server before may have assigned and that the replica does not have, after a takeover.

    Logs of the durability ``replicated`` skip none: no reader has seen a record of theirs that the replica lacks. If
    the replica is ``complete``, it has everything.
    """
    if complete:
        return
    for book in recovered.books.values():
        if book.config.durability != "replicated":
            leap(book, 1 if book.config.durability == "ephemeral" else UNSHIPPED_FILES)
            recovered.changed.add(book)
    recovered.next_epoch += SEQ_LEAP


class _Report:
    """Reports the progress of a replay."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress = progress
        self._total = total
        #: The bytes of the files before the current one.
        self.passed = 0
        #: Where in the file the next report is due.
        self.due = 0
        if progress is not None:
            progress(0.0)

    def tell(self, end: int, done: bool = False) -> None:
        self.due = end + REPORT_BYTES
        if self._progress is not None:
            self._progress(1.0 if done else (self.passed + end) / self._total)


def _open(disk: Disk, index: int, recovered: Recovered, lost: LostJournal | None) -> JournalFile | None:
    """Return the file, or None if it is unreadable: it is lost, or nothing was written to it."""
    if lost is not None and not lost.cut_at:
        return None
    try:
        return read_journal(disk, index)
    except DamagedFile:
        if lost is None:
            recovered.unreadable_journals.append(index)
        return None


def _replay_file(file: JournalFile, replay: Replay, torn_from: int, report: _Report) -> int:
    """Replay a file and return where it ends, without a partly written frame at the end.

    Bytes from ``torn_from`` on may be torn. Earlier bytes were durable: if they are unreadable, they are damaged.
    """
    end = FILE_HEADER.size
    report.tell(0)
    replay.begin(file)
    missing: list[FrameDamage | IncompleteWrite] = []
    for item in whole_writes(with_runs(file.reader)):
        if isinstance(item, (FrameDamage, IncompleteWrite)):
            missing.append(item)
            continue
        if missing:
            replay.lost(file, missing)
            missing = []
        if isinstance(item, Frame):
            replay.frame(item, file.path)
            end = item.offset + item.length
        else:
            replay.run(item, file.path)
            end = item.end
        if end >= report.due:
            report.tell(end)
    if end >= torn_from:
        return end
    if missing:
        replay.lost(file, missing)
    return file.size


def _make_durable(disk: Disk, recovered: Recovered, mark: FlushMark | None) -> None:
    """Make the replayed records durable before readers see them, so that no power cut can remove them afterwards.

    Truncates a partly written frame at the end. A file whose final size is in the manifest is durable already.
    """
    written = [index for index in journal_indexes(disk) if disk.size(journal_path(index)) > FILE_HEADER.size]
    final = {entry.index for entry in recovered.manifest.journals if entry.size}
    if not written or written[-1] < recovered.manifest.boundary or written[-1] in final:
        return
    # The files before this one were synced when they were completed.
    path, torn = journal_path(written[-1]), recovered.torn
    size = disk.size(path)
    if torn is not None and torn.path == path:
        size = torn.offset
    elif mark is not None and mark.sizes(recovered.manifest.id).get(written[-1], 0) >= size:
        # All of it was durable when the mark was written. Only a copy of the directory may not be.
        with closing(disk.append_file(path)) as file:
            file.sync()
        return
    # Rewrite it: after a failed sync, the system treats its pages as clean, and a further sync would not write them.
    try:
        # Write to another place if there is space: the disk may be bad where the file is now.
        disk.write_file(path, pieces_of(disk, path, 0, size))
    except OSError as error:
        if error.errno not in NO_SPACE:
            raise
        disk.rewrite(path, size)


def _settle_all(recovered: Recovered, changed: set[Logbook], crashed: bool, tell: bool = True) -> None:
    """Skip seqs that may have been assigned but left no trace, so that they are not reused. Readers get a tombstone."""
    damaged = bool(recovered.damaged_journals)
    for book in recovered.books.values():
        ephemeral = book.config.durability == "ephemeral"
        if book.reserved > book.assigned and (ephemeral or crashed or damaged):
            changed.add(book)
            if tell and not ephemeral:
                recovered.losses.append(
                    RecoveryLoss(
                        book.name,
                        book.assigned + 1,
                        book.reserved - book.assigned,
                        "may have been acknowledged and lost",
                        allowed=not damaged,
                    )
                )
            book.skip(book.assigned + 1, book.reserved, "lost")
        book.reserved = book.reserved_durable = book.assigned


def _remove_leftovers(disk: Disk, store: SegmentStore, manifest: Manifest) -> None:
    try:
        if store.has_replica:
            store.check_cold_tier(manifest.id)
        else:
            store.claim_cold_tier(manifest.id)
        store.remove_orphans()
    except OSError as error:
        # A start must not wait for the cold tier: appends and reads of local data do not need it.
        log.warning("the cold tier cannot be reached: %s", error)
    for name in disk.list(CHECKPOINTS):
        if name not in manifest.checkpoints:
            disk.remove(checkpoint_path(name))
    for directory in ("", f"{DIRECTORY}/"):
        for name in disk.list(directory):
            if name.endswith(".tmp"):
                disk.remove(directory + name)
