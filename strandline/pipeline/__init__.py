"""The pipeline: turns history into a lake, indexes and reports, on Spark. The only package that imports pyspark."""
