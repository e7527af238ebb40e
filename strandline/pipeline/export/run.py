"""Runs an export."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, cast

import msgspec
import pyarrow as pa

from strandline.client.errors import StrandlineError
from strandline.engine.errors import EngineError
from strandline.engine.record import is_internal
from strandline.history.log_info import LogInfo
from strandline.history.pieces import EVERYTHING, Where
from strandline.history.source import AnyPiece, History
from strandline.lake.location import Lake
from strandline.lake.reporter import Reporter
from strandline.pipeline.chosen_logs import Chosen, choose, wall_clock
from strandline.pipeline.export.files import Destination, ExportPart, Format, open_destination, write_part
from strandline.pipeline.tasks import Workers

STAGE = "export"
#: The approximate number of records of a file. A task holds one file in memory if it goes to an object store.
PART_ROWS = 500_000
#: From this number of records on, an export to a directory uses Spark if it is installed.
#: One core writes 800,000 records of 150 bytes per second to Parquet: it is done about when Spark would have started.
SPARK_FROM_RECORDS = 5_000_000


class ExportFailed(Exception):
    """Nothing was exported. The message gives the reason."""


class ExportSelection(msgspec.Struct, frozen=True):
    """Which records of the chosen logs to export: a range of seqs (inclusive), of times, and a key."""

    chosen: Chosen
    from_seq: int = 1
    to_seq: int | None = None
    where: Where = EVERYTHING


class ExportReport(msgspec.Struct, frozen=True, kw_only=True):
    """The content of an export. It is also stored with the export."""

    target: str
    format: Format
    source: str
    #: Milliseconds since 1970.
    time: int
    records: int
    bytes: int
    #: The number of records by log.
    logs: dict[str, int]
    files: list[str]


class ExportItem(msgspec.Struct, array_like=True):
    place: Lake
    name: str
    format: Format
    pieces: list[AnyPiece]
    #: Whether the file is written even without records.
    empty: bool = False


class ItemExported(msgspec.Struct, array_like=True):
    """``failure`` names the records that could not be read, and the reason."""

    part: ExportPart | None = None
    failure: str = ""


def export(
    workers: Workers,
    history: History,
    target: str,
    format: Format,
    selection: ExportSelection,
    reporter: Reporter,
    *,
    logs: list[LogInfo] | None = None,
    overwrite: bool = False,
    source: str = "",
    now: Callable[[], int] = wall_clock,
) -> ExportReport:
    """Write the records of logs to files, in the order of logs and seqs, including the shared records of forks. Exports
    everything or nothing. ``logs`` are those of :func:`chosen_logs`, if the caller has them. Raises ExportFailed,
    TargetNotEmpty, UnknownLogs."""
    logs = chosen_logs(history, selection) if logs is None else logs
    with open_destination(target, overwrite) as place, reporter.stage(STAGE, records_in(logs, selection)) as stage:
        parts: list[ExportPart] = []
        items = _items(place, format, _pieces(history, logs, selection))
        for wave in workers.waves(export_item, items, ExportItem, ItemExported):
            failed = next((done.failure for done in wave if done.failure), "")
            if failed:
                raise ExportFailed(failed)
            written = [done.part for done in wave if done.part is not None]
            stage.advance(sum(part.rows for part in written), sum(part.size for part in written))
            parts += written
        return publish(place, parts, [info.name for info in logs], target, format, source, now())


def chosen_logs(history: History, selection: ExportSelection) -> list[LogInfo]:
    """Internal logs only if they are named. Raises UnknownLogs."""
    named = selection.chosen.logs
    every = [info for info in history.logs() if not is_internal(info.name) or info.name in named]
    return choose(every, selection.chosen)


def records_in(logs: Iterable[LogInfo], selection: ExportSelection) -> int:
    """The maximum number of records that an export of these logs has."""
    return sum(_records_in(info, selection) for info in logs)


def _records_in(info: LogInfo, selection: ExportSelection) -> int:
    through = info.head if selection.to_seq is None else min(selection.to_seq, info.head)
    return max(min(info.records, through - selection.from_seq + 1), 0)


def publish(
    place: Destination,
    parts: Sequence[ExportPart],
    logs: Iterable[str],
    target: str,
    format: Format,
    source: str,
    time: int,
) -> ExportReport:
    """Publish the parts and the report. The report also lists logs without records."""
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
        files=[place.single] if place.single else sorted(part.name for part in parts),
    )
    place.publish(msgspec.json.format(msgspec.json.encode(report)))
    return report


def part_name(number: int, place: Destination, format: Format) -> str:
    """The names of parts sort in the order of the records."""
    return f"part-{number:06d}{place.tag}.{format}"


def _pieces(history: History, logs: Iterable[LogInfo], selection: ExportSelection) -> Iterator[AnyPiece]:
    for info in logs:
        through = info.head if selection.to_seq is None else min(selection.to_seq, info.head)
        found = history.pieces(info, selection.from_seq - 1, through, PART_ROWS, selection.where)
        yield from cast(Sequence[AnyPiece], found)


def _items(place: Destination, format: Format, pieces: Iterable[AnyPiece]) -> Iterator[ExportItem]:
    """Group pieces into files. Small logs share a file."""
    if place.single:
        yield ExportItem(place.lake, place.aside, format, list(pieces), empty=True)
        return
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
        return ItemExported(write_part(item.place, item.name, item.format, _batches(item.pieces), empty=item.empty))
    except _Unreadable as error:
        return ItemExported(failure=str(error))


class _Unreadable(Exception):
    pass


def _batches(pieces: Iterable[AnyPiece]) -> Iterator[Any]:
    for piece in pieces:
        try:
            yield from piece.read()
        except (EngineError, StrandlineError, pa.ArrowException) as error:
            raise _Unreadable(
                f"cannot read seqs {piece.first} to {piece.last} of log {piece.log!r}: {error}"
            ) from error
