"""The settings of the streams protocol."""

from __future__ import annotations

from typing import Annotated

from strandline.service.settings import BatchBytes, BatchRecords
from strandline.setting import Count, Durability, Flag, Milliseconds, Positive, Seconds, Section, Text


class StreamsSettings(Section, frozen=True, kw_only=True):
    """The durability of new streams, and what one request may contain, ask for and take."""

    stream_durability: Annotated[
        Durability,
        "Durability of new streams: what an acknowledged append survives (ephemeral, memory, disk, fsync, replicated).",
    ] = "fsync"
    max_append_bytes: Annotated[
        BatchBytes,
        "Maximum size of the body of one append, which can be one record. It cannot be more than `max_body_bytes` and "
        "`unsealed_bytes`.",
    ] = 10 << 20
    # An append is made in one step, at about a microsecond per record, and other requests wait meanwhile.
    max_append_records: Annotated[
        BatchRecords, "Maximum number of records in one append: elements of its JSON array."
    ] = 50_000
    read_max_records: Annotated[
        Positive, "Maximum number of records in one page: of a live read, a filtered one, or one of the latest records."
    ] = 1000
    read_max_bytes: Annotated[Positive, "Maximum payload of one page; a single larger record is still returned."] = (
        1 << 20
    )
    catch_up_max_bytes: Annotated[
        Positive, "Maximum payload, approximately, of the answer to a read without `live`; at least a page is returned."
    ] = 64 << 20
    # The published client for JavaScript passes all elements of an array to one call. Safari takes 65,536, Chrome and
    # Node about 120,000.
    catch_up_max_records: Annotated[
        Positive, "Maximum number of records in the JSON array of such an answer; at least a page is returned."
    ] = 50_000
    filter_scan_bytes: Annotated[Positive, "Maximum payload that one filtered read looks at."] = 100 << 20
    long_poll_ms: Annotated[Milliseconds, "How long a long-poll waits if the request does not say."] = 3_000
    request_timeout_ms: Annotated[Milliseconds, "Maximum time that a request can ask for."] = 5_000
    append_timeout_ms: Annotated[
        Milliseconds, "How long an append waits for its durability before it is answered without its outcome."
    ] = 3_000
    search_timeout_ms: Annotated[Milliseconds, "Maximum time of a search."] = 3_000
    search_memory_bytes: Annotated[Positive, "Maximum memory of the indexes for searches."] = 1 << 30
    max_waiting_appends: Annotated[Positive, "Maximum number of appends that wait for a flush."] = 50_000
    max_waiting_bytes: Annotated[Positive, "Maximum bytes of appends that wait for a flush."] = 64 << 20
    sse_rotate_seconds: Annotated[
        Seconds, "How long an event stream stays open; then the server ends it and the client reconnects."
    ] = 60.0
    metrics_flush_ms: Annotated[
        Count, "How often the server records its own metrics in a stream, if they changed; 0: never."
    ] = 10_000
    otlp_traces_stream: Annotated[
        Text, "Stream for traces that arrive by OTLP without the name of a stream; empty: such traces are refused."
    ] = ""
    otlp_logs_stream: Annotated[
        Text, "Stream for logs that arrive by OTLP without the name of a stream; empty: such logs are refused."
    ] = ""
    otlp_metrics_stream: Annotated[
        Text, "Stream for metrics that arrive by OTLP without the name of a stream; empty: such metrics are refused."
    ] = ""
    otlp_auto_create: Annotated[
        Flag,
        "Create the streams `otlp_traces_stream`, `otlp_logs_stream` and `otlp_metrics_stream` if they do not exist.",
    ] = False
    webhook_allow_loopback: Annotated[
        Flag,
        "Allow webhooks to this machine, with or without TLS. Anyone who may create a subscription can then reach "
        "services of this machine that trust every local connection.",
    ] = False
    webhook_allow_private: Annotated[
        Flag,
        "Allow webhooks to this machine and to private networks, with or without TLS. Anyone who may create a "
        "subscription can then reach services there that trust every connection.",
    ] = False
