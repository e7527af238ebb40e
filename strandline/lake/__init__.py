"""The lake: its location, its Delta tables, and how data is added to them. Does not use Spark."""
