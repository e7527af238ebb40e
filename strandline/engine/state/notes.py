"""Notes: small named values that a protocol stores with a log, changed together with an append or by themselves.

A note is stored twice, as a value for readers and as the bytes for frames and checkpoints, so that writing a state only
copies references.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from strandline.engine.errors import BadRequest
from strandline.engine.journal.bodies import pack, unpack

MAX_NAME = 64
#: Notes whose names start with this are secret: tools that print a directory do not show their values.
SECRET = "secret"
#: The limit for all notes of a log together, including names: they are in memory, and in every checkpoint of a changed
#: log.
MAX_NOTES_BYTES = 1 << 20

#: Marks a removed note in a frame.
NOTHING = pack(None)
NO_VALUES: Mapping[str, Any] = MappingProxyType({})


class Notes(NamedTuple):
    """Immutable. A change creates a new object that keeps the value objects of unchanged names."""

    values: Mapping[str, Any]
    packed: Mapping[str, bytes]

    @classmethod
    def of(cls, packed: Mapping[str, Raw]) -> Notes | None:
        return changed(None, packed)

    def raw(self) -> dict[str, Raw]:
        """The notes as stored in frames."""
        return {name: Raw(packed) for name, packed in self.packed.items()}


def changed(notes: Notes | None, changes: Mapping[str, Raw]) -> Notes | None:
    """Return the notes after these changes; None if there are none left."""
    values = {} if notes is None else dict(notes.values)
    packed = {} if notes is None else dict(notes.packed)
    same = True
    for name, raw in changes.items():
        # Copy the bytes: a value that was read from a file keeps the whole frame in memory.
        new = bytes(raw)
        if new == NOTHING:
            same = packed.pop(name, None) is None and same
            values.pop(name, None)
        elif packed.get(name) != new:
            same = False
            values[name], packed[name] = unpack(new, object), new
    if same:
        return notes
    return Notes(MappingProxyType(values), packed) if packed else None


def check_changes(changes: Mapping[str, Any]) -> dict[str, Raw]:
    """Return the changes as stored in frames. Raises BadRequest for an invalid name, and for a value that cannot be
    encoded."""
    checked: dict[str, Raw] = {}
    for name, value in changes.items():
        _check_name(name)
        try:
            packed = pack(value)
            unpack(packed, object)
        except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
            raise BadRequest(f"note {name!r} cannot be stored: {error}") from None
        checked[name] = Raw(packed)
    return checked


def _check_name(name: str) -> None:
    if type(name) is not str or not 1 <= len(name) <= MAX_NAME or any("\ud800" <= c <= "\udfff" for c in name):
        raise BadRequest(f"a note's name must be Unicode text of 1 to {MAX_NAME} characters")


def check_fits(notes: Notes | None, changes: Mapping[str, Raw]) -> None:
    """Raise BadRequest if these changes exceed the limit for the notes of a log."""
    sizes = {} if notes is None else {name: _size(name, packed) for name, packed in notes.packed.items()}
    sizes |= {name: _size(name, bytes(raw)) for name, raw in changes.items()}
    total = sum(sizes.values())
    if total > MAX_NOTES_BYTES:
        raise BadRequest(f"the notes of the log would have {total} bytes; the limit is {MAX_NOTES_BYTES}")


def _size(name: str, packed: bytes) -> int:
    return 0 if packed == NOTHING else len(name.encode()) + len(packed)
