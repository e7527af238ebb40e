"""The metrics of the server: a snapshot of its figures, and the JSON of ``/v0/metrics``.

:mod:`strandline.server.metrics_text` renders a snapshot for Prometheus.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from strandline.delivery.queues import QueueFigures
from strandline.engine.follower.follower import FollowerStats
from strandline.engine.replica.replica import ReplicaStats
from strandline.engine.stats import FLUSH_BOUNDS, Histogram, Stats
from strandline.query.index_files.indexer import Indexer
from strandline.server.pipeline.lake_marks import RetentionLag
from strandline.server.pipeline.supervisor import PipelineSnapshot
from strandline.server.traces.exporter import ExportStats
from strandline.service.request_meter import BOUNDS, RequestMeter

#: The maximum number of logs, routers and consumers that have their own series, so that a scrape stays small even
#: with a million logs. A snapshot with one row more is marked as truncated.
MAX_ROWS = 1000

CLASSES = ("ephemeral", "memory", "disk", "fsync", "replicated")


class LogSample(NamedTuple):
    """``appended_bytes`` are those since the server started. ``queue`` is None unless the log is a queue."""

    log: str
    head_seq: int
    earliest_seq: int
    evict_floor: int
    records: int
    size: int
    appended_bytes: int = 0
    queue: QueueFigures | None = None


class RouterSample(NamedTuple):
    router: str
    lag: int
    forwarded: int


class ConsumerSample(NamedTuple):
    topic: str
    consumer: str
    lag: int


class RequestSample(NamedTuple):
    """The answers of a route by status, and how long the handled requests took, in seconds."""

    protocol: str
    method: str
    route: str
    statuses: Mapping[int, int]
    seconds: Histogram = Histogram(BOUNDS, (0,) * len(BOUNDS), 0.0, 0)

    @classmethod
    def of(cls, meter: RequestMeter) -> RequestSample:
        return cls(meter.protocol, meter.method, meter.path, dict(meter.statuses), meter.histogram())


class Wal(msgspec.Struct, frozen=True, kw_only=True):
    """The journal. Its queue holds the changes that wait for a flush, and a batch is a group that is flushed together.

    The queue has no bound, so a full queue never causes a refusal.
    """

    fsyncs: int = 0
    frames: int = 0
    bytes_written: int = 0
    rotations: int = 0
    queue_depth: int = 0
    queue_depth_peak: int = 0
    read_only: bool = False
    fsync_us: Histogram = Histogram(FLUSH_BOUNDS, (0,) * len(FLUSH_BOUNDS), 0.0, 0)

    @classmethod
    def of(cls, stats: Stats) -> Wal:
        return cls(
            fsyncs=stats.flushes,
            frames=stats.frames,
            bytes_written=stats.bytes_written,
            rotations=stats.rotations,
            queue_depth=stats.pending,
            queue_depth_peak=stats.pending_peak,
            read_only=stats.read_only,
            fsync_us=stats.flush_us,
        )


class Sealing(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of sealing."""

    unsealed_bytes: int = 0
    budget_bytes: int = 0
    rounds: int = 0
    #: The bytes of the journal that the last round sealed.
    round_bytes: int = 0
    #: The number of writes that were delayed, and of changes that were refused, because too many bytes were not sealed.
    slowed: int = 0
    refused: int = 0

    @classmethod
    def of(cls, stats: Stats, slowed: int) -> Sealing:
        return cls(
            unsealed_bytes=stats.journal_bytes,
            budget_bytes=stats.unsealed_budget,
            rounds=stats.rounds,
            round_bytes=stats.round_bytes,
            slowed=slowed,
            refused=stats.refused,
        )


class Indexing(msgspec.Struct, frozen=True, kw_only=True):
    """The index files that are built in the background."""

    #: The number of logs whose index files are not complete.
    waiting_logs: int = 0
    #: The number of records that were indexed.
    records: int = 0
    file_bytes: int = 0
    #: The number of files that were found damaged and are built again.
    damaged: int = 0

    @classmethod
    def of(cls, indexer: Indexer) -> Indexing:
        return cls(
            waiting_logs=indexer.waiting,
            records=indexer.indexed,
            file_bytes=indexer.directory.nbytes,
            damaged=indexer.directory.damaged,
        )


class WorkerRow(NamedTuple):
    """A class of work on threads: running and waiting tasks, and refused requests."""

    name: str
    active: int
    waiting: int
    refused: int


class TableHooks(msgspec.Struct, frozen=True, kw_only=True):
    """The hooks of tables that run after their writes: calls that wait or run, writes that were refused because too
    many calls waited, and failed calls by table and hook."""

    calls: int = 0
    refused: int = 0
    failures: Mapping[tuple[str, str], int] = {}


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one moment. Counters start at 0 when the process starts."""

    ready: bool
    replay_progress: float
    uptime_ms: int
    standby: bool = False
    #: The number of logs by durability.
    topics: Mapping[str, int] = {}
    routers: int = 0
    records: int = 0
    size: int = 0
    queues: int = 0
    leases_in_flight: int = 0
    streams: int = 0
    connections: int = 0
    max_connections: int = 0
    connections_refused: int = 0
    watch_sessions: int = 0
    wal: Wal = Wal()
    sealing: Sealing = Sealing()
    indexing: Indexing = Indexing()
    #: The number of segments that a read found damaged or missing.
    damaged_files: int = 0
    #: From 0 to 1.
    pressure: float = 0.0
    workers: Sequence[WorkerRow] = ()
    #: The number of requests that were refused because the server was busy.
    throttled: int = 0
    #: The bytes that clients have not read yet, and the number of clients that were disconnected for not reading.
    unread_bytes: int = 0
    slow_readers: int = 0
    #: The bytes of unfinished WebSocket messages, and the number of WebSockets that were closed because of them.
    unfinished_bytes: int = 0
    refused_sockets: int = 0
    requests: Sequence[RequestSample] = ()
    log_rows: Sequence[LogSample] = ()
    router_rows: Sequence[RouterSample] = ()
    consumer_rows: Sequence[ConsumerSample] = ()
    #: The number of failures of each background task, and the tasks that fail now.
    background: Mapping[str, int] = {}
    failing: frozenset[str] = frozenset()
    table_hooks: TableHooks = TableHooks()
    #: None: the server has no replica.
    replica: ReplicaStats | None = None
    follower: FollowerStats | None = None
    #: None: the server sends no traces.
    traces: ExportStats | None = None
    pipeline: PipelineSnapshot = PipelineSnapshot()
    retained: RetentionLag = RetentionLag()
    #: The time of day in milliseconds.
    time: int = 0


def render_json(snapshot: Snapshot) -> bytes:
    wal = snapshot.wal
    document = {
        "topics": sum(snapshot.topics.values()),
        **{f"topics_{name}": snapshot.topics.get(name, 0) for name in CLASSES},
        "routers": snapshot.routers,
        "records_live": snapshot.records,
        "bytes_live": snapshot.size,
        "queue_topics": snapshot.queues,
        "queue_leases_in_flight": snapshot.leases_in_flight,
        "sse_connections": snapshot.streams,
        "watch_sessions": snapshot.watch_sessions,
        "ready": snapshot.ready,
        "replay_progress": snapshot.replay_progress,
        "uptime_ms": snapshot.uptime_ms,
        "wal": {
            "fsyncs": wal.fsyncs,
            "frames": wal.frames,
            "batches": wal.fsyncs,
            "bytes_written": wal.bytes_written,
            "rotations": wal.rotations,
            "queue_depth": wal.queue_depth,
            "queue_depth_peak": wal.queue_depth_peak,
            "submit_full_total": 0,
            "read_only": wal.read_only,
            "fsync_count": wal.fsync_us.count,
            "fsync_micros_total": round(wal.fsync_us.sum),
        },
        "sealing": {
            "unsealed_bytes": snapshot.sealing.unsealed_bytes,
            "budget_bytes": snapshot.sealing.budget_bytes,
            "rounds_total": snapshot.sealing.rounds,
            "round_bytes": snapshot.sealing.round_bytes,
            "writes_slowed_total": snapshot.sealing.slowed,
            "writes_refused_total": snapshot.sealing.refused,
        },
        "indexing": {
            "waiting_logs": snapshot.indexing.waiting_logs,
            "records_total": snapshot.indexing.records,
            "file_bytes": snapshot.indexing.file_bytes,
            "damaged_files_total": snapshot.indexing.damaged,
        },
        "damaged_files": snapshot.damaged_files,
        "pressure": snapshot.pressure,
        "throttled_total": snapshot.throttled,
        "requests": _requests(snapshot.requests),
        "router_lag": [row._asdict() for row in snapshot.router_rows[:MAX_ROWS]],
        "consumer_lag": [row._asdict() for row in snapshot.consumer_rows[:MAX_ROWS]],
        "background": [
            {"task": task, "failing": task in snapshot.failing, "failures_total": count}
            for task, count in sorted(snapshot.background.items())
        ],
        "pipeline": {
            "state": snapshot.pipeline.state,
            "lag_records": snapshot.pipeline.new_records,
            "lag_erasures": snapshot.pipeline.new_erasures,
            "starts": snapshot.pipeline.starts,
            "failures": snapshot.pipeline.failures,
            "retaining_logs": snapshot.retained.logs,
            "retained_lag_records": snapshot.retained.lag_records,
            "retained_lag_seconds": snapshot.retained.lag_seconds,
            "held_records": snapshot.retained.held_records,
            "held_bytes": snapshot.retained.held_bytes,
        },
    }
    if snapshot.replica is not None:
        document["replica"] = _replica(snapshot.replica)
    if snapshot.follower is not None:
        document["follower"] = _follower(snapshot.follower)
    if snapshot.traces is not None:
        sent, dropped, waiting = snapshot.traces
        document["traces"] = {"spans_sent_total": sent, "spans_dropped_total": dropped, "spans_waiting": waiting}
    return msgspec.json.encode(document)


def _replica(stats: ReplicaStats) -> dict[str, int | float | bool]:
    return {
        "term": stats.term,
        "chunk": stats.chunk,
        "waiting_bytes": stats.waiting_bytes,
        "waiting_records": stats.waiting_records,
        "waiting_commits": stats.waiting_commits,
        "waiting_ms": round(stats.waiting_ms, 3),
        "lag_ms": round(stats.lag_ms, 3),
        "chunks_total": stats.chunks,
        "chunk_bytes_total": stats.chunk_bytes,
        "objects_total": stats.objects,
        "object_bytes_total": stats.object_bytes,
        "missing_segments": stats.missing_segments,
        "away": stats.away,
        "superseded": stats.superseded,
    }


def _follower(stats: FollowerStats) -> dict[str, int | float]:
    return {
        "term": stats.term,
        "chunk": stats.chunk,
        "lag_ms": round(stats.lag_ms, 3),
        "applied_bytes_total": stats.applied_bytes,
        "states_total": stats.states,
        "reloads_total": stats.reloads,
    }


def _requests(samples: Sequence[RequestSample]) -> list[dict[str, str | int]]:
    """The answers by path and status, whatever the method."""
    counts: dict[tuple[str, int], int] = {}
    for sample in samples:
        for status, count in sample.statuses.items():
            counts[sample.route, status] = counts.get((sample.route, status), 0) + count
    return [{"route": route, "status": status, "count": count} for (route, status), count in sorted(counts.items())]
