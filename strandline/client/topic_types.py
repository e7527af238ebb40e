"""The public types of topics, consumers and routers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Generic, Literal, TypedDict, TypeVar

import msgspec
from msgspec import field

from strandline.client.search_types import SearchConfig

T = TypeVar("T")

Durability = Literal["ephemeral", "memory", "disk", "fsync", "replicated"]
LossReason = Literal["cap", "ttl", "mixed", "source_trim", "lost", "recreated", "from_seq_too_old"]


def time_of(ts: int) -> datetime:
    """A time in milliseconds as a datetime in UTC."""
    return datetime.fromtimestamp(ts // 1000, UTC).replace(microsecond=ts % 1000 * 1000)


class Draft(msgspec.Struct, Generic[T], omit_defaults=True, frozen=True):
    """A record to write, with more than its data. ``not_before_ts`` (milliseconds) and ``priority`` are for jobs."""

    data: T
    tag: str | None = None
    node: str | None = None
    meta: Any = None
    not_before_ts: int = 0
    priority: int = 0


class Record(msgspec.Struct, Generic[T], frozen=True):
    """A record that was read. ``ts`` is in milliseconds."""

    seq: int = field(name="$seq")
    ts: int = field(name="$ts")
    data: T
    node: str | None = field(default=None, name="$node")
    tag: str | None = field(default=None, name="$tag")
    meta: Any = None

    @property
    def time(self) -> datetime:
        """When the record was written, in UTC."""
        return time_of(self.ts)


class Tombstone(msgspec.Struct, frozen=True):
    """Retention or a crash removed the records from ``gap_from`` to ``gap_to``."""

    gap_from: int
    gap_to: int
    reason: LossReason
    earliest_seq: int
    head_seq: int
    missed_estimate: int | None = None

    @property
    def after(self) -> int:
        """Continue reading after this seq."""
        return self.earliest_seq - 1 if self.reason == "recreated" else max(self.gap_to, self.earliest_seq - 1)

    def __str__(self) -> str:
        return f"records {self.gap_from} to {self.gap_to} are lost ({self.reason})"


class Written(msgspec.Struct, frozen=True):
    """The result of a write. ``deduped``: the same write was applied before, and was not applied again."""

    topic: str
    first_seq: int
    last_seq: int
    head_seq: int
    count: int
    created: bool
    deduped: bool

    @property
    def seqs(self) -> range:
        return range(self.first_seq, self.last_seq + 1)


class MultiWritten(msgspec.Struct, frozen=True):
    writes: list[Written]


class Page(msgspec.Struct, Generic[T], frozen=True):
    """A page of a topic. Continue after ``next_from_seq``. ``caught_up``: there are no more records yet."""

    topic: str
    records: list[Record[T]]
    next_from_seq: int
    head_seq: int
    earliest_seq: int
    caught_up: bool
    lag: int
    tombstone: Tombstone | None = None


class TopicConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The whole configuration of a topic. ``search`` is None if the topic has no search configuration."""

    type: Literal["log", "queue"] = "log"
    ttl_ms: int = 0
    cap_records: int = 0
    cap_bytes: int = 0
    discard: Literal["old", "reject"] = "old"
    compact: bool = False
    retain_until_in_lake: bool = False
    durability: Durability = "disk"
    priority: int | None = None
    auto_priority: bool = True
    auto_create: bool = True
    idempotency_window_ms: int = 120_000
    dedupe_node: bool = True
    lease_ms: int = 30_000
    claim_jitter_ms: int = 0
    max_deliveries: int = 0
    dead_letter: str | None = None
    leases_durable: bool = False
    retry_delay_ms: int = 0
    retry_backoff: float = 2.0
    retry_max_ms: int = 300_000
    retry_jitter: float = 0.0
    search: SearchConfig | None = None


class QueueConfigArguments(TypedDict, total=False):
    """The members of a queue's configuration, as keyword arguments. :class:`TopicConfig` lists their defaults. Without
    ``search``, a topic keeps its search configuration; None removes it."""

    ttl_ms: int
    cap_records: int
    cap_bytes: int
    discard: Literal["old", "reject"]
    compact: bool
    retain_until_in_lake: bool
    durability: Durability
    priority: int | None
    auto_priority: bool
    auto_create: bool
    idempotency_window_ms: int
    dedupe_node: bool
    lease_ms: int
    claim_jitter_ms: int
    max_deliveries: int
    dead_letter: str | None
    leases_durable: bool
    retry_delay_ms: int
    retry_backoff: float
    retry_max_ms: int
    retry_jitter: float
    search: SearchConfig | None


class TopicConfigArguments(QueueConfigArguments, total=False):
    """The members of a topic's configuration, as keyword arguments. :class:`TopicConfig` lists their defaults."""

    type: Literal["log", "queue"]


class Configured(msgspec.Struct, frozen=True):
    """The configuration of a topic. ``warnings`` says what prevents it from having the expected effect."""

    topic: str
    created: bool
    config: TopicConfig
    warnings: list[str] = []


class QueueState(msgspec.Struct, frozen=True):
    """The jobs of a queue. ``dropped`` counts jobs that failed on their last delivery in a queue without a dead-letter
    topic. ``oldest_ready_ms`` is the age of the oldest ready job, None if no job is ready. ``throughput`` (completed
    jobs per second) and ``failure_rate`` (the fraction of deliveries that failed) are of the last minute."""

    ready: int
    in_flight: int
    delayed: int
    dead_lettered: int
    dropped: int
    oldest_ready_ms: int | None
    throughput: float
    failure_rate: float


class ConsumerState(msgspec.Struct, frozen=True):
    seq: int
    lag: int
    committed_ts: int


class TopicState(msgspec.Struct, frozen=True):
    topic: str
    type: Literal["log", "queue"]
    head_seq: int
    earliest_seq: int
    next_seq: int
    count: int
    bytes: int
    config: TopicConfig
    effective_priority: int
    last_write_ts: int | None = None
    last_read_ts: int | None = None
    queue: QueueState | None = None
    consumers: dict[str, ConsumerState] = {}


class TopicRow(msgspec.Struct, frozen=True):
    """A topic in a list."""

    topic: str
    head_seq: int
    earliest_seq: int
    count: int
    bytes: int
    durable: bool
    effective_priority: int
    type: Literal["log", "queue"] = "log"


class TopicList(msgspec.Struct, frozen=True):
    topics: list[TopicRow]
    next_cursor: str | None = None


class TopicDeleted(msgspec.Struct, frozen=True):
    topic: str
    deleted: bool
    routers_removed: list[str] = []


class RecordsDeleted(msgspec.Struct, frozen=True):
    topic: str
    deleted: int
    earliest_seq: int
    head_seq: int
    count: int
    bytes: int


class ConsumerPosition(msgspec.Struct, frozen=True):
    topic: str
    consumer: str
    seq: int
    head_seq: int
    lag: int
    committed_ts: int


class ConsumerList(msgspec.Struct, frozen=True):
    consumers: dict[str, ConsumerState]


class ConsumersList(msgspec.Struct, frozen=True):
    consumers: list[ConsumerPosition]
    next_cursor: str | None = None


class ConsumerDeleted(msgspec.Struct, frozen=True):
    deleted: bool


class RouterState(msgspec.Struct, frozen=True):
    """``forwarded_total`` and ``lag`` are None where the server does not send them."""

    router: str
    source: str
    dest: str
    preserve_node: bool = True
    preserve_tag: bool = True
    filter: list[str] | None = None
    allow_cycle: bool = False
    guarantee: Literal["at_least_once", "exactly_once"] = "at_least_once"
    created: bool = False
    forwarded_total: int | None = None
    lag: int | None = None


class RouterList(msgspec.Struct, frozen=True):
    routers: list[RouterState]
    next_cursor: str | None = None


class RouterDeleted(msgspec.Struct, frozen=True):
    router: str
    deleted: bool


# --- watching ------------------------------------------------------------------------------------------------------


class Arrived(msgspec.Struct, Generic[T], frozen=True):
    """New records of a topic. ``to_seq`` is the position after them, ``head_seq`` the head of the topic."""

    topic: str
    records: list[Record[T]]
    from_seq: int
    to_seq: int
    head_seq: int


class CaughtUp(msgspec.Struct, frozen=True):
    """All existing records were sent; new ones follow."""

    topic: str
    head_seq: int


class Lost(msgspec.Struct, frozen=True):
    """Records were lost before the watch could send them."""

    topic: str
    tombstone: Tombstone


class Deleted(msgspec.Struct, frozen=True):
    """The topic was deleted. ``head_seq`` is its last head, or the last position of this watch."""

    topic: str
    head_seq: int
