"""A log: the handle that callers work with. Every change is journaled before it is applied to the logbook."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from strandline.engine.commit import Commit
from strandline.engine.errors import BadRequest, LogHasForks
from strandline.engine.journal.bodies import CursorMove, Extras, GapBody, Select, pack
from strandline.engine.journal.frame import FrameType, encode, encode_append
from strandline.engine.operations.append import after_pending, check_room, publish_later, room_of
from strandline.engine.operations.change import (
    DELETE,
    HIDE,
    RESTORE,
    change_selected,
    check_amendable,
    check_amendment,
    configure,
    note,
    note_frame,
    reach_lake,
)
from strandline.engine.operations.journaled import begin_volatile, change, let_all_expire, let_expire, publish
from strandline.engine.reads.backwards import find_key, read_back
from strandline.engine.reads.latest import read_latest
from strandline.engine.reads.page import read
from strandline.engine.reads.view import read_hidden
from strandline.engine.record import (
    Appended,
    Batch,
    Config,
    Cursor,
    Deleted,
    LogState,
    Page,
    Producer,
    ProducerState,
    Reason,
    Record,
    check_cursor,
    check_time,
)
from strandline.engine.state import record_changes
from strandline.engine.state.block import Block
from strandline.engine.state.forks import revision_of
from strandline.engine.state.idempotency import check_extras, find_duplicate
from strandline.engine.state.lake_mark import lake_mark
from strandline.engine.state.logbook import Logbook
from strandline.engine.state.notes import NO_VALUES, check_fits
from strandline.engine.state.retention import held_back
from strandline.key_share import KeyShares

if TYPE_CHECKING:
    from strandline.engine.engine import Engine


class Log:
    """A named append-only sequence of records. Thread-safe.

    Changes return a :class:`Commit`: call its ``wait`` for the result. On a ``fsync`` log, readers see a change once it
    is durable. On a ``replicated`` log, they see new records once the replica has them, and other changes once they are
    durable here. On other logs, readers see a change immediately.
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
        """Identifies this log among all logs of its name: every log created in a directory gets a higher epoch than all
        before it."""
        return self._book.epoch

    @property
    def config(self) -> Config:
        return self._book.config

    @property
    def created_at(self) -> int:
        """When the log was created, in milliseconds. For a log of an older release, the time of its first record."""
        return self._book.created_ts

    @property
    def head(self) -> int:
        """The highest seq that readers can see; 0 if nothing was ever written."""
        book = self._book
        return book.shown_head if book.held else book.head

    @property
    def next_seq(self) -> int:
        """The seq that the next append gets."""
        return self._book.assigned + 1

    @property
    def last_ts(self) -> int:
        """The time of the last record that was appended, whether or not readers see it yet; 0 if there was none."""
        return self._book.last_ts

    @property
    def coming_count(self) -> int:
        """The number of live records, including those that wait for the disk."""
        return self._book.count + self._book.pending_count

    @property
    def dropped(self) -> bool:
        return self._book.dropped

    @property
    def revision(self) -> int:
        """A number that changes whenever a change other than an append affects what readers see. While it is the same,
        everything read before is still valid."""
        book = self._book
        if not book.config.ttl_ms and book.base is None:
            return book.revision
        with self._engine.lock:
            let_all_expire(self._engine, book)
            return revision_of(book)

    @property
    def book(self) -> Logbook:
        """The logbook, for the engine."""
        return self._book

    @property
    def engine(self) -> Engine:
        return self._engine

    def room(self) -> tuple[int, int] | None:
        """How many records and bytes a log that rejects appends when full still accepts, or a very large number where
        it has no limit. None if the log refuses nothing."""
        book = self._book
        with self._engine.lock:
            self._book.check_there()
            if book.config.discard != "reject":
                return None
            let_expire(self._engine, self._book)
            records, size = room_of(book)
            return max(records, 0), max(size, 0)

    def state(self) -> LogState:
        """Return the current state of the log. For a fork, ``head``, ``earliest`` and ``evict_floor`` include shared
        records, while ``count`` and ``size`` only cover its own."""
        with self._engine.lock:
            self._book.check_there()
            let_all_expire(self._engine, self._book)
            return self._book.state()

    # --- forks ---------------------------------------------------------------------------------------------

    @property
    def base(self) -> tuple[Log, int] | None:
        """The log that this one was forked from, and the last shared seq; see :meth:`Engine.fork`. None if it is not a
        fork."""
        base = self._book.base
        if base is None:
            return None
        assert base.book is not None
        return Log(self._engine, base.book), base.through

    @property
    def forks(self) -> int:
        """The number of existing logs that were forked from this one."""
        return self._book.forks

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
        shares: KeyShares | None = None,
    ) -> Page:
        """Return the records after ``after``, oldest first. ``reads.page.PageQuery`` explains the filters."""
        page = read(
            self._engine,
            self._book,
            True,
            after,
            limit,
            max_bytes,
            without_nodes,
            key,
            key_prefix,
            since,
            epoch,
            shares,
        )
        assert page is not None
        return page

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
        shares: KeyShares | None = None,
    ) -> Page | None:
        """Like ``read``, but return None instead of waiting for the disk."""
        return read(
            self._engine,
            self._book,
            False,
            after,
            limit,
            max_bytes,
            without_nodes,
            key,
            key_prefix,
            since,
            epoch,
            shares,
        )

    def read_latest(self, after: int = 0, limit: int = 256, **filters: Any) -> Page:
        """Like ``read``, with the same filters, but only return records that are currently the last of their key.

        To get the last record of every key, whatever is appended in the meantime, read to the end page by page and
        continue from there with ``read``.
        """
        page = read_latest(self, True, after, limit, **filters)
        assert page is not None
        return page

    def read_latest_resident(self, after: int = 0, limit: int = 256, **filters: Any) -> Page | None:
        """Like ``read_latest``, but return None instead of waiting for the disk or computing which records are last."""
        return read_latest(self, False, after, limit, **filters)

    def read_back(self, before: int | None = None, limit: int = 256, *, max_bytes: int | None = None) -> Page:
        """Return the last records with a seq below ``before`` (None: of the whole log), oldest first.

        ``caught_up`` means that there are no earlier records. For the previous page, pass the first seq of this one as
        ``before``. Lost records are not reported.
        """
        page = read_back(self._engine, self._book, True, before, limit, max_bytes)
        assert page is not None
        return page

    def read_back_resident(
        self, before: int | None = None, limit: int = 256, *, max_bytes: int | None = None
    ) -> Page | None:
        """Like ``read_back``, but return None instead of waiting for the disk."""
        return read_back(self._engine, self._book, False, before, limit, max_bytes)

    def find_key(self, key: str) -> int | None:
        """Return the seq of the last record with this key that is not deleted. Hidden records count."""
        return find_key(self._engine, self._book, True, key) or None

    def find_key_resident(self, key: str) -> tuple[bool, int | None]:
        """Return whether the answer is known without waiting for the disk and, if so, the result of ``find_key``."""
        found = find_key(self._engine, self._book, False, key)
        return found is not None, found or None

    def read_hidden(self, seq: int) -> Record | None:
        """Return the record with this seq if it is hidden, otherwise None. A fork only finds its own records."""
        return read_hidden(self._engine, self._book, seq)

    def sync(self) -> Commit[int]:
        """Return a commit that is done when everything that readers can see now is durable, whatever the log's
        durability. Its value is the current head. The records of an ephemeral log are never durable, so its commit is
        done immediately."""
        engine, book = self._engine, self._book
        with engine.lock:
            self._book.check_there()
            durable = engine.journal.flushed == engine.journal.written and not book.held
            if book.config.durability == "ephemeral" or durable:
                return Commit.of(book.shown)
            self._check_writable()
            # Later changes of the log do not wait for this commit.
            return engine.later((), book.shown, None, replicated=book.held > 0)

    def listen(self, listener: Callable[[Log], None]) -> Callable[[], None]:
        """Call ``listener`` whenever readers may find a change: new records, a gap, or the drop of the log.

        The listener runs on the thread that made the change, with the engine's lock held. It must be quick and should
        only wake another thread. Returns a function that removes the listener.
        """

        def tell(book: Logbook) -> None:
            listener(self)

        book = self._book
        with self._engine.lock:
            self._book.check_there()
            book.listeners = (*book.listeners, tell)

        def stop() -> None:
            with self._engine.lock:
                book.listeners = tuple(known for known in book.listeners if known is not tell)

        return stop

    # --- appending -----------------------------------------------------------------------------------------

    def append(
        self,
        batch: Batch,
        *,
        idempotency_key: str | None = None,
        producer: Producer | None = None,
        notes: Mapping[str, Any] | None = None,
        ts: int | None = None,
    ) -> Commit[Appended]:
        """Append all records of the batch with consecutive seqs, or none.

        With an ``idempotency_key`` or a ``producer``, a repeated append changes nothing and returns the first one's
        result, marked ``deduped``. ``notes`` are changed in the same step; see :meth:`note`.

        ``ts`` replaces the current time as the time of the records. Times never go backwards in a log: if the last
        record is later, the new records get its time. Max age counts from the time of the records. Records that are
        already too old are removed immediately, with a tombstone. Records with a future time stay correspondingly
        longer, or until a record after them expires. ``ts`` affects neither the engine's clock nor idempotency windows.
        A time more than FUTURE_MS ahead of the clock does not change the time of later records.
        """
        engine, book = self._engine, self._book
        size = batch.check(engine.options.max_record_bytes)
        if ts is not None:
            check_time(ts)
        extras = None
        if idempotency_key is not None or producer is not None or notes is not None:
            extras = check_extras(idempotency_key, producer, notes)
        with engine.lock:
            if book.dropped or not engine.writable:
                self._check_writable()
            now = engine.now()
            if extras is not None:
                duplicate = find_duplicate(book, idempotency_key, producer, now)
                if duplicate is not None:
                    return after_pending(engine, book, duplicate)
                if extras.notes is not None:
                    check_fits(book.notes, extras.notes)
            config = book.config
            if config.ttl_ms:
                let_expire(engine, book, now)
            if config.discard == "reject":
                check_room(book, len(batch), size)
            if engine.quota.max_bytes:
                engine.quota.check_append(book.name, size)
            if engine.journal.written + size > engine.backlog.limit and config.durability != "ephemeral":
                engine.backlog.check(book, len(batch), size)
            time = now if ts is None else ts
            if time < book.last_ts:
                time = book.time_of(now, ts)
            block = Block.of_batch(book.assigned + 1, time, batch)
            must_wait, reserved = engine.reservations.wanted(book, block.last, len(batch))
            engine.touch(book)
            if config.durability == "ephemeral":
                engine.reservations.write(book, reserved, now)
                if extras is not None and extras.notes is not None:
                    engine.journal.write(note_frame(book, Extras(notes=extras.notes), now))
                begin_volatile(book)
            else:
                engine.journal.write(encode_append(book.epoch, block, now, reserved, extras))
                engine.reservations.written(book, reserved)
                if book.journal_index != engine.journal.index:
                    engine.note_place(book, block.first)
            appended = book.assign(block, time, extras, now)
            if must_wait:
                return publish_later(engine, book, block, size, appended)
            if config.durability == "ephemeral":
                publish(engine, book, block)
            else:
                book.publish(block, engine.store)
            engine.flush_in_time()
            if book.listeners:
                engine.tell(book)
            return Commit(None, appended)

    def remembers(self, idempotency_key: str) -> bool:
        """Return whether an append with this idempotency key would be a repetition."""
        return self.remembered(idempotency_key) is not None

    def remembered(self, idempotency_key: str) -> Appended | None:
        """Return the result of the append with this idempotency key, or None if the log does not remember it."""
        with self._engine.lock:
            self._book.check_there()
            return find_duplicate(self._book, idempotency_key, None, self._engine.now())

    def skip(self, count: int, reason: Reason) -> Commit[None]:
        """Assign ``count`` seqs without records. Readers get a tombstone with this reason."""
        if count < 1:
            raise BadRequest(f"count must be 1 or more, not {count}")
        book, engine = self._book, self._engine
        with engine.lock:
            self._check_writable()
            first, last = book.assigned + 1, book.assigned + count
            # Acknowledged seqs must not be assigned again, so seqs beyond the reservation must be durable first.
            must_wait = last > book.reserved_durable
            if book.config.durability == "ephemeral":
                engine.reservations.write(book, max(last, book.reserved), engine.now())
                begin_volatile(book)

            def make() -> None:
                book.skip(first, last, reason)
                engine.tell(book)

            commit = change(engine, book, FrameType.GAP, lambda: pack(GapBody(last, reason)), make, must_wait=must_wait)
            book.assigned = last
            book.reserved = max(book.reserved, last)
            return commit

    def producer(self, id: str) -> ProducerState | None:
        """Return the state of a producer, or None if the log does not know it."""
        self._book.check_there()
        producers = self._book.producers
        return None if producers is None else producers.get(id)

    # --- notes ---------------------------------------------------------------------------------------------

    @property
    def notes(self) -> Mapping[str, Any]:
        """Small values that a protocol stores with the log, by name. Do not modify the mapping or the values.

        A change creates a new mapping that keeps the value objects of the unchanged names. A change is visible once it
        is journaled: on a ``fsync`` log, before readers see the records of the same append. If a note says that no more
        records follow, also check that ``head`` has reached ``next_seq - 1``.
        """
        notes = self._book.notes
        return NO_VALUES if notes is None else notes.values

    def note(self, changes: Mapping[str, Any], *, producer: Producer | None = None) -> Commit[Appended]:
        """Change notes: builtin values by name, or None to remove a note. Listeners are called.

        Notes survive restarts, also on an ephemeral log, and are removed with the log. A ``producer`` advances as with
        an append. The result has no records: its ``first`` is the next seq, its ``last`` the one before.
        """
        return note(self._engine, self._book, changes, producer)

    @property
    def lake_mark(self) -> int:
        """The seq up to which the lake has the records, as last reported with :meth:`reach_lake`."""
        return lake_mark(self._book)

    def held_back(self) -> tuple[int, int]:
        """Return how many records and bytes the log has beyond its retention, because it keeps them until the lake has
        them."""
        engine, book = self._engine, self._book
        with engine.lock:
            book.check_there()
            let_expire(engine, book)
            return held_back(book, engine.now(), engine.store) if book.config.retain_until_in_lake else (0, 0)

    def reach_lake(self, through: int, rewrites: int) -> Commit[bool]:
        """Report that the lake has every record up to the seq ``through``, so that retention and compaction may remove
        them, if the log is configured to keep records until then. A lower seq than before means that the lake has lost
        records.

        ``rewrites`` is the number of restored and amended records (``reads.status.rewrites_of``) that the lake has
        taken into account. If it has changed, the report is out of date and has no effect. The result is whether it had
        an effect.
        """
        return reach_lake(self._engine, self._book, through, rewrites)

    # --- cursors -------------------------------------------------------------------------------------------

    def cursors(self) -> dict[str, Cursor]:
        """Return all cursors of the log by name."""
        with self._engine.lock:
            self._book.check_there()
            return dict(self._book.cursors or {})

    def cursor(self, name: str) -> Cursor | None:
        self._book.check_there()
        cursors = self._book.cursors
        return None if cursors is None else cursors.get(name)

    def move_cursor(self, name: str, seq: int) -> Commit[Cursor]:
        """Move a named cursor to a seq, creating it if needed. A cursor may move backwards. Cursors survive restarts,
        also on an ephemeral log, and are removed with the log."""
        check_cursor(name, seq)
        engine, book = self._engine, self._book
        with engine.lock:
            self._check_writable()
            now = engine.now()
            return change(
                engine,
                book,
                FrameType.CURSOR,
                lambda: pack(CursorMove(name, seq)),
                lambda: book.move_cursor(name, seq, now),
            )

    def drop_cursor(self, name: str) -> Commit[bool]:
        """Remove a cursor. Return whether it existed."""
        check_cursor(name)
        engine, book = self._engine, self._book
        return change(
            engine, book, FrameType.CURSOR, lambda: pack(CursorMove(name, None)), lambda: book.drop_cursor(name)
        )

    # --- changes to records --------------------------------------------------------------------------------

    def delete(
        self,
        *,
        before: int | None = None,
        key: str | None = None,
        prefix: str | None = None,
        seqs: Sequence[int] | None = None,
        erasure: bool = True,
    ) -> Commit[Deleted]:
        """Remove records permanently: those with a seq below ``before``, with this key, with this prefix in their key,
        or with one of these seqs. Several conditions are combined with AND. Readers get no tombstone. Records appended
        later are not affected.

        By default the deletion is recorded as an erasure event, so that copies of the records elsewhere are removed
        too: see ``erasures``. With ``erasure=False``, no event is recorded: the records were only used up, and copies
        may stay.
        """
        return change_selected(self._engine, self._book, DELETE, before, key, prefix, seqs, erasure)

    def hide(
        self,
        *,
        before: int | None = None,
        key: str | None = None,
        prefix: str | None = None,
        seqs: Sequence[int] | None = None,
    ) -> Commit[Deleted]:
        """Hide records, selected as in ``delete``. ``restore`` makes them visible again."""
        return change_selected(self._engine, self._book, HIDE, before, key, prefix, seqs)

    def restore(
        self,
        *,
        before: int | None = None,
        key: str | None = None,
        prefix: str | None = None,
        seqs: Sequence[int] | None = None,
    ) -> Commit[Deleted]:
        """Make hidden records visible again, selected as in ``delete``."""
        return change_selected(self._engine, self._book, RESTORE, before, key, prefix, seqs)

    def amend(self, seq: int, data: bytes) -> Commit[None]:
        """Replace the data of a record. Its seq, time, key, node and meta data stay."""
        book, engine = self._book, self._engine
        check_amendment(data, engine.options.max_record_bytes)
        with engine.lock:
            self._check_writable()
            let_expire(self._engine, self._book)
            check_amendable(engine, book, seq)
            engine.quota.check_append(book.name, len(data))
            engine.backlog.check(book, 1, len(data))
            return change(
                engine,
                book,
                FrameType.AMEND,
                lambda: data,
                lambda: record_changes.amend(book, seq, data, engine.store),
                first=seq,
                erased=lambda: Select(book.assigned, seqs=[seq]),
            )

    # --- the log itself ------------------------------------------------------------------------------------

    def configure(self, config: Config) -> Commit[LogState]:
        """Replace the configuration. It is durable once the commit is done, whatever the log's durability.

        Waits for pending writes, so that every record is stored under the configuration it was written with.
        """
        return configure(self._engine, self._book, config)

    def drop(self) -> Commit[None]:
        """Remove the log and everything in it. A log created later under this name has another epoch.

        Raises LogHasForks while logs that were forked from it exist.
        """
        engine, book = self._engine, self._book
        with engine.lock:
            self._check_writable()
            if book.forks:
                raise LogHasForks(book.name, book.forks)
            now = engine.now()
            frame = encode(FrameType.DROP, book.epoch, 0, now)
            events = engine.erasures.write([frame], [(book, FrameType.DROP, Select(book.assigned))], now)
            engine.touch(book)
            engine.remove(book)
            commit: Commit[None] = engine.later((book,), None, None)
            engine.erasures.publish(events)
            engine.tell(book)
            return commit

    def _check_writable(self) -> None:
        self._engine.check_writable()
        self._book.check_there()
