from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from itertools import count
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from support.arrow_client import ArrowClient, table
from support.cutting_proxy import CuttingProxy
from support.server_process import ServerProcess, StartServer
from support.streams_client import JSON, StreamsClient
from support.topics_client import Client

from strandline.client.connection import Servers
from strandline.client.errors import BadRequest, Busy, Forbidden, NotAuthenticated, NotFound, Unreachable
from strandline.client.retry import Patience
from strandline.client.synchronous import transport
from strandline.engine.errors import UnknownLog
from strandline.history import remote
from strandline.history.directory import DirectoryHistory
from strandline.history.pieces import Where
from strandline.history.record_schema import RECORDS
from strandline.history.remote import (
    BulkAppendResult,
    LogReplaced,
    ProgressConflict,
    ServerHistory,
    ServerPiece,
    ServerTarget,
)
from strandline.history.source import open_history

_numbers = count(1)
#: How long requests are repeated in these tests.
BRIEF = Patience(seconds=2.0, first_wait=0.001, longest_wait=0.01)


@pytest.fixture
def name() -> str:
    return f"remote-{next(_numbers)}"


@pytest.fixture
def topics(server: ServerProcess) -> Iterator[Client]:
    client = Client(server.url)
    yield client
    client.close()


@pytest.fixture
def arrow(server: ServerProcess) -> Iterator[ArrowClient]:
    client = ArrowClient(server.url)
    yield client
    client.close()


@pytest.fixture
def proxy(server: ServerProcess) -> Iterator[CuttingProxy]:
    proxy = CuttingProxy(server.url)
    yield proxy
    proxy.close()


def rows_of(history: Any, name: str, after: int = 0, rows: int = 3, **more: Any) -> list[tuple[int, bytes]]:
    """What the pieces of a log hold, after they went through the form in which they travel."""
    log = history.log(name)
    found: list[tuple[int, bytes]] = []
    for piece in history.pieces(log, after, log.head, rows, **more):
        again = msgspec.msgpack.decode(msgspec.msgpack.encode(piece), type=type(piece))
        assert again == piece
        for batch in again.read(batch_rows=2):
            assert batch.schema == RECORDS
            assert batch.num_rows <= 2
            found += zip(batch.column("seq").to_pylist(), batch.column("data").to_pylist(), strict=True)
    return found


# --- reading -------------------------------------------------------------------------------------------------------


def test_it_is_what_the_directory_has(start_server: StartServer) -> None:
    server = start_server(metrics_flush_ms=0)
    topics, streams = server.client(), StreamsClient(server.url)
    topics.write("log", [{"data": number, "tag": "k" if number % 3 else None} for number in range(20)])
    topics.delete("log", before_seq=4)
    streams.create("a/b.c", body=[1, 2])
    streams.request("POST", "a/b.c/_schema", {"search": None}, headers={"content-type": JSON})
    streams.create("fork", stream_forked_from="/v1/stream/a/b.c")
    streams.append("fork", [3])
    streams.close()
    by_url = open_history(url=server.url)
    by_path = DirectoryHistory(server.data)
    assert by_url.directory == by_path.directory
    assert by_url.logs() == by_path.logs()
    assert by_url.logs("a/") == by_path.logs("a/")
    for info in by_path.logs():
        assert by_url.log(info.name) == info
        assert by_url.standing(info) == by_path.standing(info)
        assert rows_of(by_url, info.name) == rows_of(by_path, info.name)
        assert rows_of(by_url, info.name, own=True) == rows_of(by_path, info.name, own=True)
        for where in (Where(key="k"), Where(since=info.last_ts), Where(until=info.last_ts)):
            assert rows_of(by_url, info.name, where=where) == rows_of(by_path, info.name, where=where)
            for history in (by_url, by_path):
                for piece in history.pieces(info, 0, info.head, 3, where):
                    whole = pa.Table.from_batches(piece.read(), RECORDS).select(["log", "seq", "ts"])
                    narrow = list(piece.read(2, ("seq", "log", "ts")))
                    assert pa.Table.from_batches(narrow, whole.schema).to_pylist() == whole.to_pylist()
    assert rows_of(by_url, "fork") == [(1, b"1"), (2, b"2"), (3, b"3")]
    by_path.close()
    by_url.close()


def test_logs_come_in_pages(topics: Client, server: ServerProcess, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.history.remote.PAGE_LOGS", 2)
    for number in range(5):
        topics.put(f"{name}.{number}")
    logs = ServerHistory(server.url).logs(f"{name}.")
    assert [log.name for log in logs] == [f"{name}.{number}" for number in range(5)]


def test_a_piece_is_of_about_as_many_records_as_asked_for(topics: Client, server: ServerProcess, name: str) -> None:
    topics.write(name, list(range(10)))
    history = ServerHistory(server.url, compression="zstd")
    log = history.log(name)

    def spans(*arguments: int) -> list[tuple[int, int]]:
        return [(piece.first, piece.last) for piece in history.pieces(log, *arguments)]

    assert spans(0, 10, 4) == [(1, 5), (6, 10)]
    assert spans(0, 10, 100) == [(1, 10)]
    assert spans(7, 99, 1) == [(8, 8), (9, 9), (10, 10)]
    assert spans(10, 10, 5) == []
    (piece,) = history.pieces(log, 0, 10, 100)
    assert sum(batch.num_rows for batch in piece.read()) == piece.rows == 10


def test_a_key_is_nowhere_to_be_seen(start_server: StartServer) -> None:
    server = start_server(keys="topsecret:rw")
    server.client().write("log", [1])
    history = ServerHistory(server.url, "topsecret")
    (piece,) = history.pieces(history.log("log"), 0, 1, 10)
    assert [batch.num_rows for batch in piece.read()] == [1]
    assert "topsecret" not in repr(piece)


# --- when the line is bad --------------------------------------------------------------------------------------------


def test_a_stream_that_breaks_off_is_taken_up_behind_the_last_record(
    arrow: ArrowClient, proxy: CuttingProxy, name: str
) -> None:
    arrow.append(name, table(*["x" * 200] * 400), create="true", status=201)
    log = ServerHistory(proxy.url).log(name)
    # In the head, in the schema, in the middle of a batch, right behind one, and again.
    for cuts in ([10], [300], [900], [5000, 5001, 9000], [30_000, 10, 10, 30_000]):
        proxy.faults.extend(cuts)
        piece = ServerPiece(proxy.url, f"none-{cuts}", name, log.epoch, 1, 400, 400, patience=BRIEF)
        found = [seq for batch in piece.read(batch_rows=50) for seq in batch.column("seq").to_pylist()]
        assert found == list(range(1, 401))
        assert not proxy.faults


def test_a_server_that_does_not_answer_is_reported_after_a_while(proxy: CuttingProxy) -> None:
    proxy.faults.extend([0] * 5)
    with pytest.raises(Unreachable, match="does not answer"):
        ServerHistory(proxy.url, patience=Patience(seconds=0.02, first_wait=0.01))
    assert proxy.connections > 1


def test_a_server_that_is_not_there_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    with pytest.raises(Unreachable, match=url):
        ServerHistory(url, patience=BRIEF)
    with pytest.raises(ValueError, match="http://"):
        ServerHistory("localhost:4000")


def test_a_server_that_starts_is_waited_for(start_server: StartServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server = start_server()
    server.client().write("log", [1])
    history = ServerHistory(server.url)
    log, port = history.log("log"), server.port
    server.stop()
    monkeypatch.setattr(transport, "sync_sleep", lambda _: None if server.running else server.start(port))
    assert history.log("log") == log
    assert rows_of(history, "log") == [(1, b"1")]


def test_refusals_mean_something(start_server: StartServer) -> None:
    server = start_server(keys="root,part:rw:a-")
    client = server.client("root")
    client.write("log", [1])
    history = ServerHistory(server.url, "root")
    old = history.log("log")
    with pytest.raises(UnknownLog, match="absent"):
        history.log("absent")
    with pytest.raises(NotAuthenticated, match="valid API key"):
        ServerHistory(server.url, "wrong")
    with pytest.raises(Forbidden, match="may not access"):
        ServerHistory(server.url, "part").log("log")
    with pytest.raises(NotFound, match="404"):
        ServerHistory(server.url + "/nowhere", "root")
    client.drop("log")
    client.write("log", [2])
    (piece,) = history.pieces(old, 0, 1, 10)
    with pytest.raises(LogReplaced):
        list(piece.read())
    with pytest.raises(LogReplaced):
        history.standing(old)
    client.drop("log")
    with pytest.raises(UnknownLog):
        list(piece.read())


# --- appending -----------------------------------------------------------------------------------------------------


def test_records_are_appended_and_progress_is_kept(arrow: ArrowClient, server: ServerProcess, name: str) -> None:
    target = ServerTarget(server.url)
    assert target.append(name, table(1, 2)) == BulkAppendResult(1, 2, arrow.call("GET", f"logs/{name}")["last_ts"], 2)
    assert target.progress(name, "w") is None
    assert target.append(name, table(3), "w", None, {"ü\U0001f600": 1}).first == 3
    assert target.progress(name, "w") == {"ü\U0001f600": 1}
    assert target.append(name, table(4), "w", {"ü\U0001f600": 1}, {"b": 2}, compression="zstd").last == 4
    with pytest.raises(ProgressConflict) as conflict:
        target.append(name, table(5), "w", None, {"b": 3})
    assert conflict.value.progress == {"b": 2}
    assert target.forget(name, "w") is True
    assert target.forget(name, "w") is False
    assert arrow.values(name) == [1, 2, 3, 4]
    with pytest.raises(UnknownLog):
        target.append("absent", table(1), create=False)
    with pytest.raises(BadRequest, match="not valid JSON"):
        target.append(name, table(b"{"))
    for bad in ({"writer": "w"}, {"progress": {"a": 1}}, {"writer": "w", "before": {"a": 1}, "progress": {"a": 1}}):
        with pytest.raises(ValueError):
            target.append(name, table(1), **bad)  # type: ignore[arg-type]


def test_an_append_whose_answer_is_lost_is_made_once(arrow: ArrowClient, proxy: CuttingProxy, name: str) -> None:
    target = ServerTarget(proxy.url, f"none-{name}", patience=BRIEF)
    proxy.faults.extend([0])
    assert target.append(name, table(1), "w", None, {"a": 1}).repeated
    proxy.faults.extend([30, 30, 30])
    target._transport.close()
    target = ServerTarget(proxy.url, f"none-again-{name}", patience=BRIEF)
    assert target.append(name, table(2), "w", {"a": 1}, {"a": 2}).repeated
    assert not target.append(name, table(3), "w", {"a": 2}, {"a": 3}).repeated
    assert arrow.values(name) == [1, 2, 3]


def test_without_progress_nobody_guesses(arrow: ArrowClient, proxy: CuttingProxy, name: str) -> None:
    target = ServerTarget(proxy.url, f"none-{name}", patience=BRIEF)
    proxy.faults.extend([0])
    with pytest.raises(Unreachable, match=name) as unreachable:
        target.append(name, table(1))
    assert unreachable.value.sent
    assert proxy.connections == 1


def test_a_busy_server_is_asked_again_when_it_says(start_server: StartServer, monkeypatch: pytest.MonkeyPatch) -> None:
    class Waits(Exception):
        pass

    def wait(seconds: float) -> None:
        raise Waits(seconds)

    server = start_server(max_total_bytes=100)
    with pytest.raises(Busy, match="max_total_bytes"):
        ServerTarget(server.url, patience=BRIEF).append("log", table("x" * 200))
    monkeypatch.setattr(transport, "sync_sleep", wait)
    with pytest.raises(Waits, match=r"1\.0"):
        ServerTarget(server.url).append("log", table("x" * 200))


def test_a_proxy_of_the_environment_leads_to_other_machines_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", "near.example")
    through = {
        url: remote._through_proxy(Servers(url)) is not None
        for url in ("http://far.example:4000", "http://near.example:4000", "http://127.0.0.1:4000")
    }
    assert list(through.values()) == [True, False, False]


def test_many_records_come_through_as_they_went_in(server: ServerProcess, name: str) -> None:
    target, history = ServerTarget(server.url), ServerHistory(server.url, compression="lz4")
    sent = [json.dumps({"number": number, "text": "x" * (number % 50)}) for number in range(30_000)]
    for start in range(0, 30_000, 10_000):
        target.append(name, pa.table({"data": sent[start : start + 10_000]}), "w", {"at": start} if start else None,
                      {"at": start + 10_000})  # fmt: skip
    log = history.log(name)
    found = [
        data.decode()
        for piece in history.pieces(log, 0, log.head, 7000)
        for batch in piece.read()
        for data in batch.column("data").to_pylist()
    ]
    assert found == sent
