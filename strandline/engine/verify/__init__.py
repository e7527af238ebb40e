"""Looking after a data directory: checking it, mending it, printing its files."""
