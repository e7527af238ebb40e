"""Records in bulk, as Arrow over HTTP: for Spark, DuckDB, Polars, pandas, and whoever else wants many at once."""
