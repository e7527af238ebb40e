"""Reads logs as a batch: ``spark.read.format("strandline")``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from strandline.history.log_info import LogInfo
from strandline.history.source import History
from strandline.pipeline.source.columns import NoColumns, check_schema, chosen, frame_schema, payload_columns
from strandline.pipeline.source.options import ReadOptions
from strandline.pipeline.source.plan import PushedFilters, chosen_logs, stretch_of, works
from strandline.pipeline.source.task_reader import opened, read_work


class BatchReader(DataSourceReader):
    """Created in the process that plans the query. Each task reads with a copy."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self.options = options
        self.schema = schema
        self.wanted = PushedFilters()

    def partitions(self) -> list[InputPartition]:
        options, wanted = self.options, self.wanted
        history = opened(options.place)
        logs = [log for log in chosen_logs(history, options, all_there=True) if wanted.has_log(log.name, log.epoch)]
        stretches = [each for log in logs if (each := stretch_of(log, options, wanted)) is not None]
        encoded = works(history, stretches, wanted, options, registries=registries(logs, options))
        return [InputPartition(work) for work in encoded]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if partition.value is None:
            # Spark passes None when there are no partitions.
            return iter(())
        return read_work(partition.value, self.schema, self.options.payload, self.options.batch_rows)


class PushingReader(BatchReader):
    """A reader that accepts filters from Spark. Users must enable it.

    Spark 4.3 keeps the plan of a reader with the loaded DataFrame and not with the scan it was planned for. So anything
    else that is derived from that DataFrame, in the same query or later, silently lacks the rows that these filters
    excluded. If a DataFrame is used once, that does not matter, and much less data is read.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        return self.wanted.take(filters)


def offered_schema(options: ReadOptions) -> StructType:
    """The available columns. Only typed columns require a look at the logs, and declared tables one at the lake."""
    if options.table is not None:
        # Only what it needs: workers that read logs may not have Delta's package.
        from strandline.pipeline.source.declared_reader import declared_schema

        return chosen(declared_schema(options), options.columns)
    if options.payload != "columns":
        return chosen(frame_schema(options.payload), options.columns)
    return chosen(_typed_schema(options, opened(options.place)), options.columns)


def _typed_schema(options: ReadOptions, history: History) -> StructType:
    found: Mapping[str, Any] = {
        log.name: payload_columns(log.name, log.registry).schema
        for log in chosen_logs(history, options, all_there=True)
    }
    if not found:
        raise NoColumns(
            f"payload=columns needs at least one log to take the columns from; none found at {options.place}"
        )
    first = next(iter(found))
    for name, columns in found.items():
        if not columns.equals(found[first]):
            raise NoColumns(
                f"payload=columns needs logs with the same schema, but those of {first!r} and {name!r} differ: "
                "read one of them, or use payload=string or payload=variant"
            )
    return frame_schema("columns", found[first])


def registries(logs: Iterable[LogInfo], options: ReadOptions) -> dict[int, bytes]:
    """The registries that tasks need. Raises NoColumns for a log without a schema."""
    if options.payload != "columns":
        return {}
    found = {}
    for log in logs:
        payload_columns(log.name, log.registry)
        assert log.registry is not None
        found[log.epoch] = log.registry
    return found


def check_chosen(schema: StructType, options: ReadOptions) -> None:
    """Raises NoColumns if the user's schema has anything but the available columns."""
    check_schema(schema, offered_schema(options))
