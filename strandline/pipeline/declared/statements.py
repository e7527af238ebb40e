"""SQL files of a project, through Spark's own parser, and the tables that a query names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.errors import PySparkException

from strandline.lake.reporter import describe
from strandline.pipeline.declared.project import BadProject
from strandline.pipeline.declared.registry import Declarations, DeclaredFlow, DeclaredOutput, Kind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: The statements that a project may have, by the class of Spark's plan.
ALLOWED = (
    "CREATE STREAMING TABLE, CREATE MATERIALIZED VIEW, CREATE TEMPORARY VIEW, CREATE FLOW ... AS INSERT INTO ... BY "
    "NAME, or SET"
)
_WITH_QUERY: dict[str, Kind] = {
    "CreateStreamingTableAsSelect": "streaming_table",
    "CreateMaterializedViewAsSelect": "materialized_view",
}
_AUTO_CDC = re.compile(r"\bauto\s+cdc\b", re.IGNORECASE)


class StatementReader:
    """Turns the statements of a SQL file into declarations. ``run`` makes a frame of the text of a query."""

    def __init__(self, spark: SparkSession, run: Callable[[str], DataFrame]) -> None:
        self._spark = spark
        self._run = run

    def read(self, text: str, file: str, found: Declarations) -> None:
        """Raises BadProject."""
        conf: dict[str, str] = {}
        line, at = 1, 0
        for statement in self._split(text, file):
            place = text.find(statement.strip(), at)
            if place >= 0:
                line, at = 1 + text.count("\n", 0, place), place + len(statement.strip())
            self._add(statement.strip(), f"{file}:{line}", dict(conf), conf, found)

    def _split(self, text: str, file: str) -> list[str]:
        jvm: Any = self._spark._jvm
        parts = jvm.org.apache.spark.sql.catalyst.util.StringUtils.splitSemiColonWithIndex(text, False)
        return [each for each in map(str, _each(parts)) if each.strip()]

    def _add(
        self, statement: str, where: str, conf: Mapping[str, str], settings: dict[str, str], found: Declarations
    ) -> None:
        try:
            plan = parse(self._spark, statement)
        except PySparkException as error:
            if _AUTO_CDC.search(statement):
                raise BadProject(
                    f"{where}: Spark has AUTO CDC only in Python for now: call create_auto_cdc_flow in a .py file"
                ) from None
            raise BadProject(f"{where}: {_parse_error(error)}") from None
        kind = plan.getClass().getSimpleName()
        if kind in _WITH_QUERY:
            name = self._output(plan, _WITH_QUERY[kind], where, found)
            self._flow(name, name, str(plan.originalText()), where, conf, found)
        elif kind == "CreateStreamingTable":
            self._output(plan, "streaming_table", where, found)
        elif kind == "CreateViewCommand" and plan.viewType().toString() == "LocalTempView":
            name = str(plan.name().table())
            found.add_output(DeclaredOutput(name=name, kind="temporary_view", where=where))
            self._flow(name, name, str(plan.originalText().get()), where, conf, found)
        elif kind == "CreateFlowCommand":
            self._insert(plan, statement, where, conf, found)
        elif kind == "SetCommand" and plan.kv().isDefined() and plan.kv().get()._2().isDefined():
            settings[str(plan.kv().get()._1())] = str(plan.kv().get()._2().get())
        else:
            raise BadProject(f"{where}: unexpected statement; expected {ALLOWED}")

    def _output(self, plan: Any, kind: Kind, where: str, found: Declarations) -> str:
        name = _single(plan.name().nameParts(), where)
        spec = plan.tableSpec()
        partitions: list[str] = []
        clusters: list[str] = []
        for transform in _each(plan.partitioning()):
            into = clusters if transform.getClass().getSimpleName() == "ClusterByTransform" else partitions
            into += [str(each.fieldNames()[0]) for each in transform.references()]
        found.add_output(
            DeclaredOutput(
                name=name,
                kind=kind,
                where=where,
                comment=str(spec.comment().get()) if spec.comment().isDefined() else "",
                properties=dict(_pairs(spec.properties())),
                partition_by=tuple(partitions),
                cluster_by=tuple(clusters),
                schema=_columns(plan.columns()),
                format=str(spec.provider().get()) if spec.provider().isDefined() else "",
            )
        )
        return name

    def _insert(self, plan: Any, statement: str, where: str, conf: Mapping[str, str], found: Declarations) -> None:
        insert = plan.flowOperation()
        if insert.getClass().getSimpleName() != "InsertIntoStatement":
            raise BadProject(f"{where}: unexpected flow; expected INSERT INTO ... BY NAME")
        query = insert.query().origin()
        text = statement[int(query.startIndex().get()) : int(query.stopIndex().get()) + 1]
        target = _single(insert.table().multipartIdentifier(), where)
        self._flow(_single(plan.name().nameParts(), where), target, text, where, conf, found)

    def _flow(
        self, name: str, target: str, text: str, where: str, conf: Mapping[str, str], found: Declarations
    ) -> None:
        run = self._run
        found.add_flow(DeclaredFlow(name=name, target=target, where=where, query=lambda: run(text), conf=conf))


def parse(spark: SparkSession, text: str) -> Any:
    """Spark's plan of a statement that is not resolved."""
    return spark._jsparkSession.sessionState().sqlParser().parsePlan(text)


def _parse_error(error: PySparkException) -> str:
    text = " ".join(line.strip() for line in str(error).partition("== SQL ==")[0].splitlines() if line.strip())
    return text or describe(error)


def _single(parts: Any, where: str) -> str:
    names = [str(each) for each in _each(parts)]
    if len(names) != 1:
        raise BadProject(f"{where}: invalid name {'.'.join(names)!r}: expected a name without catalog and database")
    return names[0]


def _columns(columns: Any) -> Any:
    from pyspark.sql.types import StructField, StructType, _parse_datatype_json_string

    fields = [
        StructField(str(each.name()), _parse_datatype_json_string(each.dataType().json()), bool(each.nullable()))
        for each in _each(columns)
    ]
    return StructType(fields) if fields else None


def _each(sequence: Any) -> Iterator[Any]:
    """The elements of a Scala sequence."""
    for place in range(sequence.size()):
        yield sequence.apply(place)


def _pairs(values: Any) -> Iterator[tuple[str, str]]:
    found = values.iterator()
    while found.hasNext():
        pair = found.next()
        yield str(pair._1()), str(pair._2())


# --- the tables that a query names ------------------------------------------------------------------------------------


class NamedTable(NamedTuple):
    """A place in the text of a query that names a table: from ``start`` to before ``end``."""

    start: int
    end: int
    name: str
    streaming: bool
    #: Whether the query gives the table another name.
    has_alias: bool


#: Nodes that Spark puts between a table and its alias.
_BETWEEN = ("NamedStreamingRelation", "UnresolvedEventTimeWatermark")


def named_tables(spark: SparkSession, text: str) -> list[NamedTable]:
    """The tables that a query names with a single name, except those that the query itself defines (``WITH``)."""
    found: list[NamedTable] = []
    _walk(parse(spark, text), False, frozenset(), found)
    return found


def _walk(node: Any, aliased: bool, own: frozenset[str], found: list[NamedTable]) -> None:
    kind = str(node.nodeName())
    if kind == "UnresolvedRelation":
        parts = [str(each) for each in _each(node.multipartIdentifier())]
        if len(parts) == 1 and parts[0].lower() not in own:
            origin = node.origin()
            start, stop = int(origin.startIndex().get()), int(origin.stopIndex().get())
            found.append(NamedTable(start, stop + 1, parts[0], bool(node.isStreaming()), aliased))
        return
    if kind == "UnresolvedWith":
        # A definition may name a table that is called like itself; later ones and the query then mean the definition.
        relations = node.cteRelations()
        for place in range(relations.size()):
            pair = relations.apply(place)
            _walk(pair._2(), False, own, found)
            own = own | {str(pair._1()).lower()}
        _walk(node.child(), False, own, found)
        return
    # The alias of a sample comes after TABLESAMPLE, so none can be put before it.
    inner = kind in ("SubqueryAlias", "Sample") or (aliased and kind in _BETWEEN)
    for child in _each(node.children()):
        _walk(child, inner, own, found)
    for expression in _each(node.expressions()):
        _walk_expression(expression, own, found)


def _walk_expression(expression: Any, own: frozenset[str], found: list[NamedTable]) -> None:
    if str(expression.getClass().getSuperclass().getSimpleName()) in ("SubqueryExpression", "PlanExpression"):
        _walk(expression.plan(), False, own, found)
    for child in _each(expression.children()):
        _walk_expression(child, own, found)


class View(NamedTuple):
    """What stands for a table in a query."""

    name: str
    streaming: bool


def substituted(text: str, tables: Sequence[NamedTable], view_of: Callable[[str, bool], View]) -> str:
    """The text with views in place of tables. A table keeps its own name as the name for its columns."""
    parts, at = [], 0
    for table in sorted(set(tables)):
        parts.append(text[at : table.start])
        parts.append(_renamed(text[table.start : table.end], table, view_of(table.name, table.streaming)))
        at = table.end
    return "".join([*parts, text[at:]])


def _renamed(clause: str, table: NamedTable, view: View) -> str:
    written = rf"(?:{re.escape(table.name)}|{re.escape(_quoted(table.name))})"
    if table.streaming:
        written = rf"STREAM(?:\s*\(\s*{written}\s*\)|\s+{written}|\s*(?=`){written})"
    match = re.match(written, clause, re.IGNORECASE)
    if match is None:
        raise BadProject(f"cannot find the name {table.name!r} in {clause!r}: write it without a comment before it")
    keyword = "STREAM " if view.streaming and table.streaming else ""
    alias = "" if table.has_alias else f" AS {_quoted(table.name)}"
    return f"{keyword}{_quoted(view.name)}{clause[match.end() :]}{alias}"


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
