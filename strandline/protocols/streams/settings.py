"""The bounds and defaults of the protocol that an operator may move."""

from __future__ import annotations

import msgspec

from strandline.engine.record import Durability


class StreamsSettings(msgspec.Struct, frozen=True, kw_only=True):
    #: What an acknowledgement of an append to a new stream is worth; see the durability classes of the engine.
    stream_durability: Durability = "fsync"
    #: The body of one append.
    max_append_bytes: int = 10 << 20
    #: The records of one append. An append is made in one go, in about a microsecond per record, and nobody else is
    #: served meanwhile.
    max_append_records: int = 50_000
    #: Records and bytes of one page.
    read_max_records: int = 1000
    read_max_bytes: int = 1 << 20
    #: How much payload one filtered read looks at.
    filter_scan_bytes: int = 100 << 20
    #: How long a long-poll waits unless it says otherwise.
    long_poll_ms: int = 3_000
    #: No request takes longer than this.
    request_timeout_ms: int = 5_000
    #: An append that is not durable after this time is answered without its outcome.
    append_timeout_ms: int = 3_000
    #: No search takes longer than this.
    search_timeout_ms: int = 3_000
    #: What the indexes that searches work on may take of the memory.
    search_memory_bytes: int = 1 << 30
    #: Appends, and their bytes, that wait for the disk before further ones are sent away.
    max_waiting_appends: int = 50_000
    max_waiting_bytes: int = 64 << 20
    #: An event stream is ended after this time, for its client to connect anew.
    sse_rotate_seconds: float = 60.0
    #: Streams, and logs of any other kind, there can be; 0: any number.
    max_streams: int = 0
    #: How often the server writes down its own metrics; 0: never.
    metrics_flush_ms: int = 10_000
    #: Where traces go that come in without a stream; empty: they are refused.
    otlp_traces_stream: str = ""
    otlp_auto_create: bool = False
    #: Whether webhooks may go to this machine.
    webhook_allow_loopback: bool = False
    #: Whether webhooks may go to this machine and to private networks.
    webhook_allow_private: bool = False
