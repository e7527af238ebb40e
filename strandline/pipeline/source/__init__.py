"""The data source "strandline": Spark reads and writes logs, in batches and as streams."""
