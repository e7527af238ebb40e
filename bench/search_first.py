"""A long log that was never searched becomes searchable while writes continue: what searches see from the first moment
on, how fast the background indexes, and the first search after ``kill -9``."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from statistics import quantiles
from typing import Any

import msgspec

from bench.measure import Effort, Row, Target, single
from bench.search_documents import documents
from bench.search_sides import SEARCH
from bench.streams_load import Line, Refused, array
from bench.topics_server import Server, serving
from bench.workload import directory

GROUP = "search-first"
#: Ten times the documents of the group "search".
TIMES_DOCUMENTS = 10
PATH = "/v1/stream/events"
#: Records that are appended at a time while the log is indexed, and how often.
LIVE_BATCH = 500
LIVE_SECONDS = 0.1
#: How often a search is sent, and how long indexing may take.
SEARCH_SECONDS = 0.1
INDEX_SECONDS = 900.0
HITS = 10
QUERY = "status:503"


def run(root: Path, effort: Effort) -> Iterator[Row]:
    total = effort.scaled(effort.documents, 10_000) * TIMES_DOCUMENTS
    with directory(root, "search-first") as base:
        data = base / "data"
        with serving(data) as server:
            batches = _fill(server, total)
            with _Writer(server, batches) as writer:
                yield from _indexed(server, total, writer)
            os.kill(server.pid, signal.SIGKILL)
        with serving(data) as server:
            yield from _restarted(server, total + writer.acknowledged)


def _fill(server: Server, total: int) -> list[list[bytes]]:
    """Append the documents. Returns some of them, for the writer."""
    batches: list[list[bytes]] = []
    with Line(server) as line:
        line.call("PUT", PATH)
        for batch in documents(total):
            _append(line, batch)
            if not batches:
                batches = [batch[at : at + LIVE_BATCH] for at in range(0, len(batch), LIVE_BATCH)]
    return batches


def _append(line: Line, batch: list[bytes]) -> None:
    body = array(batch)
    while (answer := line.request("POST", PATH, body)).status == 429:
        time.sleep(float(answer.header(b"retry-after") or 1))
    if answer.status != 204:
        raise Refused("an append", answer)


class _Writer:
    """Appends records at a steady rate until it is closed."""

    def __init__(self, server: Server, batches: list[list[bytes]]) -> None:
        self._server = server
        self._batches = cycle(batches)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self.acknowledged = 0

    def _write(self) -> None:
        with Line(self._server) as line:
            while not self._stopping.wait(LIVE_SECONDS):
                batch = next(self._batches)
                _append(line, batch)
                self.acknowledged += len(batch)

    def __enter__(self) -> _Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()


def _indexed(server: Server, total: int, writer: _Writer) -> Iterator[Row]:
    name, used = f"{total:,} documents become searchable", server.processor_seconds()
    times: list[float] = []
    with Line(server) as line:
        begun = time.perf_counter()
        line.call("POST", f"{PATH}/_schema", msgspec.json.encode({"search": SEARCH}))
        while True:
            found, milliseconds = _search(line)
            times.append(milliseconds)
            missing = found["coverage"]["possible_missing_events_upper_bound"]
            if missing > total + writer.acknowledged or (not found["coverage"]["complete"] and not missing):
                raise RuntimeError(f"the coverage is not honest: {found['coverage']}")
            progress = line.call("GET", f"{PATH}/_index_status").json()["progress"]
            seconds = time.perf_counter() - begun
            if found["coverage"]["complete"] and progress["complete"]:
                break
            if seconds > INDEX_SECONDS:
                raise RuntimeError(f"not indexed after {INDEX_SECONDS:.0f} s: {progress}")
            time.sleep(SEARCH_SECONDS)
        used = server.processor_seconds() - used
    percentiles = quantiles(times, n=100, method="inclusive")
    yield single(GROUP, f"{name}: first answer, with hits", "ms", times[0])
    yield single(GROUP, f"{name}: searches in the meantime: p50", "ms", percentiles[49])
    yield single(GROUP, f"{name}: searches in the meantime: p99", "ms", percentiles[98])
    target = Target(100_000, "records/s")
    row = f"{name}: indexed per second, while 5,000 are appended"
    yield single(GROUP, row, "records/s", total / seconds, target=target)
    yield single(GROUP, f"{name}: indexed per second of processor time", "records/s", total / max(used, 1e-6))


def _restarted(server: Server, least: int) -> Iterator[Row]:
    with Line(server) as line:
        found, milliseconds = _search(line)
        limit = Target(100, "ms")
        yield single(GROUP, "first search after kill -9 and a restart", "ms", milliseconds, target=limit)
        missing = found["coverage"]["possible_missing_events_upper_bound"]
        yield single(GROUP, "records that the first search did not cover", "records", missing)
        begun = time.perf_counter()
        while not found["coverage"]["complete"]:
            if time.perf_counter() - begun > INDEX_SECONDS:
                raise RuntimeError(f"not indexed after {INDEX_SECONDS:.0f} s: {found['coverage']}")
            time.sleep(SEARCH_SECONDS)
            found, _ = _search(line)
        yield single(GROUP, "time until searches cover all records again", "s", time.perf_counter() - begun)
        count = line.call("GET", "/v0/topics/events").json()["count"]
        if count < least:
            raise RuntimeError(f"{least - count} acknowledged records are missing")


def _search(line: Line) -> tuple[dict[str, Any], float]:
    """Returns the answer and its time in milliseconds. Every search must have hits."""
    body = msgspec.json.encode({"q": QUERY, "size": HITS})
    start = time.perf_counter()
    answer = line.call("POST", f"{PATH}/_search", body)
    milliseconds = (time.perf_counter() - start) * 1000
    found: dict[str, Any] = answer.json()
    if len(found["hits"]) != HITS:
        raise RuntimeError(f"{len(found['hits'])} hits, expected {HITS}: {found['coverage']}")
    return found, milliseconds
