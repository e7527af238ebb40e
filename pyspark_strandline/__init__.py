"""Spark looks here for the data source of the name "strandline"."""
