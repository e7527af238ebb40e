"""The data source "strandline": logs read and written by Spark, in batches and as streams."""
