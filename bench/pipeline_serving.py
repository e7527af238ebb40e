"""Searches and aggregations over HTTP on history that index files cover."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import quantiles
from typing import TYPE_CHECKING, Any

import msgspec

from bench.measure import Effort, Figure, Row, Target, single
from bench.pipeline_history import FIRST, LOG, MONTH_MS, fill
from bench.streams_load import Line
from bench.streams_query import USERS, WORDS
from bench.topics_server import Server, serving
from strandline.history.directory import DirectoryHistory
from strandline.lake.location import Lake
from strandline.lake.reporter import Silent
from strandline.pipeline.run import run_round

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GROUP = "pipeline"
RECORDS = 2_000_000
QUESTIONS = 60
ROLLUPS = {
    "requests": {
        "dimensions": ["service"],
        "intervals": ["1m", "1h"],
        "measures": {
            "requests": {"kind": "count"},
            "latency": {"kind": "summary", "field": "latency", "histogram": "log2_v1"},
        },
    }
}
SEARCHES: dict[str, Callable[[int], dict[str, Any]]] = {
    f"one user of {USERS:,}": lambda number: {"q": f"user:user-{number}"},
    "service and status, newest first": lambda number: {"q": f"service:service-{number % 20} status:503"},
    "prefix": lambda number: {"q": f"service:service-{number % 10}*"},
    "range, by time": lambda number: {"q": f"latency:>{60 + number}", "sort": ["at:desc"]},
    "phrase": lambda number: {"q": f'note:"{WORDS[number % len(WORDS)]} error"'},
    "two words, by score": lambda number: {"q": f"{WORDS[number % len(WORDS)]} retry"},
}
MONTH = {"rollup": "requests", "from": FIRST, "to": FIRST + MONTH_MS}
AGGREGATES: dict[str, dict[str, Any]] = {
    "by the hour": {**MONTH, "interval": "1h"},
    "by the hour and service": {**MONTH, "interval": "1h", "group_by": ["service"]},
    "by the minute, 43,200 of them": {**MONTH, "interval": "1m"},
}
#: The maximum time of an aggregation, in milliseconds; for tens of thousands of groups in ``LARGE_AIM``.
AIM, LARGE_AIM = 50.0, 100.0


def run(spark: SparkSession, base: Path, effort: Effort) -> Iterator[Row]:
    records = effort.scaled(RECORDS, 20_000)
    data = base / "served"
    fill(data, records, step_ms=MONTH_MS // records, rollups=ROLLUPS)
    history = DirectoryHistory(data)
    run_round(spark, history, Lake.at(data / "lake"), Silent())
    history.close()
    with serving(data) as server, Line(server) as line:
        for name, question in SEARCHES.items():
            text = f"_search over {records:,} covered records: {name}"
            yield asked(GROUP, line, text, "_search", question, effort, 20.0)
        yield from aggregates(GROUP, server, line, f"{records:,} covered records", effort)
    shutil.rmtree(data)


def aggregates(group: str, server: Server, line: Line, of: str, effort: Effort) -> Iterator[Row]:
    """The aggregations over a month, and the processor time that they take. ``of`` says what they are made from."""
    for name, request in AGGREGATES.items():
        aim = LARGE_AIM if "minute" in name else AIM
        text = f"_aggregate over a month, {of}: {name}"
        used = server.processor_seconds()
        row = asked(group, line, text, "_aggregate", lambda _, request=request: request, effort, aim)
        used = (server.processor_seconds() - used) / row.rounds
        yield row
        yield single(group, f"{text}: processor time of the server, on average", "ms", used * 1000)


def asked(
    group: str, line: Line, name: str, what: str, question: Callable[[int], dict[str, Any]], effort: Effort, aim: float
) -> Row:
    """Ask many times. All answers must be complete."""
    times = []
    for number in range(effort.scaled(QUESTIONS, 5)):
        size = {"size": 20} if what == "_search" else {}
        body = msgspec.json.encode({**question(number), **size})
        start = time.perf_counter()
        answer = line.request("POST", f"/v1/stream/{LOG}/{what}", body)
        times.append((time.perf_counter() - start) * 1000)
        _check(answer.status, answer.json())
    p50, p95 = (quantiles(times, n=20)[at] for at in (9, 18))
    return Row(
        group=group,
        name=f"{name}: p50 (to p95)",
        unit="ms",
        result=Figure(p50, min(times), p95),
        rounds=len(times),
        target=Target(aim, "ms"),
    )


def _check(status: int, answer: Any) -> None:
    """Everything is indexed, so an incomplete answer is an error."""
    if status != 200 or not answer["coverage"]["complete"]:
        raise RuntimeError(f"not a complete answer: {status} {str(answer)[:500]}")
