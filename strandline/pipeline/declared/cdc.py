"""AUTO CDC: the last row of each key, as a streaming aggregation.

The state has the last row of every key, deleted or not, so an event that comes late never replaces a newer one, and a
batch that is repeated gives the same rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, functions

from strandline.nearest_name import did_you_mean
from strandline.pipeline.declared.project import BadProject

if TYPE_CHECKING:
    from pyspark.pipelines.flow import AutoCdcFlow
    from pyspark.sql import DataFrame

#: The column of the result that says that the last event of a key deletes it.
DELETED = "strandline_deleted"
_SEQUENCE, _ROW = "strandline_sequence", "strandline_row"


def latest_rows(source: DataFrame, flow: AutoCdcFlow, where: str) -> tuple[DataFrame, list[str]]:
    """The last row of each key with the column ``DELETED``, and the names of the keys. Raises BadProject."""
    keys = _names(flow.keys, source, where)
    columns = source.columns
    if flow.column_list is not None:
        columns = _names(flow.column_list, source, where)
    elif flow.except_column_list is not None:
        left = set(_names(flow.except_column_list, source, where))
        columns = [each for each in columns if each not in left]
    missing = [key for key in keys if key not in columns]
    if missing:
        raise BadProject(f"{where}: the columns of the table must include its keys; {', '.join(missing)} is left out")
    deleted = functions.lit(False) if flow.apply_as_deletes is None else _column(flow.apply_as_deletes, where)
    sequence = _column(flow.sequence_by, where)
    problem = functions.raise_error(functions.lit(f"sequence_by is null in a row of {flow.source!r}"))
    rows = source.select(
        *[functions.col(_quoted(key)).alias(f"strandline_key_{place}") for place, key in enumerate(keys)],
        functions.when(sequence.isNull(), problem).otherwise(sequence).alias(_SEQUENCE),
        functions.struct(
            *[functions.col(_quoted(name)).alias(name) for name in columns],
            functions.coalesce(deleted, functions.lit(False)).alias(DELETED),
        ).alias(_ROW),
    )
    groups = rows.groupBy(*[f"strandline_key_{place}" for place in range(len(keys))])
    return groups.agg(functions.max_by(_ROW, _SEQUENCE).alias(_ROW)).select(f"{_ROW}.*"), keys


def _names(columns: Sequence[Any], source: DataFrame, where: str) -> list[str]:
    known = {name.lower(): name for name in source.columns}
    found = []
    for each in columns:
        name = _text(each, where).strip("`")
        if name.lower() not in known:
            raise BadProject(f"{where}: there is no column {name!r}{did_you_mean(name, source.columns)}")
        found.append(known[name.lower()])
    return found


def _column(column: Any, where: str) -> Column:
    """A column of this session. Declarations that are given as text arrive as columns of Spark Connect."""
    if not _is_connect(column):
        found: Column = column
        return found
    return functions.expr(_text(column, where))


def _text(column: Any, where: str) -> str:
    if not _is_connect(column):
        return str(column._jc.toString())
    expression = column._expr
    for attribute in ("_unparsed_identifier", "_expr"):
        text = getattr(expression, attribute, None)
        if isinstance(text, str):
            return text
    raise BadProject(f"{where}: cannot use the column {column}; write it as text")


def _is_connect(column: Any) -> bool:
    return type(column).__module__.startswith("pyspark.sql.connect")


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
