"""Recovery: from the files of a data directory back to the logbooks.

Checkpoints give every log as it was at the boundary, the journal from there on is replayed. What cannot be read is
skipped, reported, and shows up to readers as a gap; nothing is made up.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence

import msgspec

from strandline.engine.catalog import (
    CHECKPOINTS,
    BookState,
    Manifest,
    checkpoint_path,
    load_books,
    read_checkpoint,
    read_manifest,
    write_manifest,
)
from strandline.engine.disk import Disk
from strandline.engine.errors import DamagedFile
from strandline.engine.frame import (
    FILE_HEADER,
    HEADER,
    MARK,
    Configure,
    CursorMove,
    Damage,
    Floor,
    Frame,
    FrameType,
    Select,
    decode_append,
    unpack,
)  # fmt: skip
from strandline.engine.frame import Gap as GapFrame
from strandline.engine.groups import Broken, whole
from strandline.engine.journal import (
    DIRECTORY,
    JournalFile,
    boot_mark,
    journal_indexes,
    journal_path,
    read_journal,
)
from strandline.engine.logbook import Logbook
from strandline.engine.parts import Segments
from strandline.engine.retention import evict_below, evict_over_caps, expire_below
from strandline.engine.segments.store import HOT_DIRECTORY, SegmentStore

log = logging.getLogger(__name__)


class Loss(msgspec.Struct, frozen=True):
    """Something that recovery could not bring back, in words, and where."""

    path: str
    offset: int
    length: int
    what: str
    #: No damage: a crash may take this from a log of this durability class.
    allowed: bool = False


class Recovered(msgspec.Struct, kw_only=True):
    """What recovery found."""

    manifest: Manifest
    books: dict[int, Logbook]
    changed: set[Logbook]
    next_journal: int
    next_epoch: int
    last_ts: int
    #: How many logs have a run in each segment, by what is written down.
    uses: Counter[int]
    #: Whether the last stop was an orderly one.
    clean: bool = True
    replayed_bytes: int = 0
    replayed_frames: int = 0
    #: What a crash left half written at the end of the journal.
    torn: Loss | None = None
    kept_journals: list[int] = msgspec.field(default_factory=list)
    damaged_journals: list[int] = msgspec.field(default_factory=list)
    #: Those of the damaged ones of which not even the header can be read.
    unreadable_journals: list[int] = msgspec.field(default_factory=list)
    losses: list[Loss] = msgspec.field(default_factory=list)

    @property
    def torn_bytes(self) -> int:
        return 0 if self.torn is None else self.torn.length


def recover(disk: Disk, store: SegmentStore) -> Recovered:
    """Bring a data directory back to where it can be used; a new one is set up."""
    manifest = read_manifest(disk)
    if manifest is None:
        manifest = _begin(disk)
    for entry in manifest.segments:
        store.add(entry, entry.tier)
    books = load_books(frame for name in manifest.checkpoints for frame in read_checkpoint(disk, name))
    recovered = replay(disk, store, manifest, books)
    _make_durable(disk, recovered)
    _remove_leftovers(disk, store, manifest)
    return recovered


def _begin(disk: Disk) -> Manifest:
    """A new directory. The manifest comes last: without it there is nothing yet."""
    for directory in (DIRECTORY, HOT_DIRECTORY, CHECKPOINTS):
        if disk.list(directory) and directory != DIRECTORY:
            raise DamagedFile("MANIFEST", f"it is missing, and there are files in {directory}/")
        disk.make_directory(directory)
    for index in journal_indexes(disk):
        if disk.size(journal_path(index)) > FILE_HEADER.size:
            raise DamagedFile("MANIFEST", f"it is missing, and there are records in {journal_path(index)}")
    disk.sync_directory("")
    manifest = Manifest()
    write_manifest(disk, manifest)
    return manifest


def replay(disk: Disk, segments: Segments, manifest: Manifest, books: dict[int, Logbook]) -> Recovered:
    """Make of the books at the boundary what the journal from there on tells. Writes nothing."""
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
    # Behind the file that was written to there may be the next one, made beforehand.
    written = [index for index in indexes if disk.size(journal_path(index)) > FILE_HEADER.size]
    replay = Replay(books, segments, recovered)
    replay.clean = not indexes
    boot = boot_mark(disk)
    for index in range(manifest.boundary, indexes[-1] + 1) if indexes else ():
        recovered.next_journal = index + 1
        file = _open(disk, index, recovered, index == indexes[-1])
        if file is None:
            continue
        if file.boot != boot and index != indexes[0]:
            # The machine stopped between this file and the one before it. The start that followed has told so.
            _settle_all(recovered, crashed=not replay.clean, tell=False)
        boot = file.boot
        end = _replay_file(file, replay, index == written[-1] if written else False)
        recovered.replayed_bytes += len(file.raw) - FILE_HEADER.size
        if end < len(file.raw):
            recovered.torn = Loss(file.path, end, len(file.raw) - end, "the end is torn", allowed=True)
    recovered.clean = replay.clean
    _settle_all(recovered, crashed=not recovered.clean and boot != boot_mark(disk))
    return recovered


def _open(disk: Disk, index: int, recovered: Recovered, is_last: bool) -> JournalFile | None:
    path = journal_path(index)
    size = 0
    try:
        size = disk.size(path)
        return read_journal(disk, index)
    except FileNotFoundError:
        why = "the file is missing"
    except DamagedFile as error:
        if is_last and size <= FILE_HEADER.size:
            # A crash while the file was being made; nothing was ever written to it, and it is begun again.
            recovered.next_journal = index
            return None
        recovered.unreadable_journals.append(index)
        if size <= FILE_HEADER.size:
            return None  # likewise, and the next one was begun since
        why = error.why
    recovered.losses.append(Loss(path, 0, size, why))
    recovered.damaged_journals.append(index)
    return None


def _replay_file(file: JournalFile, replay: Replay, is_last: bool) -> int:
    """Replay a file; returns where what is good in it ends."""
    end = FILE_HEADER.size
    missing: list[Damage | Broken] = []
    for item in whole(file.frames()):
        if not isinstance(item, Frame):
            missing.append(item)
            continue
        if missing:
            replay.lost(file, missing)
            missing = []
        replay.frame(item, file.path)
        end = item.offset + item.length
    if missing and not is_last:
        replay.lost(file, missing)
    return end if is_last else len(file.raw)


def _make_durable(disk: Disk, recovered: Recovered) -> None:
    """What was replayed is shown to readers from now on, so no power cut may take it away again.

    What a crash left half written at the end is no frame; it goes, so that nobody wonders about it later.
    """
    if recovered.clean and recovered.torn is None:
        return
    written = [index for index in journal_indexes(disk) if disk.size(journal_path(index)) > FILE_HEADER.size]
    if not written or written[-1] < recovered.manifest.boundary:
        return
    # Those before it were synced when they were left. This one is written anew: should a sync of it have failed, the
    # system takes its pages for clean, and no further sync would put them on the disk.
    path = journal_path(written[-1])
    torn = recovered.torn
    disk.write_file(path, disk.read(path, 0, torn.offset if torn is not None and torn.path == path else -1))


def _settle_all(recovered: Recovered, crashed: bool, tell: bool = True) -> None:
    """Seqs that may have been handed out and left no trace are not handed out again; readers are told."""
    damaged = bool(recovered.damaged_journals)
    for book in recovered.books.values():
        ephemeral = book.config.durability == "ephemeral"
        if book.reserved > book.assigned and (ephemeral or crashed or damaged):
            recovered.changed.add(book)
            if tell and not ephemeral:
                recovered.losses.append(
                    Loss(
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
        store.claim_cold_tier(manifest.id)
        store.remove_orphans()
    except OSError as error:
        # Appends and what is here do not need the cold tier: a start must not wait for it.
        log.warning("the cold tier cannot be reached: %s", error)
    for name in disk.list(CHECKPOINTS):
        if name not in manifest.checkpoints:
            disk.remove(checkpoint_path(name))
    for directory in ("", f"{DIRECTORY}/"):
        for name in disk.list(directory):
            if name.endswith(".tmp"):
                disk.remove(directory + name)


class Replay:
    """Makes the changes that frames tell of, in order."""

    def __init__(self, books: dict[int, Logbook], segments: Segments, recovered: Recovered) -> None:
        self._books = books
        self._segments = segments
        self._recovered = recovered
        self._by_name = {book.name: book for book in books.values()}
        #: Whether the last frame was the one that an orderly stop writes.
        self.clean = True

    def lost(self, file: JournalFile, missing: Sequence[Damage | Broken]) -> None:
        recovered = self._recovered
        if file.index not in recovered.damaged_journals:
            recovered.damaged_journals.append(file.index)
        for item in missing:
            offset, length, why = item if isinstance(item, Damage) else item.place_and_reason()
            recovered.losses.append(Loss(file.path, offset, length, why))
            log.warning("%s: %d bytes at %d cannot be read: %s", file.path, length, offset, why)
            self._leave_room(file.raw, offset, length)

    def _leave_room(self, raw: bytes, at: int, length: int) -> None:
        """Where the headers of lost appends can still be made out, their seqs are not handed out again."""
        end = at + length
        while at + HEADER.size <= end:
            mark, length, _, kind, _, _, count, epoch, first, _, _ = HEADER.unpack_from(raw, at)
            if mark != MARK or length < HEADER.size + 4 * count:
                return
            book = self._books.get(epoch)
            if kind == FrameType.APPEND and count and book is not None and first == book.assigned + 1:
                book.skip(first, first + count - 1, "lost")
                self._recovered.changed.add(book)
            at += length

    def frame(self, frame: Frame, path: str) -> None:
        recovered = self._recovered
        recovered.replayed_frames += 1
        if frame.ts > recovered.last_ts:
            recovered.last_ts = frame.ts
        kind = frame.type
        self.clean = kind is FrameType.CLOSE
        if self.clean:
            return
        if kind is FrameType.CONFIGURE:
            self._configure(frame)
            return
        book = self._books.get(frame.epoch)
        if book is None:
            if frame.epoch >= recovered.next_epoch:
                what = f"a frame of a log (epoch {frame.epoch}) whose creation cannot be read"
                recovered.losses.append(Loss(path, frame.offset, frame.length, what))
            return
        recovered.changed.add(book)
        if kind is FrameType.DROP:
            book.dropped = True
            del self._books[frame.epoch]
            return
        try:
            self._change(book, frame, path)
        except DamagedFile as error:
            what = f"{frame.type.name.lower()} of {book.name!r} could not be done again: {error}"
            recovered.losses.append(Loss(path, frame.offset, frame.length, what))
        if kind is not FrameType.AMEND or frame.reserved:
            book.reserved = frame.reserved

    def _configure(self, frame: Frame) -> None:
        configure = unpack(frame.body, Configure)
        book = self._books.get(frame.epoch)
        if book is None:
            self._drop_namesake(configure.name)
            book = self._books[frame.epoch] = Logbook(configure.name, frame.epoch, configure.config)
            self._by_name[configure.name] = book
            self._recovered.next_epoch = max(self._recovered.next_epoch, frame.epoch + 1)
        self._reach(book, frame.first)
        book.config = configure.config
        book.reserved = frame.reserved
        evict_over_caps(book, self._segments)
        self._recovered.changed.add(book)

    def _drop_namesake(self, name: str) -> None:
        """A log can be created only once the one of its name is gone, even if nothing tells of that any more."""
        older = self._by_name.get(name)
        if older is not None and not older.dropped:
            older.dropped = True
            del self._books[older.epoch]
            self._recovered.changed.add(older)

    @staticmethod
    def _reach(book: Logbook, assigned: int) -> None:
        """Up to here seqs had been assigned when the frame was written. Those that left no trace are lost."""
        if assigned > book.assigned:
            book.skip(book.assigned + 1, assigned, "lost")

    def _change(self, book: Logbook, frame: Frame, path: str) -> None:
        segments = self._segments
        if frame.type is not FrameType.APPEND:
            self._reach(book, frame.first)
        if frame.type is FrameType.APPEND:
            self._append(book, frame, path)
        elif frame.type is FrameType.DELETE:
            book.delete(unpack(frame.body, Select), segments)
        elif frame.type is FrameType.HIDE:
            book.hide(unpack(frame.body, Select), segments)
        elif frame.type is FrameType.RESTORE:
            book.restore(unpack(frame.body, Select), segments)
        elif frame.type is FrameType.AMEND:
            book.amend(frame.first, frame.body, segments)
        elif frame.type is FrameType.FLOOR:
            floor = unpack(frame.body, Floor)
            if book.config.durability == "ephemeral":
                evict_below(book, floor.cap_floor, segments)
            expire_below(book, floor.ttl_floor, segments)
        elif frame.type is FrameType.GAP:
            gap = unpack(frame.body, GapFrame)
            book.skip(book.assigned + 1, gap.last, gap.reason)
        elif frame.type is FrameType.CURSOR:
            move = unpack(frame.body, CursorMove)
            if move.seq is None:
                book.drop_cursor(move.name)
            else:
                book.move_cursor(move.name, move.seq, frame.ts)
        elif frame.type is FrameType.STATE:
            state = unpack(frame.body, BookState)
            # Unless some of the records before it are missing: then what is not there stays lost.
            if (book.count, book.size) == (state.count, state.size):
                state.put_into(book)

    def _append(self, book: Logbook, frame: Frame, path: str) -> None:
        if frame.first <= book.assigned and not book.take_back(frame.first):
            what = f"records {frame.first} to {frame.first + frame.count - 1} of {book.name!r} are there already"
            self._recovered.losses.append(Loss(path, frame.offset, frame.length, what))
            return
        if frame.first > book.assigned + 1:
            book.skip(book.assigned + 1, frame.first - 1, "lost")
        block, extras = decode_append(frame)
        book.assign(block, frame.ts, extras)
        if book.config.durability == "ephemeral":
            # It is about to cease to be so. What it has fits; what became of it is still to come.
            book.add(block)
        else:
            book.publish(block, self._segments)
