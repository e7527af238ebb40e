"""Logs that keep records until the lake has them: what the server does for them, with real rounds."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from support.command_line import Cli
from support.engines import texts
from support.lake_rounds import Bed, append
from support.local_tasks import work_here
from support.server_process import StartServer
from support.topics_client import eventually

from strandline.client import Client
from strandline.engine import Batch, Config
from strandline.history.remote import ServerHistory
from strandline.lake import layout
from strandline.lake.fence import BELONGING, LakeOfAnother
from strandline.lake.location import Lake
from strandline.lake.reporter import Silent
from strandline.pipeline.run import run_round
from strandline.server.pipeline.lake_marks import ALARM, LakeMarks


@pytest.fixture
def bed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bed]:
    work_here(monkeypatch)
    bed = Bed(tmp_path)
    yield bed
    bed.close()


def marks_of(bed: Bed, alarm_s: float = 0.0, not_run: str = "") -> LakeMarks:
    return LakeMarks(bed.engine, bed.lake, alarm_s, lambda: not_run)


def test_marks_follow_the_lake_and_a_lake_that_is_gone_moves_them_back(bed: Bed) -> None:
    log, other = bed.log(cap_records=1, retain_until_in_lake=True), bed.log("b", cap_records=1)
    marks = marks_of(bed)
    marks.look()
    for each in (log, other):
        append(each, "1", "2", "3")
    marks.look()
    assert (texts(log), texts(other)) == (["1", "2", "3"], ["3"])
    assert (marks.lag.logs, marks.lag.lag_records, marks.lag.held_records, marks.lag.held_bytes) == (1, 3, 2, 2)
    bed.round()
    marks.look()
    assert (texts(log), log.lake_mark) == (["3"], 3)
    assert (marks.lag.lag_records, marks.lag.lag_seconds, marks.lag.held_records) == (0, 0.0, 0)
    assert marks.lag.rows[0].log == "a"
    # Another process sees the same.
    shutil.rmtree(bed.path / "lake")
    marks.look()
    assert log.lake_mark == 0
    append(log, "4")
    assert texts(log) == ["3", "4"]
    bed.round()
    marks.look()
    assert bed.data() == ["3", "4"]
    assert texts(log) == ["4"]


def test_records_that_are_restored_or_amended_wait_until_the_lake_has_them_so(bed: Bed) -> None:
    log = bed.log(cap_records=2, retain_until_in_lake=True)
    marks = marks_of(bed)
    append(log, "1", "2")
    bed.round()
    marks.look()
    log.amend(1, b"amended").wait()
    append(log, "3", "4")
    marks.look()
    assert texts(log) == ["amended", "2", "3", "4"]
    # A process that has seen nothing of it waits as well.
    marks_of(bed).look()
    assert log.lake_mark == 0
    bed.round()
    marks.look()
    assert texts(log) == ["3", "4"]
    assert bed.data() == ["amended", "2", "3", "4"]


def test_a_lake_of_another_directory_counts_as_none(bed: Bed) -> None:
    log = bed.log(cap_records=1, retain_until_in_lake=True)
    append(log, "1", "2")
    bed.round()
    marks = marks_of(bed)
    marks.look()
    assert log.lake_mark == 2
    place = bed.path / "lake" / BELONGING
    place.write_text(json.dumps({**json.loads(place.read_text()), "directory": "another"}))
    with pytest.raises(LakeOfAnother):
        marks.look()
    assert log.lake_mark == 0


def test_a_lake_that_is_too_far_behind_is_reported_until_it_is_not(bed: Bed, caplog: pytest.LogCaptureFixture) -> None:
    log = bed.log(cap_records=1, retain_until_in_lake=True)
    marks = marks_of(bed, alarm_s=1000, not_run="`pipeline` is off")
    marks.look()
    marks.look()
    assert "does not run the pipeline (`pipeline` is off)" in caplog.text
    assert len(caplog.records) == 1
    assert marks.warnings == [marks.warning]
    assert bed.engine.health.troubles() == []
    log.append(Batch.of(b"1"), ts=bed.engine.now() - 2_000_000).wait()
    marks = marks_of(bed, alarm_s=1000)
    marks.look()
    marks.look()
    assert [trouble.task for trouble in bed.engine.health.troubles()] == [ALARM]
    assert marks.lag.lag_seconds > 1000
    bed.round()
    marks.look()
    assert bed.engine.health.troubles() == []
    log.configure(Config()).wait()
    marks.look()
    assert (marks.lag.logs, marks.warnings) == (0, [])


def test_every_record_of_a_compacted_capped_log_reaches_the_lake_although_the_server_is_killed(
    tmp_path: Path, start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    work_here(monkeypatch)
    server = start_server(compact_after_ms=0, stream_durability="disk")
    lake = Lake.at(str(server.data / "lake"))
    with Client(server.url) as client:
        configured = client.topic("orders").configure(cap_records=10, compact=True, retain_until_in_lake=True)
        assert configured.config.retain_until_in_lake
        assert "`pipeline` is off" in configured.warnings[0]
        created = client.stream("visits").create(compact=True, retain_until_in_lake=True)
        assert created.retain_until_in_lake
        assert "`pipeline` is off" in (created.warning or "")
    written = 0
    for batch in range(6):
        for _ in range(5):
            rows = [{"tag": f"k{at % 7}", "data": written + at} for at in range(100)]
            httpx.post(f"{server.url}/v0/topics/orders", json={"records": rows}).raise_for_status()
            written += 100
        if batch % 2:
            server.kill()
            server.start(server.port)
        if batch != 4:
            run_round(None, ServerHistory(server.url), lake, Silent())
    url = server.url
    eventually(lambda: httpx.get(f"{url}/v0/topics/orders").json()["count"] <= 10)
    rows = layout.records(lake).open().to_pyarrow_table(columns=["log", "seq", "data"]).to_pylist()
    found = sorted((row["seq"], row["data"]) for row in rows if row["log"] == "orders")
    assert found == [(seq + 1, str(seq)) for seq in range(3000)]

    for _ in range(2):
        more = {"records": [{"tag": "k", "data": at} for at in range(50)]}
        httpx.post(f"{url}/v0/topics/orders", json=more).raise_for_status()
    eventually(lambda: httpx.get(f"{url}/pipeline").json()["retained"]["held_records"] >= 90)
    answer = httpx.get(f"{url}/pipeline").json()
    assert answer["retained"]["logs"] == 2
    assert (answer["retained"]["rows"][0]["log"], answer["retained"]["rows"][0]["lag_records"]) == ("orders", 100)
    assert answer["warnings"] == httpx.get(f"{url}/v0/ready").json()["warnings"] != []
    metrics = httpx.get(f"{url}/v0/metrics").text
    assert "strandline_retained_logs 2\n" in metrics
    assert 'strandline_retained_lag_records{log="orders"} 100\n' in metrics
    shown = Cli(url).lines("pipeline", "status", "--url", url)
    assert any(line.startswith("2 logs with retain_until_in_lake, 90 records") for line in shown)
