from __future__ import annotations

import logging

import msgspec
import pytest

from strandline.lake.reporter import WRITE_MS, Silent, StatusReporter, Stopped, describe, summarize
from strandline.lake.status import MAX_LOGS, MAX_PROBLEMS, MAX_ROUNDS, LogLag, PipelineStatus


class Clock:
    def __init__(self) -> None:
        self.time = 1_000_000

    def now(self) -> int:
        return self.time


class Book:
    """Where statuses are written to: takes down every one."""

    def __init__(self) -> None:
        self.written: list[PipelineStatus] = []
        self.error: OSError | None = None

    def write(self, status: PipelineStatus) -> None:
        if self.error is not None:
            raise self.error
        self.written.append(msgspec.json.decode(msgspec.json.encode(status), type=PipelineStatus))

    @property
    def last(self) -> PipelineStatus:
        return self.written[-1]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def book() -> Book:
    return Book()


@pytest.fixture
def reporter(clock: Clock, book: Book) -> StatusReporter:
    return StatusReporter(book.write, clock.now, master="local[2]", source="data")


def test_a_stage_tells_its_progress_and_its_rate(reporter: StatusReporter, clock: Clock, book: Book) -> None:
    with reporter.round(), reporter.stage("records", 100) as stage:
        assert book.last.state == "running"
        clock.time += 2000
        stage.advance(50, 5000)
        (told,) = book.last.stages
        assert (told.stage, told.records, told.total, told.bytes, told.rate) == ("records", 50, 100, 5000, 25.0)
    assert book.last.state == "idle"
    assert book.last.stages == []
    (round,) = book.last.rounds
    (summary,) = round.stages
    assert (summary.stage, summary.records, summary.seconds, summary.rate) == ("records", 50, 2.0, 25.0)
    assert book.last.records_total == {"records": 50}


def test_progress_is_not_written_more_often_than_worth_it(reporter: StatusReporter, clock: Clock, book: Book) -> None:
    with reporter.stage("records") as stage:
        before = len(book.written)
        for _ in range(1000):
            stage.advance(1)
        assert len(book.written) == before
        clock.time += WRITE_MS
        stage.advance(1)
        assert len(book.written) == before + 1
        assert book.last.stages[0].records == 1001


def fail(reporter: StatusReporter) -> None:
    with reporter.round(), reporter.stage("keys") as stage:
        stage.advance(3)
        raise ValueError("the disk\nis full")


def test_a_round_that_fails_says_so_and_the_next_one_is_told_as_well(reporter: StatusReporter, book: Book) -> None:
    with pytest.raises(ValueError):
        fail(reporter)
    with reporter.round():
        pass
    assert [round.error for round in book.last.rounds] == ["ValueError: the disk", None]
    assert [problem.message for problem in book.last.problems] == ["ValueError: the disk"]
    assert (book.last.rounds_total, book.last.problems_total) == (2, 1)
    assert book.last.stages == []


def test_a_round_can_be_stopped_where_something_has_just_been_committed(clock: Clock, book: Book) -> None:
    told: list[bool] = []
    reporter = StatusReporter(book.write, clock.now, stopping=lambda: bool(told))

    def work() -> None:
        with reporter.round(), reporter.stage("records") as stage:
            stage.advance(1)
            told.append(True)
            stage.advance(2)

    with pytest.raises(Stopped):
        work()
    (round,) = book.last.rounds
    assert (round.stopped, round.error, round.good) == (True, None, False)
    assert (book.last.records_total, book.last.problems) == ({"records": 3}, [])
    with pytest.raises(Stopped), reporter.stage("keys"):
        pass


def test_problems_name_the_log_and_the_record(reporter: StatusReporter, clock: Clock, book: Book) -> None:
    reporter.problem("records", "orders", 17, "not what its schema says")
    (problem,) = book.last.problems
    assert (problem.log, problem.seq, problem.time) == ("orders", 17, clock.time)


def test_what_is_kept_of_the_past_is_bounded(reporter: StatusReporter) -> None:
    for number in range(MAX_PROBLEMS + 5):
        reporter.problem("records", None, None, str(number))
    for _ in range(MAX_ROUNDS + 5):
        with reporter.round():
            pass
    status = reporter.status
    assert (len(status.problems), status.problems_total) == (MAX_PROBLEMS, MAX_PROBLEMS + 5)
    assert status.problems[-1].message == str(MAX_PROBLEMS + 4)
    assert (len(status.rounds), status.rounds_total) == (MAX_ROUNDS, MAX_ROUNDS + 5)


def test_counters_go_on_where_an_earlier_run_ended(clock: Clock, book: Book) -> None:
    before = PipelineStatus(rounds_total=7, records_total={"records": 10}, missing=["Java"], pid=1)
    reporter = StatusReporter(book.write, clock.now, before=before)
    with reporter.round(), reporter.stage("records") as stage:
        stage.advance(5)
    assert (book.last.rounds_total, book.last.records_total, book.last.missing) == (8, {"records": 15}, [])
    assert book.last.pid != 1


def test_a_status_that_cannot_be_written_stops_nothing(
    reporter: StatusReporter, book: Book, caplog: pytest.LogCaptureFixture
) -> None:
    book.error = OSError("no space left")
    with caplog.at_level(logging.WARNING), reporter.round(), reporter.stage("records") as stage:
        stage.advance(1)
    assert len(caplog.records) == 1
    book.error = None
    reporter.flush()
    assert book.last.rounds_total == 1


def test_the_lag_has_all_logs_in_its_sums_and_the_furthest_behind_one_by_one() -> None:
    logs = [
        LogLag(log=f"log-{number:05}", epoch=number, head=1000, covered={"records": 1000 - number % 997})
        for number in range(3 * MAX_LOGS)
    ]
    lag = summarize(logs, erasures=9)
    assert (lag.logs, lag.heads, lag.erasures) == (3 * MAX_LOGS, 3000 * MAX_LOGS, 9)
    assert lag.behind == sum(log.behind for log in logs) == lag.heads - lag.covered["records"]
    assert lag.rows == sorted(logs, key=lambda log: -log.behind)[:MAX_LOGS]


def test_an_error_is_told_in_a_line() -> None:
    assert describe(ValueError("one\n  at java.lang\n")) == "ValueError: one"
    worker = "An exception was thrown:\nTraceback (most recent call last):\n  File x\n    raise\nKeyError: 7\n SQLSTATE"
    assert describe(RuntimeError(worker)) == "KeyError: 7"
    assert describe(KeyboardInterrupt()) == "KeyboardInterrupt"


def test_an_error_of_a_task_on_spark_connect_is_told_by_its_cause() -> None:
    """What Spark Connect 4.3 says of an error in a task, word for word."""
    said = (
        "\n  An exception was thrown from the Python worker. Please see the stack trace below.\n"
        "[PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent call last):\n"
        '  File "/srv/work.py", line 10, in work\n    raise OSError(28, "No space left on device", "/srv/lake/x")\n'
        "{}\n SQLSTATE: 38000\n"
    )
    cause = "OSError: [Errno 28] No space left on device: '/srv/lake/x'"
    assert describe(RuntimeError(said.format(cause))) == cause
    told = f"write_records failed on log 'a' seqs 1 to 9: {cause}"
    assert describe(RuntimeError(said.format(f"strandline.lake.reporter.TaskFailed: {told}"))) == told


def test_a_silent_reporter_takes_everything() -> None:
    reporter = Silent()
    with reporter.stage("records", 7) as stage:
        stage.advance(1, 2)
    reporter.problem("records", "a", 1, "?")
    reporter.lag([])
