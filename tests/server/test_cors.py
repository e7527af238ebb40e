"""Which hosts and web pages a server answers to: without keys only those it knows, in both lanes and all protocols."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from support.server_process import ServerProcess, StartServer
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from strandline.server.cors import Origins
from strandline.service.http import Cors, Head, Route, preflight
from strandline.service.problems import Refusal

pytestmark = pytest.mark.both_lanes

EVIL = "https://evil.example"
PAGE = "https://app.example"
#: A page on this machine.
LOCAL = "http://localhost:5173"
CORS = Cors((b"access-control-expose-headers", b"etag"), ((b"access-control-max-age", b"1"),))
ROUTE = Route(method="GET", path="/x", handler=preflight, cors=CORS)

#: Something of every protocol that a page could do harm with.
REQUESTS = [
    ("GET", "/v0/topics", None),
    ("PUT", "/v0/topics/a", b"{}"),
    ("POST", "/v0/topics/a", b'{"records":[{"data":1}]}'),
    ("POST", "/v0/topics/a/diff", b"{}"),
    ("DELETE", "/v0/topics/a", None),
    ("GET", "/v0/topics/a/work?node=n", None),
    ("GET", "/v1/streams", None),
    ("PUT", "/v1/stream/s", b""),
    ("POST", "/v1/stream/s", b"1"),
    ("GET", "/v1/stream/s", None),
    ("HEAD", "/v1/stream/s", None),
    ("DELETE", "/v1/stream/s", None),
    ("OPTIONS", "/v1/stream/s", None),
    ("POST", "/push/events/d1", b'{"data":{}}'),
    ("GET", "/pull/events/d1", None),
    ("OPTIONS", "/pull/events/d1", None),
    ("OPTIONS", "/push/events/d1", None),
    ("POST", "/tables/nothing/append", b"{}"),
    ("GET", "/tables/nothing/pub/list", None),
    ("GET", "/arrow/logs", None),
    ("GET", "/console/api/overview", None),
    ("GET", "/v0/metrics", None),
    ("GET", "/v0/health", None),
    ("GET", "/nothing/here", None),
]


def refuses(origins: Origins, route: Route | None = ROUTE, /, **headers: str) -> str:
    """The setting that a refusal names; empty if nothing is refused."""
    head = Head("GET", "/x", "", {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()})
    head.route = route
    refusal = None
    try:
        origins.check(head, None if route is None else route.cors)
    except Refusal as error:
        refusal = error
    if refusal is None:
        return ""
    assert (refusal.status, refusal.code) == (403, "forbidden")
    assert refusal.detail is not None
    setting = str(refusal.detail["setting"])
    assert f"server.{setting}" in refusal.message
    return setting


def allowed(origins: Origins, origin: str, host: str = "localhost:4000", cors: Cors = CORS) -> str | None:
    """What the reply allows to whom."""
    head = Head("GET", "/x", "", {b"host": host.encode(), b"origin": origin.encode()})
    headers = dict(origins.headers(head, Route(method="GET", path="/x", handler=preflight, cors=cors)))
    value = headers.get(b"access-control-allow-origin")
    return None if value is None else value.decode()


# --- the rule ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "known"),
    [
        ("localhost", True), ("LOCALHOST:1", True), ("localhost.", True), ("127.0.0.1:4000", True), ("[::1]", True),
        ("[::1]:4000", True), ("192.168.1.7:4000", True), ("[fe80::1]:1", True), ("listening.example:4000", True),
        ("named.example", True), ("a.below.example:9", True), ("a.b.below.example", True), ("", True),
        ("evil.example", False), ("localhost.evil.example", False), ("127.0.0.1.evil.example", False),
        ("evilnamed.example", False), ("below.example", False), ("evilbelow.example", False), ("127.0.0.1@evil", False),
        ("0x7f.1", False), ("[::1", True), ("[evil.example]", False), ("machine", False),
    ],
)  # fmt: skip
def test_hosts(host: str, known: bool) -> None:
    origins = Origins(keyed=False, listen_host="Listening.example", hosts=("Named.example", "*.below.example"))
    assert refuses(origins, host=host) == ("" if known else "allowed_hosts")
    assert refuses(origins, None, host=host) == ("" if known else "allowed_hosts")
    assert not refuses(Origins(keyed=False, hosts=("*",)), host=host)
    assert not refuses(Origins(keyed=True), host=host)


@pytest.mark.parametrize(
    ("origin", "known"),
    [
        (LOCAL, True), ("http://127.0.0.1", True), ("http://[::1]:8", True), ("https://localhost", True),
        ("http://10.0.0.5:4000", True), (PAGE, True), (PAGE.upper(), True), (EVIL, False), ("null", False), ("", False),
        ("http://10.0.0.5", False), ("http://10.0.0.5:4001", False), ("http://localhost.evil.example", False),
        (f"{PAGE}.evil.example", False), ("http://app.example", False), ("localhost", False),
    ],
)  # fmt: skip
def test_origins(origin: str, known: bool) -> None:
    host = "10.0.0.5:4000"
    for keyed in (False, True):
        origins = Origins(keyed=keyed, origins=(PAGE,))
        assert refuses(origins, host=host, origin=origin) == ("" if known or keyed else "allowed_origins")
        assert allowed(origins, origin, host) == (origin if known else None)
    everyone = Origins(keyed=False, origins=("*",))
    assert not refuses(everyone, host=host, origin=origin)
    assert allowed(everyone, origin, host) == "*"


def test_a_route_may_have_origins_of_its_own() -> None:
    origins, cors = Origins(keyed=False), Cors(CORS.exposed, CORS.preflight, frozenset({PAGE}))
    route = Route(method="GET", path="/x", handler=preflight, cors=cors)
    assert not refuses(origins, route, origin=PAGE)
    assert allowed(origins, PAGE, cors=cors) == PAGE
    assert refuses(origins, route, origin=EVIL) == refuses(origins, ROUTE, origin=PAGE) == "allowed_origins"


@pytest.mark.parametrize(
    ("host", "site", "known"),
    [
        ("localhost:1", "none", True), ("localhost:1", "same-origin", True), ("localhost:1", "same-site", True),
        ("localhost:4000", "cross-site", False), ("10.0.0.5", "same-site", False), ("10.0.0.5", "same-origin", True),
    ],
)  # fmt: skip
def test_pages_that_do_not_say_who_they_are(host: str, site: str, known: bool) -> None:
    origins = Origins(keyed=False)
    assert refuses(origins, host=host, sec_fetch_site=site) == ("" if known else "allowed_origins")
    assert not refuses(Origins(keyed=True), host=host, sec_fetch_site=site)
    # With an origin, that decides; and the files of the console are for everybody who follows a link.
    assert not refuses(origins, host=host, sec_fetch_site=site, origin=LOCAL)
    console = Route(method="GET", path="/console", handler=preflight, public=True)
    assert not refuses(origins, console, host=host, sec_fetch_site=site)


@pytest.mark.parametrize(
    ("peer", "trusted"),
    [("10.1.2.3", True), ("::ffff:10.1.2.3", True), ("::1", True), ("11.0.0.1", False), ("", False)],
)
def test_proxies(peer: str, trusted: bool) -> None:
    assert Origins(keyed=False, proxies=("10.0.0.0/8", "::1")).trusts(peer) == trusted
    assert not Origins(keyed=False).trusts(peer)


# --- over HTTP -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def open_server(lane: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    directory: Path = tmp_path_factory.mktemp(f"origin-{lane}")
    config = directory / "strandline.toml"
    config.write_text(
        '[collections]\ncors = ["https://pages.example"]\n\n'
        '[server]\nallowed_hosts = ["named.example"]\nallowed_origins = ["https://app.example"]\n\n'
        '[[collections.collection]]\nname = "events"\nstorage_path = "events/{doc}"\n'
        'read_roles = ["public"]\nwrite_roles = ["public"]\nappend_only = {require_author_signature = false}\n'
    )
    process = ServerProcess(directory / "data", fast_lane=lane == "fast", config=config)
    try:
        yield process.start()
    finally:
        process.end()


@pytest.fixture
def http(open_server: ServerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=open_server.url, trust_env=False) as client:
        yield client


@pytest.mark.parametrize(("method", "path", "body"), REQUESTS)
def test_a_page_gets_nothing_and_does_nothing(http: httpx.Client, method: str, path: str, body: bytes | None) -> None:
    before = http.get("/v0/topics").json()["topics"], http.get("/v1/streams").json()
    kind = {"content-type": "application/json"}
    attacks = [
        {"host": "evil.example"},
        {"host": "evil.example:4000", "origin": "http://evil.example:4000", "sec-fetch-site": "same-origin"},
        {"origin": EVIL},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"},
    ]
    for attack in attacks:
        for content in (kind, {"content-type": "text/plain"}):
            # The second time the fast lane knows the head.
            for _ in range(2):
                response = http.request(method, path, content=body, headers={**content, **attack})
                assert response.status_code == 403, attack
                assert "access-control-allow-origin" not in response.headers
                if method != "HEAD":
                    assert "allowed_" in response.text
    assert (http.get("/v0/topics").json()["topics"], http.get("/v1/streams").json()) == before


def test_programs_and_known_pages_are_answered(http: httpx.Client) -> None:
    for headers in (
        {},
        {"host": "named.example"},
        {"host": "192.0.2.7:4000"},
        {"origin": LOCAL, "sec-fetch-site": "same-site"},
        {"origin": PAGE, "sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "none", "sec-fetch-mode": "navigate"},
        {"sec-fetch-site": "same-origin"},
    ):
        for path in ("/v0/topics", "/v1/streams", "/arrow/logs", "/console/", "/v0/health"):
            response = http.get(path, headers=headers)
            assert response.status_code == 200, (path, headers)
        preflight = http.options("/v1/stream/s", headers=headers)
        assert preflight.status_code == 204
        assert "if-none-match" in preflight.headers["access-control-allow-headers"]
        assert preflight.headers.get("access-control-allow-origin") == headers.get("origin")
    # A link of another site may open the console, and nothing else.
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    assert http.get("/console/", headers=link).status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/health", 200),
        ("HEAD", "/health", 200),
        ("OPTIONS", "/health", 204),
        ("POST", "/health", 405),
        ("GET", "/pull/events/d1?last=1", 200),
        ("HEAD", "/pull/events/d1?last=1", 200),
        ("GET", "/pull/events/d1", 400),
        ("GET", "/push/events/d1", 405),
        ("DELETE", "/pull/events/d1", 405),
        ("PATCH", "/batch/pull", 405),
    ],
)
def test_pages_may_read_every_answer_of_collections(http: httpx.Client, method: str, path: str, status: int) -> None:
    pages = "https://pages.example"
    # The second time the fast lane knows the head.
    for _ in range(2):
        response = http.request(method, path, headers={"origin": pages})
        assert (response.status_code, response.headers.get("access-control-allow-origin")) == (status, pages)
    # The origin is one of collections only.
    assert http.request(method, "/v1/streams", headers={"origin": pages}).status_code == 403
    if status == 405:
        allowed = response.headers["allow"].split(", ")
        assert ("HEAD" in allowed) == ("GET" in allowed)
        assert method not in allowed


def test_the_error_says_what_to_set(http: httpx.Client) -> None:
    error = http.get("/v0/topics", headers={"host": "db.svc:4000"}).json()["error"]
    assert (error["code"], error["detail"]) == ("forbidden", {"setting": "allowed_hosts", "host": "db.svc"})
    assert "STRANDLINE_ALLOWED_HOSTS=db.svc" in error["message"]
    error = http.get("/v0/topics", headers={"origin": EVIL}).json()["error"]
    assert f"STRANDLINE_ALLOWED_ORIGINS={EVIL}" in error["message"]


@pytest.mark.parametrize(
    ("headers", "known"),
    [
        ({}, True), ({"Origin": LOCAL}, True), ({"Origin": PAGE}, True), ({"Origin": EVIL}, False),
        ({"Host": "evil.example"}, False), ({"Host": "evil.example", "Origin": "http://evil.example"}, False),
    ],
)  # fmt: skip
def test_a_websocket(open_server: ServerProcess, headers: dict[str, str], known: bool) -> None:
    url = open_server.url.replace("http", "ws") + "/v0/ws"
    host = {"host": headers["Host"]} if "Host" in headers else {}
    origin = headers.get("Origin")
    if host:
        # The library says the host by itself.
        response = httpx.get(
            f"{open_server.url}/v0/ws",
            headers={
                **headers,
                "connection": "upgrade",
                "upgrade": "websocket",
                "sec-websocket-version": "13",
                "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
            },
            trust_env=False,
        )
        assert response.status_code == 403
    elif known:
        with connect(url, origin=origin, proxy=None) as socket:  # type: ignore[arg-type]
            socket.send('{"op":"ping"}')
            assert socket.recv(timeout=10)
    else:
        with pytest.raises(InvalidStatus) as refused, connect(url, origin=origin, proxy=None):  # type: ignore[arg-type]
            pass
        assert refused.value.response.status_code == 403
        assert b"allowed_origins" in refused.value.response.body


def test_with_keys_a_page_needs_one_and_browsers_keep_answers_from_others(start_server: StartServer, lane: str) -> None:
    server = start_server(lane=lane, keys="secret", allowed_origins=PAGE)
    with httpx.Client(base_url=server.url, trust_env=False) as client:
        key = {"authorization": "Bearer secret", "host": "any.example"}
        for origin, told in ((PAGE, PAGE), (LOCAL, LOCAL), (EVIL, None)):
            response = client.get("/v1/streams", headers={**key, "origin": origin})
            assert response.status_code == 200
            assert response.headers.get("access-control-allow-origin") == told
            assert client.get("/v1/streams", headers={"origin": origin}).status_code == 401
            asked = client.options("/v1/stream/s", headers={"origin": origin, "access-control-request-method": "PUT"})
            assert asked.status_code == 204
            assert ("access-control-allow-headers" in asked.headers) == (told is not None)
        assert client.get("/v1/streams", headers={**key, "sec-fetch-site": "cross-site"}).status_code == 200


def test_every_page_may_be_allowed(start_server: StartServer, lane: str) -> None:
    server = start_server(lane=lane, allowed_origins="*")
    response = httpx.get(f"{server.url}/v1/streams", headers={"origin": EVIL}, trust_env=False)
    assert (response.status_code, response.headers["access-control-allow-origin"]) == (200, "*")
    assert response.headers["cross-origin-resource-policy"] == "cross-origin"
    evil = httpx.get(f"{server.url}/v1/streams", headers={"host": "evil.example"}, trust_env=False)
    assert evil.status_code == 403, "a host is not an origin"


# --- what a client says about itself ---------------------------------------------------------------------------


LIMITED = """
[[collections.collection]]
name = "open"
storage_path = "open/{id}"
read_roles = ["public"]
write_roles = ["public"]
append_only = { require_author_signature = false }
rate_limit.push = { window_ms = 3600000, max_requests = 2, bucket = "ip" }
"""


@pytest.mark.parametrize(("proxies", "trusted"), [("192.0.2.7", False), ("127.0.0.1", True)])
def test_only_a_trusted_proxy_says_for_whom_it_asks(tmp_path: Path, lane: str, proxies: str, trusted: bool) -> None:
    """The host, the scheme and the address of the client."""
    config = tmp_path / "strandline.toml"
    config.write_text(LIMITED)
    settings: dict[str, object] = {"trusted_proxies": proxies, "trusted_proxy_hops": 1}
    server = ServerProcess(tmp_path / "data", fast_lane=lane == "fast", settings=settings, config=config).start()
    try:
        with httpx.Client(base_url=server.url, trust_env=False) as http:
            # A name that the server does not answer to, and one that it does, at a hot route and at another one.
            for method, path in (("POST", "/v0/topics/a"), ("PUT", "/v0/topics/a")):
                evil = {"host": "localhost", "x-forwarded-host": "evil.example"}
                good = {"host": "evil.example", "x-forwarded-host": "localhost"}
                body = {"records": [{"data": 1}]} if method == "POST" else {}
                assert (http.request(method, path, json=body, headers=evil).status_code == 403) == trusted
                assert (http.request(method, path, json=body, headers=good).status_code == 403) != trusted
            headers = {"x-forwarded-proto": "https", "content-type": "text/plain"}
            made = http.put("/v1/stream/made", headers=headers).headers["location"]
            assert made.startswith("https://" if trusted else "http://")
            statuses = [
                http.post("/push/open/1", json={"data": {}}, headers={"x-forwarded-for": f"198.51.100.{n}"}).status_code
                for n in range(4)
            ]
            assert (429 in statuses) != trusted
    finally:
        server.end()
