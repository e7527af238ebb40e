"""The records of logs as Arrow, read in bulk: from a data directory, or from a server. No Spark in here."""
