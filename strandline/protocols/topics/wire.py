"""What the answers of the protocol look like. The handlers write them as bytes; these types describe them to others.

A field that has UNSET as its default is left out where there is nothing to say.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType, field

from strandline.protocols.topics.routers import Guarantee
from strandline.service.log_config import Kind

Number = Annotated[int, Meta(ge=0)]
Milliseconds = Annotated[float, Meta(ge=0)]

# --- how long it took ----------------------------------------------------------------------------------------------


class Performance(msgspec.Struct):
    """How long the server took, in milliseconds."""

    server_total_ms: Milliseconds


class ClaimPerformance(Performance):
    throttle_wait_ms: Milliseconds


class DiffPerformance(Performance):
    records_scanned: Number
    throttle_wait_ms: Milliseconds


class WritePerformance(Performance):
    wal_append_ms: Milliseconds
    fsync_ms: Milliseconds
    throttle_wait_ms: Milliseconds


class AckPerformance(Performance):
    fsync_ms: Milliseconds | UnsetType = UNSET


class Timed(msgspec.Struct, kw_only=True):
    performance: Performance


# --- topics --------------------------------------------------------------------------------------------------------


class ConfigShown(msgspec.Struct):
    """The whole configuration, with what was left to its default."""

    type: Kind
    ttl_ms: Number
    cap_records: Number
    cap_bytes: Number
    discard: Literal["old", "reject"]
    compact: bool
    durable: bool
    durability: Literal["ephemeral", "memory", "disk", "fsync"]
    priority: int | None
    auto_priority: bool
    auto_create: bool
    idempotency_window_ms: Number
    dedupe_node: bool
    lease_ms: Number
    claim_jitter_ms: Number
    max_deliveries: Number
    dead_letter: str | None
    leases_durable: bool


class TopicPut(Timed):
    topic: str
    created: bool
    config: ConfigShown


class QueueCounters(msgspec.Struct):
    ready: Number
    in_flight: Number
    delayed: Number
    dead_lettered: Number


class ConsumerState(msgspec.Struct):
    seq: Number
    lag: Number
    committed_ts: Number


class TopicState(Timed):
    topic: str
    type: Kind
    head_seq: Number
    earliest_seq: Number
    next_seq: Number
    count: Number
    bytes: Number
    config: ConfigShown
    effective_priority: int
    last_write_ts: Number | None
    last_read_ts: Number | None
    queue: QueueCounters | UnsetType = UNSET
    consumers: dict[str, ConsumerState] | UnsetType = UNSET


class TopicRow(msgspec.Struct):
    topic: str
    type: Kind
    head_seq: Number
    earliest_seq: Number
    count: Number
    bytes: Number
    durable: bool
    effective_priority: int


class TopicList(Timed):
    topics: list[TopicRow]
    next_cursor: str | UnsetType = UNSET


class TopicDeleted(Timed):
    topic: str
    deleted: bool
    routers_removed: list[str]


# --- records -------------------------------------------------------------------------------------------------------


class Written(msgspec.Struct):
    topic: str
    first_seq: Number
    last_seq: Number
    head_seq: Number
    count: Number
    created: bool
    deduped: bool
    seqs: list[Number] | UnsetType = UNSET


class WriteAnswer(Written, kw_only=True):
    performance: WritePerformance


class MultiWriteAnswer(msgspec.Struct):
    """What became of each of the writes, in their order."""

    writes: list[Written]
    performance: WritePerformance


class ReadRecord(msgspec.Struct):
    """A record as readers get it: ``data`` and ``meta`` are byte for byte what was written."""

    seq: Number = field(name="$seq")
    ts: Number = field(name="$ts")
    data: Any
    node: str | UnsetType = field(default=UNSET, name="$node")
    tag: str | UnsetType = field(default=UNSET, name="$tag")
    meta: Any | UnsetType = UNSET


class LostRange(msgspec.Struct):
    """Records that are gone although nobody deleted them, from ``gap_from`` to ``gap_to``."""

    gap_from: Number
    gap_to: Number
    reason: Literal["cap", "ttl", "mixed", "source_trim", "lost", "recreated"]
    missed_estimate: Number
    earliest_seq: Number
    head_seq: Number


class DiffAnswer(msgspec.Struct):
    topic: str
    records: list[ReadRecord]
    next_from_seq: Number
    head_seq: Number
    earliest_seq: Number
    caught_up: bool
    tombstone: LostRange | None
    lag: Number
    performance: DiffPerformance


class RecordsDeleted(Timed):
    topic: str
    deleted: Number
    earliest_seq: Number
    head_seq: Number
    count: Number
    bytes: Number


# --- consumers -----------------------------------------------------------------------------------------------------


class ConsumerAnswer(Timed):
    topic: str
    consumer: str
    seq: Number
    head_seq: Number
    lag: Number
    committed_ts: Number


class ConsumerList(Timed):
    topic: str
    head_seq: Number
    consumers: dict[str, ConsumerState]


class ConsumerDeleted(Timed):
    topic: str
    consumer: str
    deleted: bool


# --- queues --------------------------------------------------------------------------------------------------------


class Job(msgspec.Struct):
    seq: Number = field(name="$seq")
    lease_id: str
    deadline: Number
    ts: Number = field(name="$ts")
    deliveries: Number
    data: Any
    tag: str | UnsetType = field(default=UNSET, name="$tag")
    priority: int | UnsetType = UNSET
    meta: Any | UnsetType = UNSET


class ClaimAnswer(msgspec.Struct):
    topic: str
    claimed: list[Job]
    count: Number
    ready: Number
    performance: ClaimPerformance


class AckAnswer(msgspec.Struct):
    topic: str
    acked: Number
    skipped: list[Number]
    ready: Number
    in_flight: Number
    performance: AckPerformance


class NackAnswer(Timed):
    topic: str
    nacked: Number
    skipped: list[Number]
    ready: Number
    in_flight: Number


class ExtendAnswer(Timed):
    topic: str
    extended: Number
    skipped: list[Number]
    deadlines: dict[str, Number]


class RedriveAnswer(Timed):
    topic: str
    redriven: Number
    to: dict[str, Number]
    remaining: Number


# --- routers -------------------------------------------------------------------------------------------------------


class RouterShown(Timed):
    router: str
    source: str
    dest: str
    preserve_node: bool
    preserve_tag: bool
    filter: list[str] | None
    allow_cycle: bool
    guarantee: Guarantee


class RouterPut(RouterShown):
    created: bool


class RouterState(RouterShown):
    forwarded_total: Number
    lag: Number


class RouterRow(msgspec.Struct):
    router: str
    source: str
    dest: str
    guarantee: Guarantee
    forwarded_total: Number


class RouterList(Timed):
    routers: list[RouterRow]
    next_cursor: str | UnsetType = UNSET


class RouterDeleted(Timed):
    router: str
    deleted: bool


# --- watching ------------------------------------------------------------------------------------------------------


class WatchedTopic(msgspec.Struct):
    from_seq: Number
    head_seq: Number
    earliest_seq: Number


class WatchAnswer(Timed):
    wid: str
    stream_url: str
    session_ttl_ms: Number
    topics: dict[str, WatchedTopic]
