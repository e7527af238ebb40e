"""The entry point for Spark. Everything else is imported when it is needed.

Spark imports every package whose name starts with ``pyspark_`` as soon as any source is used. So importing this must be
cheap and must not fail, whatever is missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

NAME = "strandline"


class PackageMissing(ImportError):
    """A package is not installed where Spark runs its Python workers."""


@contextmanager
def _needing_packages() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise PackageMissing(
            f"the data source {NAME!r} needs the Python package {error.name!r}, which is not installed where Spark "
            "runs its Python workers: pip install 'strandline[spark]' there, on every machine of the cluster"
        ) from error


class StrandlineSource(DataSource):
    """``format("strandline")``. ``docs/reference/python/spark.md`` lists its options."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        with _needing_packages():
            from strandline.pipeline.source.batch_reader import offered_schema
            from strandline.pipeline.source.options import read_options

            return offered_schema(read_options(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        with _needing_packages():
            from strandline.pipeline.source.batch_reader import BatchReader, PushingReader, check_chosen
            from strandline.pipeline.source.options import read_options

            options = read_options(self.options, stream=False)
            check_chosen(schema, options)
            return (PushingReader if options.pushdown else BatchReader)(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        with _needing_packages():
            from strandline.pipeline.source.batch_reader import check_chosen
            from strandline.pipeline.source.options import read_options
            from strandline.pipeline.source.stream_reader import StreamReader

            options = read_options(self.options, stream=True)
            # Typed columns may have changed since the stream started. Removed ones are null then.
            if options.payload != "columns":
                check_chosen(schema, options)
            return StreamReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        with _needing_packages():
            from strandline.pipeline.source.options import write_options
            from strandline.pipeline.source.writer import BatchWriter

            return BatchWriter(write_options(self.options, stream=False), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        with _needing_packages():
            from strandline.pipeline.source.options import write_options
            from strandline.pipeline.source.writer import StreamWriter

            return StreamWriter(write_options(self.options, stream=True), schema, overwrite)
