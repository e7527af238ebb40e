"""Erasure events: what was removed or changed on purpose is told in a log of its own.

Whoever keeps copies of records elsewhere reads that log and does the same to them. An event is journaled in one write
with the change that it tells of, so after any crash both are there, or neither; it shows once it is durable.
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

#: A directory that nobody copies anything from must not keep events for ever. Who finds that it has missed some,
#: because the floor of the log is above where it has come to, has to compare everything it keeps with what is there.
MAX_BYTES = 64 << 20
_CONFIG = Config(durability="fsync", cap_bytes=MAX_BYTES)

#: A selection of more seqs than this is told in several events: a record must not be too large.
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
    """One event. Meant are the log's own records up to the seq ``bound`` that fulfil every condition which is given: a
    seq below ``before``, this ``key``, this ``prefix`` in their key, one of these ``seqs``.

    Of a fork, its own records are those behind the fork point. Those it shares belong to the log that it was forked
    from, and an event about them names that one.
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
    """Whether removals from a log of this name are told. Only the logs that the server keeps for itself are left out,
    with two underscores. That is fewer than ``is_internal`` covers: earlier versions copied a log like ``_x``, which a
    program had created, into the lake, and the copies must still follow."""
    return not name.startswith("__")


def read_erasure(data: bytes) -> Erasure:
    """The event that a record of the log has."""
    return _decoder.decode(data)


#: A change that is to be told of: what became of which records of which log.
Told = tuple[Logbook, FrameType, Select]


class Erasures:
    """The engine's lock is held around everything in here."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        #: The log was made in the journal before this position.
        self._made_before = 0

    def write(self, frames: list[Encoded], told: Sequence[Told], now: int) -> Block | None:
        """Journal changes, if there is anything to journal of them, in one write with the events that tell of them;
        they are to be published."""
        engine = self._engine
        data = [event for one in told if _may_be_kept(one[0], one[2]) for event in _told(*one)]
        if not data:
            if len(frames) == 1:
                engine.journal.write(frames[0])
            elif frames:
                engine.journal.write_all(frames)
            return None
        found = engine.find(NAME)
        events = Logbook(NAME, engine.next_epoch, _CONFIG) if found is None else found.book
        block = Block.of_batch(events.assigned + 1, events.time_of(now), Batch(data))
        append = encode_append(events.epoch, block, now, block.last, None)
        if found is None or engine.journal.flushed < self._made_before:
            # A power cut may take any write that is not flushed yet. None is to depend on another one for its log.
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
        """Let readers see the events, once they are durable, and after the change if that waits as well."""
        if block is not None:
            events = self._engine.log(NAME).book
            publish_later(self._engine, events, block, block.size(0, len(block)), None)


def _may_be_kept(book: Logbook, select: Select) -> bool:
    """Whether somebody may have copies of such records. What is not in the log any more, because a cap or time took it,
    does not matter: the copies may still be there."""
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
