"""Replaying the journal: every frame repeats the change that it describes.

A frame that forwards records refers to appends in its own file. Later changes to the source log must not affect the
copies, so :class:`JournalRecords` finds the records in the file, not in the log.
"""

from __future__ import annotations

import logging
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from strandline.engine.clock import later
from strandline.engine.errors import DamagedFile
from strandline.engine.journal.append_runs import AppendRun, LogRun
from strandline.engine.journal.bodies import (
    KEEP_KEYS,
    KEEP_NODES,
    Configure,
    CursorMove,
    Extras,
    Floor,
    Forward,
    ForwardTarget,
    Select,
    unpack,
)
from strandline.engine.journal.bodies import GapBody as GapFrame
from strandline.engine.journal.file import JournalFile
from strandline.engine.journal.frame import (
    HEADER,
    MARK,
    Frame,
    FrameDamage,
    FrameReader,
    FrameType,
    IncompleteWrite,
    decode_append,
    frame_in,
)
from strandline.engine.journal.inventory import LostJournal
from strandline.engine.state import record_changes
from strandline.engine.state.block import Block
from strandline.engine.state.checkpoints import BookState, JournalEntry, Manifest
from strandline.engine.state.forks import ForkBase, link
from strandline.engine.state.lake_mark import moves_mark
from strandline.engine.state.logbook import Logbook
from strandline.engine.state.parts import Piece, Segments
from strandline.engine.state.retention import evict_below, evict_over_caps, evicts_alike, expire_below

#: Most records are forwarded soon after they were appended, so a few decoded frames are enough.
MAX_DECODED = 64


class JournalRecords:
    """Finds the appends of one journal file, which ``reader`` reads. Keeps one number per append, not the append."""

    def __init__(self, reader: FrameReader) -> None:
        self._reader = reader
        #: By epoch: the ascending first seqs of appends, and their places. A place is an offset in the file, or the
        #: number of a block as -1, -2 ...
        self._places: dict[int, tuple[array[int], array[int]]] = {}
        self._blocks: list[Block] = []
        self._decoded: dict[int, Block] = {}

    def add(self, frame: Frame) -> None:
        self._add(frame.epoch, frame.first, frame.offset)

    def add_all(self, epoch: int, firsts: NDArray[np.int64], offsets: NDArray[np.int64]) -> None:
        """Add many appends of one log, by their first seqs and their offsets."""
        places = self._places.get(epoch)
        if places is None:
            places = self._places[epoch] = array("q"), array("q")
        places[0].frombytes(firsts.tobytes())
        places[1].frombytes(offsets.tobytes())

    def add_block(self, epoch: int, block: Block) -> None:
        """Add a copy made by forwarding. It may itself be forwarded."""
        self._blocks.append(block)
        self._add(epoch, block.first, -len(self._blocks))

    def _add(self, epoch: int, first: int, place: int) -> None:
        places = self._places.get(epoch)
        if places is None:
            places = self._places[epoch] = array("q"), array("q")
        places[0].append(first)
        places[1].append(place)

    def find(self, epoch: int, ranges: Sequence[tuple[int, int]]) -> list[tuple[int, Block]]:
        """Return the records in the ranges as columns with seqs from 1 on. This is one block, or several if records are
        missing, each with its position in the ranges."""
        stretches: list[tuple[int, list[Piece]]] = []
        place = end = 0
        for first, last in ranges:
            seq = first
            while seq <= last:
                piece = self._piece(epoch, seq, last)
                if piece is None:
                    seq, place = seq + 1, place + 1
                    continue
                if not stretches or place != end:
                    stretches.append((place, []))
                stretches[-1][1].append(piece)
                count = piece[2] - piece[1]
                seq, place = seq + count, place + count
                end = place
        return [(place, Block.gather(pieces)) for place, pieces in stretches]

    def _piece(self, epoch: int, seq: int, last: int) -> Piece | None:
        """Return the part of an append with the records from ``seq`` to ``last``, or None if there is no such
        record."""
        places = self._places.get(epoch)
        at = -1 if places is None else bisect_right(places[0], seq) - 1
        if places is None or at < 0:
            return None
        block = self._block(places[1][at])
        return None if block.last < seq else (block, seq - block.first, min(last, block.last) - block.first + 1)

    def _block(self, place: int) -> Block:
        if place < 0:
            return self._blocks[-place - 1]
        block = self._decoded.get(place)
        if block is None:
            if len(self._decoded) >= MAX_DECODED:
                self._decoded.clear()
            block = self._decoded[place] = self._read(place)
        return block

    def _read(self, offset: int) -> Block:
        """Return the records of an append frame that has been verified before."""
        length = HEADER.unpack_from(self._reader.read(offset, HEADER.size))[1]
        return decode_append(frame_in(self._reader.read(offset, length), 0, offset))[0]


log = logging.getLogger(__name__)


class RecoveryLoss(msgspec.Struct, frozen=True):
    """A description of data that recovery could not restore, and where it was."""

    path: str
    offset: int
    length: int
    what: str
    #: Whether the loss is not damage: a crash may cause it in a log of this durability.
    allowed: bool = False


class Recovered(msgspec.Struct, kw_only=True):
    """The result of recovery."""

    manifest: Manifest
    books: dict[int, Logbook]
    changed: set[Logbook]
    next_journal: int
    next_epoch: int
    last_ts: int
    #: The number of logs with a run in each segment, as of the checkpoints.
    uses: Counter[int]
    #: Whether the last shutdown was clean.
    clean: bool = True
    replayed_bytes: int = 0
    replayed_frames: int = 0
    #: Bytes of forwarded records, which the journal contains only once.
    copied_bytes: int = 0
    #: The partly written frame that a crash left at the end of the journal.
    torn: RecoveryLoss | None = None
    kept_journals: list[int] = msgspec.field(default_factory=list)
    damaged_journals: list[int] = msgspec.field(default_factory=list)
    #: The damaged files whose header is unreadable.
    unreadable_journals: list[int] = msgspec.field(default_factory=list)
    losses: list[RecoveryLoss] = msgspec.field(default_factory=list)
    #: Files that must exist but are missing, truncated or unreadable.
    lost_journals: list[LostJournal] = msgspec.field(default_factory=list)
    #: The replayed files, with their final sizes.
    journals: list[JournalEntry] = msgspec.field(default_factory=list)
    #: Logs with an amendment, whose frame does not say how many seqs the log had assigned.
    amended: set[Logbook] = msgspec.field(default_factory=set)


class Replay:
    """Applies the changes in frames, in order."""

    def __init__(self, books: dict[int, Logbook], segments: Segments, recovered: Recovered) -> None:
        self._books = books
        self._segments = segments
        self._recovered = recovered
        self._by_name = {book.name: book for book in books.values()}
        #: Whether the last frame was that of a clean shutdown.
        self.clean = True
        #: The appends of the file that is being replayed.
        self._records: JournalRecords

    def begin(self, file: JournalFile) -> None:
        self._records = JournalRecords(file.reader)

    def lost(self, file: JournalFile, missing: Sequence[FrameDamage | IncompleteWrite]) -> None:
        recovered = self._recovered
        if file.index not in recovered.damaged_journals:
            recovered.damaged_journals.append(file.index)
        for item in missing:
            offset, length, why = item if isinstance(item, FrameDamage) else item.place_and_reason()
            recovered.losses.append(RecoveryLoss(file.path, offset, length, why))
            log.warning("%s: %d bytes at offset %d are unreadable: %s", file.path, length, offset, why)
            if isinstance(item, IncompleteWrite) and item.frame.type is FrameType.FORWARD:
                self._leave_room_for_copies(unpack(item.frame.body, Forward))
            else:
                self._leave_room(file.reader, offset, length)

    def _leave_room(self, reader: FrameReader, at: int, length: int) -> None:
        """Reserve the seqs of lost appends whose headers are still readable, so that they are not reused."""
        end = at + length
        while at + HEADER.size <= end:
            mark, length, _, kind, _, _, count, epoch, first, _, _ = HEADER.unpack(reader.read(at, HEADER.size))
            if mark != MARK or length < HEADER.size + 4 * count:
                return
            book = self._books.get(epoch)
            if kind == FrameType.APPEND and count and book is not None and first == book.assigned + 1:
                book.skip(first, first + count - 1, "lost")
                self._recovered.changed.add(book)
            at += length

    def _leave_room_for_copies(self, forward: Forward) -> None:
        for target in forward.targets:
            book = self._books.get(target.epoch)
            last = target.first + forward.count(target) - 1
            if book is not None and target.first - target.lost == book.assigned + 1 <= last:
                book.skip(book.assigned + 1, last, "lost")
                self._recovered.changed.add(book)

    def frame(self, frame: Frame, path: str) -> None:
        recovered = self._recovered
        recovered.replayed_frames += 1
        recovered.last_ts = later(recovered.last_ts, frame.ts)
        kind = frame.type
        self.clean = kind is FrameType.CLOSE
        if self.clean:
            return
        if kind is FrameType.CONFIGURE:
            self._configure(frame)
            return
        if kind is FrameType.FORWARD:
            self._forward(frame, path)
            return
        if kind is FrameType.APPEND:
            self._records.add(frame)
        book = self._books.get(frame.epoch)
        if book is None:
            if frame.epoch >= recovered.next_epoch:
                what = f"a frame of a log (epoch {frame.epoch}) whose creation is unreadable"
                recovered.losses.append(RecoveryLoss(path, frame.offset, frame.length, what))
            return
        recovered.changed.add(book)
        if kind is FrameType.DROP:
            self._drop(book)
            return
        try:
            self._change(book, frame, path)
        except DamagedFile as error:
            self._failed(book, frame, path, error)
        if kind is not FrameType.AMEND or frame.reserved:
            book.reserved = frame.reserved

    def run(self, run: AppendRun, path: str) -> None:
        """Apply many appends. The result is the same as applying ``frame`` to each."""
        logs = run.logs()
        if logs is None or not all(map(self._follows, logs)):
            for frame in run.frames():
                self.frame(frame, path)
            return
        recovered = self._recovered
        recovered.last_ts = later(recovered.last_ts, run.last_ts)
        self.clean = False
        for log in logs:
            book = self._books[log.epoch]
            if not evicts_alike(book):
                for frame in log.frames():
                    self.frame(frame, path)
                continue
            recovered.changed.add(book)
            recovered.replayed_frames += len(log)
            self._records.add_all(log.epoch, *log.places())
            book.keep_all(*log.noted())
            before = book.last_ts
            for block in log.blocks():
                book.assign(block, block.timestamp(len(block) - 1), None, log.now)
                book.publish(block, self._segments)
            book.last_ts = log.last_ts(before)
            book.reserved = log.reserved

    def _follows(self, log: LogRun) -> bool:
        """Return whether the appends directly continue an existing log."""
        book = self._books.get(log.epoch)
        return book is not None and log.first == book.assigned + 1 and book.config.durability != "ephemeral"

    def _configure(self, frame: Frame) -> None:
        configure = unpack(frame.body, Configure)
        book = self._books.get(frame.epoch)
        if book is None:
            self._drop_namesake(configure.name)
            book = self._books[frame.epoch] = Logbook(configure.name, frame.epoch, configure.config, frame.ts)
            if configure.base is not None:
                book.begin_behind(ForkBase(configure.base))
                source = self._books.get(configure.base.epoch)
                if source is not None:
                    # Seqs up to here had been assigned.
                    self._reach(source, configure.base.through)
                self.link(book)
            self._by_name[configure.name] = book
            self._recovered.next_epoch = max(self._recovered.next_epoch, frame.epoch + 1)
            self._created(book)
        self._reach(book, frame.first)
        book.configure(configure.config)
        book.reserved = frame.reserved
        evict_over_caps(book, self._segments)
        self._recovered.changed.add(book)

    def link(self, book: Logbook) -> None:
        """Link a fork to its source. If the source is missing, the shared records are lost."""
        base = book.base
        if base is not None and not link(book, self._books):
            self._recovered.changed.add(book)
            if base.through:
                what = "were shared with a log that no longer exists"
                self._recovered.losses.append(RecoveryLoss(book.name, 1, base.through, what))

    def _drop_namesake(self, name: str) -> None:
        """Drop the older log of this name. Creating a log requires that the older one was dropped, even if that frame
        is lost."""
        older = self._by_name.get(name)
        if older is not None and not older.dropped:
            self._drop(older)

    def _drop(self, book: Logbook) -> None:
        """Drop a log and its forks. Dropping a log requires that its forks were dropped, even if those frames are
        lost."""
        if book.forks:
            for fork in [other for other in self._books.values() if other.base is not None and other.base.book is book]:
                self._drop(fork)
        if book.base is not None and book.base.book is not None:
            book.base.book.forks -= 1
        book.dropped = True
        del self._books[book.epoch]
        self._recovered.changed.add(book)
        self._dropped(book)

    def _failed(self, book: Logbook, frame: Frame, path: str, error: DamagedFile) -> None:
        """Called when a change could not be made, because a segment cannot be read."""
        what = f"{frame.type.name.lower()} of {book.name!r} could not be replayed: {error}"
        self._recovered.losses.append(RecoveryLoss(path, frame.offset, frame.length, what))

    def _created(self, book: Logbook) -> None:
        """Called when a log was created."""

    def _dropped(self, book: Logbook) -> None:
        """Called when a log was dropped."""

    @staticmethod
    def _reach(book: Logbook, assigned: int) -> None:
        """Skip the seqs up to ``assigned`` that left no trace: they had been assigned when the frame was written, so
        they are lost."""
        if assigned > book.assigned:
            book.skip(book.assigned + 1, assigned, "lost")

    def _change(self, book: Logbook, frame: Frame, path: str) -> None:
        segments = self._segments
        if frame.type is not FrameType.APPEND:
            self._reach(book, frame.first)
        if frame.type is FrameType.APPEND:
            self._append(book, frame, path)
        elif frame.type is FrameType.DELETE:
            record_changes.delete(book, unpack(frame.body, Select), segments)
        elif frame.type is FrameType.HIDE:
            record_changes.hide(book, unpack(frame.body, Select), segments)
        elif frame.type is FrameType.RESTORE:
            record_changes.restore(book, unpack(frame.body, Select), segments)
        elif frame.type is FrameType.AMEND:
            record_changes.amend(book, frame.first, frame.body, segments)
            self._recovered.amended.add(book)
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
        elif frame.type is FrameType.NOTE:
            extras = unpack(frame.body, Extras)
            book.note(extras, frame.ts)
            if moves_mark(extras):
                evict_over_caps(book, segments)
        elif frame.type is FrameType.STATE:
            state = unpack(frame.body, BookState)
            # If some of the earlier records are missing, they stay lost, and the state does not apply.
            if (book.count, book.size) == (state.count, state.size):
                state.put_into(book)

    def _append(self, book: Logbook, frame: Frame, path: str) -> None:
        if frame.first <= book.assigned and not book.take_back(frame.first):
            what = f"records {frame.first} to {frame.first + frame.count - 1} of {book.name!r} already exist"
            self._recovered.losses.append(RecoveryLoss(path, frame.offset, frame.length, what))
            return
        if frame.first > book.assigned + 1:
            book.skip(book.assigned + 1, frame.first - 1, "lost")
        block, extras = decode_append(frame)
        book.assign(block, block.timestamp(0), extras, frame.ts)
        if book.config.durability == "ephemeral":
            # The log is about to become durable. Its records fit its limits, and later frames change them.
            book.add(block)
        else:
            book.publish(block, self._segments)

    def _forward(self, frame: Frame, path: str) -> None:
        """Copy records of this file, whatever happened to the source since."""
        forward = unpack(frame.body, Forward)
        selections = [self._records.find(frame.epoch, ranges) for ranges in forward.selections]
        source = self._books.get(frame.epoch)
        if source is not None:
            self._recovered.changed.add(source)
            self._reach(source, frame.first)
            source.reserved = frame.reserved
        for target in forward.targets:
            if target.epoch:
                found = selections[target.selection] if target.selection >= 0 else []
                self._copy(target, forward.count(target), found, frame, path)
            if source is not None:
                source.move_cursor(target.cursor, target.through, frame.ts)

    def _copy(
        self, target: ForwardTarget, count: int, found: Sequence[tuple[int, Block]], frame: Frame, path: str
    ) -> None:
        recovered = self._recovered
        blocks = [copied(template, target, place, target.ts or frame.ts) for place, template in found]
        for block in blocks:
            self._records.add_block(target.epoch, block)
        book = self._books.get(target.epoch)
        first, last = target.first - target.lost, target.first + count - 1
        if book is None:
            if target.epoch >= recovered.next_epoch:
                what = f"copies for a log (epoch {target.epoch}) whose creation is unreadable"
                recovered.losses.append(RecoveryLoss(path, frame.offset, frame.length, what))
            return
        recovered.changed.add(book)
        if first <= book.assigned:
            what = f"records {first} to {last} of {book.name!r} already exist"
            recovered.losses.append(RecoveryLoss(path, frame.offset, frame.length, what))
            return
        self._reach(book, first - 1)
        if target.lost:
            book.skip(first, target.first - 1, "source_trim")
        for block in blocks:
            self._reach(book, block.first - 1)
            book.assign(block, target.ts or frame.ts, None, frame.ts)
            book.publish(block, self._segments)
            recovered.copied_bytes += block.size(0, len(block))
        if sum(map(len, blocks)) < count:
            what = f"some of the records {target.first} to {last} of {book.name!r}: the originals are lost"
            recovered.losses.append(RecoveryLoss(path, frame.offset, frame.length, what))
            self._reach(book, last)
        book.reserved = target.reserved


def copied(template: Block, target: ForwardTarget, place: int, ts: int) -> Block:
    """Return a target's part of a selection, starting at its record number ``place``."""
    first = target.first + place
    return Block(
        first,
        first + len(template) - 1,
        ts,
        template.offsets,
        template.data,
        template.keys if target.flags & KEEP_KEYS else None,
        template.nodes if target.flags & KEEP_NODES else None,
        template.metas if target.metas is None else target.metas[place : place + len(template)],
    )
