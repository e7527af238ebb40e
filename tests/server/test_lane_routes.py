"""Every route of every protocol gives the same answers on both lanes, byte for byte but for times and counters.

Other tests run on the fast lane only. So everything that a lane does to an answer is compared here: statuses, headers,
bodies of all kinds, errors, event streams, compression, bodies and answers of many pieces.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import httpx
import pytest
from support.arrow_client import ARROW, encode, table
from support.every_protocol import COLLECTIONS
from support.lanes import Lanes, both_lanes, send, without_times
from support.raw_http import RawConnection
from support.tables_client import POLLS

JSON = "application/json"
#: What a route's path names. The names stand for logs, jobs and documents that the module's servers have.
NAMES = {"path": "open/doc", "name": "stream", "topic": "log", "id": "subscription", "stream": "stream", "key": "k"}
#: Their bodies say what the server has counted so far: only their heads are compared.
COUNTING = {
    "/v0/metrics",
    "/metrics",
    "/v1/server/_details",
    "/v1/server/_mem",
    "/console/api/history",
    "/console/api/overview",
    "/v0/backups",
    "/v0/clients",
    "/pipeline",
}
KEYS = "boss,reader:r,tenant::orders"


def ask(method: str, path: str, body: bytes | None = None, content_type: str = JSON, *headers: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "host: localhost", *headers]
    if body is not None:
        lines += [f"content-type: {content_type}", f"content-length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b"")


def post(path: str, body: Any, *headers: str) -> bytes:
    return ask("POST", path, json.dumps(body).encode(), JSON, *headers)


def settled(answer: bytes) -> bytes:
    """Without what differs from one server to another: ids and tokens that are made of random bytes, ports, rates."""
    answer = re.sub(rb"HTTP/1\.1 \d+ .*?(?=\r\n\r\n)", in_order, answer, flags=re.DOTALL)
    answer = re.sub(rb"http://(127\.0\.0\.1|localhost):\d+", b"http://server", answer)
    answer = re.sub(rb'"(directory|\w*id|\w*Id|\w*token|etag|x)":"[^"]*"', rb'"\1":"R"', answer)
    answer = re.sub(rb"(?i)(etag): [^\r]+", rb"\1: R", answer)
    answer = re.sub(rb"\d{4}-\d\d-\d\dT[\d:.]+Z", b"T", answer)
    answer = re.sub(rb'"recent":\[[^\]]*\]', b'"recent":[N]', answer)
    return re.sub(rb'"(uptime\w*|\w*rate\w*|\w*_per_second|effective_priority)":[\d.e-]+', rb'"\1":N', answer)


def in_order(head: re.Match[bytes]) -> bytes:
    """A head with its headers in alphabetical order: the order has no meaning, and the lanes differ in it."""
    first, *lines = head[0].split(b"\r\n")
    return b"\r\n".join([first, *sorted(lines)])


def same(lanes: Lanes, talk: Callable[[RawConnection], bytes]) -> bytes:
    return lanes.both(lambda connection: settled(talk(connection)))


@pytest.fixture(scope="module")
def lanes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lanes]:
    directory = tmp_path_factory.mktemp("lanes")
    (directory / "collections.json").write_text(json.dumps(COLLECTIONS))
    settings = {
        "declare": POLLS,
        "config_file": directory / "collections.json",
        "config_endpoint": "public",
        "webhook_allow_loopback": True,
        "allowed_origins": "https://page.example",
    }
    with both_lanes(directory, settings=settings) as lanes:
        same(
            lanes,
            send(
                post("/v0/topics/log", {"records": [{"data": 1, "tag": "t"}, {"data": [2]}]}),
                post("/v0/topics/jobs", {"records": [{"data": 1}], "config": {"type": "queue"}}),
                ask("PUT", "/v1/stream/stream", b'[{"a":1},{"a":2}]'),
                post("/push/open/doc", {"data": {"a": 1}}),
                post("/tables/poll/append", {"parent": "site", "payload": {"title": "a"}}, "strandline-user: bob"),
            ),
        )
        yield lanes


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lanes]:
    with both_lanes(tmp_path_factory.mktemp("guarded"), keys=KEYS, settings={"declare": POLLS}) as lanes:
        yield lanes


@cache
def routes(url: str, key: str = "") -> list[tuple[str, str]]:
    """Method and path of every route that the server describes, with names in the places of parameters."""
    headers = {"authorization": f"Bearer {key}"} if key else {}
    described = httpx.get(f"{url}/openapi.json", headers=headers, timeout=60, trust_env=False).json()
    # One declared table has all the routes that the others have.
    return [
        (method.upper(), re.sub(r"\{(\w+)\}", lambda parameter: NAMES.get(parameter[1], "absent"), path))
        for path, operations in described["paths"].items()
        for method in operations
        if method in ("get", "put", "post", "delete", "head") and re.match(r"/tables/(?!vote/)", path) is None
    ]


def one_answer(one: bytes, counting: bool) -> Callable[[RawConnection], bytes]:
    """The answer to one request; of an event stream, its head."""

    def talk(connection: RawConnection) -> bytes:
        connection.send(one)
        head, body = connection.answer(has_body=not one.startswith(b"HEAD"))
        if b"text/event-stream" in head:
            # In the fast lane the connection ends with the stream, and the head says so.
            head = head.replace(b"\r\nconnection: close", b"")
        if counting:
            body = b""
        return head + b"\r\n\r\n" + body

    return talk


VARIANTS: dict[str, Callable[[str, str], bytes]] = {
    "nothing": lambda method, path: ask(method, path),
    "an empty body": lambda method, path: ask(method, path, b""),
    "an empty object": lambda method, path: ask(method, path, b"{}"),
    "half of an object": lambda method, path: ask(method, path, b'{"a":'),
    "another type": lambda method, path: ask(method, path, b"<a/>", "application/xml"),
    "what is not gzip": lambda method, path: ask(method, path, b"{}", JSON, "content-encoding: gzip"),
    "an unknown member": lambda method, path: ask(method, path, b'{"no_such_member":1}'),
    "an unknown parameter": lambda method, path: ask(method, f"{path}?no_such=1&limit=x&from_seq=-1&offset=x"),
    "a page": lambda method, path: ask(method, path, None, JSON, "origin: https://page.example"),
    "a foreign page": lambda method, path: ask(method, path, None, JSON, "origin: https://evil.example"),
    "a preflight": lambda method, path: ask(
        "OPTIONS", path, None, JSON, "origin: https://page.example", f"access-control-request-method: {method}"
    ),
    "another host": lambda method, path: ask(method, path).replace(b"host: localhost", b"host: evil.example"),
    "another method": lambda method, path: ask("PATCH", path, b"{}"),
    "a head": lambda method, path: ask("HEAD", path),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_route_gives_the_same_answer(lanes: Lanes, variant: str) -> None:
    for method, path in routes(lanes.fast.url):
        if method == "DELETE" and path in ("/v0/topics/log", "/v1/stream/stream"):
            continue  # The other variants need them.
        answer = same(lanes, one_answer(VARIANTS[variant](method, path), path in COUNTING))
        assert answer.startswith(b"HTTP/1.1 "), f"{method} {path}"
        assert b" 500 " not in answer.partition(b"\r\n")[0], f"{method} {path}"


#: Streams define what HEAD answers there.
OWN_HEAD = {"/v1/stream/stream", "/v1/stream/__ds/absent"}
#: Headers of the connection, and values that differ from one request to the next.
CHANGING = {b"date", b"content-length", b"connection", b"transfer-encoding", b"etag", b"stream-cursor"}


def shown_headers(head: bytes) -> dict[bytes, bytes]:
    lines = (line.partition(b": ") for line in head.split(b"\r\n")[1:])
    return {name.lower(): value for name, _, value in lines if name.lower() not in CHANGING}


def test_head_is_get_without_a_body_at_every_route(lanes: Lanes) -> None:
    paths = [path for method, path in routes(lanes.fast.url) if method == "GET" and path not in OWN_HEAD]
    streams = 0
    for server in (lanes.fast, lanes.asgi):
        for path in paths:
            with RawConnection(server.url) as connection:
                connection.send(ask("HEAD", path))
                head, _ = connection.answer(has_body=False)
                # The connection goes on: no byte of a body is in between.
                connection.send(ask("GET", path))
                get, body = connection.answer()
            assert head.partition(b"\r\n")[0] == get.partition(b"\r\n")[0], path
            assert shown_headers(head) == shown_headers(get), path
            if b"transfer-encoding" in get.lower():
                streams += 1
                assert b"content-length" not in head.lower(), path
            elif path not in COUNTING:
                length = re.search(rb"(?i)content-length: (\d+)", head)
                assert length is not None, path
                # Times in the bodies may have another number of digits.
                assert abs(int(length[1]) - len(body)) < 20, path
    assert streams, "event streams answer, too"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v0/topics/log", {"error": {"code": "method_not_allowed"}}),
        ("/v1/stream/stream", {"error": {"code": "method_not_allowed"}}),
        ("/arrow/logs", {"error": {"code": "method_not_allowed"}}),
        ("/tables/poll/append", {"error": {"code": "METHOD_NOT_ALLOWED", "table": "poll", "op": "append"}}),
        ("/pull/open/doc", {"error": "/pull/open/doc does not support PATCH; see the Allow header"}),
    ],
)
def test_a_method_is_refused_in_the_shape_of_the_protocol(lanes: Lanes, path: str, body: dict[str, Any]) -> None:
    answer = same(lanes, send(ask("PATCH", path)))
    assert answer.startswith(b"HTTP/1.1 405 ")
    assert b"\r\nallow: " in answer
    error = json.loads(answer.partition(b"\r\n\r\n")[2])["error"]
    expected = body["error"]
    assert error == expected if isinstance(expected, str) else expected.items() <= error.items()


@pytest.mark.parametrize("key", ["", "wrong", "reader", "tenant"])
def test_keys_are_checked_alike(guarded: Lanes, key: str) -> None:
    header = [f"authorization: Bearer {key}"] if key else []
    refused = 0
    for method, path in routes(guarded.fast.url, "boss"):
        answer = same(guarded, one_answer(ask(method, path, None, JSON, *header), path in COUNTING))
        refused += answer.startswith((b"HTTP/1.1 401 ", b"HTTP/1.1 403 ", b"HTTP/1.1 404 "))
    assert refused


STREAM = "/v1/stream/talk"
SITE = {"parent": "s"}
USER = "strandline-user: bob"
CONVERSATIONS: dict[str, list[bytes]] = {
    "streams": [
        ask("PUT", STREAM, b'[{"a":1}]'),
        ask("PUT", STREAM, b""),
        ask("POST", STREAM, b'[{"a":2},{"a":3}]'),
        ask("POST", STREAM, b'{"a":4}', JSON, "stream-key: k"),
        ask("GET", STREAM),
        ask("GET", STREAM + "?offset=-1&limit=1"),
        ask("GET", STREAM + "?offset=now"),
        ask("GET", STREAM + "?offset=now&live=long-poll&timeout_ms=1"),
        ask("HEAD", STREAM),
        ask("GET", STREAM + "/pk/k"),
        ask("POST", STREAM + "/_search", b'{"q":"a:1"}'),
        ask("GET", STREAM + "/_details"),
        ask("POST", STREAM, b"", JSON, "stream-closed: true"),
        ask("POST", STREAM, b"[5]"),
        ask("PUT", STREAM + "-fork", None, JSON, f"stream-forked-from: {STREAM}", "content-length: 0"),
        ask("GET", STREAM + "-fork"),
        ask("DELETE", STREAM + "-fork"),
        ask("PUT", STREAM + "-bytes", b"\x00\xff", "application/octet-stream"),
        ask("GET", STREAM + "-bytes"),
        ask("GET", STREAM + "-bytes", None, JSON, "if-none-match: *"),
        ask("DELETE", STREAM + "-bytes"),
        ask("GET", STREAM + "-bytes"),
    ],
    "subscriptions": [
        ask("PUT", "/v1/stream/__ds/subscriptions/s", b'{"type":"pull-wake","pattern":"x/*","wake_stream":"w"}'),
        ask("GET", "/v1/stream/__ds/subscriptions/s"),
        ask("POST", "/v1/stream/__ds/subscriptions/s/claim", b'{"worker":"w"}'),
        ask("POST", "/v1/stream/__ds/subscriptions/s/ack", b'{"wake_id":"no","acks":[]}'),
        ask("DELETE", "/v1/stream/__ds/subscriptions/s"),
    ],
    "collections": [
        post("/push/open/talk", {"data": {"a": 1}}),
        post("/push/open/talk", {"data": {"a": 2}}),
        post("/push/open/talk", {"nothing": 1}),
        ask("GET", "/pull/open/talk"),
        ask("GET", "/pull/open/talk?last=1"),
        ask("GET", "/pull/open/nothing"),
        ask("GET", "/pull/unknown/talk"),
        ask("GET", "/config"),
    ],
    "tables": [
        post("/tables/poll/append", {**SITE, "payload": {"title": "one"}, "idempotencyKey": "a"}, USER),
        post("/tables/poll/append", {**SITE, "payload": {"title": "one"}, "idempotencyKey": "a"}, USER),
        post("/tables/poll/append", {**SITE, "payload": {"title": 1}}, USER),
        post("/tables/poll/appendBulk", {**SITE, "items": [{"payload": {"title": "two"}}]}, USER),
        ask("GET", "/tables/poll/pub/list?parent=s"),
        ask("GET", "/tables/poll/auth/counts?parent=s", None, JSON, USER),
        ask("GET", "/tables/vote/pub/list?parent=none"),
    ],
    "arrow": [
        ask("POST", "/arrow/records/columns?create=true", encode(table(1, {"a": 2})), ARROW),
        ask("POST", "/arrow/records/columns", b"no table", ARROW),
        ask("GET", "/arrow/logs"),
        ask("GET", "/arrow/logs/columns"),
    ],
    "documentation": [
        ask("GET", "/"),
        ask("GET", "/", None, JSON, "accept: text/html"),
        ask("GET", "/docs"),
        ask("GET", "/docs/"),
        ask("GET", "/docs/nothing"),
        ask("GET", "/docs/api"),
        ask("GET", "/docs/api/"),
        ask("GET", "/docs/api/viewer.js"),
        ask("GET", "/docs/api/swagger-ui/swagger-ui.css", None, JSON, "accept-encoding: gzip"),
        ask("GET", "/docs/api/nothing.js"),
    ],
    "console": [
        ask("GET", "/console"),
        ask("GET", "/console/"),
        ask("GET", "/console/", None, JSON, "accept-encoding: gzip"),
        ask("GET", "/console/nothing.js"),
        ask("GET", "/console/api/session"),
        ask("GET", "/console/api/log/log"),
        ask("GET", "/console/api/log/log/records"),
        ask("GET", "/console/api/queue/jobs"),
        ask("GET", "/console/api/logs?limit=2"),
    ],
}


@pytest.mark.parametrize("protocol", CONVERSATIONS)
def test_conversations(lanes: Lanes, protocol: str) -> None:
    answer = same(lanes, send(*CONVERSATIONS[protocol]))
    assert answer.count(b"HTTP/1.1 2") >= 3


def first_event(one: bytes) -> Callable[[RawConnection], bytes]:
    """Head and first event of a stream, without the sizes of its pieces."""

    def talk(connection: RawConnection) -> bytes:
        connection.send(one)
        head, _ = connection.answer()
        assert b"text/event-stream" in head, head
        received = b""
        while b"data:" not in received or b"\n\n" not in received.partition(b"data:")[2]:
            received += connection.some()
        body = re.sub(rb"\r\n[0-9a-f]+\r\n|^[0-9a-f]+\r\n", b"", received)
        event = body[: body.index(b"\n\n", body.index(b"data:"))]
        return head.replace(b"\r\nconnection: close", b"") + b"\r\n\r\n" + event

    return talk


@pytest.mark.parametrize(
    "path",
    [
        "/v1/stream/stream?offset=-1&live=sse",
        "/v0/topics/jobs/work?node=n",
        "/tables/poll/pub/live?parent=site",
        "/console/api/log/log/tail?after=0",
        "/live/open/doc?checkpoint=0",
    ],
)
def test_event_streams_begin_alike(lanes: Lanes, path: str) -> None:
    answer = same(lanes, first_event(ask("GET", path, None, JSON, "accept: text/event-stream")))
    assert answer.startswith(b"HTTP/1.1 200 ")


def test_a_watch_begins_alike(lanes: Lanes) -> None:
    opened = []
    for server in (lanes.fast, lanes.asgi):
        watch = {"topics": {"log": {"from_seq": 0}}}
        wid = httpx.post(f"{server.url}/v0/watch", json=watch, trust_env=False).json()["wid"]
        with RawConnection(server.url) as connection:
            answer = first_event(ask("GET", f"/v0/watch/{wid}", None, JSON, "accept: text/event-stream"))(connection)
        opened.append(settled(without_times(answer)).replace(wid.encode(), b"W"))
    assert opened[0] == opened[1]


def test_a_stream_that_ends_gives_the_same_bytes(lanes: Lanes) -> None:
    lanes.both(
        send(
            ask("PUT", "/v1/stream/ended", b'[{"a":1},{"a":2}]'),
            ask("POST", "/v1/stream/ended", b"", JSON, "stream-closed: true"),
        )
    )
    bodies = [
        httpx.get(f"{server.url}/v1/stream/ended?offset=-1&live=sse", timeout=30, trust_env=False).content
        for server in (lanes.fast, lanes.asgi)
    ]
    assert bodies[0] == bodies[1]
    assert b"event: data" in bodies[0]


def test_an_arrow_answer_has_the_same_rows(lanes: Lanes) -> None:
    """Pieces of an Arrow stream end where the server flushed them, so the bytes are compared without the pieces."""
    same(lanes, one_answer(ask("POST", "/arrow/records/rows?create=true", encode(table(*range(5000))), ARROW), False))
    answers = [httpx.get(f"{server.url}/arrow/records/rows", trust_env=False) for server in (lanes.fast, lanes.asgi)]
    heads = [{name: value for name, value in answer.headers.items() if name != "date"} for answer in answers]
    for head in heads:
        head.pop("connection", None)
    assert heads[0] == heads[1]
    assert len(answers[0].content) == len(answers[1].content) > 5000


LARGE = b"".join(b"%d," % number for number in range(300_000))


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_large_bodies_and_answers(lanes: Lanes, packed: bool) -> None:
    path = f"/v1/stream/large-{packed}"
    body = gzip.compress(LARGE, mtime=0) if packed else LARGE
    header = ["content-encoding: gzip"] if packed else []
    accept = ["accept-encoding: gzip"] if packed else []
    answer = same(
        lanes,
        send(
            ask("PUT", path, b"", "text/plain"),
            ask("POST", path, body, "text/plain", *header),
            ask("GET", path + "?offset=-1", None, JSON, *accept),
        ),
    )
    assert (b"content-encoding: gzip" in answer.lower()) is packed
    assert packed or LARGE in answer
