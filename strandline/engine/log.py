"""A log: the handle that callers work with. Every change is journaled first and then made in the logbook."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from strandline.engine.block import Block
from strandline.engine.catalog import BookState, state_frame
from strandline.engine.commit import Commit
from strandline.engine.errors import (
    BadRequest,
    EngineError,
    LogFull,
    MissingFile,
    RecordTooLarge,
    UnknownLog,
    UnknownSeq,
)
from strandline.engine.frame import (
    Encoded,
    Extras,
    Floor,
    FrameType,
    Gap,
    Select,
    encode,
    encode_append,
    pack,
)
from strandline.engine.logbook import Logbook
from strandline.engine.parts import Overlay
from strandline.engine.reading import NotResident, Query, Resident, read_page
from strandline.engine.record import Appended, Batch, Config, Deleted, LogState, Page, Producer, Reason
from strandline.engine.store import UnknownSegment

if TYPE_CHECKING:
    from strandline.engine.engine import Engine

T = TypeVar("T")

#: Seqs that a log may hand out before the next flush says so durably; doubled whenever they ran out.
MIN_RESERVE = 256
MAX_RESERVE = 1 << 20
#: Idempotency keys and producer ids are remembered by the log, so they are bounded.
MAX_IDENTITY = 1024
#: An ephemeral log writes nothing else, so it reserves in larger steps.
EPHEMERAL_RESERVE = 1 << 16


class Log:
    """A named append-only sequence of records. Safe to use from any thread.

    Changes return a :class:`Commit`: call ``wait`` on it for the result. On a ``fsync`` log nobody sees a change
    before it is durable; on the others it is made at once.
    """

    __slots__ = ("_book", "_engine")

    def __init__(self, engine: Engine, book: Logbook) -> None:
        self._engine = engine
        self._book = book

    def __repr__(self) -> str:
        return f"<Log {self._book.name!r} epoch {self._book.epoch}>"

    @property
    def name(self) -> str:
        return self._book.name

    @property
    def epoch(self) -> int:
        """Which log of this name it is: every log ever created in a directory has another one, and a higher."""
        return self._book.epoch

    @property
    def config(self) -> Config:
        return self._book.config

    @property
    def head(self) -> int:
        """The highest seq that readers can see; 0 when nothing was ever written."""
        return self._book.head

    @property
    def dropped(self) -> bool:
        return self._book.dropped

    def state(self) -> LogState:
        with self._engine.lock:
            self._check()
            self._expire()
            return self._book.state()

    # --- reading -------------------------------------------------------------------------------------------

    def read(
        self,
        after: int = 0,
        limit: int = 256,
        *,
        max_bytes: int | None = None,
        without_nodes: Iterable[str] | None = None,
        key: str | None = None,
        key_prefix: str | None = None,
        since: int | None = None,
        epoch: int | None = None,
    ) -> Page:
        """The records behind ``after``, oldest first; see :class:`Query` for the filters."""
        nodes = None if without_nodes is None else frozenset(without_nodes)
        query = Query(after, limit, max_bytes, nodes, key, key_prefix, since, epoch)
        query.check()
        segments = Resident(self._engine.store)
        while True:
            try:
                with self._engine.lock:
                    self._check()
                    self._expire()
                    return read_page(self._book, query, segments)
            except NotResident as missing:
                try:
                    missing.fetch()
                except (UnknownSegment, MissingFile):
                    # Merged or dropped in the meantime: then the log has its records elsewhere, or not any more.
                    if any(run.segment == missing.segment for run in self._book.runs):
                        raise

    def listen(self, listener: Callable[[Log], None]) -> Callable[[], None]:
        """Call ``listener`` whenever readers may find something new: records, a gap, or that the log was dropped.

        It runs on the thread that made the change, with the engine's lock held: it must be quick and must only
        wake somebody up. Returns a function that ends it.
        """

        def tell(book: Logbook) -> None:
            listener(self)

        book = self._book
        with self._engine.lock:
            self._check()
            book.listeners = (*book.listeners, tell)

        def stop() -> None:
            with self._engine.lock:
                book.listeners = tuple(known for known in book.listeners if known is not tell)

        return stop

    # --- appending -----------------------------------------------------------------------------------------

    def append(
        self, batch: Batch, *, idempotency_key: str | None = None, producer: Producer | None = None
    ) -> Commit[Appended]:
        """Append all records of the batch under consecutive seqs, or none.

        With an ``idempotency_key`` or a ``producer`` a repeated append changes nothing and gives the first
        one's result, marked ``deduped``.
        """
        engine, book = self._engine, self._book
        size = batch.check(engine.options.max_record_bytes)
        extras = None
        if idempotency_key is not None or producer is not None:
            extras = _check_extras(idempotency_key, producer)
        with engine.lock:
            self._check_writable()
            now = engine.now()
            if extras is not None:
                duplicate = book.find_duplicate(idempotency_key, producer, now)
                if duplicate is not None:
                    return self._after_pending(duplicate)
            self._expire(now)
            if book.config.discard == "reject":
                self._check_room(batch, size)
            block = Block.of_batch(book.assigned + 1, now, batch)
            reserved = book.reserved
            must_wait = self._reserve(block, now)
            if book.config.durability != "ephemeral":
                try:
                    engine.journal.write(encode_append(book.epoch, block, now, book.reserved, extras))
                except EngineError:
                    # The frame was to say so; no flush must take it for said.
                    book.reserved = reserved
                    engine.note_reserved(book)
                    raise
            else:
                self._begin_volatile()
            engine.touch(book)
            appended = book.assign(block, now, extras)
            if must_wait:
                book.pending_count += len(block)
                book.pending_size += size
                return engine.later(book, appended, lambda: self._publish_pending(block, size, appended))
            self._publish(block)
            engine.flush_in_time()
            if book.listeners:
                engine.tell(book)
            return Commit.of(appended)

    def _check_room(self, batch: Batch, size: int) -> None:
        book, config = self._book, self._book.config
        records, bytes_ = len(batch), size
        if config.cap_records and records > config.cap_records:
            raise RecordTooLarge(0, records, config.cap_records)
        if config.cap_bytes and bytes_ > config.cap_bytes:
            raise RecordTooLarge(0, bytes_, config.cap_bytes)
        records += book.count + book.pending_count
        bytes_ += book.size + book.pending_size
        if (config.cap_records and records > config.cap_records) or (config.cap_bytes and bytes_ > config.cap_bytes):
            raise LogFull(
                book.name,
                config.cap_records,
                config.cap_bytes,
                book.head,
                book.earliest,
                book.count,
                book.size,
            )

    def _reserve(self, block: Block, now: int) -> bool:
        """See to it that no crash can make the block's seqs be handed out again.

        On a ``fsync`` log the flush before the acknowledgement does that. On the others the journal says ahead of
        time up to where seqs may have been handed out; only if that is not durable yet must the append wait.
        Tells whether it must.
        """
        book = self._book
        if book.config.durability == "fsync":
            book.reserved = block.last
            return True
        ephemeral = book.config.durability == "ephemeral"
        minimum = EPHEMERAL_RESERVE if ephemeral else MIN_RESERVE
        step = max(book.reserve_step, minimum, 4 * len(block))
        waits = block.last > book.reserved_durable or book.pending > 0
        if block.last + step // 2 > book.reserved:
            if waits:
                step = min(2 * step, max(MAX_RESERVE, 4 * len(block)))
            reserved = block.last + step
            if ephemeral:
                self._engine.journal.write(encode(FrameType.RESERVE, book.epoch, book.assigned, now, reserved=reserved))
            book.reserve_step = step
            book.reserved = reserved
        self._engine.note_reserved(book)
        return waits

    def _publish_pending(self, block: Block, size: int, appended: Appended) -> Appended:
        book = self._book
        book.pending_count -= len(block)
        book.pending_size -= size
        self._publish(block)
        if book.listeners:
            self._engine.tell(book)
        return appended

    def _after_pending(self, appended: Appended) -> Commit[Appended]:
        """A duplicate of an append that still waits for the disk must wait with it."""
        if not self._book.pending:
            return Commit.of(appended)
        return self._engine.later(self._book, appended, None)

    def skip(self, count: int, reason: Reason) -> Commit[None]:
        """Assign ``count`` seqs that hold nothing: readers who pass them get a tombstone with this reason."""
        if count < 1:
            raise BadRequest(f"count must be 1 or more, not {count}")
        book, engine = self._book, self._engine
        with engine.lock:
            self._check_writable()
            first, last = book.assigned + 1, book.assigned + count
            # What was acknowledged is never handed out again, so what was not reserved must be durable first.
            must_wait = last > book.reserved_durable
            if book.config.durability == "ephemeral" and last > book.reserved:
                engine.journal.write(encode(FrameType.RESERVE, book.epoch, book.assigned, engine.now(), reserved=last))
                book.reserved = last
                engine.note_reserved(book)
            if book.config.durability == "ephemeral":
                self._begin_volatile()

            def make() -> None:
                book.skip(first, last, reason)
                engine.tell(book)

            commit = self._change(FrameType.GAP, lambda: pack(Gap(last, reason)), make, must_wait=must_wait)
            book.assigned = last
            book.reserved = max(book.reserved, last)
            return commit

    # --- what records can become ---------------------------------------------------------------------------

    def delete(
        self,
        *,
        before: int | None = None,
        key: str | None = None,
        prefix: str | None = None,
        seqs: Sequence[int] | None = None,
    ) -> Commit[Deleted]:
        """Remove records for good: those with a seq below ``before``, with this key, with this prefix in their
        key, or with one of these seqs; with several conditions, those that fulfil all of them. Silent: readers
        get no tombstone. Records appended later are not touched."""
        return self._select(FrameType.DELETE, Logbook.delete, before, key, prefix, seqs)

    def hide(
        self,
        *,
        before: int | None = None,
        key: str | None = None,
        prefix: str | None = None,
        seqs: Sequence[int] | None = None,
    ) -> Commit[Deleted]:
        """Take records out of sight, selected as in ``delete``; ``restore`` brings them back."""
        return self._select(FrameType.HIDE, Logbook.hide, before, key, prefix, seqs)

    def restore(
        self,
        *,
        before: int | None = None,
        key: str | None = None,
        prefix: str | None = None,
        seqs: Sequence[int] | None = None,
    ) -> Commit[Deleted]:
        """Bring hidden records back, selected as in ``delete``."""
        return self._select(FrameType.RESTORE, Logbook.restore, before, key, prefix, seqs)

    def _select(
        self,
        type: FrameType,
        change: Callable[[Logbook, Select, object], Deleted] | Callable[..., Deleted],
        before: int | None,
        key: str | None,
        prefix: str | None,
        seqs: Sequence[int] | None,
    ) -> Commit[Deleted]:
        if before is None and key is None and prefix is None and seqs is None:
            raise BadRequest("say which records: before, key, prefix or seqs")
        if before is not None and before < 0:
            raise BadRequest(f"before must be 0 or more, not {before}")
        chosen = None if seqs is None else [int(seq) for seq in seqs]
        if chosen is not None and any(not 0 <= seq < 1 << 63 for seq in chosen):
            raise BadRequest("seqs must be 0 or more")
        book, engine = self._book, self._engine
        select: list[Select] = []

        def body() -> bytes:
            select.append(Select(book.assigned, before, key, prefix, chosen))
            # Before anything is journaled.
            if type is FrameType.DELETE:
                book.check_removable(select[0], engine.store)
            else:
                book.check_readable(select[0], engine.store)
            return pack(select[0])

        return self._change(type, body, lambda: change(book, select[0], engine.store))

    def amend(self, seq: int, data: bytes) -> Commit[None]:
        """Give a record other data. Its seq, time, key, node and meta stay."""
        if type(data) is not bytes:
            raise BadRequest(f"data must be bytes, not {type(data).__name__}")
        limit = self._engine.options.max_record_bytes
        if len(data) > limit:
            raise RecordTooLarge(0, len(data), limit)
        book, engine = self._book, self._engine
        with engine.lock:
            self._check_writable()
            self._expire()
            # One that still waits for the disk will be there when the amendment's turn comes.
            if not book.head < seq <= book.assigned and not book.has(seq, engine.store):
                raise UnknownSeq(book.name, seq)
            return self._change(FrameType.AMEND, lambda: data, lambda: book.amend(seq, data, engine.store), first=seq)

    # --- the log itself ------------------------------------------------------------------------------------

    def configure(self, config: Config) -> Commit[LogState]:
        """Replace the configuration. It is durable once the commit is done, whatever the log's class.

        Waits for what is on its way to the disk, so that every record is kept by the rules it was written under.
        """
        engine, book = self._engine, self._book
        while True:
            with engine.lock:
                self._check_writable()
                if not book.pending:
                    return self._configure(config)
            engine.flush()

    def _configure(self, config: Config) -> Commit[LogState]:
        engine, book = self._engine, self._book
        now = engine.now()
        self._expire(now)
        for frame in self._frames_of_volatile(config, now):
            engine.journal.write(frame)
        engine.touch(book)
        engine.write_config(book, config, now)
        if config.durability != "ephemeral":
            book.volatile_from = 0
        if book.tail is not None:
            book.tail.join_no_further()
        book.config = config
        self._evicting(lambda: book.evict_over_caps(engine.store))
        self._expire(now)
        return engine.later(book, book.state(), None)

    def _frames_of_volatile(self, config: Config, now: int) -> list[Encoded]:
        """What an ephemeral log must write down when it ceases to be one: the records it has, and its state."""
        book, tail, epoch = self._book, self._book.tail, self._book.epoch
        if config.durability == "ephemeral" or book.config.durability != "ephemeral":
            return []
        frames: list[Encoded] = []
        if book.volatile_from and tail is not None:
            first, last, taken, overlay = book.volatile_from, tail.last, book.reserved, tail.overlay or Overlay()
            frames += [
                encode_append(
                    epoch, block.cut(low - block.first, high - block.first + 1), block.timestamp(0), taken, None
                )
                for block in tail.uniform_blocks(first)
                for low, high in overlay.dead.gaps(block.first, block.last)
            ]
            hidden = [seq for low, high in overlay.hidden.overlap(first, last) for seq in range(low, high + 1)]
            if hidden:
                frames.append(encode(FrameType.HIDE, epoch, 0, now, pack(Select(last, seqs=hidden)), reserved=taken))
            amended = [(seq, data) for seq, data in overlay.amended.items() if seq >= first]
            frames += [encode(FrameType.AMEND, epoch, seq, now, data) for seq, data in amended]
        return [*frames, state_frame(epoch, BookState.of(book))]

    def drop(self) -> Commit[None]:
        """Remove the log and everything in it. A log created later under this name has another epoch."""
        engine, book = self._engine, self._book
        with engine.lock:
            self._check_writable()
            engine.journal.write(encode(FrameType.DROP, book.epoch, 0, engine.now()))
            engine.touch(book)
            engine.remove(book)
            commit: Commit[None] = engine.later(book, None, None)
            engine.tell(book)
            return commit

    # --- shared --------------------------------------------------------------------------------------------

    def _change(
        self,
        type: FrameType,
        body: Callable[[], bytes],
        make: Callable[[], T],
        first: int | None = None,
        must_wait: bool = False,
    ) -> Commit[T]:
        """Journal a change and make it: at once, or on a ``fsync`` log, or if it must wait, when it is durable."""
        engine, book = self._engine, self._book
        with engine.lock:
            self._check_writable()
            now = engine.now()
            self._expire(now)
            if book.config.durability != "ephemeral" or (self._has_durable() and type is not FrameType.GAP):
                engine.journal.write(
                    encode(
                        type,
                        book.epoch,
                        book.assigned if first is None else first,
                        now,
                        body(),
                        reserved=book.reserved,
                    )
                )
            else:
                body()
            engine.touch(book)
            if book.config.durability == "fsync" or book.pending or must_wait:
                return engine.later(book, None, lambda: self._evicting(make))
            engine.flush_in_time()
            return Commit.of(self._evicting(make))

    def _publish(self, block: Block) -> None:
        book, segments = self._book, self._engine.store
        if book.config.durability == "ephemeral":
            self._evicting(lambda: book.publish(block, segments))
        else:
            book.publish(block, segments)

    def _begin_volatile(self) -> None:
        """What is assigned from here on is in memory only."""
        book = self._book
        if not book.volatile_from:
            book.volatile_from = book.assigned + 1
            if book.tail is not None:
                book.tail.join_no_further()

    def _has_durable(self) -> bool:
        """Whether there are records that a restart brings back; an ephemeral log may have some from earlier."""
        book = self._book
        return book.config.durability != "ephemeral" or book.earliest < (book.volatile_from or book.assigned + 1)

    def _evicting(self, change: Callable[[], T]) -> T:
        """Make a change that may evict records. Replaying does the same by itself, except on an ephemeral log."""
        book = self._book
        floor, had_durable = book.evict_floor, self._has_durable()
        result = change()
        if book.config.durability == "ephemeral" and had_durable and book.evict_floor > floor:
            self._write_floors(self._engine.now())
        return result

    def _expire(self, now: int | None = None) -> None:
        """Let time take what is too old, and write down that it did: a clock set back must not bring it again."""
        book, engine = self._book, self._engine
        if not book.config.ttl_ms:
            return
        if now is None:
            now = engine.now()
        if not book.is_stale(now):
            return
        engine.touch(book)
        had_durable = self._has_durable()
        if book.expire(now, engine.store) and had_durable and engine.writable:
            self._write_floors(now)

    def _write_floors(self, now: int) -> None:
        book, engine = self._book, self._engine
        body = pack(Floor(book.ttl_floor, book.cap_floor))
        # A reader must not fail because the disk is full: the next start lets time take it again.
        with suppress(EngineError):
            engine.journal.write(encode(FrameType.FLOOR, book.epoch, book.assigned, now, body, reserved=book.reserved))
            engine.flush_in_time()

    def _check(self) -> None:
        if self._book.dropped:
            raise UnknownLog(self._book.name)

    def _check_writable(self) -> None:
        self._engine.check_writable()
        self._check()


def _check_extras(idempotency_key: str | None, producer: Producer | None) -> Extras:
    if idempotency_key is not None:
        _check_identity("an idempotency key", idempotency_key)
    if producer is not None:
        _check_identity("a producer's id", producer.id)
        for what, number in (("epoch", producer.epoch), ("seq", producer.seq)):
            if type(number) is not int or not 0 <= number < 1 << 63:
                raise BadRequest(f"a producer's {what} must be a whole number from 0 to 2^63 - 1, not {number!r}")
    return Extras(idempotency_key, producer)


def _check_identity(what: str, text: str) -> None:
    if type(text) is not str or not text or len(text) > MAX_IDENTITY or any("\ud800" <= c <= "\udfff" for c in text):
        raise BadRequest(f"{what} must be Unicode text of 1 to {MAX_IDENTITY} characters")
