"""Plans a query: the filters that the source applies itself, the records to read, and their distribution over tasks.

All filters apply together. Accepted filters are applied exactly, so that Spark does not have to check again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from strandline.engine.errors import UnknownLog
from strandline.engine.record import is_internal
from strandline.history.log_info import LogInfo
from strandline.history.pieces import Piece, SegmentPiece, Where
from strandline.history.source import History
from strandline.pipeline.source.options import LogLocation, ReadOptions

#: The maximum number of keys that are looked up one by one. With more, reading everything and filtering is faster.
MAX_KEYS = 16

_EQUAL = (EqualTo, EqualNullSafe)
_COMPARISONS = (GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)
#: Columns that are never null.
_ALWAYS_THERE = ("log", "epoch", "seq", "ts")


class PushedFilters(msgspec.Struct):
    """None means no condition. ``through`` and ``since`` are inclusive, ``after`` and ``until`` exclusive."""

    logs: frozenset[str] | None = None
    prefixes: list[str] = []
    epochs: frozenset[int] | None = None
    after: int = 0
    through: int | None = None
    since: int | None = None
    until: int | None = None
    keys: frozenset[str] | None = None

    def has_log(self, name: str, epoch: int) -> bool:
        return (
            (self.logs is None or name in self.logs)
            and (self.epochs is None or epoch in self.epochs)
            and all(name.startswith(prefix) for prefix in self.prefixes)
        )

    # --- adding filters --------------------------------------------------------------------------------------------

    def take(self, filters: Iterable[Filter]) -> Iterable[Filter]:
        """Apply filters. Returns those that are left for Spark."""
        left = [each for each in filters if not self._take(each)]
        return [each for each in left if not self._is_implied(each)]

    def _is_implied(self, each: Filter) -> bool:
        return isinstance(each, IsNotNull) and (
            each.attribute in [(name,) for name in _ALWAYS_THERE]
            or (each.attribute == ("key",) and self.keys is not None)
        )

    def _take(self, each: Any) -> bool:
        if len(getattr(each, "attribute", ())) != 1:
            return False
        column = each.attribute[0]
        if isinstance(each, (*_EQUAL, In)):
            values = [each.value] if isinstance(each, _EQUAL) else [value for value in each.value if value is not None]
            return None not in values and self._equals(column, values)
        if isinstance(each, StringStartsWith) and column == "log":
            self.prefixes = [*self.prefixes, each.value]
            return True
        return isinstance(each, _COMPARISONS) and each.value is not None and self._compares(column, each)

    def _equals(self, column: str, values: Sequence[Any]) -> bool:
        if column == "log":
            self.logs = _both(self.logs, values)
        elif column == "epoch":
            self.epochs = _both(self.epochs, values)
        elif column == "key" and len(values) <= MAX_KEYS:
            self.keys = _both(self.keys, values)
        elif column in ("seq", "ts") and len(values) == 1:
            for kind in (GreaterThanOrEqual, LessThanOrEqual):
                if not self._compares(column, kind((column,), values[0])):
                    return False
        else:
            return False
        return True

    def _compares(self, column: str, each: Any) -> bool:
        if column == "seq":
            self._narrow_seq(each, int(each.value))
            return True
        if column == "ts" and isinstance(each.value, datetime):
            self._narrow_time(each, each.value)
            return True
        return False

    def _narrow_seq(self, each: Any, value: int) -> None:
        if isinstance(each, (GreaterThan, GreaterThanOrEqual)):
            self.after = max(self.after, value if isinstance(each, GreaterThan) else value - 1)
        else:
            last = value - 1 if isinstance(each, LessThan) else value
            self.through = last if self.through is None else min(self.through, last)

    def _narrow_time(self, each: Any, value: datetime) -> None:
        """Record times are whole milliseconds; filter times may be finer."""
        microseconds = _microseconds(value)
        if isinstance(each, (GreaterThan, LessThanOrEqual)):
            bound = microseconds // 1000 + 1
        else:
            bound = -(-microseconds // 1000)
        if isinstance(each, (GreaterThan, GreaterThanOrEqual)):
            self.since = bound if self.since is None else max(self.since, bound)
        else:
            self.until = bound if self.until is None else min(self.until, bound)


def _both(before: frozenset[Any] | None, values: Sequence[Any]) -> frozenset[Any]:
    found = frozenset(values)
    return found if before is None else before & found


def _microseconds(value: datetime) -> int:
    passed = (value if value.tzinfo else value.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
    return (passed.days * 86_400 + passed.seconds) * 1_000_000 + passed.microseconds


# --- The records that a query reads, and their distribution over tasks ----------------------------------------------


class Work(msgspec.Struct, array_like=True):
    """The work of one task. ``pieces`` are all remote or all local. ``registries`` are those of the logs, by epoch, as
    far as they are needed. ``lenient``: report missing records instead of failing."""

    place: LogLocation
    remote: bool
    pieces: list[msgspec.Raw]
    registries: dict[int, bytes] = {}
    lenient: bool = False
    fail_on_data_loss: bool = False

    def opened(self) -> list[Any]:
        decode = msgspec.msgpack.Decoder(_kind(self.remote)).decode
        return [decode(piece) for piece in self.pieces]


def _kind(remote: bool) -> Any:
    if not remote:
        return SegmentPiece
    # Imported only when needed: reading from a directory does not need HTTP.
    from strandline.history.remote import ServerPiece

    return ServerPiece


class ReadRange(msgspec.Struct):
    """Records of a log after ``after`` up to ``through``."""

    log: LogInfo
    after: int
    through: int


def chosen_logs(history: History, options: ReadOptions, *, all_there: bool) -> list[LogInfo]:
    """The logs that the options select. With ``all_there``, a missing log raises UnknownLog."""
    if options.logs is None:
        # Internal logs are read only if they are selected by name or prefix.
        own = is_internal(options.prefix)
        return [
            log
            for log in history.logs(options.prefix)
            if options.selects(log.name) and (own or not is_internal(log.name))
        ]
    found = []
    for name in options.logs:
        try:
            found.append(history.log(name))
        except UnknownLog:
            if all_there:
                raise
    return found


def stretch_of(log: LogInfo, options: ReadOptions, wanted: PushedFilters) -> ReadRange | None:
    """The range of a log that a batch reads, or None."""
    after = max(options.after(log.name), wanted.after, log.own_after if options.own else 0, log.earliest - 1)
    ends = [end for end in (log.head, options.ends.of(log.name), wanted.through) if end is not None]
    return ReadRange(log, after, min(ends)) if after < min(ends) else None


def wheres(options: ReadOptions, wanted: PushedFilters, log: str) -> list[Where]:
    """The conditions on records of a log: one for each key, or none if no record can meet them."""
    since = max((each for each in (options.since.of(log), wanted.since, 0) if each is not None), default=0)
    until = min((each for each in (options.until.of(log), wanted.until) if each is not None), default=None)
    if until is not None and until <= since:
        return []
    chosen = [each for each in (options.keys, wanted.keys) if each is not None]
    keys: Iterable[str | None] = sorted(frozenset.intersection(*chosen)) if chosen else [None]
    return [Where(key, since or None, until) for key in keys]


def works(
    history: History,
    stretches: Sequence[ReadRange],
    wanted: PushedFilters,
    options: ReadOptions,
    *,
    registries: dict[int, bytes] | None = None,
    stream: bool = False,
) -> list[bytes]:
    """The encoded work of the tasks. Pieces of small logs share a task."""
    encode = msgspec.msgpack.Encoder().encode
    remote = bool(options.place.url)
    found: list[bytes] = []
    for pieces in _tasks(history, stretches, wanted, options):
        epochs = {piece.epoch for piece in pieces}
        work = Work(
            options.place,
            remote,
            [msgspec.Raw(encode(piece)) for piece in pieces],
            {epoch: stored for epoch, stored in (registries or {}).items() if epoch in epochs},
            stream,
            stream and options.fail_on_data_loss,
        )
        found.append(encode(work))
    return found


def _tasks(
    history: History, stretches: Sequence[ReadRange], wanted: PushedFilters, options: ReadOptions
) -> Iterator[list[Piece]]:
    """The pieces of each task. Logs share tasks, unless the number of splits per log is given."""

    def pieces(stretch: ReadRange, rows: int) -> Iterator[Piece]:
        for where in wheres(options, wanted, stretch.log.name):
            yield from history.pieces(stretch.log, stretch.after, stretch.through, rows, where, own=options.own)

    splits, rows = options.splits_per_log, options.rows_per_partition
    if splits is None:
        yield from _grouped((piece for stretch in stretches for piece in pieces(stretch, rows)), rows)
        return
    for stretch in stretches:
        rows = max(-(-(stretch.through - stretch.after) // splits), 1)
        found = list(pieces(stretch, rows))
        yield from _grouped(found, max(-(-sum(piece.rows for piece in found) // splits), 1))


def _grouped(pieces: Iterable[Piece], rows: int) -> Iterator[list[Piece]]:
    group: list[Piece] = []
    count = 0
    for piece in pieces:
        # A piece goes to the group that it mostly belongs to, so that groups do not become too small.
        if group and count + piece.rows / 2 > rows:
            yield group
            group, count = [], 0
        group.append(piece)
        count += piece.rows
    if group:
        yield group
