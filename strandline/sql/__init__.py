"""SQL over logs: DuckDB reads what the lake holds from its files, and everything newer from the logs."""
