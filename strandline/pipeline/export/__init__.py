"""Exports logs to files on Spark. Tasks write files, and all files become visible together.

``run`` exports from the history or from the lake, ``files`` has the formats and the destinations.
"""
