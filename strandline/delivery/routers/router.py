"""One router: its definition, its progress, the origin it stamps on copies, its errors, and the graph of all routers.

A log has at most one source, so the path upwards from a log is a single line. Hop counts of records on a cycle are in
memory only: after a restart they start at zero.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec
from msgspec import Raw

from strandline.engine import Log


class RouterError(Exception):
    """Base of all errors of routers."""


class RouterCycle(RouterError):
    """The router would close a cycle. ``cycle`` is the path around it, from the source back to the source."""

    def __init__(self, cycle: list[str]) -> None:
        super().__init__(f"the router would close a cycle: {' -> '.join(cycle)}")
        self.cycle = cycle


class RouterFanIn(RouterError):
    """The destination already has another source. Records of two sources could not be replayed in the same order."""

    def __init__(self, dest: str, source: str) -> None:
        super().__init__(f"{dest!r} already has the source {source!r}: a destination can have only one source")
        self.dest = dest
        self.source = source


class RouterRepointed(RouterError):
    """A router of this name exists with another source or destination. Remove it first."""

    def __init__(self, name: str, source: str, dest: str) -> None:
        super().__init__(f"router {name!r} already copies from {source!r} to {dest!r}: remove it first")
        self.name = name
        self.source = source
        self.dest = dest


class RouterFilter(msgspec.Struct, frozen=True, gc=False):
    """Selects the records to forward by key: one key, or all keys with a prefix."""

    key: str | None = None
    prefix: str | None = None

    def accepts(self, key: str) -> bool:
        return key == self.key if self.prefix is None else key.startswith(self.prefix)


class RouterDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """A router: every record that is appended to ``source`` is also appended to ``dest``."""

    name: str
    source: str
    dest: str
    keep_keys: bool = True
    keep_nodes: bool = True
    #: None forwards all records.
    filter: RouterFilter | None = None
    #: Whether the router may close a cycle of logs. A record then passes the cycle a bounded number of times.
    allow_cycle: bool = False
    #: Whether the meta of each copy names the original record.
    stamped: bool = False


#: The member of the meta that holds the stamp of a copy. The name is reserved.
STAMP = "_topics_router"
#: The member that holds the original meta if the stamp cannot be added to it.
ORIGINAL = "_topics_original_meta"
#: The maximum number of members in a meta.
MAX_KEYS = 64

_object = msgspec.json.Decoder(dict[str, Raw])


class Stamper:
    """Creates the metas of a router's copies."""

    __slots__ = ("_template",)

    def __init__(self, router: str, source: Log) -> None:
        # The epoch identifies the log and its incarnation within the data directory, so it serves as both.
        epoch = source.epoch
        key = msgspec.json.encode(f"router:{router}:{epoch}:{epoch}:")[:-1]
        parts = (key, msgspec.json.encode(router), msgspec.json.encode(source.name), epoch, epoch)
        filled = (
            b'{"idempotency_key":%b\0","router":%b,"source_topic":%b,"source_topic_id":%d,"source_epoch":%d,'
            b'"source_seq":\0}' % parts
        )
        self._template = filled.split(b"\0")

    def metas(self, seqs: Sequence[int], metas: Sequence[bytes | None]) -> list[bytes]:
        """The metas of the copies of these records."""
        start, middle, end = self._template
        stamped: list[bytes] = []
        for seq, meta in zip(seqs, metas, strict=True):
            number = b"%d" % seq
            stamp = start + number + middle + number + end
            stamped.append(b'{"_topics_router":' + stamp + b"}" if meta is None else stamp_meta(meta, stamp))
        return stamped


def stamp_meta(meta: bytes, stamp: bytes) -> bytes:
    """Add the stamp to the meta. If the meta is not an object, is full or is nested too deeply to be read, it is
    wrapped together with the stamp."""
    try:
        known = _object.decode(meta)
    except (msgspec.MsgspecError, RecursionError):
        known = None
    if known is None or (STAMP not in known and len(known) >= MAX_KEYS):
        known = {ORIGINAL: Raw(meta)}
    # Replaces the stamp of an earlier router, which belongs to another copy.
    known[STAMP] = Raw(stamp)
    return msgspec.json.encode(known)


#: The cursors of a router in its source: its position, and how many seqs up to that position it did not forward (seqs
#: from before its creation, filtered or deleted records, and records that reached the hop limit). The difference is the
#: number of forwarded records. The second cursor seldom moves, so it costs most routers nothing.
POSITION = "router:"
SKIPPED = "skipped:"
#: A cursor of the source that all of its routers share. Every router has reached at least this position, and routers
#: whose own position is lower have forwarded nothing in between.
TOGETHER = "routers"

#: How long a router waits for a full destination, in milliseconds. The delay doubles with each attempt.
FIRST_DELAY_MS = 50
MAX_DELAY_MS = 1_000


class Router:
    """The state of one router. Used on the event loop's thread only."""

    __slots__ = (
        "blocked", "definition", "delay_ms", "dest", "filter", "keep_keys", "keep_nodes", "position",
        "position_cursor", "skipped", "skipped_cursor", "source", "stamper", "timer", "written_skipped",
    )  # fmt: skip

    def __init__(self, definition: RouterDefinition, source: Log, dest: Log, position: int, skipped: int) -> None:
        self.source = source
        self.dest = dest
        self.position = position
        self.skipped = self.written_skipped = skipped
        self.position_cursor = POSITION + definition.name
        self.skipped_cursor = SKIPPED + definition.name
        #: Waits for room in the destination, until the timer fires or the destination is read.
        self.blocked = False
        self.delay_ms = FIRST_DELAY_MS
        self.timer: asyncio.TimerHandle | None = None
        self.define(definition)

    @classmethod
    def resumed(cls, definition: RouterDefinition, source: Log, dest: Log) -> Router:
        """Restore the router from its cursors."""
        router = cls(definition, source, dest, source.head, source.head)
        router.resume()
        return router

    def resume(self) -> None:
        """Continue where the cursors are."""
        source = self.source
        position, skipped = source.cursor(self.position_cursor), source.cursor(self.skipped_cursor)
        if position is None or skipped is None:
            # The cursors are journaled before the definition, so they can be missing only after a repair of damaged
            # files.
            return
        self.position, self.skipped = position.seq, skipped.seq
        self.written_skipped = skipped.seq
        together = source.cursor(TOGETHER)
        if together is not None and together.seq > position.seq:
            self.skipped += together.seq - position.seq
            self.position = together.seq

    def define(self, definition: RouterDefinition) -> None:
        """Apply a new definition from now on."""
        self.definition = definition
        self.filter = definition.filter
        self.keep_keys = definition.keep_keys
        self.keep_nodes = definition.keep_nodes
        self.stamper = Stamper(definition.name, self.source) if definition.stamped else None

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def forwarded_total(self) -> int:
        """The number of records forwarded since the router was created, including records that were lost before."""
        return self.position - self.skipped

    @property
    def lag(self) -> int:
        """The number of seqs of the source that the router has not reached yet."""
        return max(0, self.source.head - self.position)


N = TypeVar("N", bound=Hashable)


def closes_cycle(sources: Mapping[N, N], source: N, dest: N) -> list[N] | None:
    """The cycle that a router from ``source`` to ``dest`` would close, from the source back to the source, or None.
    ``sources`` maps each destination to its source."""
    path = [source]
    seen = {source}
    at: N | None = source
    while at is not None and at != dest:
        at = sources.get(at)
        if at is None or at in seen:
            return None
        seen.add(at)
        path.append(at)
    # The path was found upwards; return it downwards.
    return [source, *reversed(path)]


def on_cycles(sources: Mapping[N, N]) -> set[N]:
    """All logs whose records return to them, directly or through other logs."""
    found: set[N] = set()
    known: set[N] = set()
    for start in sources:
        path: dict[N, None] = {}
        at: N | None = start
        while at is not None and at not in known and at not in path:
            path[at] = None
            at = sources.get(at)
        if at is not None and at in path:
            way = list(path)
            found.update(way[way.index(at) :])
        known.update(path)
    return found


#: A record that was forwarded this often is not forwarded again.
MAX_HOPS = 8


class Hops:
    """The hop counts of one log's records. Records that were appended directly have the count 0."""

    __slots__ = ("_stretches",)

    def __init__(self) -> None:
        #: First seq, last seq and hops of each range, in order.
        self._stretches: deque[tuple[int, int, int]] = deque()

    def __len__(self) -> int:
        return len(self._stretches)

    def of(self, seqs: Sequence[int]) -> list[int]:
        """The hop counts of these records, given in ascending order."""
        counts: list[int] = []
        stretches = iter(self._stretches)
        first, last, hops = next(stretches, _END)
        for seq in seqs:
            while seq > last:
                first, last, hops = next(stretches, _END)
            counts.append(hops if seq >= first else 0)
        return counts

    def add(self, first: int, hops: Iterable[int]) -> None:
        """Set the hop counts of the records from ``first`` on."""
        stretches = self._stretches
        for seq, count in enumerate(hops, first):
            if stretches and stretches[-1][1:] == (seq - 1, count):
                stretches[-1] = (stretches[-1][0], seq, count)
            else:
                stretches.append((seq, seq, count))

    def forget(self, through: int) -> None:
        """Drop the counts up to this seq."""
        while self._stretches and self._stretches[0][1] <= through:
            self._stretches.popleft()


_END = (1 << 63, 1 << 63, 0)
