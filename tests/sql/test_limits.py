"""Statements of strangers: they read logs, within limits, and reach nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from support.lake_copy import fill

from strandline.engine import Batch, Engine
from strandline.history.directory import DirectoryHistory
from strandline.lake.fence import belong
from strandline.lake.location import Lake
from strandline.sql.engine import SqlSource, answer
from strandline.sql.request import Limits
from strandline.sql.results import Result
from strandline.sql.statement import QueryFailed

LIMITS = Limits(
    memory_bytes=64 << 20,
    spill_bytes=16 << 20,
    process_bytes=4 << 30,
    seconds=30,
    threads=1,
    rows=100,
    result_bytes=1 << 20,
)

Ask = Callable[..., Result]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of which a part is in the lake, and a file beside it that no statement may read."""
    path = tmp_path_factory.mktemp("sql") / "data"
    with Engine.open(path, background=False) as engine:
        log = engine.create("orders").wait()
        log.append(Batch([json.dumps({"n": each}).encode() for each in range(300)])).wait()
    history = DirectoryHistory(path)
    lake = Lake.at(path / "lake")
    belong(lake, history.directory)
    fill(lake, history, erasures=0)
    history.close()
    (path.parent / "secret.csv").write_text("a\n1\n")
    return path


@pytest.fixture
def ask(data: Path, tmp_path: Path) -> Ask:
    source = SqlSource(str(data), "", None, "", None, lambda warning: pytest.fail(warning))

    def ask(statement: str, limits: Limits = LIMITS) -> Result:
        return answer(source, statement.replace("{data}", str(data.parent)), tmp_path, limits)

    return ask


def test_logs_can_be_read(ask: Ask) -> None:
    result = ask("select count(*) as records, sum((data->>'n')::bigint) as total from orders")
    assert list(result.objects()) == [{"records": 300, "total": 44_850}]


@pytest.mark.parametrize(
    "statement",
    [
        "select * from read_csv('{data}/secret.csv')",
        "select * from read_text('{data}/secret.csv')",
        "select * from read_blob('/etc/passwd')",
        "select * from '{data}/secret.csv'",
        "select * from glob('{data}/*')",
        "select * from read_parquet('{data}/data/lake/records/*.parquet')",
        "select * from sniff_csv('{data}/secret.csv')",
        "select * from parquet_metadata('{data}/x.parquet')",
        "select * from read_duckdb('{data}/x.duckdb')",
        "select * from 'http://127.0.0.1:1/x.csv'",
        "select * from query('from read_text(''{data}/secret.csv'')')",
        "select getenv('HOME')",
        "select * from duckdb_secrets()",
        "select * from enable_logging(storage = 'file')",
        "select * from enable_profiling()",
        "copy (select 1) to '{data}/written.csv'",
        "explain analyze copy (select 1) to '{data}/written.csv'",
        "attach '{data}/written.duckdb'",
        "install httpfs",
        "load httpfs",
        "set enable_external_access = true",
        "reset lock_configuration",
        "pragma database_list",
        "export database '{data}/written'",
        "create table t as select 1",
        "call pragma_version()",
        "select 1; select 2",
    ],
)
def test_nothing_else_can_be_reached(ask: Ask, data: Path, statement: str) -> None:
    before = sorted(data.parent.iterdir())
    with pytest.raises(QueryFailed):
        ask(statement)
    assert sorted(data.parent.iterdir()) == before


def test_the_directory_for_temporary_files_leads_nowhere(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "spill").mkdir()
    (tmp_path / "other").write_text("secret")
    (tmp_path / "spill" / "link").symlink_to(tmp_path / "other")
    for path in ("../other", "link", "x/../../other"):
        with pytest.raises(QueryFailed, match="Permission Error"):
            ask(f"select * from read_text('{tmp_path}/spill/{path}')")


def test_the_files_of_the_lake_cannot_be_named(ask: Ask) -> None:
    """They may have records that were deleted."""
    for name in ("__lake", "__tail_1", "__covered_1", "__batches"):
        with pytest.raises(QueryFailed, match="not found"):
            ask(f"select * from {name}")
    shown = ask("select view_name from duckdb_views() where not internal and view_name <> 'orders'")
    assert all(len(row["view_name"]) > 32 for row in shown.objects())


def test_a_result_is_cut_at_the_rows_and_bytes(ask: Ask) -> None:
    result = ask("select * from range(1000)")
    assert (result.rows, result.truncated) == (100, True)
    result = ask("select * from range(100)")
    assert (result.rows, result.truncated) == (100, False)
    result = ask("select repeat('x', 100000) as wide from range(100)")
    assert result.truncated
    assert 0 < result.rows <= 11


def test_a_query_that_needs_too_much_memory_fails(ask: Ask) -> None:
    with pytest.raises(QueryFailed, match="needs more than 64 MB of memory or 16 MB") as failed:
        ask("select list(range) from range(100000000)")
    assert failed.value.reason == "limit"


def test_a_result_is_written_in_each_format(ask: Ask, tmp_path: Path) -> None:
    result = ask("select 9007199254740993 as big, 'a,\"b' as text, {'x': 1} as nested, null as nothing, 1.5 as half")
    file = tmp_path / "result"
    result.write("table", file, 1000)
    assert json.loads(file.read_text()) == [["9007199254740993", 'a,"b', {"x": 1}, None, 1.5]]
    result.write("json", file, 1000)
    expected = {"big": 9007199254740993, "text": 'a,"b', "nested": {"x": 1}, "nothing": None, "half": 1.5}
    assert json.loads(file.read_text()) == [expected]
    result.write("csv", file, 1000)
    assert file.read_text() == 'big,text,nested,nothing,half\n9007199254740993,"a,""b","{""x"":1}",,1.5\n'
    result.write("parquet", file, 100_000)
    assert pq.read_table(file).num_rows == 1
    with pytest.raises(QueryFailed, match="larger than 0 MB"):
        result.write("csv", file, 10)
