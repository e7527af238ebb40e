"""The same work as the pipeline's stages, without Spark and, where possible, without Strandline."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.json as pj
import pyarrow.parquet as pq

from bench.measure import Sample, timed
from bench.pipeline_history import LOG, PROPERTIES
from strandline.history.directory import DirectoryHistory
from strandline.history.source import History
from strandline.lake.files import COMPRESSION, COMPRESSION_LEVEL
from strandline.lake.location import Lake
from strandline.query.chunk import Chunk
from strandline.query.extraction import Extractor
from strandline.query.index import plan_of
from strandline.query.index_files.rollups import sum_up
from strandline.schema.registry import Registry

ROWS = 250_000


def copy_records(history: History, lake: Lake) -> None:
    """Read the segments and write Parquet with the same columns and compression."""
    target = Path(lake.url)
    target.mkdir(parents=True)
    info = history.log(LOG)
    for number, piece in enumerate(history.pieces(info, 0, info.head, ROWS)):
        table = pa.Table.from_batches(list(piece.read()))
        data = table.column("data").cast(pa.string())
        table = table.drop_columns("data").append_column("data", data)
        pq.write_table(
            table,
            target / f"{number}.parquet",
            compression=COMPRESSION,
            compression_level=COMPRESSION_LEVEL,
            use_dictionary=["log", "key", "node"],
        )


def parse_records(history: History, lake: Lake) -> None:
    """Write a second set of Parquet files, with a column for each property of the payloads, as Arrow parses them."""
    copy_records(history, lake)
    kinds = {"integer": pa.int64(), "string": pa.string(), "number": pa.float64()}
    schema = pa.schema([(name, kinds[kind]) for name, kind in PROPERTIES.items()])
    for path in sorted(Path(lake.url).glob("*.parquet")):
        records = pq.read_table(path)
        parsed = pj.read_json(
            pa.BufferReader(b"\n".join(records.column("data").cast(pa.binary()).to_pylist())),
            pj.ReadOptions(use_threads=False, block_size=1 << 30),
            pj.ParseOptions(explicit_schema=schema),
        )
        for name in ("log", "epoch", "seq", "ts", "key"):
            parsed = parsed.append_column(name, records.column(name))
        pq.write_table(
            parsed,
            path.with_suffix(".typed.parquet"),
            compression=COMPRESSION,
            compression_level=COMPRESSION_LEVEL,
            use_dictionary=["log", "key"],
        )


def tantivy_index(path: Path, batches: list[list[bytes]]) -> None:
    """The same fields, indexed by tantivy. Both sides start from the payload."""
    import tantivy

    builder = tantivy.SchemaBuilder()
    builder.add_integer_field("at", indexed=True, fast=True)
    builder.add_text_field("service", tokenizer_name="raw", fast=True)
    builder.add_text_field("user", tokenizer_name="raw", fast=True)
    builder.add_integer_field("status", indexed=True, fast=True)
    builder.add_float_field("latency", indexed=True, fast=True)
    builder.add_text_field("note")
    index = tantivy.Index(builder.build(), str(path))
    writer = index.writer(heap_size=256 << 20, num_threads=2)
    decode = msgspec.json.decode
    for batch in batches:
        for payload in batch:
            writer.add_document(tantivy.Document(**decode(payload)))
    writer.commit()
    writer.wait_merging_threads()


def rollups(data: Path) -> tuple[Callable[[], Sample], Callable[[], Sample]]:
    """The rollups of an index file after its columns are built, and DuckDB on the same columns."""
    history = DirectoryHistory(data)
    info = history.log(LOG)
    (piece, *_) = history.pieces(info, 0, info.head, ROWS)
    batches = list(piece.read())
    history.close()
    assert info.registry is not None
    search = Registry.load(info.registry).search
    assert search is not None
    plan = plan_of(search)
    payloads = [data for batch in batches for data in batch.column("data").to_pylist()]
    seqs = np.concatenate([batch.column("seq").to_numpy() for batch in batches])
    rows, columns = Extractor(plan.fields, plan.histograms).extract(payloads, 1)
    chunk = Chunk(seqs[rows], columns)
    (rollup,) = search.rollups.values()
    plain: Any = pa.table(_columns(payloads))
    query = """
        SELECT "at" // 3600000 AS start, service, count(*), sum(latency), min(latency), max(latency),
               histogram(floor(log2(latency)))
        FROM plain GROUP BY ALL
    """

    def ask() -> None:
        with duckdb.connect() as connection:
            connection.register("plain", plain)
            connection.execute("SET threads = 2").execute(query).fetchall()

    return (lambda: timed(len(rows), lambda: sum_up(chunk, rollup, search))), (lambda: timed(len(rows), ask))


def _columns(payloads: list[bytes]) -> dict[str, list[Any]]:
    documents = [msgspec.json.decode(payload) for payload in payloads]
    return {name: [document[name] for document in documents] for name in ("at", "service", "latency")}
