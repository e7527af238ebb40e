"""The shared flush: many changes wait for the disk, and one flush makes all of them durable."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from time import monotonic, perf_counter
from typing import Any, NamedTuple, Protocol, TypeVar

from strandline.engine.background import BackgroundThread, Health, Task
from strandline.engine.commit import Commit
from strandline.engine.errors import EngineError, JournalFailed
from strandline.engine.journal.file import Journal
from strandline.engine.journal.reservations import Reservations
from strandline.engine.state.logbook import Logbook
from strandline.engine.stats import FlushTimes

T = TypeVar("T")

#: Commits wait while the thread pauses after an error that is not caused by the disk, so the pauses are short. After
#: this many consecutive failures (about 1.5 seconds), the commits fail and the engine becomes read-only.
MAX_DELAY_SECONDS = 1.0
MAX_FAILURES = 5


class _Pending(NamedTuple):
    """A change that is in the journal up to ``position`` and waits for the flush."""

    position: int
    #: The logs whose later changes must not overtake this one.
    books: tuple[Logbook, ...]
    commit: Commit[Any]
    make: Callable[[], Any] | None
    value: Any
    #: Whether the change also waits until the replica has it.
    replicated: bool


class _Unshipped(NamedTuple):
    """A change that is durable here up to ``position`` and waits until the replica has it."""

    position: int
    #: The heads that readers see from then on.
    heads: list[tuple[Logbook, int]]
    commit: Commit[Any]
    value: Any
    #: When it was made durable here, in seconds of the monotonic clock.
    since: float


class Shipping(Protocol):
    """What the shared flush needs of a replica."""

    def flushed(self) -> None:
        """Called when more of the journal is durable here. Must be quick."""
        ...

    def ship_for(self, wanted: Commit[Any]) -> None:
        """Wait until the commit is done."""
        ...


class SharedFlush:
    """Flushes the journal. ``lock`` is the engine's. Flushes take ``turns``; a thread that needs both locks takes
    ``turns`` first.

    ``touch`` is called with every log that is about to change because a flush made its pending change durable, and
    ``tell`` with every log whose readers see more because the replica has it.

    A change of a log of the durability ``replicated`` is applied like that of a ``fsync`` log, when it is durable here,
    so that housekeeping need not wait for the replica. Its records are held back from readers, and its commit is not
    done, until the replica has it.
    """

    def __init__(
        self,
        lock: threading.RLock,
        journal: Journal,
        reservations: Reservations,
        touch: Callable[[Logbook], None],
        tell: Callable[[Logbook], None],
    ) -> None:
        self.turns = threading.Lock()
        self._lock = lock
        self._journal = journal
        self._reservations = reservations
        self._touch = touch
        self._tell = tell
        self._pending: deque[_Pending] = deque()
        self._unshipped: deque[_Unshipped] = deque()
        #: The replica has the journal up to here.
        self._shipped = -1
        self.replica: Shipping | None = None
        self._pending_peak = 0
        self.flushes = 0
        self.times = FlushTimes()
        self._thread: BackgroundThread | None = None
        #: The number of consecutive failures of the thread.
        self._failures = 0
        self._wake = threading.Event()
        self._now = threading.Event()

    @property
    def pending(self) -> int:
        """The number of waiting changes."""
        return len(self._pending)

    @property
    def awaits_replica(self) -> bool:
        """Whether the oldest waiting change also waits for the replica."""
        return bool(self._pending) and self._pending[0].replicated

    @property
    def pending_peak(self) -> int:
        """The highest number of changes that waited at once."""
        return max(self._pending_peak, len(self._pending))

    def later(
        self,
        books: tuple[Logbook, ...],
        value: T | None,
        make: Callable[[], T] | None,
        *,
        replicated: bool = False,
    ) -> Commit[T]:
        """Return a commit that is done after the next flush and, if one of the ``books`` or ``replicated`` says so,
        when the replica has the change. ``make`` runs after the flush and returns the value.

        Later changes to the ``books`` wait for this one.
        """
        commit: Commit[T] = Commit(self)
        for book in books:
            book.pending += 1
            if self.replica is not None and _waits_for_replica(book):
                replicated = True
        self._pending.append(_Pending(self._journal.written, books, commit, make, value, replicated))
        self.flush_in_time()
        return commit

    def flush_in_time(self) -> None:
        """Request a flush within the usual interval."""
        if self._thread is not None and not self._wake.is_set():
            self._wake.set()

    def flush_soon(self) -> None:
        """Make the thread flush now. Without a thread, flush in the caller."""
        if self._thread is not None:
            self._now.set()
            self._wake.set()
        else:
            with suppress(JournalFailed):  # the commits raise it
                self.flush()

    def flush(self, wanted: Commit[Any] | None = None) -> None:
        """See :meth:`Engine.flush`."""
        with self.turns:
            # Many threads wait here for one flush. A thread whose commit was covered returns instead of flushing later
            # changes, so that the next flush is shared as well.
            if wanted is not None and wanted.done:
                return
            with self._lock:
                position = self._journal.written
                idle = position == self._journal.flushed and not self._pending
                reserving = {} if idle else self._reservations.begin_flush()
            if not idle:
                self._sync(position, reserving)
        if wanted is not None and not wanted.done and self.replica is not None:
            self.replica.ship_for(wanted)

    def flush_within(self) -> None:
        """Flush, however little there is. The caller holds both ``turns`` and the engine's lock."""
        self._sync(self._journal.written, self._reservations.begin_flush())

    def _sync(self, position: int, reserving: dict[Logbook, int]) -> None:
        began = perf_counter()
        try:
            self._journal.sync()
        except JournalFailed as error:
            self.fail_pending(error)
            raise
        self.times.add((perf_counter() - began) * 1e6)
        self._journal.mark_flushed(position)
        self._flushed(position, reserving)

    def _flushed(self, position: int, reserving: dict[Logbook, int]) -> None:
        done: list[tuple[Commit[Any], Any, Exception | None]] = []
        failed: JournalFailed | None = None
        with self._lock:
            self._journal.flushed = position
            self.flushes += 1
            # The list only shrinks here, so this is where it is longest.
            self._pending_peak = max(self._pending_peak, len(self._pending))
            self._reservations.flushed(reserving)
            while self._pending and self._pending[0].position <= position:
                pending = self._pending.popleft()
                for book in pending.books:
                    book.pending -= 1
                if pending.make is None and not pending.replicated:
                    done.append((pending.commit, pending.value, None))
                    continue
                try:
                    if pending.replicated:
                        self._apply_unshipped(pending)
                        continue
                    assert pending.make is not None
                    for book in pending.books:
                        self._touch(book)
                    done.append((pending.commit, pending.make(), None))
                except (EngineError, OSError) as error:
                    done.append((pending.commit, None, error))
                except Exception as error:
                    # The journal has a change that memory lacks. Only a restart brings them together again.
                    failed = self._journal.fail(error)
                    done.append((pending.commit, None, failed.again()))
                    break
            # A repeated append writes nothing, so the replica may have everything already.
            done += [(change.commit, change.value, None) for change in self._take_shipped()]
        if self.replica is not None:
            self.replica.flushed()
        for commit, value, failure in done:
            commit.resolve(value, failure)
        if failed is not None:
            self.fail_pending(failed)
            raise failed.again()

    # --- changes that wait for the replica -----------------------------------------------------------------

    def _apply_unshipped(self, pending: _Pending) -> None:
        """Apply a change, and hold its records back from readers until the replica has it."""
        books = [book for book in pending.books if _waits_for_replica(book)]
        for book in books:
            book.hold()
        try:
            for book in pending.books:
                self._touch(book)
            value = pending.value if pending.make is None else pending.make()
        except BaseException:
            for book in books:
                book.release(book.shown)
            raise
        heads = [(book, book.head) for book in books]
        self._unshipped.append(_Unshipped(pending.position, heads, pending.commit, value, monotonic()))

    def shipped(self, position: int) -> None:
        """The replica has the journal up to ``position``."""
        with self._lock:
            self._shipped = max(self._shipped, position)
            done = self._take_shipped()
        for change in done:
            change.commit.resolve(change.value)

    def _take_shipped(self) -> list[_Unshipped]:
        """Let readers see what the replica has, and return the changes whose commits are to be resolved."""
        taken: list[_Unshipped] = []
        while self._unshipped and self._unshipped[0].position <= self._shipped:
            change = self._unshipped.popleft()
            for book, head in change.heads:
                moved = head != book.shown
                book.release(head)
                if moved and book.listeners and not book.dropped:
                    self._tell(book)
            if not change.commit.done:
                taken.append(change)
        return taken

    @property
    def unshipped(self) -> int:
        """The number of changes that wait for the replica."""
        return len(self._unshipped)

    def oldest_unshipped(self) -> float | None:
        """Return since when the oldest commit waits for the replica, in seconds of the monotonic clock."""
        with self._lock:
            return next((each.since for each in self._unshipped if not each.commit.done), None)

    def expire_unshipped(self, before: float, error: Callable[[], EngineError]) -> int:
        """Fail the commits that wait for the replica since before a time. Their changes stay, and readers see them when
        the replica has them. Returns the number of commits."""
        with self._lock:
            late: list[Commit[Any]] = []
            for number, each in enumerate(self._unshipped):
                if each.since >= before:
                    break
                if not each.commit.done:
                    late.append(each.commit)
                    self._unshipped[number] = each._replace(commit=Commit.of(None), value=None)
        for commit in late:
            commit.resolve(None, error())
        return len(late)

    def check_in_place(self) -> None:
        """Fail if the journal is no longer in the data directory, even if nothing is being written."""
        with self.turns:
            try:
                self._journal.check_in_place()
            except JournalFailed as error:
                self.fail_pending(error)
                raise

    def give_up(self, error: BaseException) -> None:
        """Stop accepting changes because flushing does not work, and fail the waiting ones."""
        cause = error if isinstance(error, Exception) else RuntimeError(f"the flusher ended: {error!r}")
        self.fail_pending(self._journal.fail(cause))

    def fail_pending(self, error: EngineError) -> None:
        """Resolve every waiting commit with the error, because no flush will follow."""
        with self._lock:
            failed = [pending.commit for pending in self._pending]
            for pending in self._pending:
                for book in pending.books:
                    book.pending -= 1
            self._pending.clear()
            # Readers never see the records of these.
            failed += [each.commit for each in self._unshipped if not each.commit.done]
            self._unshipped.clear()
        for commit in failed:
            commit.resolve(None, error.again() if isinstance(error, JournalFailed) else error)

    # --- the thread ----------------------------------------------------------------------------------------

    def start(self, interval: float, afterwards: Callable[[], None], health: Health) -> BackgroundThread:
        """Start a thread that flushes changes within ``interval`` seconds and calls ``afterwards`` each time."""

        def wait() -> None:
            self._wake.wait()
            self._now.wait(interval)
            self._now.clear()
            self._wake.clear()

        def flush() -> None:
            self._flush_for_everybody()
            afterwards()

        def release() -> None:
            self._wake.set()
            self._now.set()

        task = Task("flusher", flush, health, max_delay=MAX_DELAY_SECONDS)
        self._thread = BackgroundThread(task, wait, release, died=self.give_up)
        self._thread.start()
        return self._thread

    def _flush_for_everybody(self) -> None:
        try:
            self.flush()
        except JournalFailed:
            pass  # raised by the commits and by every further change
        except Exception as error:
            self._failures += 1
            if self._failures >= MAX_FAILURES:
                self.give_up(error)
            raise
        self._failures = 0


def _waits_for_replica(book: Logbook) -> bool:
    """Return whether the changes of a log wait for the replica. A log whose durability was ``replicated`` continues to
    wait until the replica knows that it is not any more: after a takeover, the log would not skip the seqs of records
    that are missing."""
    return book.config.durability == "replicated" or book.held > 0
