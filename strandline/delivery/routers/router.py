"""What a stamped copy says of where it came from, in its meta."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
from msgspec import Raw

from strandline.delivery.routers.definition import Definition
from strandline.engine import Log

#: Reserved in the meta of every stamped copy.
STAMP = "_topics_router"
#: Where the meta of the original is if it cannot take the stamp.
ORIGINAL = "_topics_original_meta"
#: A meta with so many keys is full.
MAX_KEYS = 64

_object = msgspec.json.Decoder(dict[str, Raw])


class Stamper:
    """Makes the metas of the copies that one router makes."""

    __slots__ = ("_template",)

    def __init__(self, router: str, source: Log) -> None:
        # The epoch tells a log apart from all others of the directory, so it is both: which log, and which life of it.
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
    """The meta with the stamp in it; around it, when the meta is no object or has no place for one more key."""
    try:
        known = _object.decode(meta)
    except msgspec.MsgspecError:
        known = None
    if known is None or (STAMP not in known and len(known) >= MAX_KEYS):
        known = {ORIGINAL: Raw(meta)}
    # The stamp of a router further up is replaced: it is about another copy.
    known[STAMP] = Raw(stamp)
    return msgspec.json.encode(known)


# --- One router at work: what it is told to do, and how far it has come ---------------------------------------------

#: The cursors of a router in its source: where it has got to, and how many of the seqs up to there it has not forwarded
#: (those from before its time, and those that were filtered out, deleted, or went around often enough). The difference
#: is how many it has forwarded. The second one seldom moves, so that it costs nothing to most routers.
POSITION = "router:"
SKIPPED = "skipped:"
#: A cursor of the source that all of its routers share: every one of them has come at least so far, and those whose own
#: position is before it have forwarded nothing in between.
TOGETHER = "routers"

#: How long a router waits for a full destination: so many milliseconds, twice as long every time, up to a second.
FIRST_DELAY_MS = 50
MAX_DELAY_MS = 1_000


class Router:
    """Lives on the event loop's thread."""

    __slots__ = (
        "blocked", "definition", "delay_ms", "dest", "filter", "keep_keys", "keep_nodes", "position",
        "position_cursor", "skipped", "skipped_cursor", "source", "stamper", "timer", "written_skipped",
    )  # fmt: skip

    def __init__(self, definition: Definition, source: Log, dest: Log, position: int, skipped: int) -> None:
        self.source = source
        self.dest = dest
        self.position = position
        self.skipped = self.written_skipped = skipped
        self.position_cursor = POSITION + definition.name
        self.skipped_cursor = SKIPPED + definition.name
        #: Waits for the destination to have room; then the timer runs, or somebody has looked in the meantime.
        self.blocked = False
        self.delay_ms = FIRST_DELAY_MS
        self.timer: asyncio.TimerHandle | None = None
        self.define(definition)

    @classmethod
    def resumed(cls, definition: Definition, source: Log, dest: Log) -> Router:
        """The router as its cursors say that it was."""
        position, skipped = source.cursor(POSITION + definition.name), source.cursor(SKIPPED + definition.name)
        if position is None or skipped is None:
            # They are written before the definition is: only a repair after damage can have lost them.
            return cls(definition, source, dest, source.head, source.head)
        router = cls(definition, source, dest, position.seq, skipped.seq)
        together = source.cursor(TOGETHER)
        if together is not None and together.seq > position.seq:
            router.skipped += together.seq - position.seq
            router.position = together.seq
        return router

    def define(self, definition: Definition) -> None:
        """Do it like this from now on."""
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
        """How many records it has forwarded since it was made, and how many losses it has passed on."""
        return self.position - self.skipped

    @property
    def lag(self) -> int:
        """How many seqs of the source it has not come to yet."""
        return max(0, self.source.head - self.position)
