"""How far a stream has come: for every log its epoch and the last seq that was read.

An offset is written down by Spark before the batch that ends there, and is all that a repetition of the batch has to go
by. So where a log is read from for the first time (``begin``) is part of the offset in which it appears: a repetition
begins at the same place, although by then "the latest" is another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from strandline.history.info import LogInfo


class Position(msgspec.Struct, frozen=True, omit_defaults=True):
    """``begin``: the log is new in this offset, and what is read of it lies behind this seq."""

    epoch: int
    seq: int
    begin: int | None = None


class Offset(msgspec.Struct, frozen=True, omit_defaults=True):
    """``directory`` is which data directory it is of; empty before the first batch."""

    directory: str = ""
    logs: dict[str, Position] = {}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Offset:
        return msgspec.convert(document, cls)

    def document(self) -> dict[str, Any]:
        """Equal offsets give equal text: Spark takes any other text for something new."""
        ordered = {name: self.logs[name] for name in sorted(self.logs)}
        found: dict[str, Any] = msgspec.to_builtins(Offset(self.directory, ordered))
        return found


def shares(wanted: Mapping[str, int], budget: int, turn: int) -> dict[str, int]:
    """A budget of records among logs that have so many each: nobody gets more than needed, and nobody less than others
    who need as much. When there is not one for each, it is the turn of others next time: ``turn`` is to grow by what
    was given out."""
    waiting = sorted(name for name, count in wanted.items() if count > 0)
    if not waiting:
        return {}
    if budget < len(waiting):
        start = turn % len(waiting)
        return dict.fromkeys((waiting + waiting)[start : start + budget], 1)
    given: dict[str, int] = {}
    for place, name in enumerate(sorted(waiting, key=lambda each: wanted[each])):
        fair = budget // (len(waiting) - place)
        given[name] = min(wanted[name], fair)
        budget -= given[name]
    return given


def heads(logs: Sequence[LogInfo], through: int | None) -> dict[str, tuple[int, int]]:
    """Up to where each log can be read, by name, with its epoch."""
    return {log.name: (log.epoch, log.head if through is None else min(log.head, through)) for log in logs}
