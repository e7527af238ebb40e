"""GET /v1/server/_details and _mem: the configuration and the state of the server.

The answers have all members of the protocol. Members about parts that this server does not have (SQLite, a JavaScript
heap, gates for single kinds of requests) are 0, null or "unavailable".
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import nlargest
from itertools import islice

from msgspec.structs import asdict

from strandline.delivery.invalidation.live import Lives
from strandline.engine import Log
from strandline.engine.errors import UnknownLog
from strandline.engine.reads.status import LogStatus, status_of
from strandline.protocols.streams.context import StreamsContext
from strandline.protocols.streams.grammar import iso
from strandline.protocols.streams.memory import SQLITE
from strandline.protocols.streams.replies import json_reply
from strandline.protocols.streams.wire.server import (
    AutoTune,
    ConcurrencyGate,
    ConcurrencyGates,
    ConfiguredLimits,
    GarbageCollection,
    HeldBytes,
    IngestQueue,
    LocalBackpressure,
    PendingBytes,
    RuntimeMemory,
    RuntimeSubsystems,
    ServerDetailsAnswer,
    ServerMemory,
    ServerRuntime,
    StreamWaiters,
    TopStreams,
    TouchBytes,
    Uploads,
)
from strandline.service.access import Access
from strandline.service.catalog import Catalog
from strandline.service.http import Call, Reply
from strandline.service.workers import BULK_THREADS

#: How many streams each ranking lists, and how many are considered for it.
TOP = 5
MAX_LOOKED_AT = 20_000


class ServerDetails:
    """``lives`` are the logs with live invalidation; ``waiting`` returns the number of requests that wait for an
    event."""

    def __init__(self, context: StreamsContext, lives: Lives, waiting: Callable[[], int]) -> None:
        self._context = context
        self._lives = lives
        self._waiting = waiting

    async def details(self, call: Call) -> Reply:
        """GET /v1/server/_details"""
        self._context.memory.sample(self._context.hub.now())
        answer = ServerDetailsAnswer(
            auto_tune=AutoTune(),
            configured_limits=self._limits(),
            runtime=self._runtime(await self._top_streams(call.access)),
        )
        return json_reply(answer)

    async def mem(self, call: Call) -> Reply:
        """GET /v1/server/_mem"""
        memory, now = self._context.memory, self._context.hub.now()
        memory.sample(now)
        counts = self._counts()
        answer = ServerMemory(
            ts=iso(now),
            process=memory.process,
            process_breakdown=memory.breakdown,
            sqlite=SQLITE,
            gc=GarbageCollection(),
            high_water=memory.high_water,
            counters={f"tieredstore.mem.leak_candidate.{name}": count for name, count in counts.items()},
            runtime_counts=counts,
            runtime_bytes=memory.runtime_bytes,
            runtime_totals=memory.totals,
            top_streams=await self._top_streams(call.access),
        )
        return json_reply(answer)

    # --- configuration ---------------------------------------------------------------------------------------------

    def _limits(self) -> ConfiguredLimits:
        """0: the server has no such limit, or no such part."""
        settings, options = self._context.settings, self._context.engine.options
        has_cold_tier = self._context.engine.store.has_cold_tier
        return ConfiguredLimits(
            caches={
                "sqlite_cache_bytes": 0,
                "worker_sqlite_cache_bytes": 0,
                "index_run_memory_cache_bytes": settings.search_memory_bytes,
                "index_run_disk_cache_bytes": 0,
                "lexicon_index_cache_bytes": 0,
                "segment_cache_bytes": options.cold_cache_bytes if has_cold_tier else 0,
                "companion_toc_cache_bytes": 0,
                "companion_section_cache_bytes": 0,
                "companion_file_cache_bytes": 0,
            },
            # Searches build the index themselves, and one round of housekeeping runs at a time.
            concurrency={
                "ingest": settings.max_waiting_appends,
                "read": 0,
                "search": BULK_THREADS,
                "async_index": 0,
                "upload": int(has_cold_tier),
                "index_build": BULK_THREADS,
                "index_compact": 0,
            },
            ingest={
                "max_batch_requests": 0,
                "max_batch_bytes": 0,
                "max_queue_requests": settings.max_waiting_appends,
                "max_queue_bytes": settings.max_waiting_bytes,
                "busy_timeout_ms": 0,
                "local_backlog_max_bytes": 0,
            },
            search={
                "companion_batch_segments": 0,
                "companion_yield_blocks": 0,
                "wal_overlay_quiet_period_ms": 0,
                "wal_overlay_max_bytes": 0,
            },
            segmenting={
                "segment_max_bytes": options.segment_bytes,
                "segment_target_rows": 0,
                "segmenter_workers": 1,
            },
            timeouts={
                "append_request_timeout_ms": settings.append_timeout_ms,
                "search_request_timeout_ms": settings.search_timeout_ms,
                "resolver_timeout_ms": settings.request_timeout_ms,
                "object_store_timeout_ms": 0,
            },
            memory={"pressure_limit_bytes": 0},
        )

    # --- state -----------------------------------------------------------------------------------------------------

    def _runtime(self, top_streams: TopStreams) -> ServerRuntime:
        context = self._context
        memory, appends, bulk, settings = context.memory, context.appends, context.workers.bulk, context.settings
        full = appends.count >= settings.max_waiting_appends or appends.size >= settings.max_waiting_bytes
        return ServerRuntime(
            memory=RuntimeMemory(
                last_rss_bytes=memory.rss,
                max_rss_bytes=memory.max_rss,
                process=memory.process,
                process_breakdown=memory.breakdown,
                sqlite=SQLITE,
                gc=GarbageCollection(),
                subsystems=RuntimeSubsystems(**asdict(memory.runtime_bytes), counts=self._counts()),
                totals=memory.totals,
                high_water=memory.high_water,
            ),
            ingest_queue=IngestQueue(requests=appends.count, bytes=appends.size, full=full),
            local_backpressure=LocalBackpressure(
                current_bytes=memory.runtime_bytes.heap_estimates["unsealed_tail_bytes"]
            ),
            uploads=Uploads(self._pending_uploads()),
            concurrency=ConcurrencyGates(
                ingest=_gate(settings.max_waiting_appends, appends.count, 0),
                read=_gate(0, 0, 0),
                search=_gate(BULK_THREADS, bulk.active, bulk.waiting),
                async_index=_gate(0, 0, 0),
            ),
            top_streams=top_streams,
        )

    def _pending_uploads(self) -> int:
        """The segments that the next round of housekeeping moves to the cold tier, judged by their number."""
        engine = self._context.engine
        if not engine.store.has_cold_tier:
            return 0
        hot = sum(entry.tier == "hot" for entry in engine.maintenance.manifest.segments)
        return max(hot - engine.options.hot_segments, 0)

    def _counts(self) -> dict[str, int]:
        context = self._context
        stats, watched = context.engine.stats(), context.hub.watched()
        return {
            "logs": stats.logs,
            "records": stats.records,
            "segments": stats.segments,
            "open_segments": context.engine.store.open_segments,
            "pending_commits": stats.pending,
            "appends_waiting": context.appends.count,
            "requests_waiting": self._waiting(),
            "watched_logs": len(watched),
            "waiters": sum(count for _, count in watched),
            "open_event_streams": context.live.slots.used,
            "search_indexes": len(context.searcher.indexes),
            "touch_journals": len(self._lives),
        }

    # --- the largest streams ---------------------------------------------------------------------------------------

    async def _top_streams(self, access: Access) -> TopStreams:
        """The streams that the API key may see and that have changed lately."""
        watched = [(count, log) for log, count in self._context.hub.watched() if Catalog.visible(log, access)]
        waiters = nlargest(TOP, watched, key=lambda each: each[0])
        filters = [(size, log) for log, size in self._lives.filters() if Catalog.visible(log, access)]
        held = await self._context.workers.normal.run(self._unsealed, access)
        indexed = self._context.searcher.indexes.sizes()
        stored = [(holdings.tail_size + indexed.get(log.epoch, 0), log, holdings) for log, holdings in held]
        pending = nlargest(TOP, held, key=lambda each: each[1].tail_size)
        return TopStreams(
            local_storage_bytes=[
                HeldBytes(
                    stream=log.name,
                    bytes=size,
                    wal_retained_bytes=holdings.tail_size,
                    segment_cache_bytes=0,
                    index_cache_bytes=indexed.get(log.epoch, 0),
                )
                for size, log, holdings in nlargest(TOP, stored, key=lambda each: each[0])
                if size
            ],
            pending_wal_bytes=[
                PendingBytes(stream=log.name, pending_wal_bytes=holdings.tail_size, pending_rows=holdings.tail_records)
                for log, holdings in pending
                if holdings.tail_size
            ],
            touch_journal_filter_bytes=[
                TouchBytes(log.name, size) for size, log in nlargest(TOP, filters, key=lambda each: each[0])
            ],
            notifier_waiters=[StreamWaiters(log.name, count) for count, log in waiters],
        )

    def _unsealed(self, access: Access) -> list[tuple[Log, LogStatus]]:
        found: list[tuple[Log, LogStatus]] = []
        for log in islice(self._context.engine.unsealed(), MAX_LOOKED_AT):
            if Catalog.visible(log, access):
                try:
                    found.append((log, status_of(log)))
                except UnknownLog:  # dropped meanwhile
                    continue
        return found


def _gate(limit: int, active: int, queued: int) -> ConcurrencyGate:
    return ConcurrencyGate(configured_limit=limit, current_limit=limit, active=active, queued=queued)
