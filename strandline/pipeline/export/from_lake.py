"""Exports from the lake. Its files mix records of many logs, so Spark sorts the records first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from strandline.lake.files import read_lake_file
from strandline.lake.layout import records
from strandline.lake.location import Lake
from strandline.lake.reporter import Reporter
from strandline.lake.table import KnownFile
from strandline.pipeline.chosen_logs import wall_clock
from strandline.pipeline.export.files import ExportPart, Format, open_destination, write_part
from strandline.pipeline.export.run import PART_ROWS, STAGE, ExportFailed, ExportReport, ExportSelection, publish

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
