"""Imports files into logs, on Spark or without it, and Kafka topics on Spark.

Tasks read parts of files, turn rows into records and stage them. The driver appends them in the order of the files and
stores its progress with every append, so that a repeated command continues where the last one ended. Tasks that read a
partition of a Kafka topic append its messages themselves, each with a progress of its own.

``files`` lists the files and their parts, ``rows`` reads rows, ``records`` turns them into records, ``staging`` stages
and appends them; ``run`` imports files. ``kafka`` imports topics, ``kafka_cluster`` knows their offsets, ``messages``
turns messages into records, and ``value_decoder`` decodes their values.
"""
