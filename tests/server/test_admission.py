"""What happens when the server is busy: some wait, some are told to come back, the urgent get through."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.server_process import ServerProcess
from support.topics_client import Client, eventually

from strandline.server.application import Application
from strandline.server.settings import Settings, StorageSettings

pytestmark = pytest.mark.both_lanes

RECORD = {"records": [{"data": 1}]}


@pytest.fixture(scope="module")
def busy(lane: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server that finds itself too slow, whatever it does."""
    data = tmp_path_factory.mktemp(f"busy-{lane}") / "data"
    process = ServerProcess(data, fast_lane=lane == "fast", settings={"target_latency_ms": 0.00001})
    try:
        client = process.start().client()
        client.put("idle", priority=-500)
        client.put("usual")
        client.put("urgent", priority=1000)
        client.put("nearly", priority=750)
        client.put("jobs", type="queue")
        metrics = {"accept": "application/json"}
        eventually(lambda: client.http.get("/v0/metrics", headers=metrics).json()["pressure"] > 0.0)
        yield process
    finally:
        process.end()


@pytest.fixture
def client(busy: ServerProcess) -> Iterator[Client]:
    client = Client(busy.url)
    yield client
    client.close()


def turned_away(client: Client, path: str, body: object) -> httpx.Response:
    """The answer to a request that the server is too busy for. Now and then its loop is in time, and it lets one in."""
    responses: list[httpx.Response] = []

    def ask() -> bool:
        responses.append(client.request("POST", path, body))
        return responses[-1].status_code == 429

    eventually(ask)
    return responses[-1]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v0/topics/usual", RECORD),
        ("/v0/topics/idle", RECORD),
        ("/v0/topics/new", RECORD),
        ("/v0/topics/usual/diff", {}),
        ("/v0/write", {"writes": [{"topic": "usual", **RECORD}]}),
    ],
)
def test_who_is_not_urgent_is_told_when_to_come_back(client: Client, path: str, body: object) -> None:
    response = turned_away(client, path, body)
    error = response.json()["error"]
    assert error["code"] == "throttled"
    assert set(error["detail"]) == {"retry_after_ms"}
    assert 1000 < error["detail"]["retry_after_ms"] <= 2000
    assert response.headers["retry-after"] == "2"


@pytest.mark.parametrize("topic", ["urgent", "nearly"])
def test_the_urgent_get_through(client: Client, topic: str) -> None:
    before = client.get(topic)["head_seq"]
    answer = client.write(topic, [1, 2])
    assert answer["last_seq"] == before + 2
    assert answer["performance"]["throttle_wait_ms"] < 1000
    page = client.diff(topic, before)
    assert len(page["records"]) == 2
    assert "throttle_wait_ms" in page["performance"]


def test_who_is_urgent_but_not_the_most_waits_a_little(client: Client) -> None:
    eventually(lambda: client.write("nearly", [1])["performance"]["throttle_wait_ms"] > 0)
    assert client.write("urgent", [1])["performance"]["throttle_wait_ms"] == 0


def test_looking_and_administering_go_on(client: Client) -> None:
    client.get("usual")
    client.call("GET", "/v0/topics")
    client.put("usual")
    client.delete("usual", before_seq=1)
    assert client.http.get("/v0/metrics").status_code == 200


def test_those_who_are_sent_away_are_counted(client: Client) -> None:
    def throttled() -> int:
        number: int = client.http.get("/v0/metrics", headers={"accept": "application/json"}).json()["throttled_total"]
        return number

    before = throttled()
    turned_away(client, "/v0/topics/usual", RECORD)
    assert throttled() == before + 1


# --- by hand ---------------------------------------------------------------------------------------------------


def in_process(tmp_path: Path, test: Callable[[Application, httpx.AsyncClient], Awaitable[None]]) -> None:
    """The same application without a process around it, so that its pressure can be set."""

    async def main() -> None:
        application = Application(Settings(storage=StorageSettings(data_dir=str(tmp_path / "data"))))
        starlette = application.app
        async with starlette.router.lifespan_context(starlette):
            while not application.status.ready:
                await asyncio.sleep(0.001)
            transport = httpx.ASGITransport(application.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                await test(application, client)

    asyncio.run(main())


def burden(application: Application) -> None:
    """Full pressure, from which the server recovers as it finds itself in time again."""
    for _ in range(50):
        application.admission.pressure.note(100)
    assert application.admission.pressure.level == 1.0


@pytest.mark.parametrize("exists", [True, False], ids=["old topic", "new topic"])
def test_who_would_rather_wait_is_let_in_when_the_pressure_is_gone(tmp_path: Path, exists: bool) -> None:
    async def test(application: Application, client: httpx.AsyncClient) -> None:
        if exists:
            await client.put("/v0/topics/a", json={})
        burden(application)
        response = await client.post("/v0/topics/a", json=RECORD)
        assert (response.status_code, response.json()["error"]["code"]) == (429, "throttled")
        assert (await client.get("/v0/topics/a")).status_code == (200 if exists else 404)
        patient: dict[str, Any] = {**RECORD, "disable_backpressure": True}
        response = await client.post("/v0/topics/a", json=patient)
        assert response.status_code == (200 if exists else 201)
        answer = response.json()
        assert answer["performance"]["throttle_wait_ms"] > 20
        assert (answer["first_seq"], answer["created"]) == (1, not exists)
        assert not application.admission.pressure.shedding

    in_process(tmp_path, test)


def test_under_some_pressure_a_write_waits_a_little_and_says_so(tmp_path: Path) -> None:
    async def test(application: Application, client: httpx.AsyncClient) -> None:
        await client.put("/v0/topics/idle", json={"priority": -1000})
        burden(application)
        application.admission.pressure.level = 0.5
        application.admission.pressure.shedding = False
        answer = (await client.post("/v0/topics/idle", json=RECORD)).json()
        assert answer["performance"]["throttle_wait_ms"] >= 9.9
        application.admission.pressure.level = 0.5
        page = (await client.post("/v0/topics/idle/diff", json={})).json()
        assert (len(page["records"]), page["performance"]["throttle_wait_ms"] >= 9.9) == (1, True)

    in_process(tmp_path, test)
