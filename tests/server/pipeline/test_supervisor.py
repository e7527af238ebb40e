"""Keeping real processes of a stand-in, with a clock that is turned by hand."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic, sleep

import pytest
from support import pipeline_stand_in

from strandline.engine import Batch, Engine
from strandline.lake.fence import claim
from strandline.lake.status import PipelineStatus, write_status
from strandline.server.pipeline import supervisor
from strandline.server.pipeline.supervisor import MISSING_SECONDS, OwnServer, PipelineSupervisor, Program
from strandline.server.settings import PipelineSettings, Settings, StorageSettings

STAND_IN = Path(pipeline_stand_in.__file__)
#: Generous: the machine may be busy.
SECONDS = 60.0


class Bench:
    """A keeper over an engine, and the time."""

    def __init__(self, path: Path, **settings: object) -> None:
        self.engine = Engine.open(path / "data", background=False)
        self.log = self.engine.create("orders").wait()
        self.now = 1000.0
        self.missing: list[str] = []
        self.asked_what_is_missing = 0
        chosen = PipelineSettings(pipeline_start_records=10, **settings)  # type: ignore[arg-type]
        self.settings = Settings(storage=StorageSettings(data_dir=str(path / "data")), pipeline=chosen)
        self.keeper = self.make()

    def make(self, what: str = "") -> PipelineSupervisor:
        command = [sys.executable, str(STAND_IN), self.settings.lake, what]
        self.keeper = PipelineSupervisor(
            self.settings, Program(command, self.what_is_missing), self.engine, tick=lambda: self.now
        )
        return self.keeper

    def what_is_missing(self) -> list[str]:
        self.asked_what_is_missing += 1
        return self.missing

    def append(self, count: int) -> None:
        self.log.append(Batch([b"{}"] * count)).wait()

    def look(self, seconds: float = 0.0) -> str:
        self.now += seconds
        self.keeper.look()
        return self.keeper.standing.state

    def until(self, condition: Callable[[], object]) -> None:
        """Look until something has come about in another process; the keeper's clock stands still meanwhile."""
        deadline = monotonic() + SECONDS
        while not condition():
            assert monotonic() < deadline, f"it does not come about: {self.keeper.standing}"
            sleep(0.005)
            self.look()

    @property
    def rounds(self) -> int:
        status = self.keeper.standing.status
        return 0 if status is None else status.rounds_total


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.keeper.close()
    bench.engine.close()


def test_with_too_little_to_do_no_process_is_started(bench: Bench) -> None:
    bench.append(9)
    assert bench.look() == "idle"
    assert bench.look(60) == "idle"
    assert (bench.keeper.standing.starts, bench.keeper.standing.new_records) == (0, 9)


def test_with_enough_to_do_it_is_started_and_ended_when_that_is_done(bench: Bench) -> None:
    bench.append(10)
    assert bench.look() == "running"
    assert bench.keeper.standing.reason == "10 new records"
    bench.until(lambda: bench.rounds == 1)
    assert bench.look(119) == "running"
    assert bench.keeper.standing.new_records == 0
    assert bench.look(2) == "stopping"
    bench.until(lambda: bench.keeper.standing.state == "idle")
    assert bench.keeper.standing.pid is None
    assert (bench.keeper.standing.starts, bench.keeper.standing.failures) == (1, 0)


def test_while_it_runs_it_is_told_of_whatever_is_new_but_not_too_often(bench: Bench) -> None:
    bench.append(10)
    bench.look()
    bench.until(lambda: bench.rounds == 1)
    bench.append(1)
    for _ in range(9):
        bench.look(1)
    assert bench.rounds == 1
    bench.look(1)
    bench.until(lambda: bench.rounds == 2)


def test_one_that_runs_is_told_at_once_when_somebody_asks(bench: Bench) -> None:
    bench.append(10)
    bench.look()
    bench.until(lambda: bench.rounds == 1)
    assert bench.keeper.ask()
    bench.look()
    bench.until(lambda: bench.rounds == 2)


def test_one_that_does_not_run_is_started_when_somebody_asks(bench: Bench) -> None:
    assert bench.look() == "idle"
    assert bench.keeper.ask()
    assert bench.look() == "running"
    bench.until(lambda: bench.rounds == 1)


def test_one_that_is_killed_is_started_again(bench: Bench) -> None:
    bench.append(10)
    bench.look()
    bench.until(lambda: bench.rounds == 1)
    bench.append(10)
    pid = bench.keeper.standing.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    bench.until(lambda: bench.keeper.standing.state == "backing_off")
    assert bench.keeper.standing.last_error == "the process ended with signal 9: round"
    assert bench.keeper.standing.retry_seconds == 1
    assert bench.look(1) == "running"
    bench.until(lambda: bench.rounds == 2)


def test_one_that_fails_again_and_again_is_tried_less_and_less_often(bench: Bench) -> None:
    bench.make("fail")
    bench.append(10)
    waits = []
    for number in range(3):
        assert bench.look() == "running"
        bench.until(lambda number=number: bench.keeper.standing.failures == number + 1)  # type: ignore[misc]
        assert bench.keeper.standing.state == "backing_off"
        assert bench.keeper.standing.last_error == "the process ended with exit code 1: the disk is full"
        waits.append(bench.keeper.standing.retry_seconds)
        bench.now += waits[-1]
    assert waits == [1, 2, 4]


def test_a_command_that_cannot_be_run_is_a_failure_like_others(bench: Bench) -> None:
    bench.keeper = PipelineSupervisor(
        bench.settings, Program(["/nonexistent/pipeline"], bench.what_is_missing), bench.engine, tick=lambda: bench.now
    )
    bench.append(10)
    assert bench.look() == "backing_off"
    assert "cannot be started" in (bench.keeper.standing.last_error or "")


def test_what_is_missing_is_told_and_looked_for_again(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.missing = ["there is no Java"]
    bench.append(10)
    with caplog.at_level(logging.INFO):
        assert bench.look() == "missing"
        assert bench.look(MISSING_SECONDS - 1) == "missing"
    assert bench.keeper.standing.missing == ("there is no Java",)
    assert [record.levelname for record in caplog.records] == ["INFO"]
    assert "there is no Java" in caplog.text
    assert bench.asked_what_is_missing == 1
    bench.missing = []
    assert bench.look(1) == "running"


def test_who_insists_on_the_pipeline_gets_an_error_when_it_cannot_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(tmp_path, pipeline="on")
    bench.missing = ["there is no Java"]
    with caplog.at_level(logging.INFO):
        assert bench.look() == "missing"
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    bench.engine.close()


def test_where_nothing_is_missing_it_is_looked_for_only_once(bench: Bench) -> None:
    for _ in range(5):
        bench.look(MISSING_SECONDS)
    assert bench.asked_what_is_missing == 1


def test_that_it_is_on_is_told_once(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        bench.look()
        bench.keeper.ask()
        bench.look()
    assert [record.message for record in caplog.records if "the pipeline is on" in record.message] == [
        "the pipeline is on: the server starts Spark when there is enough history; "
        f"the lake is in {bench.keeper.lake.url}"
    ]


def test_that_it_is_off_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(tmp_path, pipeline="off")
    with caplog.at_level(logging.INFO):
        bench.keeper.start()
    assert caplog.messages == ["the pipeline is off: the server does not process history on Spark"]
    bench.engine.close()


def test_a_process_that_misses_something_makes_it_be_looked_for_again(bench: Bench) -> None:
    bench.make("missing")
    bench.append(10)
    bench.look()
    bench.missing = ["there is no Java"]
    bench.until(lambda: bench.keeper.standing.state == "missing")
    assert bench.keeper.standing.last_error == "the process ended with exit code 3: there is no Java"


def test_while_somebody_else_works_on_the_lake_it_waits(bench: Bench) -> None:
    bench.append(10)
    with claim(bench.keeper.lake, lambda: 0):
        assert bench.look() == "elsewhere"
        assert bench.keeper.standing.starts == 0
    assert bench.look() == "running"


def test_turned_off_it_does_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path, pipeline="off")
    bench.append(1000)
    assert bench.look(1e6) == "off"
    assert bench.keeper.standing.status is None
    assert not bench.keeper.ask()
    # It still shows what a pipeline reports that was started by hand.
    write_status(bench.keeper.lake, PipelineStatus(state="running", pid=7))
    assert bench.look() == "off"
    assert bench.keeper.standing.status == PipelineStatus(state="running", pid=7)
    assert bench.asked_what_is_missing == 0
    bench.keeper.start()
    bench.keeper.close()
    bench.engine.close()


def test_a_damaged_status_stops_nothing(bench: Bench) -> None:
    lake = Path(bench.settings.lake)
    lake.mkdir()
    (lake / "status.json").write_text("{")
    bench.append(10)
    assert bench.look() == "running"
    assert "is invalid" in (bench.keeper.standing.status_error or "")


def test_it_ends_with_the_server(bench: Bench) -> None:
    bench.append(10)
    bench.look()
    bench.until(lambda: bench.rounds == 1)
    pid = bench.keeper.standing.pid
    assert pid is not None
    bench.keeper.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_one_that_does_not_end_is_killed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "STOP_SECONDS", 0.05)
    bench.make("deaf")
    bench.append(10)
    bench.look()
    bench.until(lambda: bench.rounds == 1)
    pid = bench.keeper.standing.pid
    assert pid is not None
    bench.keeper.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_by_itself_it_looks_again_and_again(bench: Bench) -> None:
    bench.append(10)
    bench.keeper.start()
    deadline = monotonic() + SECONDS
    while bench.rounds == 0:
        assert monotonic() < deadline
        sleep(0.01)
    bench.keeper.close()


def test_the_process_of_a_project_reaches_its_server_with_a_key_of_its_own(tmp_path: Path) -> None:
    told = tmp_path / "told"
    code = "import os, sys; open(sys.argv[1], 'w').write(' '.join([*sys.argv[2:], os.environ['STRANDLINE_KEY']]))"
    engine = Engine.open(tmp_path / "data", background=False)
    settings = Settings(
        storage=StorageSettings(data_dir=str(tmp_path / "data")), pipeline=PipelineSettings(pipeline_project="shop")
    )
    program = Program([sys.executable, "-c", code, str(told)], list)
    keeper = PipelineSupervisor(settings, program, engine, own=OwnServer("http://127.0.0.1:1", "secret"))
    try:
        keeper.look()
        assert keeper.standing.reason == "declared tables are kept current"
        deadline = monotonic() + SECONDS
        while not (told.exists() and told.read_text()):
            assert monotonic() < deadline
            sleep(0.005)
        assert told.read_text() == "--server http://127.0.0.1:1 secret"
    finally:
        keeper.close()
        engine.close()
