"""A project's files with Spark's own command `spark-pipelines`, as `strandline pipeline init` has made them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random

import pyarrow.parquet as pq
import pytest
from support.command_line import Cli
from support.declared_pipeline import Shop
from support.server_process import StartServer

from strandline.pipeline.java import find_java
from strandline.pipeline.spark_session import LIGHT_JAVA

PYTHON = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession, functions as F

spark = SparkSession.active()


@dp.materialized_view
def revenue():
    return spark.read.table("orders_rows").groupBy("customer").agg(F.sum("cents").alias("cents"))
"""
CONF = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.driver.extraJavaOptions": LIGHT_JAVA,
}


@pytest.mark.xdist_group("spark")
def test_the_files_of_a_project_run_unmodified(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server()
    shop = Shop(server.url)
    shop.order(Random(18), 40)
    project = tmp_path / "shop"
    Cli("").lines("pipeline", "init", project, "--url", server.url)
    (project / "tables" / "more.py").write_text(PYTHON)
    command = [str(Path(sys.executable).parent / "spark-pipelines"), "run", "--spec", "spark-pipeline.yml"]
    for name, value in CONF.items():
        command += ["--conf", f"{name}={value}"]
    environment = {
        **os.environ,
        "JAVA_HOME": str(find_java().home),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    done = subprocess.run(
        command, cwd=project, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, timeout=500,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-5000:]
    warehouse = project / "spark-warehouse"
    rows = pq.read_table(warehouse / "orders_rows", columns=["seq", "customer", "item", "cents"]).to_pylist()
    assert sorted(rows, key=lambda row: row["seq"]) == [{"seq": seq, **row} for seq, row in enumerate(shop.orders, 1)]
    cents = Counter[str]()
    for row in shop.orders:
        cents[row["customer"]] += row["cents"]
    revenue = pq.read_table(warehouse / "revenue").to_pylist()
    assert {row["customer"]: row["cents"] for row in revenue} == cents
    assert sum(pq.read_table(warehouse / "orders_per_minute")["records"].to_pylist()) == len(shop.orders)
