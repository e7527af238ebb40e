"""A process that registers a lake in a Spark session with Delta, and prints the rows of a statement as JSON."""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

from strandline.lake.location import Lake
from strandline.pipeline.spark_catalog import NameTaken, register

SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # Few and small tables.
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}


def main(jars: str, lake: str, warehouse: str) -> None:
    """A line on standard input is a statement. The lake is registered before each of them."""
    builder = SparkSession.builder.master("local[2]").config("spark.jars", jars)
    for name, value in {**SETTINGS, "spark.sql.warehouse.dir": warehouse}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    print("ready", flush=True)
    for line in sys.stdin:
        try:
            register(spark, Lake.at(lake))
        except NameTaken as error:
            print(json.dumps(str(error)), flush=True)
        else:
            print(json.dumps([row.asDict() for row in spark.sql(line).collect()], default=str), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
