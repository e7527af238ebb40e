"""The replica of an engine: it ships the journal, keeps a state to start from, and resolves the commits that wait.

Three threads work for it. One ships chunks, one copies segments and checkpoints, and one fails commits that have waited
too long. A fourth gives a sign of life, if the server promises one to standby servers. After a takeover, another one
fetches the segments that the data directory lacks.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any

import msgspec

from strandline.engine.background import BackgroundThread, Health, Task
from strandline.engine.commit import Commit
from strandline.engine.disk import Disk
from strandline.engine.errors import DamagedFile, MissingFile, ReplicaAway, ReplicaBehind, Superseded
from strandline.engine.replica.chain import Chain
from strandline.engine.replica.chunk import End, State
from strandline.engine.replica.files import ReplicaFiles, fetch_segment
from strandline.engine.replica.leader import Leader, read_leader, write_leader
from strandline.engine.replica.shipper import NOWHERE, FilesMissing, Shipper
from strandline.engine.replica.store import ReplicaStore
from strandline.engine.replica.takeover import begin_term, own_id
from strandline.engine.segments.store import Describes, UnknownSegment
from strandline.engine.state.checkpoints import Manifest, SegmentEntry
from strandline.engine.state.logbook import Logbook
from strandline.spans import background

if TYPE_CHECKING:
    from strandline.engine.engine import Engine

log = logging.getLogger(__name__)

#: The bytes that are shipped at once, without waiting for the interval.
FULL_BYTES = 1 << 20
#: The longest pause after a failure of the store. Writers wait, so it is short.
MAX_DELAY_SECONDS = 2.0
#: How often waiting commits are looked at.
DEADLINE_SECONDS = 0.25
#: A clean shutdown waits this long for the replica.
CLOSE_SECONDS = 10.0
CLOSE_POLL_SECONDS = 0.01
#: A leader gives this many signs of life in the time after which standby servers take over.
BEATS = 3


class ReplicaOptions(msgspec.Struct, frozen=True, kw_only=True):
    interval_ms: int = 50
    timeout_ms: int = 5_000
    lease_ms: int = 0
    backlog_bytes: int = 4 << 30
    #: Where clients reach this server, as host:port.
    address: str = ""
    #: Take over only if this is still the term of the chain; None: in any case.
    expected_term: int | None = None


class ReplicaStats(msgspec.Struct, frozen=True, kw_only=True):
    """What the replica has, and what would be lost with this machine. Counted since the engine was opened."""

    term: int
    #: The last chunk.
    chunk: int
    #: The bytes of the journal that the replica lacks, and for how long it has lacked the oldest of them.
    waiting_bytes: int
    lag_ms: float
    #: The acknowledged records in these bytes that would be lost with the machine.
    waiting_records: int
    #: The commits that wait for the replica, and how long the oldest has waited.
    waiting_commits: int
    waiting_ms: float
    chunks: int
    chunk_bytes: int
    objects: int
    object_bytes: int
    #: The segments that are in the replica and not yet in the data directory.
    missing_segments: int
    #: Whether the replica does not accept chunks.
    away: bool
    superseded: bool


class Replica:
    """Call :meth:`begin_term` before the data directory is opened, then :meth:`attach`, then :meth:`start`."""

    def __init__(self, disk: Disk, store: ReplicaStore, options: ReplicaOptions) -> None:
        self._disk = disk
        self._store = store
        self._options = options
        self._chain = Chain(store, own_id(disk))
        self._files = ReplicaFiles(disk, store)
        #: Taken by the thread that ships.
        self._turn = threading.Lock()
        self._wake = threading.Event()
        self._wake_files = threading.Event()
        self._closing = threading.Event()
        self._ending = threading.Event()
        self._threads: list[BackgroundThread] = []
        self._shipped_at = 0.0
        #: A state whose files are in the store, and the state that was shipped last.
        self._ready: tuple[Manifest, State] | None = None
        self._stored: tuple[Manifest, State] | None = None
        #: Whether the objects that the last state does not need were removed.
        self._is_clean = False
        self._superseded: Superseded | None = None
        self._listener: Callable[[Superseded], None] | None = None
        self._away = False
        self._beat = 0
        #: The first chunk with bytes of the journal files that the data directory had at the start.
        self._needed = 0
        #: Since when the replica has lacked something, in seconds of the monotonic clock; None: it lacks nothing.
        self._lacking_since: float | None = None
        #: The segments to fetch, the newest last.
        self._missing: list[int] = []
        #: Whether the data directory was made from the replica.
        self.restored = False

    def begin_term(self, proceed: Callable[[], None]) -> None:
        """See :func:`takeover.begin_term`."""
        options = self._options
        begun = begin_term(self._disk, self._chain, options.address, options.lease_ms, options.expected_term, proceed)
        self.restored = begun.restored
        self._needed = 0 if begun.state is None else begun.state.first_chunk
        self._files.begin_term(self._chain.term, begun.state)

    @property
    def is_complete(self) -> bool:
        """Whether the replica had everything of the server before, which has stopped."""
        return self._chain.is_complete

    @property
    def has_state(self) -> bool:
        """Whether another server could start from the replica."""
        return self._chain.state > 0

    def attach(self, engine: Engine) -> None:
        """Attach the engine. From now on, its ``replicated`` commits wait for the replica."""
        self._engine = engine
        with engine.lock:
            engine.journal.places = [engine.journal.place]
        self._shipper = Shipper(engine, self._chain, engine.recovered.journals, self._needed)
        engine.flushing.replica = self

    def start(self, health: Health) -> None:
        """Start the threads."""
        engine = self._engine
        engine.kept.append(lambda _: self.files_changed())
        self._threads = [
            BackgroundThread(
                Task("replica", self._ship, health, max_delay=MAX_DELAY_SECONDS),
                self._wait_to_ship,
                self._wake.set,
                died=engine.flushing.give_up,
            ),
            BackgroundThread(
                Task("files of the replica", self.keep_files, health, max_delay=MAX_DELAY_SECONDS),
                self._wake_files.wait,
                self._wake_files.set,
            ),
            BackgroundThread(
                Task("deadlines of the replica", self._expire, health),
                lambda: self._ending.wait(DEADLINE_SECONDS),
                self._ending.set,
            ),
        ]
        if self._options.lease_ms:
            with suppress(OSError, DamagedFile):
                self._renew()
            pause = self._options.lease_ms / 1000 / BEATS
            self._threads.append(
                BackgroundThread(
                    Task("lease of the replica", self._renew, health, max_delay=pause),
                    lambda: self._ending.wait(pause),
                    self._ending.set,
                )
            )
        self._missing = [id for id in engine.store.ids() if engine.store.is_missing(id)]
        if self._missing:
            self._threads.append(
                BackgroundThread(
                    Task("missing segments", self._fetch_missing, health),
                    lambda: None if self._missing else self._ending.wait(),
                    self._ending.set,
                )
            )
        self._wake_files.set()
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Ship what is left, for a limited time, and stop."""
        if not self._threads:
            with suppress(OSError, Superseded):
                self.ship_all()
                self._end()
            return
        self._closing.set()
        until = monotonic() + CLOSE_SECONDS
        while self._lacks_something and monotonic() < until:
            self._wake.set()
            self._ending.wait(CLOSE_POLL_SECONDS)
        if self._lacks_something:
            log.warning(
                "the server stops before the replica %s has the last %d bytes of the journal",
                self._place,
                self._shipper.waiting,
            )
        for thread in self._threads:
            thread.end()
        until = monotonic() + CLOSE_SECONDS
        for thread in self._threads:
            thread.join(max(until - monotonic(), 0.0))
        if not any(thread.is_alive() for thread in self._threads):
            with suppress(OSError, Superseded):
                self._end()

    def _end(self) -> None:
        """Note in the replica that nothing is missing, so that the next server need not skip any seqs."""
        is_clean = self._engine.journal.failure is None and not self._lacks_something
        if is_clean and self._stored is not None and self._chain.is_settled and self._superseded is None:
            self._chain.add(End())

    @property
    def _place(self) -> str:
        return self._store.describe()

    @property
    def _lacks_something(self) -> bool:
        return self._superseded is None and self._shipper.waiting > 0

    # --- what the engine asks ------------------------------------------------------------------------------

    def check(self, book: Logbook) -> None:
        """Raise if the replica is away. Changes of ``replicated`` logs would only collect."""
        if self._away and self._engine.flushing.unshipped:
            raise ReplicaAway(book.name)

    def flushed(self) -> None:
        if self._lacking_since is None:
            self._lacking_since = monotonic()
        if not self._wake.is_set():
            self._wake.set()

    def needs(self, index: int) -> bool:
        """Return whether a sealed journal file must be kept because the replica lacks it."""
        return index >= self._shipper.place.file and self._shipper.waiting <= self._options.backlog_bytes

    def fetch(self, entry: Describes) -> bool:
        """Fetch a segment that the data directory lacks. Return False if the replica does not have it."""
        name = self._files.object_of(entry)
        return name is not None and fetch_segment(self._disk, self._store, entry, name)

    def place_of(self, entry: Describes) -> str | None:
        """Return the URL of the object with a segment, or None if there is none."""
        name = self._files.object_of(entry)
        return None if name is None else f"{self._place}/{name}"

    def has(self, entry: SegmentEntry) -> bool:
        """Return whether this server has stored a state with this segment.

        Only then may it go to the cold tier, where the number of a segment is the name of its object: servers that take
        over have the same segment with this number, or none.
        """
        stored = self._stored
        return stored is not None and entry in stored[0].segments

    def files_changed(self) -> None:
        """Prepare another state soon: the manifest names other files, or the same in other places."""
        self._wake_files.set()

    def ship_for(self, wanted: Commit[Any]) -> None:
        if not self._threads:
            with suppress(Superseded):  # the commit raises it
                self.ship_all()
            return
        done = threading.Event()
        wanted.add_done_callback(lambda _: done.set())
        done.wait()

    def stats(self) -> ReplicaStats:
        since, lacking, now = self._engine.flushing.oldest_unshipped(), self._lacking_since, monotonic()
        return ReplicaStats(
            term=self._chain.term,
            chunk=self._chain.number,
            waiting_bytes=self._shipper.waiting,
            waiting_records=self._shipper.waiting_records,
            lag_ms=0.0 if lacking is None else (now - lacking) * 1000,
            waiting_commits=self._engine.flushing.unshipped,
            waiting_ms=0.0 if since is None else (now - since) * 1000,
            chunks=self._shipper.chunks,
            chunk_bytes=self._shipper.bytes,
            objects=self._files.objects,
            object_bytes=self._files.bytes,
            missing_segments=len(self._missing),
            away=self._away,
            superseded=self._superseded is not None,
        )

    # --- shipping ------------------------------------------------------------------------------------------

    def ship_all(self) -> None:
        """Ship everything that is durable here, and a state if this term has none.

        Raises OSError if the replica cannot be reached, and Superseded if another server has taken over.
        """
        while True:
            if self._stored is None and self._ready is None:
                self._copy_files()
            with self._turn:
                while self._ship_one():
                    pass
            if self._superseded is not None:
                raise self._superseded
            if self._stored is not None:
                return

    def _wait_to_ship(self) -> None:
        self._wake.wait()
        self._closing.wait(max(self._shipped_at + self._options.interval_ms / 1000 - monotonic(), 0.0))
        self._wake.clear()

    def _ship(self) -> None:
        """Ship what has collected."""
        with self._turn:
            self._shipped_at = begin = monotonic()
            try:
                while self._ship_one():
                    if self._shipper.waiting < FULL_BYTES:
                        # The rest of it, such as what was flushed before a state, need not wait for another flush.
                        self._wake.set()
                        break
                    begin = monotonic()
                self._note_lag(begin)
            except BaseException:
                self._wake.set()
                raise

    def _ship_one(self) -> bool:
        """Ship a chunk of the journal, and before it the chunk that was sent last and the next state if need be. Return
        whether there was anything of the journal to ship."""
        if self._superseded is not None:
            return False
        try:
            self._shipped(self._shipper.settle())
            if self._ready is not None:
                self._shipped(self._ship_state(self._ready))
            position = None if self._stored is None else self._shipper.ship()
        except Superseded as error:
            self._stop_serving(error)
            return False
        except FilesMissing as error:
            log.warning("%s was removed before it was uploaded; the replica gets a segment instead", error)
            self._stored = None
            self._wake_files.set()
            return False
        self._shipped(position)
        return position is not None

    def _shipped(self, position: int | None) -> None:
        """A chunk was stored, after which the replica has everything up to a position; None: no chunk was stored."""
        if position is None:
            return
        self._away = False
        if position != NOWHERE:
            self._engine.flushing.shipped(position)

    def _note_lag(self, begin: float) -> None:
        """Everything that was durable here at ``begin`` is in the replica, unless it waits for a state."""
        if not self._shipper.waiting:
            self._lacking_since = None
        elif self._stored is not None and self._superseded is None:
            self._lacking_since = begin

    def when_superseded(self, listener: Callable[[Superseded], None]) -> None:
        """Call ``listener`` on some thread when another server has taken over, perhaps more than once."""
        self._listener = listener
        if self._superseded is not None:
            listener(self._superseded)

    def _stop_serving(self, error: Superseded) -> None:
        """Make this server read-only: another one has taken over."""
        self._superseded = error
        self._engine.flushing.give_up(error)
        if self._listener is not None:
            self._listener(error)

    def _ship_state(self, ready: tuple[Manifest, State]) -> int:
        position = self._shipper.ship_state(ready[1], ready[0].boundary)
        self._files.note_stored(ready[1])
        # In this order: a state is always known as ready or as stored.
        self._stored, self._is_clean = ready, False
        if self._ready is ready:
            self._ready = None
        self._wake_files.set()
        return NOWHERE if position is None else position

    def _expire(self) -> None:
        """Fail the commits that have waited too long."""
        timeout_ms = self._options.timeout_ms
        if self._engine.flushing.expire_unshipped(monotonic() - timeout_ms / 1000, lambda: ReplicaBehind(timeout_ms)):
            if not self._away:
                log.warning(
                    "the replica %s has not stored writes for %d ms; until it does, writes to replicated logs get 503",
                    self._place,
                    timeout_ms,
                )
            self._away = True

    def _renew(self) -> None:
        """Give a sign of life, unless another server has taken over, which an idle server notices only here."""
        if self._superseded is not None:
            return
        leader = None
        with suppress(DamagedFile):
            leader = read_leader(self._store)
        if leader is not None and leader.term > self._chain.term:
            self._stop_serving(Superseded(self._chain.number + 1, self._chain.term, leader.term, leader.address))
            return
        self._beat += 1
        write_leader(self._store, Leader(self._chain.term, self._options.address, self._options.lease_ms, self._beat))

    # --- segments that the data directory lacks ------------------------------------------------------------

    def _fetch_missing(self) -> None:
        """Fetch the newest segment that the data directory lacks."""
        if not self._missing:
            return
        id = self._missing[-1]
        try:
            if self._engine.store.is_missing(id):
                self._engine.store.segment(id)
        except UnknownSegment:
            # It was merged in the meantime.
            pass
        except DamagedFile:
            # The others can be fetched first.
            self._missing.insert(0, self._missing.pop())
            raise
        self._missing.pop()
        if not self._missing:
            log.info("the data directory has all segments of the replica")

    # --- segments and checkpoints --------------------------------------------------------------------------

    def keep_files(self) -> None:
        """Prepare the next state if there is a newer one, and remove what the last one does not need."""
        self._wake_files.clear()
        if self._superseded is not None:
            return
        # Only this thread makes a state ready. Its objects are not leftovers, also while it is being stored.
        ready = self._ready
        stored = self._stored
        try:
            if ready is None and stored is not None and not self._is_clean:
                self._remove_others(*stored)
            newest = ready or stored
            if newest is None or not _is_same(newest[0], self._engine.maintenance.manifest):
                self._copy_files()
                self._wake.set()
        except BaseException:
            self._wake_files.set()
            raise

    def _copy_files(self) -> None:
        """Copy the files of the newest manifest, for the next state."""
        while True:
            manifest = msgspec.structs.replace(self._engine.maintenance.manifest)
            try:
                with background(self._engine.tracer, "upload of files to the replica"):
                    self._ready = manifest, self._files.copy(manifest)
                return
            except MissingFile:
                # Housekeeping has replaced the manifest.
                if _is_same(self._engine.maintenance.manifest, manifest):
                    raise

    def _remove_others(self, manifest: Manifest, state: State) -> None:
        self._files.remove_others(state)
        try:
            self._engine.store.remove_cold({entry.id for entry in manifest.segments})
        except OSError as error:
            log.warning("objects of the cold tier are removed after the next state, because of this error: %s", error)
        self._chain.remove_before(self._shipper.first_needed)
        self._is_clean = True


def _is_same(one: Manifest, other: Manifest) -> bool:
    """Return whether two manifests need the same objects. Every round of housekeeping has a boundary of its own."""
    return one.boundary == other.boundary and one.segments == other.segments
