"""The tables of a lake in the catalog of a Spark session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.lake.catalog import read_catalog, statement
from strandline.lake.location import Lake
from strandline.pipeline.frames import lake_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CATALOG = "spark.sql.catalog.spark_catalog"


class NameTaken(Exception):
    """The catalog of the session has another table of this name."""


def register(spark: SparkSession, lake: Lake) -> list[str]:
    """Make the tables and logs of a lake known to a session, so that ``spark.table("orders")`` works. Returns their
    names.

    If the session supports Delta, tables are external Delta tables, and later commits are visible. Otherwise they are
    temporary views of the files of the current versions: register again to see later commits. A log without a typed
    table is a temporary view of its records. Tables that a project declares need Delta and are left out without it,
    because their files alone can have deleted rows. Raises NameTaken.
    """
    has_delta = supports_delta(spark)
    entries = [entry for entry in read_catalog(lake).entries if has_delta or entry.kind != "declared"]
    for entry in entries:
        if entry.kind == "view":
            spark.sql(statement(lake, entry, "TEMPORARY VIEW"))
        elif not has_delta:
            lake_table(spark, lake, entry.path).createOrReplaceTempView(entry.name)
        elif not spark.catalog.tableExists(entry.name):
            spark.sql(statement(lake, entry))
        else:
            _check_place(spark, entry.name, lake.place_of(entry.path))
    return [entry.name for entry in entries]


def supports_delta(spark: SparkSession) -> bool:
    return (spark.conf.get(_CATALOG, "") or "").endswith(".DeltaCatalog")


def _check_place(spark: SparkSession, name: str, place: str) -> None:
    row = spark.sql(f"DESCRIBE DETAIL `{name}`").first()
    found = "" if row is None else str(row["location"])
    if found.removeprefix("file:").rstrip("/") != place.rstrip("/"):
        raise NameTaken(
            f"cannot register the table {name}: the session has another table of this name, at {found}; "
            f"expected {place}. Choose another current database, or drop that table"
        )
