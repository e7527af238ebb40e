"""The audit log and the access log."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from support.command_line import Cli
from support.live_server import live_server, wait_for
from support.server_process import StartServer
from support.topics_client import Client

from strandline.engine import Config, Engine
from strandline.server.access_log import AccessLog
from strandline.server.log_lines import JsonFormatter
from strandline.service.access import FULL_ACCESS
from strandline.service.audit import AUDIT_LOG, Audit
from strandline.service.http import Head, Reply, Route

KEYS = "root-secret,admin-secret:admin+read+d:mine,reader-secret:read"


def entries(root: Client) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = root.call("GET", "/v0/audit")["entries"]
    return found[::-1]


@pytest.mark.both_lanes
def test_administrative_requests_of_all_protocols_are_recorded(start_server: StartServer, lane: str) -> None:
    process = start_server(lane=lane, keys=KEYS)
    root, admin, reader = (process.client(name) for name in ("root-secret", "admin-secret", "reader-secret"))
    root.put("mine")
    root.write("mine", [1])
    admin.call("PUT", "/v0/topics/mine", {"cap_records": 5})
    admin.refused("PUT", "/v0/topics/other", {}, status=403)
    reader.refused("DELETE", "/v0/topics/mine", status=403)
    process.client("wrong").refused("DELETE", "/v0/topics/mine", status=401)
    root.http.put("/v1/stream/s", headers={"content-type": "application/json", "authorization": "Bearer root-secret"})
    root.call(
        "POST", "/v1/stream/s/_profile", {"apiVersion": "durable.streams/profile/v1", "profile": {"kind": "generic"}}
    )
    admin.call("DELETE", "/v0/topics/mine")
    key = root.call("POST", "/v0/keys", {"scopes": ["read"]}, status=201)["key"]["id"]
    root.call("DELETE", f"/v0/keys/{key}")
    found = entries(root)
    assert [(one["method"], one["path"], one["status"], one["outcome"]) for one in found] == [
        ("PUT", "/v0/topics/mine", 201, "done"),
        ("PUT", "/v0/topics/mine", 200, "done"),
        ("PUT", "/v0/topics/other", 403, "refused"),
        ("DELETE", "/v0/topics/mine", 403, "refused"),
        ("POST", "/v1/stream/s/_profile", 200, "done"),
        ("DELETE", "/v0/topics/mine", 200, "done"),
        ("POST", "/v0/keys", 201, "done"),
        ("DELETE", f"/v0/keys/{key}", 200, "done"),
    ]
    assert found[0]["api_key"] != found[1]["api_key"] == found[2]["api_key"]
    assert {one["peer"] for one in found} == {"127.0.0.1"}
    assert found[0]["route"] == "/v0/topics/{topic}"


def test_only_administrators_without_prefixes_read_it_and_nobody_changes_it(start_server: StartServer) -> None:
    process = start_server(keys=KEYS)
    root = process.client("root-secret")
    root.put("mine")
    # The first entry creates the log, and is visible when that is durable.
    wait_for(lambda: len(entries(root)) == 1)
    process.client("admin-secret").refused("GET", "/v0/audit", status=403)
    process.client("reader-secret").refused("GET", "/v0/audit", status=403)
    root.refused("POST", f"/v0/topics/{AUDIT_LOG}/delete", {"before_seq": 9}, status=404)
    assert len(entries(root)) == 1
    cli = Cli(process.url)
    rows = cli.words("audit", "--api-key", "root-secret")
    assert rows[0][-3:] == ["request", "outcome", "status"]
    assert rows[1][-4:] == ["PUT", "/v0/topics/mine", "done", "201"]
    assert [row["path"] for row in cli.json("audit", "--api-key", "root-secret")["entries"]] == ["/v0/topics/mine"]


def test_pages_go_back_to_the_first_entry(start_server: StartServer) -> None:
    client = start_server().client()
    for number in range(5):
        client.put(f"t{number}")
    seen, before = [], ""
    while before is not None:
        page = client.call("GET", f"/v0/audit?limit=2{before}")
        seen += [entry["path"][-2:] for entry in page["entries"]]
        before = f"&before={page['next_before']}" if page["next_before"] else None
    assert seen == ["t4", "t3", "t2", "t1", "t0"]
    client.refused("GET", "/v0/audit?limit=0", status=400)


def test_the_log_is_bounded_and_follows_the_setting(tmp_path: Path) -> None:
    route = Route(method="DELETE", path="/x/{topic}", handler=lambda call: Reply(b""), scopes=("delete",))
    head = Head("DELETE", "/x/a", "", {})
    head.route, head.access, head.params = route, FULL_ACCESS, {"topic": "a"}
    with Engine.open(tmp_path, background=False) as engine:
        Audit(engine, 1 << 20).note(head, 200, "")
        audit = Audit(engine, 2000)
        audit.prepare()
        for _ in range(100):
            audit.note(head, 200, "127.0.0.1")
        log = engine.log(AUDIT_LOG)
        assert log.config == Config(durability="disk", cap_bytes=2000)
        assert log.state().head == 101
        assert 0 < log.state().size <= 2000


def test_without_the_setting_there_is_no_audit_log(start_server: StartServer) -> None:
    client = start_server(audit_bytes=0).client()
    client.put("t")
    assert entries(client) == []


# --- the access log ------------------------------------------------------------------------------------------------


@pytest.mark.both_lanes
def test_the_access_log_has_a_line_per_answer_and_no_query(start_server: StartServer, lane: str) -> None:
    process = start_server(lane=lane, keys="root-secret", access_log=True, log_format="json", log_level="warning")
    client = process.client()
    client.put("t")
    client.write("t", [1])
    client.http.get("/v0/topics/t?token=hidden-secret")
    wait_for(lambda: "/v0/topics/absent" in process.log() or not client.http.get("/v0/topics/absent").is_success)
    process.stop()
    lines = [json.loads(line) for line in process.log().splitlines()]
    seen = [(line["method"], line["path"], line["status"]) for line in lines if line["logger"] == "strandline.access"]
    assert ("PUT", "/v0/topics/t", 201) in seen
    assert ("POST", "/v0/topics/t", 200) in seen
    assert ("GET", "/v0/topics/t", 200) in seen
    write = next(line for line in lines if line["logger"] == "strandline.access" and line["method"] == "POST")
    assert write["peer"] == "127.0.0.1"
    assert write["bytes"] > 0
    assert write["seconds"] > 0
    assert "secret" not in process.log()


def test_a_live_response_and_a_refusal_have_lines_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with live_server(tmp_path / "data", "fast") as server, caplog.at_level(logging.INFO, "strandline.access"):
        server.application.gate.access_log = AccessLog()
        server.fill()
        server.connect_silent().close()
        lines = [record.getMessage() for record in caplog.records if record.name == "strandline.access"]
    assert [line for line in lines if line.startswith("127.0.0.1 - GET /v1/stream/s 200 ")]


def test_a_json_line_is_one_object_whatever_the_message() -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError as error:
        info = (ValueError, error, error.__traceback__)
    record = logging.LogRecord("strandline", logging.ERROR, __file__, 1, "a \udc80 b\n%s", ("c",), info)
    record.created = 1_700_000_000.5
    line = JsonFormatter().format(record)
    assert line.splitlines() == [line]
    found = json.loads(line)
    assert (found["time"], found["level"], found["logger"]) == ("2023-11-14T22:13:20.500+00:00", "error", "strandline")
    assert "ValueError: two" in found["error"]
