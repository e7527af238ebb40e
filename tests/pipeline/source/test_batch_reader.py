"""Reading by path, without Spark: what is planned, and what of it is read."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, In, LessThanOrEqual, StringStartsWith

from strandline.engine import Batch, Engine
from strandline.engine.errors import UnknownLog
from strandline.engine.reads.directory_view import VIEWS
from strandline.engine.segments.segment import ROW_COLUMNS, Segment
from strandline.pipeline.source import task_reader
from strandline.pipeline.source.batch_reader import BatchReader, PushingReader, offered_schema
from strandline.pipeline.source.columns import NoColumns
from strandline.pipeline.source.options import read_options
from strandline.schema.registry import Registry


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with Engine.open(tmp_path / "data", background=False) as engine:
        yield engine
    for views in task_reader._kept.values():
        for _, view in views:
            view.close()
    task_reader._kept.clear()


@pytest.fixture
def blocks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The blocks whose records are decompressed."""
    found: list[int] = []
    read = Segment.batch

    def counted(self: Segment, index: int, *rest: Any) -> Any:
        # An index is looked at without the payloads.
        if rest == (ROW_COLUMNS,):
            found.append(index)
        return read(self, index, *rest)

    monkeypatch.setattr(Segment, "batch", counted)
    return found


def fill(engine: Engine, name: str, count: int, size: int = 10) -> Any:
    log = engine.create(name).wait()
    log.append(
        Batch(
            [b'"%0*d"' % (size, number) for number in range(1, count + 1)], [f"k{n % 10}" for n in range(1, count + 1)]
        )
    ).wait()
    return log


def reader_of(engine: Engine, filters: list[Filter] | None = None, **options: str) -> BatchReader:
    chosen = read_options({"path": str(engine.disk.local_path("")), **options})
    reader = PushingReader(chosen, offered_schema(chosen))
    assert list(reader.pushFilters(filters or [])) == []
    return reader


def rows_of(engine: Engine, filters: list[Filter] | None = None, **options: str) -> list[dict[str, Any]]:
    reader = reader_of(engine, filters, **options)
    batches = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    return pa.Table.from_batches(batches).to_pylist() if batches else []


def seqs_of(engine: Engine, filters: list[Filter] | None = None, **options: str) -> list[tuple[str, int]]:
    return [(row["log"], row["seq"]) for row in rows_of(engine, filters, **options)]


def test_all_logs_are_read_but_the_servers_own(engine: Engine) -> None:
    for name in ("a", "b", "__own"):
        fill(engine, name, 2)
    assert seqs_of(engine) == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]
    assert seqs_of(engine, prefix="b") == [("b", 1), ("b", 2)]
    assert seqs_of(engine, logs="b,__own", endSeq="1") == [("b", 1), ("__own", 1)]
    with pytest.raises(UnknownLog):
        reader_of(engine, logs="b,absent").partitions()


def test_what_is_pushed_is_not_read(engine: Engine, blocks: list[int]) -> None:
    for name in ("a", "b"):
        fill(engine, name, 4000, 2000)
    engine.seal()
    assert len(rows_of(engine)) == 8000
    everything = len(blocks)
    assert everything > 10

    def cost(*filters: Filter) -> tuple[int, int]:
        blocks.clear()
        return len(rows_of(engine, list(filters))), len(blocks)

    assert cost(EqualTo(("log",), "c")) == (0, 0)
    assert cost(StringStartsWith(("log",), "b"))[1] <= everything / 2 + 1
    assert cost(EqualTo(("log",), "a"), GreaterThan(("seq",), 100), LessThanOrEqual(("seq",), 110)) == (10, 1)
    assert cost(GreaterThan(("seq",), 5), LessThanOrEqual(("seq",), 5)) == (0, 0)


def test_of_a_key_only_the_blocks_are_read_that_have_it(engine: Engine, blocks: list[int]) -> None:
    log = fill(engine, "a", 2000, 2000)
    log.append(Batch([b'"x"'], ["rare"])).wait()
    log.append(Batch([b'"%02000d"' % number for number in range(2000)])).wait()
    log.append(Batch([b'"y"', b'"z"'], ["rare", "other"])).wait()
    engine.seal()
    found = rows_of(engine, [In(("key",), ("rare", "absent"))])
    assert [(row["seq"], row["data"]) for row in found] == [(2001, '"x"'), (4002, '"y"')]
    assert len(blocks) == 2
    assert len(rows_of(engine, [EqualTo(("key",), "k3"), GreaterThan(("seq",), 1000)])) == 100
    assert len(rows_of(engine, keys="k3,rare")) == 202
    assert len(rows_of(engine, [In(("key",), ("k3", "k4"))], keys="k3,rare")) == 200


def test_time_bounds_what_is_read(engine: Engine) -> None:
    log = engine.create("a").wait()
    for number in range(10):
        log.append(Batch([b"%d" % number]), ts=1000 + number).wait()
    assert [seq for _, seq in seqs_of(engine, startTime="1003", endTime="1006")] == [4, 5, 6]
    assert seqs_of(engine, startTime="1006", endTime="1006") == []


def test_small_logs_share_a_task_and_large_ones_are_split(engine: Engine) -> None:
    for number in range(20):
        fill(engine, f"small{number:02}", 3)
    assert len(reader_of(engine).partitions()) == 1
    assert len(reader_of(engine, rowsPerPartition="30").partitions()) == 2
    fill(engine, "large", 100)
    engine.seal()
    assert len(reader_of(engine, logs="large", splitsPerLog="4").partitions()) == 4
    assert len(reader_of(engine, prefix="small", splitsPerLog="1").partitions()) == 20
    assert len(seqs_of(engine, splitsPerLog="3")) == 160
    assert len({seq for _, seq in seqs_of(engine, logs="large", rowsPerPartition="7")}) == 100


def test_a_view_serves_until_something_is_written(engine: Engine) -> None:
    log = fill(engine, "a", 3)
    views = Path(engine.disk.local_path(VIEWS))
    for _ in range(3):
        assert len(seqs_of(engine)) == 3
    assert len(list(views.iterdir())) == 1
    for _ in range(6):
        log.append(Batch([b"1"])).wait()
        seqs_of(engine)
    assert len(seqs_of(engine)) == 9
    assert len(list(views.iterdir())) == task_reader.KEPT_VIEWS


def test_a_query_that_was_planned_long_ago_finds_its_records_where_they_are_now(engine: Engine) -> None:
    fill(engine, "a", 50)
    fill(engine, "gone", 5)
    reader = reader_of(engine, rowsPerPartition="20")
    partitions = reader.partitions()
    shutil.rmtree(engine.disk.local_path(VIEWS))
    log = engine.find("a")
    assert log is not None
    log.delete(seqs=[7]).wait()
    log.append(Batch([b"later"])).wait()
    engine.seal()
    found = [batch for partition in partitions[:2] for batch in reader.read(partition)]
    seqs = pa.Table.from_batches(found).column("seq").to_pylist()
    assert seqs == [seq for seq in range(1, len(seqs) + 2) if seq != 7]
    gone = engine.find("gone")
    assert gone is not None
    gone.drop().wait()
    with pytest.raises(UnknownLog):
        list(reader.read(partitions[-1]))


def test_payloads_are_text_or_bytes_or_columns(engine: Engine) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}, "key": {"type": "string"}}}
    registry = Registry.installed("people", schema)
    log = engine.create("people", notes={"registry": registry.stored()}).wait()
    log.append(
        Batch([b'{"n":1,"key":"x"}', b'{"n":"one"}', b"\xff"], ["k", None, None], metas=[b"{}", None, None])
    ).wait()
    assert [row["data"] for row in rows_of(engine)] == ['{"n":1,"key":"x"}', '{"n":"one"}', None]
    raw = rows_of(engine, payload="bytes")
    assert [row["data"] for row in raw] == [b'{"n":1,"key":"x"}', b'{"n":"one"}', b"\xff"]
    assert raw[0]["meta"] == b"{}"
    typed = [{name: row[name] for name in ("key", "meta", "n", "data_key", "_corrupt")} for row in
             rows_of(engine, payload="columns")]  # fmt: skip
    assert typed == [
        {"key": "k", "meta": "{}", "n": 1, "data_key": "x", "_corrupt": None},
        {"key": None, "meta": None, "n": None, "data_key": None, "_corrupt": '{"n":"one"}'},
        {"key": None, "meta": None, "n": None, "data_key": None, "_corrupt": "�"},
    ]


def test_columns_need_logs_of_one_schema(engine: Engine) -> None:
    place = {"path": str(engine.disk.local_path("")), "payload": "columns"}
    with pytest.raises(NoColumns, match="none found at"):
        offered_schema(read_options(place))
    for name, kind in (("a", "integer"), ("b", "string")):
        schema = {"type": "object", "properties": {"n": {"type": kind}}}
        engine.create(name, notes={"registry": Registry.installed(name, schema).stored()}).wait()
    with pytest.raises(NoColumns, match="those of 'a' and 'b' differ"):
        offered_schema(read_options(place))
    engine.create("c").wait()
    with pytest.raises(NoColumns, match="log 'c' has none"):
        offered_schema(read_options({**place, "prefix": "c"}))
    assert "n" in offered_schema(read_options({**place, "logs": "a"})).fieldNames()


def test_a_fork_can_be_read_without_what_it_shares(engine: Engine) -> None:
    log = fill(engine, "a", 5)
    engine.fork("fork", log, 3).wait().append(Batch([b"1"])).wait()
    assert [seq for _, seq in seqs_of(engine, logs="fork")] == [1, 2, 3, 4]
    assert [seq for _, seq in seqs_of(engine, logs="fork", own="true")] == [4]
