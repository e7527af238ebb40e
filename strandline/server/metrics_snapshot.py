"""Collects the figures of the metrics.

The engine and the protocols maintain totals as they change, so nothing is counted here. The number of rows is bounded,
and rows are collected in short slices, so that a scrape does not delay other requests.
"""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from strandline.engine.clock import SystemClock
from strandline.engine.errors import UnknownLog
from strandline.protocols.tables.routes import TablesProtocol
from strandline.protocols.topics.context import Context
from strandline.protocols.topics.routes import TopicsProtocol
from strandline.protocols.topics.topics import Topic
from strandline.server.metrics import (
    MAX_ROWS,
    ConsumerSample,
    Indexing,
    LogSample,
    RequestSample,
    RouterSample,
    Sealing,
    Snapshot,
    TableHooks,
    Wal,
    WorkerRow,
    render_json,
)
from strandline.server.metrics_text import TEXT_TYPE, process_text, render_text
from strandline.server.pipeline.lake_marks import RetentionLag
from strandline.server.pipeline.supervisor import PipelineSnapshot
from strandline.service.access import Access
from strandline.service.http import Reply

if TYPE_CHECKING:
    from strandline.server.application import Application

#: The number of topics that are read before other work gets a turn: about a millisecond.
SLICE_ROWS = 200


async def measure(application: Application, access: Access, as_json: bool) -> Reply:
    """The metrics, with rows only for names that the API key may access."""
    snapshot = await take_snapshot(application, access)
    if as_json:
        return Reply(await application.workers.urgent.run(render_json, snapshot))
    return Reply(await application.workers.urgent.run(_text, snapshot), content_type=TEXT_TYPE)


def _text(snapshot: Snapshot) -> bytes:
    return render_text(snapshot) + process_text()


async def take_snapshot(application: Application, access: Access) -> Snapshot:
    topics, engine = application.topics, application.engine
    started = Snapshot(
        ready=application.status.serving,
        replay_progress=application.status.progress,
        standby=application.status.standby,
        uptime_ms=application.probes.uptime_ms,
        streams=application.limits.streams.used,
        connections=application.count_connections(),
        max_connections=application.connection_cap.most,
        connections_refused=application.connection_cap.refused,
        requests=[RequestSample.of(meter) for meter in application.gate.meters()],
        unread_bytes=application.limits.unread.total,
        slow_readers=application.limits.unread.cut,
        unfinished_bytes=application.unfinished.total,
        refused_sockets=application.unfinished.closed,
        traces=None if application.traces is None else application.traces.exporter.stats,
        workers=[WorkerRow(each.name, each.active, each.waiting, each.refused) for each in application.workers.classes],
    )
    if topics is None or engine is None:
        return started
    context = topics.context
    # Before the totals: opening a queue for the first time adds its leases to the totals.
    log_rows = await _log_rows(context, access)
    totals, stats = engine.totals, engine.stats()
    return msgspec.structs.replace(
        started,
        topics=dict(totals.logs),
        routers=len(context.routers),
        records=totals.records,
        size=totals.size,
        queues=context.kernel.catalog.queues,
        leases_in_flight=context.queues.in_flight(),
        watch_sessions=topics.watching.sessions,
        wal=Wal.of(stats),
        sealing=Sealing.of(stats, context.admission.pressure.slowed),
        indexing=Indexing() if application.indexer is None else Indexing.of(application.indexer),
        damaged_files=stats.damaged_segments,
        pressure=context.admission.pressure.level,
        throttled=context.admission.pressure.throttled,
        log_rows=log_rows,
        router_rows=_router_rows(context, access.prefixes),
        consumer_rows=_consumer_rows(topics, access.prefixes),
        background=engine.health.totals(),
        failing=frozenset(trouble.task for trouble in engine.health.troubles()),
        table_hooks=_table_hooks(application.tables),
        replica=None if engine.replica is None else engine.replica.stats(),
        follower=None if engine.follower is None else engine.follower.stats(),
        pipeline=_pipeline(application, access),
        retained=_retained(application, access),
        time=SystemClock().now(),
    )


async def _log_rows(context: Context, access: Access) -> list[LogSample]:
    """The first topics by name, with one row more than is shown if there are more topics."""
    topics, _ = context.topics.page("", "", MAX_ROWS + 1, access)
    rows: list[LogSample] = []
    for at, topic in enumerate(topics):
        if at % SLICE_ROWS == SLICE_ROWS - 1:
            await asyncio.sleep(0)
        try:
            rows.append(await _log_row(context, topic))
        except UnknownLog:  # removed in the meantime
            continue
    return rows


async def _log_row(context: Context, topic: Topic) -> LogSample:
    figures = None
    state = topic.log.state()
    if topic.traits.type == "queue":
        if context.kernel.queue_figures_resident(topic.log):
            figures = context.kernel.queue_figures(topic.log)
        else:
            figures = await context.hub.in_thread(context.kernel.queue_figures, topic.log)
    return LogSample(
        topic.name,
        state.head,
        state.earliest,
        state.evict_floor,
        state.count,
        state.size,
        topic.log.book.appended_bytes,
        figures,
    )


def _pipeline(application: Application, access: Access) -> PipelineSnapshot:
    """The state of the pipeline. Only an API key for all names gets declared tables, which have no prefix."""
    if application.keeper is None:
        return PipelineSnapshot()
    found = application.keeper.standing
    if found.status is None or not access.prefixes:
        return found
    return msgspec.structs.replace(found, status=msgspec.structs.replace(found.status, declared=None))


def _retained(application: Application, access: Access) -> RetentionLag:
    """The lag of logs that keep records for the lake, with rows only for names that the API key may access."""
    if application.marks is None:
        return RetentionLag()
    lag = application.marks.lag
    return msgspec.structs.replace(lag, rows=tuple(row for row in lag.rows if access.may_touch(row.log)))


def _table_hooks(tables: TablesProtocol | None) -> TableHooks:
    if tables is None:
        return TableHooks()
    runner = tables.context.tables.runner
    return TableHooks(calls=runner.held, refused=runner.refused, failures=dict(runner.failures))


def _router_rows(context: Context, prefixes: tuple[str, ...]) -> list[RouterSample]:
    routers, _ = context.routers.page(limit=MAX_ROWS + 1, prefixes=prefixes)
    return [RouterSample(router.name, router.lag, router.forwarded_total) for router in routers]


def _consumer_rows(topics: TopicsProtocol, prefixes: tuple[str, ...]) -> list[ConsumerSample]:
    return [ConsumerSample(*row) for row in islice(topics.consumers.lags(prefixes), MAX_ROWS + 1)]
