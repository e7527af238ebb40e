"""Audits of logs on Spark: checksums, order, gaps, author proofs, and whether the lake has the same records.

``run`` plans and reports an audit. ``records`` and ``lake_files`` read, in tasks; ``comparison`` compares the lake with
the logs; ``duplicates`` finds and removes rows that are in the lake more than once; ``report`` holds the findings.
"""
