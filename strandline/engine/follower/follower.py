"""A follower keeps the logbooks of an engine equal to those of its leader.

It replays the chunks of the leader's replica as they appear, and adopts each round of the leader's housekeeping, so
that its memory is bounded as the leader's is. When another server takes over, everything is loaded again, because that
server may have left out what the replica did not have.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING

import msgspec

from strandline.engine.background import BackgroundThread, Health, Task
from strandline.engine.disk import Disk
from strandline.engine.errors import EngineError, FollowsLeader
from strandline.engine.follower.adoption import adopt_runs, stored_runs
from strandline.engine.follower.followed_journal import FollowedJournal
from strandline.engine.follower.journal_tail import JournalTail
from strandline.engine.follower.live_replay import LiveReplay
from strandline.engine.follower.mirror import ChunksRemoved, Mirror
from strandline.engine.journal.replay import Recovered
from strandline.engine.replica.chunk import Chunk, ChunkKind, JournalPart, State, content_of
from strandline.engine.segments.store import Describes, SegmentStore, segment_path
from strandline.engine.state.checkpoints import Manifest, load_books, read_checkpoint
from strandline.engine.state.logbook import Logbook

if TYPE_CHECKING:
    from strandline.engine.engine import Engine

log = logging.getLogger(__name__)

#: The longest pause after a failure of the store.
MAX_DELAY_SECONDS = 2.0
#: The leader stores a state now and then, so chunks that are still missing after as many states are lost.
MAX_ATTEMPTS = 5
#: A read waits this long for the state that replaces a segment which the replica no longer has.
NEWER_STATE_SECONDS = 10.0


class FollowerStats(msgspec.Struct, frozen=True, kw_only=True):
    """How far a follower is behind. Counted since the engine was opened."""

    #: Where clients reach the leader, as host:port; empty if unknown.
    leader: str
    term: int
    #: The last chunk that was read.
    chunk: int
    #: The follower has everything that was in the replica this long ago.
    lag_ms: float
    #: The bytes of the journal that were applied, the adopted states, and how often everything was loaded again.
    applied_bytes: int
    states: int
    reloads: int


class Follower:
    """Call :meth:`load`, create the engine, then :meth:`attach` and :meth:`start`, or :meth:`look` by hand.

    ``now`` is a monotonic clock in seconds.
    """

    def __init__(
        self, disk: Disk, mirror: Mirror, interval_ms: int = 100, now: Callable[[], float] = monotonic
    ) -> None:
        self._disk = disk
        self._mirror = mirror
        self._interval = interval_ms / 1000
        self._now = now
        self._manifest: Manifest
        self._replay: LiveReplay
        self._tail: JournalTail
        self._engine: Engine | None = None
        #: Whether the next state must be loaded as a whole.
        self._must_reload = False
        #: Whether chunks were removed before they were read, so that the directory must be made again.
        self._has_missed_chunks = False
        #: The follower has everything that was in the replica at this time.
        self._current_at = now()
        self._states = self._reloads = 0
        #: Notified when a state was adopted.
        self._adopted = threading.Condition()
        self._ending = threading.Event()
        self._thread: BackgroundThread | None = None
        #: The thread that applies chunks now; 0: none.
        self._looking = 0

    @property
    def refusal(self) -> FollowsLeader:
        """The error of every attempt to change something."""
        return FollowsLeader(lambda: self._mirror.leader)

    @property
    def leader(self) -> str:
        return self._mirror.leader

    # --- loading -------------------------------------------------------------------------------------------

    def load(self, store: SegmentStore) -> Recovered:
        """Make the directory from the replica, and the logbooks from the directory. Raises NoLeaderYet, DamagedFile and
        OSError."""
        attempts = 0
        while True:
            try:
                began = self._now()
                manifest = self._mirror.begin()
                break
            except ChunksRemoved as error:
                attempts += 1
                _give_up_after(attempts, error)
                log.info("%s; reading the next state", error)
        self._manifest = manifest
        recovered = self._load(manifest, store)
        self._current_at = began
        return recovered

    def _load(self, manifest: Manifest, store: SegmentStore) -> Recovered:
        """Load the logbooks of a manifest and replay the journal that is in the directory."""
        for entry in manifest.segments:
            store.add(entry, entry.tier)
        books = load_books(frame for name in manifest.checkpoints for frame in read_checkpoint(self._disk, name))
        recovered = Recovered(
            manifest=manifest,
            books=books,
            changed=set(),
            next_journal=manifest.boundary,
            next_epoch=manifest.next_epoch,
            last_ts=manifest.last_ts,
            uses=Counter(segment for book in books.values() for segment in book.filed_in),
        )
        self._replay = LiveReplay(books, store, recovered)
        self._tail = JournalTail(self._disk, self._replay, manifest.boundary)
        self._tail.advance(self._replay.apply)
        return recovered

    def attach(self, engine: Engine) -> None:
        self._engine = engine
        self._replay.attach(engine)

    # --- following -----------------------------------------------------------------------------------------

    def start(self, health: Health) -> None:
        self._thread = BackgroundThread(
            Task("follower", self.look, health, max_delay=MAX_DELAY_SECONDS),
            lambda: self._ending.wait(self._interval),
            self._ending.set,
        )
        self._thread.start()

    def close(self) -> None:
        if self._thread is not None:
            self._thread.end()
            self._thread.join()

    def look(self) -> None:
        """Apply everything that is in the replica now. Raises OSError and DamagedFile."""
        began = self._now()
        self._looking = threading.get_ident()
        attempts = 0
        try:
            while True:
                try:
                    if self._has_missed_chunks:
                        self._reload(self._mirror.begin())
                    for chunk in self._mirror.new_chunks():
                        self._take(chunk)
                    break
                except ChunksRemoved as error:
                    self._has_missed_chunks = True
                    attempts += 1
                    _give_up_after(attempts, error)
                    log.info("%s; loading the last state", error)
        finally:
            self._looking = 0
        self._current_at = began

    def _take(self, chunk: Chunk) -> None:
        if chunk.kind is ChunkKind.TERM:
            # What the new leader did not find in the replica is not in its logs.
            self._must_reload = True
            log.info("following the leader%s (term %d)", f" at {self.leader}" if self.leader else "", chunk.term)
        elif chunk.kind is ChunkKind.JOURNAL:
            self._mirror.write(content_of(chunk, JournalPart), self._manifest.boundary)
            if not self._must_reload:
                self._advance()
        elif chunk.kind is ChunkKind.STATE:
            self._take_state(content_of(chunk, State))

    def _advance(self) -> None:
        index, offset = self._tail.index, self._tail.offset
        self._tail.advance(self._replay.apply)
        engine = self._engine
        if engine is not None and isinstance(engine.journal, FollowedJournal):
            moved = self._tail.offset - (offset if index == self._tail.index else 0)
            engine.journal.note_applied(self._tail.index, moved)

    def _take_state(self, state: State) -> None:
        manifest = self._mirror.take_state(state)
        if self._must_reload or (self._tail.index < manifest.boundary and not state.has_journal):
            self._reload(manifest)
        else:
            self._tail.finish(manifest.boundary, self._replay.apply)
            self._adopt(manifest)

    def _adopt(self, manifest: Manifest) -> None:
        """Read sealed records from the segments of the leader from now on."""
        engine, before = self._engine, self._manifest
        assert engine is not None
        for entry in manifest.segments:
            engine.store.add(entry, entry.tier)
        with engine.lock:
            books = list(engine.by_epoch.values())
        moved: list[Logbook] = []
        for epoch, stored in stored_runs(self._disk, before, manifest, books):
            with engine.lock:
                book = engine.by_epoch.get(epoch)
                if book is not None:
                    adopt_runs(book, stored, engine.store)
                    moved.append(book)
        self._use(manifest)
        engine.tell_kept(moved)

    def _reload(self, manifest: Manifest) -> None:
        """Replace all logbooks by those of a state and the journal after it."""
        engine = self._engine
        assert engine is not None
        recovered = self._load(manifest, engine.store)
        with engine.lock:
            engine.replace_books(recovered.books)
            self._replay.attach(engine)
        self._must_reload = self._has_missed_chunks = False
        self._reloads += 1
        self._use(manifest)
        engine.tell_kept(engine.by_epoch.values())

    def _use(self, manifest: Manifest) -> None:
        engine, known = self._engine, {entry.id for entry in manifest.segments}
        assert engine is not None
        self._manifest = manifest
        engine.maintenance.follow(manifest)
        for id in engine.store.ids():
            if id not in known:
                engine.store.forget(id)
                with suppress(OSError, EngineError):
                    self._disk.remove(segment_path(id))
        self._mirror.clean_up(manifest)
        with self._adopted:
            self._states += 1
            self._adopted.notify_all()

    # --- what the engine asks ------------------------------------------------------------------------------

    def fetch(self, entry: Describes) -> bool:
        """Fetch a segment that the directory lacks. If the leader has merged it in the meantime, wait until the state
        that names the merged segment was adopted, unless this is the thread that adopts it."""
        if self._mirror.fetch(entry):
            return True
        if self._looking == threading.get_ident():
            return False
        if self._thread is None:
            self.look()
            return self._mirror.fetch(entry)
        with self._adopted:
            states = self._states
            self._adopted.wait_for(lambda: self._states != states, NEWER_STATE_SECONDS)
        return self._mirror.fetch(entry)

    def lag_ms(self) -> float:
        """Return how long ago the follower had everything that was in the replica, in milliseconds."""
        return max(self._now() - self._current_at, 0.0) * 1000

    def stats(self) -> FollowerStats:
        engine = self._engine
        return FollowerStats(
            leader=self._mirror.leader,
            term=self._mirror.term,
            chunk=self._mirror.number,
            lag_ms=self.lag_ms(),
            applied_bytes=0 if engine is None else engine.journal.written,
            states=self._states,
            reloads=self._reloads,
        )


def _give_up_after(attempts: int, error: ChunksRemoved) -> None:
    """Raise OSError, so that the follower pauses, if the store has lost chunks. The next state makes up for them."""
    if attempts >= MAX_ATTEMPTS:
        raise OSError(f"{error}, and the last state needs it") from error
