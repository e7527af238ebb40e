"""Builds indexes in the background, so that searches find them ready.

One thread keeps the index files of every searchable log complete: it plans, and a process does the work, one short job
after the other, the logs in turn. A second thread brings the index in memory up to date for logs that are searched, and
at the start of the server.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from time import monotonic, perf_counter
from typing import NamedTuple, Protocol

from strandline.engine import Engine, Log
from strandline.engine.background import BackgroundThread, Task, report
from strandline.engine.errors import DamagedFile, MissingFile
from strandline.engine.operations.erasures import NAME as ERASURES
from strandline.engine.ownership import REGISTRY
from strandline.engine.reads.sealed_rows import RowRange, SealedRows, sealed_ranges, sealed_rows
from strandline.engine.reads.status import live_ranges_of, rewrites_of, sealed_through
from strandline.engine.segments.segment import Segment
from strandline.engine.segments.store import UnknownSegment
from strandline.query import providers
from strandline.query.config import SearchConfig
from strandline.query.index import IndexPlan, Versions, plan_of
from strandline.query.index_files.answers import filed_through, gets_files
from strandline.query.index_files.builder import Origin, rollups_id, versions_between
from strandline.query.index_files.directory import FOLDER, IndexDirectory
from strandline.query.index_files.jobs import BuildJob, IndexJob, JoinJob
from strandline.query.index_files.jobs import run as run_here
from strandline.query.index_files.plan import Build, IndexPlanning, Join, plan_next, uncovered
from strandline.query.index_files.table import IndexEntry
from strandline.query.search import Coverage
from strandline.query.searcher import LogIndexStatus, Searcher
from strandline.spans import background

log = logging.getLogger(__name__)

#: The process is ended when it has had nothing to do for this long.
IDLE_SECONDS = 30.0
#: The index in memory of a log follows its records for this long after a search.
WARM_SECONDS = 60.0
#: How often it is brought up to date, and for how long at a time. Searches index fewer records themselves.
WARM_INTERVAL_SECONDS = 0.25
STEP_SECONDS = 0.25
MIN_BEHIND = 4096
#: A job whose segments were merged away is planned again this often before it counts as failed.
MAX_REPLANNED = 8

#: Returns the search configuration of a log and the first seq of each of its schema versions; None if it has none.
SearchOf = Callable[[Log], tuple[SearchConfig, Versions] | None]


class Runner(Protocol):
    """Runs jobs, in a process or in the calling thread."""

    def run(self, job: IndexJob) -> IndexEntry: ...

    def rest(self) -> None: ...

    def close(self) -> None: ...


class IndexProgress(NamedTuple):
    """How far the index of a log is. The rate is that of the last jobs; None while nothing is being indexed."""

    indexed_records: int
    records: int
    records_per_second: float | None
    remaining_ms: int | None

    @property
    def complete(self) -> bool:
        return self.indexed_records >= self.records


class _Rate:
    """The rate of the jobs of one log."""

    def __init__(self) -> None:
        self._rows = 0.0
        self._seconds = 0.0

    def add(self, rows: int, seconds: float) -> None:
        # Later jobs count more: the machine may have been busy with something else before.
        self._rows = self._rows * 0.9 + rows
        self._seconds = self._seconds * 0.9 + seconds

    @property
    def per_second(self) -> float | None:
        return self._rows / self._seconds if self._seconds else None


class _Unreadable(Exception):
    """Records could not be read from their segment."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class _Warm(NamedTuple):
    log: Log
    config: SearchConfig
    versions: Versions
    until: float


class _Aim(NamedTuple):
    """Index files must have the records up to the seq ``through`` before the index by this plan counts as complete; 0:
    they have had them."""

    plan: IndexPlan
    through: int


class Indexer:
    """Any thread may use it. Call ``prepare`` first. Without ``start``, ``work`` does what is due, for tests."""

    def __init__(
        self,
        engine: Engine,
        searcher: Searcher,
        directory: IndexDirectory,
        search_of: SearchOf,
        runner: Runner | None = None,
        *,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """``directory`` is one of the sources of the searcher. Without a ``runner``, the calling thread does the
        work."""
        self._engine = engine
        self._searcher = searcher
        self.directory = directory
        self._search_of = search_of
        self._runner = runner or _InThisThread(engine)
        self._clock = clock
        self._lock = threading.Lock()
        #: The logs whose files may be incomplete, in the order of their turns.
        self._due: dict[int, Log] = {}
        #: The epoch of the log that has its turn.
        self._current: int | None = None
        self._failed: dict[int, Log] = {}
        self._rates: dict[int, _Rate] = {}
        self._aims: dict[int, _Aim] = {}
        #: Ranges that could not be read, by log, until the next attempt.
        self._unreadable: dict[int, list[tuple[int, int]]] = {}
        #: The epochs of logs that were dropped and may have index files.
        self._gone: set[int] = set()
        self._warm: dict[int, _Warm] = {}
        self._looks: deque[_Warm] = deque()
        self._progress: dict[int, IndexProgress | None] = {}
        self._wake_files, self._wake_tails = threading.Event(), threading.Event()
        #: The number of records that were indexed.
        self.indexed = 0
        self._stopping = False
        self._threads: list[BackgroundThread] = []
        searcher.indexes.in_background = True
        searcher.searched = self._searched
        engine.created.append(self._noted)
        engine.noted.append(self._noted)
        engine.kept.append(self._kept)

    # --- start and stop ----------------------------------------------------------------------------------------------

    def start(self) -> None:
        health = self._engine.health
        files = BackgroundThread(Task("indexing", self.work, health), self._wait_for_files, self._wake_files.set)
        tails = BackgroundThread(
            Task("indexing of new records", self._follow, health), self._wait_for_tails, self._wake_tails.set
        )
        self._threads = [files, tails]
        for thread in self._threads:
            thread.start()
        self._wake_files.set()
        self._wake_tails.set()

    def stop(self) -> None:
        """Stop. A job in progress is cancelled; it is planned again after the next start."""
        self._stopping = True
        for listeners, own in (
            (self._engine.created, self._noted),
            (self._engine.noted, self._noted),
            (self._engine.kept, self._kept),
        ):
            if own in listeners:
                listeners.remove(own)  # type: ignore[arg-type]
        for thread in self._threads:
            thread.end()
        self._runner.close()
        for thread in self._threads:
            thread.join()

    def prepare(self) -> None:
        """Find the work to do. Removes the index files of other logs, which a crash may have left."""
        for name in self._engine.names():
            found = self._engine.find(name)
            try:
                search = None if found is None else self._config(found)
            except Exception as error:
                report(f"cannot read the search configuration of {name!r}", error)
                continue
            if found is None or search is None:
                continue
            self._want(found)
            if found.head - sealed_through(found) > providers.MAX_REQUEST_ROWS:
                self._keep_warm(found, *search)
        with self._lock:
            known = set(self._due)
            self._gone.update(epoch for epoch in self.directory.epochs() if epoch not in known)

    # --- what is heard -----------------------------------------------------------------------------------------------

    def _noted(self, changed: Log) -> None:
        """A log was created, or its notes have changed. The engine's lock is held."""
        if REGISTRY in changed.notes or self.directory.known(changed.epoch) is not None:
            self._want(changed)

    def _kept(self, logs: list[Log]) -> None:
        """Records of these logs were sealed or changed."""
        for each in logs:
            if self._is_indexed(each):
                self._want(each)

    def _is_indexed(self, of: Log) -> bool:
        return self._config(of) is not None or self.directory.known(of.epoch) is not None

    def _config(self, of: Log) -> tuple[SearchConfig, Versions] | None:
        """The search configuration of a log that can have index files."""
        return self._search_of(of) if gets_files(of) else None

    def _want(self, wanted: Log) -> None:
        with self._lock:
            # A log that failed waits for the next attempt, however often it is searched.
            if wanted.epoch not in self._failed:
                self._due.setdefault(wanted.epoch, wanted)
        self._wake_files.set()

    def _searched(self, searched: Log, config: SearchConfig, versions: Versions, coverage: Coverage) -> None:
        """A search or an aggregation was answered."""
        self._keep_warm(searched, config, versions)
        if coverage.missing:
            self._want(searched)
        if coverage.behind:
            self._wake_tails.set()

    # --- index files -------------------------------------------------------------------------------------------------

    def _wait_for_files(self) -> None:
        if not self._wake_files.wait(IDLE_SECONDS):
            self._runner.rest()
            self._wake_files.wait()

    def work(self) -> None:
        """Write index files until all are complete. Raises the first error, after all other logs had their turns."""
        self._wake_files.clear()
        failure: Exception | None = None
        unreadable: dict[int, Log] = {}
        with self._lock:
            self._due = {**self._failed, **self._due}
            for epoch in self._failed:
                self._unreadable.pop(epoch, None)
            self._failed.clear()
            gone, self._gone = self._gone, set()
        for epoch in gone:
            self.directory.remove_all(epoch)
        while not self._stopping and (each := self._next()) is not None:
            try:
                if self._step(each):
                    self._want(each)
                elif each.epoch in self._unreadable:
                    unreadable[each.epoch] = each
            except _Unreadable as error:
                failure = failure or error.cause
                self._want(each)
            except Exception as error:
                if self._stopping or each.dropped:
                    continue
                failure = failure or error
                with self._lock:
                    self._failed[each.epoch] = each
                    self._due.pop(each.epoch, None)
        with self._lock:
            self._current = None
            self._failed |= unreadable
        if failure is not None:
            raise failure

    def _next(self) -> Log | None:
        with self._lock:
            epoch = self._current = next(iter(self._due), None)
            return None if epoch is None else self._due.pop(epoch)

    def _step(self, of: Log) -> bool:
        """Do the next step for a log. Return whether there may be another one."""
        failure: MissingFile | UnknownSegment | None = None
        for _ in range(MAX_REPLANNED):
            search = None if of.dropped else self._config(of)
            if search is None:
                self.directory.remove_all(of.epoch)
                return False
            self._aim(of, plan_of(search[0]))
            planned = self._plan(of, *search)
            if planned.useless:
                self.directory.remove(list(planned.useless))
                self._searcher.indexes.changes += 1
            if planned.step is None:
                self._rates.pop(of.epoch, None)
                return False
            try:
                self._do(of, planned.step, *search)
                return True
            except (MissingFile, UnknownSegment) as error:
                failure = error  # its segment was merged in the meantime
            except DamagedFile as error:
                raise self._leave_out(of, planned.step, error) from error
        assert failure is not None
        assert planned.step is not None
        raise self._leave_out(of, planned.step, failure) from failure

    def _aim(self, of: Log, plan: IndexPlan) -> int:
        """Return the seq up to which index files must have the records of a log before its index counts as complete.

        At first these are all records, if a request could not index the unsealed ones by itself. They are sealed soon
        then, so that a server that is killed does not have to index them again.
        """
        with self._lock:
            known = self._aims.get(of.epoch)
        if known is not None and known.plan == plan:
            return known.through
        head = of.head
        aim = _Aim(plan, head if self._seal_if_long(of) else filed_through(of))
        with self._lock:
            self._aims[of.epoch] = aim
        return aim.through

    def _seal_if_long(self, of: Log) -> bool:
        """Have the records of a log sealed soon if a request could not index the unsealed ones by itself."""
        is_long = gets_files(of) and of.head - sealed_through(of) > providers.MAX_REQUEST_ROWS
        if is_long:
            self._engine.seal_soon()
        return is_long

    def _leave_out(self, of: Log, step: Build | Join, error: Exception) -> Exception:
        """Continue with the other records of the log until the next attempt."""
        if not isinstance(step, Build):
            return error
        self._unreadable.setdefault(of.epoch, []).append((step.first, step.last))
        return _Unreadable(error)

    def _plan(self, of: Log, config: SearchConfig, versions: Versions) -> IndexPlanning:
        plan = plan_of(config)
        usable = self._searcher.index_files.usable(of, plan, versions)
        own = [file for file in usable if file.source is self.directory]
        lake = [(file.first, file.last) for file in usable if file.source is not self.directory]
        listed = self.directory.entries_of(of.epoch).entries
        live, unreadable = live_ranges_of(of).ranges, self._unreadable.get(of.epoch, ())
        return plan_next(sealed_ranges(of), listed, own, sorted(lake), live, rollups_id(config), unreadable)

    def _do(self, of: Log, step: Build | Join, config: SearchConfig, versions: Versions) -> None:
        begun = perf_counter()
        job = (
            self._build_job(of, step, config, versions) if isinstance(step, Build) else self._join_job(of, step, config)
        )
        try:
            with background(self._engine.tracer, "indexing") as span:
                if span is not None:
                    span.attributes["strandline.log"] = of.name
                if isinstance(step, Build) and step.is_cold:
                    entry = _InThisThread(self._engine).run(job)
                else:
                    entry = self._runner.run(job)
        except DamagedFile as error:
            if not error.path.startswith(f"{FOLDER}/"):
                raise
            # It is gone now, and its records are indexed again.
            self.directory.report(error.path, error)
            return
        self.directory.add(entry)
        if isinstance(step, Join):
            self.directory.remove([each for each in step.entries if each.path != entry.path])
        self._searcher.indexes.changes += 1
        if isinstance(step, Build):
            self.indexed += entry.info.records
            self._rates.setdefault(of.epoch, _Rate()).add(step.rows, perf_counter() - begun)

    def _build_job(self, of: Log, step: Build, config: SearchConfig, versions: Versions) -> BuildJob:
        engine = self._engine
        with engine.lock:
            events = engine.find(ERASURES)
            erasures = 0 if events is None else events.head
            rewrites = rewrites_of(of)
            rows = sealed_rows(of, step.first, step.last)
        for each in rows:
            # The worker opens the files itself.
            if engine.store.is_missing(each.segment):
                engine.store.segment(each.segment)
        # A power cut must not take back a change that the file contains.
        of.sync().wait()
        origin = Origin(
            directory=engine.maintenance.manifest.id,
            log=of.name,
            epoch=of.epoch,
            first=step.first,
            last=step.last,
            versions=versions_between(versions, step.first, step.last),
            erasures=erasures,
            rewrites=rewrites,
        )
        return BuildJob(origin, config.document(), rows)

    def _join_job(self, of: Log, step: Join, config: SearchConfig) -> JoinJob:
        live = live_ranges_of(of).ranges
        paths = [entry.path for entry in step.entries]
        return JoinJob(of.epoch, config.document(), paths, live, list(step.rewritten))

    # --- the index in memory -----------------------------------------------------------------------------------------

    def _keep_warm(self, of: Log, config: SearchConfig, versions: Versions) -> None:
        with self._lock:
            self._warm[of.epoch] = _Warm(of, config, versions, self._clock() + WARM_SECONDS)

    def look_later(self, of: Log, config: SearchConfig, versions: Versions) -> None:
        """Look up the state of a log's index, for status displays, in the background."""
        with self._lock:
            self._looks.append(_Warm(of, config, versions, 0.0))
        self._wake_tails.set()

    def look(self, of: Log, config: SearchConfig, versions: Versions) -> None:
        """Look up the state of a log's index, for status displays."""
        self._progress[of.epoch] = self.progress(of, config, versions)

    def _wait_for_tails(self) -> None:
        self._wake_tails.wait(WARM_INTERVAL_SECONDS if self._warm else None)

    def _follow(self) -> None:
        """Bring the indexes in memory up to date."""
        self._wake_tails.clear()
        while not self._stopping and self._looks:
            each = self._looks.popleft()
            self._attempt(each.log, lambda each=each: self.look(*each[:3]))  # type: ignore[misc]
        now = self._clock()
        for epoch, each in list(self._warm.items()):
            if self._stopping:
                return
            if each.until < now:
                with self._lock:
                    self._warm.pop(epoch, None)
            self._attempt(each.log, lambda each=each: self._catch_up(each))  # type: ignore[misc]

    def _attempt(self, of: Log, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as error:
            with self._lock:
                self._warm.pop(of.epoch, None)
            if not of.dropped and not self._stopping:
                report(f"cannot index new records of {of.name!r}; the next search tries again", error)

    def _catch_up(self, each: _Warm) -> None:
        indexes, head = self._searcher.indexes, each.log.head
        if head - max(indexes.through(each.log, each.config), filed_through(each.log)) <= MIN_BEHIND:
            return
        while not self._stopping and not each.log.dropped:
            begun, through = perf_counter(), indexes.through(each.log, each.config)
            is_done = indexes.catch_up(each.log, each.config, each.versions, head, begun + STEP_SECONDS)
            rows = indexes.through(each.log, each.config) - max(through, filed_through(each.log))
            if rows > 0:
                self._rates.setdefault(each.log.epoch, _Rate()).add(rows, perf_counter() - begun)
            if is_done:
                return

    @property
    def waiting(self) -> int:
        """The number of logs whose index files are incomplete or are being merged. Fast."""
        with self._lock:
            return len({*self._due, *self._failed, *(() if self._current is None else (self._current,))})

    # --- status ------------------------------------------------------------------------------------------------------

    def known_progress(self, of: Log) -> IndexProgress | None:
        """Return the progress at the last look; None if there was none. Never waits."""
        return self._progress.get(of.epoch)

    def forget(self, of: Log) -> None:
        """Drop the state of a log that is being dropped."""
        with self._lock:
            for known in (self._due, self._failed, self._unreadable, self._rates, self._aims):
                known.pop(of.epoch, None)
            for shown in (self._warm, self._progress):
                shown.pop(of.epoch, None)
            self._gone.add(of.epoch)
        self._wake_files.set()

    def progress(self, of: Log, config: SearchConfig, versions: Versions) -> IndexProgress:
        """Return how far the index of a log is. May wait for the disk."""
        self._searcher.look(of, config, versions)
        held = self._searcher.held(of, config)
        sealed, through = sealed_ranges(of), filed_through(of)
        records = _records(of, sealed)
        missing = sum(part.rows for part in uncovered(sealed, held.ranges)) if through else 0
        behind = min(of.head - max(held.through, through), records)
        if behind > providers.MAX_REQUEST_ROWS:
            # A client that waits for the index does not search yet.
            self._keep_warm(of, config, versions)
            self._wake_tails.set()
        # Searches index a few records themselves.
        missing = (missing if missing >= providers.MIN_FILE_ROWS else 0) + (
            behind if behind > providers.MAX_REQUEST_ROWS else 0
        )
        if held.through > through:
            # Those that the index in memory had to drop.
            tail = RowRange(through + 1, held.through, held.through - through, 0, False)
            missing += sum(part.rows for part in uncovered([tail], held.ranges))
        unfiled = self._unfiled(of, plan_of(config), sealed, held)
        if unfiled:
            # Records that only the memory has count half: the bar moves, and is full when files have them.
            missing = (missing + max(missing, unfiled) + 1) // 2
        missing = min(missing, records)
        rate = self._rates.get(of.epoch)
        per_second = None if rate is None or not missing else rate.per_second
        remaining = None if not per_second else round(missing / per_second * 1000)
        return IndexProgress(records - missing, records, per_second, remaining)

    def _unfiled(self, of: Log, plan: IndexPlan, sealed: Sequence[RowRange], held: LogIndexStatus) -> int:
        """Return how many records still have to be in index files before the index counts as complete."""
        aim = self._aim(of, plan)
        if not aim:
            return 0
        parts = [part for part in sealed if part.first <= aim]
        missing = sum(part.rows for part in uncovered(parts, held.index_files.ranges))
        missing += max(aim - sealed_through(of), 0)
        if missing >= providers.MIN_FILE_ROWS:
            return missing
        # Those that were appended in the meantime follow.
        self._seal_if_long(of)
        with self._lock:
            self._aims[of.epoch] = _Aim(plan, 0)
        return 0


def _records(of: Log, sealed: Sequence[RowRange]) -> int:
    """Return the number of records of a log, with those that a fork shares."""
    if of.base is None:
        return of.state().count
    return sum(part.rows for part in sealed) + of.head - sealed_through(of)


class _InThisThread:
    """Runs jobs in the calling thread: in tests, and for records in the cold tier."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def run(self, job: IndexJob) -> IndexEntry:
        return run_here(self._engine.disk, job, self._open)

    def _open(self, rows: SealedRows) -> Segment:
        return self._engine.store.segment(rows.segment)

    def rest(self) -> None:
        pass

    def close(self) -> None:
        pass
