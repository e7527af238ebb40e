"""Keys over HTTP: who may do what, to which names; and that nobody learns the keys."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.server_fork import ServerFork
from support.server_process import ServerProcess, StartServer
from support.topics_client import Client, eventually

from strandline.server.settings import VARIABLES

KEYS = {
    "full": "full-secret",
    "reader": "reader-secret:read",
    "writer": "writer-secret:w",
    "both": "both-secret:rw",
    "deleter": "deleter-secret:del",
    "admin": "admin-secret:admin",
    "tenant": "tenant-secret::mine:|shared.",
    "tenant reader": "tenant-reader-secret:r:mine:",
}
SECRETS = {name: entry.split(":")[0] for name, entry in KEYS.items()}


@pytest.fixture(scope="module")
def guarded(lane: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with keys, shared by the tests of this file."""
    data = tmp_path_factory.mktemp(f"guarded-{lane}") / "data"
    process = ServerProcess(data, fast_lane=lane == "fast", keys=",".join(KEYS.values()))
    try:
        yield process.start()
    finally:
        process.end()


@pytest.fixture
def as_key(guarded: ServerProcess) -> Iterator[dict[str, Client]]:
    """A client per key, and one without any."""
    clients = {name: Client(guarded.url, secret) for name, secret in {**SECRETS, "nobody": ""}.items()}
    clients["full"].put("open")
    clients["full"].put("jobs", type="queue")
    yield clients
    for client in clients.values():
        client.close()


RECORD = {"records": [{"data": 1}]}
#: Method, path, body, and the scopes that are all needed.
ROUTES: list[tuple[str, str, Any, set[str]]] = [
    ("GET", "/v0/topics", None, {"read"}),
    ("GET", "/v0/topics/open", None, {"read"}),
    ("PUT", "/v0/topics/open", {}, {"admin"}),
    ("DELETE", "/v0/topics/absent", None, {"delete"}),
    ("POST", "/v0/topics/open", RECORD, {"write"}),
    ("POST", "/v0/write", {"writes": [{"topic": "open", **RECORD}]}, {"write"}),
    ("POST", "/v0/topics/open/diff", {}, {"read"}),
    ("POST", "/v0/topics/open/delete", {"before_seq": 0}, {"delete"}),
    ("GET", "/v0/topics/open/consumers", None, {"read"}),
    ("PUT", "/v0/topics/open/consumers/c", {"seq": 0}, {"read"}),
    ("DELETE", "/v0/topics/open/consumers/c", None, {"delete"}),
    ("GET", "/v0/consumers", None, {"read"}),
    ("GET", "/v0/routers", None, {"read"}),
    ("GET", "/v0/routers/absent", None, {"read"}),
    ("PUT", "/v0/routers/r", {"source": "open", "dest": "open.copy"}, {"admin"}),
    ("DELETE", "/v0/routers/absent", None, {"delete"}),
    ("POST", "/v0/watch", {"topics": {"open": {}}}, {"read"}),
    ("POST", "/v0/topics/jobs/claim", {"node": "n"}, {"read", "write"}),
    ("POST", "/v0/topics/jobs/ack", {"node": "n", "seqs": []}, {"write"}),
    ("POST", "/v0/topics/jobs/nack", {"node": "n", "seqs": []}, {"write"}),
    ("POST", "/v0/topics/jobs/extend", {"node": "n", "seqs": []}, {"write"}),
    ("GET", "/v0/topics/jobs/work?max=x", None, {"read", "write"}),
    ("GET", "/v0/metrics", None, {"read"}),
]
SCOPES = {
    "full": {"read", "write", "delete", "admin"},
    "reader": {"read"},
    "writer": {"write"},
    "both": {"read", "write"},
    "deleter": {"delete"},
    "admin": {"admin"},
}


@pytest.mark.parametrize(("method", "path", "body", "needed"), ROUTES, ids=[f"{r[0]} {r[1]}" for r in ROUTES])
def test_every_route_needs_a_key_with_its_scopes(
    as_key: dict[str, Client], method: str, path: str, body: Any, needed: set[str]
) -> None:
    for name, scopes in SCOPES.items():
        response = as_key[name].request(method, path, body)
        if needed <= scopes:
            assert response.status_code not in (401, 403), f"{name}: {response.text}"
        else:
            assert response.status_code == 403, f"{name}: {response.text}"
            assert response.json()["error"]["code"] == "forbidden"
    error = as_key["nobody"].refused(method, path, body, status=401)
    assert error["code"] == "unauthorized"


@pytest.mark.parametrize(
    ("header", "known"),
    [
        ("Bearer full-secret", True),
        ("Bearer   full-secret", True),
        ("bearer full-secret", False),
        ("Basic full-secret", False),
        ("full-secret", False),
        ("Bearer full-secre", False),
        ("Bearer full-secret2", False),
        ("Bearer FULL-SECRET", False),
        ("Bearer full-secret,reader-secret", False),
        ("Bearer tenant-secret::mine:", False),
        ("Bearer", False),
        ("", False),
    ],
)
def test_the_header_is_the_word_bearer_and_the_whole_key(guarded: ServerProcess, header: str, known: bool) -> None:
    for path in ("/v0/topics", "/v0/topics/absent"):
        response = httpx.get(guarded.url + path, headers={"authorization": header}, trust_env=False)
        assert (response.status_code != 401) is known
        assert "www-authenticate" not in response.headers


def test_without_a_key_nobody_learns_what_there_is(as_key: dict[str, Client]) -> None:
    nobody = as_key["nobody"]
    for method, path in (("GET", "/nowhere"), ("PATCH", "/v0/topics"), ("GET", "/v0/topics/open"), ("GET", "/v0/x")):
        assert nobody.refused(method, path, status=401)["code"] == "unauthorized"


def test_probes_are_open_and_metrics_are_not(as_key: dict[str, Client]) -> None:
    for path in ("/v0/health", "/healthz", "/v0/ready", "/readyz"):
        as_key["nobody"].call("GET", path)
        as_key["writer"].call("GET", path)
    as_key["nobody"].refused("GET", "/v0/metrics", status=401)


def test_probes_can_be_closed_too(start_server: StartServer, lane: str) -> None:
    server = start_server(keys="key:w", probe_auth=True, lane=lane)
    for path in ("/v0/health", "/healthz", "/v0/ready", "/readyz"):
        assert server.client(key="").refused("GET", path, status=401)["code"] == "unauthorized"
        server.client().call("GET", path)


def test_without_keys_the_header_means_nothing(client: Client) -> None:
    for header in ("Bearer whatever", "nonsense"):
        assert client.http.get("/v0/topics", headers={"authorization": header}).status_code == 200


# --- names -----------------------------------------------------------------------------------------------------


def test_a_key_may_touch_only_names_with_its_prefixes(as_key: dict[str, Client]) -> None:
    tenant = as_key["tenant"]
    for name in ("mine:a", "mine:", "shared.b"):
        tenant.write(name, [1])
        tenant.diff(name)
        tenant.get(name)
    for name in ("open", "mine", "Mine:a", "shared", "other:mine:a"):
        for method, path, body in (
            ("GET", "", None),
            ("PUT", "", {}),
            ("DELETE", "", None),
            ("POST", "", RECORD),
            ("POST", "/diff", {}),
            ("POST", "/delete", {"before_seq": 1}),
            ("POST", "/claim", {"node": "n"}),
        ):
            error = tenant.refused(method, f"/v0/topics/{name}{path}", body, status=403)
            assert error["code"] == "forbidden"


def test_an_encoded_name_is_looked_at_as_it_is_meant(as_key: dict[str, Client]) -> None:
    tenant = as_key["tenant"]
    tenant.put("mine:enc")
    assert tenant.call("GET", "/v0/topics/mine%3Aenc")["topic"] == "mine:enc"
    tenant.refused("GET", "/v0/topics/%6Fpen", status=403)


def test_names_in_bodies_are_looked_at_too(as_key: dict[str, Client]) -> None:
    tenant = as_key["tenant"]
    tenant.put("mine:a")
    error = tenant.refused("POST", "/v0/watch", {"topics": {"mine:a": {}, "open": {}}}, status=403)
    assert (error["code"], error["detail"]) == ("forbidden", {"topic": "open"})
    for source, dest in (("open", "mine:b"), ("mine:a", "elsewhere")):
        tenant.refused("PUT", "/v0/routers/mine:r", {"source": source, "dest": dest}, status=403)
    as_key["full"].refused("GET", "/v0/topics/elsewhere", status=404)
    tenant.refused("PUT", "/v0/routers/r2", {"source": "mine:a", "dest": "mine:b"}, status=403)
    writes = [{"topic": "mine:a", **RECORD}, {"topic": "open", **RECORD}]
    before = tenant.get("mine:a")["head_seq"]
    tenant.refused("POST", "/v0/write", {"writes": writes}, status=403)
    assert tenant.get("mine:a")["head_seq"] == before


def test_lists_show_only_what_the_key_may_touch(as_key: dict[str, Client]) -> None:
    full, tenant = as_key["full"], as_key["tenant"]
    for number in range(5):
        full.put(f"mine:list{number}")
        full.put(f"other{number}")
    full.request("PUT", "/v0/routers/mine:x", {"source": "mine:list0", "dest": "mine:list1"}).raise_for_status()
    full.request("PUT", "/v0/routers/other", {"source": "other0", "dest": "other1"}).raise_for_status()
    names = []
    cursor = ""
    while True:
        answer = tenant.call("GET", f"/v0/topics?page_size=2&cursor={cursor}")
        names += [row["topic"] for row in answer["topics"]]
        cursor = answer.get("next_cursor")
        if cursor is None:
            break
        assert len(answer["topics"]) == 2
    assert [f"mine:list{number}" for number in range(5)] == [name for name in names if "list" in name]
    assert all(name.startswith(("mine:", "shared.")) for name in names)
    assert tenant.call("GET", "/v0/topics?prefix=other")["topics"] == []
    routers = [row["router"] for row in tenant.call("GET", "/v0/routers")["routers"]]
    assert "mine:x" in routers
    assert all(name.startswith(("mine:", "shared.")) for name in routers)


def test_metrics_show_only_names_that_the_key_may_touch(as_key: dict[str, Client]) -> None:
    as_key["full"].put("mine:metric")
    as_key["full"].put("other.metric")
    as_key["full"].call("PUT", "/v0/topics/mine:metric/consumers/c", {"seq": 0})
    as_key["full"].call("PUT", "/v0/topics/other.metric/consumers/c", {"seq": 0})
    rows = as_key["tenant reader"].call("GET", "/v0/consumers")["consumers"]
    assert [row["topic"] for row in rows if row["topic"].endswith("metric")] == ["mine:metric"]
    text = as_key["tenant reader"].http.get("/v0/metrics").text
    assert 'topics_topic_head_seq{topic="mine:metric"} 0' in text
    assert "other.metric" not in text
    assert "other.metric" in as_key["reader"].http.get("/v0/metrics").text


# --- the order of checks ---------------------------------------------------------------------------------------


def test_of_all_that_is_wrong_with_a_request_the_first_thing_is_told(start_server: StartServer, lane: str) -> None:
    server = start_server(keys="admin,reader:r,tenant:w:mine:,writer:w", max_body_bytes=100, lane=lane)
    server.client(key="admin").put("log")
    large, nonsense, right = b"x" * 101, b"nonsense", b'{"node":"n","seqs":[1]}'
    told = []
    for key, topic, content_type, body in (
        ("stranger", "absent", "text/plain", large),
        ("reader", "absent", "text/plain", large),
        ("tenant", "absent", "text/plain", large),
        ("writer", "absent", "text/plain", large),
        ("writer", "absent", "text/plain", nonsense),
        ("writer", "absent", "application/json", nonsense),
        ("writer", "absent", "application/json", right),
        ("writer", "log", "application/json", right),
    ):
        headers = {"content-type": content_type}
        response = server.client(key=key).http.post(f"/v0/topics/{topic}/ack", content=body, headers=headers)
        told.append((response.status_code, response.json()["error"]["code"]))
    assert told == [
        (401, "unauthorized"),
        (403, "forbidden"),
        (403, "forbidden"),
        (413, "payload_too_large"),
        (415, "unsupported_media_type"),
        (400, "invalid_request"),
        (404, "topic_not_found"),
        (409, "not_a_queue"),
    ]
    # Streams have an Accept in the place of a body.
    reader, writer = server.client(key="admin"), server.client(key="writer")
    writer.refused("GET", "/v0/topics/absent/work", status=403, headers={"accept": "text/html"})
    reader.refused("GET", "/v0/topics/absent/work", status=406, headers={"accept": "text/html"})
    reader.refused("GET", "/v0/topics/log/work?node=n", status=409, headers={"accept": "text/event-stream"})


# --- scopes beyond the route -----------------------------------------------------------------------------------


def test_creating_with_a_config_needs_the_admin_scope(as_key: dict[str, Client]) -> None:
    writer, full = as_key["writer"], as_key["full"]
    full.drop("made")
    body = {**RECORD, "config": {"ttl_ms": 60_000}}
    error = writer.refused("POST", "/v0/topics/made", body, status=403)
    assert (error["code"], error["detail"]) == ("forbidden", {"topic": "made"})
    full.refused("GET", "/v0/topics/made", status=404)
    assert writer.call("POST", "/v0/topics/made", RECORD, status=201)["created"] is True
    # Where there is a topic the config means nothing, and needs nothing.
    assert writer.call("POST", "/v0/topics/made", body)["created"] is False


# --- the key in the address ------------------------------------------------------------------------------------


def test_a_token_in_the_address_is_for_event_streams_only(as_key: dict[str, Client]) -> None:
    nobody, full = as_key["nobody"], as_key["full"]
    secret = SECRETS["full"]
    for method, path, body, _ in ROUTES:
        if "/work" in path:
            continue
        error = nobody.refused(method, f"{path}?token={secret}", body, status=401)
        assert error["code"] == "unauthorized"
    wid = full.call("POST", "/v0/watch", {"topics": {"open": {}}})["wid"]
    for token in (secret, "%66ull-secret", f"{secret}&token=wrong"):
        with nobody.events(f"/v0/watch/{wid}?token={token}") as stream:
            stream.wait_for("caught-up")
    with nobody.events(f"/v0/topics/jobs/work?node=n&token={secret}") as stream:
        assert stream.response.status_code == 200
    for path in (f"/v0/watch/{wid}", f"/v0/watch/{wid}?token=wrong&token={secret}", "/v0/topics/jobs/work?node=n"):
        assert nobody.refused("GET", path, status=401)["code"] == "unauthorized"
    assert as_key["reader"].refused("GET", f"/v0/watch/{wid}", status=401)["code"] == "unauthorized"
    for client in (nobody, full):
        assert client.refused("GET", "/v0/watch/wid_unknown", status=404)["code"] == "not_found"


# --- starting, and what is never told --------------------------------------------------------------------------


def serve(tmp_path: Path, *options: str, **environment: str) -> ServerFork:
    """What it says is in the file ``log``."""
    clean = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    command = ["serve", "--data", str(tmp_path / "data"), *options]
    return ServerFork(command, clean | environment, tmp_path / "log")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_a_public_address_without_keys_is_refused(tmp_path: Path, host: str) -> None:
    assert serve(tmp_path, "--host", host, "--port", "0").wait(30) == 2
    assert f"refusing to listen on {host} without API keys" in (tmp_path / "log").read_text()
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("settings", "warned"), [({"TOPICS_API_KEYS": "secret"}, False), ({"TOPICS_ALLOW_INSECURE_NO_AUTH": "1"}, True)]
)
def test_a_public_address_is_fine_with_keys_or_for_those_who_insist(
    tmp_path: Path, settings: dict[str, str], warned: bool
) -> None:
    log, port = tmp_path / "log", tmp_path / "port"
    process = serve(tmp_path, "--host", "0.0.0.0:0", "--port-file", str(port), **settings)
    try:
        eventually(lambda: port.exists() or process.poll() is not None, 30)
        assert process.poll() is None, log.read_text()
    finally:
        process.send_signal(signal.SIGTERM)
        # However early it is told to stop, it does so in order.
        assert process.wait(30) == 0
    assert ("no API keys are set" in log.read_text()) is warned


def test_keys_that_make_no_sense_keep_the_server_from_starting(tmp_path: Path) -> None:
    wrong = ("hush:everything", "hush:read+nothing", ":read", "hush:read:a||b", "hush,hush")
    for number, keys in enumerate(wrong):
        place = tmp_path / str(number)
        place.mkdir()
        assert serve(place, "--port", "0", TOPICS_API_KEYS=keys).wait(30) == 2
        said = (place / "log").read_text()
        assert "API key" in said
        assert "hush" not in said


def test_keys_never_get_into_the_log(start_server: StartServer, lane: str) -> None:
    server = start_server(keys="hush-hush:rw", log_level="debug", lane=lane)
    client = server.client()
    client.write("a", [1])
    client.refused("PUT", "/v0/topics/a", {}, status=403)
    server.client(key="wrong-secret").refused("GET", "/v0/topics/a", status=401)
    nobody = server.client(key="")
    nobody.refused("GET", "/v0/topics?token=hush-hush", status=401)
    nobody.refused("GET", "/v0/topics/a/work?node=n&token=hush-hush", status=409)
    client.http.request("BREW", "/v0/topics")
    server.stop()
    log = server.log()
    assert "listening on" in log
    assert "hush" not in log
    assert "wrong-secret" not in log


def test_the_plain_keys_are_not_in_the_servers_environment(start_server: StartServer) -> None:
    server = start_server(keys="hush-hush")
    children = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(server.pid)], capture_output=True, text=True
    ).stdout.split()
    for pid in children:
        assert b"hush-hush" not in Path(f"/proc/{pid}/environ").read_bytes()
