"""The data types of a log: batches, records, pages, tombstones, configuration and state."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import Raw

from strandline.engine.errors import BadConfig, BadName, BadRecord, BadRequest, RecordTooLarge

#: Data and meta data of one record together. A record, and every batch that contains it, is held in memory as a whole.
MAX_RECORD_BYTES = 16 << 20
#: Keys are indexed and nodes are identifiers, so both should be short. The frame stores their lengths in 16 bits.
MAX_KEY_BYTES = 1024
MAX_NODE_BYTES = 1024
#: One batch is one frame, and a frame is written in one piece.
MAX_BATCH_BYTES = 256 << 20
MAX_NAME_BYTES = 512
MAX_CURSOR_BYTES = 512
#: The names that topics can have. Every protocol, shell and URL carries them without escapes.
PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,254}", re.ASCII)
#: Seqs are signed numbers of 64 bits.
MAX_SEQ = (1 << 63) - 1
#: The end of the year 9999, the last year that common calendar libraries support.
MAX_TIME = 253_402_300_799_999

Durability = Literal["ephemeral", "memory", "disk", "fsync", "replicated"]
#: The durabilities whose changes wait for a flush.
FLUSHED = ("fsync", "replicated")
#: The durabilities whose acknowledged records can be lost with the machine although it has a replica.
AT_RISK = ("disk", "fsync", "memory")
Discard = Literal["old", "reject"]

#: Why records are gone although no caller removed them. ``lost``: because of a crash or damage.
Reason = Literal["cap", "ttl", "mixed", "recreated", "source_trim", "lost"]


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a log stores its records. Zero means unlimited. An unlimited log never removes records by itself."""

    durability: Durability = "disk"
    ttl_ms: int = 0
    cap_records: int = 0
    cap_bytes: int = 0
    discard: Discard = "old"
    #: Delete a record some time after a later record of its key was appended.
    compact: bool = False
    #: Keep a record until the lake has it, whatever retention and compaction would remove.
    retain_until_in_lake: bool = False
    #: How long an idempotency key is remembered, counted from its append.
    idempotency_window_ms: int = 120_000
    #: Data that a protocol stores with the log. The engine does not interpret it.
    attributes: Mapping[str, Any] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        for field in ("ttl_ms", "cap_records", "cap_bytes", "idempotency_window_ms"):
            value = getattr(self, field)
            if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 62:
                raise BadConfig(field, value, "must be a whole number, 0 or more")
        if self.durability not in ("ephemeral", "memory", "disk", "fsync", "replicated"):
            raise BadConfig("durability", self.durability, "must be ephemeral, memory, disk, fsync or replicated")
        if self.discard not in ("old", "reject"):
            raise BadConfig("discard", self.discard, "must be old or reject")
        for field in ("compact", "retain_until_in_lake"):
            if not isinstance(getattr(self, field), bool):
                raise BadConfig(field, getattr(self, field), "must be true or false")
        if self.retain_until_in_lake and self.durability == "ephemeral":
            why = "must be false if the durability is ephemeral: the lake has no records of such a log"
            raise BadConfig("retain_until_in_lake", True, why)


def check_name(name: str) -> str:
    """Return a valid log name: any printable text up to 512 bytes. Protocols restrict names further."""
    if not isinstance(name, str):
        raise BadName(repr(name), "it is not a string")
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise BadName(name, "it is not valid Unicode text") from None
    if not 1 <= size <= MAX_NAME_BYTES:
        raise BadName(name, f"it has {size} bytes; expected 1 to {MAX_NAME_BYTES}")
    if not name.isprintable():
        raise BadName(name, "it contains non-printable characters")
    return name


#: The names of internal logs start with this.
INTERNAL_PREFIX = "_"
#: Why clients cannot use such a name.
RESERVED_NAME = "names that start with an underscore are reserved for the server"


def is_internal(name: str) -> bool:
    """Whether a log of this name belongs to the server. No protocol creates or changes such a log for a client."""
    return name.startswith(INTERNAL_PREFIX)


def check_cursor(name: str, seq: int = 0) -> None:
    """Check a cursor. Its name is any Unicode text of 1 to 512 bytes; its seq need not have been written."""
    try:
        size = len(name.encode()) if type(name) is str else 0
    except UnicodeEncodeError:
        size = 0
    if not 1 <= size <= MAX_CURSOR_BYTES:
        raise BadRequest(f"a cursor's name must be Unicode text of 1 to {MAX_CURSOR_BYTES} bytes")
    if type(seq) is not int or not 0 <= seq <= MAX_SEQ:
        raise BadRequest(f"a cursor's seq must be a whole number from 0 to 2^63 - 1, not {seq!r}")


def check_time(ts: int) -> None:
    if type(ts) is not int or not 0 <= ts <= MAX_TIME:
        raise BadRequest(f"a time must be in milliseconds, from 0 to the end of the year 9999, not {ts!r}")


#: Data that is still a part of its message is copied only once, into the log.
_DATA = frozenset((bytes, Raw))
_TEXT = frozenset((str,))


class Batch:
    """Records to append, as columns. All of them are appended, with consecutive seqs, or none.

    ``keys``, ``nodes`` and ``metas`` are None if no record has one, otherwise as long as ``data``.
    """

    __slots__ = ("data", "keys", "metas", "nodes")

    def __init__(
        self,
        data: Sequence[bytes | Raw],
        keys: Sequence[str | None] | None = None,
        nodes: Sequence[str | None] | None = None,
        metas: Sequence[bytes | None] | None = None,
    ) -> None:
        self.data = data
        self.keys = keys
        self.nodes = nodes
        self.metas = metas

    @classmethod
    def of(cls, data: bytes, key: str | None = None, node: str | None = None, meta: bytes | None = None) -> Batch:
        return cls(
            [data],
            None if key is None else [key],
            None if node is None else [node],
            None if meta is None else [meta],
        )

    def __len__(self) -> int:
        return len(self.data)

    def check(self, max_record_bytes: int = MAX_RECORD_BYTES) -> int:
        """Raise unless every record is well-formed and within the limit. Return the size of data and metas."""
        count = len(self.data)
        if count == 1 and self.metas is None and self.nodes is None:
            # The fast path for most batches.
            data, keys = self.data[0], self.keys
            if (
                type(data) is bytes
                and len(data) <= max_record_bytes
                and (keys is None or (len(keys) == 1 and _is_short_text(keys[0])))
            ):
                return len(data)
        if not count:
            raise BadRequest("a batch must have at least one record")
        for what, column in (("keys", self.keys), ("nodes", self.nodes), ("metas", self.metas)):
            if column is not None and len(column) != count:
                raise BadRequest(f"the batch has {count} records but {len(column)} {what}")
        if not _DATA.issuperset(map(type, self.data)):
            index = next(i for i, d in enumerate(self.data) if type(d) not in _DATA)
            raise BadRecord(index, f"data must be bytes, not {type(self.data[index]).__name__}")
        sizes = list(map(len, self.data))
        if self.metas is not None:
            for index, meta in enumerate(self.metas):
                if meta is not None:
                    if type(meta) is not bytes:
                        raise BadRecord(index, f"meta must be bytes, not {type(meta).__name__}")
                    sizes[index] += len(meta)
        if max(sizes) > max_record_bytes:
            index = next(i for i, size in enumerate(sizes) if size > max_record_bytes)
            raise RecordTooLarge(index, sizes[index], max_record_bytes)
        total = sum(sizes)
        if total > MAX_BATCH_BYTES:
            raise BadRequest(f"the batch has {total} bytes; the limit is {MAX_BATCH_BYTES}")
        if self.keys is not None:
            _check_strings("key", self.keys, MAX_KEY_BYTES)
        if self.nodes is not None:
            _check_strings("node", self.nodes, MAX_NODE_BYTES)
        return total


def _is_short_text(value: str | None) -> bool:
    return value is None or (type(value) is str and len(value) * 4 <= MAX_KEY_BYTES and value.isascii())


def _check_strings(what: str, column: Sequence[str | None], limit: int) -> None:
    if _TEXT.issuperset(map(type, column)) and max(map(len, column)) * 4 <= limit and "".join(column).isascii():  # type: ignore[arg-type]
        return
    for index, value in enumerate(column):
        if value is None:
            continue
        if type(value) is not str:
            raise BadRecord(index, f"{what} must be a string, not {type(value).__name__}")
        if len(value) * 4 > limit or not value.isascii():
            try:
                size = len(value.encode())
            except UnicodeEncodeError:
                raise BadRecord(index, f"{what} is not valid Unicode text") from None
            if size > limit:
                raise BadRecord(index, f"{what} has {size} bytes; the limit is {limit}")


class Producer(NamedTuple):
    """A writer that numbers its appends, so that repetitions are recognised. A new epoch fences off older writers."""

    id: str
    epoch: int
    seq: int


class Appended(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The result of an append. A repetition (``deduped``) has the result of the first append."""

    first: int
    last: int
    ts: int
    deduped: bool = False

    @property
    def count(self) -> int:
        return self.last - self.first + 1

    def again(self) -> Appended:
        """Return the result for a repetition of this append."""
        return Appended(self.first, self.last, self.ts, deduped=True)


class Remembered(Appended, frozen=True, array_like=True, gc=False):
    """An append that can be recognised again. ``at`` is the time of the append if its records have another time;
    otherwise 0."""

    at: int = 0


class Cursor(NamedTuple):
    """A named position in a log, and when it was moved there."""

    seq: int
    ts: int


class ProducerState(NamedTuple):
    """What a log remembers about a producer: its last append."""

    epoch: int
    seq: int
    appended: Appended


class Deleted(msgspec.Struct, frozen=True, gc=False):
    """The result of a delete, hide or restore."""

    count: int
    size: int


class Record(NamedTuple):
    seq: int
    ts: int
    key: str | None
    node: str | None
    meta: bytes | None
    data: bytes


class Tombstone(NamedTuple):
    """Records that a reader misses because they were removed without a caller's request."""

    gap_from: int
    gap_to: int
    reason: Reason
    earliest: int
    head: int

    @property
    def missed(self) -> int:
        return max(1, self.gap_to - self.gap_from + 1)


class Page:
    """One answer to a read, as columns of equal length. Iterate over it to get records.

    ``next_after`` is where to continue. ``caught_up`` means that there were no further records when the page was made.
    ``tombstone`` reports a loss *before* the page's first record.
    """

    __slots__ = (
        "caught_up", "data", "earliest", "epoch", "head", "keys", "metas", "next_after", "nodes", "seqs",
        "tombstone", "ts",
    )  # fmt: skip

    def __init__(self, epoch: int, head: int, earliest: int) -> None:
        self.epoch = epoch
        self.head = head
        self.earliest = earliest
        self.next_after = 0
        self.caught_up = False
        self.tombstone: Tombstone | None = None
        self.seqs: list[int] = []
        self.ts: list[int] = []
        self.data: list[bytes] = []
        self.keys: list[str | None] = []
        self.nodes: list[str | None] = []
        self.metas: list[bytes | None] = []

    def __len__(self) -> int:
        return len(self.seqs)

    def __iter__(self) -> Iterator[Record]:
        return map(Record, self.seqs, self.ts, self.keys, self.nodes, self.metas, self.data)


class LogState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a log at one moment."""

    name: str
    epoch: int
    config: Config
    head: int
    earliest: int
    evict_floor: int
    count: int
    size: int
    last_ts: int
