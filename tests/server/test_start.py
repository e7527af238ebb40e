"""While the journal is replayed, every request is asked to come back, whoever it is from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from support.server_process import StartServer
from support.topics_client import eventually
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

pytestmark = pytest.mark.both_lanes

DECLARED = """
import time
from pathlib import Path

from strandline.engine import Engine
from strandline.collections import AppendOnly, Collection

open_at_once = Engine.open


def open_later(*arguments, **options):
    options["progress"](0.5)
    while not Path({proceed!r}).exists():
        time.sleep(0.01)
    return open_at_once(*arguments, **options)


Engine.open = open_later
events = Collection(
    name="events", storage_path="events/{{day}}", read_roles=["public"], write_roles=["public"],
    append_only=AppendOnly(require_author_signature=False),
)
"""
#: What is answered from the start, by what it says then to those without a key.
ANSWERED = {
    "/v0/health": 200,
    "/healthz": 200,
    "/health": 200,
    "/v0/ready": 503,
    "/readyz": 503,
    "/v0/metrics": 401,
    "/metrics": 401,
}


def requests(openapi: dict[str, dict[str, object]]) -> Iterator[tuple[str, str]]:
    """Every route of every protocol, as a method and a path."""
    for path, methods in openapi["paths"].items():
        assert isinstance(methods, dict)
        for method in methods:
            if method in ("get", "put", "post", "delete", "patch", "head", "options"):
                yield method.upper(), path.replace("{", "").replace("}", "")


@pytest.mark.parametrize("keys", [None, "secret:rw"], ids=["no keys", "keys"])
def test_every_route_asks_to_come_back(start_server: StartServer, tmp_path: Path, lane: str, keys: str | None) -> None:
    proceed = tmp_path / "proceed"
    declared = tmp_path / "declared.py"
    declared.write_text(DECLARED.format(proceed=str(proceed)))
    server = start_server(lane=lane, keys=keys, declare=declared, ready=False)
    with httpx.Client(base_url=server.url, trust_env=False) as http:
        # Which routes there are is known once the server is ready; so a few by hand first.
        routes = [("POST", "/v0/topics/a"), ("GET", "/v1/stream/a"), ("POST", "/push/events/1"), ("GET", "/nowhere")]
        check(http, routes)
        with pytest.raises(InvalidStatus) as refused:
            connect(server.url.replace("http", "ws") + "/v0/ws", proxy=None)
        assert refused.value.response.status_code == 503
        assert refused.value.response.headers["retry-after"] == "1"
        for path, status in ANSWERED.items():
            expected = 200 if status == 401 and keys is None else status
            assert http.get(path).status_code == expected, path
        proceed.touch()
        eventually(server.is_ready)
        # What was refused before, on the same connection and with the same head.
        assert http.get("/nowhere").status_code == (404 if keys is None else 401)
        assert http.post("/v0/topics/a", json={}).status_code == (400 if keys is None else 401)
        every = list(requests(server.client().call("GET", "/openapi.json")))
    assert len({path.split("/")[1] for _, path in every}) > 8, "all protocols"
    proceed.unlink()
    server.kill()
    server.launch()
    with httpx.Client(base_url=server.url, trust_env=False) as http:
        check(http, [(method, path) for method, path in every if path not in ANSWERED])
        proceed.touch()
        eventually(server.is_ready)


def check(http: httpx.Client, routes: list[tuple[str, str]]) -> None:
    for method, path in routes:
        response = http.request(method, path, headers={"accept": "*/*"})
        assert response.status_code == 503, f"{method} {path}: {response.status_code} {response.text}"
        assert response.headers["retry-after"] == "1"
        if method != "HEAD":
            assert response.json()["error"]["code"] == "not_ready"
            assert response.json()["error"]["detail"] == {"replay_progress": 0.5}
