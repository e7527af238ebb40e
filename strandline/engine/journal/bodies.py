"""What frames say, but for the records of an append: the bodies, in msgpack.

The structs are arrays in the file. A field that is added at the end, with a default, leaves older files readable.
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
    """What travels with an append besides its records, so that it can never disagree with them."""

    idempotency_key: str | None = None
    producer: Producer | None = None
    #: Notes of the log that change with it, packed; nil: the note is removed.
    notes: dict[str, Raw] | None = None


class ForkPoint(msgspec.Struct, array_like=True, frozen=True):
    """The log of this epoch up to the seq ``through`` is the beginning of another one, whose own records are not of an
    earlier time than ``ts``."""

    epoch: int
    through: int
    ts: int


class Configure(msgspec.Struct, array_like=True):
    name: str
    config: Config
    #: What the log was forked from.
    base: ForkPoint | None = None


class Select(msgspec.Struct, array_like=True, frozen=True):
    """Which records an operation means: those that fulfil every condition that is given, up to ``bound``."""

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
    """Where a cursor is now; None: it is dropped."""

    name: str
    seq: int | None


#: What a target takes over besides the data.
KEEP_KEYS = 1
KEEP_NODES = 2


class ForwardTarget(msgspec.Struct, array_like=True):
    """One destination of forwarded records, and the position of the cursor in the source after it.

    An epoch of 0 means that only the cursor counts: the destination is not journaled, or its records are in appends of
    the same write.
    """

    epoch: int
    #: The seq of the first copy. The ``lost`` seqs before it are a gap.
    first: int
    lost: int
    #: Which of the frame's selections, -1: none.
    selection: int
    flags: int
    reserved: int
    cursor: str
    through: int
    #: In place of the source's, one per record.
    metas: list[bytes | None] | None = None
    #: The time of the copies, where it is not the frame's; else 0.
    ts: int = 0


class Forward(msgspec.Struct, array_like=True):
    """``selections`` are inclusive ranges of the source's seqs; every seq in them has a record."""

    selections: list[list[tuple[int, int]]]
    targets: list[ForwardTarget]

    def count(self, target: ForwardTarget) -> int:
        """How many records went to a target."""
        if target.selection < 0:
            return 0
        return sum(last - first + 1 for first, last in self.selections[target.selection])
