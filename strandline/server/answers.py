"""What the answers of the server's own routes look like, for the OpenAPI document."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from strandline.server.pipeline.keeping import State

Number = Annotated[int, Meta(ge=0)]
Share = Annotated[float, Meta(ge=0, le=1)]


class Health(msgspec.Struct):
    status: str
    version: str
    uptime_ms: Number


class Alive(msgspec.Struct):
    ok: bool
    #: The time of the server, in milliseconds.
    ts: Number


class SeriesCount(msgspec.Struct):
    uptime_ms: Number
    #: How many series the server's metrics of itself have.
    series: Number


class Ready(msgspec.Struct):
    status: str
    wal_replay_complete: bool
    topics: Number


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
    pressure: Share
    throttled_total: Number
    requests: list[RequestCount]
    router_lag: list[RouterLag]
    consumer_lag: list[ConsumerLag]
    pipeline: PipelineFigures
