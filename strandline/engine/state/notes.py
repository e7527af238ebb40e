"""Notes: small named values that a protocol keeps with a log, changed together with an append or by themselves.

A note is kept twice, as a value for those who ask and as the bytes that frames and checkpoints carry, so that writing a
state down costs nothing more than copying references.
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
#: A note whose name begins with this is a secret: nothing that prints a directory shows its value.
SECRET = "secret"
#: All notes of a log together, names included: they are in memory, and in every checkpoint of a log that changed.
MAX_NOTES_BYTES = 1 << 20

#: How a frame says that a note is removed.
NOTHING = pack(None)
NO_VALUES: Mapping[str, Any] = MappingProxyType({})


class Notes(NamedTuple):
    """Never changed: a change makes another one, in which the values of the names that it leaves alone are the same
    objects."""

    values: Mapping[str, Any]
    packed: Mapping[str, bytes]

    @classmethod
    def of(cls, packed: Mapping[str, Raw]) -> Notes | None:
        return changed(None, packed)

    def raw(self) -> dict[str, Raw]:
        """As frames carry them."""
        return {name: Raw(packed) for name, packed in self.packed.items()}


def changed(notes: Notes | None, changes: Mapping[str, Raw]) -> Notes | None:
    """The notes after these changes; None when there are none left."""
    values = {} if notes is None else dict(notes.values)
    packed = {} if notes is None else dict(notes.packed)
    same = True
    for name, raw in changes.items():
        # A copy: what was read from a file refers to all of the frame.
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
    """The changes as frames carry them; raises BadRequest for a bad name, and for a value that cannot be written."""
    checked: dict[str, Raw] = {}
    for name, value in changes.items():
        _check_name(name)
        try:
            packed = pack(value)
            unpack(packed, object)
        except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
            raise BadRequest(f"note {name!r} cannot be kept: {error}") from None
        checked[name] = Raw(packed)
    return checked


def _check_name(name: str) -> None:
    if type(name) is not str or not 1 <= len(name) <= MAX_NAME or any("\ud800" <= c <= "\udfff" for c in name):
        raise BadRequest(f"a note's name must be Unicode text of 1 to {MAX_NAME} characters")


def check_fits(notes: Notes | None, changes: Mapping[str, Raw]) -> None:
    """Raise BadRequest if with these changes a log had more notes than it may have."""
    sizes = {} if notes is None else {name: _size(name, packed) for name, packed in notes.packed.items()}
    sizes |= {name: _size(name, bytes(raw)) for name, raw in changes.items()}
    total = sum(sizes.values())
    if total > MAX_NOTES_BYTES:
        raise BadRequest(f"the notes of the log would have {total} bytes, the limit is {MAX_NOTES_BYTES}")


def _size(name: str, packed: bytes) -> int:
    return 0 if packed == NOTHING else len(name.encode()) + len(packed)
