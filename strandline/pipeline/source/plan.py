"""Which records a query reads, and how they are spread over tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from strandline.engine.errors import UnknownLog
from strandline.history.log_info import LogInfo
from strandline.history.pieces import Piece, SegmentPiece, Where
from strandline.history.source import History
from strandline.pipeline.source.filters import Wanted
from strandline.pipeline.source.options import Place, ReadOptions

#: The server's own logs begin so; they are read when they are asked for by name or prefix.
OWN = "_"


class Work(msgspec.Struct, array_like=True):
    """What one task reads. ``pieces`` are of one kind, by ``remote``; ``registries`` are those of the logs, by epoch,
    as far as they are needed. ``lenient``: that something is gone is told, and no error."""

    place: Place
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
    # Whoever reads from a directory needs nothing that speaks HTTP.
    from strandline.history.remote import ServerPiece

    return ServerPiece


class Stretch(msgspec.Struct):
    """Records of a log, from behind ``after`` up to ``through``."""

    log: LogInfo
    after: int
    through: int


def chosen_logs(history: History, options: ReadOptions, *, all_there: bool) -> list[LogInfo]:
    """The logs that the options name; with ``all_there`` a log that is not there is an error, UnknownLog."""
    if options.logs is None:
        own = options.prefix.startswith(OWN)
        return [log for log in history.logs(options.prefix) if own or not log.name.startswith(OWN)]
    found = []
    for name in options.logs:
        try:
            found.append(history.log(name))
        except UnknownLog:
            if all_there:
                raise
    return found


def stretch_of(log: LogInfo, options: ReadOptions, wanted: Wanted) -> Stretch | None:
    """What a batch reads of a log; None: nothing."""
    after = max(options.after, wanted.after, log.own_after if options.own else 0, log.earliest - 1)
    ends = [end for end in (log.head, options.through, wanted.through) if end is not None]
    return Stretch(log, after, min(ends)) if after < min(ends) else None


def wheres(options: ReadOptions, wanted: Wanted) -> list[Where]:
    """The conditions on records: one for each key, and none if nothing can meet them."""
    since = max((each for each in (options.since, wanted.since, 0) if each is not None), default=0)
    until = min((each for each in (options.until, wanted.until) if each is not None), default=None)
    if until is not None and until <= since:
        return []
    chosen = [each for each in (options.keys, wanted.keys) if each is not None]
    keys: Iterable[str | None] = sorted(frozenset.intersection(*chosen)) if chosen else [None]
    return [Where(key, since or None, until) for key in keys]


def works(
    history: History,
    stretches: Sequence[Stretch],
    conditions: Sequence[Where],
    options: ReadOptions,
    *,
    registries: dict[int, bytes] | None = None,
    stream: bool = False,
) -> list[bytes]:
    """The tasks' work, encoded. Pieces of small logs share a task."""
    encode = msgspec.msgpack.Encoder().encode
    remote = bool(options.place.url)
    found: list[bytes] = []
    for pieces in _tasks(history, stretches, conditions, options):
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
    history: History, stretches: Sequence[Stretch], conditions: Sequence[Where], options: ReadOptions
) -> Iterator[list[Piece]]:
    """Logs share tasks, unless it was said into how many each of them is to be split."""

    def pieces(stretch: Stretch, rows: int) -> Iterator[Piece]:
        for where in conditions:
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
        # A piece goes where most of it belongs, so that groups do not fall short of what they are to be.
        if group and count + piece.rows / 2 > rows:
            yield group
            group, count = [], 0
        group.append(piece)
        count += piece.rows
    if group:
        yield group
