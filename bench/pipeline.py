"""The pipeline on Spark, on this machine: each stage next to the cost of the same work without Spark.

All measurements share one session, as all rounds of a pipeline do. Its start is a separate figure.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from bench import pipeline_floors as floors
from bench import pipeline_serving
from bench.measure import Effort, Row, Sample, Target, alone, in_rounds, single, timed
from bench.pipeline_history import LOG, documents, fill
from bench.topics_server import serving
from bench.workload import directory
from strandline.history.directory import DirectoryHistory
from strandline.lake.location import Lake
from strandline.lake.reporter import Silent
from strandline.pipeline import records
from strandline.pipeline.companions import stage
from strandline.pipeline.round import Round
from strandline.pipeline.run import run_round
from strandline.pipeline.spark_session import open_session, what_is_missing
from strandline.pipeline.typed_tables import stage as typed_tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GROUP = "pipeline"
#: A group of its own, because it takes a minute.
TYPED_GROUP = "typed-tables"
MASTER = "local[2]"
RECORDS = 1_000_000
SINK_RECORDS = 300_000
#: The lengths of the histories whose costs are compared, and the number of new records in the second round.
GROWTH = (1_000_000, 10_000_000)
MORE = 10_000
#: Rounds, which are few because a turn takes seconds.
ROUNDS = 3

_numbers = count(1)


def run(root: Path, effort: Effort) -> Iterator[Row]:
    if not _can_run(GROUP):
        return
    begun = time.perf_counter()
    spark = _open()
    try:
        spark.range(10).count()
        yield single(GROUP, "a session, until the first job is done", "s", time.perf_counter() - begun)
        with directory(root, "pipeline") as base:
            yield from Stages(spark, base, effort).run()
            yield from pipeline_serving.run(spark, base, effort)
            yield from _growth(spark, base, effort)
    finally:
        spark.stop()


def run_typed(root: Path, effort: Effort) -> Iterator[Row]:
    """Records and typed tables alone."""
    if not _can_run(TYPED_GROUP):
        return
    spark = _open()
    try:
        with directory(root, TYPED_GROUP) as base:
            yield from Stages(spark, base, effort, TYPED_GROUP).run_typed()
    finally:
        spark.stop()


def _can_run(group: str) -> bool:
    missing = what_is_missing(MASTER)
    if missing:
        print(f"{group}: skipped: {' '.join(missing)}", file=sys.stderr)
    return not missing


def _open() -> SparkSession:
    return open_session(MASTER, conf={"spark.driver.memory": "2g"}, light=False)


class Stages:
    def __init__(self, spark: SparkSession, base: Path, effort: Effort, group: str = GROUP) -> None:
        self._spark = spark
        self._group = group
        self._base = base
        self._effort = effort
        self._rounds = min(effort.rounds, ROUNDS)
        self._records = effort.scaled(RECORDS, 10_000)
        self._data = base / "data"

    def run(self) -> Iterator[Row]:
        size = fill(self._data, self._records)
        of = f"of {size / self._records:.0f} bytes"
        # Python's workers, imports and Java's compiler start once in the life of a session.
        self._records_stage()
        yield self._beside(
            f"records {of}: segments to the table", self._records_stage, self._plain_records,
            "pyarrow reads the segments and writes the same Parquet, one process", 300_000,
        )  # fmt: skip
        self._companions_stage()
        yield self._beside(
            f"companions {of}, 6 fields, 1 rollup", self._companions_stage, self._tantivy, "tantivy, 2 threads", 40_000
        )
        yield self._beside(
            "rollups alone, by hour and service",
            *floors.rollups(self._data),
            "DuckDB, the same groups of the same columns",
        )
        lake = self._lake_of_records()
        yield self._beside(
            "source by path, all columns", self._source("path", str(self._data)), self._parquet(lake),
            "Spark reads the same records as Parquet", 700_000,
        )  # fmt: skip
        with serving(self._data) as server:
            yield self._beside(
                "source by url, all columns", self._source("url", server.url), self._parquet(lake),
                "Spark reads the same records as Parquet",
            )  # fmt: skip
            yield self._beside("sink by url", self._sink(server.url), self._parquet_sink(), "Spark writes Parquet")
        shutil.rmtree(self._data)

    def run_typed(self) -> Iterator[Row]:
        size = fill(self._data, self._records)
        self._tables_stage()
        yield self._beside(
            f"records and typed tables of {size / self._records:.0f} bytes, 6 columns, in one pass",
            self._tables_stage, self._plain_tables, "pyarrow writes the same Parquet, one process", 300_000,
        )  # fmt: skip
        shutil.rmtree(self._data)

    def _beside(
        self, name: str, work: Callable[[], Sample], floor: Callable[[], Sample], floor_is: str, aim: int | None = None
    ) -> Row:
        target = None if aim is None else Target(aim, "records/s")
        return in_rounds(work, floor, self._rounds).row(self._group, name, "records/s", floor_is, target=target)

    # --- stages ------------------------------------------------------------------------------------------------------

    @contextmanager
    def _round(self) -> Iterator[Round]:
        """A round over the whole history, into a new lake."""
        lake = Lake.at(self._base / f"lake-{next(_numbers)}")
        history = DirectoryHistory(self._data)
        try:
            yield round_of(self._spark, history, lake)
        finally:
            history.close()
            shutil.rmtree(lake.url, ignore_errors=True)

    def _records_stage(self) -> Sample:
        with self._round() as round:
            sample = timed(self._records, lambda: records.run(round))
            assert round.done["records"] == self._records
            return sample

    def _plain_records(self) -> Sample:
        with self._round() as round:
            return timed(self._records, lambda: floors.copy_records(round.history, round.lake))

    def _tables_stage(self) -> Sample:
        with self._round() as round:

            def both() -> None:
                records.run(round)
                typed_tables.run(round)

            sample = timed(self._records, both)
            assert round.done["records"] == round.done["tables"] == self._records
            return sample

    def _plain_tables(self) -> Sample:
        with self._round() as round:
            return timed(self._records, lambda: floors.parse_records(round.history, round.lake))

    def _companions_stage(self) -> Sample:
        with self._round() as round:
            covered: dict[int, int] = {}
            sample = timed(self._records, lambda: covered.update(stage.run(round)))
            assert set(covered.values()) == {self._records}
            return sample

    def _tantivy(self) -> Sample:
        payloads = list(documents(self._records, 10))
        with directory(self._base, "tantivy") as path:
            return timed(self._records, lambda: floors.tantivy_index(path, payloads))

    # --- source and sink ---------------------------------------------------------------------------------------------

    def _lake_of_records(self) -> Lake:
        lake = Lake.at(self._base / "read")
        history = DirectoryHistory(self._data)
        records.run(round_of(self._spark, history, lake))
        history.close()
        return lake

    def _source(self, option: str, place: str) -> Callable[[], Sample]:
        def turn() -> Sample:
            frame = self._spark.read.format("strandline").option(option, place).option("logs", LOG).load()
            return timed(self._records, lambda: frame.write.format("noop").mode("overwrite").save())

        turn()
        return turn

    def _parquet(self, lake: Lake) -> Callable[[], Sample]:
        from strandline.lake import layout

        files = layout.records(lake).open().file_uris()

        def turn() -> Sample:
            frame = self._spark.read.parquet(*files)
            return timed(self._records, lambda: frame.write.format("noop").mode("overwrite").save())

        return turn

    def _frame(self) -> Any:
        wanted = self._effort.scaled(SINK_RECORDS, 10_000)
        texts = [data.decode() for batch in documents(wanted, 10) for data in batch]
        frame = self._spark.createDataFrame(pa.table({"data": texts})).repartition(4).cache()
        frame.count()
        return frame, wanted

    def _sink(self, url: str) -> Callable[[], Sample]:
        frame, rows = self._frame()

        def turn() -> Sample:
            name = f"sink-{next(_numbers)}"
            writer = frame.write.format("strandline").option("url", url).option("log", name).mode("append")
            return timed(rows, writer.save)

        turn()
        return turn

    def _parquet_sink(self) -> Callable[[], Sample]:
        frame, rows = self._frame()

        def turn() -> Sample:
            path = str(self._base / f"written-{next(_numbers)}")
            sample = timed(rows, lambda: frame.write.parquet(path))
            shutil.rmtree(path)
            return sample

        turn()
        return turn


def round_of(spark: SparkSession, history: DirectoryHistory, lake: Lake) -> Round:
    from strandline.lake.erasures import ErasureEvents

    logs = [info for info in history.logs() if not info.name.startswith("__")]
    return Round(spark, history, lake, Silent(), logs, logs, ErasureEvents(history))


# --- growth --------------------------------------------------------------------------------------------------------


def _growth(spark: SparkSession, base: Path, effort: Effort) -> Iterator[Row]:
    """A first round over a whole history, and a second round with few new records."""
    from strandline.engine import Batch, Engine

    for length in GROWTH:
        length = effort.scaled(length, 20_000)
        data, lake = base / f"data-{length}", Lake.at(base / f"lake-{length}")
        fill(data, length)
        seconds = _whole_round(spark, data, lake)
        yield single(GROUP, f"all stages over {length:,} records", "records/s", length / seconds)
        times = []
        more = list(documents(effort.scaled(MORE, 1000), 10))
        for _ in range(min(effort.rounds, ROUNDS)):
            with Engine.open(data) as engine:
                for batch in more:
                    engine.log(LOG).append(Batch(batch)).wait()
            times.append(_whole_round(spark, data, lake))
        name = f"all stages, {sum(map(len, more)):,} new records behind {length:,}"
        yield alone(GROUP, name, "s", times)
        shutil.rmtree(data)
        shutil.rmtree(lake.url)


def _whole_round(spark: SparkSession, data: Path, lake: Lake) -> float:
    begun = time.perf_counter()
    history = DirectoryHistory(data)
    run_round(spark, history, lake, Silent())
    history.close()
    return time.perf_counter() - begun
