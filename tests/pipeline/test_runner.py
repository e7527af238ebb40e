from __future__ import annotations

import os
import signal
import threading

import pytest

from strandline.lake.fence import LakeInUse
from strandline.lake.reporter import StatusReporter, Stopped
from strandline.lake.status import PipelineStatus
from strandline.pipeline.run import Requests, listen, renewing, run_on, run_once, signals


@pytest.fixture
def requests() -> Requests:
    return Requests()


@pytest.fixture
def reporter(requests: Requests) -> StatusReporter:
    return StatusReporter(lambda status: None, lambda: 0, stopping=lambda: requests.stopping)


class Rounds:
    """Takes down when rounds begin; each takes ``seconds``. After ``last`` of them it asks for the end."""

    def __init__(self, requests: Requests, last: int, seconds: float = 0.0) -> None:
        self.requests = requests
        self.last = last
        self.seconds = seconds
        self.now = 0.0
        self.begun: list[float] = []

    def __call__(self) -> None:
        self.begun.append(self.now)
        self.now += self.seconds
        if len(self.begun) == self.last:
            self.requests.stop()

    def tick(self) -> float:
        return self.now


def test_one_round_is_one_round(reporter: StatusReporter, requests: Requests) -> None:
    rounds = Rounds(requests, last=7)
    assert run_once(rounds, reporter)
    assert len(rounds.begun) == 1
    assert reporter.status.rounds[0].good


def test_a_round_that_is_stopped_is_no_error(reporter: StatusReporter) -> None:
    def stopped() -> None:
        raise Stopped

    assert not run_once(stopped, reporter)
    assert reporter.status.problems == []


def test_rounds_follow_each_other_at_once_when_one_takes_longer_than_the_interval(
    reporter: StatusReporter, requests: Requests
) -> None:
    rounds = Rounds(requests, last=4, seconds=60)
    run_on(rounds, reporter, requests, 60, rounds.tick)
    assert rounds.begun == [0, 60, 120, 180]


def test_otherwise_they_wait_for_what_is_left_of_it(reporter: StatusReporter) -> None:
    waited: list[float | None] = []

    class Waiting(Requests):
        def wait(self, seconds: float | None) -> bool:
            waited.append(seconds)
            return len(waited) < 3

    requests = Waiting()
    rounds = Rounds(requests, last=9, seconds=2)
    run_on(rounds, reporter, requests, 10, rounds.tick)
    assert (waited, len(rounds.begun)) == ([8, 8, 8], 3)


def test_without_an_interval_a_round_comes_when_it_is_asked_for(reporter: StatusReporter, requests: Requests) -> None:
    rounds = Rounds(requests, last=3)
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as stream, os.fdopen(writing, "wb", buffering=0) as sender:
        listen(requests, stream)

        def next_round() -> None:
            rounds()
            if not requests.stopping:
                sender.write(b"run\n")

        run_on(next_round, reporter, requests, None)
    assert len(rounds.begun) == 3


def test_it_ends_when_the_other_end_is_gone(reporter: StatusReporter, requests: Requests) -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as stream:
        listen(requests, stream)
        run_on(lambda: os.close(writing), reporter, requests, None)
    assert requests.stopping


def test_an_error_ends_it(reporter: StatusReporter, requests: Requests) -> None:
    def fail() -> None:
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        run_on(fail, reporter, requests, 0)
    assert reporter.status.rounds[0].error == "OSError: the disk is full"


def test_an_error_does_not_end_a_process_that_keeps_declared_tables(
    reporter: StatusReporter, requests: Requests
) -> None:
    rounds = []

    def fail() -> None:
        rounds.append(len(rounds))
        if len(rounds) == 2:
            requests.stop()
        requests.run()
        raise OSError("the disk is full")

    run_on(fail, reporter, requests, 0, lasting=True)
    assert rounds == [0, 1]
    assert [each.error for each in reporter.status.rounds] == ["OSError: the disk is full"] * 2


def test_another_driver_ends_it(reporter: StatusReporter, requests: Requests) -> None:
    def fail() -> None:
        raise LakeInUse("process 7 has taken over")

    with pytest.raises(LakeInUse):
        run_on(fail, reporter, requests, 0, lasting=True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_asks_for_the_end_and_a_second_one_insists(requests: Requests, number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with signals(requests):
        signal.raise_signal(number)
        assert requests.stopping
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
    assert signal.getsignal(number) is before


def test_the_status_is_renewed_until_the_end_and_then_says_so() -> None:
    renewed = threading.Event()
    written: list[str] = []

    def write(status: PipelineStatus) -> None:
        written.append(status.state)
        renewed.set()

    with renewing(StatusReporter(write, lambda: 0), 0.001):
        assert renewed.wait(30)
    assert written[0] == "starting"
    assert written[-1] == "ended"
