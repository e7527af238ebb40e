"""Exports logs to files, on Spark or without it. All files of an export become visible together.

``run`` exports from the history, ``from_lake`` from the lake, ``files`` has the formats and the destinations.
"""
