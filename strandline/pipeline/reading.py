"""The tables of the lake as Spark reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from strandline.lake.place import Lake
from strandline.lake.table import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def lake_table(spark: SparkSession, lake: Lake, name: str) -> DataFrame:
    """A table as it is now, without the column that it is partitioned by, if it is. Raises deltalake's
    TableNotFoundError.

    Spark itself does not know Delta tables. It is given the files that make up the table at this moment; those stay for
    as long as replaced files are kept, unless something is erased. Spark has to be able to read where the lake is.
    """
    table = Table(lake, name, None)
    opened = table.open()
    files = opened.file_uris()
    if files:
        return spark.read.parquet(*files)
    schema = pa.schema(opened.schema().to_arrow())
    kept = [name for name in schema.names if name not in opened.metadata().partition_columns]
    return spark.createDataFrame(schema.empty_table().select(kept))
