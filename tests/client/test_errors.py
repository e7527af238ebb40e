"""What servers say when they refuse, as exceptions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from support.either_client import Run
from support.server_process import ServerProcess

from strandline.client import (
    BadRequest,
    Busy,
    Closed,
    Conflict,
    Fenced,
    Forbidden,
    Full,
    Gone,
    NotAuthenticated,
    NotFound,
    Refused,
    ServerFault,
)
from strandline.client.errors import refusal


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, "invalid_request", BadRequest),
        (401, "unauthorized", NotAuthenticated),
        (403, "forbidden", Forbidden),
        (403, "stale_epoch", Fenced),
        (404, "topic_not_found", NotFound),
        (405, "method_not_allowed", BadRequest),
        (409, "not_a_queue", Conflict),
        (410, "gone", Gone),
        (413, "payload_too_large", BadRequest),
        (422, "topic_full", Full),
        (429, "throttled", Busy),
        (429, "RATE_LIMITED", Busy),
        (500, "internal", ServerFault),
        (503, "not_ready", Busy),
        (507, "disk_full", Full),
        (400, "VALIDATION_FAILED", BadRequest),
        (409, "CONFLICT", Conflict),
    ],
)
def test_codes_have_their_exceptions(status: int, code: str, kind: type[Refused]) -> None:
    error = refusal(status, {}, b'{"error":{"code":"%b","message":"why"}}' % code.encode())
    assert type(error) is kind
    assert (error.status, error.code, error.message, str(error)) == (status, code, "why", f"why ({status} {code})")


def test_everything_that_the_answer_says_is_kept() -> None:
    topics = refusal(404, {}, b'{"error":{"code":"topic_not_found","message":"no","detail":{"topic":"x"}}}')
    assert topics.detail == {"topic": "x"}
    tables = refusal(400, {}, b'{"error":{"code":"VALIDATION_FAILED","message":"no","fields":["a"]}}')
    assert tables.detail == {"fields": ["a"]}
    collections = refusal(403, {}, b'{"error":"op_not_in_scope","collection":"posts"}')
    assert (collections.code, collections.detail) == ("op_not_in_scope", {"collection": "posts"})


@pytest.mark.parametrize("body", [b"", b"<html>nobody home</html>", b"[1]", b'{"error":7}', b"\xff"])
def test_what_is_no_error_of_a_strandline_is_shown_as_it_is(body: bytes) -> None:
    error = refusal(502, {}, body)
    assert (type(error), error.code) == (ServerFault, "")


def test_a_closed_stream_is_told_from_other_conflicts() -> None:
    assert type(refusal(409, {"stream-closed": "true"}, b"")) is Closed


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    process = ServerProcess(tmp_path_factory.mktemp("guarded") / "data", keys="s3cret,reader:read")
    try:
        yield process.start()
    finally:
        process.end()


def test_keys_open_doors(run: Run, guarded: ServerProcess, name: str) -> None:

    async def without_a_key(client: Any) -> None:
        with pytest.raises(NotAuthenticated):
            await client.topic(name).write(1)

    async def may_only_read(client: Any) -> None:
        with pytest.raises(Forbidden) as caught:
            await client.topic(name).write(1)
        assert caught.value.message == "the API key lacks the write scope"

    async def may_do_everything(client: Any) -> None:
        await client.topic(name).write(1)
        async with client.topic(name).tail(0) as tail:
            assert (await tail.__anext__()).data == 1

    run(without_a_key, guarded.url)
    run(may_only_read, guarded.url, key="reader")
    run(may_do_everything, guarded.url, key="s3cret")
