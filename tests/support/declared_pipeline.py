"""A project with declared tables, the pipeline that keeps them, and what they must contain.

The pipeline is `strandline pipeline run`, as a user starts it, in a process of its own that a test can kill.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from time import monotonic, sleep
from typing import Any

import httpx
from deltalake import DeltaTable

from strandline.lake.declared import DeclaredFiles, rows_of
from strandline.lake.location import Lake
from strandline.lake.status import DeclaredStatus, read_status
from strandline.pipeline.delta import PACKAGES
from support.arrow_client import ArrowClient
from support.maven_jars import resolve

#: What has not come as far by then has failed. Generous: the machine may be busy.
PATIENCE_SECONDS = 500.0
#: A batch takes seconds.
POLL_SECONDS = 0.25
SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "properties": {"customer": {"type": "string"}, "item": {"type": "string"}, "cents": {"type": "integer"}},
    "required": ["customer", "item", "cents"],
}

SQL = """
-- Stateless, and written back into a log.
CREATE STREAMING TABLE clean TBLPROPERTIES ('strandline.log' = 'clean-orders', 'strandline.log_key' = 'customer')
AS SELECT orders.seq, customer, item, cents FROM STREAM orders WHERE cents > 0;

-- Kept by streaming state, over a declared table.
CREATE MATERIALIZED VIEW revenue AS
SELECT customer, sum(cents) AS cents, count(*) AS orders FROM clean GROUP BY customer;

-- Computed as a whole, because the rows of revenue change.
CREATE MATERIALIZED VIEW best AS SELECT max(cents) AS cents FROM revenue;

-- A row whose item is not a number fails.
CREATE STREAMING TABLE numbers TBLPROPERTIES ('strandline.dead_letter_log' = 'bad-items')
AS SELECT seq, CAST(item AS INT) AS number FROM STREAM orders;

CREATE STREAMING TABLE seen;
CREATE FLOW seen_orders AS INSERT INTO seen BY NAME SELECT customer AS who, seq FROM STREAM orders;
CREATE FLOW seen_visits AS INSERT INTO seen BY NAME SELECT key AS who, seq FROM STREAM visits;
"""

PYTHON = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()

dp.create_streaming_table("customers")
dp.create_auto_cdc_flow(
    target="customers", source="orders", keys=["customer"], sequence_by="seq", apply_as_deletes="item = 'gone'",
    column_list=["customer", "item", "cents"],
)

dp.create_sink("large", "strandline", {"log": "large-orders"})


@dp.append_flow(target="large")
def large_orders():
    return spark.readStream.table("clean").where("cents >= 500").select("seq", "customer", "cents")
"""


def write_project(directory: Path) -> Path:
    (directory / "tables").mkdir(parents=True)
    (directory / "pipeline.toml").write_text('name = "shop"\ntrigger_seconds = 0.2\nrefresh_seconds = 2\n')
    (directory / "tables" / "shop.sql").write_text(SQL)
    (directory / "tables" / "more.py").write_text(PYTHON)
    return directory


class Shop:
    """The logs of a shop, and what was appended to them."""

    def __init__(self, url: str) -> None:
        self._arrow = ArrowClient(url)
        self.http = httpx.Client(base_url=url, timeout=60, trust_env=False)
        self.orders: list[dict[str, Any]] = []
        self.visits: list[str] = []
        assert self.http.put("/v1/stream/orders", headers={"content-type": "application/json"}).is_success
        assert self.http.post("/v1/stream/orders/_schema", json={"schema": SCHEMA}).is_success
        self.visit("nobody")

    def order(self, random: Random, count: int) -> None:
        rows = []
        for _ in range(count):
            item = random.choices(["7", "12", "gone", "lamp"], [50, 40, 6, 1])[0]
            rows.append({"customer": f"c{random.randrange(9)}", "item": item, "cents": random.randrange(-100, 900)})
        assert self.http.post("/v1/stream/orders", json=rows).is_success
        self.orders += rows

    def visit(self, who: str) -> None:
        answer = self.http.post("/v0/topics/visits", json={"records": [{"data": {}, "tag": who}]})
        assert answer.is_success, answer.text
        self.visits.append(who)

    def log(self, name: str) -> list[dict[str, Any]]:
        """The payloads of a log that the pipeline has written."""
        if self._arrow.request("GET", f"logs/{name}").status_code == 404:
            return []
        return [json.loads(each) for each in self._arrow.read(name).column("data").to_pylist()]

    # --- the truth -------------------------------------------------------------------------------------------------

    def clean(self) -> list[dict[str, Any]]:
        return [{"seq": seq, **row} for seq, row in enumerate(self.orders, 1) if row["cents"] > 0]

    def revenue(self) -> set[tuple[Any, ...]]:
        cents, orders = Counter[str](), Counter[str]()
        for row in self.clean():
            cents[row["customer"]] += row["cents"]
            orders[row["customer"]] += 1
        return {(customer, cents[customer], orders[customer]) for customer in orders}

    def customers(self) -> set[tuple[Any, ...]]:
        last = {row["customer"]: row for row in self.orders}
        return {(row["customer"], row["item"], row["cents"]) for row in last.values() if row["item"] != "gone"}

    def numbers(self) -> list[tuple[int, int]]:
        return [(seq, int(row["item"])) for seq, row in enumerate(self.orders, 1) if row["item"].isdigit()]

    def bad_seqs(self) -> list[int]:
        return [seq for seq, row in enumerate(self.orders, 1) if not row["item"].isdigit()]


class DeclaredPipeline:
    """The pipeline's process. It can be started again after it has ended."""

    def __init__(self, project: Path, url: str, lake: Path) -> None:
        self._project = project
        self._url = url
        self.lake = lake
        self.files = DeclaredFiles.of(lake)
        self._jars = resolve(PACKAGES.split(","), without_spark=True)
        self._log = lake.parent / "pipeline.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *how: str) -> None:
        command = [sys.executable, "-m", "strandline", "pipeline", "run", "--url", self._url, "--lake", str(self.lake)]
        command += ["--project", str(self._project), "--master", "local[2]", *how]
        for jar in self._jars:
            command += ["--jar", str(jar)]
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )

    def wait(self) -> int:
        assert self._process is not None
        return self._process.wait(PATIENCE_SECONDS)

    def wait_until(self, true: Callable[[], bool]) -> None:
        assert self._process is not None
        deadline = monotonic() + PATIENCE_SECONDS
        while not true():
            assert self._process.poll() is None, f"the pipeline ended too early:\n{self.log()}"
            assert monotonic() < deadline, f"the pipeline is too slow:\n{self.status()}\n{self.log()}"
            sleep(POLL_SECONDS)

    def wait_for_commit(self) -> None:
        reached = self.versions()
        self.wait_until(lambda: self.versions() > reached)

    def kill(self) -> None:
        """With Java and all workers, which are in its group."""
        if self._process is not None:
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self._process.wait()

    def log(self) -> str:
        return self._log.read_text(errors="replace")[-5000:]

    # --- what it has made ------------------------------------------------------------------------------------------

    def status(self) -> DeclaredStatus | None:
        found = read_status(Lake.at(str(self.lake)))
        return None if found is None else found.declared

    def rows(self, name: str) -> list[dict[str, Any]]:
        table = self.files.find(name)
        return [] if table is None else rows_of(table).read_all().to_pylist()

    def set_of(self, name: str, columns: Sequence[str]) -> set[tuple[Any, ...]]:
        return {tuple(row[column] for column in columns) for row in self.rows(name)}

    def versions(self) -> int:
        """The number of commits of all tables."""
        names = [path.name for path in self.files.directory.iterdir() if not path.name.startswith("_")]
        return sum(self.files.version(name) + 1 for name in names)

    # --- what must be there ----------------------------------------------------------------------------------------

    def check(self, shop: Shop) -> None:
        """Every table and log has exactly what it must have."""
        clean = shop.clean()
        assert _sorted(self.rows("clean")) == _sorted(clean)
        assert _sorted(shop.log("clean-orders")) == _sorted(clean)
        assert self.set_of("revenue", ["customer", "cents", "orders"]) == shop.revenue()
        assert len(self.rows("revenue")) == len(shop.revenue())
        assert [row["cents"] for row in self.rows("best")] == [max(cents for _, cents, _ in shop.revenue())]
        large = [{key: row[key] for key in ("seq", "customer", "cents")} for row in clean if row["cents"] >= 500]
        assert _sorted(shop.log("large-orders")) == _sorted(large)
        assert sorted((row["seq"], row["number"]) for row in self.rows("numbers")) == shop.numbers()
        assert sorted(each["row"]["seq"] for each in shop.log("bad-items")) == shop.bad_seqs()
        assert self.set_of("customers", ["customer", "item", "cents"]) == shop.customers()
        assert len(self.rows("customers")) == len(shop.customers())
        seen = Counter(row["who"] for row in self.rows("seen"))
        assert seen == Counter(row["customer"] for row in shop.orders) + Counter(shop.visits)

    def check_typed(self, shop: Shop) -> None:
        """The typed table of the orders, and the table `records`, have every order exactly once."""
        orders = [{"seq": seq, **row} for seq, row in enumerate(shop.orders, 1)]
        typed = DeltaTable(str(self.lake / "tables" / "orders")).to_pyarrow_table(columns=list(orders[0]))
        assert _sorted(typed.to_pylist()) == _sorted(orders)
        records = DeltaTable(str(self.lake / "records")).to_pyarrow_table(columns=["log", "seq", "data"]).to_pylist()
        found = [{"seq": row["seq"], **json.loads(row["data"])} for row in records if row["log"] == "orders"]
        assert _sorted(found) == _sorted(orders)


def _sorted(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True) for row in rows)
