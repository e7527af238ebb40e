"""The logs and tables of a project, by name, and how each declared table is kept.

Names are resolved while the queries of the project are evaluated. Evaluating a query finds out what it reads, so the
tables that it reads are prepared first, and a circle is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from pyspark.errors import PySparkException

from strandline.engine.errors import UnknownLog
from strandline.engine.record import is_internal
from strandline.lake.declared import DeclaredFiles
from strandline.lake.reporter import describe
from strandline.nearest_name import did_you_mean
from strandline.pipeline.declared.cdc import DELETED, latest_rows
from strandline.pipeline.declared.graph import Graph
from strandline.pipeline.declared.names import resolving
from strandline.pipeline.declared.plans import NotIncremental, group_columns, is_by_row
from strandline.pipeline.declared.project import BadProject, Project
from strandline.pipeline.declared.registry import DEAD_LETTER_LOG, LOG, Declarations, DeclaredFlow, DeclaredOutput
from strandline.pipeline.declared.tables import create_table
from strandline.pipeline.source.columns import frame_schema, payload_columns
from strandline.pipeline.source.options import LogLocation
from strandline.pipeline.source.task_reader import borrowed
from strandline.schema.registry import Registry

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from strandline.history.log_info import LogInfo

#: How a table is kept. ``append``: a streaming query adds rows. ``state``: a streaming aggregation changes the rows of
#: groups. ``cdc``: a streaming query keeps the last row of each key. ``refresh``: computed as a whole on a schedule.
Mode = Literal["append", "state", "cdc", "refresh", "sink"]


@dataclass
class PreparedFlow:
    """A streaming query that is ready to start. ``raw`` is the log or table that it reads, if the query can be run on
    parts of a batch."""

    flow: DeclaredFlow
    frame: DataFrame
    raw: str | None = None


@dataclass
class PreparedTable:
    """A table whose query was evaluated and whose Delta table exists. ``reason`` says why it is kept in this mode."""

    output: DeclaredOutput
    mode: Mode
    reason: str = ""
    keys: list[str] = field(default_factory=list)
    flows: list[PreparedFlow] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.output.name

    @property
    def keeps_changes(self) -> bool:
        return self.mode in ("state", "cdc") and self.output.property(LOG) is not None


class TableCatalog:
    """Resolves names for the queries of one project, and prepares its tables."""

    def __init__(
        self,
        spark: SparkSession,
        project: Project,
        declarations: Declarations,
        place: LogLocation,
        files: DeclaredFiles,
    ) -> None:
        self.spark = spark
        self.place = place
        self.files = files
        self.project = project
        self.declarations = declarations
        self.graph = Graph()
        self.prepared: dict[str, PreparedTable] = {}
        self._names = {name.lower(): name for name in declarations.outputs}
        self._logs: dict[str, LogInfo] = {}
        #: While the query of a view is evaluated as a stream: the input that becomes one.
        self._as_stream: str | None = None

    def prepare(self, name: str) -> PreparedTable | None:
        """Prepare a declared output, and those that it reads. None for a temporary view.

        Raises BadProject, and errors of Spark for a query that cannot be evaluated.
        """
        self.graph.visit(name, lambda: self._prepare(name))
        return self.prepared.get(name)

    def forget(self, name: str) -> None:
        """The output is prepared again the next time."""
        self.graph.forget(name)
        self.prepared.pop(name, None)
        self._logs.clear()

    def inputs_of(self, name: str) -> list[str]:
        """The logs and tables that an output reads, without temporary views."""
        found: list[str] = []
        for each in sorted(self.graph.edges.get(name, ())):
            output = self.declarations.outputs.get(each)
            if output is not None and output.kind == "temporary_view":
                found += [one for one in self.inputs_of(each) if one not in found]
            elif each not in found:
                found.append(each)
        return found

    def evaluated(self, table: PreparedTable) -> DataFrame:
        """The result of the query of a view, as it is now."""
        self._logs.clear()
        return self._evaluate(self.declarations.flows[table.name][0])

    # --- names -----------------------------------------------------------------------------------------------------

    def frame(self, name: str, streaming: bool) -> DataFrame:
        """A log or a table, for the query that is being evaluated."""
        declared = self._names.get(name.lower())
        self.graph.reads(declared or name)
        streaming = streaming or (declared or name) == self._as_stream
        if declared is None:
            return self.log_frame(self.spark, name, streaming)
        output = self.declarations.outputs[declared]
        if output.kind == "sink":
            raise BadProject(f"{declared!r} is a sink, which cannot be read")
        self.prepare(declared)
        if output.kind == "temporary_view":
            return self._view(output, streaming)
        return self.table_frame(self.spark, declared, streaming)

    def table_frame(self, spark: SparkSession, name: str, streaming: bool) -> DataFrame:
        path = str(self.files.table(name))
        if not streaming:
            return spark.read.format("delta").load(path)
        table = self.prepared[name]
        if table.mode != "append":
            raise BadProject(
                f"{name!r} cannot be read as a stream, because its rows change; read it without STREAM, in a "
                "materialized view"
            )
        return spark.readStream.format("delta").load(path)

    def _view(self, output: DeclaredOutput, streaming: bool) -> DataFrame:
        frame = self._evaluate(self.declarations.flows[output.name][0])
        if frame.isStreaming and not streaming and self._as_stream is None:
            raise BadProject(f"the view {output.name!r} is a stream: read it with STREAM or spark.readStream")
        if streaming and not frame.isStreaming:
            raise BadProject(f"the view {output.name!r} is not a stream: read it without STREAM")
        return frame

    def log_frame(self, spark: SparkSession, name: str, streaming: bool) -> DataFrame:
        info = self.log(name)
        reader: Any = (spark.readStream if streaming else spark.read).format("strandline")
        for option, value in place_options(self.place).items():
            reader = reader.option(option, value)
        columns = None
        if has_schema(info):
            reader = reader.option("payload", "columns")
            columns = payload_columns(name, info.registry).schema
        # Spark would ask a Python worker for the columns each time.
        reader = reader.schema(frame_schema("string" if columns is None else "columns", columns))
        if streaming:
            reader = reader.option("maxOffsetsPerTrigger", self.project.settings.rows_per_batch)
            reader = reader.option("failOnDataLoss", str(self.project.settings.fail_on_data_loss).lower())
        # Not ``logs``, whose names are separated by commas.
        frame: DataFrame = reader.option("log", name).load()
        return frame

    def log(self, name: str) -> LogInfo:
        """Raises BadProject for a log that does not exist."""
        found = self._logs.get(name)
        if found is None:
            with borrowed(self.place) as history:
                try:
                    found = self._logs[name] = history.log(name)
                except UnknownLog:
                    known = [each.name for each in history.logs() if not is_internal(each.name)]
                    known += self.declarations.outputs
                    raise BadProject(f"there is no log or declared table {name!r}{did_you_mean(name, known)}") from None
        return found

    # --- preparing -------------------------------------------------------------------------------------------------

    def _evaluate(self, flow: DeclaredFlow) -> DataFrame:
        assert flow.query is not None
        with resolving(self.spark, self):
            frame: Any = flow.query()
        if not hasattr(frame, "isStreaming"):
            raise BadProject(f"{flow.where}: the query of {flow.name!r} returned no DataFrame")
        found: DataFrame = frame
        return found

    def _prepare(self, name: str) -> None:
        output = self.declarations.outputs[name]
        flows = self.declarations.flows[name]
        if output.kind == "temporary_view":
            self._evaluate(flows[0])
            return
        self._check_name(output)
        if output.kind == "materialized_view":
            table = self._prepare_view(output, flows[0])
        elif flows[0].cdc is not None:
            table = self._prepare_cdc(output, flows[0])
        else:
            table = self._prepare_stream(output, flows)
        table.inputs = self.inputs_of(name)
        if table.mode != "sink":
            schema = (table.flows[0].frame if table.flows else self._evaluate(flows[0])).schema
            create_table(
                self.spark,
                self.files,
                output,
                _without(schema, DELETED),
                keeps_changes=table.keeps_changes,
                is_merged=table.mode in ("state", "cdc"),
            )
        self.prepared[name] = table

    def _check_name(self, output: DeclaredOutput) -> None:
        """A name is either a log or a table, except that a table may be written back into the log of its name."""
        if output.kind == "sink" or output.property(LOG) == output.name:
            return
        try:
            self.log(output.name)
        except BadProject:
            return
        raise BadProject(f"{output.where}: a log is called {output.name!r} too; give the table another name")

    def _prepare_stream(self, output: DeclaredOutput, flows: list[DeclaredFlow]) -> PreparedTable:
        mode: Mode = "sink" if output.kind == "sink" else "append"
        table = PreparedTable(output, mode, "rows of streaming queries are appended" if mode == "append" else "")
        for flow in flows:
            before = set(self.graph.edges[output.name])
            frame = self._evaluate(flow)
            if not frame.isStreaming:
                raise BadProject(
                    f"{flow.where}: the query of {flow.name!r} is not a stream; read a log or a streaming table with "
                    "STREAM or spark.readStream, or declare a materialized view"
                )
            prepared = PreparedFlow(flow, frame)
            if output.property(DEAD_LETTER_LOG):
                if not is_by_row(frame):
                    raise BadProject(
                        f"{flow.where}: {DEAD_LETTER_LOG} needs a query that treats every row on its own, without "
                        "aggregations and joins of streams"
                    )
                inputs = sorted(self.graph.edges[output.name] - before) or sorted(before)
                prepared.raw = self._stream_input(inputs, flow)
            table.flows.append(prepared)
        return table

    def _stream_input(self, inputs: list[str], flow: DeclaredFlow) -> str:
        if len(inputs) != 1 or (inputs[0] in self.declarations.outputs and self._is_view(inputs[0])):
            raise BadProject(f"{flow.where}: {DEAD_LETTER_LOG} needs a query that reads one log or streaming table")
        return inputs[0]

    def _is_view(self, name: str) -> bool:
        return self.declarations.outputs[name].kind == "temporary_view"

    def _prepare_cdc(self, output: DeclaredOutput, flow: DeclaredFlow) -> PreparedTable:
        assert flow.cdc is not None
        source = self.frame(flow.cdc.source, True)
        frame, keys = latest_rows(source, flow.cdc, flow.where)
        return PreparedTable(
            output, "cdc", "the last row of each key is merged", keys=keys, flows=[PreparedFlow(flow, frame)]
        )

    def _prepare_view(self, output: DeclaredOutput, flow: DeclaredFlow) -> PreparedTable:
        frame = self._evaluate(flow)
        if frame.isStreaming:
            raise BadProject(
                f"{flow.where}: {output.name!r} is a materialized view, which reads tables without STREAM; declare a "
                "streaming table, or leave out STREAM"
            )
        try:
            stream, keys = self._as_state(output, flow)
        except NotIncremental as reason:
            if output.property(LOG):
                raise BadProject(
                    f"{output.where}: {LOG} needs a table that is kept by streaming queries, but {output.name!r} is "
                    f"computed as a whole: {reason}"
                ) from None
            return PreparedTable(output, "refresh", f"computed as a whole: {reason}")
        return PreparedTable(
            output,
            "state",
            "an aggregation of one stream, kept by its state",
            keys=keys,
            flows=[PreparedFlow(flow, stream)],
        )

    def _as_state(self, output: DeclaredOutput, flow: DeclaredFlow) -> tuple[DataFrame, list[str]]:
        """The query of a view as a streaming aggregation, and the columns of its groups. Raises NotIncremental."""
        inputs = self.inputs_of(output.name)
        if len(inputs) != 1:
            raise NotIncremental(f"it reads {len(inputs)} logs and tables")
        source = self.prepared.get(inputs[0])
        if source is not None and source.mode != "append":
            raise NotIncremental(f"the rows of {inputs[0]!r} change")
        self._as_stream = inputs[0]
        try:
            frame = self._evaluate(flow)
        except PySparkException as error:
            raise NotIncremental(f"it cannot be a stream ({describe(error)})") from None
        finally:
            self._as_stream = None
        if not frame.isStreaming:
            raise NotIncremental("it does not read its input by name")
        return frame, group_columns(frame)


class PartNames:
    """Names for the query of a flow that runs over a part of a batch: its stream is the part."""

    def __init__(self, catalog: TableCatalog, spark: SparkSession, name: str, part: DataFrame) -> None:
        self._catalog = catalog
        self._spark = spark
        self._name = name
        self._part = part

    def frame(self, name: str, streaming: bool) -> DataFrame:
        if streaming and name.lower() == self._name.lower():
            return self._part
        if name in self._catalog.declarations.outputs:
            return self._catalog.table_frame(self._spark, name, streaming)
        return self._catalog.log_frame(self._spark, name, streaming)


def has_schema(info: LogInfo) -> bool:
    return info.registry is not None and bool(Registry.load(info.registry).current_version)


def place_options(place: LogLocation) -> dict[str, str]:
    """Where the logs are, as options of the data source."""
    given: Mapping[str, str | None] = {"url": place.url, "path": place.path, "key": place.key, "cold": place.cold}
    return {name: value for name, value in given.items() if value}


def _without(schema: Any, column: str) -> Any:
    from pyspark.sql.types import StructType

    return StructType([each for each in schema.fields if each.name != column])
