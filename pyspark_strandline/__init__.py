"""Lets Spark find the data source by the name "strandline"."""

from strandline.pipeline.source.datasource import StrandlineSource as DefaultSource

__all__ = ["DefaultSource"]
