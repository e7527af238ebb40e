"""The metrics of ``/v0/metrics``: a snapshot of the server's figures, rendered as Prometheus text or as JSON.

This module writes the series itself, because prometheus-client would write whole numbers as floats ("500.0" instead of
"500"). The metrics of the process come from that library.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from math import inf
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from strandline.delivery.queues import QueueFigures
from strandline.engine.stats import FLUSH_BOUNDS, Histogram, Stats
from strandline.query.index_files.indexer import Indexer
from strandline.server.pipeline.lake_marks import RetentionLag
from strandline.server.pipeline.supervisor import STATES, PipelineSnapshot

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

#: The media type of the text.
TEXT_TYPE = b"text/plain; version=0.0.4"

#: The maximum number of topics, routers and consumers that have their own series, so that a scrape stays small even
#: with a million topics. A snapshot with one row more is marked as truncated.
MAX_ROWS = 1000

CLASSES = ("ephemeral", "memory", "disk", "fsync")


class TopicSample(NamedTuple):
    """``queue`` is None unless the topic is a queue."""

    topic: str
    head_seq: int
    earliest_seq: int
    evict_floor: int
    records: int
    size: int
    queue: QueueFigures | None = None


class RouterSample(NamedTuple):
    router: str
    lag: int
    forwarded: int


class ConsumerSample(NamedTuple):
    topic: str
    consumer: str
    lag: int


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
    #: Answers by route and status.
    requests: Mapping[tuple[str, int], int] = {}
    topic_rows: Sequence[TopicSample] = ()
    router_rows: Sequence[RouterSample] = ()
    consumer_rows: Sequence[ConsumerSample] = ()
    #: The number of failures of each background task, and the tasks that fail now.
    background: Mapping[str, int] = {}
    failing: frozenset[str] = frozenset()
    table_hooks: TableHooks = TableHooks()
    pipeline: PipelineSnapshot = PipelineSnapshot()
    retained: RetentionLag = RetentionLag()
    #: The time of day in milliseconds.
    time: int = 0


# --- Prometheus ------------------------------------------------------------------------------------------------


def render_text(snapshot: Snapshot) -> bytes:
    lines: list[str] = []
    parts: tuple[Iterator[str], ...] = (
        _totals(snapshot),
        _wal(snapshot.wal),
        _sealing(snapshot.sealing),
        _indexing(snapshot.indexing),
        _damage(snapshot),
        _load(snapshot),
        _topics(snapshot),
        _others(snapshot),
    )
    parts += (_background(snapshot), _table_hooks(snapshot.table_hooks), _pipeline(snapshot), _retained(snapshot))
    for part in parts:
        lines.extend(part)
    lines.append("")
    return "\n".join(lines).encode()


def process_text() -> bytes:
    """The memory, processor time and open files of this process, as Prometheus text."""
    # Imported at the first request for metrics in this form.
    from prometheus_client import generate_latest

    return generate_latest(_process_collector())


@cache
def _process_collector() -> CollectorRegistry:
    from prometheus_client import CollectorRegistry, ProcessCollector

    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    return registry


def _totals(snapshot: Snapshot) -> Iterator[str]:
    by_class = [(f'class="{name}"', snapshot.topics.get(name, 0)) for name in CLASSES]
    yield from _single("topics_topics", "gauge", "Number of logs of all protocols.", sum(snapshot.topics.values()))
    yield from _series("topics_topics_by_class", "gauge", "Number of logs by durability.", by_class)
    yield from _single("topics_routers", "gauge", "Number of routers.", snapshot.routers)
    yield from _single("topics_records_live", "gauge", "Number of live records of all logs.", snapshot.records)
    yield from _single("topics_bytes_live", "gauge", "Bytes of the live records of all logs.", snapshot.size)
    yield from _single("topics_queue_topics", "gauge", "Number of queues.", snapshot.queues)
    words = "Number of jobs leased to workers."
    yield from _single("topics_queue_leases_in_flight", "gauge", words, snapshot.leases_in_flight)
    words = "Number of open event streams and WebSockets."
    yield from _single("topics_sse_connections", "gauge", words, snapshot.streams)
    yield from _single("strandline_connections", "gauge", "Number of open connections.", snapshot.connections)
    words = "Maximum number of open connections."
    yield from _single("strandline_connections_limit", "gauge", words, snapshot.max_connections)
    yield from _single(
        "strandline_connections_refused_total",
        "counter",
        "Connections refused because too many were open.",
        snapshot.connections_refused,
    )
    yield from _single("topics_watch_sessions", "gauge", "Number of watch sessions.", snapshot.watch_sessions)
    words = "1 while the server accepts requests, 0 while it starts or stops."
    yield from _single("topics_ready", "gauge", words, int(snapshot.ready))
    words = "Share of the journal that is replayed, from 0 to 1."
    yield from _single("topics_recovery_progress", "gauge", words, snapshot.replay_progress)
    yield from _single("topics_uptime_ms", "gauge", "Milliseconds since the server started.", snapshot.uptime_ms)


def _damage(snapshot: Snapshot) -> Iterator[str]:
    words = "Number of segments that a read found damaged or missing since the server started."
    yield from _single("topics_damaged_files", "gauge", words, snapshot.damaged_files)


def _wal(wal: Wal) -> Iterator[str]:
    yield from _single("topics_wal_frames_total", "counter", "Frames written to the journal.", wal.frames)
    yield from _single("topics_wal_batches_total", "counter", "Groups of frames flushed together.", wal.fsyncs)
    yield from _single("topics_wal_fsyncs_total", "counter", "Flushes of the journal.", wal.fsyncs)
    yield from _single("topics_wal_bytes_written_total", "counter", "Bytes written to the journal.", wal.bytes_written)
    yield from _single("topics_wal_rotations_total", "counter", "Journal files started.", wal.rotations)
    yield from _single("topics_wal_queue_depth", "gauge", "Number of changes that wait for a flush.", wal.queue_depth)
    words = "Maximum number of changes that waited for a flush."
    yield from _single("topics_wal_queue_depth_peak", "gauge", words, wal.queue_depth_peak)
    words = "Always 0, because the queue of the journal has no bound."
    yield from _single("topics_wal_submit_full_total", "counter", words, 0)
    words = "1 if the journal has failed and the server refuses writes."
    yield from _single("topics_wal_read_only", "gauge", words, int(wal.read_only))
    name = "topics_wal_fsync_latency_us"
    yield from _head(name, "histogram", "Duration of a flush in microseconds.")
    for bound, count in zip(wal.fsync_us.bounds, wal.fsync_us.counts, strict=True):
        yield f'{name}_bucket{{le="{"+Inf" if bound == inf else _number(bound)}"}} {count}'
    yield f"{name}_sum {round(wal.fsync_us.sum)}"
    yield f"{name}_count {wal.fsync_us.count}"


def _sealing(sealing: Sealing) -> Iterator[str]:
    name = "strandline_unsealed"
    yield from _single(f"{name}_bytes", "gauge", "Bytes that are not sealed yet.", sealing.unsealed_bytes)
    yield from _single(f"{name}_budget_bytes", "gauge", "Maximum bytes that are not sealed.", sealing.budget_bytes)
    name = "strandline_sealing"
    yield from _single(f"{name}_rounds_total", "counter", "Rounds of sealing.", sealing.rounds)
    yield from _single(f"{name}_round_bytes", "gauge", "Bytes that the last round sealed.", sealing.round_bytes)
    name = "strandline_writes"
    words = "because too many bytes were not sealed."
    yield from _single(f"{name}_slowed_total", "counter", f"Writes delayed {words}", sealing.slowed)
    yield from _single(f"{name}_refused_total", "counter", f"Writes refused {words}", sealing.refused)


def _indexing(indexing: Indexing) -> Iterator[str]:
    name = "strandline_index"
    words = "Number of logs whose index files are incomplete or are being merged."
    yield from _single(f"{name}_waiting_logs", "gauge", words, indexing.waiting_logs)
    yield from _single(f"{name}_records_total", "counter", "Records indexed in the background.", indexing.records)
    yield from _single(f"{name}_file_bytes", "gauge", "Bytes of the index files.", indexing.file_bytes)
    words = "Index files that were found damaged and are built again."
    yield from _single(f"{name}_damaged_files_total", "counter", words, indexing.damaged)


def _load(snapshot: Snapshot) -> Iterator[str]:
    answers = [(f'route="{_escape(route)}",status="{status}"', count) for route, status, count in _requests(snapshot)]
    yield from _series("topics_requests_total", "counter", "Answers by route and status.", answers)
    words = "Requests refused because the server was busy."
    yield from _single("topics_throttled_total", "counter", words, snapshot.throttled)
    yield from _single("topics_pressure", "gauge", "Pressure on the server, from 0 to 1.", snapshot.pressure)
    workers = [(f'class="{_escape(row.name)}"', row) for row in snapshot.workers]
    name = "strandline_workers"
    active = ((label, row.active) for label, row in workers)
    yield from _series(f"{name}_active", "gauge", "Number of busy worker threads, by class of work.", active)
    waiting = ((label, row.waiting) for label, row in workers)
    yield from _series(f"{name}_waiting", "gauge", "Number of tasks that wait for a thread, by class.", waiting)
    refused_work = ((label, row.refused) for label, row in workers)
    words = "Requests refused because too many tasks waited for a thread, by class."
    yield from _series(f"{name}_refused_total", "counter", words, refused_work)
    unread, slow = snapshot.unread_bytes, snapshot.slow_readers
    yield from _single("strandline_unread_bytes", "gauge", "Bytes that clients have not read yet.", unread)
    yield from _single("strandline_slow_readers_total", "counter", "Clients disconnected for not reading.", slow)
    unfinished, refused = snapshot.unfinished_bytes, snapshot.refused_sockets
    name = "strandline_unfinished_message_bytes"
    yield from _single(name, "gauge", "Bytes of unfinished WebSocket messages.", unfinished)
    name = "strandline_refused_sockets_total"
    yield from _single(name, "counter", "WebSockets closed because of too many unfinished bytes.", refused)


def _topics(snapshot: Snapshot) -> Iterator[str]:
    rows = snapshot.topic_rows[:MAX_ROWS]
    labels = [f'topic="{_escape(row.topic)}"' for row in rows]
    for series, help, values in (
        ("head_seq", "Highest assigned seq per topic.", [row.head_seq for row in rows]),
        ("earliest_seq", "First live seq per topic.", [row.earliest_seq for row in rows]),
        ("evict_floor", "Retention removed all records before this seq, per topic.", [row.evict_floor for row in rows]),
        ("records_live", "Number of live records per topic.", [row.records for row in rows]),
        ("bytes_live", "Bytes of the live records per topic.", [row.size for row in rows]),
    ):
        yield from _series(f"topics_topic_{series}", "gauge", help, zip(labels, values, strict=True))
    yield from _queues([(label, row.queue) for label, row in zip(labels, rows, strict=True) if row.queue is not None])
    yield from _truncated("topic", snapshot.topic_rows)


def _queues(queues: list[tuple[str, QueueFigures]]) -> Iterator[str]:
    labels = [label for label, _ in queues]
    counters, rates = [row.counters for _, row in queues], [row.rates for _, row in queues]
    dead, dropped = [row.dead_lettered for row in counters], [row.dropped for row in counters]
    oldest = [(row.oldest_ready_ms or 0) / 1000 for _, row in queues]
    for series, kind, help, values in (
        ("ready", "gauge", "Number of jobs that can be claimed, per queue.", [row.ready for row in counters]),
        ("in_flight", "gauge", "Number of leased jobs, per queue.", [row.in_flight for row in counters]),
        ("delayed", "gauge", "Number of delayed jobs, per queue.", [row.delayed for row in counters]),
        ("oldest_ready_seconds", "gauge", "Age of the oldest ready job, since it became ready.", oldest),
        ("claimed_total", "counter", "Deliveries of jobs, per queue.", [row.claimed for row in rates]),
        ("completed_total", "counter", "Acknowledged jobs, per queue.", [row.completed for row in rates]),
        ("dead_lettered_total", "counter", "Jobs that became dead letters, per queue.", dead),
        ("dropped_total", "counter", "Jobs dropped after their last delivery failed, per queue.", dropped),
    ):
        yield from _series(f"topics_topic_queue_{series}", kind, help, zip(labels, values, strict=True))
    failed = (
        (f'{label},cause="{cause}"', count)
        for label, row in zip(labels, rates, strict=True)
        for cause, count in row.failed.items()
    )
    yield from _series("topics_topic_queue_failed_total", "counter", "Failed deliveries, per queue and cause.", failed)


def _others(snapshot: Snapshot) -> Iterator[str]:
    routers = [(f'router="{_escape(row.router)}"', row) for row in snapshot.router_rows[:MAX_ROWS]]
    lags = ((label, row.lag) for label, row in routers)
    yield from _series("topics_router_lag", "gauge", "Number of source records not forwarded yet, per router.", lags)
    forwarded = ((label, row.forwarded) for label, row in routers)
    yield from _series("topics_router_forwarded_total", "counter", "Records forwarded per router.", forwarded)
    yield from _truncated("router", snapshot.router_rows)
    consumers = (
        (f'topic="{_escape(row.topic)}",consumer="{_escape(row.consumer)}"', row.lag)
        for row in snapshot.consumer_rows[:MAX_ROWS]
    )
    yield from _series("topics_consumer_lag", "gauge", "Number of records after a consumer's position.", consumers)
    yield from _truncated("consumer", snapshot.consumer_rows)


def _background(snapshot: Snapshot) -> Iterator[str]:
    tasks = [(f'task="{_escape(task)}"', task) for task in sorted(snapshot.background)]
    failing = ((label, int(task in snapshot.failing)) for label, task in tasks)
    name = "strandline_background"
    yield from _series(f"{name}_failing", "gauge", "1 while the background task fails.", failing)
    failures = ((label, snapshot.background[task]) for label, task in tasks)
    yield from _series(f"{name}_failures_total", "counter", "Failures of the background task.", failures)


def _table_hooks(hooks: TableHooks) -> Iterator[str]:
    name = "strandline_table_hooks"
    yield from _single(f"{name}_calls", "gauge", "Number of calls of async hooks that wait or run.", hooks.calls)
    words = "Writes refused because too many calls of async hooks waited."
    yield from _single(f"{name}_refused_total", "counter", words, hooks.refused)
    failures = [
        (f'table="{_escape(table)}",hook="{_escape(hook)}"', count)
        for (table, hook), count in sorted(hooks.failures.items())
    ]
    yield from _series(f"{name}_failures_total", "counter", "Failed calls of async hooks.", failures)


def _retained(snapshot: Snapshot) -> Iterator[str]:
    lag, name = snapshot.retained, "strandline_retained"
    yield from _single(f"{name}_logs", "gauge", "Number of logs that keep records until the lake has them.", lag.logs)
    words = "Records beyond the retention of their log, kept until the lake has them."
    yield from _single(f"{name}_held_records", "gauge", words, lag.held_records)
    yield from _single(f"{name}_held_bytes", "gauge", "Bytes of these records.", lag.held_bytes)
    labels = [f'topic="{_escape(row.log)}"' for row in lag.rows]
    records = zip(labels, (row.lag_records for row in lag.rows), strict=True)
    words = "Records that are not in the lake, per log that keeps them until then; the logs that lag most."
    yield from _series(f"{name}_lag_records", "gauge", words, records)
    seconds = zip(labels, (row.lag_seconds for row in lag.rows), strict=True)
    yield from _series(f"{name}_lag_seconds", "gauge", "Age of the oldest of these records, per log.", seconds)


def _pipeline(snapshot: Snapshot) -> Iterator[str]:
    standing, name = snapshot.pipeline, "strandline_pipeline"
    states = [(f'state="{state}"', int(standing.state == state)) for state in STATES]
    yield from _series(f"{name}_state", "gauge", "1 for the current state of the pipeline, 0 for others.", states)
    words = "Number of records that are not in the lake yet."
    yield from _single(f"{name}_lag_records", "gauge", words, standing.new_records)
    words = "Number of erasures that are not applied to the lake yet."
    yield from _single(f"{name}_lag_erasures", "gauge", words, standing.new_erasures)
    yield from _single(f"{name}_starts_total", "counter", "Starts of the pipeline's process.", standing.starts)
    yield from _single(f"{name}_failures_total", "counter", "Failures of the pipeline's process.", standing.failures)
    status = standing.status
    if status is None:
        return
    yield from _single(f"{name}_rounds_total", "counter", "Rounds, including failed ones.", status.rounds_total)
    yield from _single(f"{name}_problems_total", "counter", "Problems that rounds reported.", status.problems_total)
    records = [(f'stage="{_escape(stage)}"', count) for stage, count in sorted(status.records_total.items())]
    yield from _series(f"{name}_records_total", "counter", "Processed records by stage.", records)
    last = status.last_good_round
    if last is not None:
        age = max(0, snapshot.time - last.end) / 1000
        yield from _single(f"{name}_last_round_age_seconds", "gauge", "Seconds since the last successful round.", age)


def _truncated(what: str, rows: Sequence[object]) -> Iterator[str]:
    help = f"1 if there are more than {MAX_ROWS} {what}s and only the first {MAX_ROWS} have series."
    yield from _single(f"topics_{what}_metrics_truncated", "gauge", help, int(len(rows) > MAX_ROWS))


def _head(name: str, type: str, help: str) -> tuple[str, str]:
    return f"# HELP {name} {help}", f"# TYPE {name} {type}"


def _single(name: str, type: str, help: str, value: float) -> tuple[str, str, str]:
    return *_head(name, type, help), f"{name} {_number(value)}"


def _series(name: str, type: str, help: str, values: Iterable[tuple[str, float]]) -> Iterator[str]:
    yield from _head(name, type, help)
    for labels, value in values:
        yield f"{name}{{{labels}}} {_number(value)}"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def _escape(text: str) -> str:
    if "\\" in text or '"' in text or "\n" in text:
        return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return text


# --- JSON ------------------------------------------------------------------------------------------------------


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
        "requests": [
            {"route": route, "status": status, "count": count} for route, status, count in _requests(snapshot)
        ],
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
    return msgspec.json.encode(document)


def _requests(snapshot: Snapshot) -> Iterator[tuple[str, int, int]]:
    for (route, status), count in sorted(snapshot.requests.items()):
        yield route, status, count
