"""The lake: where it is, its Delta tables, and how something becomes a part of them. No Spark in here."""
