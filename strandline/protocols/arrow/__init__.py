"""The Arrow protocol: records in bulk as Arrow IPC streams, for Spark, DuckDB, Polars and pandas."""
