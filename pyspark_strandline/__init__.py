"""Spark looks here for the data source of the name "strandline"."""

from strandline.pipeline.source.datasource import StrandlineSource as DefaultSource

__all__ = ["DefaultSource"]
