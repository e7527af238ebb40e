"""Forwarding: copy records of one log into other logs, by reference.

Whatever the number of destinations, the journal gets one frame without payloads, and in memory the copies share the
source's bytes. A frame may only refer to appends in its own journal file, so that each file can be replayed and sealed
by itself. Records that are older, amended, or from an ephemeral source are journaled by value, in the same write.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from strandline.engine.commit import Commit
from strandline.engine.errors import BadRequest, BatchTooLarge, LogFull, QuotaExceeded, RecordTooLarge
from strandline.engine.journal.bodies import KEEP_KEYS, KEEP_NODES, Forward, ForwardTarget, GapBody, pack
from strandline.engine.journal.frame import MAX_GROUP, Encoded, FrameType, encode, encode_append
from strandline.engine.operations.append import Usage, prepare_append
from strandline.engine.operations.journaled import begin_volatile, let_all_expire, publish
from strandline.engine.reads.page import NotResident, Resident, fetch
from strandline.engine.record import FLUSHED, MAX_BATCH_BYTES, Appended, check_cursor
from strandline.engine.state.block import Block
from strandline.engine.state.forks import layers
from strandline.engine.state.logbook import Logbook
from strandline.engine.state.parts import Piece, Segments

if TYPE_CHECKING:
    from strandline.engine.engine import Engine
    from strandline.engine.log import Log

Ranges = Sequence[tuple[int, int]]


class ForwardedRecords(NamedTuple):
    """The records of some ranges. ``template`` has their columns, ready to be shared; None if no record is left."""

    template: Block | None
    size: int
    #: The existing seqs, as ranges, and whether a frame may refer to them.
    found: list[tuple[int, int]]
    referable: bool


class Originals:
    """Finds records of the source while the engine's lock is held. ``journal_index`` is the current journal file."""

    def __init__(self, source: Logbook, segments: Segments, journal_index: int) -> None:
        self._source = source
        self._segments = segments
        self._journal_index = journal_index
        self._selections: dict[tuple[tuple[int, int], ...], ForwardedRecords] = {}
        self._by_identity: dict[int, ForwardedRecords] = {}

    def select(self, ranges: Ranges) -> ForwardedRecords:
        # Usually all copies share one object for their ranges; otherwise the ranges may still be equal.
        selection = self._by_identity.get(id(ranges))
        if selection is None:
            key = tuple(ranges)
            selection = self._selections.get(key)
            if selection is None:
                selection = self._selections[key] = self._look_up(key)
            self._by_identity[id(ranges)] = selection
        return selection

    def _look_up(self, ranges: tuple[tuple[int, int], ...]) -> ForwardedRecords:
        source = self._source
        pieces: list[Piece] = []
        amended: dict[int, bytes] = {}
        shown = layers(source)
        for first, last in ranges:
            for book, low, high in shown:
                low, high = max(first, low, book.earliest), min(last, high)
                for part in book.parts() if low <= high else ():
                    if part.last >= low and part.first <= high:
                        pieces += part.visible(low, high, self._segments)
                        if part.overlay is not None and part.overlay.amended:
                            amended.update((s, d) for s, d in part.overlay.amended.items() if low <= s <= high)
        if not pieces:
            return ForwardedRecords(None, 0, [], True)
        template = Block.gather(pieces, amended)
        if len(template.data) > MAX_BATCH_BYTES:
            raise BadRequest(f"the records have {len(template.data)} bytes; the limit is {MAX_BATCH_BYTES}")
        found = list(_seqs_of(pieces))
        referable = (
            source.config.durability != "ephemeral"
            and source.journal_index == self._journal_index
            and found[0][0] >= source.journal_first
            and not amended
        )
        return ForwardedRecords(template, template.size(0, template.last), found, referable)


def _seqs_of(pieces: Sequence[Piece]) -> list[tuple[int, int]]:
    """Return the seqs of the pieces, as ranges."""
    found: list[tuple[int, int]] = []
    for block, start, end in pieces:
        if block.seqs is None:
            stretches = [(block.first + start, block.first + end - 1)]
        else:
            stretches = [(seq, seq) for seq in block.seqs[start:end].tolist()]
        for first, last in stretches:
            if found and found[-1][1] + 1 == first:
                first = found.pop()[0]
            found.append((first, last))
    return found


def matching(metas: Sequence[bytes | None], ranges: Ranges, found: Sequence[tuple[int, int]]) -> Sequence[bytes | None]:
    """Select the metas of the existing seqs from metas given for every seq in the ranges."""
    if list(ranges) == list(found):
        return metas
    places: dict[int, int] = {}
    for first, last in ranges:
        places.update(zip(range(first, last + 1), range(len(places), len(metas)), strict=False))
    return [metas[places[seq]] for first, last in found for seq in range(first, last + 1)]


#: A copy takes at most three frames, and one write has a limited number of frames.
MAX_COPIES = MAX_GROUP // 3 - 1


class ForwardedCopy(NamedTuple):
    """The records to copy into one log.

    First, ``lost`` seqs are skipped, as a gap with the reason ``source_trim``. Then the visible records of the source
    in the ``ranges`` (ascending, inclusive) are appended, with their data, metas and, unless dropped, keys and nodes.
    ``metas``, if given, replace those of the source: one for every seq in the ranges. Then the source's ``cursor`` is
    moved to ``through``.
    """

    log: Log
    cursor: str
    through: int
    ranges: Ranges = ()
    lost: int = 0
    keep_keys: bool = True
    keep_nodes: bool = True
    metas: Sequence[bytes | None] | None = None


class Planned(NamedTuple):
    """One copy that is ready to be made."""

    copy: ForwardedCopy
    book: Logbook
    selection: ForwardedRecords
    #: The first seq that it assigns.
    start: int
    block: Block | None
    size: int
    reserved: int
    waits: bool


def forward(engine: Engine, source: Log, copies: Sequence[ForwardedCopy]) -> Commit[list[Appended | None]]:
    """See :meth:`Engine.forward`."""
    engine.check_own(source)
    _check(engine, source, copies)
    segments = Resident(engine.store)
    while True:
        try:
            with engine.lock:
                engine.check_writable()
                source.book.check_there()
                engine.backlog.check_copies()
                let_all_expire(engine, source.book)
                return _Round(engine, source.book, segments).run(copies)
        except NotResident as missing:
            fetch(source.book, missing)


def _check(engine: Engine, source: Log, copies: Sequence[ForwardedCopy]) -> None:
    if len(copies) > MAX_COPIES:
        raise BadRequest(f"{len(copies)} copies given; the limit is {MAX_COPIES}")
    epoch, known, given = source.epoch, set[int](), 0
    for copy in copies:
        log = copy.log
        engine.check_own(log)
        if log.epoch == epoch:
            raise BadRequest(f"log {log.name!r} cannot be forwarded to itself")
        check_cursor(copy.cursor, copy.through)
        if type(copy.lost) is not int or not 0 <= copy.lost < 1 << 62:
            raise BadRequest(f"lost must be 0 or more, not {copy.lost!r}")
        # Usually all copies share one object for their ranges.
        if id(copy.ranges) not in known:
            _check_ranges(copy.ranges)
            known.add(id(copy.ranges))
        if copy.metas is not None:
            given += _check_metas(copy, engine.options.max_record_bytes)
    if given > MAX_BATCH_BYTES:
        raise BadRequest(f"the metas have {given} bytes; the limit is {MAX_BATCH_BYTES}")


def _check_ranges(ranges: Ranges) -> None:
    before = 0
    for first, last in ranges:
        if not before < first <= last:
            raise BadRequest(f"ranges must ascend, start at 1 or later and not be empty; got {first} to {last}")
        before = last


def _check_metas(copy: ForwardedCopy, limit: int) -> int:
    metas = copy.metas
    assert metas is not None
    seqs = sum(last - first + 1 for first, last in copy.ranges)
    if len(metas) != seqs:
        raise BadRequest(f"{len(metas)} metas given for {seqs} seqs; expected one per seq")
    total = 0
    for index, meta in enumerate(metas):
        if meta is not None:
            if type(meta) is not bytes:
                raise BadRequest(f"a meta must be bytes, not {type(meta).__name__}")
            if len(meta) > limit:
                raise RecordTooLarge(index, len(meta), limit)
            total += len(meta)
    return total


class _Round:
    """One call of ``forward``. The engine's lock is held, and nothing changes before everything is journaled."""

    def __init__(self, engine: Engine, source: Logbook, segments: Segments) -> None:
        self._engine = engine
        self._source = source
        self._now = engine.now()
        self._originals = Originals(source, segments, engine.journal.index)
        self._usage = Usage()
        self._quota = engine.quota
        #: The copies to make; None: nothing happens, and the cursor does not move.
        self._plan: list[Planned | None] = []

    def run(self, copies: Sequence[ForwardedCopy]) -> Commit[list[Appended | None]]:
        self._plan = [self._planned(copy) for copy in copies]
        made = [planned for planned in self._plan if planned is not None]
        if not made:
            return Commit.of([None] * len(copies))
        self._journal(made)
        results = self._assign()
        return self._publish(made, results)

    # --- planning ------------------------------------------------------------------------------------------

    def _planned(self, copy: ForwardedCopy) -> Planned | None:
        book = copy.log.book
        if book.dropped:
            return None
        config = book.config
        if config.ttl_ms:
            prepare_append(self._engine, book)
        selection = self._originals.select(copy.ranges)
        template, size = selection.template, selection.size
        usage = self._usage
        start = usage.next_seq(book)
        if template is None:
            if not copy.lost:
                return Planned(copy, book, selection, start, None, 0, book.reserved, False)
            last, count, block = start + copy.lost - 1, 0, None
        else:
            count = template.last
            last = start + copy.lost + count - 1
            metas = template.metas
            if copy.metas is not None:
                metas = matching(copy.metas, copy.ranges, selection.found)
                size = len(template.data) + sum([len(meta) for meta in metas if meta is not None])
            try:
                self._quota.check_append(book.name, usage.size + size)
                if config.discard == "reject":
                    usage.check_room(book, count, size)
            except (LogFull, BatchTooLarge, QuotaExceeded):
                return None
            block = Block(
                start + copy.lost,
                last,
                book.time_of(self._now),
                template.offsets,
                template.data,
                template.keys if copy.keep_keys else None,
                template.nodes if copy.keep_nodes else None,
                metas,
            )
        waits, reserved = self._engine.reservations.wanted(book, last, count)
        usage.add(book, last, count, size)
        return Planned(copy, book, selection, start, block, size, reserved, waits)

    # --- journaling ----------------------------------------------------------------------------------------

    def _journal(self, made: list[Planned]) -> None:
        engine, now = self._engine, self._now
        for copy, book, _, _, block, _, reserved, _ in made:
            if book.config.durability == "ephemeral" and (block is not None or copy.lost):
                engine.reservations.write(book, reserved, now)
        frames: list[Encoded] = []
        forward, numbers, copied = Forward([], []), dict[int, int](), 0
        targeted: set[Logbook] = set()
        for copy, book, selection, start, block, size, reserved, _ in made:
            journaled = book.config.durability != "ephemeral" and (block is not None or copy.lost > 0)
            if not journaled:
                forward.targets.append(ForwardTarget(0, 0, 0, -1, 0, 0, copy.cursor, copy.through))
            elif selection.referable:
                number = -1
                if block is not None:
                    number = numbers.get(id(selection), -1)
                    if number < 0:
                        number = numbers[id(selection)] = len(forward.selections)
                        forward.selections.append(selection.found)
                    copied += size
                targeted.add(book)
                forward.targets.append(_target(copy, book, start, block, number, reserved, now))
            else:
                if book in targeted:
                    # The copies that this log got so far must be journaled first.
                    frames.append(self._encode(forward))
                    forward, numbers, targeted = Forward([], []), {}, set()
                frames += self._by_value(copy, book, start, block, reserved)
                forward.targets.append(ForwardTarget(0, 0, 0, -1, 0, 0, copy.cursor, copy.through))
        frames.append(self._encode(forward))
        engine.journal.write_all(frames)
        engine.journal.copied += copied

    def _encode(self, forward: Forward) -> Encoded:
        source = self._source
        return encode(
            FrameType.FORWARD,
            source.epoch,
            source.assigned,
            self._now,
            pack(forward),
            count=len(forward.targets),
            reserved=source.reserved,
        )

    def _by_value(
        self, copy: ForwardedCopy, book: Logbook, start: int, block: Block | None, reserved: int
    ) -> list[Encoded]:
        frames = []
        if copy.lost:
            body = pack(GapBody(start + copy.lost - 1, "source_trim"))
            frames.append(encode(FrameType.GAP, book.epoch, start - 1, self._now, body, reserved=reserved))
        if block is not None:
            frames.append(encode_append(book.epoch, block, self._now, reserved, None))
        return frames

    # --- applying ------------------------------------------------------------------------------------------

    def _assign(self) -> list[Appended | None]:
        """Assign the seqs and return the result of every copy."""
        engine, now = self._engine, self._now
        results: list[Appended | None] = []
        for planned in self._plan:
            if planned is None:
                results.append(None)
                continue
            copy, book, _, start, block, size, reserved, waits = planned
            if block is None and not copy.lost:
                results.append(None)
                continue
            engine.touch(book)
            if book.config.durability == "ephemeral":
                begin_volatile(book)
            else:
                engine.reservations.written(book, reserved)
            if block is None:
                book.assigned = start + copy.lost - 1
                results.append(None)
                continue
            if book.config.durability != "ephemeral":
                engine.note_place(book, block.first)
            results.append(book.assign(block, block.timestamp(0), None, now))
            if waits:
                book.count_pending(len(block), size)
        return results

    def _publish(self, made: list[Planned], results: list[Appended | None]) -> Commit[list[Appended | None]]:
        """Publish the copies. ``fsync`` logs, and logs with pending changes, wait for the flush; on others the copies
        are visible now."""
        engine, source = self._engine, self._source
        waiting = [planned for planned in made if planned.waits]
        for planned in made:
            if not planned.waits:
                self._show(planned)
        engine.touch(source)
        cursor_waits = source.config.durability in FLUSHED or source.pending > 0 or source.held > 0
        if not cursor_waits:
            self._move_cursors(made)
        if not waiting and not cursor_waits:
            engine.flush_in_time()
            return Commit.of(results)

        def make() -> list[Appended | None]:
            if cursor_waits:
                self._move_cursors(made)
            for planned in waiting:
                if planned.block is not None:
                    planned.book.count_pending(-len(planned.block), -planned.size)
                self._show(planned)
            return results

        books = dict.fromkeys(planned.book for planned in waiting)
        if cursor_waits:
            books[source] = None
        return engine.later(tuple(books), None, make)

    def _move_cursors(self, made: list[Planned]) -> None:
        for planned in made:
            self._source.move_cursor(planned.copy.cursor, planned.copy.through, self._now)

    def _show(self, planned: Planned) -> None:
        copy, book, _, start, block, _, _, _ = planned
        if copy.lost:
            book.skip(start, start + copy.lost - 1, "source_trim")
        if block is not None:
            publish(self._engine, book, block)
        if book.listeners and (copy.lost or block is not None):
            self._engine.tell(book)


def _target(
    copy: ForwardedCopy, book: Logbook, start: int, block: Block | None, selection: int, reserved: int, now: int
) -> ForwardTarget:
    flags = (KEEP_KEYS if copy.keep_keys else 0) | (KEEP_NODES if copy.keep_nodes else 0)
    metas = None if copy.metas is None or block is None or block.metas is None else list(block.metas)
    ts = 0 if block is None or block.ts == now else block.timestamp(0)
    first, lost = start + copy.lost, copy.lost
    return ForwardTarget(book.epoch, first, lost, selection, flags, reserved, copy.cursor, copy.through, metas, ts)
