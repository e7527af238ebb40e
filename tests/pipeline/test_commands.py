"""``strandline import``, ``strandline export`` and ``strandline pipeline audit``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from support.command_line import app
from support.lake_copy import fill
from support.server_process import ServerProcess
from typer.testing import CliRunner

from strandline.engine import Batch, Engine
from strandline.history.directory import DirectoryHistory
from strandline.lake.fence import claim
from strandline.lake.layout import records
from strandline.lake.location import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run(*arguments: object) -> tuple[int, str, str]:
    """In this process, and on the session that it has."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


KAFKA = ["import", "h:1", "--format", "kafka", "--log", "a", "--data", "d", "--topic", "t"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["import", "x", "--format", "csv", "--log", "a"], "either --data or --url"),
        (["import", "x", "--format", "csv", "--data", "d"], "specify the log to append to with --log"),
        (["import", "x", "--format", "csv", "--log", "a", "--data", "d", "--master", "spark://h:1"], "--staging"),
        (["import", "x", "--format", "csv", "--log", "a", "--data", "d", "--type", "b=decimal"], "boolean"),
        (["import", "x", "--format", "csv", "--log", "a", "--data", "d", "--type", "b"], "name=value"),
        (
            ["import", "x", "--format", "csv", "--log", "a", "--data", "d", "--topic", "t"],
            "needs --format kafka",
        ),
        (["import", "h:1", "--format", "kafka", "--log", "a", "--data", "d"], "--topic"),
        (
            ["import", "h:1", "--format", "kafka", "--log", "a", "--data", "d", "--topic", "t", "--key-path", "/a"],
            "--log",
        ),
        (["import", "nowhere", "--format", "csv", "--log", "a", "--data", "d"], "no files found: nowhere"),
        (["import", "nowhere.csv", "--log", "a", "--data", "d"], "no files found: nowhere.csv"),
        (["import", __file__, "--log", "a", "--data", "d"], "does not say its format: specify --format"),
        (["import", "x.csv", "--log", "a", "--data", "d", "--no-spark", "--conf", "spark.a=b"], "--no-spark"),
        (
            ["import", "h:1", "--format", "kafka", "--log", "a", "--data", "d", "--topic", "t", "--no-spark"],
            "needs Spark",
        ),
        ([*KAFKA, "--remote", "sc://h"], "use --master"),
        ([*KAFKA, "--bad", "skip", "--dead-letters", "b"], "--bad skip cannot be combined"),
        ([*KAFKA, "--dead-letters", "a"], "cannot be the same log"),
        ([*KAFKA, "--option", "endingOffsets=latest"], "endingOffsets cannot be set"),
        ([*KAFKA, "--option", "startingOffsets=soon"], "expected earliest, latest"),
        ([*KAFKA, "--value-format", "avro"], "needs --schema"),
        ([*KAFKA, "--value-format", "avro", "--schema", "nowhere"], "cannot read nowhere"),
        ([*KAFKA, "--value-format", "avro", "--schema", __file__], "Avro schema in JSON"),
        ([*KAFKA, "--value-format", "protobuf", "--schema", __file__], "needs --message"),
        ([*KAFKA, "--skip-bytes", "5"], "need --value-format avro or protobuf"),
        ([*KAFKA, "--value-format", "bytes"], "create it as a stream"),
        (["export", "--to", "kafka://h:1/t", "--lake", "l"], "instead of --lake"),
        (["export", "--to", "kafka://h:1/t", "--data", ".", "--consumer", "c"], "--consumer needs --url"),
        (["export", "--to", "kafka://h:1/a b", "--data", "."], "expected kafka://HOST:PORT/TOPIC"),
        (["export", "--to", "kafka://h:1/t", "--data", ".", "--format", "csv"], "are for files"),
        (["export", "--to", "x", "--data", ".", "--consumer", "c"], "--consumer needs --to kafka://"),
        (
            ["export", "--to", "kafka://h:1/t", "--url", "http://h", "--consumer", "c", "--from-seq", "2"],
            "it says where to start",
        ),
        (["export", "--to", "x.csv", "--lake", "l"], "name a directory, such as x/"),
        (["export", "--to", "x", "--lake", "l", "--no-spark"], "--lake needs Spark"),
        (["export", "--to", "x.csv", "--format", "jsonl", "--data", "."], "contradicts the name of the file"),
        (["export", "--to", "x.csv", "--master", "local", "--data", "."], "name a directory, such as x/"),
        (["export", "--to", "x"], "one of --data, --url and --lake"),
        (["export", "--to", "x", "--data", "nowhere"], "not a directory"),
        (["export", "--to", "x", "--lake", "l", "--since", "soon"], "is not a time"),
        (["pipeline", "audit"], "either --data or --url"),
        (["pipeline", "audit", "--data", "nowhere"], "not a directory"),
        (["pipeline", "audit", "--url", "http://localhost:1", "--conf", "x"], "spark.name=value"),
        (["pipeline", "audit", "--url", "http://localhost:1", "--repair"], "--repair with --url needs --lake"),
    ],
)
def test_a_command_that_makes_no_sense_is_refused(
    arguments: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    code, _, said = run(*arguments)
    assert code == 2
    assert words in " ".join(said.replace("│", " ").split())
    assert list(tmp_path.iterdir()) == []


def test_out_in_and_audited(spark: SparkSession, tmp_path: Path) -> None:
    data, again, out = tmp_path / "data", tmp_path / "again", tmp_path / "out"
    with Engine.open(data, background=False) as engine:
        engine.create("orders").wait().append(Batch([b'{"n":%d}' % n for n in range(500)], ["k"] * 500)).wait()
        engine.seal()
    code, said, _ = run("export", "--data", data, "--to", out, "--format", "csv", "orders", "--spark")
    assert (code, said.startswith("exported 500 records of 1 log to 1 file, ")) == (0, True)
    code, _, said = run("export", "--data", data, "--to", out, "--format", "csv")
    assert (code, "--overwrite" in said) == (2, True)
    code, _, said = run("export", "nothing", "--data", data, "--to", tmp_path / "x")
    assert (code, "logs not found: nothing" in said) == (2, True)

    arguments = ["import", out, "--format", "csv", "--exported", "--log", "copy", "--data", again, "--json"]
    code, said, _ = run(*arguments)
    assert code == 0
    assert json.loads(said)["appended"] == {"copy": 500}
    assert run(*arguments[:-1])[1].splitlines()[-1] == "appended 0 records to 0 logs; 500 were imported before"
    bad = tmp_path / "bad.jsonl"
    bad.write_bytes(b"1\nno\n")
    code, said, told = run("import", bad, "--format", "jsonl", "--log", "copy", "--data", again)
    assert (code, said) == (1, "appended nothing: 1 invalid row; fix the rows, or skip them with --bad skip\n")
    assert f"{bad}:2: not valid JSON" in told
    with Engine.open(again, background=False):
        code, _, said = run("import", bad, "--format", "jsonl", "--log", "copy", "--data", again)
        assert (code, "in use" in said, "use --url" in said) == (1, True, True)

    code, said, _ = run("pipeline", "audit", "--data", data)
    assert code == 0
    assert said.splitlines()[-1] == "1 log, 500 records: no findings"
    (segment,) = (data / "segments").iterdir()
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 0xFF
    segment.write_bytes(content)
    code, said, _ = run("pipeline", "audit", "--data", data, "--json")
    assert code == 1
    (found,) = [finding for finding in json.loads(said)["findings"] if finding["log"] == "orders"]
    assert (found["check"], found["first_seq"], found["count"]) == ("blocks", 1, 500)


@pytest.mark.parametrize(("first", "then"), [([], ["--spark"]), (["--master", "local[1]"], [])])
def test_a_killed_import_goes_on_where_it_was_with_spark_and_without(
    first: list[str], then: list[str], spark: SparkSession, tmp_path: Path
) -> None:
    source, data = tmp_path / "rows.jsonl", tmp_path / "data"
    # Every row has a time of its own, and so is an append of its own: it takes a while.
    count = 6_000
    source.write_text("".join(f'{{"n":{n},"at":{1_700_000_000_000 + n}}}\n' for n in range(count)))
    arguments = ["import", str(source), "--log", "rows", "--ts-column", "at", "--data", str(data)]
    command = [sys.executable, "-m", "strandline.cli.main", *arguments, *first]
    # What a killed one has put aside stays where temporary files are.
    running = subprocess.Popen(command, start_new_session=True, env={**os.environ, "TMPDIR": str(tmp_path)})
    try:
        while running.poll() is None and not 0 < head_of(data) < count:
            time.sleep(0.02)
    finally:
        os.killpg(running.pid, signal.SIGKILL)
    assert running.wait() == -signal.SIGKILL
    there = head_of(data)
    assert 0 < there < count
    code, said, _ = run(*arguments, *then, "--json")
    assert code == 0
    assert json.loads(said)["records"] == count - there
    history = DirectoryHistory(data)
    pieces = history.pieces(history.log("rows"), 0, count, count)
    rows = pa.Table.from_batches([batch for piece in pieces for batch in piece.read()])
    history.close()
    assert rows.column("data").to_pylist() == source.read_bytes().splitlines()
    assert rows.column("ts").cast(pa.int64()).to_pylist() == [(1_700_000_000_000 + n) * 1000 for n in range(count)]


def head_of(data: Path) -> int:
    """How much an import has brought so far, seen from outside."""
    if not (data / "MANIFEST").exists():
        return 0
    history = DirectoryHistory(data)
    try:
        return next((info.head for info in history.logs() if info.name == "rows"), 0)
    finally:
        history.close()


def test_rows_that_are_in_the_lake_twice_are_removed_on_request(spark: SparkSession, tmp_path: Path) -> None:
    data, lake = tmp_path / "data", Lake.at(tmp_path / "data" / "lake")
    with Engine.open(data, background=False) as engine:
        engine.create("log").wait().append(Batch([b"1", b"2", b"3"])).wait()
    history = DirectoryHistory(data)
    for _ in range(2):
        fill(lake, history)
    history.close()
    with claim(lake, lambda: 0):
        code, _, told = run("pipeline", "audit", "--data", data, "--repair")
        assert (code, "another pipeline uses the lake" in told) == (4, True)
    code, said, _ = run("pipeline", "audit", "--data", data, "--repair")
    assert (code, said.splitlines()[-1]) == (0, "1 log, 3 records: no findings")
    assert "3 rows are extra copies (seqs 1 to 3); they were removed" in " ".join(said.split())
    assert sum(file.rows for file in records(lake).files()) == 3


def test_everything_by_url(spark: SparkSession, tmp_path: Path) -> None:
    source = tmp_path / "rows.csv"
    source.write_text("id,at,text\n1,2023-11-14T22:13:20Z,a\n2,2023-11-14T22:13:20Z,b\n3,1700000001500,c\n")
    server = ServerProcess(tmp_path / "data").start()
    try:
        url = ["--url", server.url]
        columns = ["--key-column", "id", "--ts-column", "at", "--type", "id=long"]
        code, said, told = run("import", source, "--format", "csv", "--log", "rows", *columns, *url)
        assert (code, said) == (0, "appended 3 records to 1 log\n"), told
        assert "0 records" in run("import", source, "--format", "csv", "--log", "rows", *columns, *url)[1]
        assert (
            run("export", "rows", "--to", tmp_path / "out", "--format", "jsonl", "--since", "1700000001000", *url)[0]
            == 0
        )
        (line,) = (tmp_path / "out" / "part-000000.jsonl").read_text().splitlines()
        assert json.loads(line) | {"epoch": 0} == {
            "log": "rows", "epoch": 0, "seq": 3, "ts": "2023-11-14T22:13:21.500Z", "key": "3",
            "data": {"id": 3, "at": "1700000001500", "text": "c"},
        }  # fmt: skip
        code, said, _ = run("pipeline", "audit", "--lake", tmp_path / "lake", *url)
        assert (code, said.splitlines()[-1]) == (0, "1 log, 3 records: no findings")
        code, _, told = run("import", source, "--format", "csv", "--log", "_own", *url)
        assert (code, "internal log of the server" in told) == (1, True)
    finally:
        server.end()
    code, _, told = run("export", "--to", tmp_path / "x", *url)
    assert (code, "does not answer" in told) == (1, True)
    code, _, told = run("pipeline", "audit", *url)
    assert (code, "does not answer" in told) == (2, True)
