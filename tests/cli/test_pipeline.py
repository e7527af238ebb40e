"""The command line of the pipeline. Spark is played by a stand-in: what rounds do is tested where they are."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.command_line import app
from support.server_process import StartServer
from typer.testing import CliRunner, Result

from strandline.engine import Batch, Engine
from strandline.lake.fence import Fence, LakeOfAnother, claim
from strandline.lake.location import Lake
from strandline.lake.reporter import Reporter
from strandline.lake.status import (
    Lag,
    LogLag,
    PipelineProblem,
    PipelineStatus,
    RoundSummary,
    StageStatus,
    read_status,
    write_status,
)
from strandline.pipeline import run as pipeline_run
from strandline.pipeline.chosen_logs import UnknownLogs
from strandline.pipeline.spark_session import SparkUnavailable


def call(*arguments: object, **environment: str) -> Result:
    return CliRunner().invoke(app, ["pipeline", *map(str, arguments)], env={"COLUMNS": "200", **environment})


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    with Engine.open(path, background=False) as engine:
        engine.create("orders").wait().append(Batch([b"{}"] * 7)).wait()
    return path


class Spark:
    """Stands in for Spark and for the work on it: takes down how it was called."""

    def __init__(self) -> None:
        self.sessions: list[tuple[Any, ...]] = []
        self.rounds: list[tuple[Any, ...]] = []
        self.stopped = 0
        #: What a round does, besides.
        self.work: Callable[[Reporter], None] = lambda reporter: None

    def open_session(
        self, master: str, remote: str | None, conf: dict[str, str], app_name: str, *, delta: bool = False
    ) -> Spark:
        self.sessions.append((master, remote, conf))
        return self

    def stop(self) -> None:
        self.stopped += 1

    def run_round(
        self,
        stand_in: Spark,
        history: Any,
        lake: Lake,
        reporter: Reporter,
        chosen: Any,
        *,
        complete: bool,
        fence: Fence,
    ) -> None:
        assert fence, "all rounds of a driver are made behind one fence"
        self.rounds.append((lake.url, tuple(chosen.logs), chosen.prefix, complete))
        heads = {info.name: info.head for info in history.logs()}
        with reporter.stage("records", sum(heads.values())) as stage:
            stage.advance(sum(heads.values()), 100)
        reporter.lag(LogLag(log=name, epoch=1, head=head, covered={"records": head}) for name, head in heads.items())
        self.work(reporter)


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spark]:
    stand_in = Spark()
    monkeypatch.setattr(pipeline_run, "open_session", stand_in.open_session)
    monkeypatch.setattr(pipeline_run, "run_round", stand_in.run_round)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield stand_in
    assert {number: signal.getsignal(number) for number in before} == before


def test_once_covers_what_is_there_and_ends(data: Path, stand_in: Spark) -> None:
    result = call("run", "--data", data)
    assert result.exit_code == 0, result.output
    assert stand_in.sessions == [("local[*]", None, {})]
    assert stand_in.rounds == [(str(data / "lake"), (), "", True)]
    assert stand_in.stopped == 1
    status = read_status(Lake.at(data / "lake"))
    assert status is not None
    assert (status.state, status.rounds_total, status.records_total) == ("ended", 1, {"records": 7})
    assert "records: 7 records, 100 bytes in" in result.stderr
    assert "round done after" in result.stderr
    assert "lag: 0 of 7 records in 1 log" in result.stderr


def test_what_it_is_told_reaches_spark_and_the_round(data: Path, stand_in: Spark, tmp_path: Path) -> None:
    lake = tmp_path / "elsewhere"
    result = call(
        "run", "--data", data, "--lake", lake, "--master", "spark://cluster:7077", "--remote", "sc://connect:1",
        "--conf", "spark.a=1", "--conf", "spark.b=x=y", "--logs", "orders", "--logs", "other", "--prefix", "o",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert stand_in.sessions == [("spark://cluster:7077", "sc://connect:1", {"spark.a": "1", "spark.b": "x=y"})]
    assert stand_in.rounds == [(str(lake), ("orders", "other"), "o", True)]


def test_continuous_goes_on_until_it_is_told_to_stop(data: Path, stand_in: Spark) -> None:
    def stop_the_third(reporter: Reporter) -> None:
        if len(stand_in.rounds) == 3:
            os.kill(os.getpid(), signal.SIGTERM)

    stand_in.work = stop_the_third
    result = call("run", "--data", data, "--continuous", "--interval", 0)
    assert (result.exit_code, len(stand_in.rounds), stand_in.stopped) == (0, 3, 1)
    assert [complete for *_, complete in stand_in.rounds] == [False] * 3


def test_a_round_ends_where_it_may_when_it_is_told_to_stop(data: Path, stand_in: Spark) -> None:
    def long_work(reporter: Reporter) -> None:
        with reporter.stage("companions", 1000) as stage:
            for number in range(1000):
                if number == 2:
                    os.kill(os.getpid(), signal.SIGINT)
                stage.advance(1)

    stand_in.work = long_work
    assert call("run", "--data", data).exit_code == 0
    status = read_status(Lake.at(data / "lake"))
    assert status is not None
    assert status.records_total["companions"] < 1000
    assert status.rounds[0].stopped


def test_a_supervised_one_runs_when_it_is_asked_and_ends_with_who_asks(data: Path, stand_in: Spark) -> None:
    # Whoever it is is gone before it has begun.
    result = CliRunner().invoke(app, ["pipeline", "run", "--data", str(data), "--supervised"], input="")
    assert result.exit_code == 0, result.output
    assert len(stand_in.rounds) <= 1


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (SparkUnavailable("there is no Java\nand no pyspark"), 3),
        (UnknownLogs("logs not found: x"), 2),
        (LakeOfAnother("the lake is of another directory"), 1),
        (OSError(28, "No space left on device"), 1),
    ],
)
def test_what_goes_wrong_is_told_in_lines_and_has_its_exit_code(
    data: Path, stand_in: Spark, error: Exception, code: int
) -> None:
    def fail(reporter: Reporter) -> None:
        raise error

    stand_in.work = fail
    result = call("run", "--data", data)
    assert result.exit_code == code
    for line in str(error).splitlines():
        assert f"strandline: {line}" in result.stderr
    assert "Traceback" not in result.output
    status = read_status(Lake.at(data / "lake"))
    assert status is not None
    assert (status.state, status.rounds[0].good) == ("ended", False)
    assert stand_in.stopped == 1


def test_what_is_missing_is_in_the_status_too(data: Path, stand_in: Spark, monkeypatch: pytest.MonkeyPatch) -> None:
    def unavailable(*arguments: object, **options: object) -> None:
        raise SparkUnavailable("there is no Java\nand no pyspark")

    monkeypatch.setattr(pipeline_run, "open_session", unavailable)
    assert call("run", "--data", data).exit_code == 3
    status = read_status(Lake.at(data / "lake"))
    assert status is not None
    assert status.missing == ["there is no Java", "and no pyspark"]


def test_one_pipeline_per_lake(data: Path, stand_in: Spark) -> None:
    with claim(Lake.at(data / "lake"), lambda: 0):
        result = call("run", "--data", data)
    assert result.exit_code == 4
    assert f"process {os.getpid()}" in result.stderr
    assert stand_in.sessions == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "specify either --data or --url"),
        (["--data", ".", "--url", "http://x"], "specify either --data or --url"),
        (["--url", "http://x"], "--lake"),
        (["--data", "/nonexistent"], "is not a directory"),
        (["--data", ".", "--once", "--continuous"], "--once and --continuous"),
        (["--data", ".", "--conf", "spark.a"], "spark.name=value"),
        (["--data", ".", "--conf", "a=b"], "spark.name=value"),
        (["--data", ".", "--interval", "-1"], "interval"),
    ],
)
def test_commands_that_make_no_sense(stand_in: Spark, arguments: list[str], message: str) -> None:
    result = call("run", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert stand_in.sessions == []


# --- status --------------------------------------------------------------------------------------------------------


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake.at(tmp_path / "lake")
    status = PipelineStatus(
        state="running",
        since=1_700_000_000_000,
        pid=7,
        host="here",
        master="local[2]",
        stages=[StageStatus(stage="companions", since=0, records=500, total=1000, rate=40_000.0)],
        rounds=[RoundSummary(begin=1_700_000_000_000, end=1_700_000_003_000)],
        rounds_total=12,
        problems=[PipelineProblem(time=0, stage="records", log="orders", seq=17, message="not [bold] JSON")],
        lag=Lag(
            logs=1, heads=1000, behind=500, rows=[LogLag(log="orders", epoch=1, head=1000, covered={"records": 500})]
        ),
    )
    write_status(lake, status)
    return lake


def test_status_for_people(lake: Lake) -> None:
    with claim(lake, lambda: 0):
        result = call("status", "--lake", lake.url)
    assert result.exit_code == 0
    for words in (
        "pipeline: running since 2023-11-14 22:13:20Z, process 7 on here, master local[2]",
        "companions: 500 of 1,000 records, 40,000/s",
        "1 log, 1,000 records, lag 500; 12 rounds",
        "round done after 3.0 s",
        "problem in stage records, log orders at seq 17: not [bold] JSON",
    ):
        assert words in result.stdout
    assert [line.split() for line in result.stdout.splitlines()[-2:]] == [
        ["log", "head", "records"],
        ["orders", "1,000", "500"],
    ]


def test_status_for_programs(lake: Lake) -> None:
    told = json.loads(call("status", "--lake", lake.url, "--json").stdout)
    assert (told["rounds_total"], told["lag"]["behind"]) == (12, 500)
    # Nobody holds the lake: whoever wrote that it runs was killed.
    assert (told["state"], told["stages"]) == ("ended", [])


def test_a_lake_without_a_pipeline_has_no_status(tmp_path: Path) -> None:
    result = call("status", "--data", tmp_path)
    assert result.exit_code == 1
    assert f"no pipeline has run on the lake {tmp_path}/lake" in result.stderr


def test_the_status_is_asked_for_at_one_place(tmp_path: Path) -> None:
    assert call("status").exit_code == 2
    assert call("status", "--data", tmp_path, "--url", "http://x").exit_code == 2


def test_status_from_a_server(start_server: StartServer) -> None:
    server = start_server(keys="secret")
    lake = Lake.at(server.data / "lake")
    write_status(lake, PipelineStatus(rounds_total=3))
    result = call("status", "--url", server.url, "--api-key", "secret")
    assert (result.exit_code, "server: off" in result.stdout) == (0, True)
    assert json.loads(call("status", "--url", server.url, "--json", STRANDLINE_KEY="secret").stdout)["state"] == "off"
    refused = call("status", "--url", server.url)
    assert (refused.exit_code, "answered 401" in refused.stderr) == (1, True)


def test_a_server_that_is_not_there_is_told(tmp_path: Path) -> None:
    result = call("status", "--url", "http://127.0.0.1:1")
    assert (result.exit_code, "the server at http://127.0.0.1:1 does not answer" in result.stderr) == (1, True)
