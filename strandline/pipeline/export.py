"""Exporting logs on Spark: tasks write files, and nobody sees any of them before all are there.

``rows`` is what records look like in files, ``formats`` writes them, ``places`` puts them where they belong. ``run``
exports from the history, ``from_lake`` from the lake.
"""
