"""What a client can do to a connection, and to the server, before it has shown a key: over real sockets, both lanes."""

from __future__ import annotations

import re
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import monotonic, sleep

import httpx
import pytest
from support.raw_http import RawConnection, request
from support.server_process import ServerProcess, StartServer
from support.topics_client import eventually
from websockets.sync.client import connect

from strandline.server.connection import RESERVED_FILES, ConnectionCap, connection_limit

pytestmark = pytest.mark.both_lanes

RECORD = b'{"records":[{"data":1}]}'
HUGE = 9_000_000_000
#: What fits into the buffers of two sockets, with a good margin.
IN_FLIGHT_BYTES = 32 << 20


def is_there(server: ServerProcess, topic: str) -> bool:
    return httpx.get(f"{server.url}/v0/topics/{topic}", trust_env=False).status_code == 200


def pause(server: ServerProcess) -> None:
    """Until the server has seen all that other connections sent."""
    assert httpx.get(server.url + "/v0/health", trust_env=False).status_code == 200


# --- upgrades --------------------------------------------------------------------------------------------------


UPGRADES = {
    "unknown": ("connection: upgrade", "upgrade: foo"),
    "h2c": ("connection: Upgrade, HTTP2-Settings", "upgrade: h2c", "http2-settings: AAMAAABkAARAAAAA"),
    "websocket": ("connection: upgrade", "upgrade: websocket"),
    "keep-alive": ("connection: keep-alive, upgrade", "upgrade: foo"),
}


@pytest.mark.parametrize("upgrade", UPGRADES.values(), ids=UPGRADES)
@pytest.mark.parametrize("apart", [False, True], ids=["one piece", "two pieces"])
def test_the_body_of_an_upgrade_is_a_body(server: ServerProcess, upgrade: tuple[str, ...], apart: bool) -> None:
    hidden = request("POST", "/v0/topics/smuggled", RECORD)
    whole = request("POST", "/v0/topics/upgraded", hidden, *upgrade)
    with RawConnection(server.url) as connection:
        connection.send(whole[: -len(hidden)])
        if apart:
            pause(server)
        connection.send(hidden)
        answers = connection.everything()
    # It is not JSON, which shows that it was read as the body.
    assert re.findall(rb"HTTP/1.1 (\d+)", answers) == [b"400"]
    assert b"connection: close" in answers
    assert not is_there(server, "smuggled")


@pytest.mark.parametrize("upgrade", UPGRADES.values(), ids=UPGRADES)
def test_an_upgrade_is_a_plain_request_and_the_last(server: ServerProcess, upgrade: tuple[str, ...]) -> None:
    first = request("POST", "/v0/topics/offered", RECORD, *upgrade)
    next_one = request("POST", "/v0/topics/after-upgrade", RECORD)
    with RawConnection(server.url) as connection:
        connection.send(first + next_one)
        answers = connection.everything()
    assert re.findall(rb"HTTP/1.1 (\d\d)", answers) == [b"20"]
    assert b"connection: close" in answers
    assert is_there(server, "offered")
    assert not is_there(server, "after-upgrade")


def test_chunks_after_an_upgrade(server: ServerProcess) -> None:
    head = request("POST", "/v0/topics/chunked-upgrade", None, *UPGRADES["h2c"], "content-type: application/json")
    head = head.replace(b"\r\n\r\n", b"\r\ntransfer-encoding: chunked\r\n\r\n")
    with RawConnection(server.url) as connection:
        connection.send(head + b"%x\r\n%b\r\n0\r\n\r\n" % (len(RECORD), RECORD), piece=40)
        assert re.findall(rb"HTTP/1.1 (\d+)", connection.everything()) == [b"201"]


def test_a_get_that_offers_http_2_is_answered(server: ServerProcess) -> None:
    with RawConnection(server.url) as connection:
        connection.send(request("GET", "/v0/health", None, *UPGRADES["h2c"]))
        assert connection.everything().startswith(b"HTTP/1.1 200 OK")


@pytest.mark.parametrize("method", ["POST", "GET"])
def test_a_handshake_with_a_body_is_no_websocket(server: ServerProcess, method: str) -> None:
    handshake = ("connection: upgrade", "upgrade: websocket", "sec-websocket-version: 13")
    one = request(method, "/v0/ws", b"{}", *handshake, "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==")
    with RawConnection(server.url) as connection:
        connection.send(one)
        assert re.findall(rb"HTTP/1.1 (\d+)", connection.everything()) == [b"404"]


def test_a_websocket_behind_a_request_that_waits_is_not_opened(server: ServerProcess) -> None:
    """The answer of the request would go into the WebSocket."""
    httpx.put(f"{server.url}/v0/topics/waited-for", json={}, trust_env=False)
    handshake = ("connection: upgrade", "upgrade: websocket", "sec-websocket-version: 13")
    poll = request("POST", "/v0/topics/waited-for/diff", b'{"wait_ms":300}', "x-twice: 1", "x-twice: 2")
    with RawConnection(server.url) as connection:
        connection.send(
            poll + request("GET", "/v0/ws", None, *handshake, "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==")
        )
        assert re.findall(rb"HTTP/1.1 (\d+)", connection.everything()) == [b"200", b"404"]


def test_connect_is_refused(server: ServerProcess) -> None:
    for target in (b"example.org:443", b"/v0/topics"):
        with RawConnection(server.url) as connection:
            connection.send(b"CONNECT %b HTTP/1.1\r\nhost: localhost\r\n\r\n" % target)
            assert connection.everything().startswith(b"HTTP/1.1 400 ")


def test_websockets_still_open(server: ServerProcess) -> None:
    with connect(server.url.replace("http", "ws") + "/v0/ws", proxy=None) as websocket:
        websocket.send('{"op":"ping","request_id":1}')
        assert "pong" in str(websocket.recv(timeout=15))


# --- bodies ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded(lane: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """With keys, and a limit on bodies that is soon reached."""
    process = ServerProcess(
        tmp_path_factory.mktemp(f"guarded-{lane}") / "data",
        fast_lane=lane == "fast",
        keys="secret,reader:r",
        settings={"max_body_bytes": 1 << 20},
    )
    try:
        yield process.start()
    finally:
        process.end()


def memory(server: ServerProcess) -> int:
    """What the process has in memory."""
    pages = int(Path(f"/proc/{server.pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def send_until_refused(connection: RawConnection, piece: bytes, most: int) -> int:
    """How much could be sent before the server closed the connection."""
    sent = 0
    try:
        while sent < most:
            connection.socket.sendall(piece)
            sent += len(piece)
    except OSError:
        pass
    return sent


REFUSED = {
    "no key": ("POST", "/v0/topics/a", "", 401),
    "no key, another lane": ("PUT", "/v0/topics/a", "", 401),
    "no route": ("POST", "/nowhere", "secret", 404),
    "another method": ("PATCH", "/v0/topics/a", "secret", 405),
    "the scope": ("POST", "/v0/topics/a", "reader", 403),
    "the size": ("POST", "/v0/topics/a", "secret", 413),
    "the size, of a request without a body": ("GET", "/v0/topics/a", "secret", 413),
    "streams": ("POST", "/v1/stream/a", "", 401),
    "arrow": ("POST", "/arrow/a", "", 401),
}


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunks"])
@pytest.mark.parametrize(("method", "path", "key", "status"), REFUSED.values(), ids=REFUSED)
def test_a_refused_body_is_neither_kept_nor_read_to_its_end(
    guarded: ServerProcess, method: str, path: str, key: str, status: int, chunked: bool
) -> None:
    size = "transfer-encoding: chunked" if chunked else f"content-length: {HUGE}"
    headers = ["content-type: application/json", size, *([f"authorization: Bearer {key}"] if key else [])]
    before = memory(guarded)
    piece = b"x" * (1 << 20)
    with RawConnection(guarded.url) as connection:
        connection.send(request(method, path, None, *headers))
        if chunked and status == 413:
            # Nothing of the head says how large the body will be.
            connection.send(b"%x\r\n%b\r\n" % (len(piece), piece) * 2)
        head, body = connection.answer()
        assert head.startswith(b"HTTP/1.1 %d " % status), head + body
        assert b"connection: close" in head
        if chunked:
            piece = b"%x\r\n%b\r\n" % (len(piece), piece)
        assert send_until_refused(connection, piece, 2 * IN_FLIGHT_BYTES) < IN_FLIGHT_BYTES
    assert memory(guarded) - before < IN_FLIGHT_BYTES


def test_a_client_that_sends_everything_first_gets_its_answer(guarded: ServerProcess) -> None:
    """Closing at once would reset the connection, and the answer with it."""
    headers = {"authorization": "Bearer secret", "content-type": "application/json"}
    response = httpx.post(guarded.url + "/v0/topics/a", content=b"x" * (2 << 20), headers=headers, trust_env=False)
    assert (response.status_code, response.json()["error"]["code"]) == (413, "payload_too_large")
    assert response.headers["connection"] == "close"


def test_a_refused_body_within_the_limit_is_not_kept(start_server: StartServer, lane: str) -> None:
    server = start_server(lane=lane, keys="secret")
    size = 48 << 20
    before = memory(server)
    with RawConnection(server.url) as connection:
        connection.send(
            request("POST", "/v0/topics/a", None, "content-type: application/json", f"content-length: {size}")
        )
        for _ in range(size >> 20):
            connection.send(b"x" * (1 << 20))
        head, _ = connection.answer()
        assert head.startswith(b"HTTP/1.1 401 ")
        assert memory(server) - before < 16 << 20
        # The connection goes on.
        connection.send(request("GET", "/v0/health"))
        assert connection.answer()[0].startswith(b"HTTP/1.1 200 ")


# --- trailers and the framing of chunks ------------------------------------------------------------------------


CHUNKED_HEAD = ("content-type: application/json", "transfer-encoding: chunked")


@pytest.mark.parametrize("path", ["/v0/topics/trailed", "/v0/topics/trailed/diff", "/v1/stream/trailed"])
def test_a_trailer_is_no_header(guarded: ServerProcess, path: str) -> None:
    body = b"%x\r\n%b\r\n0\r\n" % (len(RECORD), RECORD)
    trailer = b"authorization: Bearer secret\r\ncontent-encoding: br\r\n\r\n"
    with RawConnection(guarded.url) as connection:
        connection.send(request("POST", path, None, *CHUNKED_HEAD) + body + trailer)
        assert connection.answer()[0].startswith(b"HTTP/1.1 401 ")
    key = "authorization: Bearer secret"
    with RawConnection(guarded.url) as connection:
        other = trailer.replace(b"secret", b"reader")
        connection.send(request("POST", "/v0/topics/trailed", None, key, *CHUNKED_HEAD) + body + other)
        assert re.match(rb"HTTP/1.1 20[01] ", connection.answer()[0])


@pytest.mark.parametrize("start", [b"0\r\nx-long: ", b"5;extension="], ids=["trailer", "extension"])
def test_what_comes_beside_a_body_is_bounded(server: ServerProcess, start: bytes) -> None:
    with RawConnection(server.url) as connection:
        connection.send(request("POST", "/v0/topics/framed", None, *CHUNKED_HEAD))
        pause(server)
        connection.send(start)
        assert send_until_refused(connection, b"x" * 4096, 2 * IN_FLIGHT_BYTES) < IN_FLIGHT_BYTES
    assert not is_there(server, "framed")


def test_chunks_of_one_byte_are_fine(server: ServerProcess) -> None:
    record = b'{"records":[{"data":"%b"}]}' % (b"x" * 50_000)
    with RawConnection(server.url) as connection:
        connection.send(request("POST", "/v0/topics/crumbs", None, *CHUNKED_HEAD))
        connection.send(b"".join(b"1\r\n%c\r\n" % byte for byte in record) + b"0\r\n\r\n")
        assert connection.answer()[0].startswith(b"HTTP/1.1 201 ")


# --- heads -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/v0/health", "/v0/topics/absent"])
def test_pipelined_heads_do_not_add_up(server: ServerProcess, path: str) -> None:
    count = 3000
    one = request("GET", path, None, "x-padding: " + "x" * 40)
    assert len(one) * count > 4 * (64 << 10)
    # The last one comes in two pieces, so each read of the server ends inside of a head.
    whole = one * count
    with RawConnection(server.url) as connection:
        connection.socket.settimeout(30)
        answered = 0
        for start in range(0, len(whole), 100_001):
            connection.send(whole[start : start + 100_001])
            complete = min(len(whole), start + 100_001) // len(one)
            while answered < complete:
                head, _ = connection.answer()
                assert re.match(rb"HTTP/1.1 (200|404) ", head), head
                answered += 1
    assert answered == count


def test_one_large_head_is_refused_however_it_comes(server: ServerProcess) -> None:
    large = request("GET", "/v0/health", None, *[f"x-{number}: {'x' * 1000}" for number in range(70)])
    with RawConnection(server.url) as connection:
        connection.send(request("GET", "/v0/health"))
        connection.answer()
        connection.send(large)
        assert connection.everything().startswith(b"HTTP/1.1 431 ")


@pytest.mark.parametrize("wrong", [b"nonsense\r\n\r\n", request("GET", "/", None, "x: " + "x" * 70_000)])
def test_a_wrong_request_does_not_answer_the_one_before(server: ServerProcess, wrong: bytes) -> None:
    httpx.put(f"{server.url}/v0/topics/polled", json={}, trust_env=False)
    poll = request("POST", "/v0/topics/polled/diff", b'{"wait_ms":10000}', "x-twice: 1", "x-twice: 2")
    with RawConnection(server.url) as connection:
        connection.send(poll + wrong)
        assert connection.everything() == b""


# --- time ------------------------------------------------------------------------------------------------------


@pytest.fixture
def hasty(start_server: StartServer, lane: str) -> ServerProcess:
    return start_server(lane=lane, head_timeout_seconds=0.4, body_timeout_seconds=0.4)


def drip(connection: RawConnection, data: bytes) -> bytes:
    """Send a byte at a time until the server answers."""
    deadline = monotonic() + 15
    at = 0
    connection.socket.settimeout(0.02)
    while True:
        assert monotonic() < deadline, "it was never closed"
        try:
            connection.socket.sendall(data[at % len(data)].to_bytes())
            at += 1
            received = connection.socket.recv(4096)
        except TimeoutError:
            continue
        except OSError:
            return b""
        return received


def test_a_head_has_a_deadline(hasty: ServerProcess) -> None:
    with RawConnection(hasty.url) as idle, RawConnection(hasty.url) as slow, RawConnection(hasty.url) as blank:
        slow.send(b"GET /v0/health HTTP/1.1\r\nhost: localhost\r\nx-slow: ")
        assert drip(slow, b"x").startswith(b"HTTP/1.1 408 ")
        # Empty lines before a request are no request.
        drip(blank, b"\r\n")
        # A connection without a request is another matter.
        idle.send(request("GET", "/v0/health"))
        assert idle.answer()[0].startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("path", ["/v0/topics/stalled", "/v0/topics/stalled/delete"])
def test_a_body_must_not_stall(hasty: ServerProcess, path: str) -> None:
    with RawConnection(hasty.url) as connection:
        connection.send(request("POST", path, RECORD)[:-1])
        assert connection.everything().startswith(b"HTTP/1.1 408 ")
    assert not is_there(hasty, "stalled")


def test_a_body_that_comes_slowly_is_awaited(hasty: ServerProcess) -> None:
    whole = request("POST", "/v0/topics/slow", RECORD)
    with RawConnection(hasty.url) as connection:
        connection.send(whole[:-12])
        for at in range(12, 0, -1):
            sleep(0.05)
            connection.send(whole[len(whole) - at :][:1])
        assert connection.answer()[0].startswith(b"HTTP/1.1 201 ")


def test_waiting_for_an_answer_is_not_overdue(hasty: ServerProcess) -> None:
    hasty.client().put("polled")
    poll = request("POST", "/v0/topics/polled/diff", b'{"wait_ms":1200}')
    with RawConnection(hasty.url) as connection:
        # Also with the beginning of a next request.
        connection.send(poll + b"GET /v0/hea")
        assert connection.answer()[0].startswith(b"HTTP/1.1 200 ")


# --- how many --------------------------------------------------------------------------------------------------


def metric(server: ServerProcess, name: str, client: httpx.Client | None = None) -> int:
    text = (client or httpx).get(f"{server.url}/v0/metrics").text
    return int(re.findall(rf"^{name} (\d+)$", text, re.MULTILINE)[0])


def test_connections_have_a_cap(start_server: StartServer, lane: str) -> None:
    server = start_server(lane=lane, max_connections=8)
    with ExitStack() as stack:
        client = stack.enter_context(httpx.Client(trust_env=False))
        assert client.get(server.url + "/v0/health").status_code == 200
        others = [stack.enter_context(RawConnection(server.url)) for _ in range(7)]
        for one in others:
            one.send(request("GET", "/v0/health"))
            assert one.answer()[0].startswith(b"HTTP/1.1 200 ")
        for _ in range(20):
            with RawConnection(server.url) as refused:
                answer = refused.everything()
                assert answer.startswith(b"HTTP/1.1 503 ")
                assert b"retry-after: 1\r\n" in answer
                assert b"connection: close\r\n" in answer
        # Those that are there go on, and the server says what happened.
        for one in others:
            one.send(request("POST", "/v0/topics/a", RECORD))
            assert re.match(rb"HTTP/1.1 20[01] ", one.answer()[0])
        assert metric(server, "strandline_connections", client) == 8
        assert metric(server, "strandline_connections_limit", client) == 8
        assert metric(server, "strandline_connections_refused_total", client) == 20
    assert server.log().count("open connections is reached") == 1
    eventually(lambda: is_there(server, "a"))


@contextmanager
def open_files(most: int) -> Iterator[None]:
    """This process may open this many files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_connections_leave_files_for_the_journal(start_server: StartServer, lane: str) -> None:
    server = start_server(lane=lane, open_files=160, journal_bytes=50_000)
    client = server.client()
    client.put("a", durability="fsync")
    with ExitStack() as stack:
        for _ in range(300):
            stack.enter_context(RawConnection(server.url))
        # The journal begins new files, and housekeeping opens more.
        for _ in range(30):
            client.write("a", ["x" * 10_000])
        assert client.get("a")["count"] == 30
        assert metric(server, "strandline_connections_limit", client.http) == 120
        assert metric(server, "strandline_connections_refused_total", client.http) >= 180
    assert "Too many open files" not in server.log()
    assert server.log().count("open connections is reached") == 1


def test_running_out_of_files_does_not_flood_the_log(start_server: StartServer) -> None:
    """When something else takes the files, connections are not accepted; the server lives on."""
    server = start_server()
    client = server.client()
    client.put("a")
    used = len(list(Path(f"/proc/{server.pid}/fd").iterdir()))
    _, hard = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (used + 5, hard))
    before = len(server.log().splitlines())
    with ExitStack() as stack:
        address = ("127.0.0.1", server.port)
        for _ in range(100):
            stack.enter_context(socket.create_connection(address, 15))
        for _ in range(20):
            client.write("a", [1])
        sleep(0.3)
    assert len(server.log().splitlines()) - before <= 5, server.log()
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (hard, hard))
    eventually(lambda: is_there(server, "a"))


def test_the_limit_follows_from_the_open_files(caplog: pytest.LogCaptureFixture) -> None:
    with open_files(2000):
        assert connection_limit(0) == 2000 - RESERVED_FILES
        assert connection_limit(100) == 100
        assert not caplog.text
        assert connection_limit(1999) == 2000 - RESERVED_FILES
        assert "limits.max_connections is 1999, but this process may open only 2000 files" in caplog.text
    with open_files(200):
        assert connection_limit(0) == 150


def test_the_limit_is_logged_again_once_there_was_room(caplog: pytest.LogCaptureFixture) -> None:
    cap = ConnectionCap(10)
    assert cap.admits(9)
    for _ in range(5):
        assert not cap.admits(10)
        cap.relax(9)
    assert (cap.refused, caplog.text.count("open connections is reached")) == (5, 1)
    cap.relax(8)
    assert not cap.admits(10)
    assert caplog.text.count("open connections is reached") == 2
