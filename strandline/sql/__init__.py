"""SQL over logs: DuckDB reads records in the lake from its files, and everything newer from the logs."""
