"""Questions to a log: search configuration, the query language, filters, search and aggregation.

Everything here is synchronous and knows neither HTTP nor event loops.
"""
