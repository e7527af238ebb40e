"""The metrics of ``/v0/metrics``: a snapshot of the server's numbers, rendered as Prometheus text or as JSON.

The series are rendered here instead of by prometheus-client, because integers must stay integers ("500", not "500.0"),
in values and in the bounds of the histogram. The metrics of the process itself come from that library.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import NamedTuple

import msgspec
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

from strandline.delivery.queues import QueueCounters
from strandline.engine.stats import FLUSH_BOUNDS, Histogram, Stats
from strandline.server.pipeline.supervisor import STATES, Standing

#: The media type of the text format.
TEXT_TYPE = b"text/plain; version=0.0.4"

#: How many topics, routers and consumers get their own series: a scrape must stay small with a million of them. The
#: snapshot holds one more than that if there are more.
MAX_ROWS = 1000

CLASSES = ("ephemeral", "memory", "disk", "fsync")


class TopicRow(NamedTuple):
    """``queue`` is None unless the topic is a queue."""

    topic: str
    head_seq: int
    earliest_seq: int
    evict_floor: int
    records: int
    size: int
    queue: QueueCounters | None = None


class RouterRow(NamedTuple):
    router: str
    lag: int
    forwarded: int


class ConsumerRow(NamedTuple):
    topic: str
    consumer: str
    lag: int


class Wal(msgspec.Struct, frozen=True, kw_only=True):
    """The journal. Changes that wait for a flush are its queue; changes that are flushed together are a batch.

    The queue has no limit, so no change is ever refused because of it.
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
    """How sealing keeps up with writes."""

    unsealed_bytes: int = 0
    budget_bytes: int = 0
    rounds: int = 0
    #: The bytes of the journal that the last round sealed.
    round_bytes: int = 0
    #: Writes that waited, and changes that were refused, because of too many unsealed bytes.
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


class WorkerRow(NamedTuple):
    """A class of work on threads: how much runs, how much waits, and how many requests were refused."""

    name: str
    active: int
    waiting: int
    refused: int


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of one moment. Counters count from the start of the process."""

    ready: bool
    replay_progress: float
    uptime_ms: int
    #: Topics by durability.
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
    #: Segments that a read found damaged or missing.
    damaged_files: int = 0
    #: From 0 to 1.
    pressure: float = 0.0
    workers: Sequence[WorkerRow] = ()
    #: Requests that were refused because the server was busy.
    throttled: int = 0
    #: Bytes that clients have not read yet, and how many clients were disconnected because they did not read.
    unread_bytes: int = 0
    slow_readers: int = 0
    #: Bytes of unfinished messages on WebSockets, and how many sockets were closed because of them.
    unfinished_bytes: int = 0
    refused_sockets: int = 0
    #: Answers by route and status.
    requests: Mapping[tuple[str, int], int] = {}
    topic_rows: Sequence[TopicRow] = ()
    router_rows: Sequence[RouterRow] = ()
    consumer_rows: Sequence[ConsumerRow] = ()
    #: Failures of background tasks since the start, and the tasks that fail now.
    background: Mapping[str, int] = {}
    failing: frozenset[str] = frozenset()
    pipeline: Standing = Standing()
    #: The time in milliseconds since 1970.
    time: int = 0


# --- Prometheus ------------------------------------------------------------------------------------------------


def render_text(snapshot: Snapshot) -> bytes:
    lines: list[str] = []
    parts = (
        _totals(snapshot),
        _wal(snapshot.wal),
        _sealing(snapshot.sealing),
        _damage(snapshot),
        _load(snapshot),
        _topics(snapshot),
        _others(snapshot),
    )
    for part in (*parts, _background(snapshot), _pipeline(snapshot)):
        lines.extend(part)
    lines.append("")
    return "\n".join(lines).encode()


def process_text() -> bytes:
    """Memory, processor time and open files of this process, as lines of the text format."""
    return generate_latest(_PROCESS)


_PROCESS = CollectorRegistry()
ProcessCollector(registry=_PROCESS)


def _totals(snapshot: Snapshot) -> Iterator[str]:
    by_class = [(f'class="{name}"', snapshot.topics.get(name, 0)) for name in CLASSES]
    yield from _single("topics_topics", "gauge", "Topics.", sum(snapshot.topics.values()))
    yield from _series("topics_topics_by_class", "gauge", "Topics by durability class.", by_class)
    yield from _single("topics_routers", "gauge", "Routers.", snapshot.routers)
    yield from _single("topics_records_live", "gauge", "Live records of all topics.", snapshot.records)
    yield from _single("topics_bytes_live", "gauge", "Bytes of the live records of all topics.", snapshot.size)
    yield from _single("topics_queue_topics", "gauge", "Topics that are queues.", snapshot.queues)
    yield from _single("topics_queue_leases_in_flight", "gauge", "Jobs held by workers.", snapshot.leases_in_flight)
    yield from _single("topics_sse_connections", "gauge", "Open event streams and WebSockets.", snapshot.streams)
    yield from _single("strandline_connections", "gauge", "Open connections.", snapshot.connections)
    yield from _single(
        "strandline_connections_limit", "gauge", "Connections that may be open.", snapshot.max_connections
    )
    yield from _single(
        "strandline_connections_refused_total",
        "counter",
        "Connections refused because too many were open.",
        snapshot.connections_refused,
    )
    yield from _single("topics_watch_sessions", "gauge", "Watch sessions.", snapshot.watch_sessions)
    yield from _single("topics_ready", "gauge", "1 once the journal is replayed.", int(snapshot.ready))
    yield from _single("topics_recovery_progress", "gauge", "Replayed share of the journal.", snapshot.replay_progress)
    yield from _single("topics_uptime_ms", "gauge", "Milliseconds since the start.", snapshot.uptime_ms)


def _damage(snapshot: Snapshot) -> Iterator[str]:
    words = "Segments that a read found damaged or missing since the start."
    yield from _single("topics_damaged_files", "gauge", words, snapshot.damaged_files)


def _wal(wal: Wal) -> Iterator[str]:
    yield from _single("topics_wal_frames_total", "counter", "Frames written to the journal.", wal.frames)
    yield from _single("topics_wal_batches_total", "counter", "Groups of frames flushed together.", wal.fsyncs)
    yield from _single("topics_wal_fsyncs_total", "counter", "Flushes of the journal.", wal.fsyncs)
    yield from _single("topics_wal_bytes_written_total", "counter", "Bytes written to the journal.", wal.bytes_written)
    yield from _single("topics_wal_rotations_total", "counter", "Journal files begun.", wal.rotations)
    yield from _single("topics_wal_queue_depth", "gauge", "Changes that wait for a flush.", wal.queue_depth)
    yield from _single("topics_wal_queue_depth_peak", "gauge", "Highest queue depth so far.", wal.queue_depth_peak)
    yield from _single("topics_wal_submit_full_total", "counter", "Always 0: the queue has no limit.", 0)
    yield from _single("topics_wal_read_only", "gauge", "1 after the journal has failed.", int(wal.read_only))
    name = "topics_wal_fsync_latency_us"
    yield from _head(name, "histogram", "How long flushes took, in microseconds.")
    for bound, count in zip(wal.fsync_us.bounds, wal.fsync_us.counts, strict=True):
        yield f'{name}_bucket{{le="{"+Inf" if bound == inf else _number(bound)}"}} {count}'
    yield f"{name}_sum {round(wal.fsync_us.sum)}"
    yield f"{name}_count {wal.fsync_us.count}"


def _sealing(sealing: Sealing) -> Iterator[str]:
    name = "strandline_unsealed"
    yield from _single(f"{name}_bytes", "gauge", "Bytes that are not sealed yet.", sealing.unsealed_bytes)
    yield from _single(f"{name}_budget_bytes", "gauge", "The limit for unsealed bytes.", sealing.budget_bytes)
    name = "strandline_sealing"
    yield from _single(f"{name}_rounds_total", "counter", "Rounds of sealing.", sealing.rounds)
    yield from _single(f"{name}_round_bytes", "gauge", "Bytes that the last round sealed.", sealing.round_bytes)
    name = "strandline_writes"
    words = "because of too many unsealed bytes."
    yield from _single(f"{name}_slowed_total", "counter", f"Writes that waited {words}", sealing.slowed)
    yield from _single(f"{name}_refused_total", "counter", f"Writes that were refused {words}", sealing.refused)


def _load(snapshot: Snapshot) -> Iterator[str]:
    answers = [(f'route="{_escape(route)}",status="{status}"', count) for route, status, count in _requests(snapshot)]
    yield from _series("topics_requests_total", "counter", "Answers by route and status.", answers)
    yield from _single("topics_throttled_total", "counter", "Requests refused as too many.", snapshot.throttled)
    yield from _single("topics_pressure", "gauge", "How busy the server is, 0 to 1.", snapshot.pressure)
    workers = [(f'class="{_escape(row.name)}"', row) for row in snapshot.workers]
    name = "strandline_workers"
    active = ((label, row.active) for label, row in workers)
    yield from _series(f"{name}_active", "gauge", "Worker threads in use, by class of work.", active)
    waiting = ((label, row.waiting) for label, row in workers)
    yield from _series(f"{name}_waiting", "gauge", "Work that waits for a thread, by class.", waiting)
    refused_work = ((label, row.refused) for label, row in workers)
    words = "Requests refused because too much work waited, by class."
    yield from _series(f"{name}_refused_total", "counter", words, refused_work)
    unread, slow = snapshot.unread_bytes, snapshot.slow_readers
    yield from _single("strandline_unread_bytes", "gauge", "Bytes that slow clients have not read yet.", unread)
    yield from _single("strandline_slow_readers_total", "counter", "Clients disconnected for not reading.", slow)
    unfinished, refused = snapshot.unfinished_bytes, snapshot.refused_sockets
    name = "strandline_unfinished_message_bytes"
    yield from _single(name, "gauge", "Bytes of unfinished messages on WebSockets.", unfinished)
    name = "strandline_refused_sockets_total"
    yield from _single(name, "counter", "WebSockets closed because of too many unfinished bytes.", refused)


def _topics(snapshot: Snapshot) -> Iterator[str]:
    rows = snapshot.topic_rows[:MAX_ROWS]
    labels = [f'topic="{_escape(row.topic)}"' for row in rows]
    for series, help, values in (
        ("head_seq", "Highest assigned seq per topic.", [row.head_seq for row in rows]),
        ("earliest_seq", "First live seq per topic.", [row.earliest_seq for row in rows]),
        ("evict_floor", "Seqs below it were lost to retention, per topic.", [row.evict_floor for row in rows]),
        ("records_live", "Live records per topic.", [row.records for row in rows]),
        ("bytes_live", "Bytes of the live records per topic.", [row.size for row in rows]),
    ):
        yield from _series(f"topics_topic_{series}", "gauge", help, zip(labels, values, strict=True))
    queues = [(label, row.queue) for label, row in zip(labels, rows, strict=True) if row.queue is not None]
    for series, kind, help, values in (
        ("ready", "gauge", "Jobs that can be claimed, per queue.", [queue.ready for _, queue in queues]),
        ("in_flight", "gauge", "Jobs held by workers, per queue.", [queue.in_flight for _, queue in queues]),
        ("delayed", "gauge", "Jobs that are not due yet, per queue.", [queue.delayed for _, queue in queues]),
        (
            "dead_lettered_total",
            "counter",
            "Jobs that became dead letters, per queue.",
            [queue.dead_lettered for _, queue in queues],
        ),
    ):
        labelled = zip((label for label, _ in queues), values, strict=True)
        yield from _series(f"topics_topic_queue_{series}", kind, help, labelled)
    yield from _truncated("topic", snapshot.topic_rows)


def _others(snapshot: Snapshot) -> Iterator[str]:
    routers = [(f'router="{_escape(row.router)}"', row) for row in snapshot.router_rows[:MAX_ROWS]]
    lags = ((label, row.lag) for label, row in routers)
    yield from _series("topics_router_lag", "gauge", "Records of the source not forwarded yet.", lags)
    forwarded = ((label, row.forwarded) for label, row in routers)
    yield from _series("topics_router_forwarded_total", "counter", "Records forwarded per router.", forwarded)
    yield from _truncated("router", snapshot.router_rows)
    consumers = (
        (f'topic="{_escape(row.topic)}",consumer="{_escape(row.consumer)}"', row.lag)
        for row in snapshot.consumer_rows[:MAX_ROWS]
    )
    yield from _series("topics_consumer_lag", "gauge", "Records after the position of a consumer.", consumers)
    yield from _truncated("consumer", snapshot.consumer_rows)


def _background(snapshot: Snapshot) -> Iterator[str]:
    tasks = [(f'task="{_escape(task)}"', task) for task in sorted(snapshot.background)]
    failing = ((label, int(task in snapshot.failing)) for label, task in tasks)
    name = "strandline_background"
    yield from _series(f"{name}_failing", "gauge", "1 while a background task fails.", failing)
    failures = ((label, snapshot.background[task]) for label, task in tasks)
    yield from _series(f"{name}_failures_total", "counter", "Failures of background tasks.", failures)


def _pipeline(snapshot: Snapshot) -> Iterator[str]:
    standing, name = snapshot.pipeline, "strandline_pipeline"
    states = [(f'state="{state}"', int(standing.state == state)) for state in STATES]
    yield from _series(f"{name}_state", "gauge", "1 for the current state of the pipeline.", states)
    yield from _single(f"{name}_lag_records", "gauge", "Records that are not in the lake.", standing.new_records)
    yield from _single(f"{name}_lag_erasures", "gauge", "Erasures not applied yet.", standing.new_erasures)
    yield from _single(f"{name}_starts_total", "counter", "Starts of the process.", standing.starts)
    yield from _single(f"{name}_failures_total", "counter", "Failures of the process.", standing.failures)
    status = standing.status
    if status is None:
        return
    yield from _single(f"{name}_rounds_total", "counter", "Rounds, failed or not.", status.rounds_total)
    yield from _single(f"{name}_problems_total", "counter", "Problems so far.", status.problems_total)
    records = [(f'stage="{_escape(stage)}"', count) for stage, count in sorted(status.records_total.items())]
    yield from _series(f"{name}_records_total", "counter", "Records by stage.", records)
    last = status.last_good_round
    if last is not None:
        age = max(0, snapshot.time - last.end) / 1000
        yield from _single(f"{name}_last_round_age_seconds", "gauge", "Time since the last successful round.", age)


def _truncated(what: str, rows: Sequence[object]) -> Iterator[str]:
    help = f"1 if there are more than {MAX_ROWS}, and only the first are shown."
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
        },
    }
    return msgspec.json.encode(document)


def _requests(snapshot: Snapshot) -> Iterator[tuple[str, int, int]]:
    for (route, status), count in sorted(snapshot.requests.items()):
        yield route, status, count
