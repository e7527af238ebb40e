"""The bodies and answers of the protocol. Handlers decode and build these structs, and OpenAPI is generated from them.

The members of an answer are sent in the order of their declaration; members that are UNSET are left out. The hottest
answers are written as bytes instead: the answer to a write and a page of records. A test decodes them with their
structs. Events are declared in ``event_frames.py``, the messages of a WebSocket in ``message_frames.py``, and the
descriptions of members in ``descriptions.py``.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType, field

from strandline.engine.record import MAX_SEQ, Reason
from strandline.key_share import MAX_SHARES
from strandline.protocols.topics.match import MatchField
from strandline.protocols.topics.settings import DEFAULT_FRAME_BYTES, DEFAULT_HEARTBEAT_MS, U64
from strandline.service.log_config import ConfigShown, Kind, NameField, Number, TopicConfig

Natural = Annotated[int, Meta(ge=0, le=MAX_SEQ)]
Milliseconds = Annotated[float, Meta(ge=0)]
Guarantee = Literal["at_least_once", "exactly_once"]
#: The handler refuses an empty name, so that the message can say what to send.
NodeField = Annotated[str, Meta(extra_json_schema={"minLength": 1})]
LeaseField = Annotated[str, Meta(extra_json_schema={"pattern": "^(lease_[0-9a-f]+)?$"})]
#: Readers do not get the records of these nodes.
NodesField = str | list[str] | None

# --- performance ---------------------------------------------------------------------------------------------------


class Performance(msgspec.Struct, gc=False):
    """How long the server took, in milliseconds."""

    server_total_ms: Milliseconds


class ClaimPerformance(Performance, gc=False):
    throttle_wait_ms: Milliseconds


class DiffPerformance(Performance, gc=False):
    records_scanned: Number
    throttle_wait_ms: Milliseconds


class WritePerformance(Performance, gc=False):
    wal_append_ms: Milliseconds
    fsync_ms: Milliseconds
    throttle_wait_ms: Milliseconds


class AckPerformance(Performance, gc=False):
    fsync_ms: Milliseconds | UnsetType = UNSET


class Timed(msgspec.Struct, kw_only=True):
    """An answer whose last member is ``performance``: keyword-only members come after all others."""

    performance: Performance


# --- topics --------------------------------------------------------------------------------------------------------


class TopicPut(Timed):
    topic: str
    created: bool
    config: ConfigShown
    warnings: list[str] | UnsetType = UNSET


class QueueState(msgspec.Struct):
    ready: Number
    in_flight: Number
    delayed: Number
    dead_lettered: Number
    dropped: Number
    oldest_ready_ms: Number | None
    throughput: Annotated[float, Meta(ge=0)]
    failure_rate: Annotated[float, Meta(ge=0, le=1)]


class ConsumerState(msgspec.Struct):
    seq: Number
    lag: Number
    committed_ts: Number


class TopicState(msgspec.Struct, kw_only=True):
    topic: str
    type: Kind
    head_seq: Number
    earliest_seq: Number
    next_seq: Number
    count: Number
    bytes: Number
    config: ConfigShown
    queue: QueueState | UnsetType = UNSET
    consumers: dict[str, ConsumerState] | UnsetType = UNSET
    effective_priority: int
    last_write_ts: Number | None
    last_read_ts: Number | None
    performance: Performance


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


# --- writing -------------------------------------------------------------------------------------------------------


class WriteRecord(msgspec.Struct, gc=False):
    data: Raw
    tag: str | None = None
    node: str | None = None
    meta: Raw | UnsetType = UNSET
    not_before_ts: Annotated[int, Meta(ge=0, lt=1 << 62)] = 0
    priority: Annotated[int, Meta(ge=-1000, le=1000)] = 0


RecordsField = Annotated[list[WriteRecord], Meta(extra_json_schema={"minItems": 1})]


class WriteBody(msgspec.Struct, gc=False):
    records: RecordsField
    node: str | None = None
    idempotency_key: str | None = None
    create: bool | None = None
    config: TopicConfig | None = None
    disable_backpressure: bool = False


class OneWrite(msgspec.Struct, gc=False):
    topic: NameField
    records: RecordsField
    node: str | None = None
    create: bool | None = None
    config: TopicConfig | None = None


class MultiWriteBody(msgspec.Struct, gc=False):
    writes: Annotated[list[OneWrite], Meta(extra_json_schema={"minItems": 1})]
    idempotency_key: str | None = None
    disable_backpressure: bool = False


class Written(msgspec.Struct, kw_only=True):
    topic: str
    first_seq: Number
    last_seq: Number
    seqs: list[Number] | UnsetType = UNSET
    head_seq: Number
    count: Number
    created: bool
    deduped: bool


class WriteAnswer(Written, kw_only=True):
    performance: WritePerformance


class MultiWriteAnswer(msgspec.Struct):
    """The outcome of each write, in the order of the request."""

    writes: list[Written]
    performance: WritePerformance


# --- reading and deleting ------------------------------------------------------------------------------------------


ShareNumber = Annotated[int, Meta(ge=0, lt=MAX_SHARES)]


class ShareFilter(msgspec.Struct, forbid_unknown_fields=True):
    """Only the records of some shares of the keys."""

    of: Annotated[int, Meta(ge=1, le=MAX_SHARES)]
    only: Annotated[list[ShareNumber], Meta(min_length=1, max_length=MAX_SHARES)]


class DiffBody(msgspec.Struct, gc=False):
    from_seq: U64 | None = None
    limit: U64 = 0
    node: NodesField = None
    include_tags: bool = False
    include_meta: bool = True
    wait_ms: U64 = 0
    max_batch_bytes: U64 = 0
    match: MatchField = None
    since_ts: U64 | None = None
    consumer: str | None = None
    view: Literal["latest"] | None = None
    shares: ShareFilter | None = None


class ReadRecord(msgspec.Struct, kw_only=True):
    """A record as readers get it: ``data`` and ``meta`` are byte for byte what was written."""

    seq: Number = field(name="$seq")
    ts: Number = field(name="$ts")
    node: str | UnsetType = field(default=UNSET, name="$node")
    tag: str | UnsetType = field(default=UNSET, name="$tag")
    data: Any
    meta: Any | UnsetType = UNSET


class LostRange(msgspec.Struct):
    """Records that are gone although no caller deleted them, from ``gap_from`` to ``gap_to``."""

    gap_from: Number
    gap_to: Number
    reason: Reason
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


class DeleteBody(msgspec.Struct, forbid_unknown_fields=True):
    before_seq: U64 | None = None
    match: MatchField = None


class RecordsDeleted(Timed):
    topic: str
    deleted: Number
    earliest_seq: Number
    head_seq: Number
    count: Number
    bytes: Number


# --- consumers -----------------------------------------------------------------------------------------------------


class CommitBody(msgspec.Struct, forbid_unknown_fields=True):
    """Has exactly one member."""

    seq: Natural | UnsetType = UNSET
    at: Literal["start", "end"] | UnsetType = UNSET
    since_ts: Natural | UnsetType = UNSET


#: The body as OpenAPI describes it.
OneCommit = Annotated[CommitBody, Meta(extra_json_schema={"minProperties": 1, "maxProperties": 1})]


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


class ConsumerRow(msgspec.Struct):
    topic: str
    consumer: str
    seq: Number
    head_seq: Number
    lag: Number
    committed_ts: Number


class ConsumersList(Timed):
    consumers: list[ConsumerRow]
    next_cursor: str | UnsetType = UNSET


class HeldShare(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A share that a member has."""

    share: ShareNumber
    lease: Natural
    seq: Natural
    release: bool = False


class GroupBody(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    node: NodeField
    held: Annotated[list[HeldShare], Meta(max_length=MAX_SHARES)] = []
    leave: bool = False
    lease_ms: Natural | None = None
    of: Annotated[int, Meta(ge=1, le=MAX_SHARES)] | None = None
    at: Literal["start", "end"] = "start"


class GrantedShare(msgspec.Struct):
    share: ShareNumber
    lease: Natural
    seq: Number


class GroupAnswer(Timed):
    topic: str
    group: str
    of: Number
    head_seq: Number
    lease_ms: Number
    shares: list[GrantedShare]
    give_back: list[ShareNumber]
    lost: list[ShareNumber]


class MemberState(msgspec.Struct):
    node: str
    shares: Number
    deadline: Number


class ShareState(msgspec.Struct):
    share: ShareNumber
    consumer: str
    node: str | None
    seq: Number
    lag: Number
    committed_ts: Number


class GroupState(Timed):
    topic: str
    group: str
    of: Number
    head_seq: Number
    members: list[MemberState]
    shares: list[ShareState]


class GroupDeleted(Timed):
    topic: str
    group: str
    deleted: bool


class ConsumerDeleted(Timed):
    topic: str
    consumer: str
    deleted: bool


# --- queues --------------------------------------------------------------------------------------------------------


class ClaimBody(msgspec.Struct, gc=False):
    node: NodeField
    max: Natural = 0
    lease_ms: Natural | None = None


class HolderBody(msgspec.Struct, kw_only=True, gc=False):
    """A request about jobs that its node holds."""

    node: NodeField
    seqs: list[Natural]
    lease_ids: list[LeaseField] | None = None


class NextClaim(msgspec.Struct, gc=False):
    max: Natural = 0
    lease_ms: Natural | None = None


class AckBody(HolderBody, kw_only=True, gc=False):
    claim: NextClaim | None = None


class NackBody(HolderBody, kw_only=True, gc=False):
    delay_ms: Natural | None = None
    reason: Raw | UnsetType = UNSET


class ExtendBody(HolderBody, kw_only=True, gc=False):
    lease_ms: Natural


class RedriveBody(msgspec.Struct, forbid_unknown_fields=True):
    to: NameField | None = None
    limit: Natural = 0
    match: MatchField = None
    seq: Natural | None = None
    data: Raw | UnsetType = UNSET


class JobFailure(msgspec.Struct, gc=False):
    """Why a delivery of a job failed."""

    at: Number
    delivery: Number
    node: str
    reason: Raw


class Job(msgspec.Struct, kw_only=True, gc=False):
    """A claimed job: ``data`` and ``meta`` are byte for byte what was written."""

    topic: str | UnsetType = UNSET
    seq: Number = field(name="$seq")
    lease_id: str
    deadline: Number
    ts: Number = field(name="$ts")
    tag: str | UnsetType = field(default=UNSET, name="$tag")
    deliveries: Number
    priority: int | UnsetType = UNSET
    data: Raw
    meta: Raw | UnsetType = UNSET
    failures: list[JobFailure] | UnsetType = UNSET


class ClaimAnswer(msgspec.Struct):
    topic: str
    claimed: list[Job]
    count: Number
    ready: Number
    performance: ClaimPerformance


class AckAnswer(msgspec.Struct, kw_only=True):
    topic: str
    acked: Number
    skipped: list[Number]
    claimed: list[Job] | UnsetType = UNSET
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


class RouterBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    source: NameField
    dest: NameField
    preserve_node: bool = True
    preserve_tag: bool = True
    create_dest: bool = True
    filter: MatchField = None
    allow_cycle: bool = False
    guarantee: Guarantee = "at_least_once"


class RouterPut(msgspec.Struct):
    router: str
    created: bool
    source: str
    dest: str
    preserve_node: bool
    preserve_tag: bool
    filter: list[str] | None
    allow_cycle: bool
    guarantee: Guarantee
    performance: Performance


class RouterState(msgspec.Struct):
    router: str
    source: str
    dest: str
    preserve_node: bool
    preserve_tag: bool
    filter: list[str] | None
    allow_cycle: bool
    guarantee: Guarantee
    forwarded_total: Number
    lag: Number
    performance: Performance


class RouterRow(msgspec.Struct):
    router: str
    source: str
    dest: str
    preserve_node: bool
    preserve_tag: bool
    filter: list[str] | None
    allow_cycle: bool
    guarantee: Guarantee
    forwarded_total: Number


class RouterList(Timed):
    routers: list[RouterRow]
    next_cursor: str | UnsetType = UNSET


class RouterDeleted(Timed):
    router: str
    deleted: bool


# --- watching ------------------------------------------------------------------------------------------------------


class TopicOptions(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """The options of one topic or pattern."""

    from_seq: Natural = 0
    tail: bool = False
    match: MatchField = None
    since_ts: Natural | None = None


class WatchOptions(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The options of a watch session and of a subscription. A topic's own ``match`` and ``since_ts`` take
    precedence."""

    node: NodesField = None
    limit: Natural = 0
    max_batch_bytes: Natural = 0
    include_meta: bool = True
    include_tags: bool = False
    include_data: bool = True
    consistency: Literal["eventual", "strong"] = "eventual"
    match: MatchField = None
    since_ts: Natural | None = None
    lenient: bool = False


class WatchBody(WatchOptions, kw_only=True, forbid_unknown_fields=True):
    topics: Annotated[dict[str, TopicOptions], Meta(extra_json_schema={"minProperties": 1})]
    max_batch_bytes: Natural = DEFAULT_FRAME_BYTES
    heartbeat_ms: Natural = DEFAULT_HEARTBEAT_MS
    cursor: str | None = None


class WatchedTopic(msgspec.Struct):
    from_seq: Number
    head_seq: Number
    earliest_seq: Number


class WatchAnswer(Timed):
    wid: str
    stream_url: str
    session_ttl_ms: Number
    topics: dict[str, WatchedTopic]
