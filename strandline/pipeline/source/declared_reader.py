"""Reads a declared table of the lake: ``spark.read.format("strandline").option("table", …)``.

It needs no jar of Delta, so it works with every version of Spark. The version of the table is that of the time when the
query was planned.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from strandline.lake.declared import DeclaredFiles, rows_of
from strandline.lake.location import Lake
from strandline.nearest_name import did_you_mean
from strandline.pipeline.source.option_values import BadOption
from strandline.pipeline.source.options import ReadOptions


class DeclaredReader(DataSourceReader):
    """One task reads the table: which rows of its files are deleted is known for the table as a whole."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self.options = options
        self.schema = schema

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(_opened(self.options).version())]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        from pyspark.sql.pandas.types import to_arrow_schema

        target = to_arrow_schema(self.schema, timezone="UTC")
        table = _opened(self.options)
        table.load_as_version(partition.value)
        for batch in rows_of(table, self.schema.names):
            arrays = [column.cast(field.type) for column, field in zip(batch.columns, target, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=target)


def declared_schema(options: ReadOptions) -> Any:
    """The columns of the table, as a StructType. Raises BadOption for a table that does not exist."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(pa.schema(_opened(options).schema().to_arrow()))


def _opened(options: ReadOptions) -> DeltaTable:
    directory = Lake.at(options.lake).directory
    if directory is None:
        raise BadOption(f"lake {options.lake!r} is not a directory: declared tables are in a lake in a directory")
    files = DeclaredFiles.of(directory)
    assert options.table is not None
    table = files.find(options.table)
    if table is None:
        hint = did_you_mean(options.table, files.names())
        raise BadOption(f"there is no declared table {options.table!r} in the lake {options.lake}{hint}")
    return table
