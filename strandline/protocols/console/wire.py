"""The answers of the console API."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from strandline.engine.record import Durability, Reason
from strandline.protocols.console.kinds import Kind, Protocol
from strandline.query.declaration import SearchDeclaration
from strandline.query.inference import InferredField
from strandline.service.log_config import ConfigShown
from strandline.sql.request import Format

Number = Annotated[int, Meta(ge=0)]
Rate = Annotated[float, Meta(ge=0)]


# --- the server ------------------------------------------------------------------------------------------------------


class KeyAnswer(msgspec.Struct, kw_only=True):
    id: str
    scopes: list[str]
    prefixes: list[str]


class SessionAnswer(msgspec.Struct, kw_only=True):
    name: str
    version: str
    keys_required: bool
    key: KeyAnswer | None
    pipeline: bool
    #: Whether the server can answer queries in SQL.
    sql: bool
    #: Whether there are any that the key may access.
    tables: bool
    collections: bool


class SampleAnswer(msgspec.Struct, kw_only=True, gc=False):
    """Rates are per second. The latencies and the flush times are null if nothing was measured."""

    at: Number
    appends: Rate
    bytes: Rate
    requests: Rate
    #: Answers with a status of 500 or more.
    errors: Rate
    latency_p50_ms: Rate | None
    latency_p99_ms: Rate | None
    flush_p50_us: Rate | None
    flush_p99_us: Rate | None
    rss_bytes: Number
    #: Bytes of the records of all logs.
    live_bytes: Number
    connections: Number
    pressure: Rate
    #: Bytes of the data directory and the lake on the disk, and free bytes; null before they are measured.
    disk_bytes: Number | None = None
    disk_free_bytes: Number | None = None


class BusyLog(msgspec.Struct, kw_only=True):
    log: str
    appends: Rate
    bytes: Rate


class TotalsAnswer(msgspec.Struct, kw_only=True):
    logs: Number
    records: Number
    bytes: Number
    segments: Number
    journal_bytes: Number


class DiskAnswer(msgspec.Struct, kw_only=True):
    journal_bytes: Number
    segment_bytes: Number
    checkpoint_bytes: Number
    index_bytes: Number
    lake_bytes: Number | None
    other_bytes: Number
    used_bytes: Number
    complete: bool
    free_bytes: Number
    total_bytes: Number
    growth_bytes_per_day: float | None
    full_in_ms: Number | None


class HealthAnswer(msgspec.Struct, kw_only=True):
    ready: bool
    read_only: bool
    uptime_ms: Number


class SampleHistoryAnswer(msgspec.Struct, kw_only=True):
    now: Number
    samples: list[SampleAnswer]


class OverviewAnswer(msgspec.Struct, kw_only=True):
    now: Number
    samples: list[SampleAnswer]
    totals: TotalsAnswer
    health: HealthAnswer
    busiest: list[BusyLog]
    disk: DiskAnswer | None


# --- logs ------------------------------------------------------------------------------------------------------------


class LogRow(msgspec.Struct, kw_only=True):
    name: str
    kind: Kind
    durability: Durability
    head: Number
    earliest: Number
    records: Number
    bytes: Number
    rate: Rate
    recent: list[Rate]
    lag: Number | None
    last_ts: Number | None


class ConsoleLogsAnswer(msgspec.Struct, kw_only=True):
    logs: list[LogRow]
    total: Number


class LogPrefix(msgspec.Struct, kw_only=True):
    """The beginning of several names, up to a colon or a slash, and the number of these logs."""

    prefix: str
    logs: Number


class LogPrefixesAnswer(msgspec.Struct, kw_only=True):
    prefixes: list[LogPrefix]


class LogConsumer(msgspec.Struct, kw_only=True):
    name: str
    seq: Number
    lag: Number
    moved_at: Number


class ForkAnswer(msgspec.Struct, kw_only=True):
    of: str
    through: Number


class FilterAnswer(msgspec.Struct, kw_only=True, omit_defaults=True):
    key: str | None = None
    prefix: str | None = None


class ShownRouter(msgspec.Struct, kw_only=True):
    name: str
    source: str
    destination: str
    filter: FilterAnswer | None
    lag: Number
    forwarded: Number
    rate: Rate | None
    paused: bool
    guarantee: Literal["at_least_once", "exactly_once"]
    allow_cycle: bool


class ConsoleLogAnswer(LogRow, kw_only=True):
    epoch: Number
    floor: Number
    config: ConfigShown
    media_type: str
    schema: bool
    profile: str
    closed: bool
    expires_at: Number | None
    fork: ForkAnswer | None
    forks: Number
    consumers: list[LogConsumer]
    routers: list[ShownRouter]
    note: str
    of: str | None
    writable_by: list[Protocol]


# --- records ---------------------------------------------------------------------------------------------------------


class RecordAnswer(msgspec.Struct, kw_only=True):
    seq: Number
    ts: Number
    key: str | UnsetType = UNSET
    node: str | UnsetType = UNSET
    meta: Any | UnsetType = UNSET
    data: Any | UnsetType = UNSET
    text: str | UnsetType = UNSET
    base64: str | UnsetType = UNSET


class MatchesAnswer(msgspec.Struct, kw_only=True):
    records: list[RecordAnswer]
    counts: list[tuple[Number, Number]]
    matched: Number
    scanned: Number
    next: Number | None


class TombstoneAnswer(msgspec.Struct, kw_only=True):
    gap_from: Number
    gap_to: Number
    reason: Reason
    earliest: Number
    head: Number
    missed: Number


class RecordsAnswer(msgspec.Struct, kw_only=True):
    records: list[RecordAnswer]
    tombstone: TombstoneAnswer | None
    head: Number
    earliest: Number
    first: Number | None
    next_after: Number
    caught_up: bool


class KeyRow(msgspec.Struct, kw_only=True):
    key: str
    records: Number
    last_seq: Number


class KeysAnswer(msgspec.Struct, kw_only=True):
    keys: list[KeyRow]
    more: bool


class RemovalAnswer(msgspec.Struct, kw_only=True):
    records: Number
    bytes: Number
    first_seq: Number | None
    last_seq: Number | None
    sample: list[RecordAnswer]


class FieldRow(msgspec.Struct, kw_only=True):
    name: str
    type: str
    origin: Literal["configuration", "records"] = msgspec.field(name="from")


class FieldsAnswer(msgspec.Struct, kw_only=True):
    fields: list[FieldRow]


class InferenceAnswer(msgspec.Struct, kw_only=True):
    records: Number
    fields: list[InferredField]
    search: SearchDeclaration | None


# --- SQL -------------------------------------------------------------------------------------------------------------


class SqlQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    statement: Annotated[str, Meta(min_length=1, max_length=100_000)]
    format: Format = "table"
    id: Annotated[str, Meta(max_length=64, pattern="^[A-Za-z0-9-]*$")] = ""


class SqlColumn(msgspec.Struct, kw_only=True):
    name: str
    type: str


class SqlAnswer(msgspec.Struct, kw_only=True):
    columns: list[SqlColumn]
    rows: list[list[Any]]
    truncated: bool
    elapsed_ms: Number
    warnings: list[str]


class SqlCancelAnswer(msgspec.Struct, kw_only=True):
    cancelled: bool


# --- queues ----------------------------------------------------------------------------------------------------------


class QueueCounts(msgspec.Struct, kw_only=True):
    ready: Number
    in_flight: Number
    delayed: Number
    dead: Number
    dead_lettered: Number
    dropped: Number


class QueueRow(QueueCounts, kw_only=True):
    name: str
    dead_letter: str | None


class QueuesAnswer(msgspec.Struct, kw_only=True):
    queues: list[QueueRow]
    total: Number


class FailureRow(msgspec.Struct, kw_only=True):
    at: Number
    delivery: Number
    worker: str
    reason: Any


class HeldJob(msgspec.Struct, kw_only=True):
    seq: Number
    worker: str
    until: Number
    deliveries: Number
    priority: int
    failures: list[FailureRow]


class DelayedJob(msgspec.Struct, kw_only=True):
    seq: Number
    at: Number
    deliveries: Number
    priority: int
    failures: list[FailureRow]


class NextJob(RecordAnswer, kw_only=True):
    deliveries: Number = 0
    failures: list[FailureRow] = []


class DeadLetters(msgspec.Struct, kw_only=True):
    log: str
    exists: bool
    records: Number


class QueueAnswer(msgspec.Struct, kw_only=True):
    name: str
    counts: QueueCounts
    oldest_ready_ms: Number | None
    throughput: Rate
    failure_rate: Annotated[float, Meta(ge=0, le=1)]
    config: ConfigShown
    held: list[HeldJob]
    delayed: list[DelayedJob]
    next: list[NextJob]
    dead_letters: DeadLetters | None


# --- subscriptions ---------------------------------------------------------------------------------------------------

SubscriptionState = Literal["idle", "sending", "waiting", "leased", "retrying"]


class DeliveryFailureRow(msgspec.Struct, kw_only=True):
    at: Number
    why: str


class SubscriptionRow(msgspec.Struct, kw_only=True):
    id: str
    type: Literal["webhook", "pull-wake"]
    pattern: str | None
    named: list[str]
    description: str | None
    target: str
    state: SubscriptionState
    logs: Number
    pending: Number
    lag: Number
    lag_is_least: bool
    generation: Number
    holder: str
    leased_until: Number | None
    retry_at: Number | None
    failures: Number
    last_failure: DeliveryFailureRow | None
    delivered_at: Number | None
    created_at: Number
    lease_ms: Number


class ConsoleSubscriptionsAnswer(msgspec.Struct):
    subscriptions: list[SubscriptionRow]
    total: Number
    failing: Number


class LinkedLog(msgspec.Struct, kw_only=True):
    name: str
    exists: bool
    named: bool
    matched: bool
    acked: Number
    head: Number
    lag: Number


class ConsoleSubscriptionAnswer(SubscriptionRow, kw_only=True):
    shown: list[LinkedLog]


# --- routers ---------------------------------------------------------------------------------------------------------


class ConsoleRoutersAnswer(msgspec.Struct, kw_only=True):
    routers: list[ShownRouter]
    logs: list[str]
