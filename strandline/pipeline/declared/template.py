"""The files of a new project."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from strandline.pipeline.declared.project import NAME, TABLE_NAME

#: A project with more logs declares only the first of them for Spark's own command.
MAX_LOGS = 500


def project_files(directory: Path, place: Mapping[str, str], logs: Mapping[str, bool]) -> dict[str, str]:
    """The files of a project by their path. ``place`` says where the logs are, as options of the data source, and
    ``logs`` has the name of every log and whether it has a schema."""
    plain = {name: typed for name, typed in sorted(logs.items()) if TABLE_NAME.fullmatch(name)}
    return {
        NAME: _SETTINGS.format(name=directory.name),
        "tables/example.sql": _example(next(iter(plain), None)),
        "spark-pipeline.yml": _SPECIFICATION.format(name=directory.name, storage=f"{directory.as_uri()}/.spark"),
        "spark/strandline_logs.py": _logs(place, plain),
    }


_SETTINGS = """\
name = "{name}"

# The files that declare tables, in SQL or Python.
libraries = ["tables/**"]

# The time between two batches of a streaming query, and between two refreshes of a view that is computed as a whole.
trigger_seconds = 1.0
refresh_seconds = 60.0

# Spark properties for the queries of this project.
[configuration]
"spark.sql.shuffle.partitions" = "2"
"""

_SPECIFICATION = """\
# For Spark's own command: spark-pipelines run --spec spark-pipeline.yml
# `strandline pipeline run --project` reads pipeline.toml instead.
name: {name}
storage: {storage}
libraries:
  - glob:
      include: tables/**
  - glob:
      include: spark/strandline_logs.py
"""

_EXAMPLE = """\
-- Every log is a table: STREAM {log} is a stream of its records, {log} is what it has now.

CREATE STREAMING TABLE {log}_rows
COMMENT 'The records of {log}, as they arrive'
AS SELECT * FROM STREAM {log};

CREATE MATERIALIZED VIEW {log}_per_minute
COMMENT 'How many records arrive in a minute'
AS SELECT date_trunc('minute', ts) AS minute, count(*) AS records FROM {log}_rows GROUP BY 1;
"""

_NO_LOG = """\
-- Every log is a table: STREAM orders is a stream of the records of the log orders, orders is what it has now.
--
-- CREATE STREAMING TABLE large_orders
-- AS SELECT * FROM STREAM orders WHERE get_json_object(data, '$.cents') > 1000;
"""

_LOGS = '''\
"""The logs, for Spark's own command `spark-pipelines`. Strandline does not read this file."""

from pyspark import pipelines as dp
from pyspark.sql import SparkSession

PLACE = {place}
# The logs that queries read as STREAM name, and whether they have a schema. Move a log to TABLES if queries read it
# without STREAM.
STREAMS = {{{streams}}}
TABLES = {{}}


def declare(name, typed, is_stream):
    def view():
        spark = SparkSession.active()
        reader = (spark.readStream if is_stream else spark.read).format("strandline").options(**PLACE)
        return reader.option("logs", name).option("payload", "columns" if typed else "string").load()

    dp.temporary_view(name=name)(view)


for name, typed in STREAMS.items():
    declare(name, typed, True)
for name, typed in TABLES.items():
    declare(name, typed, False)
'''


def _example(log: str | None) -> str:
    return _NO_LOG if log is None else _EXAMPLE.format(log=log)


def _logs(place: Mapping[str, str], logs: Mapping[str, bool]) -> str:
    shown = list(logs.items())[:MAX_LOGS]
    streams = "".join(f"    {name!r}: {typed},\n" for name, typed in shown)
    return _LOGS.format(place=dict(place), streams=f"\n{streams}" if streams else "")
