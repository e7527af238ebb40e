from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from support.server_process import StartServer
from support.streams_client import JSON, START, StreamsClient
from support.topics_client import eventually
from support.webhook_receiver import Notification, WebhookReceiver

ROOT = "/v1/stream/__ds"
#: Long enough that no lease runs out while a busy machine thinks.
LEASE_MS = 600_000


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    built = WebhookReceiver()
    yield built
    built.close()


def _path(id: str, rest: str = "") -> str:
    return f"{ROOT}/subscriptions/{id}{rest}"


def _webhook(receiver: WebhookReceiver, **more: object) -> dict[str, object]:
    return {"type": "webhook", "webhook": {"url": receiver.url}, "lease_ttl_ms": LEASE_MS, **more}


def _pull(name: str, **more: object) -> dict[str, object]:
    return {"type": "pull-wake", "wake_stream": f"{name}/wakes", "lease_ttl_ms": LEASE_MS, **more}


def _put(streams: StreamsClient, id: str, body: object) -> dict[str, Any]:
    response = streams.request("PUT", _path(id), body)
    assert response.status_code == 201, response.text
    document: dict[str, Any] = response.json()
    return document


def _get(streams: StreamsClient, id: str) -> dict[str, Any]:
    response = streams.request("GET", _path(id))
    assert response.status_code == 200, response.text
    document: dict[str, Any] = response.json()
    return document


def _acked(streams: StreamsClient, id: str) -> dict[str, str]:
    return {stream["path"]: stream["acked_offset"] for stream in _get(streams, id)["streams"]}


def _claim(streams: StreamsClient, id: str, worker: str = "worker-1") -> dict[str, Any]:
    response = streams.request("POST", _path(id, "/claim"), {"worker": worker})
    assert response.status_code == 200, response.text
    document: dict[str, Any] = response.json()
    return document


def _tell(streams: StreamsClient, url: str, token: str, body: object) -> httpx.Response:
    return streams.http.post(url, json=body, headers={"authorization": f"Bearer {token}"})


def _ack(streams: StreamsClient, id: str, claim: dict[str, Any], rest: str = "/ack", **more: object) -> httpx.Response:
    body = {"wake_id": claim["wake_id"], "generation": claim["generation"], **more}
    return _tell(streams, _path(id, rest), claim["token"], body)


def _callback(streams: StreamsClient, notification: Notification, **more: object) -> httpx.Response:
    told = notification.body
    body = {"wake_id": told["wake_id"], "generation": told["generation"], **more}
    return _tell(streams, told["callback_url"], told["callback_token"], body)


def _error(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert response.status_code == status, response.text
    error: dict[str, Any] = response.json()["error"]
    assert error["code"] == code
    assert isinstance(error["message"], str)
    return error


# --- subscriptions as resources --------------------------------------------------------------------------------------


def test_a_webhook_subscription_is_made_and_confirmed(
    streams: StreamsClient, name: str, receiver: WebhookReceiver
) -> None:
    body = _webhook(receiver, pattern=f"{name}/*", lease_ttl_ms=1000, description="in words")
    made = _put(streams, name, body)
    assert made["webhook"]["url"] == receiver.url
    signing = made["webhook"]["signing"]
    assert (signing["alg"], signing["jwks_url"]) == ("ed25519", f"{streams.url}{ROOT}/jwks.json")
    keys = streams.http.get(signing["jwks_url"])
    assert keys.headers["content-type"] == "application/jwk-set+json"
    assert keys.headers["cache-control"] == "public, max-age=300"
    [key] = keys.json()["keys"]
    assert (key["kty"], key["crv"], key["use"], key["alg"]) == ("OKP", "Ed25519", "sig", "EdDSA")
    assert key["kid"] == signing["kid"]
    assert signing["kid"].startswith("ds_")

    again = streams.request("PUT", _path(name), body)
    assert (again.status_code, again.json()) == (200, made)
    shown = _get(streams, name)
    assert shown == made
    assert shown["id"] == shown["subscription_id"] == name
    assert (shown["type"], shown["pattern"], shown["streams"]) == ("webhook", f"{name}/*", [])
    assert (shown["lease_ttl_ms"], shown["status"], shown["description"]) == (1000, "active", "in words")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", shown["created_at"])
    assert "secret" not in json.dumps(shown)
    assert "wake_stream" not in shown

    other = streams.request("PUT", _path(name), {**body, "description": "others"})
    _error(other, 409, "SUBSCRIPTION_ALREADY_EXISTS")
    assert streams.request("DELETE", _path(name)).status_code == 204
    assert streams.request("DELETE", _path(name)).status_code == 204
    _error(streams.request("GET", _path(name)), 404, "SUBSCRIPTION_NOT_FOUND")


@pytest.mark.parametrize(
    "url",
    ["http://93.184.216.34/hook", "https://169.254.169.254/", "ftp://example.com/", "https://[::]/", "nonsense"],
)
def test_unsafe_webhooks_are_rejected(streams: StreamsClient, name: str, url: str) -> None:
    body = {"type": "webhook", "pattern": "a/*", "webhook": {"url": url}}
    _error(streams.request("PUT", _path(name), body), 400, "WEBHOOK_URL_REJECTED")
    _error(streams.request("GET", _path(name)), 404, "SUBSCRIPTION_NOT_FOUND")


def test_a_webhook_on_this_machine_needs_a_setting(start_server: StartServer, name: str) -> None:
    streams = StreamsClient(start_server().url)
    for url, setting in (("http://127.0.0.1:9000/hook", "LOOPBACK"), ("https://10.0.0.1/", "PRIVATE")):
        body = {"type": "webhook", "pattern": "a/*", "webhook": {"url": url}}
        answer = streams.request("PUT", _path(name), body)
        _error(answer, 400, "WEBHOOK_URL_REJECTED")
        assert f"STRANDLINE_WEBHOOK_ALLOW_{setting}" in answer.text
    streams.close()


@pytest.mark.parametrize(
    "change",
    [
        {"type": "carrier-pigeon"},
        {"type": None},
        {"pattern": None},
        {"pattern": 7},
        {"pattern": "ev*nts"},
        {"pattern": None, "streams": []},
        {"streams": ["__ds/x"]},
        {"streams": [1]},
        {"streams": [""]},
        {"lease_ttl_ms": 999},
        {"lease_ttl_ms": 600_001},
        {"lease_ttl_ms": "1000"},
        {"wake_stream": None},
        {"wake_stream": "__own__"},
        {"webhook": {"url": "https://example.com/"}},
        {"type": "webhook"},
        {"type": "webhook", "wake_stream": None, "webhook": {}},
        {"description": 5},
        {"streams": ["wakes"], "wake_stream": "wakes"},
    ],
)
def test_what_makes_no_sense_is_an_invalid_request(
    streams: StreamsClient, name: str, change: dict[str, object]
) -> None:
    body = {"type": "pull-wake", "pattern": "a/*", "wake_stream": f"{name}/wakes", **change}
    _error(streams.request("PUT", _path(name), body), 400, "INVALID_REQUEST")
    _error(streams.request("GET", _path(name)), 404, "SUBSCRIPTION_NOT_FOUND")
    assert streams.request("HEAD", f"{name}/wakes").status_code == 404, "nothing is left behind"


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"7", b"\xff", b"[" * 100_000])
def test_what_is_no_json_object_is_an_invalid_request(streams: StreamsClient, name: str, body: bytes) -> None:
    _error(streams.request("PUT", _path(name), body), 400, "INVALID_REQUEST")
    for rest in ("/streams", "/claim"):
        _error(streams.request("POST", _path(name, rest), body), 400, "INVALID_REQUEST")
    for rest in ("/callback", "/ack", "/release"):
        response = streams.request("POST", _path(name, rest), body, headers={"authorization": "Bearer x"})
        _error(response, 400, "INVALID_REQUEST")


def test_streams_are_named_and_taken_back(streams: StreamsClient, name: str, receiver: WebhookReceiver) -> None:
    streams.create(f"{name}/old", body=[1, 2])
    tail = streams.request("HEAD", f"{name}/old").headers["stream-next-offset"]
    _put(streams, name, _webhook(receiver, streams=[f"/{name}/a/"]))
    added = streams.request("POST", _path(name, "/streams"), {"streams": [f"{name}/b", f"{name}/old"]})
    assert added.status_code == 204
    assert _acked(streams, name) == {f"{name}/a": START, f"{name}/b": START, f"{name}/old": tail}
    assert streams.request("DELETE", _path(name, f"/streams/{name}%2Fb")).status_code == 204
    assert streams.request("DELETE", _path(name, f"/streams/{name}/old")).status_code == 204
    assert streams.request("DELETE", _path(name, "/streams/never")).status_code == 204
    [left] = _get(streams, name)["streams"]
    assert (left["path"], left["link_type"]) == (f"{name}/a", "explicit")
    for method, rest in (("POST", "/streams"), ("DELETE", "/streams/a")):
        response = streams.request(method, _path("nobody", rest), {"streams": ["a"]})
        _error(response, 404, "SUBSCRIPTION_NOT_FOUND")
    _error(streams.request("POST", _path(name, "/streams"), {"streams": []}), 400, "INVALID_REQUEST")
    _error(streams.request("POST", _path(name, "/streams"), {"streams": ["_own"]}), 400, "INVALID_REQUEST")


def test_the_reserved_names_are_no_streams(streams: StreamsClient) -> None:
    for path in (f"{ROOT}/nothing", f"{ROOT}/subscriptions", f"{ROOT}/subscriptions/a/b", f"{ROOT}/jwks.json/x"):
        for method in ("GET", "PUT", "POST", "DELETE"):
            assert streams.request(method, path, b"x", headers={"content-type": JSON}).status_code == 404, path
    assert streams.request("POST", f"{ROOT}/jwks.json").status_code == 405
    assert streams.request("OPTIONS", _path("any")).status_code == 204
    assert streams.request("OPTIONS", _path("any", "/streams/a/b")).status_code == 204


# --- webhooks --------------------------------------------------------------------------------------------------------


def test_a_webhook_that_is_done_at_once_acknowledges_what_it_was_told(
    streams: StreamsClient, name: str, receiver: WebhookReceiver
) -> None:
    receiver.answers = [(200, {"done": True})]
    made = _put(streams, name, _webhook(receiver, pattern=f"{name}/*"))
    streams.create(f"{name}/a", body={"event": "created"})
    told = receiver.next()
    assert re.fullmatch(r"t=\d+,kid=.+,ed25519=[A-Za-z0-9_-]+", told.signature)
    keys = streams.http.get(made["webhook"]["signing"]["jwks_url"]).json()
    assert told.verified_by(keys)
    assert not told._replace(raw=told.raw + b" ").verified_by(keys)
    assert told.body["subscription_id"] == name
    assert told.body["generation"] == 1
    assert told.body["callback_url"] == f"{streams.url}{_path(name, '/callback')}"
    tail = streams.request("HEAD", f"{name}/a").headers["stream-next-offset"]
    assert told.body["streams"] == [
        {"path": f"{name}/a", "link_type": "glob", "acked_offset": START, "tail_offset": tail, "has_pending": True}
    ]
    eventually(lambda: _acked(streams, name) == {f"{name}/a": tail})
    streams.append(f"{name}/a", {"event": "second"})
    assert receiver.next().body["generation"] == 2


def test_a_webhook_calls_back_and_stale_wakes_are_fenced(
    streams: StreamsClient, name: str, receiver: WebhookReceiver
) -> None:
    _put(streams, name, _webhook(receiver, pattern=f"{name}/**"))
    streams.create(f"{name}/deep/er", body={"event": "created"})
    told = receiver.next()
    tail = told.body["streams"][0]["tail_offset"]
    beating = _callback(streams, told)
    assert (beating.status_code, beating.json()) == (200, {"ok": True, "next_wake": False})
    done = _callback(streams, told, acks=[{"stream": f"{name}/deep/er", "offset": tail}], done=True)
    assert (done.status_code, done.json()) == (200, {"ok": True, "next_wake": False})
    assert _acked(streams, name) == {f"{name}/deep/er": tail}
    again = _callback(streams, told, acks=[{"stream": f"{name}/deep/er", "offset": tail}], done=True)
    _error(again, 409, "FENCED")


def test_what_is_written_meanwhile_follows_at_once(
    streams: StreamsClient, name: str, receiver: WebhookReceiver
) -> None:
    _put(streams, name, _webhook(receiver, pattern=f"{name}/*"))
    streams.create(f"{name}/a", body=[1])
    told = receiver.next()
    tail = told.body["streams"][0]["tail_offset"]
    streams.append(f"{name}/a", [2])
    done = _callback(streams, told, acks=[{"path": f"{name}/a", "offset": tail}], done=True)
    assert done.json() == {"ok": True, "next_wake": True}
    following = receiver.next().body
    assert (following["generation"], following["streams"][0]["acked_offset"]) == (2, tail)


def test_a_webhook_that_fails_is_tried_again(streams: StreamsClient, name: str, receiver: WebhookReceiver) -> None:
    receiver.answers = [(500, {"done": True})]
    _put(streams, name, _webhook(receiver, pattern=f"{name}/*"))
    streams.create(f"{name}/a", body=[1])
    first = receiver.next().body
    eventually(lambda: _get(streams, name)["status"] == "failed")
    receiver.answers = [(200, {"done": True})]
    second = receiver.next().body
    assert (second["wake_id"], second["generation"]) == (first["wake_id"], 1)
    eventually(lambda: _get(streams, name)["status"] == "active")
    eventually(lambda: START not in _acked(streams, name).values())


@pytest.mark.parametrize("rest", ["/callback", "/ack", "/release"])
def test_a_token_is_needed(streams: StreamsClient, name: str, receiver: WebhookReceiver, rest: str) -> None:
    _put(streams, name, _webhook(receiver, pattern=f"{name}/*"))
    body = {"wake_id": "w", "generation": 1}
    for headers in ({}, {"authorization": "Basic x"}, {"authorization": "Bearer nonsense"}):
        response = streams.request("POST", _path(name, rest), body, headers=headers)
        _error(response, 401, "TOKEN_INVALID")


# --- pulling ---------------------------------------------------------------------------------------------------------


def test_a_worker_claims_acknowledges_and_releases(streams: StreamsClient, name: str) -> None:
    made = _put(streams, name, _pull(name, pattern=f"{name}/events/*"))
    assert made["wake_stream"] == f"{name}/wakes"
    assert "webhook" not in made
    path = f"{name}/events/a"
    _error(streams.request("POST", _path(name, "/claim"), {"worker": "w"}), 409, "NO_PENDING_WORK")
    streams.create(path, body={"event": "created"})
    [wake] = eventually(lambda: streams.values(f"{name}/wakes"))
    assert isinstance(wake.pop("ts"), int)
    assert wake == {"type": "wake", "subscription_id": name, "stream": path, "generation": 1}

    claim = _claim(streams, name)
    assert (claim["generation"], claim["lease_ttl_ms"]) == (1, LEASE_MS)
    [told] = claim["streams"]
    assert (told["path"], told["link_type"], told["acked_offset"], told["has_pending"]) == (path, "glob", START, True)
    busy = streams.request("POST", _path(name, "/claim"), {"worker": "worker-2"})
    error = _error(busy, 409, "ALREADY_CLAIMED")
    assert (error["current_holder"], error["generation"]) == ("worker-1", 1)

    acked = _ack(streams, name, claim, acks=[{"stream": path, "offset": told["tail_offset"]}], done=True)
    assert (acked.status_code, acked.json()) == (200, {"ok": True, "next_wake": False})
    streams.append(path, {"event": "second"})
    second = _claim(streams, name)
    assert second["generation"] == 2
    assert _ack(streams, name, second, "/release").status_code == 204
    _error(_ack(streams, name, second, "/release"), 409, "FENCED")
    assert _claim(streams, name, "worker-3")["generation"] == 3
    assert [wake["generation"] for wake in streams.values(f"{name}/wakes")] == [1, 2, 3]


@pytest.mark.parametrize("offset", ["-1", "now", "0" * 26, "Z" * 26, "", "nonsense", "0000000000000000000g000000!"])
def test_offsets_that_cannot_be_acknowledged(streams: StreamsClient, name: str, offset: str) -> None:
    streams.create(f"{name}/a", body=[1])
    _put(streams, name, _pull(name, streams=[f"{name}/a"]))
    streams.append(f"{name}/a", [2])
    claim = _claim(streams, name)
    before = _acked(streams, name)
    response = _ack(streams, name, claim, acks=[{"stream": f"{name}/a", "offset": offset}], done=True)
    _error(response, 409, "INVALID_OFFSET")
    unknown = _ack(streams, name, claim, acks=[{"stream": "unknown", "offset": claim["streams"][0]["tail_offset"]}])
    _error(unknown, 409, "INVALID_OFFSET")
    assert _acked(streams, name) == before
    assert _ack(streams, name, claim, done=True).json() == {"ok": True, "next_wake": True}


def test_a_wake_stream_must_take_wakes(streams: StreamsClient, name: str) -> None:
    streams.create(f"{name}/text", content_type="text/plain")
    streams.create(f"{name}/closed", stream_closed="true")
    for wake_stream in (f"{name}/text", f"{name}/closed", "__stream_metrics__"):
        body = _pull(name, pattern="a/*", wake_stream=wake_stream)
        _error(streams.request("PUT", _path(name), body), 400, "INVALID_REQUEST")


def test_one_kind_is_not_the_other(streams: StreamsClient, name: str, receiver: WebhookReceiver) -> None:
    _put(streams, name, _webhook(receiver, pattern=f"{name}/*"))
    _error(streams.request("POST", _path(name, "/claim"), {"worker": "w"}), 400, "INVALID_REQUEST")
    _error(streams.request("POST", _path("nobody", "/claim"), {"worker": "w"}), 404, "SUBSCRIPTION_NOT_FOUND")
    _error(streams.request("POST", _path(name, "/claim"), {"worker": ""}), 400, "INVALID_REQUEST")


def test_streams_that_are_deleted_and_made_again_begin_anew(streams: StreamsClient, name: str) -> None:
    path = f"{name}/events/a"
    streams.create(path, body=[1, 2, 3])
    _put(streams, name, _pull(name, pattern=f"{name}/events/*", streams=[f"{name}/named"]))
    assert _acked(streams, name)[path] != START
    assert streams.request("DELETE", path).status_code == 204
    assert _acked(streams, name) == {f"{name}/named": START}
    streams.create(path, body=[1])
    assert _acked(streams, name) == {f"{name}/named": START, path: START}
    assert [told["has_pending"] for told in _claim(streams, name)["streams"] if told["path"] == path] == [True]


def test_topics_are_streams_too(streams: StreamsClient, name: str) -> None:
    _put(streams, name, _pull(name, pattern=f"{name}-topic"))
    assert streams.request("PUT", f"/v0/topics/{name}-topic").status_code == 201
    written = streams.request(
        "POST", f"/v0/topics/{name}-topic", {"records": [{"data": 1}]}, headers={"content-type": JSON}
    )
    assert written.status_code == 200, written.text
    assert _claim(streams, name)["streams"][0]["path"] == f"{name}-topic"


# --- restarts and keys -----------------------------------------------------------------------------------------------


def test_everything_survives_a_kill(start_server: StartServer, name: str, receiver: WebhookReceiver) -> None:
    server = start_server(webhook_allow_loopback=True)
    streams = StreamsClient(server.url)
    hook = _put(streams, "hook", _webhook(receiver, pattern=f"{name}/*"))
    _put(streams, "pull", _pull(name, pattern=f"{name}/*"))
    streams.create(f"{name}/a", body=[1])
    told = receiver.next()
    assert _callback(streams, told, done=False).status_code == 200
    claim = _claim(streams, "pull")
    tail = claim["streams"][0]["tail_offset"]
    ack = {"stream": f"{name}/a", "offset": tail}
    assert _ack(streams, "pull", claim, acks=[ack]).status_code == 200
    streams.close()

    server.kill()
    server.start(server.port)
    streams = StreamsClient(server.url)
    assert _acked(streams, "pull") == {f"{name}/a": tail}
    assert _get(streams, "hook")["webhook"]["signing"]["kid"] == hook["webhook"]["signing"]["kid"]
    assert told.verified_by(streams.request("GET", f"{ROOT}/jwks.json").json())
    busy = streams.request("POST", _path("pull", "/claim"), {"worker": "other"})
    assert _error(busy, 409, "ALREADY_CLAIMED")["current_holder"] == "worker-1"
    assert _ack(streams, "pull", claim, done=True).json() == {"ok": True, "next_wake": False}
    assert _callback(streams, told, acks=[ack], done=True).json() == {"ok": True, "next_wake": False}
    assert receiver.empty
    streams.append(f"{name}/a", [2])
    assert receiver.next().body["generation"] == 2
    assert _claim(streams, "pull")["generation"] == 2
    streams.close()


def test_a_webhook_that_was_never_delivered_is_sent_after_a_kill(
    start_server: StartServer, name: str, receiver: WebhookReceiver
) -> None:
    server = start_server(webhook_allow_loopback=True)
    streams = StreamsClient(server.url)
    receiver.answers = [(503, {})]
    _put(streams, "hook", _webhook(receiver, pattern=f"{name}/*"))
    streams.create(f"{name}/a", body=[1])
    before = receiver.next().body
    streams.close()
    server.kill()
    while not receiver.empty:
        receiver.next()
    receiver.answers = [(200, {"done": True})]
    server.start()
    after = receiver.next().body
    assert (after["wake_id"], after["generation"]) == (before["wake_id"], before["generation"])
    streams = StreamsClient(server.url)
    eventually(lambda: START not in _acked(streams, "hook").values())
    streams.close()


def test_keys_limit_what_a_subscription_can_be_about(start_server: StartServer, receiver: WebhookReceiver) -> None:
    server = start_server(keys="all,mine::mine/,reader:read+write:mine/,other::other/", webhook_allow_loopback=True)
    everything, mine = StreamsClient(server.url, "all"), StreamsClient(server.url, "mine")
    reader, other, nobody = (StreamsClient(server.url, key) for key in ("reader", "other", ""))
    for body in (
        _webhook(receiver, pattern="**"),
        _webhook(receiver, pattern="mine/**"),
        _webhook(receiver, streams=["mine/a", "other/a"]),
        _pull("other", pattern="mine/*"),
    ):
        _error(mine.request("PUT", _path("sub"), body), 403, "forbidden")
    assert everything.request("HEAD", "other/wakes").status_code == 404
    _error(reader.request("PUT", _path("sub"), _pull("mine", pattern="mine/*")), 403, "forbidden")
    _put(mine, "sub", _pull("mine", pattern="mine/events/*"))
    _put(everything, "hook", _webhook(receiver, pattern="**"))
    for method, rest in (("GET", ""), ("DELETE", ""), ("POST", "/claim"), ("POST", "/streams")):
        body = {"streams": ["other/a"]} if rest == "/streams" else {"worker": "w"}
        _error(other.request(method, _path("sub", rest), body), 403, "forbidden")
        assert nobody.request(method, _path("sub", rest), {"worker": "w"}).status_code == 401
    _error(mine.request("GET", _path("hook")), 403, "forbidden")
    assert nobody.request("GET", f"{ROOT}/jwks.json").status_code == 200, "whoever verifies needs no key"

    mine.create("mine/events/a", body=[1])
    told = receiver.next()
    assert _callback(nobody, told, done=True).status_code == 200, "the token is what counts"
    claim = _claim(reader, "sub")
    ack = {"stream": "mine/events/a", "offset": claim["streams"][0]["tail_offset"]}
    assert _ack(nobody, "sub", claim, acks=[ack], done=True).status_code == 200
    _error(mine.request("POST", _path("sub", "/ack"), {"wake_id": "w", "generation": 1}), 401, "TOKEN_INVALID")
    for client in (everything, mine, reader, other, nobody):
        client.close()


def test_a_fork_is_a_stream_of_its_own_with_everything_that_it_holds(streams: StreamsClient, name: str) -> None:
    streams.create(f"{name}/events/source", body=[1, 2])
    _put(streams, name, _pull(name, pattern=f"{name}/events/*"))
    fork = {"stream_forked_from": f"/v1/stream/{name}/events/source"}
    streams.create(f"{name}/events/fork", **fork)
    told = {stream["path"]: stream for stream in _claim(streams, name)["streams"]}
    assert told[f"{name}/events/source"]["has_pending"] is False
    assert told[f"{name}/events/fork"]["acked_offset"] == START
    assert told[f"{name}/events/fork"]["tail_offset"] == told[f"{name}/events/source"]["tail_offset"]
    assert streams.request("DELETE", f"{name}/events/source").status_code == 204
    assert list(_acked(streams, name)) == [f"{name}/events/fork"], "what is only kept for its forks is gone"


def test_a_stream_that_expires_is_gone(streams: StreamsClient, name: str) -> None:
    _put(streams, name, _pull(name, pattern=f"{name}/events/*"))
    streams.create(f"{name}/events/a", stream_expires_at="2001-01-01T00:00:00Z")
    eventually(lambda: _acked(streams, name) == {})
    _error(streams.request("POST", _path(name, "/claim"), {"worker": "w"}), 409, "NO_PENDING_WORK")


def test_kills_lose_no_wake_and_use_no_generation_twice(
    start_server: StartServer, name: str, receiver: WebhookReceiver
) -> None:
    server = start_server(webhook_allow_loopback=True)
    receiver.answers = [(200, {"done": True})]
    streams = StreamsClient(server.url)
    _put(streams, "hook", _webhook(receiver, pattern=f"{name}/*"))
    for number in range(3):
        for path in ("a", "b", f"c{number}"):
            streams.request("PUT", f"{name}/{path}", [number], headers={"content-type": JSON})
            streams.append(f"{name}/{path}", [number])
        streams.close()
        server.kill()
        server.start()
        streams = StreamsClient(server.url)
    tails = {
        f"{name}/{path}": streams.request("HEAD", f"{name}/{path}").headers["stream-next-offset"]
        for path in ("a", "b", "c0", "c1", "c2")
    }
    eventually(lambda: _acked(streams, "hook") == tails)
    wakes: dict[int, str] = {}
    while not receiver.empty:
        told = receiver.next().body
        assert wakes.setdefault(told["generation"], told["wake_id"]) == told["wake_id"]
    assert wakes
    streams.close()
