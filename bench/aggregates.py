"""Aggregations over HTTP, from the sums of index files that the server has built, and the first search of a server."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from bench.measure import Effort, Figure, Row, Target
from bench.pipeline_history import FIRST, LOG, MONTH_MS, fill
from bench.pipeline_serving import ROLLUPS, aggregates
from bench.streams_load import Line
from bench.topics_server import serving
from bench.workload import directory

GROUP = "aggregates"
RECORDS = 2_000_000
#: Starting a server takes about as long as all other turns together.
STARTS = 5
FIRST_AIM = 100.0
#: The maximum time until all records are indexed.
INDEX_SECONDS = 600.0


def run(root: Path, effort: Effort) -> Iterator[Row]:
    records = effort.scaled(RECORDS, 20_000)
    with directory(root, "aggregates") as base:
        data = base / "data"
        fill(data, records, step_ms=MONTH_MS // records, rollups=ROLLUPS)
        with serving(data) as server, Line(server) as line:
            _wait_for_indexes(line)
            yield from aggregates(GROUP, server, line, f"{records:,} records", effort)
        yield from _first_searches(base / "small", effort)


def _wait_for_indexes(line: Line) -> None:
    """Until all records are indexed, and the index files are merged."""
    deadline = time.monotonic() + INDEX_SECONDS
    while (
        not line.call("GET", f"/v1/stream/{LOG}/_index_status").json()["progress"]["complete"]
        or line.call("GET", "/v0/metrics", accept="application/json").json()["indexing"]["waiting_logs"]
    ):
        if time.monotonic() > deadline:
            raise RuntimeError(f"the records were not indexed within {INDEX_SECONDS:.0f} s")
        time.sleep(0.5)


def _first_searches(data: Path, effort: Effort) -> Iterator[Row]:
    """The first search and the first aggregation of a new process, over two records."""
    fill(data, 2, rollups=ROLLUPS)
    month = {"rollup": "requests", "interval": "1h", "from": FIRST, "to": FIRST + MONTH_MS}
    for what, body in {"_search": {"q": "user:none"}, "_aggregate": month}.items():
        times = []
        for _ in range(min(effort.rounds, STARTS)):
            with serving(data) as server, Line(server) as line:
                start = time.perf_counter()
                answer = line.request("POST", f"/v1/stream/{LOG}/{what}", msgspec.json.encode(body))
                times.append((time.perf_counter() - start) * 1000)
                if answer.status != 200:
                    raise RuntimeError(f"the first {what} was refused: {answer.status} {answer.body[:500]!r}")
        yield Row(
            group=GROUP,
            name=f"the first {what} of a server, 2 records",
            unit="ms",
            result=Figure.of(times),
            rounds=len(times),
            target=Target(FIRST_AIM, "ms"),
        )
