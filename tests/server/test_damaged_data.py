"""A segment that cannot be read: what the protocols answer, what the log says, what the metrics count."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path

import httpx
import msgspec
import pytest
from support.collections_in_process import Stand, opened
from support.server_process import ServerProcess

from strandline.engine import Batch, Config, Engine, Options
from strandline.engine.errors import MissingFile
from strandline.engine.journal.file import journal_path
from strandline.protocols.tables.errors import Errors
from strandline.server.application import Application
from strandline.server.settings import Settings, StorageSettings

#: How every protocol that reads logs by their name asks for the records.
ASKS: dict[str, tuple[str, str]] = {
    "topics": ("POST", "/v0/topics/orders/diff"),
    "streams": ("GET", "/v1/stream/orders?offset=-1"),
    "arrow": ("GET", "/arrow/records/orders"),
    "console": ("GET", "/console/api/log/orders/records"),
}
SEGMENT = "segments/00000001.arrow"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A directory whose only segment is damaged in the middle."""
    path = tmp_path / "data"
    with Engine.open(path, Options(), background=False) as engine:
        log = engine.create("orders", Config(durability="fsync")).wait()
        log.append(Batch([b'{"n":1}', b'{"n":2}'])).wait()
        engine.seal()
    damage(path / SEGMENT)
    return path


def damage(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    at = len(raw) // 2
    raw[at : at + 8] = bytes(value ^ 0xFF for value in raw[at : at + 8])
    path.write_bytes(raw)


def test_every_protocol_says_which_file_is_damaged_and_the_log_says_it_once(
    data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> dict[str, httpx.Response]:
        application = Application(Settings(storage=StorageSettings(data_dir=str(data))))
        transport = httpx.ASGITransport(application.app)
        async with (
            httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
            application.app.router.lifespan_context(application.app),
        ):
            while not application.status.ready:
                await asyncio.sleep(0.001)
            answers = {name: await client.request(*ask) for _ in range(2) for name, ask in ASKS.items()}
            answers["ready"] = await client.get("/v0/ready")
            answers["metrics"] = await client.get("/v0/metrics")
            return answers

    with caplog.at_level(logging.WARNING):
        answers = asyncio.run(main())
    for name in ASKS:
        assert answers[name].status_code == 500, (name, answers[name].text)
        error = answers[name].json()["error"]
        assert error["code"] == "damaged_data", (name, error)
        assert SEGMENT in error["message"]
        assert (error.get("detail") or error)["file"] == SEGMENT
        assert str(data) not in answers[name].text
    assert answers["ready"].status_code == 200
    assert "strandline_damaged_files 1" in answers["metrics"].text.splitlines()
    errors = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert [SEGMENT in record.getMessage() for record in errors] == [True]
    assert [record for record in caplog.records if record.exc_info] == []


def test_collections_say_which_file_is_damaged(tmp_path: Path) -> None:
    with Stand(tmp_path / "data", opened()) as server:
        for number in range(3):
            assert server.push("events", {"n": number}, 1000 + number).status == 200
        server.engine.seal()
    damage(tmp_path / "data" / SEGMENT)
    with Stand(tmp_path / "data", opened()) as server:
        answer = server.pull("events", "full=true")
        assert answer.error == (500, "damaged_data")
        assert answer.json["file"] == SEGMENT


def test_tables_say_which_file_is_damaged_and_not_where_it_is() -> None:
    reply = Errors("note", "list").reply_to(MissingFile("/srv/secret/cold/00000007.arrow"))
    assert reply is not None
    error = msgspec.json.decode(reply.body)["error"]
    assert (reply.status, error["code"], error["detail"]) == (500, "DAMAGED_DATA", {"file": "cold/00000007.arrow"})
    assert b"secret" not in reply.body


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    process = ServerProcess(tmp_path / "data")
    yield process
    process.end()


def test_a_server_without_its_journal_ends_with_an_explanation_and_a_code_of_its_own(server: ServerProcess) -> None:
    client = server.start().client()
    client.put("orders", durability="fsync")
    client.write("orders", [1, 2, 3])
    server.close_clients()
    server.kill()
    (server.data / journal_path(1)).unlink()
    server.launch()
    assert server.wait() == 3
    said = server.log().splitlines()[-1]
    assert "journal/00000001.journal: the file is missing" in said
    assert "strandline verify --repair" in said
    assert "Traceback" not in server.log()
