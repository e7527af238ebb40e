from __future__ import annotations

import base64
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from support.server_process import ServerProcess, StartServer
from support.unread_clients import PATIENCE_SECONDS, metric, wait_for

MESSAGE = 1 << 20
BUDGET = 3 << 20
TEXT, CONTINUED, CLOSE, PING = 1, 0, 8, 9


class RawSocket:
    """A WebSocket whose frames the test makes."""

    def __init__(self, server: ServerProcess, stack: ExitStack) -> None:
        self._line = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), PATIENCE_SECONDS))
        key = base64.b64encode(os.urandom(16)).decode()
        lines = ["GET /v0/ws HTTP/1.1", "host: localhost", "upgrade: websocket", "connection: upgrade"]
        lines += ["sec-websocket-version: 13", f"sec-websocket-key: {key}", "", ""]
        self._line.sendall("\r\n".join(lines).encode())
        assert b" 101 " in self._line.recv(4096)

    def send(self, data: bytes) -> None:
        self._line.sendall(data)

    def close_code(self) -> int:
        answer = self._line.recv(4096)
        assert answer[0] == 0x80 | CLOSE, answer
        return int(struct.unpack("!H", answer[2:4])[0])

    def pong(self) -> bytes:
        return self._line.recv(4096)


def frame(kind: int, data: bytes, *, last: bool = True) -> bytes:
    head, size = bytes([(0x80 if last else 0) | kind]), len(data)
    if size < 126:
        head += bytes([0x80 | size])
    elif size < 1 << 16:
        head += bytes([0x80 | 126]) + struct.pack("!H", size)
    else:
        head += bytes([0x80 | 127]) + struct.pack("!Q", size)
    return head + b"\0\0\0\0" + data


def unfinished(how: str, size: int) -> bytes:
    if how == "a frame that is cut off":
        return frame(TEXT, b" " * size)[:-1]
    if how == "a large fragment":
        return frame(TEXT, b" " * size, last=False)
    return frame(TEXT, b" ", last=False) + frame(CONTINUED, b" " * 64, last=False) * (size // 64)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    process = ServerProcess(
        tmp_path_factory.mktemp("sockets") / "data",
        settings={"max_message_bytes": MESSAGE, "max_unfinished_bytes": BUDGET},
    )
    try:
        yield process.start()
    finally:
        process.end()


HOW = ["a frame that is cut off", "a large fragment", "small fragments"]


@pytest.mark.parametrize("how", HOW)
def test_a_message_that_is_too_large_closes_the_socket(server: ServerProcess, how: str) -> None:
    with ExitStack() as stack:
        ws = RawSocket(server, stack)
        ws.send(unfinished(how, MESSAGE + 1000))
        assert ws.close_code() == 1009


@pytest.mark.parametrize("how", HOW)
def test_unfinished_messages_of_all_sockets_share_one_budget(server: ServerProcess, how: str) -> None:
    before = metric(server, "strandline_refused_sockets_total")
    with ExitStack() as stack:
        small = RawSocket(server, stack)
        small.send(frame(TEXT, b'{"op":"ping",', last=False))
        sockets = [RawSocket(server, stack) for _ in range(6)]
        for ws in sockets:
            ws.send(unfinished(how, MESSAGE - 1000))
        wait_for(lambda: metric(server, "strandline_refused_sockets_total") == before + 3)
        assert metric(server, "strandline_unfinished_message_bytes") <= BUDGET
        # Who holds little is not closed for what others hold.
        small.send(frame(CONTINUED, b'"request_id":1}'))
        assert b"pong" in small.pong()
    wait_for(lambda: metric(server, "strandline_unfinished_message_bytes") == 0)
    assert "all unfinished messages together exceeded" in server.log()


def test_a_socket_that_is_closed_for_lack_of_room_is_told_so(start_server: StartServer) -> None:
    server = start_server(max_message_bytes=MESSAGE, max_unfinished_bytes=MESSAGE)
    with ExitStack() as stack:
        first, second = RawSocket(server, stack), RawSocket(server, stack)
        first.send(unfinished("a large fragment", MESSAGE - 1000))
        wait_for(lambda: metric(server, "strandline_unfinished_message_bytes") > MESSAGE // 2)
        second.send(unfinished("a large fragment", 100_000))
        assert first.close_code() == 1013


def test_a_message_in_fragments_is_whole(server: ServerProcess) -> None:
    text = b'{"op":"ping","request_id":"\xc3\xa4"}'
    with ExitStack() as stack:
        ws = RawSocket(server, stack)
        frames = [frame(CONTINUED, text[at : at + 1], last=at == len(text) - 1) for at in range(1, len(text))]
        ws.send(frame(TEXT, text[:1], last=False) + b"".join(frames))
        assert "ä".encode() in ws.pong()
        assert metric(server, "strandline_unfinished_message_bytes") == 0


def test_pings_of_a_client_that_reads_no_pongs_do_not_pile_up(server: ServerProcess) -> None:
    with ExitStack() as stack:
        ws = RawSocket(server, stack)
        ws._line.settimeout(0.5)
        with pytest.raises(TimeoutError):
            ws.send(frame(PING, b"x" * 125) * 320_000)
        assert metric(server, "strandline_unread_bytes") < 4 << 20
