"""Servers whose collections come from a settings file and from Python, as they are started by hand."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.server_fork import ServerFork
from support.server_process import ServerProcess
from support.signed_calls import ALICE, BOB, KEM, headers_of

from strandline.signing import certificates
from strandline.signing.author_proofs import sign
from strandline.signing.keys import Signer
from strandline.signing.revocations import signed_list

SETTINGS = """
[server]
declare = "{directory}/declared_collections.py"

[collections]
revocations = ["{directory}/revoked.json"]
cors = ["https://example.org"]

[[collections.collection]]
name = "events"
storage_path = "events/{{day}}"
read_roles = ["cap:read:*"]
write_roles = ["cap:write:*"]
append_only = true

[[collections.collection]]
name = "open"
storage_path = "open/{{id}}"
read_roles = ["public"]
write_roles = ["public"]
append_only = {{ require_author_signature = false }}
rate_limit.push = {{ window_ms = 3600000, max_requests = 2, bucket = "ip" }}

[[collections.namespace.free.collection]]
name = "anywhere"
storage_path = "{{a}}/{{b}}"
read_roles = ["public"]
write_roles = ["public"]
append_only = {{ require_author_signature = false }}

[[collections.namespace.free.collection]]
name = "versions"
storage_path = "{{a}}/{{b}}/versions"
read_roles = ["public"]
write_roles = ["public"]
"""

DECLARED = """
from strandline.collections import AppendOnly, Collection, Namespace, Roles
from strandline.tables import make_log

poll = make_log("poll", parent="room", schema={"type": "object"}, pub=True)
rota = Collection(
    name="rota", storage_path="rota/{day}", read_roles=["staff", "self"], write_roles=["staff"],
    append_only=AppendOnly(),
)
chat = Collection(
    name="chat", storage_path="chat/{room}", read_roles=["cap:read:*"], write_roles=["cap:write:*"],
    append_only=AppendOnly(),
)
team = Namespace(name="team", collections=[chat])


def staff(caller, params):
    return ["staff"] if caller.identity == ALICE else []


roles = Roles(enricher=staff)
ALICE = "%s"
"""

#: Now, as the server has it.
NOW_S = int(time.time())


def device(issuer: Signer, subject: Signer) -> dict[str, Any]:
    return certificates.mint_device(issuer, subject.public, KEM, certificates.everything(), now_s=NOW_S)


REVOKED = device(ALICE, ALICE)


@pytest.fixture(scope="module")
def configured(lane: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    directory = tmp_path_factory.mktemp(f"configured-{lane}")
    (directory / "settings.toml").write_text(SETTINGS.format(directory=directory))
    (directory / "declared_collections.py").write_text(DECLARED % ALICE.user_id)
    (directory / "revoked.json").write_text(json.dumps(signed_list(ALICE, 1, [REVOKED])))
    process = ServerProcess(directory / "data", fast_lane=lane == "fast", config=directory / "settings.toml")
    try:
        yield process.start()
    finally:
        process.end()


def ask(
    server: ServerProcess, method: str, target: str, body: bytes = b"", cap: tuple[dict[str, Any], Signer] | None = None
) -> httpx.Response:
    headers = {"Content-Type": "application/json"}
    if cap is not None:
        host = server.url.removeprefix("http://")
        headers = headers_of(*cap, method, target, body, time.time_ns() // 1_000_000, host=host)
    return httpx.request(method, server.url + target, content=body, headers=headers, trust_env=False)


def append(server: ServerProcess, path: str, signer: Signer, mount: str = "") -> httpx.Response:
    proof = sign(signer, path, {"a": 1})
    body = {"data": {"a": 1}, "authorPubkey": proof.public_key, "authorSignature": proof.signature}
    return ask(server, "POST", f"{mount}/push/{path}", json.dumps(body).encode(), (device(signer, signer), signer))


def test_collections_of_the_file_and_of_the_program_are_served(configured: ServerProcess) -> None:
    for path in ("events/d1", "rota/monday"):
        assert append(configured, path, ALICE).status_code == 200
        answer = ask(configured, "GET", f"/pull/{path}?last=1", cap=(device(ALICE, ALICE), ALICE))
        assert answer.json()["data"]["items"][0]["data"] == {"a": 1}
    for mount in ("/team", "/v1/team"):
        assert append(configured, "chat/r1", BOB, mount).status_code == 200


def test_roles_of_the_program_count(configured: ServerProcess) -> None:
    assert append(configured, "rota/monday", BOB).status_code == 403


def test_a_collection_does_not_take_the_names_of_a_table(configured: ServerProcess) -> None:
    for path in ("poll/other", "poll/other/versions"):
        refused = ask(configured, "POST", f"/free/push/{path}", b'{"data":{}}')
        assert (refused.status_code, refused.json()["error"]) == (409, "not_a_document")
        assert "the name belongs to the table 'poll'" in refused.json()["message"]
    assert ask(configured, "POST", "/free/push/polls/other", b'{"data":{}}').status_code == 200
    appended = ask(configured, "POST", "/tables/poll/append", b'{"parent":"other","payload":{}}')
    assert appended.json()["id"] == "other:1"


def test_what_is_doubtful_about_declared_collections_is_told(configured: ServerProcess) -> None:
    told = configured.log()
    assert 'collection "rota": the role "self" has no effect' in told
    assert told.count('collection "open": write_roles has "public"') == 1


def test_a_request_is_taken_once(configured: ServerProcess) -> None:
    target = "/pull/events/d2?last=1"
    host = configured.url.removeprefix("http://")
    headers = headers_of(device(ALICE, ALICE), ALICE, "GET", target, ts=time.time_ns() // 1_000_000, host=host)
    with httpx.Client(trust_env=False) as client:
        answers = [client.get(configured.url + target, headers=headers) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 401, 401]


def test_what_the_files_revoke_is_refused(configured: ServerProcess) -> None:
    answer = ask(configured, "GET", "/pull/events/d1?last=1", cap=(REVOKED, ALICE))
    assert (answer.status_code, answer.json()) == (401, {"error": "Unauthorized"})


def test_addresses_are_known_in_both_lanes(configured: ServerProcess) -> None:
    statuses = [ask(configured, "POST", "/push/open/a", b'{"data":{}}').status_code for _ in range(3)]
    assert statuses == [200, 200, 429]


def test_a_page_of_another_origin_may_call(configured: ServerProcess) -> None:
    answer = httpx.request(
        "OPTIONS",
        f"{configured.url}/push/events/d1",
        headers={
            "Origin": "https://example.org",
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization,content-type,x-starfish-sig",
        },
        trust_env=False,
    )
    assert answer.status_code == 204
    assert answer.headers["access-control-allow-origin"] == "https://example.org"
    allowed = answer.headers["access-control-allow-headers"].lower()
    for header in (
        "authorization",
        "content-type",
        "x-starfish-sig",
        "x-starfish-ts",
        "x-starfish-nonce",
        "x-starfish-pub",
    ):
        assert header in allowed
    assert answer.headers["access-control-max-age"] == "86400"


def test_the_server_looks_at_its_revocation_lists_without_a_request(configured: ServerProcess) -> None:
    revoked = configured.data.parent / "revoked.json"
    text = revoked.read_text()
    revoked.write_text("not a list")
    try:
        deadline = time.monotonic() + 30
        while "revoked.json is not valid JSON" not in configured.log():
            assert time.monotonic() < deadline, configured.log()
            time.sleep(0.05)
    finally:
        revoked.write_text(text)
    answer = ask(configured, "GET", "/pull/events/d1?last=1", cap=(REVOKED, ALICE))
    assert answer.status_code == 401, "the list that was read before stays in force"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[[collections.collection]]\nname = "a"\n', 'collection "a": storage_path is missing'),
        ('[collections]\nrevocations = ["/nowhere/list.json"]\n', "cannot read the revocation list /nowhere/list.json"),
        ('[collections]\nconfig_file = "/nowhere/starfish.json"\n', "cannot read /nowhere/starfish.json"),
    ],
)
def test_a_server_with_collections_that_cannot_be_does_not_start(tmp_path: Path, text: str, message: str) -> None:
    settings = tmp_path / "settings.toml"
    settings.write_text(text)
    command = ["serve", "--config", str(settings), "--data", str(tmp_path / "data"), "--port", "0"]
    assert ServerFork(command, dict(os.environ), tmp_path / "log").wait(60) == 2
    said = (tmp_path / "log").read_text()
    assert message in said
    assert "Traceback" not in said
