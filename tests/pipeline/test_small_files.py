"""``strandline import`` and ``strandline export`` without Spark, as processes of their own."""

from __future__ import annotations

import gzip
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pyarrow.parquet as pq
import pytest
from support.command_line import app
from support.file_systems import small_disk
from support.object_store import object_store
from support.server_process import ServerProcess
from support.without_spark import MISSING, run, start
from typer.testing import CliRunner

from strandline.engine import Batch, Config, Engine
from strandline.engine.ownership import STREAMS
from strandline.history.source import open_history
from strandline.lake.location import Lake

TIME = 1_700_000_000_000
BYTES = Config(attributes={STREAMS: {"content_type": "application/octet-stream"}})


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    server = ServerProcess(tmp_path / "server").start()
    yield server
    server.end()


def run_here(*arguments: object) -> tuple[int, str, str]:
    """As ``run``, in this process, which starts nothing."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "200"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def rows_of(log: str, **place: str) -> list[tuple[Any, ...]]:
    """The records of a log, of a data directory or of a server."""
    history = open_history(**place)
    try:
        info = next((info for info in history.logs() if info.name == log), None)
        if info is None:
            return []
        names = ("seq", "ts", "key", "node", "meta", "data")
        return [
            row
            for piece in history.pieces(info, 0, info.head, 1000)
            for batch in piece.read()
            for row in zip(*(batch.column(name).to_pylist() for name in names), strict=True)
        ]
    finally:
        history.close()


def test_a_file_reaches_a_server_once_and_comes_back_as_one_file(tmp_path: Path, server: ServerProcess) -> None:
    source = tmp_path / "orders.CSV.gz"
    source.write_bytes(gzip.compress(b"id,text\n" + b"".join(b'%d,"\xc3\xbc, %d"\n' % (n, n) for n in range(10_000))))
    command = ["import", source, "--log", "orders", "--type", "id=long", "--key-column", "id", "--url", server.url]
    code, said, told = run(*command)
    assert (code, said) == (0, "appended 10,000 records to 1 log\n"), told
    assert run(*command)[1] == "appended 0 records to 0 logs; 10,000 were imported before\n"

    target = tmp_path / "out" / "orders.parquet"
    code, said, told = run("export", "orders", "--to", target, "--url", server.url, "--json")
    assert code == 0, told
    assert {name: json.loads(said)[name] for name in ("records", "files", "format")} == {
        "records": 10_000, "files": ["orders.parquet"], "format": "parquet",
    }  # fmt: skip
    assert list(target.parent.iterdir()) == [target]
    table = pq.read_table(target)
    assert table.column("seq").to_pylist() == list(range(1, 10_001))
    assert json.loads(table.column("data")[9_999].as_py()) == {"id": 9_999, "text": "ü, 9999"}

    code, said, told = run("import", target, "--exported", "--log", "copy", "--url", server.url)
    assert (code, said) == (0, "appended 10,000 records to 1 log\n"), told
    left, right = (rows_of(log, url=server.url) for log in ("orders", "copy"))
    assert [(row[0], *row[2:]) for row in left] == [(row[0], *row[2:]) for row in right]


def test_a_killed_import_into_a_server_goes_on_where_it_was(tmp_path: Path, server: ServerProcess) -> None:
    count = 1_000
    source = tmp_path / "rows.jsonl"
    # Every row has a time of its own, and so is an append of its own: it takes a while.
    source.write_text("".join(f'{{"n":{n},"at":{TIME + n}}}\n' for n in range(count)))
    command = ["import", source, "--log", "rows", "--ts-column", "at", "--url", server.url]
    there = 0
    for _ in range(2):
        process = start(*command, environment={"TMPDIR": str(tmp_path)})
        before, until = there, monotonic() + 30
        while process.poll() is None and there < before + 20 and monotonic() < until:
            there = len(rows_of("rows", url=server.url))
            sleep(0.005)
        process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        there = len(rows_of("rows", url=server.url))
        assert before < there < count
    code, said, told = run(*command, "--json")
    assert (code, json.loads(said)["records"]) == (0, count - there), told
    found = rows_of("rows", url=server.url)
    assert [row[5] for row in found] == source.read_bytes().splitlines()
    assert [int(row[1].timestamp() * 1000) for row in found] == [TIME + n for n in range(count)]


@pytest.mark.parametrize("format", ["parquet", "jsonl", "csv"])
def test_everything_in_a_record_survives_one_file(tmp_path: Path, format: str) -> None:
    data, again, target = tmp_path / "data", tmp_path / "again", tmp_path / f"all.{format}"
    with Engine.open(data, background=False) as engine:
        mixed = engine.create("größe/mixed").wait()
        payloads = [b'{"a": "\xe2\x82\xac"}', b'"x\\n\\u0000"', b"null", b"[1,\n 2]"]
        metas = [b'{"m": 1}', None, b'"\\""', b"[]"]
        mixed.append(Batch(payloads, ["ключ", None, 'a,"b"', ""], [None, "n1", "узел", None], metas), ts=TIME).wait()
        binary = engine.create("binary", BYTES).wait()
        binary.append(
            Batch([b"\xff\x00\x01", b"text", b"", b"two\r\nlines"], ["k", None, None, None]), ts=TIME + 1
        ).wait()
        engine.create("empty").wait()
        fork = engine.fork("fork", mixed, 2).wait()
        fork.append(Batch([b'{"own":1}']), ts=TIME + 2).wait()
    code, said, told = run("export", "--data", data, "--to", target, "--json")
    assert (code, json.loads(said)["logs"]) == (0, {"binary": 4, "empty": 0, "fork": 3, "größe/mixed": 4}), told
    with Engine.open(again, background=False) as engine:
        engine.create("binary", BYTES).wait()
    code, _, told = run("import", target, "--exported", "--keep-ts", "--data", again)
    assert code == 0, told
    for log in ("größe/mixed", "binary", "fork", "empty"):
        assert rows_of(log, path=str(again)) == rows_of(log, path=str(data))


def test_a_log_without_records_is_an_empty_file(tmp_path: Path) -> None:
    with Engine.open(tmp_path / "data", background=False) as engine:
        engine.create("orders").wait()
    for format in ("parquet", "csv", "jsonl"):
        target = tmp_path / f"orders.{format}"
        code, said, told = run_here("export", "orders", "--data", tmp_path / "data", "--to", target, "--json")
        assert (code, json.loads(said)["records"], target.exists()) == (0, 0, True), told
        code, said, told = run_here("import", target, "--exported", "--log", "copy", "--data", tmp_path / "data")
        assert (code, said) == (0, "appended 0 records to 0 logs\n"), told
    assert pq.read_table(tmp_path / "orders.parquet").num_rows == 0


def test_invalid_rows_stop_an_import_or_are_skipped(tmp_path: Path) -> None:
    source = tmp_path / "rows.csv"
    source.write_bytes(b"id,text\n1,a\nx,b\n2,\xff\n3,c,d\n4,e\n")
    command = ["import", source, "--log", "rows", "--type", "id=long", "--data", tmp_path / "data"]
    code, said, told = run_here(*command)
    assert (code, said) == (
        1,
        "appended nothing: 3 invalid rows; fix the rows, or skip them with --bad skip\n",
    ), told
    assert [line.rpartition("/")[2] for line in told.splitlines() if "rows.csv:" in line] == [
        "rows.csv:3: invalid long in 'id': 'x'",
        "rows.csv:4: 'text' is not valid UTF-8",
        "rows.csv:5: 3 columns, expected 2",
    ]
    assert rows_of("rows", path=str(tmp_path / "data")) == []
    code, said, _ = run_here(*command, "--bad", "skip")
    assert (code, said) == (0, "appended 2 records to 1 log; skipped 3 invalid rows\n")
    assert [row[5] for row in rows_of("rows", path=str(tmp_path / "data"))] == [
        b'{"id":1,"text":"a"}',
        b'{"id":4,"text":"e"}',
    ]


def test_a_target_is_replaced_only_on_request(tmp_path: Path) -> None:
    with Engine.open(tmp_path / "data", background=False) as engine:
        engine.create("orders").wait().append(Batch([b"1", b"2"])).wait()
    out = tmp_path / "out"
    (out / "is-a-directory.csv").mkdir(parents=True)
    target = out / "orders.jsonl"
    target.write_bytes(b"mine")
    before = sorted(out.iterdir())
    command = ["export", "--data", tmp_path / "data", "--to"]
    for arguments, words in (
        ([target], "already exists; replace it with --overwrite"),
        ([out / "is-a-directory.csv", "--overwrite"], "is a directory; expected a file"),
    ):
        code, _, told = run_here(*command, *arguments)
        assert (code, words in " ".join(told.replace("│", " ").split())) == (2, True), told
    assert (target.read_bytes(), sorted(out.iterdir())) == (b"mine", before)
    code, said, told = run_here(*command, target, "--overwrite")
    assert (code, said.startswith("exported 2 records of 1 log to 1 file, ")) == (0, True), told
    assert [json.loads(line)["data"] for line in target.read_text().splitlines()] == [1, 2]
    code, _, told = run_here(*command, f"{out / 'several.csv'}/")
    assert (code, sorted(path.name for path in (out / "several.csv").iterdir())) == (
        0,
        ["_export.json", "part-000000.parquet"],
    ), told


def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    with Engine.open(tmp_path / "data", background=False) as engine:
        engine.create("orders").wait().append(Batch([b'"%s"' % (b"x" * 2_000_000)])).wait()
    with small_disk(tmp_path / "small", 1 << 20) as small:
        code, _, told = run_here("export", "--data", tmp_path / "data", "--to", small / "orders.jsonl")
        assert (code, "No space left on device" in told, "Traceback" in told) == (1, True, False), told
        assert list(small.iterdir()) == []


def test_a_small_file_imports_no_module_that_takes_long(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("id\n1\n")
    program = (
        "import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr)); "
        "from strandline.cli.main import main; main()"
    )
    for arguments in (
        ["import", tmp_path / "rows.csv", "--log", "rows", "--data", tmp_path / "data"],
        ["export", "--data", tmp_path / "data", "--to", tmp_path / "rows.parquet"],
    ):
        command = [sys.executable, "-c", program, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        loaded = set(done.stderr.split())
        assert "pyarrow" in loaded
        assert loaded & set(MISSING) == set()


def test_spark_is_missing_only_where_it_is_needed(tmp_path: Path) -> None:
    source = tmp_path / "rows.jsonl"
    source.write_text("1\n")
    code, _, told = run("import", source, "--log", "rows", "--data", tmp_path / "data", "--spark")
    assert (code, "pip install 'strandline[spark]'" in told) == (3, True), told


def test_one_file_in_an_object_store(tmp_path: Path) -> None:
    with Engine.open(tmp_path / "data", background=False) as engine:
        engine.create("orders").wait().append(Batch([b"1", b"2"])).wait()
    with object_store("bucket") as options:
        environment = {
            "AWS_ENDPOINT_URL": str(options["endpoint"]),
            "AWS_REGION": str(options["region"]),
            "AWS_ACCESS_KEY_ID": str(options["access_key_id"]),
            "AWS_SECRET_ACCESS_KEY": str(options["secret_access_key"]),
            "AWS_ALLOW_HTTP": "true",
        }
        target = "s3://bucket/deep/orders.parquet"
        command = ["export", "--data", tmp_path / "data", "--to", target]
        assert run(*command, environment=environment)[0] == 0
        bucket = Lake.at("s3://bucket/deep", **options)
        assert set(bucket.names("")) == {"orders.parquet"}
        before = bucket.state("orders.parquet")
        code, _, told = run(*command, environment=environment)
        assert (code, "already exists" in told, bucket.state("orders.parquet")) == (2, True, before)
        assert run(*command, "--overwrite", environment=environment)[0] == 0
        again = ["import", target, "--exported", "--log", "copy", "--data", tmp_path / "data"]
        code, said, told = run(*again, environment=environment)
        assert (code, said) == (0, "appended 2 records to 1 log\n"), told
    assert [row[5] for row in rows_of("copy", path=str(tmp_path / "data"))] == [b"1", b"2"]
