"""Runs an export."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from strandline.client.errors import StrandlineError
from strandline.engine.errors import EngineError
from strandline.engine.record import is_internal
from strandline.history.log_info import LogInfo
from strandline.history.pieces import EVERYTHING, Where
from strandline.history.source import AnyPiece, History
from strandline.lake.files import read_lake_file
from strandline.lake.layout import records
from strandline.lake.location import Lake
from strandline.lake.reporter import Reporter
from strandline.lake.table import KnownFile
from strandline.pipeline.export.files import Destination, ExportPart, Format, open_destination, write_part
from strandline.pipeline.round import Chosen, choose, wall_clock
from strandline.pipeline.tasks import work

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STAGE = "export"
#: The approximate number of records of a file. A task holds one file in memory if it goes to an object store.
PART_ROWS = 500_000


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


class ItemExported(msgspec.Struct, array_like=True):
    """``failure`` names the records that could not be read, and the reason."""

    part: ExportPart | None = None
    failure: str = ""


def export(
    spark: SparkSession,
    history: History,
    target: str,
    format: Format,
    selection: ExportSelection,
    reporter: Reporter,
    *,
    overwrite: bool = False,
    source: str = "",
    now: Callable[[], int] = wall_clock,
) -> ExportReport:
    """Write the records of logs to files, in the order of logs and seqs, including the shared records of forks. Exports
    everything or nothing. Raises ExportFailed, TargetNotEmpty, UnknownLogs."""
    named = selection.chosen.logs
    every = [info for info in history.logs() if not is_internal(info.name) or info.name in named]
    logs = choose(every, selection.chosen)
    total = sum(info.records for info in logs)
    with open_destination(target, overwrite) as place, reporter.stage(STAGE, total) as stage:
        parts: list[ExportPart] = []
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
        files=sorted(part.name for part in parts),
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
        except (EngineError, StrandlineError, pa.ArrowException) as error:
            raise _Unreadable(
                f"cannot read seqs {piece.first} to {piece.last} of log {piece.log!r}: {error}"
            ) from error


# --- Export from the lake. Its files mix records of many logs, so Spark sorts the records first ---------------------

_COLUMNS = pa.schema(
    [
        pa.field("log", pa.string()),
        pa.field("epoch", pa.int64()),
        pa.field("seq", pa.int64()),
        pa.field("ts", pa.timestamp("us", tz="UTC")),
        pa.field("key", pa.string()),
        pa.field("node", pa.string()),
        pa.field("meta", pa.binary()),
        pa.field("data", pa.string()),
        pa.field("bytes", pa.binary()),
    ]
)
_PATHS = pa.schema([pa.field("path", pa.string(), nullable=False)])


def export_lake(
    spark: SparkSession,
    lake: Lake,
    target: str,
    format: Format,
    selection: ExportSelection,
    reporter: Reporter,
    *,
    overwrite: bool = False,
    now: Callable[[], int] = wall_clock,
) -> ExportReport:
    """Export the records of the chosen logs in the lake, including those that retention removed from the logs. Forks
    have only their own records. Raises ExportFailed, TargetNotEmpty."""
    from pyspark.sql.pandas.types import from_arrow_schema

    files = [file for file in records(lake).files() if _may_have(file, selection)]
    rows = sum(file.rows for file in files)
    with open_destination(target, overwrite) as place, reporter.stage(STAGE, rows) as stage:
        parts: list[ExportPart] = []
        if files:
            read = _Reading(lake, msgspec.json.encode(selection))
            paths = spark.createDataFrame(pa.table({"path": [file.path for file in files]}, schema=_PATHS))
            found = paths.repartition(len(files)).mapInArrow(read, from_arrow_schema(_COLUMNS))
            order = ["log", "epoch", "seq"]
            ordered = found.repartitionByRange(max(rows // PART_ROWS, 1), *order).sortWithinPartitions(*order)
            done = ordered.mapInArrow(_Writing(place.lake, place.tag, format), "part binary").toArrow()
            parts = [msgspec.msgpack.decode(part, type=ExportPart) for part in done.column("part").to_pylist()]
        stage.advance(sum(part.rows for part in parts), sum(part.size for part in parts))
        missing = set(selection.chosen.logs) - {log for part in parts for log in part.logs}
        if missing:
            raise ExportFailed(f"the lake at {lake.url} has no matching records of {', '.join(sorted(missing))}")
        return publish(place, parts, (), target, format, lake.url, now())


def _may_have(file: KnownFile, selection: ExportSelection) -> bool:
    logs, seqs = file.bounds.get("log"), file.bounds.get("seq")
    names = selection.chosen.logs
    if logs is not None and names and not any(logs[0] <= name <= logs[1] for name in names):
        return False
    if seqs is not None:
        return bool(seqs[1] >= selection.from_seq and (selection.to_seq is None or seqs[0] <= selection.to_seq))
    return True


def _condition(selection: ExportSelection) -> Any:
    condition = pc.field("seq") >= selection.from_seq
    if selection.to_seq is not None:
        condition &= pc.field("seq") <= selection.to_seq
    if selection.chosen.logs:
        condition &= pc.field("log").isin(list(selection.chosen.logs))
    if selection.chosen.prefix:
        condition &= pc.starts_with(pc.field("log"), selection.chosen.prefix)
    where = selection.where
    if where.since is not None:
        condition &= pc.field("ts") >= _time(where.since)
    if where.until is not None:
        condition &= pc.field("ts") < _time(where.until)
    if where.key is not None:
        condition &= pc.field("key") == where.key
    return condition


def _time(milliseconds: int) -> Any:
    return pa.scalar(milliseconds * 1000, pa.timestamp("us", tz="UTC"))


class _Reading:
    """Runs in a task: reads files of the table and yields their records."""

    def __init__(self, lake: Lake, selection: bytes) -> None:
        self._lake = lake
        self._selection = selection

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        condition = _condition(msgspec.json.decode(self._selection, type=ExportSelection))
        for batch in batches:
            for path in batch.column("path").to_pylist():
                for found in read_lake_file(self._lake, f"records/{path}", _COLUMNS.names, condition):
                    yield pa.record_batch(found.columns, schema=_COLUMNS)


class _Writing:
    """Runs in a task: writes ordered records to a file and yields a summary."""

    def __init__(self, place: Lake, tag: str, format: Format) -> None:
        self._place = place
        self._tag = tag
        self._format = format

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        name = f"part-{context.partitionId():06d}{self._tag}.{self._format}"
        part = write_part(self._place, name, self._format, batches)
        if part is not None:
            yield pa.record_batch([pa.array([msgspec.msgpack.encode(part)], pa.binary())], ["part"])
