"""The msgpack bodies of frames, except the records of an append.

The structs are arrays in the file. To keep older files readable, new fields go to the end and have a default.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from msgspec import Raw

from strandline.engine.record import Config, Producer, Reason

_encoder = msgspec.msgpack.Encoder()
T = TypeVar("T")
_decoders: dict[Any, msgspec.msgpack.Decoder[Any]] = {}


def pack(value: object) -> bytes:
    return _encoder.encode(value)


def unpack(raw: bytes, type: type[T]) -> T:
    decoder = _decoders.get(type)
    if decoder is None:
        decoder = _decoders[type] = msgspec.msgpack.Decoder(type)
    result: T = decoder.decode(raw)
    return result


class Extras(msgspec.Struct, array_like=True, omit_defaults=True, gc=False):
    """Data that is written in the same frame as the records of an append, so that the two cannot disagree."""

    idempotency_key: str | None = None
    producer: Producer | None = None
    #: Changed notes of the log, packed; nil removes a note.
    notes: dict[str, Raw] | None = None


class ForkPoint(msgspec.Struct, array_like=True, frozen=True):
    """A fork starts with the records of the log ``epoch`` up to the seq ``through``. The fork's own records are not
    earlier than ``ts``."""

    epoch: int
    through: int
    ts: int


class Configure(msgspec.Struct, array_like=True):
    name: str
    config: Config
    #: The fork point, if the log is a fork.
    base: ForkPoint | None = None


class Select(msgspec.Struct, array_like=True, frozen=True):
    """Which records an operation affects: those up to ``bound`` that fulfil all given conditions."""

    bound: int
    before: int | None = None
    key: str | None = None
    prefix: str | None = None
    seqs: list[int] | None = None


class Floor(msgspec.Struct, array_like=True):
    ttl_floor: int
    cap_floor: int = 1


class GapBody(msgspec.Struct, array_like=True):
    last: int
    reason: Reason


class CursorMove(msgspec.Struct, array_like=True):
    """The new position of a cursor; None: the cursor was dropped."""

    name: str
    seq: int | None


#: The parts of a record that a target keeps in addition to the data.
KEEP_KEYS = 1
KEEP_NODES = 2


class ForwardTarget(msgspec.Struct, array_like=True):
    """One destination of forwarded records, and the position of the source's cursor afterwards.

    With an epoch of 0, only the cursor counts: the destination is not journaled, or its records are in appends of the
    same write.
    """

    epoch: int
    #: The seq of the first copy. The ``lost`` seqs before it are a gap.
    first: int
    lost: int
    #: The index of the selection in the frame; -1: none.
    selection: int
    flags: int
    reserved: int
    cursor: str
    through: int
    #: Replacements for the meta data of the source's records, one per record.
    metas: list[bytes | None] | None = None
    #: The time of the copies if it differs from the frame's time; otherwise 0.
    ts: int = 0


class Forward(msgspec.Struct, array_like=True):
    """``selections`` are inclusive ranges of the source's seqs. Every seq in them has a record."""

    selections: list[list[tuple[int, int]]]
    targets: list[ForwardTarget]

    def count(self, target: ForwardTarget) -> int:
        """Return how many records went to a target."""
        if target.selection < 0:
            return 0
        return sum(last - first + 1 for first, last in self.selections[target.selection])
