"""Names of tables in queries: what ``orders`` and ``STREAM orders`` are while a query is evaluated.

A log or a table can be read as a stream and as it is now, under one name. Spark's temporary views are either the one or
the other, and its catalog cannot hold a Python data source beside Delta tables. So the names are resolved here: in
``spark.table``, ``spark.read.table`` and ``spark.readStream.table``, and in the text of SQL, where Spark's parser says
which names it has and where they are.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol
from uuid import uuid4

from pyspark.sql import DataFrameReader, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamReader

from strandline.pipeline.declared.statements import View, named_tables, substituted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Methods of Spark's classes are replaced while a query is evaluated, for the thread that evaluates it.
_lock = threading.RLock()
_TABLE, _SQL = SparkSession.table, SparkSession.sql
_READ_TABLE, _STREAM_TABLE = DataFrameReader.table, DataStreamReader.table


class TableNames(Protocol):
    def frame(self, name: str, streaming: bool) -> DataFrame:
        """A log or a table, as a stream or as it is now. Raises BadProject if there is none of this name."""


@contextmanager
def resolving(spark: SparkSession, names: TableNames) -> Iterator[None]:
    """Queries that this thread evaluates in the context read tables by these names. Names with a catalog or a database
    are Spark's own."""
    thread = threading.get_ident()
    with _lock:
        active = spark._jvm.SparkSession.getActiveSession()  # type: ignore[union-attr]
        spark._jvm.SparkSession.setActiveSession(spark._jsparkSession)  # type: ignore[union-attr]
        before = SparkSession.table, SparkSession.sql, DataFrameReader.table, DataStreamReader.table

        def by_name(original: Callable[..., DataFrame], streaming: bool) -> Callable[..., DataFrame]:
            def resolve(self: Any, tableName: str) -> DataFrame:  # noqa: N803
                name = _single(tableName)
                if threading.get_ident() != thread or name is None:
                    return original(self, tableName)
                return names.frame(name, streaming)

            return resolve

        def run(self: SparkSession, sqlQuery: str, *args: Any, **kwargs: Any) -> DataFrame:  # noqa: N803
            if threading.get_ident() != thread:
                return _SQL(self, sqlQuery, *args, **kwargs)
            # A query over a part of a batch runs in the session of the batch, whichever session its file names.
            return _sql(spark, sqlQuery, names, lambda text: _SQL(spark, text, *args, **kwargs))

        SparkSession.table = by_name(_TABLE, False)  # type: ignore[method-assign]
        SparkSession.sql = run  # type: ignore[method-assign]
        DataFrameReader.table = by_name(_READ_TABLE, False)  # type: ignore[method-assign]
        DataStreamReader.table = by_name(_STREAM_TABLE, True)  # type: ignore[method-assign]
        try:
            yield
        finally:
            (SparkSession.table, SparkSession.sql, DataFrameReader.table, DataStreamReader.table) = before  # type: ignore[method-assign]
            if active.isDefined():
                spark._jvm.SparkSession.setActiveSession(active.get())  # type: ignore[union-attr]


def _single(name: str) -> str | None:
    """The name without quotes; None if it has several parts."""
    if name.startswith("`") and name.endswith("`") and len(name) > 2:
        inner = name[1:-1]
        return inner.replace("``", "`") if "`" not in inner.replace("``", "") else None
    return None if "." in name else name


def _sql(spark: SparkSession, text: str, names: TableNames, run: Callable[[str], DataFrame]) -> DataFrame:
    views: dict[tuple[str, bool], View] = {}

    def view_of(name: str, streaming: bool) -> View:
        view = views.get((name, streaming))
        if view is None:
            frame = names.frame(name, streaming)
            # A part of a batch takes the place of a stream, and is none.
            view = views[name, streaming] = View(f"strandline_{uuid4().hex}", frame.isStreaming)
            frame.createTempView(view.name)
        return view

    try:
        return run(substituted(text, named_tables(spark, text), view_of))
    finally:
        # The plan of the result holds the frames themselves.
        for view in views.values():
            spark.catalog.dropTempView(view.name)
