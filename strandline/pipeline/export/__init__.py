"""Exports logs to files, on Spark or without it, and to Kafka. All files of an export become visible together.

``run`` exports from the history, ``from_lake`` from the lake, ``files`` has the formats and the destinations.
``to_kafka`` sends records to a topic.
"""
