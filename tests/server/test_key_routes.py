"""API keys that are added, rotated and revoked while the server runs."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.live_server import KINDS, LiveServer, ask, live_server, read_to_end, read_until, wait_for
from support.server_process import StartServer

from strandline.engine import Engine
from strandline.engine.backup import backup, restore
from strandline.engine.clock import ManualClock
from strandline.service import api_keys
from strandline.service.access import ALL_SCOPES, Access, Keys
from strandline.service.api_keys import KEYS_LOG, ApiKeys
from strandline.service.problems import Refusal

ROOT = "root-secret"
CONFIGURED = f"{ROOT},tenant-secret:admin+rw:mine:,reader-secret:read"
EVERYTHING = Access("root", ALL_SCOPES, ())


@pytest.fixture(scope="module")
def server(lane: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(tmp_path_factory.mktemp(f"keys-{lane}"), lane, keys=CONFIGURED) as live:
        live.secret = ROOT
        live.fill()
        yield live


def call(server: LiveServer, secret: str, method: str, path: str, body: Any = None) -> httpx.Response:
    headers = {"authorization": f"Bearer {secret}"}
    return httpx.request(method, server.url + path, json=body, headers=headers, trust_env=False, timeout=30)


def add(server: LiveServer, secret: str = ROOT, **body: Any) -> tuple[str, str]:
    answer = call(server, secret, "POST", "/v0/keys", {"scopes": ["read", "write"], **body})
    assert answer.status_code == 201, answer.text
    assert answer.headers["cache-control"] == "no-store"
    return answer.json()["key"]["id"], answer.json()["secret"]


def reads(server: LiveServer, secret: str, log: str = "t") -> int:
    return call(server, secret, "POST", f"/v0/topics/{log}/diff", {"limit": 1, "from_seq": 1 << 30}).status_code


def test_a_key_works_from_its_answer_on_until_it_is_revoked(server: LiveServer) -> None:
    id, secret = add(server, name="shop", prefixes=["t", "shop:"])
    assert reads(server, secret) == 200
    assert reads(server, secret, "jobs") == 403
    assert call(server, secret, "PUT", "/v0/topics/t", {}).status_code == 403
    listed = {key["id"]: key for key in call(server, ROOT, "GET", "/v0/keys").json()["keys"]}
    assert (listed[id]["name"], listed[id]["prefixes"]) == ("shop", ["t", "shop:"])
    assert listed[id]["scopes"] == ["read", "write"]
    assert [key["source"] for key in listed.values()].count("settings") == 3
    assert secret not in json.dumps(listed)
    assert call(server, ROOT, "DELETE", f"/v0/keys/{id}").json() == {"id": id, "revoked": True}
    assert reads(server, secret) == 401
    assert call(server, ROOT, "DELETE", f"/v0/keys/{id}").status_code == 404


def test_rotation_keeps_the_rights_and_ends_the_old_secret(server: LiveServer) -> None:
    id, secret = add(server, prefixes=["t"])
    answer = call(server, ROOT, "POST", f"/v0/keys/{id}/rotate").json()
    assert (answer["key"]["scopes"], answer["key"]["prefixes"]) == (["read", "write"], ["t"])
    assert (reads(server, secret), reads(server, answer["secret"])) == (401, 200)
    kept = call(server, ROOT, "POST", f"/v0/keys/{answer['key']['id']}/rotate", {"keep_ms": 3_600_000}).json()
    assert (reads(server, answer["secret"]), reads(server, kept["secret"])) == (200, 200)
    assert kept["replaced"]["id"] == answer["key"]["id"]
    assert kept["replaced"]["expires_at"] > kept["key"]["created_at"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"scopes": ["read"], "prefixes": ["mine:a"]}, 201),
        ({"scopes": ["read"], "prefixes": []}, 403),
        ({"scopes": ["read"], "prefixes": ["mine:", "min"]}, 403),
        ({"scopes": ["delete"], "prefixes": ["mine:"]}, 403),
        ({"scopes": [], "prefixes": ["mine:"]}, 400),
        ({"scopes": ["all"], "prefixes": ["mine:"]}, 400),
        ({"scopes": ["read"], "prefixes": [""]}, 400),
        ({"scopes": ["read"], "name": "a\nb"}, 400),
        ({"scopes": ["read"], "expires_in": 5}, 400),
    ],
)
def test_a_key_adds_only_keys_that_may_do_no_more(server: LiveServer, body: dict[str, Any], status: int) -> None:
    answer = call(server, "tenant-secret", "POST", "/v0/keys", body)
    assert answer.status_code == status, answer.text


def test_a_key_manages_only_keys_that_may_do_no_more(server: LiveServer) -> None:
    wide, _ = add(server)
    mine, secret = add(server, "tenant-secret", scopes=["admin"], prefixes=["mine:x"])
    seen = {key["id"] for key in call(server, "tenant-secret", "GET", "/v0/keys").json()["keys"]}
    assert mine in seen
    assert wide not in seen
    for method, path in (("POST", f"/v0/keys/{wide}/rotate"), ("DELETE", f"/v0/keys/{wide}")):
        refused = call(server, "tenant-secret", method, path)
        assert (refused.status_code, refused.json()["error"]["code"]) == (404, "key_not_found")
    assert call(server, secret, "DELETE", f"/v0/keys/{mine}").status_code == 200
    assert call(server, "reader-secret", "GET", "/v0/keys").status_code == 403
    configured = next(
        key for key in call(server, ROOT, "GET", "/v0/keys").json()["keys"] if key["source"] == "settings"
    )
    refused = call(server, ROOT, "DELETE", f"/v0/keys/{configured['id']}")
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "key_configured")


def test_the_log_of_keys_has_no_secret_and_belongs_to_the_server(server: LiveServer) -> None:
    id, secret = add(server)
    engine = server.application.engine
    assert engine is not None
    stored = b"".join(engine.log(KEYS_LOG).read(limit=1000).data)
    assert id.encode() in stored
    assert secret.encode() not in stored
    assert call(server, ROOT, "POST", f"/v0/topics/{KEYS_LOG}", {"records": [{"data": {}}]}).status_code == 400
    assert call(server, ROOT, "DELETE", f"/v0/topics/{KEYS_LOG}").json()["deleted"] is False
    assert call(server, ROOT, "DELETE", f"/v1/stream/{KEYS_LOG}").status_code >= 400
    assert reads(server, secret) == 200


# --- what a revocation ends ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "catch-up"])
def test_revoking_a_key_ends_its_live_responses(server: LiveServer, kind: str) -> None:
    id, secret = add(server, scopes=["read", "write", "delete", "admin"])
    other, other_secret = add(server, scopes=["read", "write", "delete", "admin"])
    before = server.open[1]
    # Small buffers, so that a response with an end of its own is still open.
    mine, theirs = server.connect(4096), server.connect(4096)
    with mine, theirs:
        for line, key in ((mine, secret), (theirs, other_secret)):
            server.secret = key
            ask(server, line, kind)
        server.secret = ROOT
        wait_for(lambda: server.open[1] == before + 2)
        assert call(server, ROOT, "DELETE", f"/v0/keys/{id}").status_code == 200
        ended = read_to_end(mine)
        wait_for(lambda: server.open[1] == before + 1)
        if kind in ("watch", "work", "console tail", "table", "collection"):
            assert b"the API key was revoked or has expired" in ended
        assert call(server, ROOT, "DELETE", f"/v0/keys/{other}").status_code == 200
        read_to_end(theirs)
        wait_for(lambda: server.open[1] == before)


def test_a_read_that_waits_ends_with_401(server: LiveServer) -> None:
    id, secret = add(server)
    answers: list[int] = []
    head = call(server, ROOT, "GET", "/v0/topics/t").json()["head_seq"]
    wait = {"from_seq": head, "wait_ms": 20_000}

    def read() -> None:
        answers.append(call(server, secret, "POST", "/v0/topics/t/diff", wait).status_code)

    waiting = threading.Thread(target=read)
    used = server.application.limits.requests
    waiting.start()
    try:
        wait_for(lambda: id in used._by_key)
        call(server, ROOT, "DELETE", f"/v0/keys/{id}")
        call(server, ROOT, "POST", "/v0/topics/t", {"records": [{"data": 1}]})
    finally:
        waiting.join()
    assert answers == [401]


def test_a_websocket_of_a_revoked_key_is_told_why(server: LiveServer) -> None:
    id, secret = add(server)
    server.secret = secret
    with server.connect() as line:
        line.settimeout(20)
        ask(server, line, "websocket")
        server.secret = ROOT
        assert read_until(line, b"subscribed")
        call(server, ROOT, "DELETE", f"/v0/keys/{id}")
        assert b"\x03\xf0" in read_to_end(line)  # 1008


# --- durability and time -------------------------------------------------------------------------------------------


def test_keys_survive_a_kill_and_so_do_revocations(start_server: StartServer, tmp_path: Path) -> None:
    process = start_server(keys=ROOT, data=tmp_path / "data")
    client = process.client(ROOT)
    made = [client.call("POST", "/v0/keys", {"scopes": ["read"]}, status=201) for _ in range(2)]
    client.call("DELETE", f"/v0/keys/{made[0]['key']['id']}")
    process.kill()
    process.start()
    statuses = [
        httpx.get(f"{process.url}/v0/topics", headers={"authorization": f"Bearer {one['secret']}"}, trust_env=False)
        for one in made
    ]
    assert [one.status_code for one in statuses] == [401, 200]


def test_a_server_without_keys_in_its_settings_adds_none(start_server: StartServer) -> None:
    refused = start_server().client().refused("POST", "/v0/keys", {"scopes": ["read"]}, status=409)
    assert refused["code"] == "keys_off"


def test_a_directory_with_added_keys_is_not_served_without_keys(tmp_path: Path) -> None:
    with Engine.open(tmp_path / "data") as engine:
        keys = ApiKeys(Keys.parse(ROOT), engine.now, lambda id: None)
        keys.load(engine)
        keys.add(EVERYTHING, "", ("read",), (), 0)[2].wait()
    live = LiveServer(tmp_path / "data", "fast", 0, 1000)
    live._thread.start()
    live._thread.join(20)
    assert not live._thread.is_alive()
    assert "has API keys, but the settings have none" in str(live.application.failure)


def test_a_backup_has_the_keys(tmp_path: Path) -> None:
    with Engine.open(tmp_path / "data") as engine:
        keys = ApiKeys(Keys.parse(ROOT), engine.now, lambda id: None)
        keys.load(engine)
        key, secret, added = keys.add(EVERYTHING, "shop", ("read",), ("orders",), 0)
        added.wait()
        revoked, revoked_secret, _ = keys.add(EVERYTHING, "", ("read",), (), 0)
        keys.revoke(EVERYTHING, revoked.id).wait()
        backup(tmp_path / "data", str(tmp_path / "pool"))
    restore(str(tmp_path / "pool"), tmp_path / "again")
    with Engine.open(tmp_path / "again") as engine:
        keys = ApiKeys(Keys.parse(ROOT), engine.now, lambda id: None)
        assert keys.load(engine) == 1
        assert keys.find(secret.encode()) == key.access
        assert keys.find(revoked_secret.encode()) is None


def test_an_expired_key_ends_and_leaves_the_log(tmp_path: Path) -> None:
    clock, ended = ManualClock(1_000_000), list[str]()
    with Engine.open(tmp_path / "data", clock=clock, background=False) as engine:
        keys = ApiKeys(Keys.parse(ROOT), engine.now, ended.append)
        keys.load(engine)
        key, secret, _ = keys.add(EVERYTHING, "", ("read",), (), 500)
        rotated, new, new_secret, _ = keys.rotate(EVERYTHING, key.id, 100)
        assert keys.find(secret.encode()) == rotated.access
        clock.advance(100)
        assert keys.find(secret.encode()) is None
        assert not keys.works(rotated.access)
        keys.sweep()
        assert ended == [key.id]
        assert keys.find(new_secret.encode()) == new.access
        clock.advance(400)
        with pytest.raises(Refusal, match="no API key has the id"):
            keys.revoke(EVERYTHING, new.id)
        keys.sweep()
        assert ended == [key.id, new.id]
        again = ApiKeys(Keys.parse(ROOT), engine.now, ended.append)
        assert again.load(engine) == 0


def test_rotations_that_keep_the_old_secret_count_as_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_keys, "MAX_ADDED_KEYS", 3)
    with Engine.open(tmp_path / "data", clock=ManualClock(1_000_000), background=False) as engine:
        keys = ApiKeys(Keys.parse(ROOT), engine.now, lambda id: None)
        keys.load(engine)
        key = keys.add(EVERYTHING, "", ("read",), (), 0)[0]
        for _ in range(2):
            keys.rotate(EVERYTHING, key.id, 1000)
        with pytest.raises(Refusal, match="3"):
            keys.rotate(EVERYTHING, key.id, 1000)
        keys.rotate(EVERYTHING, key.id, 0)
        assert len(keys.added(EVERYTHING)) == 3


def test_a_key_that_expires_cannot_outlive_itself(tmp_path: Path) -> None:
    clock = ManualClock(1_000_000)
    with Engine.open(tmp_path / "data", clock=clock, background=False) as engine:
        keys = ApiKeys(Keys.parse(ROOT), engine.now, lambda id: None)
        keys.load(engine)
        guest = keys.add(EVERYTHING, "guest", ("admin", "read"), (), 1000)[0]
        clock.advance(600)
        for lifetime in (0, 5000):
            assert keys.add(guest.access, "", ("read",), (), lifetime)[0].expires_at == guest.expires_at
        assert keys.add(guest.access, "", ("read",), (), 100)[0].expires_at == 1_000_700
        assert keys.rotate(guest.access, guest.id, 0)[1].expires_at == guest.expires_at
