"""The data pipeline: history becomes a lake, indexes and reports, on Spark. The only room that knows pyspark."""
