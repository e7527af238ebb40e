"""Beyond one machine: a real standalone cluster does the same as two threads, also if a worker dies over it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from support.spark_cluster import PATIENCE_SECONDS, Cluster, cluster

from strandline.engine import Batch, Config, Engine
from strandline.history.directory import DirectoryHistory
from strandline.lake.location import Lake
from strandline.lake.reporter import Silent
from strandline.pipeline.run import run_round
from strandline.pipeline.spark_session import LIGHT_JAVA
from strandline.schema.registry import Registry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS = 300_000
SEARCH = {
    "primaryTimestampField": "at",
    "fields": {
        "at": {"kind": "date", "column": True, "bindings": [{"version": 1, "jsonPointer": "/at"}]},
        "word": {"kind": "keyword", "exact": True, "bindings": [{"version": 1, "jsonPointer": "/word"}]},
    },
    "rollups": {"words": {"dimensions": ["word"], "intervals": ["1h"], "measures": {"n": {"kind": "count"}}}},
}


def fill(path: Path) -> None:
    body = msgspec.json.encode({"schema": {"type": "object"}, "search": SEARCH})
    registry = Registry.empty("searched").update(body, next_sequence=0).stored()
    with Engine.open(path, background=False) as engine:
        for name, notes in (("searched", {"registry": registry}), ("plain", None)):
            log = engine.create(name, Config(), notes=notes).wait()
            for first in range(0, RECORDS // 2, 5000):
                numbers = range(first, first + 5000)
                data = [b'{"at":%d,"word":"w%d","text":"%064d"}' % (n * 1000, n % 7, n) for n in numbers]
                log.append(Batch(data, keys=[f"k{n % 1000}" for n in numbers])).wait()
        engine.seal()


def content(lake: Path, table: str, columns: list[str]) -> Any:
    """The rows of a table, in order, whatever files they are in."""
    from deltalake import DeltaTable

    rows = DeltaTable(str(lake / table)).to_pyarrow_table(columns=columns)
    return rows.sort_by([(name, "ascending") for name in columns if name != "versions"])


def wait_for_work(members: Cluster, worker: int, pipeline: subprocess.Popen[str]) -> None:
    """Until a task is at work: the worker has an executor, and that has Python running."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not any("pyspark.daemon" in _command(process) for process in members.executors(worker)):
        assert pipeline.poll() is None, "it ended before the worker had anything to do"
        assert time.monotonic() < deadline
        time.sleep(0.1)


def _command(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_text()
    except OSError:
        return ""


def test_a_cluster_that_loses_a_worker_makes_what_one_machine_makes(spark: SparkSession, tmp_path: Path) -> None:
    data, here, there = tmp_path / "data", tmp_path / "here", tmp_path / "there"
    fill(data)
    with cluster(tmp_path) as members:
        command = [
            sys.executable, "-m", "strandline", "pipeline", "run", "--once", "--data", str(data), "--lake", str(there),
            "--master", members.master, "--conf", "spark.executor.memory=512m",
            "--conf", f"spark.executor.extraJavaOptions={LIGHT_JAVA}",
        ]  # fmt: skip
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK", "PYSPARK"))}
        with open(tmp_path / "pipeline.log", "w") as output:
            pipeline = subprocess.Popen(
                command, text=True, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment
            )
            try:
                wait_for_work(members, 0, pipeline)
                members.kill_worker(0)
                code = pipeline.wait(5 * PATIENCE_SECONDS)
            finally:
                pipeline.kill()
                pipeline.wait()
        assert code == 0, (tmp_path / "pipeline.log").read_text()[-3000:]
    history = DirectoryHistory(data)
    run_round(spark, history, Lake.at(here), Silent())
    history.close()
    tables = {
        "records": ["log", "seq", "ts", "key", "version", "data"],
        "latest": ["log", "key", "seq", "data"],
        "keys": ["log", "key"],
        "rollups": ["log", "rollup", "start", "measure", "count"],
    }
    for table, columns in tables.items():
        mine, other = content(here, table, columns), content(there, table, columns)
        assert len(mine), table
        if table == "rollups":
            # Parts add up to the same, wherever they were cut.
            mine, other = (each.group_by(columns[:-1]).aggregate([("count", "sum")]) for each in (mine, other))
            order = [(name, "ascending") for name in columns[:-1]]
            mine, other = mine.sort_by(order), other.sort_by(order)
        assert mine.equals(other), table
    assert len(content(here, "records", ["log"])) == RECORDS
