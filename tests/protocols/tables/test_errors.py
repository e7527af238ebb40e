"""Every error code of tables, with its status and its body."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from support.raw_http import RawConnection
from support.tables_client import POLLS, Bed, TablesClient

from strandline.engine.errors import (
    DiskFull,
)
from strandline.protocols.tables.errors import PROBLEMS, Errors
from strandline.server.application import Application
from strandline.server.declarations import load
from strandline.server.settings import ServerSettings, Settings, StorageSettings
from strandline.service.problems import (
    INTERNAL,
    NOT_READY,
    PAYLOAD_TOO_LARGE,
    SHUTTING_DOWN,
    THROTTLED,
    UNAUTHORIZED,
    Refusal,
)

Ask = Callable[[TablesClient], httpx.Response]


def post(path: str, body: Any, **headers: str) -> Ask:
    return lambda client: client.request("POST", path, body, headers=headers)


def get(path: str, **headers: str) -> Ask:
    return lambda client: client.request("GET", path, headers=headers)


def check(response: httpx.Response, code: str) -> Any:
    """The error; it is as everybody would expect it to be."""
    problem = PROBLEMS[code]
    assert response.status_code == problem.status, response.text
    assert response.headers["content-type"].startswith("application/json")
    assert response.headers["cross-origin-resource-policy"] == "same-origin", "what browsers need is on errors too"
    body = response.json()
    assert set(body) == {"error"}
    error = body["error"]
    assert error["code"] == code
    assert error["message"]
    assert ("retry-after" in response.headers) == problem.retry
    assert ("www-authenticate" in response.headers) == (problem.status == 401)
    return error


@pytest.mark.parametrize(
    ("code", "ask"),
    [
        ("VALIDATION_FAILED", post("/tables/note/append", {"parent": "p"})),
        ("VALIDATION_FAILED", get("/tables/note/auth/list")),
        ("FORBIDDEN", post("/tables/note/purgeByParent", {"parent": "p"})),
        ("NOT_FOUND", post("/tables/note/update", {"id": "nowhere:1", "patch": {"a": 1}})),
        ("NOT_FOUND", post("/tables/nothing/append", {"parent": "p", "payload": {}})),
        ("NOT_FOUND", post("/tables/note/uproot", {})),
        ("NOT_FOUND", get("/tables/nothing/pub/list?parent=p")),
        ("NOT_FOUND", get("/tables/note/pub/list?parent=p")),
        ("NOT_FOUND", get("/tables/note/auth/search?parent=p&query=x")),
        ("NOT_FOUND", get("/tables/note/every/list?parent=p")),
        ("NOT_ACCEPTABLE", get("/tables/note/auth/live?parent=p", accept="application/json")),
        ("CONFLICT", get("/tables/note/auth/live?parent=p&after=99.99")),
        ("UNSUPPORTED_MEDIA_TYPE", post("/tables/note/append", b"{}", **{"content-type": "text/plain"})),
        ("UNSUPPORTED_MEDIA_TYPE", post("/tables/note/append", b"{}", **{"content-encoding": "br"})),
    ],
)
def test_a_refusal_is_in_the_words_of_tables(bed: Bed, code: str, ask: Ask) -> None:
    check(ask(bed.user("bob")), code)


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        ("/tables/votes/append", 404, "table 'votes' does not exist; did you mean 'vote'?"),
        ("/tables/vote/auth/list?parent=p&lmit=1", 400, "unknown parameter 'lmit'; did you mean 'limit'?"),
        ("/tables/vote/auth/live?parent=p&afer=now", 400, "unknown parameter 'afer'; did you mean 'after'?"),
        ("/tables/vote/auth/read?id=p:1&token=secret", 400, "unknown parameter 'token'; expected id"),
        ("/tables/vote/auth/indexed?parent=p&by=x", 400, "unknown parameter 'by'; expected parent, indexBy, limit"),
        (
            "/tables/vote/auth/list?parent=p&paginationOpts=%7B%22numItem%22:1%7D",
            400,
            "paginationOpts: unknown member 'numItem'; did you mean 'numItems'?",
        ),
    ],
)
def test_a_refusal_of_a_misspelt_name_has_the_nearest_one(bed: Bed, path: str, status: int, message: str) -> None:
    assert bed.user("ann").refusal("GET", path, status=status)["message"] == message


def test_another_method_is_refused_by_the_server_itself(bed: Bed) -> None:
    response = bed.user("bob").request("GET", "/tables/note/append")
    assert (response.status_code, response.headers["allow"]) == (405, "OPTIONS, POST")


def test_too_many_rows_at_a_time_are_limited(bed: Bed, parent: str) -> None:
    bob = bed.user(f"bob of {parent}")
    for at in range(3):
        bob.append("limited", parent, {"at": at}, idempotencyKey=f"k{at}")
    response = bob.request("POST", "/tables/limited/append", {"parent": parent, "payload": {}})
    error = check(response, "RATE_LIMITED")
    assert error["limit"] == {"max": 3, "remaining": 0, "window": 3_600_000}
    assert 0 < error["retryAfter"] <= 3_600_000
    # Whole seconds, and never too early.
    assert int(response.headers["retry-after"]) * 1000 >= error["retryAfter"]
    assert (error["table"], error["op"]) == ("limited", "append")
    # A repetition is no further row, and others are not concerned.
    assert bob.append("limited", parent, {}, idempotencyKey="k0")["created"] is False
    assert bed.user(f"eve of {parent}").append("limited", parent)["created"]


def test_no_other_protocol_takes_the_name_of_a_parent(bed: Bed, parent: str) -> None:
    bob = bed.user("bob")
    bob.call("PUT", f"/v1/stream/note/{parent}", headers={"content-type": "application/json"}, status=409)
    assert bob.request("POST", "/tables/note/append", {"parent": parent, "payload": {}}).status_code < 300


def test_other_protocols_read_rows_and_append_none(bed: Bed, parent: str) -> None:
    bob = bed.user("bob")
    bob.append("note", parent, {"a": 1})
    page = bob.call("GET", f"/v1/stream/note/{parent}", params={"offset": "-1", "format": "json"})
    assert page == [{"a": 1}]
    response = bob.request("POST", f"/v1/stream/note/{parent}", [{"a": 2}])
    assert (response.status_code, "table" in response.text) == (409, True)


def test_a_body_that_is_too_large_is_refused_before_it_comes(bed: Bed) -> None:
    head = (
        "POST /tables/note/append HTTP/1.1",
        "host: localhost",
        "content-type: application/json",
        "content-length: 99999999",
    )
    with RawConnection(bed.server.url) as connection:
        connection.send("\r\n".join((*head, "", "")).encode())
        answer, body = connection.answer()
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert msgspec.json.decode(body)["error"]["code"] == "PAYLOAD_TOO_LARGE"


@pytest.mark.parametrize(
    ("refusal", "code"),
    [
        (Refusal(UNAUTHORIZED, "a key is required"), "NOT_AUTHENTICATED"),
        (Refusal(THROTTLED, "too many", retry_after_ms=7000), "THROTTLED"),
        (Refusal(NOT_READY, "not yet", {"replay_progress": 0.5}, retry_after_ms=1000), "UNAVAILABLE"),
        (Refusal(SHUTTING_DOWN, "no more", retry_after_ms=1000), "UNAVAILABLE"),
        (Refusal(INTERNAL, "the log has the details"), "INTERNAL"),
        (Refusal(PAYLOAD_TOO_LARGE, "too large"), "PAYLOAD_TOO_LARGE"),
    ],
)
def test_the_servers_own_refusals_have_the_same_shape(refusal: Refusal, code: str) -> None:
    reply = Errors("note", "append").refuse(refusal)
    shown = msgspec.json.decode(reply.body)["error"]
    assert (reply.status, shown["code"]) == (refusal.status, code)
    assert dict(reply.headers).get(b"retry-after") == dict(refusal.headers).get(b"retry-after")


def test_a_full_disk_is_told_and_nothing_is_half_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through the whole server, with an engine that cannot write."""
    settings = Settings(
        storage=StorageSettings(data_dir=str(tmp_path / "data")), server=ServerSettings(declare=str(POLLS))
    )
    application = Application(settings, declared=load(str(POLLS)))

    async def scenario() -> None:
        async with application.app.router.lifespan_context(application.app):
            while not application.status.ready:
                await asyncio.sleep(0.01)
            transport = httpx.ASGITransport(application.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                body = {"parent": "p", "payload": {"a": 1}}
                assert (await client.post("/tables/note/append", json=body)).status_code == 200
                assert application.engine is not None

                def full(*_: object) -> None:
                    raise DiskFull("data", 100)

                with monkeypatch.context() as patched:
                    patched.setattr(application.engine.journal, "write", full)
                    patched.setattr(application.engine.journal, "write_all", full)
                    check(await client.post("/tables/note/append", json=body), "DISK_FULL")
                    check(await client.post("/tables/note/rm", json={"id": "p:1"}), "DISK_FULL")
                rows = (await client.get("/tables/note/auth/list?parent=p")).json()["page"]
                assert [row["seq"] for row in rows] == [1]
                assert (await client.post("/tables/note/append", json=body)).json()["seq"] == 2

    asyncio.run(scenario())
