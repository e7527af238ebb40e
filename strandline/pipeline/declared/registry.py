"""What the files of a project declare: outputs, and the flows into them.

The declarations are those of Spark Declarative Pipelines (``pyspark.pipelines`` and its statements in SQL). They are
collected as the files say them, and checked together. Nothing is read or started here.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pyspark.pipelines.flow import AutoCdcFlow, Flow
from pyspark.pipelines.graph_element_registry import GraphElementRegistry, graph_element_registration_context
from pyspark.pipelines.output import MaterializedView, Output, Sink, StreamingTable, Table, TemporaryView

from strandline.nearest_name import did_you_mean
from strandline.pipeline.declared.project import MAX_TABLES, TABLE_NAME, BadProject, Project

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Kind = Literal["streaming_table", "materialized_view", "temporary_view", "sink"]
_KINDS: tuple[tuple[type[Output], Kind], ...] = (
    (StreamingTable, "streaming_table"),
    (MaterializedView, "materialized_view"),
    (TemporaryView, "temporary_view"),
    (Sink, "sink"),
)

#: Properties of tables that Strandline reads. Others are passed to Delta.
LOG = "strandline.log"
LOG_KEY = "strandline.log_key"
DEAD_LETTER_LOG = "strandline.dead_letter_log"
PROPERTIES = (LOG, LOG_KEY, DEAD_LETTER_LOG)


@dataclass(frozen=True, kw_only=True)
class DeclaredOutput:
    """A table, a view or a sink. ``where`` is the file and the line of its declaration."""

    name: str
    kind: Kind
    where: str
    comment: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)
    partition_by: Sequence[str] = ()
    cluster_by: Sequence[str] = ()
    #: The declared columns: a StructType, or text as in SQL.
    schema: Any = None
    #: Only for a sink.
    format: str = ""
    options: Mapping[str, str] = field(default_factory=dict)

    def property(self, name: str) -> str | None:
        return self.properties.get(name)


@dataclass(frozen=True, kw_only=True)
class DeclaredFlow:
    """A query whose rows go to an output. ``cdc`` is a flow that keeps the last record of each key, and has no query of
    its own."""

    name: str
    target: str
    where: str
    query: Callable[[], DataFrame] | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    cdc: AutoCdcFlow | None = None


@dataclass
class Declarations:
    """Everything that a project declares, by name."""

    outputs: dict[str, DeclaredOutput] = field(default_factory=dict)
    flows: dict[str, list[DeclaredFlow]] = field(default_factory=dict)

    def add_output(self, output: DeclaredOutput) -> None:
        """Raises BadProject."""
        if not TABLE_NAME.fullmatch(output.name):
            raise BadProject(
                f"{output.where}: invalid name {output.name!r}: expected at most 100 letters, digits and _, "
                "not starting with a digit"
            )
        before = next((each for each in self.outputs.values() if each.name.lower() == output.name.lower()), None)
        if before is not None:
            raise BadProject(f"{output.where}: {output.name!r} is already declared at {before.where}")
        for name in output.properties:
            if name.startswith("strandline.") and name not in PROPERTIES:
                raise BadProject(f"{output.where}: unknown property {name!r}{did_you_mean(name, PROPERTIES)}")
        if output.format.lower() not in ("", "delta") and output.kind != "sink":
            raise BadProject(f"{output.where}: unknown format {output.format!r}: declared tables are Delta tables")
        if len(self.outputs) >= MAX_TABLES:
            raise BadProject(f"more than {MAX_TABLES} tables are declared; split the project")
        self.outputs[output.name] = output

    def add_flow(self, flow: DeclaredFlow) -> None:
        """Raises BadProject."""
        if not TABLE_NAME.fullmatch(flow.name):
            raise BadProject(f"{flow.where}: invalid name of a flow {flow.name!r}: expected letters, digits and _")
        before = next((each for flows in self.flows.values() for each in flows if each.name == flow.name), None)
        if before is not None:
            raise BadProject(f"{flow.where}: flow {flow.name!r} is already declared at {before.where}")
        self.flows.setdefault(flow.target, []).append(flow)

    def check(self) -> None:
        """Check what can be checked without running a query. Raises BadProject."""
        for target, flows in self.flows.items():
            output = self.outputs.get(target)
            if output is None:
                raise BadProject(
                    f"{flows[0].where}: flow {flows[0].name!r} writes to {target!r}, which is not declared"
                    f"{did_you_mean(target, self.outputs)}"
                )
            _check_flows(output, flows)
        for output in self.outputs.values():
            if not self.flows.get(output.name):
                raise BadProject(f"{output.where}: no flow writes to {output.name!r}; add a query or an append flow")


def _check_flows(output: DeclaredOutput, flows: Sequence[DeclaredFlow]) -> None:
    if output.kind in ("materialized_view", "temporary_view") and len(flows) > 1:
        raise BadProject(f"{flows[1].where}: {output.name!r} is a view, which has one query; declare a streaming table")
    merged = [flow for flow in flows if flow.cdc is not None]
    if merged and (len(flows) > 1 or output.kind != "streaming_table"):
        raise BadProject(f"{merged[0].where}: an AUTO CDC flow must be the only flow of a streaming table")
    if output.property(DEAD_LETTER_LOG) and (merged or output.kind != "streaming_table"):
        raise BadProject(f"{output.where}: {DEAD_LETTER_LOG} is only for streaming tables without AUTO CDC")


class _Registry(GraphElementRegistry):
    """Collects what the decorators of ``pyspark.pipelines`` declare."""

    def __init__(self, found: Declarations) -> None:
        self._found = found

    def register_output(self, output: Output) -> None:
        kind = next((kind for base, kind in _KINDS if isinstance(output, base)), None)
        where = _where(output)
        if kind is None:
            raise BadProject(f"{where}: {type(output).__name__} is not supported")
        table = output if isinstance(output, Table) else None
        sink = output if isinstance(output, Sink) else None
        self._found.add_output(
            DeclaredOutput(
                name=output.name,
                kind=kind,
                where=where,
                comment=output.comment or "",
                properties=dict(table.table_properties) if table is not None else {},
                partition_by=tuple(table.partition_cols or ()) if table is not None else (),
                cluster_by=tuple(table.cluster_by or ()) if table is not None else (),
                schema=table.schema if table is not None else None,
                format=(table.format or "") if table is not None else sink.format if sink is not None else "",
                options=dict(sink.options) if sink is not None else {},
            )
        )

    def register_flow(self, flow: Flow) -> None:
        self._found.add_flow(
            DeclaredFlow(
                name=flow.name, target=flow.target, where=_where(flow), query=flow.func, conf=dict(flow.spark_conf)
            )
        )

    def register_auto_cdc_flow(self, flow: AutoCdcFlow) -> None:
        self._found.add_flow(
            DeclaredFlow(name=flow.name or flow.target, target=flow.target, where=_where(flow), cdc=flow)
        )

    def register_sql(self, sql_text: str, file_path: Path) -> None:
        raise BadProject(f"{file_path}: put SQL into files of their own, which end in .sql")


def _where(element: Any) -> str:
    place = element.source_code_location
    line = "" if place.line_number is None else f":{place.line_number}"
    return f"{_short(place.filename)}{line}"


def _short(path: str | os.PathLike[str]) -> str:
    parts = Path(path).parts
    return "/".join(parts[-2:])


def load_declarations(
    project: Project,
    spark: SparkSession | None,
    sql: Callable[[str, str, Declarations], None] | None,
) -> Declarations:
    """Run the Python files of a project and pass its SQL files to ``sql``, with the text and the name of the file.

    Raises BadProject; an error in a Python file is part of the message.
    """
    found = Declarations()
    files = project.files()
    if not files:
        raise BadProject(
            f"{project.directory}: no files match libraries = {list(project.settings.libraries)}; add a file such as "
            "tables/revenue.sql"
        )
    with _in_directory(project.directory), graph_element_registration_context(_Registry(found)):
        for path in files:
            if path.suffix == ".py":
                _run(path, spark)
            elif sql is not None:
                sql(_text(path), _short(path), found)
    found.check()
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise BadProject(f"cannot read {path}: {error}") from None


def _run(path: Path, spark: SparkSession | None) -> None:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # As `spark-pipelines` does it.
    module.__dict__["spark"] = spark
    try:
        spec.loader.exec_module(module)
    except BadProject:
        raise
    except Exception as error:
        raise BadProject(f"{_short(path)}: {type(error).__name__}: {_first_line(error)}") from error


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "")


@contextmanager
def _in_directory(directory: Path) -> Iterator[None]:
    """Files of a project may read other files by relative paths, and import modules beside ``pipeline.toml``."""
    before, path = Path.cwd(), list(sys.path)
    bytecode, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    os.chdir(directory)
    sys.path.insert(0, str(directory))
    try:
        yield
    finally:
        os.chdir(before)
        sys.path[:] = path
        sys.dont_write_bytecode = bytecode
