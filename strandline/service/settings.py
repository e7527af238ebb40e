"""The settings that apply to all logs and connections, in every protocol."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from strandline.engine.record import MAX_BATCH_BYTES
from strandline.setting import Cap, Count, Positive, Section

BatchBytes = Annotated[int, Meta(ge=1, le=MAX_BATCH_BYTES, description=f"a whole number from 1 to {MAX_BATCH_BYTES}")]
BatchRecords = Annotated[int, Meta(ge=1, le=1_000_000, description="a whole number from 1 to 1000000")]
Heartbeat = Annotated[int, Meta(ge=1, le=1000, description="a whole number of milliseconds from 1 to 1000")]
Latency = Annotated[float, Meta(gt=0, le=60_000, description="a number of milliseconds, over 0 and up to 60000")]


class LimitSettings(Section, frozen=True, kw_only=True):
    """Limits on the resources that all clients together, or the clients of one API key, can use."""

    max_body_bytes: Annotated[BatchBytes, "Maximum size of a request's body, before and after decompression."] = (
        64 << 20
    )
    max_body_values: Annotated[
        Cap,
        "Maximum number of values in a JSON body, at any depth. The values inside records do not count; "
        "`topics.max_batch_records` and `streams.max_append_records` limit the number of records.",
    ] = 1_000_000
    max_message_bytes: Annotated[
        BatchBytes,
        "Maximum size of a WebSocket message, in one frame or in several. A larger message closes the connection with "
        "1009. Never more than `max_body_bytes`.",
    ] = 16 << 20
    max_unfinished_bytes: Annotated[
        Cap,
        "Maximum bytes of WebSocket messages that are incomplete or not processed yet, for all connections together. "
        "Beyond it, the connections that hold the most are closed with 1013.",
    ] = 64 << 20
    max_unread_bytes: Annotated[
        Cap,
        "Maximum bytes of answers and events that clients have not read yet, for all connections together. Beyond it, "
        "the clients that have held the most for the longest are disconnected.",
    ] = 256 << 20
    max_logs: Annotated[
        Cap, "Maximum number of logs: topics, streams, documents of collections and logs of tables together."
    ] = 100_000
    max_total_bytes: Annotated[Cap, "Maximum bytes of the live records of all logs together."] = 0
    max_routers: Annotated[Cap, "Maximum number of routers."] = 10_000
    max_watch_sessions: Annotated[Cap, "Maximum number of watch sessions."] = 10_000
    max_sse_connections: Annotated[Cap, "Maximum number of open event streams, WebSockets and streams of records."] = (
        10_000
    )
    max_sse_connections_per_key: Annotated[
        Cap, "Maximum number of open event streams, WebSockets and streams of records per API key."
    ] = 1000
    max_inflight_per_key: Annotated[Cap, "Maximum number of requests in progress per API key."] = 1000
    max_connections: Annotated[
        Count,
        "Maximum number of open connections; further ones get 503 and are closed. The highest value, which 0 selects, "
        "is the limit of open files less 256 (or a quarter of the limit, if that is less) for the journal and other "
        "files.",
    ] = 0


class DeliverySettings(Section, frozen=True, kw_only=True):
    """Delivery of records to waiting clients."""

    session_ttl_ms: Annotated[Positive, "How long a watch session without an open stream is kept."] = 300_000
    min_heartbeat_ms: Annotated[
        Heartbeat, "Shortest heartbeat interval that a client can ask for. Tests lower it; it cannot be raised."
    ] = 1_000
    slow_consumer_grace_ms: Annotated[
        Count, "How long a client that reads nothing still gets each event separately; later events are combined."
    ] = 5_000
    slow_consumer_timeout_ms: Annotated[Positive, "How long a client may read nothing before it is disconnected."] = (
        30_000
    )
    target_latency_ms: Annotated[
        Latency, "Delay of the event loop above which the server is under pressure; ten times as much is full pressure."
    ] = 5.0
