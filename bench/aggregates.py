"""Aggregations over HTTP, from records in memory and from the sums of index files, and the first search of a server.

Unlike the group *pipeline*, this one builds index files without Spark.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa

from bench.measure import Effort, Figure, Row, Target
from bench.pipeline_history import FIRST, LOG, MONTH_MS, fill, registry
from bench.pipeline_serving import ROLLUPS, aggregates
from bench.streams_load import Line
from bench.topics_server import serving
from bench.workload import directory
from strandline.engine import Engine, Log
from strandline.engine.state.checkpoints import read_manifest
from strandline.lake.files import write_file
from strandline.lake.location import Lake
from strandline.lake.table import LakeTable
from strandline.query.index_files.builder import Origin, build
from strandline.query.index_files.table import FOLDER, LISTED, TABLE, IndexEntry, listed_table
from strandline.schema.log_search import log_search

GROUP = "aggregates"
RECORDS = 2_000_000
#: The records of one index file, and of one read.
FILE_RECORDS = 262_144
BATCH = 4096
#: Starting a server takes about as long as all other turns together.
STARTS = 5
FIRST_AIM = 100.0
#: The maximum time until all records are indexed in memory.
INDEX_SECONDS = 300.0


def run(root: Path, effort: Effort) -> Iterator[Row]:
    records = effort.scaled(RECORDS, 20_000)
    with directory(root, "aggregates") as base:
        data = base / "data"
        fill(data, records, step_ms=MONTH_MS // records, rollups=ROLLUPS)
        with serving(data) as server, Line(server) as line:
            _index_all(line)
            yield from aggregates(GROUP, line, f"{records:,} records in memory", effort)
        _write_index_files(data)
        with serving(data) as server, Line(server) as line:
            yield from aggregates(GROUP, line, f"the sums of {records:,} records", effort)
        yield from _first_searches(base / "small", effort)


def _index_all(line: Line) -> None:
    """Search until the index covers everything."""
    deadline = time.monotonic() + INDEX_SECONDS
    while line.request("POST", f"/v1/stream/{LOG}/_search", b'{"q":"user:none"}').status != 200:
        if time.monotonic() > deadline:
            raise RuntimeError(f"the records were not indexed within {INDEX_SECONDS:.0f} s")


def _write_index_files(data: Path) -> None:
    """Index the whole log, as the pipeline does."""
    lake = Lake.at(data / "lake")
    entries = []
    with Engine.open(data) as engine:
        log, manifest, search = engine.log(LOG), read_manifest(engine.disk), log_search(registry(ROLLUPS))
        assert manifest is not None
        assert search is not None
        for number, first in enumerate(range(1, log.head + 1, FILE_RECORDS)):
            last = min(first + FILE_RECORDS - 1, log.head)
            versions = tuple(search.versions)
            origin = Origin(
                directory=manifest.id, log=LOG, epoch=log.epoch, first=first, last=last, versions=versions, erasures=0
            )
            made = build(origin, search.config, _batches(log, first, last))
            path = f"{FOLDER}/{number:04d}.arrow"
            lake.write(path, bytes(made.content))
            entries.append(IndexEntry.of(made, path, FIRST))
    file = write_file(lake, TABLE, LISTED, [listed_table(entries)])
    assert file is not None
    LakeTable(lake, TABLE, LISTED).snapshot().commit(add=[file])


def _batches(log: Log, first: int, last: int) -> Iterator[pa.RecordBatch]:
    after = first - 1
    while after < last:
        page = log.read(after, min(BATCH, last - after))
        yield pa.record_batch({"seq": pa.array(page.seqs, pa.int64()), "data": pa.array(page.data, pa.binary())})
        after = page.next_after


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
