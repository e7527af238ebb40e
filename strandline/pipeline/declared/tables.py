"""Creates the Delta tables of a project, and writes their rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException
from pyspark.sql import functions
from pyspark.sql.classic.column import _to_seq

from strandline.lake.declared import DeclaredFiles
from strandline.pipeline.declared.project import BadProject
from strandline.pipeline.declared.registry import DeclaredOutput

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

#: The id and the number of a write, which Delta keeps: it ignores a write with a number that it has seen.
_TRANSACTION = ("spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion")


#: Properties of every table, unless it sets others. A query commits every second: a checkpoint for every ten commits
#: would take as long as the commits, and thirty days of them are millions of files.
DELTA_PROPERTIES = {"delta.checkpointInterval": "50", "delta.logRetentionDuration": "interval 7 days"}


def create_table(
    spark: SparkSession,
    files: DeclaredFiles,
    output: DeclaredOutput,
    schema: StructType,
    *,
    keeps_changes: bool = False,
    is_merged: bool = False,
) -> None:
    """Create the table if it does not exist. Raises BadProject if it has other columns."""
    declared = _declared_schema(spark, output)
    if declared is not None:
        _check_columns(output, {each.name.lower() for each in declared.fields}, schema)
        schema = declared
    path = str(files.table(output.name))
    if files.exists(output.name):
        _check_same(output, spark.read.format("delta").load(path).schema, schema)
        return
    properties = dict(DELTA_PROPERTIES)
    if keeps_changes:
        properties["delta.enableChangeDataFeed"] = "true"
    if is_merged:
        # A merge then writes the rows that changed, and not the files that they are in.
        properties["delta.enableDeletionVectors"] = "true"
    properties |= {name: value for name, value in output.properties.items() if name.startswith("delta.")}
    jvm: Any = spark._jvm
    builder = jvm.io.delta.tables.DeltaTable.createIfNotExists(spark._jsparkSession).location(path)
    builder = builder.addColumns(jvm.org.apache.spark.sql.types.DataType.fromJson(schema.json()))
    for name, value in properties.items():
        builder = builder.property(name, value)
    if output.comment:
        builder = builder.comment(output.comment)
    if output.partition_by:
        builder = builder.partitionedBy(_to_seq(spark.sparkContext, list(output.partition_by)))
    if output.cluster_by:
        builder = builder.clusterBy(_to_seq(spark.sparkContext, list(output.cluster_by)))
    builder.execute()


def _declared_schema(spark: SparkSession, output: DeclaredOutput) -> StructType | None:
    from pyspark.sql.types import StructType

    if isinstance(output.schema, str):
        parsed = StructType.fromDDL(output.schema)
        assert isinstance(parsed, StructType)
        return parsed
    chosen: StructType | None = output.schema
    return chosen


def _check_columns(output: DeclaredOutput, declared: set[str], schema: StructType) -> None:
    extra = [each.name for each in schema.fields if each.name.lower() not in declared]
    if extra:
        raise BadProject(
            f"{output.where}: the query has columns that {output.name!r} does not declare: {', '.join(extra)}"
        )


def _check_same(output: DeclaredOutput, there: StructType, wanted: StructType) -> None:
    def kinds(schema: StructType) -> dict[str, str]:
        return {each.name: each.dataType.simpleString() for each in schema.fields}

    if kinds(there) != kinds(wanted):
        raise BadProject(
            f"{output.where}: the columns of {output.name!r} changed from {_told(kinds(there))} to "
            f"{_told(kinds(wanted))}; compute it again with `strandline pipeline refresh --full {output.name}`"
        )


def _told(kinds: Mapping[str, str]) -> str:
    return "(" + ", ".join(f"{name} {kind}" for name, kind in kinds.items()) + ")"


# --- writing ----------------------------------------------------------------------------------------------------------


def append(batch: DataFrame, path: Path, app: str, number: int) -> None:
    """Append the rows of a batch once, however often it is called with this number."""
    batch.write.format("delta").mode("append").option("txnAppId", app).option("txnVersion", number).save(str(path))


def merge(
    batch: DataFrame, path: Path, keys: Sequence[str], app: str, number: int, *, deletes: str | None = None
) -> None:
    """Put the rows of a batch in place of those with the same keys, once. Rows for which the column ``deletes`` is true
    are removed instead; the column itself is not part of the table. Without keys, the table has one row."""
    session = batch.sparkSession
    for name, value in zip(_TRANSACTION, (app, str(number)), strict=True):
        session.conf.set(name, value)
    same = " AND ".join(f"t.{_quoted(key)} <=> s.{_quoted(key)}" for key in keys) or "true"
    table = _delta_table(session, path)
    columns = {_quoted(name): f"s.{_quoted(name)}" for name in batch.columns if name != deletes}
    builder = table.alias("t").merge(batch._jdf.alias("s"), same)
    if deletes is None:
        builder = builder.whenMatched().updateExpr(columns).whenNotMatched().insertExpr(columns)
    else:
        gone = f"s.{_quoted(deletes)}"
        builder = builder.whenMatched(gone).delete()
        builder = builder.whenMatched().updateExpr(columns)
        builder = builder.whenNotMatched(f"NOT {gone}").insertExpr(columns)
    builder.execute()


def replace(frame: DataFrame, path: Path) -> bool:
    """Replace the contents of a table, unless it has exactly these rows already. Returns whether it was changed."""
    before = frame.sparkSession.read.format("delta").load(str(path))
    after = frame.select(*[_quoted(name) for name in before.columns]).persist()
    try:
        found = _fingerprint(after)
        if found is not None and found == _fingerprint(before):
            return False
        after.write.format("delta").mode("overwrite").save(str(path))
        return True
    finally:
        after.unpersist()


def _fingerprint(frame: DataFrame) -> tuple[Any, ...] | None:
    """The number of rows and the sum of their hashes; None for columns that cannot be hashed."""
    row = functions.xxhash64(*[_quoted(name) for name in frame.columns]).cast("decimal(38,0)")
    try:
        (found,) = frame.select(row.alias("row")).agg(functions.count("*"), functions.sum("row")).collect()
    except AnalysisException:
        return None
    return tuple(found)


def compact(spark: SparkSession, path: Path) -> None:
    """Merge small files into larger ones. This may run beside appends, but not beside a merge into the same table."""
    _delta_table(spark, path).optimize().executeCompaction()


def vacuum(spark: SparkSession, path: Path) -> None:
    """Remove files that the table has not contained for a week."""
    _delta_table(spark, path).vacuum()


def _delta_table(spark: SparkSession, path: Path) -> Any:
    return spark._jvm.io.delta.tables.DeltaTable.forPath(spark._jsparkSession, str(path))  # type: ignore[union-attr]


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
