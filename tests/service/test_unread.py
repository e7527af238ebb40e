from __future__ import annotations

import asyncio
from contextlib import ExitStack

import pytest
from support.server_process import StartServer
from support.unread_clients import PAGES, REQUESTS, fill, metric, open_reader, wait_for

from strandline.service.unread import GRACE_SECONDS, UnreadBytes

BUDGET = 3 << 20


class Reader:
    """A holder in the hands of the test."""

    def __init__(self, unread_bytes: int) -> None:
        self.unread_bytes = unread_bytes
        self.cut: list[float] = []

    def cut_off(self, grace: float) -> None:
        self.cut.append(grace)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_those_are_cut_off_first_that_have_held_the_most_for_the_longest() -> None:
    async def scenario() -> None:
        clock = Clock()
        unread = UnreadBytes(1000, now=clock)
        old, large, small = Reader(300), Reader(500), Reader(150)
        unread.add(old)
        clock.now = 10.0
        unread.add(large)
        unread.add(small)
        await asyncio.sleep(0)
        assert not old.cut
        latest = Reader(100)
        unread.add(latest)
        await asyncio.sleep(0)
        assert (old.cut, large.cut, small.cut, latest.cut) == ([GRACE_SECONDS], [], [], [])
        assert unread.cut == 1

    asyncio.run(scenario())


def test_a_reader_that_makes_progress_is_left_alone_and_one_that_does_not_is_cut_off() -> None:
    clock = Clock()
    unread = UnreadBytes(timeout=30.0, now=clock)
    slow, stuck = Reader(1000), Reader(1000)
    unread.add(slow)
    unread.add(stuck)
    for step in range(1, 5):
        clock.now = step * 10.0
        slow.unread_bytes -= 1
        unread.sweep()
    assert (slow.cut, stuck.cut) == ([], [GRACE_SECONDS])


def test_far_over_the_limit_connections_are_reset_at_once() -> None:
    async def scenario() -> None:
        unread = UnreadBytes(1000)
        readers = [Reader(900) for _ in range(3)]
        for reader in readers:
            unread.add(reader)
        await asyncio.sleep(0)
        assert [reader.cut for reader in readers if reader.cut] == [[GRACE_SECONDS, 0.0]] * 2

    asyncio.run(scenario())


def test_a_reader_that_catches_up_is_not_counted() -> None:
    unread = UnreadBytes(1000)
    reader = Reader(900)
    unread.add(reader)
    unread.remove(reader)
    unread.remove(reader)
    assert (unread.total, len(unread)) == (0, 0)


@pytest.mark.both_lanes
def test_readers_of_every_protocol_share_one_budget(start_server: StartServer, lane: str) -> None:
    """Each kind of reader alone leaves more unread than all of them may."""
    server = start_server(lane=lane, max_unread_bytes=BUDGET)
    fill(server)
    for request in REQUESTS.values():
        before = metric(server, "strandline_slow_readers_total")
        with ExitStack() as stack:
            for _ in range(12):
                open_reader(server, stack).sendall(request(server))
            wait_for(lambda before=before: metric(server, "strandline_slow_readers_total") > before)
            wait_for(lambda: metric(server, "strandline_unread_bytes") <= BUDGET)
    assert server.log().count("slow readers") >= 1
    if lane == "fast":
        # uvicorn itself logs an error for requests that were sent ahead on a connection that is gone.
        assert "Traceback" not in server.log()


def test_a_client_that_reads_no_answers_is_disconnected(start_server: StartServer) -> None:
    server = start_server(slow_consumer_grace_ms=100, slow_consumer_timeout_ms=400)
    fill(server)
    with ExitStack() as stack:
        open_reader(server, stack).sendall(REQUESTS["pages"](server))
        wait_for(lambda: metric(server, "strandline_slow_readers_total") == 1)
        wait_for(lambda: metric(server, "strandline_unread_bytes") == 0)


def test_requests_sent_ahead_are_answered_as_their_answers_are_read(start_server: StartServer) -> None:
    """All of them are answered, in order, and no more than a few at a time are in memory."""
    server = start_server()
    fill(server)
    with ExitStack() as stack:
        line = open_reader(server, stack)
        line.sendall(REQUESTS["pages"](server) + b"GET /v0/health HTTP/1.1\r\nhost: localhost\r\n\r\n")
        wait_for(lambda: metric(server, "strandline_unread_bytes") > 0)
        assert metric(server, "strandline_unread_bytes") < 4 << 20
        answers, tail = 0, b""
        while b"uptime" not in tail:
            data = line.recv(1 << 20)
            assert data
            # An answer's first line may be cut in two.
            joined = tail[-16:] + data
            answers += joined.count(b"HTTP/1.1 200") - tail[-16:].count(b"HTTP/1.1 200")
            tail = joined[-4096:]
        assert answers == PAGES + 1
