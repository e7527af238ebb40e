from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from support import pipeline_stand_in
from support.server_process import StartServer

from strandline.lake.location import Lake
from strandline.lake.status import (
    DeclaredStatus,
    DeclaredTable,
    Lag,
    LogLag,
    PipelineProblem,
    PipelineStatus,
    RoundSummary,
    write_status,
)
from strandline.server.application import Application
from strandline.server.pipeline.routes import answer
from strandline.server.pipeline.supervisor import PipelineSnapshot, Program
from strandline.server.settings import PipelineSettings, ServerSettings, Settings, StorageSettings
from strandline.service.access import FULL_ACCESS, Access, Keys

STAND_IN = Path(pipeline_stand_in.__file__)
KEYS = "boss,reader:read,shop:rw:shop."

Test = Callable[[Application, httpx.AsyncClient], Awaitable[None]]


def with_server(path: Path, test: Test, *, missing: list[str] | None = None, program: bool = True) -> None:
    """A server in this process whose pipeline is a stand-in."""
    settings = Settings(
        server=ServerSettings(api_keys=Keys.parse(KEYS)),
        storage=StorageSettings(data_dir=str(path / "data")),
        pipeline=PipelineSettings(),
    )
    command = [sys.executable, str(STAND_IN), settings.lake]

    async def main() -> None:
        application = Application(settings, Program(command, lambda: missing or []) if program else None)
        starlette = application.app
        async with starlette.router.lifespan_context(starlette):
            while not application.status.ready:
                await asyncio.sleep(0.001)
            transport = httpx.ASGITransport(application.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                client.headers["authorization"] = "Bearer boss"
                await test(application, client)

    asyncio.run(asyncio.wait_for(main(), 120))


async def state_is(client: httpx.AsyncClient, state: str) -> None:
    while (await client.get("/pipeline")).json()["state"] != state:
        await asyncio.sleep(0.01)


def test_it_runs_when_it_is_asked_to_and_tells_what_it_did(tmp_path: Path) -> None:
    async def test(application: Application, client: httpx.AsyncClient) -> None:
        await state_is(client, "idle")
        response = await client.post("/pipeline/run")
        assert (response.status_code, response.json()) == (202, {"state": "idle"})
        await state_is(client, "running")
        while ((await client.get("/pipeline")).json()["status"] or {}).get("rounds_total") != 1:
            await asyncio.sleep(0.01)
        told = (await client.get("/pipeline")).json()
        assert told["pid"] == told["status"]["pid"]
        assert (told["starts"], told["failures"], told["missing"], told["last_error"]) == (1, 0, [], None)
        assert told["lake"] == str(tmp_path / "data" / "lake")
        text = (await client.get("/v0/metrics")).text
        samples = {
            (sample.name, *sample.labels.values()): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name.startswith("strandline_pipeline")
        }
        assert samples["strandline_pipeline_state", "running"] == 1
        assert samples["strandline_pipeline_state", "idle"] == 0
        assert samples["strandline_pipeline_rounds_total",] == 1
        assert samples["strandline_pipeline_records_total", "records"] == 7
        assert samples["strandline_pipeline_last_round_age_seconds",] >= 0
        assert samples["strandline_pipeline_lag_records",] == 0
        pids.append(told["pid"])

    pids: list[int] = []
    with_server(tmp_path, test)
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


def test_metrics_show_declared_tables_to_a_key_for_all_names(tmp_path: Path) -> None:
    tables = [
        DeclaredTable(name="revenue", kind="materialized_view", lag=12),
        DeclaredTable(name="bad", kind="streaming_table", lag=None, error="no column 'cents'"),
        DeclaredTable(name="part", kind="temporary_view"),
    ]
    declared = DeclaredStatus(project="shop", directory="/srv/shop", tables=tables)

    async def test(application: Application, client: httpx.AsyncClient) -> None:
        while (await client.get("/pipeline")).json()["status"] is None:
            await asyncio.sleep(0.01)

        async def found(key: str) -> dict[tuple[str, ...], float]:
            text = (await client.get("/v0/metrics", headers={"authorization": f"Bearer {key}"})).text
            families = text_string_to_metric_families(text)
            samples = [each for family in families for each in family.samples if "_declared_" in each.name]
            return {
                (each.name.removeprefix("strandline_declared_"), *each.labels.values()): each.value for each in samples
            }

        assert await found("boss") == {
            ("project_failing",): 0,
            ("table_lag_records", "revenue"): 12,
            ("table_failing", "revenue"): 0,
            ("table_failing", "bad"): 1,
        }
        assert await found("shop") == {}

    write_status(Lake.at(tmp_path / "data" / "lake"), PipelineStatus(declared=declared))
    with_server(tmp_path, test, program=False)


def test_what_is_missing_is_told_and_running_is_refused(tmp_path: Path) -> None:
    async def test(application: Application, client: httpx.AsyncClient) -> None:
        await state_is(client, "missing")
        assert (await client.get("/pipeline")).json()["missing"] == ["there is no Java"]
        response = await client.post("/pipeline/run")
        assert (response.status_code, response.json()["error"]["code"]) == (409, "pipeline_missing")
        assert "there is no Java" in response.json()["error"]["message"]
        # And the server goes on serving.
        assert (await client.post("/v0/topics/a", json={"records": [{"data": 1}]})).is_success

    with_server(tmp_path, test, missing=["there is no Java"])


def test_a_server_without_a_pipeline_says_so(tmp_path: Path) -> None:
    async def test(application: Application, client: httpx.AsyncClient) -> None:
        assert (await client.get("/pipeline")).json()["state"] == "off"
        response = await client.post("/pipeline/run")
        assert (response.status_code, response.json()["error"]["code"]) == (409, "pipeline_off")

    with_server(tmp_path, test, program=False)


def test_looking_needs_the_read_scope_and_running_the_admin_scope(tmp_path: Path) -> None:
    async def test(application: Application, client: httpx.AsyncClient) -> None:
        for key, status in (("reader", 403), ("shop", 403), ("nobody", 401)):
            response = await client.post("/pipeline/run", headers={"authorization": f"Bearer {key}"})
            assert response.status_code == status
        for key, status in (("reader", 200), ("shop", 200), ("nobody", 401)):
            response = await client.get("/pipeline", headers={"authorization": f"Bearer {key}"})
            assert response.status_code == status

    with_server(tmp_path, test, program=False)


@pytest.fixture
def standing() -> PipelineSnapshot:
    rows = [LogLag(log=name, epoch=1, head=9, covered={}) for name in ("shop.orders", "secret")]
    problems = [
        PipelineProblem(time=1, stage="records", log=name, message="no") for name in ("shop.orders", "secret", None)
    ]
    rounds = [RoundSummary(begin=1, end=2), RoundSummary(begin=3, end=4, error="secret is damaged")]
    status = PipelineStatus(
        lag=Lag(logs=2, rows=rows), problems=problems, rounds=rounds, source="/srv/data", master="spark://x"
    )
    return PipelineSnapshot(state="running", last_error="secret is damaged", status=status)


def test_of_logs_that_a_key_may_not_touch_nothing_is_told(standing: PipelineSnapshot) -> None:
    told = answer(standing, "/srv/data/lake", Access("shop", frozenset({"read"}), ("shop.",)))
    assert "secret" not in repr(told)
    assert "/srv" not in repr(told)
    assert told.status is not None
    assert [row.log for row in told.status.lag.rows] == ["shop.orders"]
    assert [problem.log for problem in told.status.problems] == ["shop.orders"]
    assert [round.good for round in told.status.rounds] == [True, False]


def test_who_may_touch_everything_is_told_everything(standing: PipelineSnapshot) -> None:
    told = answer(standing, "/srv/data/lake", FULL_ACCESS)
    assert (told.status, told.last_error, told.lake) == (standing.status, "secret is damaged", "/srv/data/lake")


def test_a_real_server_has_no_process_for_it_while_there_is_nothing_to_do(start_server: StartServer, lane: str) -> None:
    server = start_server(lane=lane, pipeline="auto")
    client = server.client()
    client.write("orders", [1, 2, 3])
    told = client.call("GET", "/pipeline")
    assert told["starts"] == 0
    assert told["state"] in ("off", "idle", "missing")
    assert server.stop() == 0
