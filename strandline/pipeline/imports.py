"""Importing files, or the topics of Kafka, into logs, on Spark.

Tasks read parts of files, make records of their rows and put them aside; the driver appends them, in the order of the
files, and notes with every append how far it has come. Whatever dies in between, the next run of the same command goes
on behind that.

``shape`` is what becomes of a row. ``files`` says which parts there are, ``reading`` reads their rows, ``records``
makes records of them, ``staging`` puts them aside, ``appending`` appends them; ``run`` and ``kafka`` put it together.
"""
