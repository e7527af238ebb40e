"""What a server without logs costs: the packages in its memory, and the bytes that it writes."""

from __future__ import annotations

from pathlib import Path

from support.real_server import RealServer
from support.topics_client import eventually

#: Large packages that a server without logs does not need.
LARGE = {
    "cryptography",
    "deltalake",
    "duckdb",
    "google.protobuf",
    "httpx",
    "jsonschema_rs",
    "obstore",
    "pandas",
    "prometheus_client",
    "pyarrow",
    "pydantic",
    "pygments",
    "rich",
    "yaml",
}


def test_a_server_without_logs_has_no_large_package(tmp_path: Path) -> None:
    with RealServer(tmp_path, metrics_flush_ms=1) as server:
        client = server.client()
        assert client.call("GET", "/v0/topics")["topics"] == []
        assert client.call("GET", "/v0/health")
        path = "/v1/stream/__stream_metrics__?offset=-1&live=long-poll&timeout=5s"
        # Arrow compresses large answers.
        own = client.request("GET", path, headers={"accept-encoding": "identity"})
        assert own.json(), "it has written its own metrics"
        assert server.modules() & LARGE == set()
        client.write("first", [{"data": 1}])
        # Requests for the first log do not wait for the imports.
        assert eventually(lambda: {"pyarrow.compute", "jsonschema_rs"} <= server.modules())
        assert "pandas" not in server.modules()
