from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import polars
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from support import killed_tasks, spark_round_process
from support.lake_rounds import Bed, append, by_key, check_typed, derived, install, text_schema

from strandline.engine import Batch
from strandline.engine.process import child_environment
from strandline.pipeline import records
from strandline.pipeline.frames import lake_table
from strandline.pipeline.spark_catalog import register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DRIVER = Path(spark_round_process.__file__)


@pytest.fixture
def bed(tmp_path: Path, spark: SparkSession) -> Iterator[Bed]:
    bed = Bed(tmp_path, spark)
    yield bed
    bed.close()


def test_every_table_is_read_by_duckdb_polars_pandas_and_spark(bed: Bed, spark: SparkSession) -> None:
    log, other = bed.log("a"), bed.log("b")
    install(log, {"type": "object", "properties": {"n": {"type": "integer"}}})
    for number in range(40):
        append(log, f'{{"n":{number}}}', key=f"key-{number % 7}")
    other.append(Batch([b"\xff", b"text"], keys=[None, "k"])).wait()
    bed.round()
    log.delete(key="key-3").wait()
    log.hide(seqs=[1]).wait()
    append(log, "late", key="key-5")
    bed.round()
    assert by_key(bed) == derived(bed.rows())
    assert (len(bed.rows()), len(bed.rows("latest")), len(bed.rows("keys"))) == (36, 7, 7)
    for name in ("records", "latest", "keys"):
        expected = Counter(shown(row) for row in bed.rows(name))
        table = bed.table(name)
        files = table.open().file_uris()
        columns = [column for column in table.schema.names if column != "bucket"]
        ducks = duckdb.sql("select * from read_parquet($files)", params={"files": files}).to_arrow_table()
        assert Counter(shown(row) for row in ducks.select(columns).to_pylist()) == expected
        polar = polars.read_delta(table.lake.place_of(name)).select(columns)
        assert Counter(shown(row) for row in polar.to_dicts()) == expected
        lazy = polars.scan_delta(table.lake.place_of(name)).select(polars.len()).collect().item()
        assert lazy == sum(expected.values())
        pandas = table.open().to_pandas()
        assert len(pandas) == sum(expected.values())
        assert set(pandas["log"]) <= {"a", "b"}
        sparks = lake_table(spark, bed.lake, name).toArrow()
        assert Counter(shown(row) for row in sparks.to_pylist()) == expected
    write_deltalake(f"{bed.lake.url}/declared/revenue", pa.table({"cents": [130]}))
    bed.round()
    assert "USING delta" in (bed.path / "lake/catalog/revenue.sql").read_text()
    assert register(spark, bed.lake) == ["records", "latest", "keys", "a", "b"], "declared tables need Delta"
    assert spark.sql("select count(n), count(_corrupt) from a where seq between 2 and 41").first()[:] == (33, 1)
    append(bed.log("plain"), '{"n":1}', "?")
    bed.round()
    register(spark, bed.lake)
    assert [row[0] for row in spark.sql("select value:n::int from plain order by seq").collect()] == [1, None]
    log.drop().wait()
    other.drop().wait()
    bed.round()
    assert lake_table(spark, bed.lake, "latest").count() == 0


def shown(row: dict[str, Any]) -> tuple[Any, ...]:
    """A row by its values, whoever read it."""
    return tuple((name, value.timestamp() if hasattr(value, "timestamp") else value) for name, value in row.items())


def test_a_killed_worker_ends_the_round_and_the_next_one_makes_up_for_it(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "MIN_ITEM_ROWS", 10)
    monkeypatch.setattr(records, "MAX_ITEM_ROWS", 10)
    append(bed.log(), *(str(number) for number in range(50)), key="x")
    with monkeypatch.context() as patch:
        patch.setattr(records, "write_records", killed_tasks.killed_once)
        with pytest.raises(Exception, match=r"(?i)worker"):
            bed.round()
    assert (bed.path / "lake" / "incident").exists()
    bed.round()
    assert bed.data() == [str(number) for number in range(50)]
    assert by_key(bed) == derived(bed.rows())


def test_a_killed_driver_leaves_nothing_missing_and_nothing_twice(bed: Bed) -> None:
    logs = [bed.log(f"log-{number}") for number in range(3)]
    for log in logs:
        install(log, text_schema("v"))
        append(log, *(f"{log.name}-{number}" for number in range(900)), key="even")
    bed.engine.seal()
    logs[0].append(Batch([b"unsealed"], keys=["odd"])).wait()
    # Nine items, eight in a wave.
    kill_at(bed, "committed records")
    assert 0 < len(bed.rows()) < 2701
    kill_at(bed, "committed tables")
    assert 0 < len(bed.typed("log-0")) <= 901
    logs[1].delete(before=11).wait()
    bed.round()
    expected = [(log.name, record.seq) for log in logs for record in log.read(0, 10_000)]
    assert [(row["log"], row["seq"]) for row in bed.rows()] == expected
    assert by_key(bed) == derived(bed.rows())
    check_typed(bed)
    assert bed.heard.problems == []


def kill_at(bed: Bed, line: str) -> None:
    """Let another process make a round, and kill it as soon as it says this."""
    arguments = [sys.executable, str(DRIVER), str(bed.path / "data"), bed.lake.url, "300"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, env=child_environment()) as driver:
        assert driver.stdout is not None
        try:
            for said in driver.stdout:
                if said.strip() == line:
                    break
            else:
                pytest.fail(f"the driver ended without saying {line!r}")
        finally:
            driver.send_signal(signal.SIGKILL)
