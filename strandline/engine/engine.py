"""The engine: all logs of one data directory, with one journal and one lock."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from strandline.engine.background import BackgroundThread, Health, Task
from strandline.engine.clock import MAX_AHEAD_MS, Clock, SteadyClock
from strandline.engine.commit import Commit
from strandline.engine.disk import Disk, LocalDisk, room_to_start
from strandline.engine.errors import (
    BadConfig,
    BadRequest,
    EngineClosed,
    EngineError,
    JournalFailed,
    NoReplica,
    UnknownLog,
)
from strandline.engine.follower.followed_journal import FollowedJournal
from strandline.engine.follower.follower import Follower
from strandline.engine.follower.mirror import Mirror
from strandline.engine.housekeeping.compaction import Compaction
from strandline.engine.housekeeping.maintenance import InThisThread, Maintenance
from strandline.engine.housekeeping.recovery_round import RecoveryRounds
from strandline.engine.housekeeping.round import RoundSnapshot
from strandline.engine.journal.backlog import Backlog, default_budget
from strandline.engine.journal.file import FlushMarkFile, Journal
from strandline.engine.journal.flush import SharedFlush
from strandline.engine.journal.frame import FrameType, encode
from strandline.engine.journal.recovery import Progress, recover, skip_unreplicated
from strandline.engine.journal.replay import Recovered
from strandline.engine.journal.reservations import Reservations
from strandline.engine.log import Log
from strandline.engine.operations.create import create, fork
from strandline.engine.operations.erasures import Erasures
from strandline.engine.operations.forward import ForwardedCopy, forward
from strandline.engine.operations.transaction import Append, Change, change_all
from strandline.engine.quota import Quota
from strandline.engine.reads.latest import Latests
from strandline.engine.record import MAX_RECORD_BYTES, Appended, Batch, Config, is_internal
from strandline.engine.replica.replica import Replica, ReplicaOptions
from strandline.engine.replica.store import ObjectStoreReplica, ReplicaStore
from strandline.engine.replica.takeover import check_is_own
from strandline.engine.replica.takeover import finish as finish_takeover
from strandline.engine.segments.cold_tier import ColdStore, ObjectStoreCold
from strandline.engine.segments.store import CACHE_BYTES, COLD_CACHE_BYTES, SegmentStore
from strandline.engine.segments.worker import SealingWorker
from strandline.engine.state.log_names import Names, Span
from strandline.engine.state.logbook import Logbook
from strandline.engine.stats import NOWHERE, Stats, Totals
from strandline.setting import Cap, Count, Positive, Text
from strandline.spans import Tracer

log = logging.getLogger(__name__)

T = TypeVar("T")

FlushInterval = Annotated[int, Meta(ge=0, le=60_000, description="a whole number of milliseconds from 0 to 60000")]

#: How often housekeeping looks for work and checks that the data directory still exists.
KEEP_SECONDS = 1.0
#: The longest pause after a failed round. Writes may be refused until a round succeeds, so the pause is short.
MAX_KEEP_DELAY_SECONDS = 10.0
#: How often compaction looks for work.
COMPACT_SECONDS = 1.0


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How an engine works. No option changes what a log promises.

    The options with a description are server settings in the section ``storage``.
    """

    cold_url: Annotated[Text, "Cold tier for old segments: a directory or s3://bucket/prefix; empty: none."] = ""
    journal_bytes: Annotated[Positive, "Size at which a journal file is sealed into a segment."] = 64 << 20
    unsealed_bytes: Annotated[
        Count,
        "Maximum bytes of records that are not in a segment yet. Writes slow down from half of it on and get 429 "
        "beyond it. Recovery replays at most this much. 0: an eighth of the memory that the server may use, from "
        "64 MiB to 512 MiB.",
    ] = 0
    flush_interval_ms: Annotated[
        FlushInterval, "Longest time until an acknowledged record with the durability `disk` is flushed to the disk."
    ] = 50
    keep_journal_ms: Annotated[
        Count, "How long sealed journal files are kept, so that backups can be restored to any moment in this time."
    ] = 0
    compact_after_ms: Annotated[
        Count, "Compacted logs only: remove a record when a later record of its key is this old."
    ] = 60_000
    segment_bytes: Annotated[Positive, "Segments of this size or larger are not merged."] = 256 << 20
    hot_segments: Annotated[Count, "Number of the newest segments that stay out of the cold tier."] = 4
    hot_bytes: Annotated[Cap, "Maximum bytes of the segments that stay out of the cold tier; 0: unlimited."] = 0
    cache_bytes: Annotated[Count, "Maximum memory for decompressed blocks of segments."] = CACHE_BYTES
    cold_cache_bytes: Annotated[Count, "Maximum disk space for cached parts of segments of the cold tier."] = (
        COLD_CACHE_BYTES
    )
    replica: Annotated[
        Text,
        "Object store that receives a copy of the data directory while the server writes: s3://bucket/prefix or a "
        "directory; empty: none. A server with an empty data directory takes over from it at once, unless it is a "
        "standby.",
    ] = ""
    replica_interval_ms: Annotated[
        FlushInterval, "Shortest time between two uploads of new records to the replica."
    ] = 50
    replica_timeout_ms: Annotated[
        Positive, "How long a write to a log of the durability `replicated` waits for the replica before it gets 503."
    ] = 5_000
    replica_lease_ms: Annotated[
        Count,
        "Standby servers take over when this server has given no sign of life for this long; 0: it gives none, and "
        "uploads nothing while it is idle.",
    ] = 0
    replica_backlog_bytes: Annotated[
        Count, "Maximum disk space for sealed journal files that the replica does not have yet."
    ] = 4 << 30
    follow: Annotated[
        Text,
        "Replica of another server to follow: this server then answers reads, with its data directory as a cache, and "
        "refuses changes with the address of the leader; empty: none.",
    ] = ""
    follow_interval_ms: Annotated[
        FlushInterval, "How often a server that follows another one looks for new records in the replica."
    ] = 100
    #: A log that has been idle for this long releases the seqs it reserved.
    settle_after_ms: int = 5_000
    max_record_bytes: int = MAX_RECORD_BYTES
    #: Maximum number of logs and maximum bytes of all their records; 0: unlimited. The server's own logs do not count.
    max_logs: int = 0
    max_total_bytes: int = 0
    #: Credentials and other options of the object store of ``cold_url``.
    cold_options: dict[str, Any] = msgspec.field(default_factory=dict)
    #: The same for ``replica``, and the address that clients use, as host:port.
    replica_options: dict[str, Any] = msgspec.field(default_factory=dict)
    address: str = ""
    #: Take over from the replica only if this is still its term; None: in any case.
    expected_term: int | None = None

    def for_replica(self) -> ReplicaOptions:
        return ReplicaOptions(
            interval_ms=self.replica_interval_ms,
            timeout_ms=self.replica_timeout_ms,
            lease_ms=self.replica_lease_ms,
            backlog_bytes=self.replica_backlog_bytes,
            address=self.address,
            expected_term=self.expected_term,
        )


class Engine:
    """Open an engine with :meth:`open` and close it when done. Only one process at a time may have a directory open.

    ``lock`` guards everything in memory. Take ``flushing.turns`` before ``lock``. No thread waits for a disk flush
    while it holds ``lock``, except in the switch to a new journal file.
    """

    def __init__(
        self,
        disk: Disk,
        options: Options,
        clock: Clock,
        cold: ColdStore | None,
        worker: SealingWorker | None,
        progress: Progress | None = None,
        *,
        repairing: bool = False,
        replica: Replica | None = None,
        follower: Follower | None = None,
    ) -> None:
        self.disk = disk
        self.replica = replica
        self.follower = follower
        self.options = options
        self.lock = threading.RLock()
        self.store = SegmentStore(
            disk,
            cold,
            cache_bytes=options.cache_bytes,
            cold_cache_bytes=options.cold_cache_bytes,
            fetch=follower.fetch if follower is not None else None if replica is None else replica.fetch,
            # Other credentials may mean another store.
            place_of=replica.place_of if replica and options.cold_options == options.replica_options else None,
        )
        self._clock = clock
        self._last_ts = 0
        self._by_name: dict[str, Logbook] = {}
        #: The logs that changed since the last round of housekeeping, and those that changed since ``changed_lately``
        #: was last called.
        self._dirty: set[Logbook] = set()
        self._lately: set[Logbook] = set()
        self._snapshot: RoundSnapshot | None = None
        self._closed = False
        #: Totals of the users' logs, and of the server's own logs, whose names start with an underscore.
        self.totals = Totals()
        self.side_totals = Totals()
        self.quota = Quota(self.totals, options.max_logs, options.max_total_bytes)
        #: Called with every log that is created or forked, by the thread that does it and with the lock held: they must
        #: be quick. Its first records may not be visible yet.
        self.created: list[Callable[[Log], None]] = []
        #: Called with every log that was dropped, in the same way.
        self.dropped: list[Callable[[Log], None]] = []
        #: Called with every log whose notes change, in the same way.
        self.noted: list[Callable[[Log], None]] = []
        #: Called after every round of housekeeping with the logs that it has sealed or otherwise changed, without the
        #: lock.
        self.kept: list[Callable[[list[Log]], None]] = []
        self._threads: list[BackgroundThread] = []
        #: Which background tasks are failing, both the engine's and its users'.
        self.health = Health()
        #: Decides which background work is traced; None: nothing is.
        self.tracer: Tracer | None = None
        self._wake_keeper = threading.Event()
        self._wake_compactor = threading.Event()
        self._wake_rotator = threading.Event()
        budget = options.unsealed_bytes or default_budget()
        if follower is not None:
            self.recovered: Recovered = follower.load(self.store)
        else:
            rounds = RecoveryRounds(disk, self.store, worker or InThisThread(disk), budget // 2)
            self.recovered = recover(
                disk, self.store, progress, repairing=repairing, before_file=None if repairing else rounds.before_file
            )
        if replica is not None and replica.restored:
            skip_unreplicated(self.recovered, replica.is_complete)
        self.by_epoch = self.recovered.books
        self._by_name = {book.name: book for book in self.by_epoch.values()}
        self._names = Names(self._by_name)
        for book in self.by_epoch.values():
            book.count_in(self._totals_of(book))
            # The replay appended records of earlier processes.
            book.appended_bytes = 0
        #: The logs with compaction, and those that keep records until the lake has them.
        self.compacted: set[Logbook] = {book for book in self.by_epoch.values() if book.config.compact}
        self.retaining: set[Logbook] = {book for book in self.by_epoch.values() if book.config.retain_until_in_lake}
        self._dirty = set(self.recovered.changed)
        self._last_ts = self._first_time(self.recovered.last_ts)
        self._next_epoch = self.recovered.next_epoch
        if follower is not None:
            self.journal: Journal = FollowedJournal(follower.refusal, self.recovered.next_journal)
        else:
            mark = FlushMarkFile(disk, self.recovered.manifest.id)
            self.journal = Journal(disk, self.recovered.next_journal, mark)
        self.reservations = Reservations(self.journal, self.check_replica)
        self.flushing = SharedFlush(self.lock, self.journal, self.reservations, self.touch, self.tell)
        self.backlog = Backlog(
            self.journal,
            budget,
            self.recovered.replayed_bytes,
            self.recovered.copied_bytes,
            self._wake_keeper.set,
        )
        # Every append calls these. As attributes they save a call.
        self.later = self.flushing.later
        self.flush_in_time = self.flushing.flush_in_time
        self.erasures = Erasures(self)
        self.latests = Latests()
        self.maintenance = Maintenance(self, self.recovered, worker)
        self.compacting = Compaction(self)
        if follower is not None:
            follower.attach(self)
            return
        # No record may be written to a journal file whose loss would go unnoticed.
        self.maintenance.name_journals()
        disk.note_data()
        if replica is not None:
            replica.attach(self)
            self._continue_term(replica)

    def _continue_term(self, replica: Replica) -> None:
        """Make a takeover durable, and let the replica have what readers will see of ``replicated`` logs, including
        logs that are ``replicated`` only according to the replica."""
        if replica.restored:
            # What was skipped is in memory only.
            self.maintenance.run(everything=True)
        if (
            replica.restored
            or replica.has_state
            or any(book.config.durability == "replicated" for book in self.by_epoch.values())
        ):
            replica.ship_all()
        if replica.restored:
            finish_takeover(self.disk)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str] | Disk,
        options: Options | None = None,
        *,
        clock: Clock | None = None,
        cold: ColdStore | None = None,
        background: bool = True,
        progress: Progress | None = None,
        replica: ReplicaStore | None = None,
    ) -> Engine:
        """Open a data directory and recover its contents. Creates the directory if it does not exist.

        Raises JournalIncomplete if journal files are lost, and DamagedFile if the manifest or a checkpoint is damaged.

        ``background=False`` starts no thread and no process, for tests: waiting for a commit flushes, and ``maintain``
        seals when it is called. For the same purpose, ``path`` may be a :class:`Disk`. ``progress`` is called with
        numbers from 0.0 to 1.0 while the journal is replayed, and with 0.0 while it is fetched from a replica.
        """
        options = options or Options()
        with ExitStack() as undoing, _locked(path, undoing) as disk:
            worker = None
            if isinstance(disk, LocalDisk) and disk is not path and background:
                worker = SealingWorker(disk.root, disk.spare)
                undoing.callback(worker.close)
            cold = cold or _cold_tier(options)
            if replica is None and options.replica:
                replica = ObjectStoreReplica(options.replica, **options.replica_options)
            copy = None
            if replica is None:
                check_is_own(disk)
            else:
                copy = Replica(disk, replica, options.for_replica())
                copy.begin_term(lambda: None if progress is None else progress(0.0))
            engine = cls(disk, options, clock or SteadyClock(), cold, worker, progress, replica=copy)
            undoing.pop_all()
        if background:
            engine._start_threads()
        return engine

    @classmethod
    def follow(
        cls,
        path: str | os.PathLike[str] | Disk,
        options: Options | None = None,
        *,
        clock: Clock | None = None,
        cold: ColdStore | None = None,
        background: bool = True,
        replica: ReplicaStore | None = None,
    ) -> Engine:
        """Open a read-only copy of the logs in a replica, which is kept current while another server writes to it.

        ``path`` is a directory for files of the copy; another server's data directory is refused. Every change raises
        FollowsLeader. ``background=False`` starts no thread: ``follower.look`` applies what is new. Raises NoLeaderYet
        if no server has used the replica.
        """
        options = options or Options()
        with ExitStack() as undoing, _locked(path, undoing) as disk:
            store = replica or ObjectStoreReplica(options.follow, **options.replica_options)
            mirror = Mirror(disk, store) if background else Mirror(disk, store, looks_per_list=1)
            follower = Follower(disk, mirror, options.follow_interval_ms)
            engine = cls(disk, options, clock or SteadyClock(), cold or _cold_tier(options), None, follower=follower)
            follower.look()
            undoing.pop_all()
        if background:
            follower.start(engine.health)
        return engine

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- logs ----------------------------------------------------------------------------------------------

    def create(
        self,
        name: str,
        config: Config | None = None,
        *,
        notes: Mapping[str, Any] | None = None,
        batch: Batch | None = None,
    ) -> Commit[Log]:
        """Create a log with these notes and first records. Raises LogExists if the name is taken.

        The log is durable once the commit is done, whatever its durability. After a crash, all of it exists or nothing.
        The log can be found immediately; its first records become visible when they are durable.
        """
        return create(self, name, config or DEFAULT_CONFIG, notes, batch)

    def fork(
        self,
        name: str,
        source: Log,
        through: int,
        config: Config | None = None,
        *,
        notes: Mapping[str, Any] | None = None,
        batch: Batch | None = None,
    ) -> Commit[Log]:
        """Create a log that starts with the records of ``source`` up to the seq ``through``, from 0 to the source's
        head.

        Nothing is copied: the fork shares these records, so a change to them in the source also shows in the fork. The
        fork's own records start at ``through + 1``. Changes, deletions and retention of the fork act only on its own
        records. Otherwise this works like ``create``. Without a ``config``, the fork gets the source's.

        Notes, cursors, producers and idempotency keys are not shared. Records of an ephemeral source are only in memory
        and cannot be shared: a fork point after such records raises BadRequest.
        """
        return fork(self, name, source, through, config, notes, batch)

    def log(self, name: str) -> Log:
        found = self.find(name)
        if found is None:
            raise UnknownLog(name)
        return found

    def find(self, name: str) -> Log | None:
        if self._closed:
            raise EngineClosed("the engine is closed")
        book = self._by_name.get(name)
        return None if book is None else Log(self, book)

    def names(self, prefix: str = "", after: str = "", limit: int | None = None) -> list[str]:
        """Return names of logs in order, starting after ``after``."""
        with self.lock:
            return self._names.page(prefix, after, limit)

    def names_at(self, spans: Sequence[Span], hidden: Sequence[str], position: int, limit: int) -> list[str]:
        """Return names of logs in order, starting at a position; see :meth:`Names.slice`."""
        with self.lock:
            return self._names.slice(spans, hidden, position, limit)

    def __len__(self) -> int:
        return len(self._by_name)

    def unsealed(self) -> list[Log]:
        """Return the logs that changed since the last round of housekeeping. Apart from ephemeral logs, only these have
        unsealed records."""
        with self.lock:
            return [Log(self, book) for book in self._dirty | self._lately if not book.dropped]

    def changed_lately(self) -> set[Logbook]:
        """Return the logs that changed since the last call, including dropped ones. There must be only one caller. The
        cost depends on the number of changed logs, not on the number of logs."""
        with self.lock:
            lately, self._lately = self._lately, set()
            self._dirty |= lately
        return lately

    # --- changes to several logs ---------------------------------------------------------------------------

    def change_all(self, changes: Sequence[Change]) -> Commit[list[Any]]:
        """Make several changes to several logs in one step: after a crash, all of them exist or none.

        If any change has to wait for the flush, all become visible together after it, except records of ``replicated``
        logs, which become visible when the replica has them. The commit is then done as well. Deletes, hides, restores
        and amendments affect only records that existed before the step; the step's own appends are applied last. An
        append with a repeated idempotency key returns its earlier result, and the other changes are made. If this
        raises, nothing has changed.

        The results are in the order of the changes: the result of each append, delete, hide or restore, and None for an
        amendment.
        """
        return change_all(self, changes)

    def append_all(self, appends: Sequence[Append]) -> Commit[list[Appended]]:
        """Like ``change_all``, for appends only."""
        return change_all(self, appends)

    def forward(self, source: Log, copies: Sequence[ForwardedCopy]) -> Commit[list[Appended | None]]:
        """Copy records of ``source`` into other logs and move its cursors; see :class:`ForwardedCopy`.

        After a crash, all of it has happened or nothing. If the records are in the current journal file, their payloads
        are neither journaled nor held in memory a second time. Returns the result of each copy, or None where nothing
        was appended. If a destination was dropped, or is full and rejects appends, its cursor does not move.
        """
        return forward(self, source, copies)

    # --- flushing and closing ------------------------------------------------------------------------------

    def flush(self, wanted: Commit[Any] | None = None) -> None:
        """Make everything written so far durable. The commits that waited for it are done afterwards.

        Raises JournalFailed if the flush fails, as do the commits.
        """
        self.flushing.flush(wanted)

    def maintain(self) -> bool:
        """Seal, merge and move the data that is due. Return whether there was anything to do."""
        return self.maintenance.run()

    def seal(self) -> None:
        """Seal everything that is in the journal, however little."""
        self.maintenance.run(everything=True)

    def seal_soon(self) -> None:
        """Have housekeeping seal everything that is in the journal now, without waiting for it."""
        with self.lock:
            self.backlog.want_round()

    def compact(self) -> bool:
        """Delete superseded records of compacted logs that are old enough. Return whether there were any."""
        return self.compacting.run()

    def stats(self) -> Stats:
        with self.lock:
            return Stats(
                logs=len(self._by_name),
                records=self.totals.records + self.side_totals.records,
                size=self.totals.size + self.side_totals.size,
                journal_bytes=self.backlog.size,
                unsealed_budget=self.backlog.budget,
                refused=self.backlog.refused,
                rounds=self.maintenance.rounds,
                round_bytes=self.maintenance.round_bytes,
                frames=self.journal.frames,
                bytes_written=self.journal.written,
                rotations=self.journal.rotations,
                flushes=self.flushing.flushes,
                flush_us=self.flushing.times.histogram(),
                pending=self.flushing.pending,
                pending_peak=self.flushing.pending_peak,
                segments=len(self.store.ids()),
                damaged_segments=self.store.damaged,
                cached_bytes=self.store.cached_bytes,
                read_only=self.journal.failure is not None and self.follower is None,
            )

    @property
    def total_size(self) -> int:
        """Return the bytes of all live records, without the server's own logs."""
        return self.totals.size

    def close(self) -> None:
        """Flush, record a clean shutdown, and unlock the directory."""
        with self.lock:
            if self._closed:
                return
            self._closed = True
        if self.follower is not None:
            self.follower.close()
        for thread in self._threads:
            thread.end()
        # However large the backlog is: the next start replays the records that are not sealed now.
        self.maintenance.close()
        for thread in self._threads:
            thread.join()
        try:
            if self.journal.failure is not None:
                with suppress(JournalFailed):  # reported when it happened
                    self.flush()
            else:
                self.flush()
                with self.lock:
                    self.reservations.settle(self.now(), None, self.touch)
                    self.journal.write(encode(FrameType.CLOSE, 0, 0, self.now()))
                self.flush()
                self.maintenance.note_stop()
            if self.replica is not None:
                self.replica.close()
        finally:
            self.flushing.fail_pending(EngineClosed("the engine was closed before the change was durable"))
            self.journal.close()
            self.store.close()
            self.disk.unlock()

    # --- used by logs, maintenance and recovery ------------------------------------------------------------

    @property
    def writable(self) -> bool:
        return not self._closed and self.journal.failure is None

    def check_config(self, config: Config) -> None:
        """Raise if this engine cannot have a log with this configuration."""
        if config.durability == "replicated" and self.replica is None:
            why = "needs a replica; start the server with --replica"
            raise BadConfig("durability", config.durability, why)

    def check_replica(self, book: Logbook) -> None:
        """Raise if the log has the durability ``replicated`` and cannot be changed now."""
        if book.config.durability == "replicated":
            if self.replica is None:
                raise NoReplica(book.name)
            self.replica.check(book)

    def check_writable(self) -> None:
        if self._closed:
            raise EngineClosed("the engine is closed")
        if self.journal.failure is not None:
            raise self.journal.failure.again()

    def now(self) -> int:
        """Return the time. It never goes backwards, except from a time that is more than a day ahead: that time came
        from a wrong clock and must not hold the time for years."""
        now = self._clock.now()
        if now > self._last_ts:
            self._last_ts = now
        elif self._last_ts - now > MAX_AHEAD_MS:
            log.warning(
                "the clock stepped back by %.3f s; new records have the earlier time", (self._last_ts - now) / 1000
            )
            self._last_ts = now
        return self._last_ts

    def _first_time(self, last_ts: int) -> int:
        """Return the first time of this engine, for a directory whose last write was at ``last_ts``."""
        ahead = last_ts - self._clock.now()
        if ahead > MAX_AHEAD_MS:
            log.warning(
                "the last write to the data directory is %.3f s ahead of the clock, so it was made with a wrong clock;"
                " new records have the time of the clock",
                ahead / 1000,
            )
            return 0
        self._clock.continue_from(last_ts)
        return last_ts

    def touch(self, book: Logbook) -> None:
        """Prepare a change to the log: a snapshot in progress first captures the log as it was."""
        if self._snapshot is not None:
            self._snapshot.capture_first(book)
        self._lately.add(book)

    def check_own(self, log: Log) -> None:
        if log.engine is not self:
            raise BadRequest(f"log {log.name!r} belongs to another engine")

    def note_place(self, book: Logbook, first: int) -> None:
        """Record that an append starting at ``first`` has been written to the journal."""
        if book.journal_index != self.journal.index:
            book.journal_index = self.journal.index
            book.journal_first = first

    def add(self, book: Logbook) -> None:
        """Register a new log that has been journaled."""
        self._next_epoch = book.epoch + 1
        self.by_epoch[book.epoch] = book
        if book.base is not None and book.base.book is not None:
            book.base.book.forks += 1
            book.base.book.withdrawals += 1
        self.enter(book)
        self.touch(book)

    def enter(self, book: Logbook) -> None:
        """Make a log known by its name."""
        self._by_name[book.name] = book
        self._names.add(book.name)
        book.count_in(self._totals_of(book))
        self.note_config(book)

    def note_config(self, book: Logbook) -> None:
        """Register whether the log is compacted and keeps records for the lake, after it was created or configured."""
        for logs, wanted in (
            (self.compacted, book.config.compact),
            (self.retaining, book.config.retain_until_in_lake),
        ):
            if wanted:
                logs.add(book)
            else:
                logs.discard(book)

    def _totals_of(self, book: Logbook) -> Totals:
        return self.side_totals if is_internal(book.name) else self.totals

    def remove(self, book: Logbook) -> None:
        book.dropped = True
        del self.by_epoch[book.epoch]
        if book.base is not None and book.base.book is not None:
            book.base.book.forks -= 1
            book.base.book.withdrawals += 1
        self.leave(book)

    def leave(self, book: Logbook) -> None:
        """Forget the name of a log that was dropped."""
        self._names.remove(book.name)
        del self._by_name[book.name]
        book.count_in(NOWHERE)
        self.compacted.discard(book)
        self.retaining.discard(book)
        if self.dropped:
            _call_all(self.dropped, Log(self, book))

    def replace_books(self, books: dict[int, Logbook]) -> None:
        """Replace all logs by those that were loaded again. A log of the same epoch remains the same object. The lock
        is held."""
        for epoch, book in list(self.by_epoch.items()):
            if epoch not in books:
                book.dropped = True
                del self.by_epoch[epoch]
                self.leave(book)
                self.tell(book)
        created: list[Logbook] = []
        for epoch, fresh in books.items():
            known = self.by_epoch.get(epoch)
            if known is not None:
                known.become(fresh)
                self.note_config(known)
                continue
            self.by_epoch[epoch] = fresh
            self.enter(fresh)
            created.append(fresh)
        for book in self.by_epoch.values():
            if book.base is not None:
                book.base.book = self.by_epoch[book.base.point.epoch]
        for book in created:
            self.tell_created(Log(self, book))
        self.hear_of(self.by_epoch.values(), self.by_epoch.values())

    def hear_of(self, changed: Iterable[Logbook], noted: Iterable[Logbook]) -> None:
        """Tell listeners what another process has changed. The lock is held."""
        for book in changed:
            self._lately.add(book)
            if book.listeners:
                self.tell(book)
        for book in noted:
            self.tell_noted(book)

    def tell(self, book: Logbook) -> None:
        for listener in book.listeners:
            try:
                listener(book)
            except Exception:
                # The change has been made. A failing listener must not affect the caller or the other listeners.
                log.exception("a listener of log %r failed", book.name)

    def tell_created(self, created: Log) -> None:
        _call_all(self.created, created)

    def tell_noted(self, book: Logbook) -> None:
        if self.noted:
            _call_all(self.noted, Log(self, book))

    def tell_kept(self, books: Iterable[Logbook]) -> None:
        if self.kept:
            _call_all(self.kept, [Log(self, book) for book in books])

    def begin_snapshot(self, boundary_wanted: Callable[[], RoundSnapshot]) -> RoundSnapshot:
        """Switch to a new journal file and start capturing every log as it was at the switch.

        Everything before the boundary is flushed and applied first, so no change spans it.
        """
        self.journal.prepare()
        with self.flushing.turns, self.lock:
            self.check_writable()
            self.flushing.flush_within()
            self.journal.rotate()
            snapshot = boundary_wanted()
            snapshot.add(self._dirty)
            snapshot.add(self._lately)
            self._dirty, self._lately = set(), set()
            self._snapshot = snapshot
            return snapshot

    def switch_journal(self) -> None:
        """Continue in the next journal file, which has been prepared."""
        with self.flushing.turns, self.lock:
            self.check_writable()
            self.flushing.flush_within()
            self.journal.rotate()

    def end_snapshot(self, given_up: RoundSnapshot | None) -> None:
        """End a snapshot that was written. If it was ``given_up``, its logs count as changed again."""
        with self.lock:
            self._snapshot = None
            if given_up is not None:
                self._dirty |= given_up.give_up()

    @property
    def next_epoch(self) -> int:
        return self._next_epoch

    def settle_idle(self) -> None:
        """Release the reservations of idle logs."""
        with self.lock:
            if self.writable:
                now = self.now()
                if self.reservations.settle(now, now - self.options.settle_after_ms, self.touch):
                    self.flush_in_time()

    # --- threads -------------------------------------------------------------------------------------------

    def _start_threads(self) -> None:
        wake_keeper, wake_compactor = self._wake_keeper, self._wake_compactor
        housekeeping = Task("housekeeping", self._keep_house, self.health, max_delay=MAX_KEEP_DELAY_SECONDS)
        keeper = BackgroundThread(housekeeping, lambda: wake_keeper.wait(KEEP_SECONDS), wake_keeper.set)
        # Compaction may be busy for a long time, and sealing must not wait for it.
        compaction = Task("compaction", self._compact_if_wanted, self.health)
        compactor = BackgroundThread(compaction, lambda: wake_compactor.wait(COMPACT_SECONDS), wake_compactor.set)
        flusher = self.flushing.start(self.options.flush_interval_ms / 1000, self._after_flush, self.health)
        # The housekeeping thread is busy during a round.
        wake_rotator = self._wake_rotator
        rotation = Task("journal rotation", self._rotate_journal, self.health)
        rotator = BackgroundThread(rotation, wake_rotator.wait, wake_rotator.set)
        self._threads = [flusher, keeper, compactor, rotator]
        if self.replica is not None:
            self.replica.start(self.health)
        keeper.start()
        rotator.start()
        compactor.start()

    def _after_flush(self) -> None:
        if self.maintenance.due:
            self._wake_keeper.set()
        if self.maintenance.file_is_full:
            self._wake_rotator.set()

    def _rotate_journal(self) -> None:
        self._wake_rotator.clear()
        self.maintenance.rotate_full()

    def _keep_house(self) -> None:
        self._wake_keeper.clear()
        if self.journal.failure is None:
            with suppress(JournalFailed):  # logged where it happened
                self.flushing.check_in_place()
        try:
            self.settle_idle()
        finally:
            # If the disk is full, this may free space.
            try:
                self.maintenance.attempt()
            except EngineError:
                # A round that was cancelled because the engine closes has not failed.
                if not self._closed:
                    raise

    def _compact_if_wanted(self) -> None:
        if self.compacted:
            self.compacting.run()


@contextmanager
def _locked(path: str | os.PathLike[str] | Disk, undoing: ExitStack) -> Iterator[Disk]:
    """A directory that this process locks, until ``undoing`` ends."""
    is_path = isinstance(path, (str, os.PathLike))
    disk: Disk = LocalDisk(path) if isinstance(path, (str, os.PathLike)) else path
    with room_to_start(disk.local_path("")):
        if is_path:
            disk.make_directory("")
        disk.lock()
        undoing.callback(disk.unlock)
        yield disk


def _cold_tier(options: Options) -> ColdStore | None:
    return ObjectStoreCold(options.cold_url, **options.cold_options) if options.cold_url else None


def _call_all(listeners: Iterable[Callable[[T], None]], about: T) -> None:
    for listener in list(listeners):
        try:
            listener(about)
        except Exception:
            # The change has been made. A failing listener must not affect the caller or the other listeners.
            log.exception("a function that was called after a change of %r failed", about)


DEFAULT_CONFIG = Config()
