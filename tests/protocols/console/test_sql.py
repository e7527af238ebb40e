"""Queries in SQL over HTTP: whose they are, what they may read, and how they end."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.console_in_process import ConsoleStand
from support.server_process import ServerProcess
from support.topics_client import eventually

from strandline.testing.local_server import LocalServer

SQL = "/console/api/sql"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    keys = "all,shop:r:shop,writer:w"
    process = ServerProcess(tmp_path_factory.mktemp("sql") / "data", keys=keys)
    try:
        yield process.start()
    finally:
        process.end()


class Caller:
    def __init__(self, server: ServerProcess | LocalServer, key: str) -> None:
        headers = {"authorization": f"Bearer {key}"}
        self.http = httpx.Client(base_url=server.url, headers=headers, trust_env=False, timeout=90)

    def ask(self, statement: str, **members: Any) -> httpx.Response:
        return self.http.post(SQL, json={"statement": statement, **members})

    def error(self, statement: str, **members: Any) -> tuple[int, str, str]:
        answer = self.ask(statement, **members)
        error = answer.json()["error"]
        return answer.status_code, error["code"], error["message"]


@pytest.fixture(scope="module")
def owner(guarded: ServerProcess) -> Iterator[Caller]:
    caller = Caller(guarded, "all")
    for name in ("shop-orders", "bank"):
        records = [{"data": {"n": number}, "tag": "k"} for number in range(3)]
        caller.http.post(f"/v0/topics/{name}", json={"records": records}).raise_for_status()
    yield caller
    caller.http.close()


def test_rows_come_with_their_columns_and_as_files(owner: Caller) -> None:
    statement = "select seq, data->>'n' as n from bank order by seq"
    answer = owner.ask(statement).json()
    assert answer["columns"] == [{"name": "seq", "type": "BIGINT"}, {"name": "n", "type": "VARCHAR"}]
    assert answer["rows"] == [[1, "0"], [2, "1"], [3, "2"]]
    assert answer["truncated"] is False
    csv = owner.ask(statement, format="csv")
    assert (csv.headers["content-type"], csv.text) == ("text/csv; charset=utf-8", "seq,n\n1,0\n2,1\n3,2\n")


def test_a_key_sees_the_logs_that_it_may_read(guarded: ServerProcess, owner: Caller) -> None:
    shop = Caller(guarded, "shop")
    assert shop.ask('select count(*) from "shop-orders"').json()["rows"] == [[3]]
    status, code, message = shop.error("select count(*) from bank")
    assert (status, code) == (400, "invalid_request")
    assert message.startswith("the API key may not access 'bank'")
    assert Caller(guarded, "writer").error("select 1")[:2] == (403, "forbidden")
    assert Caller(guarded, "unknown").error("select 1")[:2] == (401, "unauthorized")


def test_what_is_not_valid_is_refused(owner: Caller) -> None:
    assert owner.error("select nope")[:2] == (400, "invalid_request")
    assert owner.error("copy (select 1) to '/tmp/x'")[2].startswith("expected a statement that reads")
    assert owner.error("")[:2] == (400, "invalid_request")
    assert owner.error("select 1", format="xml")[:2] == (400, "invalid_request")
    assert owner.error("from range(2000000)", format="csv")[:2] == (422, "query_limit")


def test_a_server_without_an_http_address_runs_no_queries(tmp_path: Path) -> None:
    with ConsoleStand(tmp_path / "data") as stand:
        answered = stand.ask("POST", SQL, b'{"statement":"select 1"}')
        assert answered.error == (400, "invalid_request")
        assert "serves TLS itself" in answered.json["error"]["message"]


def test_a_query_is_cancelled_by_its_caller_only(guarded: ServerProcess, owner: Caller) -> None:
    endless = "select count(*) from range(1000000000) a, range(1000000000) b where hash(a.range, b.range) = 1"
    shop = Caller(guarded, "shop")
    with ThreadPoolExecutor(1) as threads:
        answer = threads.submit(owner.error, endless, id="mine")
        assert shop.http.post(f"{SQL}/mine/cancel").json() == {"cancelled": False}
        eventually(lambda: owner.http.post(f"{SQL}/mine/cancel").json() == {"cancelled": True})
        assert answer.result()[:2] == (409, "query_cancelled")
    assert owner.http.post(f"{SQL}/mine/cancel").json() == {"cancelled": False}


def test_a_server_that_stops_ends_its_queries(tmp_path: Path) -> None:
    process = ServerProcess(tmp_path / "data", keys="all").start()
    caller = Caller(process, "all")
    endless = "select count(*) from range(1000000000) a, range(1000000000) b where hash(a.range, b.range) = 1"
    with ThreadPoolExecutor(1) as threads:
        answer = threads.submit(caller.error, endless, id="mine")
        eventually(lambda: caller.http.get("/console/api/session").is_success)
        process.stop()
        with suppress(httpx.HTTPError):
            assert answer.result()[1] in ("query_cancelled", "shutting_down")
    caller.http.close()


def test_a_query_of_a_killed_server_ends_and_removes_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = tmp_path / "files"
    files.mkdir()
    monkeypatch.setenv("TMPDIR", str(files))
    endless = "select count(*) from range(1000000000) a, range(1000000000) b where hash(a.range, b.range) = 1"
    with LocalServer(tmp_path / "data", api_keys="all") as server, ThreadPoolExecutor(1) as threads:
        caller = Caller(server, "all")
        answer = threads.submit(caller.ask, endless)
        eventually(lambda: list(files.glob("strandline-sql-*/*.duckdb")))
        server.kill()
        with pytest.raises(httpx.HTTPError):
            answer.result()
        eventually(lambda: not list(files.glob("strandline-sql-*")))
        caller.http.close()
