"""The source as users have it: on a real Spark, by path and by url."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from support.arrow_client import ArrowClient, table
from support.server_process import ServerProcess, StartServer

from strandline.engine import Batch, Engine
from strandline.lake.declared import DeclaredFiles
from strandline.pipeline.source.lag import LagListener, SourceLag, lag_of
from strandline.schema.registry import Registry

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PEOPLE = {
    "type": "object",
    "properties": {"n": {"type": "integer"}, "home": {"type": "object", "properties": {"city": {"type": "string"}}}},
}
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A directory with some logs, part of them sealed."""
    path = tmp_path_factory.mktemp("source") / "data"
    with Engine.open(path, background=False) as engine:
        orders = engine.create("orders").wait()
        for first in (0, 60):
            payloads = [b'{"n":%d,"x":1.50}' % number for number in range(first, first + 60)]
            orders.append(Batch(payloads, [f"k{number % 5}" for number in range(60)])).wait()
            engine.seal()
        engine.create("other").wait().append(Batch([b'"text"', b"\xff"])).wait()
        people = engine.create("people", notes={"registry": Registry.installed("people", PEOPLE).stored()}).wait()
        people.append(Batch([b'{"n":1,"home":{"city":"X"}}', b'{"n":"one"}'])).wait()
    return str(path)


@pytest.fixture
def server(start_server: StartServer) -> ServerProcess:
    return start_server()


@pytest.fixture
def arrow(server: ServerProcess) -> Iterator[ArrowClient]:
    client = ArrowClient(server.url)
    yield client
    client.close()


def load(spark: SparkSession, **options: Any) -> DataFrame:
    return spark.read.format("strandline").options(**options).load()


def size_of(frame: DataFrame) -> int:
    return int(str(frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))


def plan_of(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


def read_all(arrow: ArrowClient, name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = arrow.read(name).to_pylist()
    return rows


def test_filters_are_pushed_if_that_is_asked_for(spark: SparkSession, data: str) -> None:
    wanted = "log = 'orders' and seq > 58 and seq <= 62 and key in ('k3', 'k4', 'k0')"
    for pushdown, is_filtered in (("true", False), ("false", True)):
        frame = load(spark, path=data, pushdown=pushdown).where(wanted)
        assert sorted(row.seq for row in frame.collect()) == [59, 60, 61]
        assert ("Filter (" in plan_of(frame)) == is_filtered


def test_without_that_a_frame_can_be_used_again_and_again(spark: SparkSession, data: str) -> None:
    """Spark would let each scan of a frame read what was pushed for the last one."""
    frame = load(spark, path=data, logs="orders")
    assert frame.where("seq <= 5").count() == 5
    assert frame.count() == 120
    assert frame.where("seq <= 5").union(frame.where("seq > 100")).count() == 25


def test_spark_says_what_to_set_when_it_does_not_push(spark: SparkSession, data: str) -> None:
    spark.conf.set(PUSHDOWN, "false")
    try:
        assert load(spark, path=data).where("seq = 1").count() == 3
        with pytest.raises(Exception, match=PUSHDOWN):
            load(spark, path=data, pushdown="true").count()
    finally:
        spark.conf.set(PUSHDOWN, "true")


def test_payloads_are_what_is_asked_for(spark: SparkSession, data: str) -> None:
    other = load(spark, path=data, logs="other").orderBy("seq").collect()
    assert [row.data for row in other] == ['"text"', None]
    both = load(spark, path=data, payload="variant", logs="orders,other").selectExpr(
        "log", "data", "data:n::int as n", "data:x::decimal(5,2) as x"
    )
    found = both.where("n >= 118 or log = 'other'").orderBy("log", "n").collect()
    assert [(row.n, None if row.data is None else row.data.toPython()) for row in found[:2]] == [
        (118, {"n": 118, "x": found[0].x}),
        (119, {"n": 119, "x": found[1].x}),
    ]
    assert {None if row.data is None else row.data.toPython() for row in found[2:]} == {"text", None}
    typed = load(spark, path=data, payload="columns", logs="people").orderBy("seq").select("n", "home.city", "_corrupt")
    assert [tuple(row) for row in typed.collect()] == [(1, "X", None), (None, None, '{"n":"one"}')]


def test_columns_are_chosen_before_anything_is_read(
    spark: SparkSession, data: str, server: ServerProcess, arrow: ArrowClient
) -> None:
    frame = load(spark, path=data, logs="orders", columns="key, seq", pushdown="true", startTime="1970-01-01")
    assert frame.columns == ["key", "seq"]
    assert sorted(frame.where("seq > 58 and seq <= 60").collect()) == [("k3", 59), ("k4", 60)]
    typed = load(spark, path=data, logs="people", columns="n", payload="columns")
    assert sorted(row.n or 0 for row in typed.collect()) == [0, 1]
    with pytest.raises(Exception, match="columns: unknown column 'sequence'; available are log, epoch, seq"):
        load(spark, path=data, columns="sequence")
    arrow.append("wide", table(1, 2, key=["a", "b"]), create="true", status=201)
    assert sorted(load(spark, url=server.url, log="wide", columns="key").collect()) == [("a",), ("b",)]


def test_a_table_of_the_catalog_keeps_its_options(spark: SparkSession, data: str, server: ServerProcess) -> None:
    """Spark itself passes them only when the table is created."""
    spark.sql(f"create table by_path using strandline options (path '{data}', logs 'orders', columns 'seq,key')")
    spark.sql(f"create table visits using strandline options (url '{server.url}', log 'visits', columns 'key,data')")
    try:
        assert spark.sql("select count(*), max(seq) from by_path where key = 'k4'").collect() == [(24, 120)]
        assert spark.read.option("startSeq", "100").table("by_path").count() == 21
        assert spark.sql("select count(*) from by_path with (endSeq '3')").collect() == [(3,)]
        joined = "select count(*) from by_path a join by_path b using (seq) where a.seq < 9 and b.seq > 2"
        assert spark.sql(joined).collect() == [(6,)]
        spark.sql("insert into visits values ('ada', '1'), ('bob', '2')")
        spark.sql("insert into visits (data) values ('3')")
        spark.sql("insert into visits select 'eve' as key, '4' as data")
        spark.sql("select 'eve' as key, '5' as data").writeTo("visits").append()
        found = spark.sql("select key, data from visits order by data").collect()
        assert found == [("ada", "1"), ("bob", "2"), (None, "3"), ("eve", "4"), ("eve", "5")]
        with pytest.raises(Exception, match="a log cannot be overwritten"):
            spark.sql("insert overwrite visits values ('x', '9')")
        query = (
            spark.readStream.table("visits").writeStream.format("memory").queryName("seen").outputMode("append")
            .trigger(availableNow=True).start()
        )  # fmt: skip
        query.awaitTermination()
        assert spark.table("seen").count() == 5
    finally:
        spark.sql("drop table by_path")
        spark.sql("drop table visits")
    assert load(spark, path=data, logs="orders").count() == 120


def test_a_table_says_what_spark_does_not_pass_on(spark: SparkSession, data: str) -> None:
    with pytest.raises(Exception, match=r"option 'key' cannot be stored in a catalog.*STRANDLINE_KEY"):
        spark.sql("create table secret using strandline options (url 'http://127.0.0.1:9', key 'k', log 'a')")
    spark.sql(f"create table listed (seq bigint) using strandline options (path '{data}')")
    try:
        with pytest.raises(Exception, match="without a list of columns"):
            spark.sql("select * from listed").collect()
    finally:
        spark.sql("drop table listed")


def test_a_temporary_view_is_read_and_written(spark: SparkSession, server: ServerProcess) -> None:
    options = f"url '{server.url}', log 'notes', columns 'key,data'"
    spark.sql(f"create or replace temporary view notes using strandline options ({options})")
    spark.sql("insert into notes values ('a', '1')")
    assert spark.sql("select * from notes").collect() == [("a", "1")]


def test_the_size_of_a_log_is_unknown_to_spark_and_a_hint_chooses_a_broadcast(spark: SparkSession, data: str) -> None:
    from pyspark.sql import functions as f

    small, large = load(spark, path=data, logs="orders", columns="seq,key"), spark.range(1000)

    def planned(frame: DataFrame) -> str:
        return plan_of(large.join(frame, large.id == frame.seq))

    assert size_of(small) == 2**63 - 1
    assert "BuildLeft" in planned(small)
    assert "BuildRight" in planned(f.broadcast(small))
    cached = small.cache()
    cached.count()
    try:
        assert size_of(cached.select("*")) < 100_000
    finally:
        cached.unpersist()


def test_the_progress_of_a_query_shows_its_lag(spark: SparkSession, data: str, tmp_path: Path) -> None:
    told: SimpleQueue[tuple[str, SourceLag]] = SimpleQueue()
    listener = LagListener(lambda name, lag: told.put((name, lag)))
    spark.streams.addListener(listener)
    stream = spark.readStream.format("strandline").options(path=data, logs="orders", maxOffsetsPerTrigger="50").load()
    query = (
        stream.writeStream.format("noop").queryName("lagging")
        .option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    )  # fmt: skip
    try:
        query.awaitTermination()
        lags = [lag.offsets_behind_latest for progress in query.recentProgress for lag in lag_of(progress)]
        assert lags[:3] == [70, 20, 0]
        # Events may arrive after the query has ended.
        name, lag = told.get()
        assert (name, lag.furthest_behind) == ("lagging", "orders")
    finally:
        spark.streams.removeListener(listener)


def test_declared_tables_are_read_beside_logs(spark: SparkSession, data: str, tmp_path: Path) -> None:
    day = datetime(2026, 11, 2, 9, tzinfo=UTC)
    rows = pa.table(
        {
            "Key": ["k1", "k2"],
            "cents": pa.array([Decimal("12.50"), None], pa.decimal128(10, 2)),
            "day": pa.array([day, None], pa.timestamp("us", "UTC")),
            "items": [["pen", "lamp"], []],
            "home": [{"city": "X", "tags": {"a": 1}}, None],
        },
        schema=pa.schema(
            [
                ("Key", pa.string()),
                ("cents", pa.decimal128(10, 2)),
                ("day", pa.timestamp("us", "UTC")),
                ("items", pa.list_(pa.string())),
                ("home", pa.struct([("city", pa.string()), ("tags", pa.map_(pa.string(), pa.int64()))])),
            ]
        ),
    )
    write_deltalake(DeclaredFiles.of(tmp_path).table("Revenue"), rows)
    found = load(spark, lake=str(tmp_path), table="revenue")
    assert found.orderBy("Key").toArrow().to_pylist() == rows.to_pylist()
    assert found.count() == 2
    assert load(spark, lake=str(tmp_path), table="revenue", columns="cents,Key").columns == ["cents", "Key"]
    orders = load(spark, path=data, logs="orders", columns="seq,key")
    assert orders.join(found, orders.key == found.Key).count() == 48
    spark.sql(f"create or replace temporary view revenue using strandline options (lake '{tmp_path}', table 'revenue')")
    assert spark.sql("select sum(cents) as cents from revenue").collect() == [(Decimal("12.50"),)]
    with pytest.raises(Exception, match=r"there is no declared table 'revenu' in the lake .*; did you mean 'Revenue'"):
        load(spark, lake=str(tmp_path), table="revenu")


def test_variants_are_those_of_parse_json(spark: SparkSession, data: str) -> None:
    texts = load(spark, path=data, logs="orders").selectExpr("seq", "parse_json(data) as v").toArrow().sort_by("seq")
    ready = load(spark, path=data, logs="orders", payload="variant").selectExpr("seq", "data as v").toArrow()
    assert ready.sort_by("seq").column("v").to_pylist() == texts.column("v").to_pylist()


def test_columns_can_be_left_out_with_a_schema(spark: SparkSession, data: str) -> None:
    frame = spark.read.format("strandline").schema("data string, seq long").option("logs", "other").load(data)
    assert sorted(tuple(row) for row in frame.where("seq = 1").collect()) == [('"text"', 1)]
    with pytest.raises(Exception, match="column 'seq' is bigint, not string"):
        spark.read.format("strandline").schema("seq string").load(data).count()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "either url .of a server. or path"),
        ({"path": "/nowhere", "colour": "blue"}, "unknown option 'colour'; available are batchRows"),
        ({"path": "/nowhere/at/all"}, "/nowhere/at/all"),
        ({"url": "http://127.0.0.1:9"}, "http://127.0.0.1:9 does not answer"),
    ],
)
def test_what_is_wrong_is_said(spark: SparkSession, options: dict[str, str], said: str) -> None:
    with pytest.raises(Exception, match=said):
        load(spark, **options).count()


def test_logs_are_read_and_written_through_a_server(
    spark: SparkSession, server: ServerProcess, arrow: ArrowClient
) -> None:
    arrow.append("a", table(*range(200), key=[f"k{number % 4}" for number in range(200)]), create="true", status=201)
    frame = load(spark, url=server.url, logs="a", splitsPerLog="3")
    assert frame.where("key = 'k1' and seq > 100").count() == 25
    frame.write.format("strandline").mode("append").options(url=server.url, log="b", batchRows="16").save()
    copied = read_all(arrow, "b")
    assert sorted(int(row["data"]) for row in copied) == list(range(200))
    assert {(int(row["data"]) % 4, row["key"]) for row in copied} == {(n, f"k{n}") for n in range(4)}
    assert arrow.call("GET", "logs/b", params={"writer": "w"})["progress"] is None
    rows = spark.sql(
        "select concat('to-', id % 2) as log, cast(id as string) as key, id as n, null as nothing from range(4)"
    )
    rows.write.format("strandline").mode("append").options(url=server.url).save()
    # Each in a task of its own: which of them is first is not said.
    written = sorted((row["key"], json.loads(row["data"])["n"]) for row in read_all(arrow, "to-1"))
    assert written == [("1", 1), ("3", 3)]


def test_what_cannot_be_written_is_refused(spark: SparkSession, server: ServerProcess) -> None:
    def write(mode: str, select: str, **options: str) -> None:
        frame = spark.sql(f"select {select} from range(2)")
        frame.write.format("strandline").mode(mode).options(url=server.url, **options).save()

    with pytest.raises(Exception, match="a log cannot be overwritten"):
        write("overwrite", "'1' as data", log="a")
    with pytest.raises(Exception, match="no target log"):
        write("append", "'1' as data")
    with pytest.raises(Exception, match="log 'a' not found"):
        write("append", "'1' as data", log="a", create="false")
    with pytest.raises(Exception, match="JSON"):
        write("append", "'nope' as data", log="a")


def test_a_directory_is_written_by_the_driver(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "data")
    frame = spark.sql("select cast(id as string) as data from range(0, 1000, 1, 4)")
    frame.write.format("strandline").mode("append").option("log", "a").save(path)
    stream = spark.readStream.format("strandline").options(logs="a", maxOffsetsPerTrigger="400").load(path)
    query = (
        stream.writeStream.format("strandline")
        .options(path=path, log="b", checkpointLocation=str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    assert load(spark, path=path, logs="b").where("cast(data as int) = seq - 1").count() == 1000
