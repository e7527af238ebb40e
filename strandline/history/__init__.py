"""Read the records of logs in bulk as Arrow, from a data directory or from a server. Does not use Spark."""
