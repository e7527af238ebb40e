"""The shared flush: many changes wait for the disk, and one flush serves them all."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from time import perf_counter
from typing import Any, NamedTuple, TypeVar

from strandline.engine.commit import Commit
from strandline.engine.errors import EngineError, JournalFailed
from strandline.engine.journal import Journal
from strandline.engine.logbook import Logbook
from strandline.engine.reservations import Reservations
from strandline.engine.stats import FlushTimes

T = TypeVar("T")


class _Pending(NamedTuple):
    """A change that is journaled up to ``position`` and waits for the flush."""

    position: int
    #: The logs whose later changes must not overtake this one.
    books: tuple[Logbook, ...]
    commit: Commit[Any]
    make: Callable[[], Any] | None
    value: Any


class Flushing:
    """``lock`` is the engine's. Flushes take ``turns``, and whoever needs both locks takes that one first.

    ``touch`` is told of every book that is about to change because what it waited for is durable.
    """

    def __init__(
        self, lock: threading.RLock, journal: Journal, reservations: Reservations, touch: Callable[[Logbook], None]
    ) -> None:
        self.turns = threading.Lock()
        self._lock = lock
        self._journal = journal
        self._reservations = reservations
        self._touch = touch
        self._pending: deque[_Pending] = deque()
        self._pending_peak = 0
        self.flushes = 0
        self.times = FlushTimes()
        self._thread: threading.Thread | None = None
        self._ended = False
        self._wake = threading.Event()
        self._now = threading.Event()

    @property
    def pending(self) -> int:
        """How many changes wait."""
        return len(self._pending)

    @property
    def pending_peak(self) -> int:
        """How many have waited at once, at most."""
        return max(self._pending_peak, len(self._pending))

    def later(self, books: tuple[Logbook, ...], value: T | None, make: Callable[[], T] | None) -> Commit[T]:
        """A commit that is done after the next flush; ``make`` is then called and gives the value.

        Whatever happens to the ``books`` in the meantime waits for it.
        """
        commit: Commit[T] = Commit(self)
        for book in books:
            book.pending += 1
        self._pending.append(_Pending(self._journal.written, books, commit, make, value))
        self.flush_in_time()
        return commit

    def flush_in_time(self) -> None:
        """There is something to flush; it may wait for the usual interval."""
        if self._thread is not None and not self._wake.is_set():
            self._wake.set()

    def flush_soon(self) -> None:
        """Have the thread flush, now; without one it is done here."""
        if self._thread is not None:
            self._now.set()
            self._wake.set()
        else:
            with suppress(JournalFailed):  # the commits tell
                self.flush()

    def flush(self, wanted: Commit[Any] | None = None) -> None:
        """See :meth:`Engine.flush`."""
        with self.turns:
            # Many wait here for one flush. Those it covered must be on their way, not flush what came since: the
            # next flush is to have company as well.
            if wanted is not None and wanted.done:
                return
            with self._lock:
                position = self._journal.written
                if position == self._journal.flushed and not self._pending:
                    return
                reserving = self._reservations.begin_flush()
            self._sync(position, reserving)

    def flush_within(self) -> None:
        """Flush, however little there is, while both ``turns`` and the engine's lock are held."""
        self._sync(self._journal.written, self._reservations.begin_flush())

    def _sync(self, position: int, reserving: dict[Logbook, int]) -> None:
        began = perf_counter()
        try:
            self._journal.sync()
        except JournalFailed as error:
            self._fail_pending(error)
            raise
        self.times.add((perf_counter() - began) * 1e6)
        self._flushed(position, reserving)

    def _flushed(self, position: int, reserving: dict[Logbook, int]) -> None:
        done: list[tuple[Commit[Any], Any, Exception | None]] = []
        with self._lock:
            self._journal.flushed = position
            self.flushes += 1
            # It only shrinks here, so this is when there are the most.
            self._pending_peak = max(self._pending_peak, len(self._pending))
            self._reservations.flushed(reserving)
            while self._pending and self._pending[0].position <= position:
                pending = self._pending.popleft()
                for book in pending.books:
                    book.pending -= 1
                if pending.make is None:
                    done.append((pending.commit, pending.value, None))
                    continue
                for book in pending.books:
                    self._touch(book)
                try:
                    done.append((pending.commit, pending.make(), None))
                except (EngineError, OSError) as error:
                    done.append((pending.commit, None, error))
        for commit, value, failure in done:
            commit.resolve(value, failure)

    def _fail_pending(self, error: JournalFailed) -> None:
        with self._lock:
            failed = list(self._pending)
            self._pending.clear()
            for pending in failed:
                for book in pending.books:
                    book.pending -= 1
        for pending in failed:
            pending.commit.resolve(None, error)

    # --- the thread ----------------------------------------------------------------------------------------

    def start(self, interval: float, afterwards: Callable[[], None]) -> threading.Thread:
        """Flush on a thread of its own what is ``interval`` seconds old, and call ``afterwards`` each time."""
        self._thread = threading.Thread(
            target=self._flush_often, args=(interval, afterwards), name="strandline-flusher", daemon=True
        )
        self._thread.start()
        return self._thread

    def _flush_often(self, interval: float, afterwards: Callable[[], None]) -> None:
        while not self._ended:
            self._wake.wait()
            self._now.wait(interval)
            self._now.clear()
            self._wake.clear()
            with suppress(JournalFailed):  # the commits tell, and so does every further change
                self.flush()
            afterwards()

    def end(self) -> None:
        """The thread is to return; join it to know that it has."""
        self._ended = True
        self._wake.set()
        self._now.set()
