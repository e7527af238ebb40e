"""Erasure events: deliberate deletions and changes of records are recorded in a separate log.

Systems that keep copies of records read this log and apply the same changes to the copies. An event is journaled in one
write with its change, so after a crash both exist or neither. Readers see the event once it is durable.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import msgspec

from strandline.engine.journal.bodies import Select
from strandline.engine.journal.frame import Encoded, FrameType, encode_append
from strandline.engine.operations.append import publish_later
from strandline.engine.operations.change import config_frame
from strandline.engine.record import Batch, Config
from strandline.engine.state.block import Block
from strandline.engine.state.logbook import Logbook

if TYPE_CHECKING:
    from strandline.engine.engine import Engine

NAME = "__erasures__"

#: Events must not accumulate forever in a directory whose records are never copied. A reader whose position is below
#: the floor of this log has missed events and must compare all its copies with the logs.
MAX_BYTES = 64 << 20
_CONFIG = Config(durability="fsync", cap_bytes=MAX_BYTES)

#: A selection of more seqs than this is split into several events, because the size of a record is limited.
SEQS_PER_EVENT = 10_000

Kind = Literal["delete", "hide", "restore", "amend", "drop"]

_KINDS: dict[FrameType, Kind] = {
    FrameType.DELETE: "delete",
    FrameType.HIDE: "hide",
    FrameType.RESTORE: "restore",
    FrameType.AMEND: "amend",
    FrameType.DROP: "drop",
}


class Erasure(msgspec.Struct, frozen=True):
    """One event. It affects the log's own records up to the seq ``bound`` that fulfil all given conditions: a seq below
    ``before``, this ``key``, this ``prefix`` in their key, one of these ``seqs``.

    A fork's own records are those after the fork point. Events about shared records name the log that they were forked
    from.
    """

    log: str
    epoch: int
    kind: Kind
    bound: int
    before: int | None = None
    key: str | None = None
    prefix: str | None = None
    seqs: list[int] | None = None


_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(Erasure)


def is_told(name: str) -> bool:
    """Return whether removals from a log of this name leave events. Only logs of the server with two underscores leave
    none. That is fewer than ``is_internal`` covers: earlier versions copied a log like ``_x``, which a program had
    created, into the lake, and those copies must still follow."""
    return not name.startswith("__")


def read_erasure(data: bytes) -> Erasure:
    """Decode the event in a record of the log."""
    return _decoder.decode(data)


#: A change to record as an event: the log, the kind of change and the selected records.
Told = tuple[Logbook, FrameType, Select]


class Erasures:
    """Records erasure events. The caller holds the engine's lock."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        #: The position in the journal after the creation of the log.
        self._made_before = 0

    def write(self, frames: list[Encoded], told: Sequence[Told], now: int) -> Block | None:
        """Write the frames and the events about them in one write. Return the block of events to publish, or None."""
        engine = self._engine
        data = [event for one in told if _may_be_kept(one[0], one[2]) for event in _told(*one)]
        if not data:
            if len(frames) == 1:
                engine.journal.write(frames[0])
            elif frames:
                engine.journal.write_all(frames)
            return None
        found = engine.find(NAME)
        events = Logbook(NAME, engine.next_epoch, _CONFIG, now) if found is None else found.book
        block = Block.of_batch(events.assigned + 1, events.time_of(now), Batch(data))
        append = encode_append(events.epoch, block, now, block.last, None)
        if found is None or engine.journal.flushed < self._made_before:
            # A power cut may remove any write that is not flushed yet, so no write may depend on another one for its
            # log.
            frames = [config_frame(events, events.config, now, events.assigned), append, *frames]
        else:
            frames = [append, *frames]
        engine.journal.write_all(frames)
        if found is None:
            engine.add(events)
            self._made_before = engine.journal.written
        engine.touch(events)
        engine.reservations.written(events, block.last)
        engine.note_place(events, block.first)
        events.assign(block, block.timestamp(0), None, now)
        return block

    def publish(self, block: Block | None) -> None:
        """Make the events visible to readers once they are durable, and not before their change."""
        if block is not None:
            events = self._engine.log(NAME).book
            publish_later(self._engine, events, block, block.size(0, len(block)), None)


def _may_be_kept(book: Logbook, select: Select) -> bool:
    """Return whether copies of such records may exist. Records that retention removed from the log count, because
    copies of them may still exist."""
    first = 1 if book.base is None else book.base.through + 1
    last = select.bound if select.before is None else min(select.bound, select.before - 1)
    if last < first or not is_told(book.name):
        return False
    if select.seqs is not None and not any(first <= seq <= last for seq in select.seqs):
        return False
    return book.config.durability != "ephemeral" or book.volatile_from != first


def _told(book: Logbook, type: FrameType, select: Select) -> list[bytes]:
    seqs = select.seqs
    chunks: list[list[int] | None] = [None]
    if seqs is not None:
        chunks = [seqs[at : at + SEQS_PER_EVENT] for at in range(0, len(seqs), SEQS_PER_EVENT)]
    return [
        _encode(
            Erasure(book.name, book.epoch, _KINDS[type], select.bound, select.before, select.key, select.prefix, chunk)
        )
        for chunk in chunks
    ]
