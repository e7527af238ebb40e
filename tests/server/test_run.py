from __future__ import annotations

import socket

from strandline.server.run import for_browsers, listen


def test_whoever_knows_the_address_can_connect_at_once() -> None:
    with listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname(), timeout=5) as client:
        assert client.getpeername() == listener.getsockname()


def test_a_browser_is_sent_to_an_address_that_it_can_open() -> None:
    assert [for_browsers(f"{host}:4000") for host in ("127.0.0.1", "0.0.0.0", "[::]", "[::1]")] == [
        "127.0.0.1:4000",
        "127.0.0.1:4000",
        "[::1]:4000",
        "[::1]:4000",
    ]
