"""Queries over a log: search configuration, the query language, filters, search and aggregation."""
