"""The streaming queries of declared tables: what each one does with a batch, and how it is started.

Every write is done once: Delta's own sink and ``txnAppId`` ignore a batch that they have seen, a merge of a repeated
batch gives the same rows, and appends to logs store the number of the batch with the records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions

from strandline.lake.declared import DeclaredFiles
from strandline.pipeline.declared.catalog import PreparedFlow, PreparedTable, TableCatalog, place_options
from strandline.pipeline.declared.cdc import DELETED
from strandline.pipeline.declared.dead_letters import DeadLetterWriter, writer_name
from strandline.pipeline.declared.project import BadProject
from strandline.pipeline.declared.registry import DEAD_LETTER_LOG, LOG, LOG_KEY
from strandline.pipeline.declared.tables import compact, merge

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

#: The name of the query that writes a table into a log, as a flow of the table.
LOG_FLOW = "_log"
#: The number of merges after which the small files that they wrote are merged.
COMPACT_BATCHES = 100


class QueryStarter:
    """Starts the queries of one project. ``once`` processes what is there now and ends."""

    def __init__(self, catalog: TableCatalog, generation: Callable[[str], str], *, once: bool) -> None:
        self._catalog = catalog
        self._generation = generation
        self._files: DeclaredFiles = catalog.files
        self._once = once

    def flow(self, table: PreparedTable, prepared: PreparedFlow) -> StreamingQuery:
        """Start the query of a flow."""
        flow = prepared.flow
        path = self._files.table(table.name)
        app = f"{self._generation(table.name)}/{flow.name}"
        with _configured(self._catalog.spark, flow.conf):
            if prepared.raw is not None:
                log = table.output.property(DEAD_LETTER_LOG)
                assert log is not None
                raw = self._raw(prepared.raw)
                letters = DeadLetterWriter(self._catalog, flow, prepared.raw, path, log, app)
                return self._start(raw, table, flow.name, letters.write, "append")
            if table.mode == "append":
                writer = self._writer(prepared.frame, table, flow.name, "append")
                return writer.format("delta").start(str(path))
            if table.mode == "sink":
                return self._sink(prepared.frame, table, flow.name)
            deletes = DELETED if table.mode == "cdc" else None

            def keep(batch: DataFrame, number: int) -> None:
                merge(batch, path, table.keys, app, number, deletes=deletes)
                if number % COMPACT_BATCHES == COMPACT_BATCHES - 1:
                    # In a session without the settings of the merge.
                    compact(self._catalog.spark, path)

            return self._start(prepared.frame, table, flow.name, keep, "update")

    def log(self, table: PreparedTable) -> StreamingQuery:
        """Start the query that writes the rows of a table into its log."""
        spark, path = self._catalog.spark, str(self._files.table(table.name))
        name = table.output.property(LOG)
        key = table.output.property(LOG_KEY)
        reader: Any = spark.readStream.format("delta")
        if table.keeps_changes:
            # One commit to a batch, so that the changes of a row stay in their order.
            reader = reader.option("readChangeFeed", "true").option("startingVersion", 0)
            reader = reader.option("maxFilesPerTrigger", 1)
        rows: DataFrame = reader.load(path)
        keys = [key] if key else table.keys
        for each in keys:
            if each not in rows.columns:
                raise BadProject(f"{table.output.where}: {LOG_KEY} names {each!r}, which is not a column of the table")
        columns = [each for each in rows.columns if not each.startswith(("_change_type", "_commit_"))]
        gone = functions.col("_change_type") == "delete" if table.keeps_changes else functions.lit(False)
        if table.keeps_changes:
            rows = rows.where("_change_type <> 'update_preimage'")
        whole = functions.to_json(functions.struct(*[functions.col(_quoted(each)) for each in columns]))
        only_keys = (
            functions.to_json(functions.struct(*[functions.col(_quoted(each)) for each in keys]))
            if keys
            else functions.lit("{}")
        )
        parts = [functions.coalesce(functions.col(_quoted(each)).cast("string"), functions.lit("")) for each in keys]
        records = rows.select(
            (functions.concat_ws("/", *parts) if keys else functions.lit(None).cast("string")).alias("key"),
            functions.when(gone, only_keys).otherwise(whole).alias("data"),
            functions.when(gone, functions.lit('{"deleted":true}')).alias("meta"),
        )
        writer = self._writer(records, table, LOG_FLOW, "append").format("strandline").option("log", name)
        for option, value in self._target(table, LOG_FLOW).items():
            writer = writer.option(option, value)
        return writer.start()

    # --- internals -------------------------------------------------------------------------------------------------

    def _raw(self, name: str) -> DataFrame:
        catalog = self._catalog
        if name in catalog.declarations.outputs:
            return catalog.table_frame(catalog.spark, name, True)
        return catalog.log_frame(catalog.spark, name, True)

    def _start(
        self,
        frame: DataFrame,
        table: PreparedTable,
        flow: str,
        keep: Callable[[DataFrame, int], None],
        mode: str,
    ) -> StreamingQuery:
        return self._writer(frame, table, flow, mode).foreachBatch(keep).start()

    def _writer(self, frame: DataFrame, table: PreparedTable, flow: str, mode: str) -> DataStreamWriter:
        writer = frame.writeStream.queryName(f"{table.name}.{flow}").outputMode(mode)
        writer = writer.option("checkpointLocation", str(self._files.checkpoint(table.name, flow)))
        if self._once:
            return writer.trigger(availableNow=True)
        seconds = self._catalog.project.settings.trigger_seconds
        return writer.trigger(processingTime=f"{round(seconds * 1000)} milliseconds")

    def _sink(self, frame: DataFrame, table: PreparedTable, flow: str) -> StreamingQuery:
        output = table.output
        writer = self._writer(frame, table, flow, "append").format(output.format)
        options = dict(output.options)
        if output.format.lower() == "strandline" and not {"url", "path"} & {each.lower() for each in options}:
            options |= self._target(table, flow)
        for name, value in options.items():
            writer = writer.option(name, value)
        return writer.start()

    def _target(self, table: PreparedTable, flow: str) -> dict[str, str]:
        """Where to append, and under which name. Records are read from the cold tier too, but never written to it."""
        place = {name: value for name, value in place_options(self._catalog.place).items() if name != "cold"}
        return {**place, "writer": writer_name(self._generation(table.name), flow)}


@contextmanager
def _configured(spark: SparkSession, conf: Any) -> Iterator[None]:
    """Settings of a flow. A query copies the settings of its session when it starts."""
    before = {name: spark.conf.get(name, None) for name in conf}
    for name, value in conf.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
