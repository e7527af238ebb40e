"""A server whose system clock is set while it runs: over HTTP, on both lanes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import monotonic, sleep

import httpx
import pytest
from support.system_clock import NOW, Machine

from strandline.engine import SteadyClock
from strandline.server.application import Application
from strandline.server.run import Server, listen
from strandline.server.settings import ServerSettings, Settings, StorageSettings

pytestmark = pytest.mark.both_lanes

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
YEAR_2101 = 4_133_980_800_000

Serve = Callable[[], httpx.Client]


@contextmanager
def serving(data: Path, clock: SteadyClock, lane: str) -> Iterator[httpx.Client]:
    settings = Settings(server=ServerSettings(fast_lane=lane == "fast"), storage=StorageSettings(data_dir=str(data)))
    application = Application(settings, clock=clock)
    server = Server(application)
    listener = listen("127.0.0.1", 0)
    thread = threading.Thread(target=lambda: server.run(sockets=[listener]))
    thread.start()
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{listener.getsockname()[1]}") as client:
            until = monotonic() + 20
            while not application.status.ready:
                assert monotonic() < until
                sleep(0.005)
            yield client
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def serve(tmp_path: Path, machine: Machine, lane: str) -> Iterator[Serve]:
    """Each call stops the server and starts another one on the same directory."""
    with ExitStack() as running:

        def start() -> httpx.Client:
            running.close()
            return running.enter_context(serving(tmp_path / "data", machine.start(), lane))

        yield start


def write(client: httpx.Client, topic: str, text: str) -> None:
    assert client.post(f"/v0/topics/{topic}", json={"records": [{"data": text}]}).status_code == 200


def read(client: httpx.Client, topic: str) -> list[tuple[int, str]]:
    records = client.post(f"/v0/topics/{topic}/diff", json={"from_seq": 0}).json()["records"]
    return [(record["$ts"], record["data"]) for record in records]


def claim(client: httpx.Client, node: str) -> list[str]:
    answer = client.post("/v0/topics/jobs/claim", json={"node": node, "max": 1, "lease_ms": MINUTE})
    assert answer.status_code == 200, answer.text
    return [job["data"] for job in answer.json()["claimed"]]


@pytest.mark.parametrize("step", [-HOUR, HOUR, YEAR_2101 - NOW])
def test_what_lasts_a_minute_lasts_a_minute_whatever_the_clock_says(
    step: int, machine: Machine, serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    client = serve()
    assert client.put("/v0/topics/short", json={"ttl_ms": MINUTE}).status_code in (200, 201)
    assert client.put("/v0/topics/jobs", json={"type": "queue"}).status_code in (200, 201)
    assert client.put("/v1/stream/s", headers={"stream-ttl": "60"}).status_code == 201
    write(client, "short", "a")
    write(client, "jobs", "job")
    assert claim(client, "one") == ["job"]
    machine.wall += step
    machine.pass_time(50 * SECOND)
    assert [text for _, text in read(client, "short")] == ["a"]
    assert claim(client, "two") == []
    write(client, "short", "b")
    machine.pass_time(20 * SECOND)
    assert [text for _, text in read(client, "short")] == ["b"]
    assert claim(client, "two") == ["job"]
    assert client.head("/v1/stream/s").status_code == 404
    (ts, _), *_ = read(client, "short")
    assert abs(ts - NOW - 50 * SECOND) <= 5 * SECOND + 100
    steps = [record.getMessage() for record in caplog.records if "the system clock stepped" in record.getMessage()]
    assert len(steps) == 1
    assert f"by {abs(step) / 1000:.3f} s" in steps[0]


def test_after_a_year_that_was_wrong_everything_goes_on_with_the_next_start(
    machine: Machine, serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    machine.wall = YEAR_2101
    client = serve()
    assert client.put("/v0/topics/short", json={"ttl_ms": MINUTE}).status_code in (200, 201)
    assert client.put("/v0/topics/jobs", json={"type": "queue"}).status_code in (200, 201)
    assert client.put("/v1/stream/s", headers={"stream-ttl": "60"}).status_code == 201
    write(client, "short", "a")
    write(client, "jobs", "job")
    assert claim(client, "one") == ["job"]
    machine.wall = NOW
    client = serve()
    assert claim(client, "two") == ["job"]
    write(client, "short", "b")
    assert read(client, "short") == [(YEAR_2101, "a"), (machine.wall, "b")]
    machine.pass_time(MINUTE + SECOND)
    assert read(client, "short") == []
    assert client.head("/v1/stream/s").status_code == 404
    assert any("was made with a wrong clock" in record.getMessage() for record in caplog.records)


def test_a_timestamp_of_2101_moves_no_other_record(machine: Machine, serve: Serve) -> None:
    client = serve()
    json = {"content-type": "application/json"}
    assert client.put("/v1/stream/s", headers=json).status_code == 201
    stamped = {**json, "stream-timestamp": "2101-01-01T00:00:00Z"}
    assert client.post("/v1/stream/s", content=b'{"n":1}', headers=stamped).status_code == 204
    machine.pass_time(SECOND)
    assert client.post("/v1/stream/s", content=b'{"n":2}', headers=json).status_code == 204
    assert read(client, "s") == [(YEAR_2101, {"n": 1}), (NOW + SECOND, {"n": 2})]
