"""Takes the snapshot of the server's numbers for the metrics.

Totals are maintained by the code that changes them (the engine's logbooks, the topics), so nothing is counted here.
Rows are limited in number and collected in short slices, so that a scrape does not delay requests.
"""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from strandline.delivery.queues import QueueCounters
from strandline.engine.clock import SystemClock
from strandline.engine.errors import UnknownLog
from strandline.protocols.topics.context import Context
from strandline.protocols.topics.routes import TopicsProtocol
from strandline.protocols.topics.topics import Topic
from strandline.server.metrics import (
    MAX_ROWS,
    TEXT_TYPE,
    ConsumerRow,
    RouterRow,
    Sealing,
    Snapshot,
    TopicRow,
    Wal,
    WorkerRow,
    process_text,
    render_json,
    render_text,
)
from strandline.server.pipeline.supervisor import Standing
from strandline.service.access import Access
from strandline.service.http import Reply

if TYPE_CHECKING:
    from strandline.server.application import Application

#: How many topics are read before other work gets its turn: about a millisecond.
SLICE_ROWS = 200


async def measure(application: Application, access: Access, as_json: bool) -> Reply:
    """The metrics, with the names that the API key may see."""
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
        uptime_ms=application.probes.uptime_ms,
        streams=application.limits.streams.used,
        connections=application.count_connections(),
        max_connections=application.connection_cap.most,
        connections_refused=application.connection_cap.refused,
        requests=dict(application.gate.answered),
        unread_bytes=application.limits.unread.total,
        slow_readers=application.limits.unread.cut,
        unfinished_bytes=application.unfinished.total,
        refused_sockets=application.unfinished.closed,
        workers=[WorkerRow(each.name, each.active, each.waiting, each.refused) for each in application.workers.classes],
    )
    if topics is None or engine is None:
        return started
    context = topics.context
    # Before the totals: reading a queue for the first time updates the totals of its jobs.
    topic_rows = await _topic_rows(context, access)
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
        damaged_files=stats.damaged_segments,
        pressure=context.admission.pressure.level,
        throttled=context.admission.pressure.throttled,
        topic_rows=topic_rows,
        router_rows=_router_rows(context, access.prefixes),
        consumer_rows=_consumer_rows(topics, access.prefixes),
        background=engine.health.totals(),
        failing=frozenset(trouble.task for trouble in engine.health.troubles()),
        pipeline=Standing() if application.keeper is None else application.keeper.standing,
        time=SystemClock().now(),
    )


async def _topic_rows(context: Context, access: Access) -> list[TopicRow]:
    """The first topics by name; one more than are shown if there are more."""
    topics, _ = context.topics.page("", "", MAX_ROWS + 1, access)
    rows: list[TopicRow] = []
    for at, topic in enumerate(topics):
        if at % SLICE_ROWS == SLICE_ROWS - 1:
            await asyncio.sleep(0)
        try:
            rows.append(await _topic_row(context, topic))
        except UnknownLog:  # removed in the meantime
            continue
    return rows


async def _topic_row(context: Context, topic: Topic) -> TopicRow:
    counters = None
    state = topic.log.state()
    if topic.traits.type == "queue":
        if context.queues.is_open(topic.log):
            queue = context.kernel.known_queue(topic.log)
        else:  # the state of its jobs must be read first
            queue = await context.hub.in_thread(context.kernel.known_queue, topic.log)
        counters = QueueCounters(state.count, 0, 0, 0) if queue is None else queue.counters()
    return TopicRow(topic.name, state.head, state.earliest, state.evict_floor, state.count, state.size, counters)


def _router_rows(context: Context, prefixes: tuple[str, ...]) -> list[RouterRow]:
    routers, _ = context.routers.page(limit=MAX_ROWS + 1, prefixes=prefixes)
    return [RouterRow(router.name, router.lag, router.forwarded_total) for router in routers]


def _consumer_rows(topics: TopicsProtocol, prefixes: tuple[str, ...]) -> list[ConsumerRow]:
    return [ConsumerRow(*row) for row in islice(topics.consumers.lags(prefixes), MAX_ROWS + 1)]
