"""A log: the handle that callers work with. Every change is journaled first and then made in the logbook."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from strandline.engine import changing
from strandline.engine.appending import check_room, room_of
from strandline.engine.block import Block
from strandline.engine.commit import Commit
from strandline.engine.duplicates import check_extras, find_duplicate
from strandline.engine.errors import (
    BadRequest,
    EngineError,
    MissingFile,
    RecordTooLarge,
    UnknownLog,
    UnknownSeq,
)
from strandline.engine.frame import (
    CursorMove,
    Floor,
    FrameType,
    Gap,
    Select,
    encode,
    encode_append,
    pack,
)
from strandline.engine.logbook import Logbook
from strandline.engine.parts import Segments
from strandline.engine.reading import NotResident, Query, Resident, read_page, read_tail
from strandline.engine.record import (
    Appended,
    Batch,
    Config,
    Cursor,
    Deleted,
    LogState,
    Page,
    Producer,
    Reason,
    check_cursor,
)
from strandline.engine.retention import evict_over_caps, expire, is_stale, needs_expiring
from strandline.engine.segments.store import UnknownSegment
from strandline.engine.volatile import begin_volatile, frames_of_volatile, has_durable

if TYPE_CHECKING:
    from strandline.engine.engine import Engine

T = TypeVar("T")


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
    def next_seq(self) -> int:
        """The seq that the next append gets."""
        return self._book.assigned + 1

    @property
    def dropped(self) -> bool:
        return self._book.dropped

    @property
    def revision(self) -> int:
        """Another number whenever something but an append has changed what readers see: what was read before, up to
        where it was read, is still true if this is the same."""
        if self._book.config.ttl_ms:
            with self._engine.lock:
                self._expire()
        return self._book.revision

    @property
    def book(self) -> Logbook:
        """What the log is made of; for the engine."""
        return self._book

    @property
    def engine(self) -> Engine:
        return self._engine

    def room(self) -> tuple[int, int] | None:
        """How many records and bytes a log that rejects what is over its caps still takes (a very large number where
        it has no cap); None when nothing is refused."""
        book = self._book
        with self._engine.lock:
            self._check()
            if book.config.discard != "reject":
                return None
            self._expire()
            records, size = room_of(book)
            return max(records, 0), max(size, 0)

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
        if without_nodes is None and key is None and key_prefix is None and since is None:
            page = self._read_tail(after, limit, max_bytes, epoch)
            if page is not None:
                return page
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
                self.fetch(missing)

    def _read_tail(self, after: int, limit: int, max_bytes: int | None, epoch: int | None) -> Page | None:
        """The page of a reader who is not far behind, which needs no more than a look at the last blocks."""
        engine, book = self._engine, self._book
        with engine.lock:
            self._check()
            if book.config.ttl_ms and is_stale(book, engine.now()):
                return None
            return read_tail(book, after, limit, max_bytes, epoch)

    def fetch(self, missing: NotResident) -> None:
        """Get what a reader must have first; the engine's lock must not be held."""
        try:
            missing.fetch()
        except (UnknownSegment, MissingFile):
            # Merged or dropped in the meantime: then the log has its records elsewhere, or not any more.
            if any(run.segment == missing.segment for run in self._book.runs):
                raise

    def read_resident(
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
    ) -> Page | None:
        """As ``read``, but None instead of waiting for the disk when something is not in memory."""
        engine, book = self._engine, self._book
        if without_nodes is None and key is None and key_prefix is None and since is None:
            page = self._read_tail(after, limit, max_bytes, epoch)
            if page is not None:
                return page
        nodes = None if without_nodes is None else frozenset(without_nodes)
        query = Query(after, limit, max_bytes, nodes, key, key_prefix, since, epoch)
        query.check()
        segments = Resident(engine.store)
        with suppress(NotResident), engine.lock:
            self._check()
            if book.config.ttl_ms and book.runs and needs_expiring(book, engine.now(), segments):
                return None
            self._expire()
            return read_page(book, query, segments)
        return None

    def sync(self) -> Commit[int]:
        """Done once everything that readers can see now is durable, whatever the log's class, with the head as of now.
        What an ephemeral log has is never durable: there it is done at once."""
        engine, book = self._engine, self._book
        with engine.lock:
            self._check()
            if book.config.durability == "ephemeral" or engine.journal.flushed == engine.journal.written:
                return Commit.of(book.head)
            self._check_writable()
            # Nothing of the log waits for this one: appends go on as if there were none.
            return engine.later((), book.head, None)

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
            extras = check_extras(idempotency_key, producer)
        with engine.lock:
            if book.dropped or not engine.writable:
                self._check_writable()
            now = engine.now()
            if extras is not None:
                duplicate = find_duplicate(book, idempotency_key, producer, now)
                if duplicate is not None:
                    return self._after_pending(duplicate)
            config = book.config
            if config.ttl_ms:
                self._expire(now)
            if config.discard == "reject":
                check_room(book, len(batch), size)
            block = Block.of_batch(book.assigned + 1, now, batch)
            must_wait, reserved = engine.reservations.wanted(book, block.last, len(batch))
            if config.durability == "ephemeral":
                engine.reservations.write(book, reserved, now)
                begin_volatile(book)
            else:
                engine.journal.write(encode_append(book.epoch, block, now, reserved, extras))
                engine.reservations.written(book, reserved)
                if book.journal_index != engine.journal.index:
                    engine.note_place(book, block.first)
            engine.touch(book)
            appended = book.assign(block, now, extras)
            if must_wait:
                return self._publish_later(block, size, appended)
            if config.durability == "ephemeral":
                self.publish(block)
            else:
                book.publish(block, engine.store)
            engine.flush_in_time()
            if book.listeners:
                engine.tell(book)
            return Commit(None, appended)

    def _publish_later(self, block: Block, size: int, appended: Appended) -> Commit[Appended]:
        book = self._book
        book.pending_count += len(block)
        book.pending_size += size
        return self._engine.later((book,), appended, lambda: self._publish_pending(block, size, appended))

    def remembers(self, idempotency_key: str) -> bool:
        """Whether an append with this key would be a repetition."""
        with self._engine.lock:
            self._check()
            return find_duplicate(self._book, idempotency_key, None, self._engine.now()) is not None

    def _publish_pending(self, block: Block, size: int, appended: Appended) -> Appended:
        book = self._book
        book.pending_count -= len(block)
        book.pending_size -= size
        self.publish(block)
        if book.listeners:
            self._engine.tell(book)
        return appended

    def _after_pending(self, appended: Appended) -> Commit[Appended]:
        """A duplicate of an append that still waits for the disk must wait with it."""
        if not self._book.pending:
            return Commit.of(appended)
        return self._engine.later((self._book,), appended, None)

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
            if book.config.durability == "ephemeral":
                engine.reservations.write(book, max(last, book.reserved), engine.now())
                begin_volatile(book)

            def make() -> None:
                book.skip(first, last, reason)
                engine.tell(book)

            commit = self._change(FrameType.GAP, lambda: pack(Gap(last, reason)), make, must_wait=must_wait)
            book.assigned = last
            book.reserved = max(book.reserved, last)
            return commit

    # --- cursors -------------------------------------------------------------------------------------------

    def cursors(self) -> dict[str, Cursor]:
        """All cursors of the log by name."""
        with self._engine.lock:
            self._check()
            return dict(self._book.cursors or {})

    def cursor(self, name: str) -> Cursor | None:
        self._check()
        cursors = self._book.cursors
        return None if cursors is None else cursors.get(name)

    def move_cursor(self, name: str, seq: int) -> Commit[Cursor]:
        """Put a named cursor at a seq, making it if need be; it may go backwards. It outlives restarts, on an
        ephemeral log as well, and goes with the log."""
        check_cursor(name, seq)
        engine, book = self._engine, self._book
        with engine.lock:
            self._check_writable()
            now = engine.now()
            return self._change(
                FrameType.CURSOR, lambda: pack(CursorMove(name, seq)), lambda: book.move_cursor(name, seq, now)
            )

    def drop_cursor(self, name: str) -> Commit[bool]:
        """Forget a cursor; tells whether there was one."""
        check_cursor(name)
        book = self._book
        return self._change(FrameType.CURSOR, lambda: pack(CursorMove(name, None)), lambda: book.drop_cursor(name))

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
        return self._select(FrameType.DELETE, changing.delete, before, key, prefix, seqs)

    def hide(
        self,
        *,
        before: int | None = None,
        key: str | None = None,
        prefix: str | None = None,
        seqs: Sequence[int] | None = None,
    ) -> Commit[Deleted]:
        """Take records out of sight, selected as in ``delete``; ``restore`` brings them back."""
        return self._select(FrameType.HIDE, changing.hide, before, key, prefix, seqs)

    def restore(
        self,
        *,
        before: int | None = None,
        key: str | None = None,
        prefix: str | None = None,
        seqs: Sequence[int] | None = None,
    ) -> Commit[Deleted]:
        """Bring hidden records back, selected as in ``delete``."""
        return self._select(FrameType.RESTORE, changing.restore, before, key, prefix, seqs)

    def _select(
        self,
        type: FrameType,
        change: Callable[[Logbook, Select, Segments], Deleted],
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
        if chosen and not (min(chosen) >= 0 and max(chosen) < 1 << 63):
            raise BadRequest("seqs must be 0 or more")
        book, engine = self._book, self._engine
        select: list[Select] = []

        def body() -> bytes:
            select.append(Select(book.assigned, before, key, prefix, chosen))
            # Before anything is journaled.
            if type is FrameType.DELETE:
                changing.check_removable(book, select[0], engine.store)
            else:
                changing.check_readable(book, select[0], engine.store)
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
            return self._change(
                FrameType.AMEND, lambda: data, lambda: changing.amend(book, seq, data, engine.store), first=seq
            )

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
        ceases = book.config.durability == "ephemeral" != config.durability
        for frame in frames_of_volatile(book, now) if ceases else ():
            engine.journal.write(frame)
        engine.touch(book)
        engine.write_config(book, config, now)
        if config.durability != "ephemeral":
            book.volatile_from = 0
        # What was volatile is written anew: nothing from before is to be referred to.
        book.journal_index = 0
        if book.tail is not None:
            book.tail.join_no_further()
        book.totals.count(book.config.durability, -1)
        book.totals.count(config.durability, 1)
        book.config = config
        self._evicting(lambda: evict_over_caps(book, engine.store))
        self._expire(now)
        return engine.later((book,), book.state(), None)

    def drop(self) -> Commit[None]:
        """Remove the log and everything in it. A log created later under this name has another epoch."""
        engine, book = self._engine, self._book
        with engine.lock:
            self._check_writable()
            engine.journal.write(encode(FrameType.DROP, book.epoch, 0, engine.now()))
            engine.touch(book)
            engine.remove(book)
            commit: Commit[None] = engine.later((book,), None, None)
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
            if (
                book.config.durability != "ephemeral"
                or type is FrameType.CURSOR
                or (type is not FrameType.GAP and has_durable(book))
            ):
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
                return engine.later((book,), None, lambda: self._evicting(make))
            engine.flush_in_time()
            return Commit.of(self._evicting(make))

    def publish(self, block: Block) -> None:
        """Let readers see the block; for the engine."""
        book, segments = self._book, self._engine.store
        if book.config.durability == "ephemeral":
            self._evicting(lambda: book.publish(block, segments))
        else:
            book.publish(block, segments)

    def _evicting(self, change: Callable[[], T]) -> T:
        """Make a change that may evict records. Replaying does the same by itself, except on an ephemeral log."""
        book = self._book
        floor, had_durable = book.evict_floor, has_durable(book)
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
        if not is_stale(book, now):
            return
        engine.touch(book)
        had_durable = has_durable(book)
        if expire(book, now, engine.store) and had_durable and engine.writable:
            self._write_floors(now)

    def _write_floors(self, now: int) -> None:
        book, engine = self._book, self._engine
        body = pack(Floor(book.ttl_floor, book.cap_floor))
        # A reader must not fail because the disk is full: the next start lets time take it again.
        with suppress(EngineError):
            engine.journal.write(encode(FrameType.FLOOR, book.epoch, book.assigned, now, body, reserved=book.reserved))
            engine.flush_in_time()

    def prepare_append(self) -> None:
        """Raise if the log is gone, and let time take what is too old; for the engine."""
        self._check()
        self._expire()

    def _check(self) -> None:
        if self._book.dropped:
            raise UnknownLog(self._book.name)

    def _check_writable(self) -> None:
        self._engine.check_writable()
        self._check()
