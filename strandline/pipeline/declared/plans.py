"""Looks into the plan of a streaming query: how can its result be kept?

A row of an aggregation can be kept by streaming state only if every new input row changes at most the row of its own
group. So the plan must be an aggregation over filters and projections of one stream. Everything else is refused with
the reason, which the status shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_STREAMS = ("StreamingRelation", "StreamingRelationV2", "StreamingExecutionRelation", "StreamingDataSourceV2Relation")
#: Nodes that treat every row on its own.
_BY_ROW = ("Project", "Filter", "SubqueryAlias", "EventTimeWatermark", "Generate", "View", "NamedStreamingRelation")
#: Nodes above an aggregation that keep its rows.
_RENAMING = ("Project", "SubqueryAlias", "View")
#: What depends on when a query runs.
_TIMES = ("CurrentTimestamp", "CurrentDate", "Now", "LocalTimestamp", "CurrentTime", "CurrentTimestampLike")
#: Functions whose result depends on which row comes first.
_BY_ORDER = ("First", "Last", "AnyValue", "CollectList", "CollectSet", "ListAgg", "MinBy", "MaxBy")


class NotIncremental(Exception):
    """The result of a query cannot be kept by streaming state. The message is the reason."""


def is_by_row(frame: DataFrame) -> bool:
    """Whether a streaming query treats every row on its own, without state."""
    return _row_problem(_analyzed(frame)) is None


def group_columns(frame: DataFrame) -> list[str]:
    """The columns of the result that identify a group; empty if there is one group. Raises NotIncremental."""
    node, outputs = _analyzed(frame), None
    while str(node.nodeName()) in _RENAMING:
        outputs = outputs or node
        node = node.children().apply(0)
    if str(node.nodeName()) != "Aggregate":
        what = str(node.nodeName())
        raise NotIncremental(f"it is not an aggregation of one stream (its plan starts with {what})")
    problem = _row_problem(node.children().apply(0)) or _expression_problem(node)
    if problem is not None:
        raise NotIncremental(problem)
    return [_output_name(node, outputs or node, each) for each in _each(node.groupingExpressions())]


def _analyzed(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().analyzed()


def _row_problem(node: Any) -> str | None:
    kind = str(node.nodeName())
    if kind in _STREAMS:
        return None
    if kind not in _BY_ROW:
        return f"its plan contains {kind}"
    problem = _expression_problem(node)
    if problem is not None:
        return problem
    return _row_problem(node.children().apply(0))


def _expression_problem(node: Any) -> str | None:
    for expression in _each(node.expressions()):
        for each in _tree(expression):
            kind = str(each.getClass().getSimpleName())
            if kind in _TIMES:
                return f"it depends on the time of the query ({each.prettyName()})"
            if kind.endswith("Subquery") or kind == "Exists":
                return "it contains a subquery"
            if kind == "AggregateExpression" and each.isDistinct():
                return "it counts distinct values"
            if kind in _BY_ORDER or not each.deterministic():
                return f"its result can depend on the order of rows ({each.prettyName()})"
    return None


def _output_name(aggregate: Any, output: Any, grouping: Any) -> str:
    """The column of the result that has the value of a grouping expression."""
    ids = []
    for each in _each(aggregate.aggregateExpressions()):
        inner = each.child() if str(each.getClass().getSimpleName()) == "Alias" else each
        if inner.semanticEquals(grouping) or _is_bound(inner, grouping):
            ids.append(each.exprId())
    node = output
    while node is not None and not node.equals(aggregate):
        # Projections may give a column another id.
        if str(node.nodeName()) == "Project":
            for each in _each(node.projectList()):
                if str(each.getClass().getSimpleName()) == "Alias":
                    inner = each.child()
                    if _is_attribute(inner) and any(inner.exprId().equals(one) for one in ids):
                        ids.append(each.exprId())
        node = node.children().apply(0) if node.children().size() else None
    for each in _each(output.output()):
        if any(each.exprId().equals(one) for one in ids):
            return str(each.name())
    raise NotIncremental(f"its result has no column for {grouping.sql()}, which it groups by")


def _is_bound(expression: Any, grouping: Any) -> bool:
    """Whether it is the start or the end of a window, which has the same length as all others."""
    return (
        str(expression.getClass().getSimpleName()) == "GetStructField"
        and _is_attribute(grouping)
        and str(grouping.name()) == "window"
        and expression.child().semanticEquals(grouping)
        and str(expression.extractFieldName()) in ("start", "end")
    )


def _is_attribute(expression: Any) -> bool:
    return str(expression.getClass().getSimpleName()) == "AttributeReference"


def _tree(expression: Any) -> Iterator[Any]:
    yield expression
    for child in _each(expression.children()):
        yield from _tree(child)


def _each(sequence: Any) -> Iterator[Any]:
    for place in range(sequence.size()):
        yield sequence.apply(place)
