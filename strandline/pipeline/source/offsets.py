"""Offsets of a stream: the epoch and the last read seq of every log, and how much a micro-batch reads."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from strandline.history.log_info import LogInfo
from strandline.pipeline.source.option_values import PerLog
from strandline.pipeline.source.options import TriggerLimits

#: The size of a record of a log that has none of its own.
UNKNOWN_BYTES = 1024
#: How many dropped logs an offset keeps, besides those that are named one by one.
MAX_DROPPED = 1000


class Position(msgspec.Struct, frozen=True, omit_defaults=True):
    """``begin``: the log is new in this offset, and its records after this seq are read."""

    epoch: int
    seq: int
    begin: int | None = None


class Offset(msgspec.Struct, frozen=True, omit_defaults=True):
    """``directory`` identifies the data directory; empty before the first batch."""

    directory: str = ""
    logs: dict[str, Position] = {}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Offset:
        return msgspec.convert(document, cls)

    def document(self) -> dict[str, Any]:
        """Equal offsets must give equal text, because Spark takes any other text for a new offset."""
        ordered = {name: self.logs[name] for name in sorted(self.logs)}
        found: dict[str, Any] = msgspec.to_builtins(Offset(self.directory, ordered))
        return found


def shares(wanted: Mapping[str, int], budget: int, turn: int) -> dict[str, int]:
    """Divide a budget of records fairly among logs with ``wanted`` records. If the budget is smaller than the number of
    logs, the logs take turns: ``turn`` must grow by the number of records that were assigned."""
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


def heads(logs: Sequence[LogInfo], ends: PerLog) -> dict[str, tuple[int, int]]:
    """The seq up to which each log can be read, by name, with its epoch."""
    found = {}
    for log in logs:
        end = ends.of(log.name)
        found[log.name] = log.epoch, log.head if end is None else min(log.head, end)
    return found


def record_bytes(log: LogInfo) -> float:
    """The average size of the records of a log."""
    return max(log.size / log.records, 1.0) if log.records else float(UNKNOWN_BYTES)


def allotted(
    waiting: Mapping[str, int], limits: TriggerLimits, bytes_of: Mapping[str, float], turn: int
) -> dict[str, int]:
    """The number of records of each log in a micro-batch, of those that are waiting. The logs share both limits fairly,
    see ``shares``. At least one record is read."""
    given = dict(waiting) if limits.max_offsets is None else shares(waiting, limits.max_offsets, turn)
    if limits.max_bytes is None:
        return given
    wanted = {name: max(int(count * bytes_of[name]), 1) for name, count in given.items() if count > 0}
    sizes = shares(wanted, limits.max_bytes, turn)
    fitting = {name: min(given[name], int(size / bytes_of[name])) for name, size in sizes.items()}
    if wanted and not any(fitting.values()):
        names = sorted(wanted)
        return {names[turn % len(names)]: 1}
    return fitting


def dropped(before: Mapping[str, Position], there: Collection[str], named: Sequence[str]) -> dict[str, Position]:
    """The positions of logs that are gone. They are kept, so that a log that is created again is recognised: of the
    logs in ``named`` all, of the others the newest."""
    gone = {name: Position(at.epoch, at.seq) for name, at in before.items() if name not in there}
    others = sorted((name for name in gone if name not in named), key=lambda name: gone[name].epoch)
    for name in others[: max(len(others) - MAX_DROPPED, 0)]:
        del gone[name]
    return gone


def lag(waiting: Mapping[str, int], bytes_of: Mapping[str, float]) -> dict[str, Any]:
    """How far a stream is behind its logs: ``waiting`` has the number of unread seqs of every log."""
    counts = waiting.values()
    return {
        "offsetsBehindLatest": sum(counts),
        "bytesBehindLatest": round(sum(count * bytes_of[name] for name, count in waiting.items())),
        "minOffsetsBehindLatest": min(counts, default=0),
        "avgOffsetsBehindLatest": round(sum(counts) / len(waiting), 1) if waiting else 0.0,
        "maxOffsetsBehindLatest": max(counts, default=0),
        "furthestBehind": max(sorted(waiting), key=lambda name: waiting[name], default=None),
    }
