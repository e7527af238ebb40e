from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from support import delta_reader
from support.lake_rounds import Bed, append, check_typed, install, text_schema
from support.local_tasks import work_here
from support.maven_jars import resolve

from strandline.engine.process import child_environment

DELTA = ["io.delta:delta-spark_4.2_2.13:4.4.0", "io.delta:delta-storage:4.4.0"]


@pytest.fixture
def bed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bed]:
    work_here(monkeypatch)
    bed = Bed(tmp_path)
    yield bed
    bed.close()


class Reader:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def rows(self, statement: str) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{statement}\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


def test_a_session_with_delta_sees_tables_and_their_later_versions(bed: Bed) -> None:
    jars = ",".join(map(str, resolve(DELTA, without_spark=True)))
    log = bed.log("orders-2")
    closed = {**text_schema("v"), "additionalProperties": False}
    install(log, closed)
    append(log, '{"v":"1"}', "broken", key="k")
    append(bed.log("plain"), '{"n":{"x":5}}')
    revenue = pa.table({"customer": ["ada"], "cents": [130]})
    write_deltalake(f"{bed.lake.url}/declared/revenue", revenue)
    bed.round()
    command = [sys.executable, delta_reader.__file__, jars, bed.lake.url, str(bed.path / "warehouse")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=child_environment()
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            reader = Reader(process)
            assert reader.rows("select seq, v, _corrupt from orders_2 order by seq") == [
                {"seq": 1, "v": "1", "_corrupt": None},
                {"seq": 2, "v": None, "_corrupt": "broken"},
            ]
            assert reader.rows("select value:n.x::int as x from plain") == [{"x": 5}]
            assert reader.rows("select * from revenue") == revenue.to_pylist()
            # Another column, and then files of another engine, which stores times differently.
            wider = text_schema("v", "w")
            wider["properties"]["w"] = {"type": ["string", "null"]}
            add = {"op": "add", "path": "/w", "schema": {"type": ["string", "null"]}, "default": None}
            install(log, wider, [add])
            append(log, '{"v":"3","w":"x"}', '{"v":"4","w":"y"}')
            bed.round()
            assert reader.rows("select seq, w from orders_2 where w is not null order by seq")[-1] == {
                "seq": 4,
                "w": "y",
            }
            reader.rows("optimize orders_2")
            log.delete(seqs=[1, 3]).wait()
            bed.round()
            check_typed(bed)
            assert [row["seq"] for row in reader.rows("select seq from orders_2 order by seq")] == [2, 4]
            # Tables of others are not touched.
            reader.rows("create database other")
            reader.rows("create table other.orders_2 (a int) using delta")
            reader.rows("use other")
            assert "has another table of this name" in reader.rows("select 1")
            process.stdin.close()  # type: ignore[union-attr]
            assert process.wait() == 0
        finally:
            process.kill()
