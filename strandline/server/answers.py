"""The answers of the server's own routes."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from strandline.server.pipeline.supervisor import State

Number = Annotated[int, Meta(ge=0)]
Share = Annotated[float, Meta(ge=0, le=1)]
Condition = Literal["ok", "degraded", "read_only"]


class FailingTask(msgspec.Struct):
    """A background task that fails and is tried again."""

    task: str
    #: When it began to fail, in milliseconds since 1970.
    since: Number
    #: The failures in a row.
    failures: Number
    #: The last error; the server's log has the details.
    error: str


class Health(msgspec.Struct, omit_defaults=True):
    #: `read_only`: the journal failed, `reason` says why. `degraded`: background tasks fail, see `failing`.
    status: Condition
    version: str
    uptime_ms: Number
    reason: str = ""
    failing: list[FailingTask] = []


class Alive(msgspec.Struct, omit_defaults=True):
    ok: bool
    #: The time of the server, in milliseconds.
    ts: Number
    status: Condition = "ok"


class SeriesCount(msgspec.Struct):
    uptime_ms: Number
    #: The number of series in the server's own metrics stream.
    series: Number


class Ready(msgspec.Struct, omit_defaults=True):
    status: str
    wal_replay_complete: bool
    topics: Number
    #: Background tasks that fail. The server still answers requests.
    failing: list[FailingTask] = []


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
    #: Bytes of records that are not sealed yet, and the limit for them.
    unsealed_bytes: Number
    budget_bytes: Number
    rounds_total: Number
    #: The number of bytes that the last round sealed.
    round_bytes: Number
    #: Writes that waited, and writes that were refused, because of too many unsealed bytes.
    writes_slowed_total: Number
    writes_refused_total: Number


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


class Metrics(msgspec.Struct):
    """The figures of one moment. Counters count from the start of the process."""

    topics: Number
    topics_ephemeral: Number
    topics_memory: Number
    topics_disk: Number
    topics_fsync: Number
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
    damaged_files: Number
    pressure: Share
    throttled_total: Number
    requests: list[RequestCount]
    router_lag: list[RouterLag]
    consumer_lag: list[ConsumerLag]
    background: list[BackgroundTask]
    pipeline: PipelineFigures
