"""Verify a data directory: every checksum and every invariant, without changing a byte.

The directory must not be in use. The journal is replayed in memory, so the check sees what the next start would find.
The result is a :class:`Report`; a repair returns one too.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from strandline.engine.disk import Disk
from strandline.engine.errors import DamagedFile, EngineError, NoDataDirectory
from strandline.engine.file_names import DAMAGED as DAMAGED
from strandline.engine.file_names import is_name
from strandline.engine.journal.bodies import unpack
from strandline.engine.journal.file import DIRECTORY as JOURNAL
from strandline.engine.journal.file import journal_indexes, journal_path, read_journal, read_mark
from strandline.engine.journal.frame import FILE_HEADER, FileKind, Frame, FrameDamage, FrameType, read_file_header
from strandline.engine.journal.inventory import lost_journals
from strandline.engine.journal.recovery import replay
from strandline.engine.journal.replay import Recovered, RecoveryLoss
from strandline.engine.segments.check import damaged_blocks, stretches
from strandline.engine.segments.cold_tier import ColdStore
from strandline.engine.segments.segment import Segment
from strandline.engine.segments.store import HOT_DIRECTORY, OWNER, SegmentStore, object_name, segment_path
from strandline.engine.state.checkpoints import (
    CHECKPOINTS,
    MANIFEST,
    BookState,
    Manifest,
    OverlayState,
    SegmentEntry,
    checkpoint_path,
    load_books,
    read_manifest,
    scan_checkpoint,
)
from strandline.engine.state.logbook import Logbook
from strandline.engine.verify.log_check import check_book


class LostRecords(msgspec.Struct, frozen=True, kw_only=True):
    """Lost records: the first and last seq, inclusive. ``records`` is None if their number is unknown."""

    log: str
    first: int
    last: int
    records: int | None
    path: str
    why: str


class Report(msgspec.Struct, kw_only=True):
    """The result. ``problems`` are violated invariants; ``notes`` are harmless findings.

    A repair fills ``repairs`` (what it did), ``losses`` (records that it could not save) and ``kept`` (damaged files
    that it kept). The ``problems`` of a repair are those that remain after it. ``lossy`` means that acknowledged data
    is gone: records, or the state of a log, such as its configuration.
    """

    problems: list[str] = msgspec.field(default_factory=list)
    notes: list[str] = msgspec.field(default_factory=list)
    repairs: list[str] = msgspec.field(default_factory=list)
    losses: list[LostRecords] = msgspec.field(default_factory=list)
    kept: list[str] = msgspec.field(default_factory=list)
    lossy: bool = False
    logs: int = 0
    #: Live records of all logs, and the bytes of their data and metas.
    records: int = 0
    bytes: int = 0
    segments: int = 0
    checkpoints: int = 0
    journal_files: int = 0
    journal_frames: int = 0
    #: The files of search indexes, which the command line checks as well. They hold no records of their own.
    index_files: int = 0
    #: The bytes of all files that were read.
    file_bytes: int = 0

    @property
    def sound(self) -> bool:
        return not self.problems


def verify(disk: Disk, cold: ColdStore | None = None) -> Report:
    """Check a data directory. Raises DirectoryInUse, NoDataDirectory, and BadConfig if the cold tier is missing."""
    with locked(disk), temporary_store(disk, cold) as store:
        return Check(disk, store, cold).run()


@contextmanager
def locked(disk: Disk) -> Iterator[None]:
    """Hold the lock of a directory that contains at least a part of a data directory."""
    if not disk.exists(MANIFEST) and not any(map(disk.list, (JOURNAL, HOT_DIRECTORY, CHECKPOINTS))):
        raise NoDataDirectory(disk.local_path("").rstrip("/"))
    disk.lock()
    try:
        yield
    finally:
        disk.unlock()


@contextmanager
def temporary_store(disk: Disk, cold: ColdStore | None) -> Iterator[SegmentStore]:
    """Yield a store that leaves nothing behind on the disk."""
    with tempfile.TemporaryDirectory(prefix="strandline-") as directory:
        store = SegmentStore(disk, cold, cache_directory=directory)
        try:
            yield store
        finally:
            store.close()


class Check:
    """One pass over a directory whose lock is held. Its attributes hold further findings for a repair."""

    def __init__(self, disk: Disk, store: SegmentStore, cold: ColdStore | None) -> None:
        self._disk = disk
        self._store = store
        self._cold = cold
        self.report = Report()
        self.manifest: Manifest | None = None
        #: The damaged segments that the manifest names.
        self.damaged_segments: set[int] = set()
        #: Checkpoints with lost frames: the state of some logs may be missing or old.
        self.damaged_checkpoints: list[str] = []
        self.recovered: Recovered | None = None

    def run(self) -> Report:
        manifest = self.manifest = self._check_manifest()
        if manifest is None:
            for name in self._disk.list(CHECKPOINTS):
                if is_name("checkpoint", name):
                    self._check_checkpoint(name)
            self._check_journals(journal_indexes(self._disk))
            return self.report
        for entry in manifest.segments:
            self._store.add(entry, entry.tier)
        frames = [frame for name in manifest.checkpoints for frame in self._check_checkpoint(name)]
        for entry in manifest.segments:
            self._check_segment(entry)
        self._check_owner(manifest)
        books = self._load(frames)
        self._check_uses(manifest, books)
        self._replay(manifest, books)
        self._check_leftovers(manifest)
        return self.report

    def _problem(self, sentence: str) -> None:
        self.report.problems.append(sentence)

    def _note(self, sentence: str) -> None:
        self.report.notes.append(sentence)

    # --- the manifest and the checkpoints ------------------------------------------------------------------

    def _check_manifest(self) -> Manifest | None:
        try:
            manifest = read_manifest(self._disk)
        except DamagedFile as error:
            self._problem(f"{MANIFEST}: {error.why}.")
            return None
        if manifest is None:
            self._problem(f"{MANIFEST}: the file is missing.")
            return None
        for what, next_one, used in (
            ("segment", manifest.next_segment, [entry.id for entry in manifest.segments]),
            ("checkpoint", manifest.next_checkpoint, [int(name.partition(".")[0]) for name in manifest.checkpoints]),
        ):
            if next_one <= max(used, default=0):
                self._problem(f"{MANIFEST}: the next {what} number is {next_one}, but {what} {max(used)} exists.")
        return manifest

    def _check_checkpoint(self, name: str) -> list[Frame]:
        path = checkpoint_path(name)
        frames: list[Frame] = []
        damaged = False
        try:
            for item in scan_checkpoint(self._disk, name):
                if isinstance(item, FrameDamage):
                    self._problem(f"{path}: {item.length} bytes at offset {item.offset} are unreadable: {item.why}.")
                    damaged = True
                else:
                    frames.append(item)
            index, _ = read_file_header(path, self._disk.read(path, 0, FILE_HEADER.size), FileKind.CHECKPOINT)
            if f"{index:08d}" != name.partition(".")[0]:
                self._problem(f"{path}: its header has the checkpoint number {index}.")
            self.report.file_bytes += self._disk.size(path)
        except DamagedFile as error:
            self._problem(f"{path}: {error.why}.")
            damaged = True
        self.report.checkpoints += 1
        good = list(self._check_frames(path, frames, damaged))
        if damaged or len(good) < len(frames):
            self.damaged_checkpoints.append(name)
        return good

    def _check_frames(self, path: str, frames: list[Frame], damaged: bool) -> Iterator[Frame]:
        """Yield the valid frames. An overlay must follow the state that contains its run."""
        runs: dict[int, set[int]] = {}
        for frame in frames:
            try:
                if frame.type is FrameType.STATE:
                    runs[frame.epoch] = {run.segment for run in unpack(frame.body, BookState).runs}
                elif frame.type is FrameType.OVERLAY:
                    segment = unpack(frame.body, OverlayState).segment
                    if not damaged and segment not in runs.get(frame.epoch, ()):
                        self._problem(
                            f"{path}: the overlay at offset {frame.offset} is for segment {segment}, "
                            f"in which the log (epoch {frame.epoch}) has no run."
                        )
                elif frame.type is FrameType.MANIFEST:
                    unpack(frame.body, Manifest)
                elif frame.type is not FrameType.DROP:
                    raise ValueError(f"a frame of type {frame.type.name} does not belong here")
            except (msgspec.MsgspecError, ValueError) as error:
                self._problem(f"{path}: the frame at offset {frame.offset} is invalid: {error}.")
                continue
            yield frame

    def _load(self, frames: list[Frame]) -> dict[int, Logbook]:
        books = load_books(frames)
        assert self.manifest is not None
        names = Counter(book.name for book in books.values())
        for book in books.values():
            if names[book.name] > 1:
                self._problem(
                    f"Log {book.name!r}: there are {names[book.name]} logs of this name (epoch {book.epoch})."
                )
            if book.epoch >= self.manifest.next_epoch:
                self._problem(
                    f"{MANIFEST}: the next epoch is {self.manifest.next_epoch}, "
                    f"but log {book.name!r} has epoch {book.epoch}."
                )
        return books

    # --- segments ------------------------------------------------------------------------------------------

    def _check_segment(self, entry: SegmentEntry) -> None:
        report = self.report
        report.segments += 1
        before = len(report.problems)
        path = segment_path(entry.id)
        try:
            segment = self._store.segment(entry.id)
            path = segment.path
            report.file_bytes += segment.size
            if segment.rows != entry.rows:
                self._problem(f"{path}: it has {segment.rows} rows; the manifest says {entry.rows}.")
            damage = segment.verify()
            report.problems.extend(f"{path}: {sentence}" for sentence in damage)
            if damage:
                self._tell_what_is_lost(segment)
            if entry.tier == "cold" and self._disk.exists(segment_path(entry.id)):
                # The store has read the local file. Check that the object in the cold tier, which counts, is the same.
                if not self._store.is_relocated(entry.id):
                    self._problem(f"{object_name(entry.id)} in the cold tier is missing or damaged.")
        except DamagedFile as error:
            self._problem(f"{error.path}: {error.why}.")
        if len(report.problems) > before:
            self.damaged_segments.add(entry.id)

    def _tell_what_is_lost(self, segment: Segment) -> None:
        for lost in stretches(segment, damaged_blocks(segment)):
            self._problem(
                f"{segment.path}: {lost.rows} records of log {lost.run.name!r} between seq {lost.first} and "
                f"seq {lost.last} are unreadable."
            )

    def _check_owner(self, manifest: Manifest) -> None:
        size = None if self._cold is None else self._cold.size(OWNER)
        if self._cold is None or size is None:
            return
        owner = self._cold.read(OWNER, 0, size).decode("utf-8", "replace")
        if owner != manifest.id:
            self._problem(f"{self._cold.describe()}: it belongs to another data directory ({owner}).")

    def _check_uses(self, manifest: Manifest, books: dict[int, Logbook]) -> None:
        used = {segment for book in books.values() for segment in book.filed_in}
        for entry in manifest.segments:
            if entry.id not in used and not self.damaged_checkpoints:
                self._note(f"{segment_path(entry.id)}: no log has records in it; the next round of sealing removes it.")

    # --- the journal, and the logs after its replay --------------------------------------------------------

    def _replay(self, manifest: Manifest, books: dict[int, Logbook]) -> None:
        indexes = journal_indexes(self._disk)
        kept = [index for index in indexes if index < manifest.boundary]
        try:
            mark = read_mark(self._disk)
            lost = lost_journals(self._disk, manifest, mark, guess=True)
            recovered = self.recovered = replay(self._disk, self._store, manifest, books, mark, lost)
        except Exception as error:
            # Any error here would also stop the next start.
            self._check_journals(indexes)
            self._problem(f"The journal cannot be replayed, so the logs could not be checked: {_one_line(error)}.")
            return
        self._check_journals(kept)
        self.report.journal_files += len(indexes) - len(kept)
        self.report.journal_frames += recovered.replayed_frames
        self.report.file_bytes += recovered.replayed_bytes + FILE_HEADER.size * (len(indexes) - len(kept))
        self._tell_losses(recovered)
        self._check_books(manifest, recovered.books)

    def _tell_losses(self, recovered: Recovered) -> None:
        for loss in recovered.losses:
            (self._note if loss.allowed else self._problem)(sentence_of(loss))
        if recovered.lost_journals:
            self._note(
                "The server refuses to start. A repair keeps every readable record. Each log that may have had "
                "records in the lost journal files continues after a gap with the reason 'lost'."
            )
        if recovered.torn is not None:
            torn = recovered.torn
            self._note(f"{torn.path}: {torn.length} bytes at offset {torn.offset} were partly written at the stop.")
        if not recovered.clean:
            self._note("The last shutdown was not clean.")

    def _check_journals(self, indexes: list[int]) -> None:
        """Check the frames of these files without interpreting them."""
        for index in indexes:
            path = journal_path(index)
            self.report.journal_files += 1
            self.report.file_bytes += self._disk.size(path)
            is_last = index == indexes[-1]
            try:
                for item in read_journal(self._disk, index).frames():
                    if isinstance(item, Frame):
                        self.report.journal_frames += 1
                    elif not (is_last and item.offset + item.length == self._disk.size(path)):
                        self._problem(
                            f"{path}: {item.length} bytes at offset {item.offset} are unreadable: {item.why}."
                        )
            except DamagedFile as error:
                if not is_last or self._disk.size(path) > FILE_HEADER.size:
                    self._problem(f"{path}: {error.why}.")

    def _check_books(self, manifest: Manifest, books: dict[int, Logbook]) -> None:
        order = {entry.id: place for place, entry in enumerate(manifest.segments)}
        report = self.report
        report.logs = len(books)
        for book in books.values():
            report.records += book.count
            report.bytes += book.size
            if any(run.segment in self.damaged_segments for run in book.runs):
                continue  # already reported
            try:
                report.problems.extend(check_book(book, order, self._store))
            except (EngineError, LookupError, ValueError) as error:
                self._problem(f"Log {book.name!r}: {_one_line(error)}.")

    # --- leftovers -----------------------------------------------------------------------------------------

    def _check_leftovers(self, manifest: Manifest) -> None:
        for path in self._store.orphans():
            self._note(f"{path}: it belongs to no segment; the next start removes it.")
        for name in self._disk.list(CHECKPOINTS):
            if name not in manifest.checkpoints:
                self._note(f"{checkpoint_path(name)}: the manifest does not name it; the next start removes it.")
        for name in self._disk.list(""):
            if name.endswith(".tmp"):
                self._note(f"{name}: it is incomplete; the next start removes it.")
        kept = self._disk.list(DAMAGED)
        if kept:
            self._note(f"{DAMAGED}/: {len(kept)} damaged files are kept here; remove them if they are not needed.")


def sentence_of(loss: RecoveryLoss) -> str:
    if loss.path.startswith(f"{JOURNAL}/") and not loss.length:
        return f"{loss.path}: {loss.what}."
    if loss.path.startswith(f"{JOURNAL}/"):
        return f"{loss.path}: {loss.length} bytes at offset {loss.offset}: {loss.what}."
    return f"Log {loss.path!r}: seqs {loss.offset} to {loss.offset + loss.length - 1} {loss.what}."


def _one_line(error: Exception) -> str:
    return " ".join(f"{error}".split()).rstrip(".") or type(error).__name__
