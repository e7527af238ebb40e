from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from support.lake_copy import fill

from strandline.engine import Batch, Engine
from strandline.history.directory import DirectoryHistory
from strandline.lake.location import Lake
from strandline.pipeline.frames import NoSchema, keep_registries, promoted
from strandline.query.config_parser import parse_search_config
from strandline.schema.log_search import with_search
from strandline.schema.registry import Registry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLD = {"type": "object", "properties": {"n": {"type": "string"}}, "required": ["n"]}
NEW = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "size": {"type": "integer"}, "seq": {"type": "integer"}},
    "required": ["name", "size"],
}
LENS = {
    "apiVersion": "durable.lens/v1",
    "schema": "log",
    "from": 1,
    "to": 2,
    "ops": [
        {"op": "rename", "from": "/n", "to": "/name"},
        {"op": "add", "path": "/size", "schema": {"type": "integer"}, "default": 0},
    ],
}


def test_records_on_both_sides_of_a_change_are_read_as_the_current_version(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake.at(tmp_path / "lake")
    registry = Registry.installed("log", OLD)
    with Engine.open(tmp_path / "data", background=False) as engine:
        engine.create("plain").wait().append(Batch([b"{}"])).wait()
        binding = {"version": 1, "jsonPointer": "/n"}
        search = parse_search_config({"fields": {"n": {"kind": "keyword", "exact": True, "bindings": [binding]}}})
        engine.create("searched", notes={"registry": with_search(None, "searched", search)}).wait()
        log = engine.create("log").wait()
        log.append(Batch([b'{"n":"a"}', b'{"n":"b"}'], keys=["k", None])).wait()
        engine.seal()
        log.append(Batch([b'{"no":"name"}'])).wait()
        registry = registry.update(msgspec.json.encode({"schema": NEW, "lens": LENS}), next_sequence=3)
        new = [b'{"name":"d","size":4,"seq":9}', b'{"name":"e","size":"large"}', b"\xff"]
        log.append(Batch(new), notes={"registry": registry.stored()}).wait()
        fork = engine.fork("fork", log, 4).wait()
        fork.append(Batch([b'{"name":"forked","size":1}']), notes={"registry": registry.stored()}).wait()
    history = DirectoryHistory(tmp_path / "data")
    fill(lake, history)
    keep_registries(lake, history.logs(), now_ms=1)
    history.close()

    frame = promoted(spark, lake, "log")
    assert frame.dtypes == [
        ("log", "string"), ("seq", "bigint"), ("ts", "timestamp"), ("key", "string"),
        ("name", "string"), ("size", "bigint"), ("data_seq", "bigint"), ("_corrupt", "string"),
    ]  # fmt: skip
    rows = [tuple(row) for row in frame.orderBy("seq").drop("ts").collect()]
    assert rows == [
        ("log", 1, "k", "a", 0, None, None),
        ("log", 2, None, "b", 0, None, None),
        ("log", 3, None, None, None, None, '{"no":"name"}'),
        ("log", 4, None, "d", 4, 9, None),
        ("log", 5, None, None, None, None, '{"name":"e","size":"large"}'),
        ("log", 6, None, None, None, None, "\ufffd"),
    ]
    forked = promoted(spark, lake, "fork").orderBy("seq").select("log", "seq", "name").collect()
    assert [tuple(row) for row in forked] == [
        ("fork", 1, "a"),
        ("fork", 2, "b"),
        ("fork", 3, None),
        ("fork", 4, "d"),
        ("fork", 5, "forked"),
    ]
    for name in ("plain", "searched"):
        with pytest.raises(NoSchema, match=name):
            promoted(spark, lake, name)
