"""The lifecycle of live responses: one rule each, for every protocol and both lanes."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from support.live_server import KINDS, LONG_SECONDS, LiveServer, ask, live_server, read_to_end, read_until, wait_for

from strandline.service import live, unread
from strandline.service.access import FULL_ACCESS
from strandline.service.limits import Slots
from strandline.service.live import CUT_OFF_SECONDS, HEARTBEAT_SECONDS, Ending, LiveResponse, LiveResponses

#: A client with this receive buffer takes next to nothing before it reads.
TINY_BYTES = 4096
SLOTS = 4
#: How long a client may read nothing.
SLOW_MS = 300

kinds = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(scope="module", params=["fast", "asgi"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with pytest.MonkeyPatch.context() as patch:
        # A client that reads on gets its last message, however busy the machine is.
        patch.setattr(unread, "GRACE_SECONDS", LONG_SECONDS)
        with live_server(tmp_path_factory.mktemp("live") / "data", request.param, SLOTS, SLOW_MS) as server:
            server.fill()
            yield server


@kinds
def test_a_reader_that_does_not_read_gets_a_last_message_and_gives_back_its_slot(server: LiveServer, kind: str) -> None:
    readers = server.application.limits.unread
    before = readers.cut
    with server.connect(TINY_BYTES) as line:
        ask(server, line, kind)
        wait_for(lambda: readers.cut > before)
        data = read_to_end(line)
    last = KINDS[kind].too_slow
    if last is None:
        assert not data.endswith(b"0\r\n\r\n")
    else:
        assert last in data[-300:]
    wait_for(lambda: server.open == (0, 0))


@pytest.mark.parametrize("path", ["/v1/stream/s?offset=now&live=sse", "/console/api/log/t/tail"])
def test_a_response_with_another_request_behind_it_gives_back_its_slot(
    server: LiveServer, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "HEARTBEAT_SECONDS", LONG_SECONDS)
    with server.connect() as line:
        both = (path.encode(), b"/v0/health")
        line.sendall(b"".join([b"GET %b HTTP/1.1\r\nhost: localhost\r\n\r\n" % each for each in both]))
        wait_for(lambda: server.open == (1, 1))
    wait_for(lambda: server.open == (0, 0))


@kinds
def test_a_response_without_a_slot_is_refused(server: LiveServer, kind: str) -> None:
    with ExitStack() as stack:
        for _ in range(SLOTS):
            stack.enter_context(server.connect_silent())
        wait_for(lambda: server.open == (SLOTS, SLOTS))
        refused = stack.enter_context(server.connect())
        ask(server, refused, kind)
        answer = refused.recv(1 << 16)
        assert answer.startswith(b"HTTP/1.1 429 ")
        assert b"\r\nretry-after: 1\r\n" in answer
    wait_for(lambda: server.open == (0, 0))


@kinds
def test_a_client_that_goes_away_while_the_response_opens_gives_back_its_slot(server: LiveServer, kind: str) -> None:
    for _ in range(2 * SLOTS):
        with server.connect() as line:
            # The connection is reset, not closed in order.
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            ask(server, line, kind)
    # Now all of the connections are accepted. Some responses may still open, so this test is the last one of a server.
    httpx.get(f"{server.url}/v0/health", trust_env=False).raise_for_status()
    wait_for(lambda: server.open == (0, 0))


@pytest.mark.both_lanes
def test_a_server_that_stops_ends_every_live_response(
    tmp_path: Path, lane: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "CUT_OFF_SECONDS", LONG_SECONDS)
    with live_server(tmp_path / "data", lane) as server, ExitStack() as stack:
        server.fill()
        lines = {}
        for name in KINDS:
            lines[name] = stack.enter_context(server.connect())
            ask(server, lines[name], name)
        wait_for(lambda: server.open[1] == len(KINDS))
        server.terminate()
        for name, line in lines.items():
            # A response that has an end of its own comes to it.
            assert read_until(line, KINDS[name].shutdown or b"\r\n0\r\n\r\n"), name
            line.close()
        wait_for(lambda: server.open[1] == 0)


# --- the lifecycle by itself, with a clock in the hands of the test ---------------------------------------------------


class Loop(asyncio.SelectorEventLoop):
    """Its time passes when the test says so."""

    now = 1000.0

    def time(self) -> float:
        return self.now


class Reader:
    """A sink. ``full``: the reader does not keep up."""

    def __init__(self) -> None:
        self.chunks: list[bytes] = []
        self.full = False
        self.end = ""
        self.unread_bytes = 0

    def write(self, data: bytes) -> bool:
        self.chunks.append(data)
        return not self.full

    def close(self) -> None:
        self.end = "closed"

    def abort(self) -> None:
        self.end = "reset"


class Response(LiveResponse):
    """Writes down what happens to it."""

    __slots__ = ("events",)

    def __init__(self, live: LiveResponses) -> None:
        super().__init__(live, FULL_ACCESS)
        self.events: list[str] = []

    def begin(self) -> None:
        self.events.append("begin")

    def go_on(self) -> None:
        self.events.append("go on")

    def leave(self) -> None:
        self.events.append("leave")

    def last_message(self, ending: Ending) -> bytes:
        return ending.name.encode()


class Stand:
    def __init__(self) -> None:
        self.loop = Loop()
        self.slots = Slots(total=1)
        self.live = LiveResponses(self.loop, self.slots)

    def open(self, response: Response | None = None) -> tuple[Response, Reader]:
        response, reader = response or Response(self.live), Reader()
        response.opened(reader)
        return response, reader

    def pass_time(self, seconds: float) -> None:
        self.loop.now += seconds
        self.live.alarms.ring(self.loop.now)


@pytest.fixture
def stand() -> Iterator[Stand]:
    stand = Stand()
    yield stand
    stand.live.close()
    stand.loop.close()


GREETING, HEARTBEAT = b"retry: 1000\n\n", b": \n\n"


def test_heartbeats_are_sent_only_in_silence_and_not_to_a_reader_that_does_not_keep_up(stand: Stand) -> None:
    response, reader = stand.open()
    stand.pass_time(HEARTBEAT_SECONDS - 1)
    response.write(b"data")
    stand.pass_time(HEARTBEAT_SECONDS - 1)
    assert reader.chunks == [GREETING, b"data"]
    for _ in range(3):
        stand.pass_time(HEARTBEAT_SECONDS)
    assert reader.chunks[2:] == [HEARTBEAT] * 3
    reader.full = True
    response.write(b"more")
    stand.pass_time(3 * HEARTBEAT_SECONDS)
    assert reader.chunks[-1] == b"more"
    response.resumed()
    stand.pass_time(HEARTBEAT_SECONDS)
    assert response.events == ["begin", "go on"]
    assert reader.chunks[-1] == HEARTBEAT


def test_a_slot_is_released_once_whatever_ends_a_response(stand: Stand) -> None:
    response, reader = stand.open()
    assert stand.slots.used == 1
    response.end(b"bye")
    response.end(b"again")
    response.too_slow(1.0)
    response.shut_down()
    assert (reader.chunks[-1], reader.end, stand.slots.used) == (b"bye", "closed", 1)
    response.closed()
    assert (stand.slots.used, len(stand.live), response.events) == (0, 0, ["begin", "leave"])


def test_a_response_that_opens_too_late_gets_a_last_message(stand: Stand) -> None:
    first, _ = stand.open()
    late, reader = stand.open()
    assert (reader.chunks, reader.end) == ([GREETING, b"NO_SLOT"], "closed")
    late.closed()
    assert stand.slots.used == 1
    first.closed()
    stand.live.drain()
    stopped, reader = stand.open()
    assert (reader.chunks, reader.end) == ([GREETING, b"SHUTDOWN"], "closed")
    stopped.closed()
    assert (stand.slots.used, late.events, stopped.events) == (0, ["leave"], ["leave"])


def test_a_reader_of_a_response_that_has_ended_is_cut_off_unless_it_reads(stand: Stand) -> None:
    _, reader = stand.open()
    reader.unread_bytes = 100
    stand.live.drain()
    for left in (60, 20):
        reader.unread_bytes = left
        stand.pass_time(CUT_OFF_SECONDS)
        assert reader.end == "closed"
    stand.pass_time(CUT_OFF_SECONDS)
    assert reader.end == "reset"


def test_a_reader_that_is_too_slow_has_the_grace_that_it_is_given(stand: Stand) -> None:
    response, reader = stand.open()
    reader.unread_bytes = 100
    response.too_slow(1.0)
    assert (reader.chunks[-1], reader.end) == (b"TOO_SLOW", "closed")
    reader.unread_bytes = 50
    stand.pass_time(1.0)
    assert reader.end == "reset"


def test_a_finite_response_is_left_to_its_end_or_reset(stand: Stand) -> None:
    class Finite(Response):
        __slots__ = ()
        finite = True

    response, reader = stand.open(Finite(stand.live))
    stand.live.drain()
    assert not reader.end
    response.finish()
    assert reader.end == "closed"
    response.closed()
    response, reader = stand.open(Finite(stand.live))
    response.end()
    assert reader.end == "reset"
