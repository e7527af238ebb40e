"""The answers of the server's own routes, from which the OpenAPI document is generated."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from strandline.server.pipeline.supervisor import State

Number = Annotated[int, Meta(ge=0)]
Share = Annotated[float, Meta(ge=0, le=1)]
Condition = Literal["ok", "degraded", "read_only"]
#: What a server with a replica does; empty: it has none.
Role = Literal["", "leader", "standby", "follower", "replaced"]


class FailingTask(msgspec.Struct):
    """A background task that fails and is retried."""

    task: str
    #: The time of the first failure, in milliseconds since 1970.
    since: Number
    #: The number of consecutive failures.
    failures: Number
    #: The last error; the server's log has the details.
    error: str


class HealthState(msgspec.Struct, omit_defaults=True):
    #: `read_only`: the journal failed; `reason` says why. `degraded`: background tasks fail; see `failing`.
    status: Condition
    version: str
    uptime_ms: Number
    reason: str = ""
    #: Only with a replica: whether this server is the leader, stands by, follows, or was replaced by another one.
    role: Role = ""
    #: While the server stands by, and when it was replaced: the address of the leader, if it is known.
    leader: str = ""
    failing: list[FailingTask] = []


class Alive(msgspec.Struct, omit_defaults=True):
    ok: bool
    #: The time of the server, in milliseconds.
    ts: Number
    status: Condition = "ok"


class SeriesCount(msgspec.Struct):
    uptime_ms: Number
    #: The number of series in the stream `__stream_metrics__`.
    series: Number


class ReadyState(msgspec.Struct, omit_defaults=True):
    status: str
    wal_replay_complete: bool
    topics: Number
    #: Background tasks that fail. The server still answers requests.
    failing: list[FailingTask] = []
    #: What needs attention although nothing fails.
    warnings: list[str] = []


class JournalFigures(msgspec.Struct):
    fsyncs: Number
    frames: Number
    batches: Number
    bytes_written: Number
    rotations: Number
    queue_depth: Number
    queue_depth_peak: Number
    submit_full_total: Number
    read_only: bool
    fsync_count: Number
    fsync_micros_total: Number


class SealingFigures(msgspec.Struct):
    #: The bytes of records that are not sealed yet, and their limit.
    unsealed_bytes: Number
    budget_bytes: Number
    rounds_total: Number
    #: The bytes that the last round sealed.
    round_bytes: Number
    #: The number of writes that were delayed, and that were refused, because too many bytes were not sealed.
    writes_slowed_total: Number
    writes_refused_total: Number


class IndexingFigures(msgspec.Struct):
    #: The number of logs whose index files are incomplete or are being merged.
    waiting_logs: Number
    #: The number of records that were indexed in the background.
    records_total: Number
    file_bytes: Number
    #: The number of index files that were found damaged and are built again.
    damaged_files_total: Number


class BackgroundTask(msgspec.Struct):
    task: str
    failing: bool
    failures_total: Number


class RequestCount(msgspec.Struct):
    route: str
    status: int
    count: Number


class RouterLag(msgspec.Struct):
    router: str
    lag: Number
    forwarded: Number


class ConsumerLag(msgspec.Struct):
    topic: str
    consumer: str
    lag: Number


class PipelineFigures(msgspec.Struct):
    state: State
    #: Records and erasures that are not in the lake.
    lag_records: Number
    lag_erasures: Number
    starts: Number
    failures: Number
    #: The logs that keep records until the lake has them: their number, the records that are not in the lake, the age
    #: of the oldest of these, and what they hold beyond their retention.
    retaining_logs: Number
    retained_lag_records: Number
    retained_lag_seconds: Annotated[float, Meta(ge=0)]
    held_records: Number
    held_bytes: Number


class ReplicaFigures(msgspec.Struct):
    """The replica of the server. Counters start at 0 when the process starts."""

    #: Each start of a server that writes to the replica begins the next term.
    term: Number
    #: The number of the last chunk.
    chunk: Number
    #: The bytes of the journal that the replica lacks, and the age of the oldest in `lag_ms`.
    waiting_bytes: Number
    #: The records in these bytes that would be lost with the machine: those of logs with a durability below
    #: `replicated`. Estimated from the bytes while a part of them has been uploaded.
    waiting_records: Number
    #: The changes that wait for the replica, and the age of the oldest in `waiting_ms`.
    waiting_commits: Number
    waiting_ms: Annotated[float, Meta(ge=0)]
    lag_ms: Annotated[float, Meta(ge=0)]
    chunks_total: Number
    chunk_bytes_total: Number
    #: Segments and checkpoints that were stored.
    objects_total: Number
    object_bytes_total: Number
    #: The segments that are in the replica and not yet in the data directory, after a takeover.
    missing_segments: Number
    #: Whether the replica cannot be reached, so that the server refuses writes to `replicated` logs.
    away: bool
    #: Whether another server has taken over, so that this one refuses writes.
    superseded: bool


class FollowerFigures(msgspec.Struct):
    """A server that follows another one. Counters start at 0 when the process starts."""

    #: The term of the leader, and the last chunk that was read.
    term: Number
    chunk: Number
    #: The server has everything that was in the replica this long ago.
    lag_ms: Annotated[float, Meta(ge=0)]
    #: The bytes of the journal that were applied.
    applied_bytes_total: Number
    #: The rounds of the leader's housekeeping that were adopted, and how often all logs were loaded again.
    states_total: Number
    reloads_total: Number


class MetricsState(msgspec.Struct, omit_defaults=True):
    """The metrics of the server. Counters start at 0 when the process starts."""

    topics: Number
    topics_ephemeral: Number
    topics_memory: Number
    topics_disk: Number
    topics_fsync: Number
    topics_replicated: Number
    routers: Number
    records_live: Number
    bytes_live: Number
    queue_topics: Number
    queue_leases_in_flight: Number
    sse_connections: Number
    watch_sessions: Number
    ready: bool
    replay_progress: Share
    uptime_ms: Number
    wal: JournalFigures
    sealing: SealingFigures
    indexing: IndexingFigures
    damaged_files: Number
    pressure: Share
    throttled_total: Number
    requests: list[RequestCount]
    router_lag: list[RouterLag]
    consumer_lag: list[ConsumerLag]
    background: list[BackgroundTask]
    pipeline: PipelineFigures
    #: Only with a replica.
    replica: ReplicaFigures | None = None
    #: Only if the server follows another one.
    follower: FollowerFigures | None = None
