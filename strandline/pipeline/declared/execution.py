"""Keeps the declared tables of a project current: prepares them, runs their queries, and reports their state.

It works on a thread of its own, in a session of its own beside the one of the rounds. Nothing that fails here ends a
round, and a table that fails does not stop the others: it is tried again later.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from strandline.engine.errors import UnknownLog
from strandline.lake.declared import DeclaredFiles
from strandline.lake.erasures import ErasureEvents
from strandline.lake.reporter import describe
from strandline.lake.status import DeclaredStatus, DeclaredTable
from strandline.pipeline.declared.catalog import PreparedTable, TableCatalog
from strandline.pipeline.declared.errors import query_error
from strandline.pipeline.declared.graph import downstream, in_order
from strandline.pipeline.declared.progress import RunningQuery
from strandline.pipeline.declared.project import BadProject, Project, load_project
from strandline.pipeline.declared.queries import LOG_FLOW, QueryStarter
from strandline.pipeline.declared.registry import DEAD_LETTER_LOG, LOG, DeclaredOutput, load_declarations
from strandline.pipeline.declared.statements import StatementReader
from strandline.pipeline.declared.tables import compact, replace, vacuum
from strandline.pipeline.source.options import LogLocation
from strandline.pipeline.source.task_reader import borrowed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

#: The interval at which queries are observed, and at which files and erasures are.
TICK_SECONDS = 0.5
LOOK_SECONDS = 5.0
#: A failed table is tried again after a second. The delay doubles with every failure up to this limit.
MAX_BACKOFF_SECONDS = 300.0
#: The limit for an error that is found before a query starts. Most often a log does not exist yet, and its first
#: records should not wait for minutes.
MAX_CHECK_SECONDS = 10.0
#: With ``once``, a table is tried so often.
ATTEMPTS = 3

#: Settings of the session of the queries. A project can override them.
SETTINGS = {
    # Small batches: more partitions only cost more tasks. Streaming state keeps the number that it was created with.
    "spark.sql.shuffle.partitions": "2",
    # State on disk, so that its size is not limited by memory, and only changes are written for each batch.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.streaming.fileSource.log.compactInterval": "100",
    # The thread of a query does not return while its batch runs.
    "spark.sql.streaming.stopTimeout": "60s",
}


class InputPosition(NamedTuple):
    """Where an input of a table is: ``state`` differs if anything in it has changed; ``number`` is the head of a log,
    or the version of a table."""

    state: str
    number: int


@dataclass
class RunningTable:
    """A declared output while the project runs."""

    status: DeclaredTable
    prepared: PreparedTable | None = None
    queries: dict[str, RunningQuery] = field(default_factory=dict)
    #: Input rows of the queries that have ended.
    rows_before: int = 0
    #: When it may be started again.
    not_before: float = 0.0
    #: Only for a table that is computed as a whole: what it was computed from, when that was last compared with what is
    #: there, and when it was computed.
    computed_from: dict[str, InputPosition] = field(default_factory=dict)
    compared_at: float = float("-inf")
    computed_at: float = float("-inf")


class DeclaredTables:
    """The tables of the project in ``directory``, over the logs at ``place``.

    ``publish`` gets the status whenever it may have changed. ``now`` is the time in milliseconds.
    """

    def __init__(
        self,
        spark: SparkSession,
        directory: Path,
        place: LogLocation,
        files: DeclaredFiles,
        now: Callable[[], int],
        publish: Callable[[DeclaredStatus], None] = lambda status: None,
    ) -> None:
        self._base = spark
        self._directory = directory
        self._place = place
        self._files = files
        self._now = now
        self._publish = publish
        self._fingerprint: object = None
        self._catalog: TableCatalog | None = None
        self._project: Project | None = None
        self._tables: dict[str, RunningTable] = {}
        self._error: str | None = None
        self._retry_at = 0.0
        self._looked_at = float("-inf")
        self._erasures = 0
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    # --- once ------------------------------------------------------------------------------------------------------

    def run_once(self) -> bool:
        """Bring every table up to date with what is there now. Returns whether all of them are."""
        if not self._load():
            self._report()
            return False
        self._look()
        self._refresh_requested()
        catalog = self._catalog
        assert catalog is not None
        for table in self._tables.values():
            self._prepare(table)
        for name in in_order(catalog.graph.edges, self._tables):
            table = self._tables[name]
            if table.prepared is None or self._stopping.is_set():
                continue
            self._run_with_attempts(table)
            self._report()
        for table in self._tables.values():
            self._count(table)
            table.status.state = "failed" if table.status.error else "stopped"
        self._report()
        return all(table.status.error is None for table in self._tables.values())

    def _run_with_attempts(self, table: RunningTable) -> None:
        """Errors can have passing causes, such as a server that restarts. What was written is not written again."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                self._run_to_end(table)
                self._well(table)
                self._clean(table)
                return
            except Exception as error:
                self._stop(table)
                self._failed(table, error)
            if attempt < ATTEMPTS and not self._stopping.is_set():
                self._prepare(table)
            if table.prepared is None:
                return

    def _run_to_end(self, table: RunningTable) -> None:
        assert table.prepared is not None
        if table.prepared.mode == "refresh":
            self._refresh(table)
            return
        self._start(table, once=True, only_log=False)
        self._await(table)
        if table.prepared.output.property(LOG):
            self._start(table, once=True, only_log=True)
            self._await(table)

    def _await(self, table: RunningTable) -> None:
        for running in table.queries.values():
            # Raises the error that has ended the query.
            while not running.query.awaitTermination(1):
                if self._stopping.is_set():
                    running.query.stop()
        self._stop(table)

    # --- on and on -------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Keep the tables current until ``stop``."""
        self._thread = threading.Thread(target=self._run, name="declared-tables", daemon=True)
        self._thread.start()

    def request_stop(self) -> None:
        self._stopping.set()

    def stop(self) -> None:
        """Stop all queries after their current batch."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
        self._stop_all()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._tick()
            except Exception as error:
                # Nothing is expected to end up here. If it does, it must be seen, and the tables go on.
                log.exception("the declared tables failed")
                self._error = describe(error)
            self._report()
            self._stopping.wait(TICK_SECONDS)
        for table in self._tables.values():
            table.status.state = "stopped"
        self._report()

    def _tick(self) -> None:
        tick = monotonic()
        if tick - self._looked_at >= LOOK_SECONDS:
            self._look()
            if self._is_changed() and tick >= self._retry_at and not self._load():
                self._retry_at = tick + LOOK_SECONDS
        if self._catalog is None:
            return
        self._refresh_requested()
        for table in list(self._tables.values()):
            if self._stopping.is_set():
                return
            self._tend(table)
            # The first time, all tables together take some time.
            self._report()

    def _tend(self, table: RunningTable) -> None:
        """Start what does not run, see what has failed, and compute what is due."""
        tick = monotonic()
        ended = [running.query for running in table.queries.values() if not running.query.isActive]
        if ended:
            errors = [error for query in ended if (error := query.exception()) is not None]
            self._stop(table)
            self._failed(table, errors[0] if errors else RuntimeError("the query has ended"))
        if tick < table.not_before:
            return
        if table.prepared is None:
            self._prepare(table)
            if table.prepared is None:
                return
        try:
            if table.prepared.mode == "refresh":
                self._refresh_if_due(table, tick)
            elif not table.queries:
                self._start(table, once=False, only_log=False)
                if table.prepared.output.property(LOG):
                    self._start(table, once=False, only_log=True)
                table.status.state = "running"
            self._see(table)
            self._clean(table)
        except Exception as error:
            self._stop(table)
            self._failed(table, error)

    def _refresh_if_due(self, table: RunningTable, tick: float) -> None:
        assert self._project is not None
        assert table.prepared is not None
        if tick - table.computed_at >= self._project.settings.refresh_seconds:
            self._refresh(table)
            self._well(table)
            table.status.state = "running"
        elif tick - table.compared_at >= LOOK_SECONDS:
            table.compared_at = tick
            try:
                table.status.lag = distance(table.computed_from, self._positions(table.prepared))
            except Exception as error:
                # The table is as good as before. The next refresh reports what is wrong.
                log.debug("cannot see how far %s is behind: %s", table.status.name, error)
                table.status.lag = None

    # --- the project -----------------------------------------------------------------------------------------------

    def _is_changed(self) -> bool:
        if self._project is None or self._catalog is None:
            return True
        return self._project.fingerprint() != self._fingerprint

    def _load(self) -> bool:
        """Read the project. Tables that are not declared any more are left alone. Returns whether it is valid."""
        self._stop_all()
        self._catalog = None
        try:
            project = load_project(self._directory)
            self._project, self._fingerprint = project, project.fingerprint()
            session = self._session(project)
            reader = StatementReader(session, lambda text: session.sql(text))
            declarations = load_declarations(project, session, reader.read)
        except BadProject as error:
            self._error = str(error)
            log.warning("cannot run the project %s: %s", self._directory, error)
            return False
        self._error = None
        self._catalog = TableCatalog(session, project, declarations, self._place, self._files)
        self._tables = {name: RunningTable(_first_status(output)) for name, output in declarations.outputs.items()}
        return True

    def _session(self, project: Project) -> SparkSession:
        session = self._base.newSession()
        for name, value in {**SETTINGS, **project.settings.configuration}.items():
            session.conf.set(name, value)
        return session

    def _look(self) -> None:
        self._looked_at = monotonic()
        try:
            with borrowed(self._place) as history:
                self._erasures = ErasureEvents(history).head
        except Exception as error:
            # The logs cannot be read now, which the queries report themselves.
            log.debug("cannot read erasures: %s", error)

    # --- one table -------------------------------------------------------------------------------------------------

    def _prepare(self, table: RunningTable) -> None:
        catalog, name = self._catalog, table.status.name
        assert catalog is not None
        try:
            table.prepared = catalog.prepare(name)
        except Exception as error:
            self._failed(table, error)
            return
        status = table.status
        status.inputs = catalog.inputs_of(name)
        if table.prepared is None:
            # A temporary view is part of the queries that read it.
            status.state, status.error = "running", None
            table.not_before = float("inf")
            return
        status.mode, status.reason = table.prepared.mode, table.prepared.reason
        self._files.generation(name, self._erasures)

    def _start(self, table: RunningTable, *, once: bool, only_log: bool) -> None:
        assert self._catalog is not None
        assert table.prepared is not None
        starter = QueryStarter(self._catalog, self._generation, once=once)
        if only_log:
            table.queries[LOG_FLOW] = RunningQuery(starter.log(table.prepared))
            return
        for prepared in table.prepared.flows:
            table.queries[prepared.flow.name] = RunningQuery(starter.flow(table.prepared, prepared))

    def _clean(self, table: RunningTable) -> None:
        """Once a day, merge small files and remove those that are not used any more."""
        prepared = table.prepared
        if prepared is None or prepared.mode == "sink" or not self._files.is_cleaning_due(prepared.name):
            return
        self._files.cleaned(prepared.name)
        assert self._catalog is not None
        path = self._files.table(prepared.name)
        try:
            if prepared.mode == "append":
                # The queries that merge into the other tables also merge their files.
                compact(self._catalog.spark, path)
            vacuum(self._catalog.spark, path)
        except Exception as error:
            log.warning("cannot clean up the files of %s: %s", prepared.name, query_error(error))

    def _generation(self, name: str) -> str:
        return self._files.generation(name, self._erasures).id

    def _refresh(self, table: RunningTable) -> None:
        """Compute a table as a whole, if what it reads has changed."""
        catalog, prepared = self._catalog, table.prepared
        assert catalog is not None
        assert prepared is not None
        begin = monotonic()
        inputs = self._positions(prepared)
        if inputs != table.computed_from:
            frame = catalog.evaluated(prepared)
            replace(frame, self._files.table(prepared.name))
            table.computed_from = inputs
            table.status.seconds = round(monotonic() - begin, 3)
        table.computed_at = table.compared_at = monotonic()
        table.status.updated = self._now()
        table.status.lag = 0

    def _positions(self, prepared: PreparedTable) -> dict[str, InputPosition]:
        """The state of everything that a table reads, before it is read."""
        found = {}
        with borrowed(self._place) as history:
            for name in prepared.inputs:
                if name in self._tables:
                    version = self._files.version(name)
                    found[name] = InputPosition(str(version), version)
                    continue
                try:
                    info = history.log(name)
                    state = f"{info.epoch}/{info.head}/{info.earliest}/{self._erasures}"
                    found[name] = InputPosition(state, info.head)
                except UnknownLog:
                    found[name] = InputPosition("", 0)
        return found

    def _well(self, table: RunningTable) -> None:
        table.status.error, table.status.retry, table.status.failures = None, None, 0

    def _failed(self, table: RunningTable, error: BaseException) -> None:
        status = table.status
        status.failures += 1
        seconds = retry_seconds(status.failures, error)
        table.not_before = monotonic() + seconds
        status.state, status.error = "failed", str(error) if isinstance(error, BadProject) else query_error(error)
        status.retry = self._now() + round(seconds * 1000)
        log.warning("declared table %s failed: %s; next attempt in %.0f s", status.name, status.error, seconds)
        if self._catalog is not None:
            # What it reads may have changed: a log was created, a column was added.
            self._catalog.forget(status.name)
        table.prepared = None

    def _stop(self, table: RunningTable) -> None:
        self._count(table)
        for running in table.queries.values():
            try:
                running.query.stop()
            except Exception as error:  # it is stuck in a batch; its session is not used again
                log.warning("a query of %s does not stop: %s", table.status.name, describe(error))
        table.rows_before = table.status.rows
        table.queries.clear()

    def _stop_all(self) -> None:
        for table in self._tables.values():
            self._stop(table)

    # --- computing tables again ------------------------------------------------------------------------------------

    def _refresh_requested(self) -> None:
        for name in self._files.requested():
            if name not in self._tables:
                log.warning("cannot compute %s again: the project does not declare it", name)
                self._files.remove_request(name)
                continue
            self._remove(name)

    def _remove(self, name: str) -> None:
        """Remove a table and those that read it as a stream, whose checkpoints refer to its files."""
        catalog = self._catalog
        assert catalog is not None
        for table in self._tables.values():
            if table.prepared is None:
                self._prepare(table)
        below = downstream(catalog.graph.edges, name)
        names = [name, *(each for each in below if self._is_stream(each))]
        for each in below:
            self._tables[each].computed_from = {}
        for each in names:
            self._files.request(each)
        for each in reversed(names):
            table = self._tables[each]
            self._stop(table)
            catalog.forget(each)
            table.prepared, table.rows_before, table.computed_from = None, 0, {}
            table.computed_at = float("-inf")
            table.not_before = 0.0
            self._files.remove(each)
        self._base._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]
        log.info("computing %s again", ", ".join(names))

    def _is_stream(self, name: str) -> bool:
        prepared = self._tables[name].prepared
        return prepared is not None and prepared.mode != "refresh"

    # --- the status ------------------------------------------------------------------------------------------------

    def _see(self, table: RunningTable) -> None:
        """Forget the last error once every query has succeeded after it."""
        self._count(table)
        if table.queries and all(running.has_reported for running in table.queries.values()):
            self._well(table)

    def _count(self, table: RunningTable) -> None:
        """Take the progress of the table's queries into its status."""
        if not table.queries:
            return
        for running in table.queries.values():
            running.look()
        status = table.status
        flows = [running for flow, running in table.queries.items() if flow != LOG_FLOW]
        if flows:
            status.rows = table.rows_before + sum(running.rows for running in flows)
            status.lag = sum(running.lag for running in flows)
        for running in flows:
            if running.updated is not None and running.updated >= (status.updated or 0):
                status.updated, status.seconds = running.updated, running.seconds

    def _report(self) -> None:
        project = self._project
        name = self._directory.name if project is None else project.name
        for table in self._tables.values():
            if table.prepared is not None and table.prepared.mode != "sink":
                before = self._files.generation(table.status.name, self._erasures).erasures
                table.status.erasures = max(0, self._erasures - before)
        edges = {} if self._catalog is None else self._catalog.graph.edges
        tables = [self._tables[name].status for name in in_order(edges, self._tables)]
        self._publish(DeclaredStatus(project=name, directory=str(self._directory), tables=tables, error=self._error))


def distance(before: Mapping[str, InputPosition], now: Mapping[str, InputPosition]) -> int:
    """How many records the logs have got, and how many commits the tables."""
    return sum(max(0, at.number - before[name].number) for name, at in now.items() if name in before)


def retry_seconds(failures: int, error: BaseException) -> float:
    """The time until a table is tried again that has failed so often, the last time with this error."""
    most = MAX_CHECK_SECONDS if isinstance(error, BadProject) else MAX_BACKOFF_SECONDS
    return min(most, 2.0 ** min(failures - 1, 30))


def _first_status(output: DeclaredOutput) -> DeclaredTable:
    return DeclaredTable(
        name=output.name,
        kind=output.kind,
        comment=output.comment,
        log=output.property(LOG) or (output.options.get("log") if output.kind == "sink" else None),
        dead_letter_log=output.property(DEAD_LETTER_LOG),
    )
