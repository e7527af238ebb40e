"""How far declared tables are behind a live log, on a server that keeps a project.

A writer appends records one by one. Several times a second, the benchmark counts how many of them each table and each
log has. The age of the oldest record that is still missing is how far it is behind.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from bench.measure import Effort, Row, Target, alone, single
from bench.topics_server import Server, serving
from bench.workload import directory
from strandline.lake.declared import DeclaredFiles
from strandline.pipeline.declared.project import NAME
from strandline.pipeline.declared.template import project_files
from strandline.pipeline.delta import DeltaMissing, delta_settings
from strandline.pipeline.spark_session import what_is_missing

GROUP = "declared"
MASTER = "local[2]"
#: Records per second, and the keys that they have.
RATE = 50
KEYS = 20
#: How long the lag is measured, after the first batches, which are slower.
SECONDS = 60.0
WARM_SECONDS = 20.0
POLL_SECONDS = 0.2
#: The maximum time until the tables have the first records: Spark has to start.
START_SECONDS = 300.0

SQL = """
CREATE STREAMING TABLE clean TBLPROPERTIES ('strandline.log' = 'clean-orders')
AS SELECT seq, key, CAST(get_json_object(data, '$.cents') AS INT) AS cents FROM STREAM orders;

CREATE MATERIALIZED VIEW revenue
AS SELECT key, count(*) AS orders, sum(CAST(get_json_object(data, '$.cents') AS INT)) AS cents FROM orders GROUP BY key;
"""


def run(root: Path, effort: Effort) -> Iterator[Row]:
    missing = what_is_missing(MASTER)
    try:
        delta_settings({}, needed=True)
    except DeltaMissing as error:
        missing.append(str(error))
    if missing:
        print(f"{GROUP}: skipped: {' '.join(missing)}", file=sys.stderr)
        return
    with directory(root, GROUP) as base:
        project, lake = base / "project", base / "lake"
        (project / "tables").mkdir(parents=True)
        # The settings that a new project has.
        (project / NAME).write_text(project_files(project, {}, {})[NAME])
        (project / "tables" / "bench.sql").write_text(SQL)
        settings = {"pipeline": "auto", "pipeline_project": project, "pipeline_master": MASTER, "lake": lake}
        with serving(base / "data", **settings) as server:
            yield from _measured(server, DeclaredFiles.of(lake), effort)


def _measured(server: Server, files: DeclaredFiles, effort: Effort) -> Iterator[Row]:
    begun = time.monotonic()
    with _Writer(server) as writer:
        counts: dict[str, Callable[[], int]] = {
            "a streaming table": lambda: _sum(files, "clean", "count(*)"),
            "an aggregation kept by state": lambda: _sum(files, "revenue", "coalesce(sum(orders), 0)"),
            "the log with the rows of the streaming table": lambda: _head(server, "clean-orders"),
        }
        while not all(count() for count in counts.values()):
            if time.monotonic() - begun > START_SECONDS:
                with server.connect() as connection:
                    status = connection.request("GET", "/pipeline").body.decode()
                raise RuntimeError(f"tables have no rows after {START_SECONDS:.0f} s: {status}")
            time.sleep(POLL_SECONDS)
        yield single(GROUP, "a server starts, until every table has rows", "s", time.monotonic() - begun)
        time.sleep(WARM_SECONDS / effort.divisor)
        found: dict[str, list[float]] = {name: [] for name in counts}
        end = time.monotonic() + SECONDS / effort.divisor
        while time.monotonic() < end:
            for name, count in counts.items():
                found[name].append(writer.age_of(count()))
            time.sleep(POLL_SECONDS)
    for name, ages in found.items():
        yield alone(GROUP, f"{name} behind a log with {RATE} records/s", "s", ages)
    longest = max(max(ages) for ages in found.values())
    yield single(GROUP, "the longest of all", "s", longest, target=Target(5.0, "s"))


def _sum(files: DeclaredFiles, name: str, what: str) -> int:
    """An aggregate of a table's current version."""
    from deltalake import QueryBuilder

    table = files.find(name)
    if table is None:
        return 0
    batches = QueryBuilder().register("t", table).execute(f"select {what} as n from t").read_all()
    return int(batches.column("n")[0].as_py())


def _head(server: Server, log: str) -> int:
    with server.connect() as connection:
        answer = connection.request("GET", f"/v0/topics/{log}")
    return int(answer.json()["head_seq"]) if answer.status == 200 else 0


class _Writer:
    """Appends records at a constant rate, and remembers when each was acknowledged."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._acknowledged: list[float] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def age_of(self, number: int) -> float:
        """The age of the oldest record that is not among the first ``number``; 0 if there is none."""
        now = time.monotonic()
        return now - self._acknowledged[number] if number < len(self._acknowledged) else 0.0

    def __enter__(self) -> _Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        with self._server.connect() as connection:
            begun = time.monotonic()
            while not self._stopping.is_set():
                number = len(self._acknowledged)
                record = {"data": {"cents": number % 900}, "tag": f"k{number % KEYS}"}
                answer = connection.request("POST", "/v0/topics/orders", msgspec.json.encode({"records": [record]}))
                if not 200 <= answer.status < 300:
                    raise RuntimeError(f"refused: {answer.status} {answer.body[:500]!r}")
                self._acknowledged.append(time.monotonic())
                self._stopping.wait(max(0.0, begun + (number + 1) / RATE - time.monotonic()))
