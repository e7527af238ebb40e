"""The orders and visits of the shop as typed rows, with the time of each event."""

from pyspark import pipelines as dp
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, from_json, timestamp_millis

spark = SparkSession.active()

#: How late an event may be written. Spark forgets the events of a join that are older.
LATENESS = "10 minutes"


@dp.temporary_view
def placed_orders():
    # The log orders has a schema, so its properties are columns.
    orders = spark.readStream.table("orders")
    rows = orders.select("order", "session", "cents", timestamp_millis("at").alias("ordered_at"))
    return rows.withWatermark("ordered_at", LATENESS)


@dp.temporary_view
def started_sessions():
    # The log visits has none, so its records are JSON in the column data.
    visits = spark.readStream.table("visits")
    rows = visits.select(from_json("data", "session string, source string, at bigint").alias("visit")).select(
        "visit.session", "visit.source", timestamp_millis(col("visit.at")).alias("started_at")
    )
    return rows.withWatermark("started_at", LATENESS)
