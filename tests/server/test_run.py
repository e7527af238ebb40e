from __future__ import annotations

import socket

from strandline.server.run import listen


def test_whoever_knows_the_address_can_connect_at_once() -> None:
    with listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname(), timeout=5) as client:
        assert client.getpeername() == listener.getsockname()
