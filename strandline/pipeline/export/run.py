"""An export from beginning to end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pyarrow as pa

from strandline.engine.errors import EngineError
from strandline.history.any_piece import AnyPiece
from strandline.history.http import ServerFailure
from strandline.history.log_info import LogInfo
from strandline.history.pieces import EVERYTHING, Where
from strandline.history.source import History
from strandline.lake.location import Lake
from strandline.pipeline.export.destination import Place, open_place
from strandline.pipeline.export.formats import Format, Part, write_part
from strandline.pipeline.round import Chosen, wall_clock
from strandline.pipeline.rounds import choose
from strandline.pipeline.status import Reporter
from strandline.pipeline.tasks import work

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STAGE = "export"
#: A file has about so many records: a task has one at a time in memory if it goes to an object store.
PART_ROWS = 500_000


class ExportFailed(Exception):
    """Nothing was exported. The message says why."""


class Selection(msgspec.Struct, frozen=True):
    """Which records of the chosen logs: from one seq to another, and of which times and key. Both seqs are included."""

    chosen: Chosen
    from_seq: int = 1
    to_seq: int | None = None
    where: Where = EVERYTHING


class ExportReport(msgspec.Struct, frozen=True, kw_only=True):
    """What is in an export; also kept with it."""

    target: str
    format: Format
    source: str
    #: Milliseconds since 1970.
    time: int
    records: int
    bytes: int
    #: How many records, by log.
    logs: dict[str, int]
    files: list[str]


class ExportItem(msgspec.Struct, array_like=True):
    place: Lake
    name: str
    format: Format
    pieces: list[AnyPiece]


class ItemExported(msgspec.Struct, array_like=True):
    """``failure`` says which records could not be read, and why."""

    part: Part | None = None
    failure: str = ""


def export(
    spark: SparkSession,
    history: History,
    target: str,
    format: Format,
    selection: Selection,
    reporter: Reporter,
    *,
    overwrite: bool = False,
    source: str = "",
    now: Callable[[], int] = wall_clock,
) -> ExportReport:
    """The records of logs as files, in the order of logs and seqs. What a fork shares is part of it. Everything is
    there in the end, or nothing: raises ExportFailed, TargetNotEmpty, UnknownLogs."""
    named = selection.chosen.logs
    every = [info for info in history.logs() if not info.name.startswith("__") or info.name in named]
    logs = choose(every, selection.chosen)
    total = sum(info.records for info in logs)
    with open_place(target, overwrite) as place, reporter.stage(STAGE, total) as stage:
        parts: list[Part] = []
        items = _items(place, format, _pieces(history, logs, selection))
        for wave in work(spark, export_item, items, ExportItem, ItemExported):
            failed = next((done.failure for done in wave if done.failure), "")
            if failed:
                raise ExportFailed(failed)
            written = [done.part for done in wave if done.part is not None]
            stage.advance(sum(part.rows for part in written), sum(part.size for part in written))
            parts += written
        return publish(place, parts, [info.name for info in logs], target, format, source, now())


def publish(
    place: Place, parts: Sequence[Part], logs: Iterable[str], target: str, format: Format, source: str, time: int
) -> ExportReport:
    """Put the parts in place, and say what is in them. Logs without records are told as well."""
    counts = dict.fromkeys(logs, 0)
    for part in parts:
        for log, count in part.logs.items():
            counts[log] = counts.get(log, 0) + count
    report = ExportReport(
        target=target,
        format=format,
        source=source,
        time=time,
        records=sum(part.rows for part in parts),
        bytes=sum(part.size for part in parts),
        logs=counts,
        files=sorted(part.name for part in parts),
    )
    place.publish(msgspec.json.format(msgspec.json.encode(report)))
    return report


def part_name(number: int, place: Place, format: Format) -> str:
    """Names are in the order of the records."""
    return f"part-{number:06d}{place.tag}.{format}"


def _pieces(history: History, logs: Iterable[LogInfo], selection: Selection) -> Iterator[AnyPiece]:
    for info in logs:
        through = info.head if selection.to_seq is None else min(selection.to_seq, info.head)
        found = history.pieces(info, selection.from_seq - 1, through, PART_ROWS, selection.where)
        yield from cast(Sequence[AnyPiece], found)


def _items(place: Place, format: Format, pieces: Iterable[AnyPiece]) -> Iterator[ExportItem]:
    """Small logs share a file."""
    number, rows = 0, 0
    gathered: list[AnyPiece] = []
    for piece in pieces:
        if gathered and rows + piece.rows > PART_ROWS:
            yield ExportItem(place.lake, part_name(number, place, format), format, gathered)
            number, rows, gathered = number + 1, 0, []
        gathered.append(piece)
        rows += piece.rows
    if gathered:
        yield ExportItem(place.lake, part_name(number, place, format), format, gathered)


def export_item(item: ExportItem) -> ItemExported:
    try:
        return ItemExported(write_part(item.place, item.name, item.format, _batches(item.pieces)))
    except _Unreadable as error:
        return ItemExported(failure=str(error))


class _Unreadable(Exception):
    pass


def _batches(pieces: Iterable[AnyPiece]) -> Iterator[Any]:
    for piece in pieces:
        try:
            yield from piece.read()
        except (EngineError, ServerFailure, pa.ArrowException) as error:
            raise _Unreadable(
                f"seqs {piece.first} to {piece.last} of log {piece.log!r} cannot be read: {error}"
            ) from error
