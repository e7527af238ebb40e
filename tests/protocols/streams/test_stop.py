"""A server that has searched stops as quietly as any other."""

from __future__ import annotations

from support.server_process import StartServer
from support.streams_client import StreamsClient

N = {"kind": "integer", "exact": True, "bindings": [{"version": 1, "jsonPointer": "/n"}]}


def test_nothing_is_complained_of_at_the_end(start_server: StartServer) -> None:
    server = start_server()
    streams = StreamsClient(server.url)
    streams.create("s")
    registry = {"schema": {"type": "object"}, "search": {"fields": {"n": N}}}
    assert streams.request("POST", "s/_schema", registry).status_code == 200
    streams.append("s", [{"n": 1}, {"n": 2}])
    assert len(streams.request("POST", "s/_search", {"q": "n:2"}).json()["hits"]) == 1
    streams.close()

    assert server.stop() == 0

    assert "leaked" not in server.log()
    assert "Traceback" not in server.log()
