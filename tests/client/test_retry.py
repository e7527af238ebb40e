"""What is tried again, when, and what never is."""

from __future__ import annotations

import pytest

from strandline.client import Busy, Patience, Refused, ServerFault, StrandlineError, TimedOut, Unreachable
from strandline.client.calls import ALWAYS, KEYED_SECONDS
from strandline.client.errors import refusal
from strandline.client.retry import Tries

LOST = Unreachable("cut", sent=True)
NEVER_LEFT = Unreachable("refused", sent=False)
BUSY = Busy(429, "throttled", "come back")
NOT_READY = Busy(503, "not_ready", "come back")
READ_ONLY = Busy(503, "read_only", "nobody knows")
BEHIND = Busy(503, "replica_behind", "nobody knows")
TABLE_READ_ONLY = Busy(503, "READ_ONLY", "nobody knows")
SLOW_DISK = Refused(408, "append_timeout", "nobody knows")
BAD_GATEWAY = ServerFault(502, "", "nobody knows")
FAULT = ServerFault(500, "internal", "a bug")


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def tries(repeatable: float, patience: Patience | None = None) -> tuple[Tries, Clock]:
    clock = Clock()
    return Tries(patience or Patience(20), repeatable, clock, luck=lambda: 0.0), clock


@pytest.mark.parametrize("error", [NEVER_LEFT, BUSY, NOT_READY])
def test_what_was_not_done_is_always_tried_again(error: StrandlineError) -> None:
    assert tries(0.0)[0].failed(error) > 0


@pytest.mark.parametrize(
    "error", [LOST, TimedOut("late", sent=True), SLOW_DISK, BAD_GATEWAY, READ_ONLY, TABLE_READ_ONLY, BEHIND]
)
def test_what_may_have_been_done_is_tried_again_only_if_that_changes_nothing(error: StrandlineError) -> None:
    assert tries(ALWAYS)[0].failed(error) > 0
    with pytest.raises(type(error)):
        tries(0.0)[0].failed(error)


@pytest.mark.parametrize("error", [FAULT, Refused(400, "invalid_request", "no"), Refused(404, "not_found", "no")])
def test_a_plain_refusal_is_not_tried_again(error: StrandlineError) -> None:
    with pytest.raises(Refused):
        tries(ALWAYS)[0].failed(error)


def test_an_idempotency_key_counts_for_as_long_as_the_server_remembers_it() -> None:
    attempts, clock = tries(KEYED_SECONDS, Patience(1000))
    clock.now += KEYED_SECONDS - 1
    assert attempts.failed(LOST) > 0
    clock.now += 2
    with pytest.raises(Unreachable):
        attempts.failed(LOST)
    # That the last attempt never left says nothing about the first one.
    with pytest.raises(Unreachable) as caught:
        attempts.failed(Unreachable("refused", sent=False))
    assert caught.value.sent


def test_what_never_left_is_tried_again_however_late() -> None:
    attempts, clock = tries(KEYED_SECONDS, Patience(1000))
    clock.now += 2 * KEYED_SECONDS
    assert attempts.failed(NEVER_LEFT) > 0


def test_patience_is_counted_from_the_first_failure() -> None:
    attempts, clock = tries(ALWAYS, Patience(20))
    clock.now += 30
    assert attempts.failed(LOST) > 0
    clock.now += 19
    assert attempts.failed(LOST) > 0
    clock.now += 1
    with pytest.raises(Unreachable):
        attempts.failed(LOST)
    attempts.succeeded()
    assert attempts.failed(LOST) > 0


def of_server(number: int, error: StrandlineError) -> StrandlineError:
    error.server = f"http://{number}"
    return error


def test_each_of_several_servers_is_asked_before_the_client_waits() -> None:
    clock = Clock()
    attempts = Tries(Patience(20), 0.0, clock, luck=lambda: 0.0, servers=3)
    for _ in range(2):
        assert attempts.failed(of_server(1, Unreachable("refused", sent=False))) == 0.0
        assert attempts.failed(of_server(2, Busy(503, "standby", "wait", retry_after=5.0))) == 0.0
        # The shortest hint counts: the server that gave it may be the next leader.
        assert attempts.failed(of_server(3, Busy(503, "standby", "wait", retry_after=2.0))) == 2.0
        clock.now += 2
    assert attempts.count == 2
    clock.now += 20
    with pytest.raises(Unreachable) as caught:
        attempts.failed(of_server(1, Unreachable("http://1 refused", sent=False)))
    said = "http://2: wait (503 standby); http://3: wait (503 standby); http://1 refused"
    assert (str(caught.value), caught.value.sent) == (said, False)


def test_without_patience_each_of_several_servers_is_asked_once() -> None:
    clock = Clock()
    attempts = Tries(Patience(0), ALWAYS, clock, servers=3)
    for number in (1, 2):
        clock.now += 10
        assert attempts.failed(of_server(number, Unreachable("refused", sent=False))) == 0.0
    with pytest.raises(Busy, match="http://1: refused; http://2: refused; come back"):
        attempts.failed(Busy(503, "not_ready", "come back"))


def test_what_may_have_been_done_at_one_server_is_not_sent_to_another() -> None:
    attempts = Tries(Patience(20), 0.0, servers=2)
    with pytest.raises(Unreachable) as caught:
        attempts.failed(of_server(1, Unreachable("cut", sent=True)))
    assert caught.value.sent


def test_without_patience_nothing_is_tried_again() -> None:
    with pytest.raises(Busy):
        tries(ALWAYS, Patience(0))[0].failed(BUSY)


def test_waits_double_and_are_cut_at_random() -> None:
    patience = Patience(20, first_wait=0.1, longest_wait=1.0)
    assert [round(patience.wait(count, 0.0), 3) for count in range(1, 7)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert patience.wait(1, 1.0) == 0.05


def test_the_server_says_when_to_come_back() -> None:
    error = refusal(429, {"retry-after": "7"}, b'{"error":{"code":"throttled","message":"busy"}}')
    assert tries(0.0)[0].failed(error) == 7.0
    with pytest.raises(Busy):
        tries(0.0, Patience(5))[0].failed(error)
