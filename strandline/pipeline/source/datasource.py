"""The entry point for Spark. Everything else is imported when it is needed.

Spark imports every package whose name starts with ``pyspark_`` as soon as any source is used. So importing this must be
cheap and must not fail, whatever is missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

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
            from strandline.pipeline.source.catalog_table import carrying, declared, is_created
            from strandline.pipeline.source.options import read_options

            if not is_created(self.options):
                return offered_schema(read_options(self.options))
            options = declared(self.options)
            schema: StructType = carrying(offered_schema(read_options(options)), options)
            return schema

    def reader(self, schema: StructType) -> DataSourceReader:
        with _needing_packages():
            from strandline.pipeline.source.batch_reader import BatchReader, PushingReader, check_chosen

            options = self._read_options(schema, stream=False)
            check_chosen(schema, options)
            if options.table is not None:
                from strandline.pipeline.source.declared_reader import DeclaredReader

                return DeclaredReader(options, schema)
            return (PushingReader if options.pushdown else BatchReader)(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        with _needing_packages():
            from strandline.pipeline.source.batch_reader import check_chosen
            from strandline.pipeline.source.stream_reader import StreamReader

            options = self._read_options(schema, stream=True)
            # Typed columns may have changed since the stream started. Removed ones are null then.
            if options.payload != "columns":
                check_chosen(schema, options)
            return StreamReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        with _needing_packages():
            from strandline.pipeline.source.writer import BatchWriter

            return BatchWriter(self._write_options(schema), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        with _needing_packages():
            from strandline.pipeline.source.stream_writer import StreamWriter

            return StreamWriter(self._write_options(schema), schema, overwrite)

    def _read_options(self, schema: StructType, *, stream: bool) -> Any:
        from strandline.pipeline.source.catalog_table import completed
        from strandline.pipeline.source.options import read_options

        return read_options(completed(self.options, schema), stream=stream)

    def _write_options(self, schema: StructType) -> Any:
        from strandline.pipeline.source.catalog_table import completed
        from strandline.pipeline.source.options import write_options

        return write_options(completed(self.options, schema))
