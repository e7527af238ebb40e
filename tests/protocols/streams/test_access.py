"""API keys: scopes, prefixes, and streams that one may not touch, under whatever spelling."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.server_process import ServerProcess, StartServer
from support.streams_client import JSON, TEXT, StreamsClient

KEYS = "all-of-it,reads:r,writes:w,deletes:d,team:rw+d:team/|shared"


@pytest.fixture(scope="module")
def guarded(lane: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    process = ServerProcess(tmp_path_factory.mktemp(f"guarded-{lane}") / "data", fast_lane=lane == "fast", keys=KEYS)
    try:
        yield process.start()
    finally:
        process.end()


@pytest.fixture
def keys(guarded: ServerProcess) -> Iterator[dict[str, StreamsClient]]:
    clients = {key: StreamsClient(guarded.url, key) for key in ("all-of-it", "reads", "writes", "deletes", "team", "")}
    yield clients
    for client in clients.values():
        client.close()


def test_without_a_key_nothing_is_told(keys: dict[str, StreamsClient], name: str) -> None:
    keys["all-of-it"].create(name, TEXT, "x")
    wrong = StreamsClient(keys[""].url, "wrong")
    for client in (keys[""], wrong):
        answers = set()
        for method, path in (
            ("GET", name), ("GET", f"{name}-absent"), ("HEAD", name), ("PUT", name), ("POST", name), ("DELETE", name),
            ("GET", f"{name}/_schema"), ("GET", f"{name}?offset=-1&live=sse"),
        ):  # fmt: skip
            response = client.request(method, f"/v1/stream/{path}", headers={"content-type": TEXT})
            assert response.status_code == 401, (method, path)
            assert response.headers["www-authenticate"] == "Bearer"
            assert response.headers["cache-control"] == "no-store"
            assert response.headers["x-content-type-options"] == "nosniff"
            answers.add(response.content)
        assert len(answers) == 2, "what is told must not depend on what is there; HEAD has no body"
    wrong.close()


def test_the_word_bearer_may_be_written_in_any_case(keys: dict[str, StreamsClient], name: str) -> None:
    keys["all-of-it"].create(name, TEXT, "x")
    for scheme, status in (("bearer", 200), ("BEARER", 200), ("Bearer", 200), ("Basic", 401), ("Bearer:", 401)):
        headers = {"authorization": f"{scheme} all-of-it"}
        assert keys[""].request("GET", name, headers=headers).status_code == status
    for token in ("all-of-i", "all-of-itt", "ALL-OF-IT"):
        headers = {"authorization": f"Bearer {token}"}
        assert keys[""].request("GET", name, headers=headers).status_code == 401


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "-new", {"all-of-it", "writes"}),
        ("POST", "", {"all-of-it", "writes"}),
        ("GET", "", {"all-of-it", "reads"}),
        ("GET", "/pk/k", {"all-of-it", "reads"}),
        ("GET", "?offset=-1&live=long-poll", {"all-of-it", "reads"}),
        ("HEAD", "", {"all-of-it", "reads"}),
        ("GET", "/_schema", {"all-of-it", "reads"}),
        ("POST", "/_schema", {"all-of-it", "writes"}),
        ("DELETE", "-absent", {"all-of-it", "deletes"}),
    ],
)
def test_every_request_needs_its_scope(
    keys: dict[str, StreamsClient], name: str, method: str, path: str, allowed: set[str]
) -> None:
    keys["all-of-it"].create(name, TEXT, "x", stream_key="k")
    for key in ("all-of-it", "reads", "writes", "deletes"):
        response = keys[key].request(method, name + path, "y", headers={"content-type": TEXT})
        assert (response.status_code != 403) == (key in allowed), (key, response.status_code)
        if response.status_code == 403 and method != "HEAD":
            assert response.json()["error"]["code"] == "forbidden"


def test_a_key_may_be_for_some_names_only(keys: dict[str, StreamsClient], name: str) -> None:
    team = keys["team"]
    team.create(f"team/{name}", TEXT, "x")
    assert team.read(f"team%2F{name}").text == "x"
    assert team.read(f"%74eam/{name}/").text == "x"
    team.create(f"shared-{name}", TEXT)
    for path in (f"other/{name}", f"team{name}", f"Team/{name}", f"te%61m{name}", "team", f"x/team/{name}"):
        team.refused(403, "PUT", path, headers={"content-type": TEXT}, code="forbidden")
        team.refused(403, "GET", path, code="forbidden")
        team.refused(403, "GET", f"{path}/_schema", code="forbidden")
        team.refused(403, "DELETE", path, code="forbidden")
    assert team.request("DELETE", f"team/{name}").status_code == 204


def test_nobody_forks_what_he_may_not_touch(keys: dict[str, StreamsClient], name: str) -> None:
    keys["all-of-it"].create(f"secret-{name}", JSON, ["secret"])
    team = keys["team"]
    for source in (f"secret-{name}", f"secret%2d{name}", f"absent-{name}"):
        headers = {"stream-forked-from": f"/v1/stream/{source}"}
        team.refused(403, "PUT", f"team/{name}", headers=headers, code="forbidden")
    assert team.request("HEAD", f"team/{name}").status_code == 404
    # Not even to find out whether it is there under that name already.
    team.create(f"team/{name}", JSON)
    headers = {"stream-forked-from": f"/v1/stream/secret-{name}"}
    team.refused(403, "PUT", f"team/{name}", headers=headers, code="forbidden")
    team.create(f"team/{name}-f", None, stream_forked_from=f"/v1/stream/team/{name}")


def test_a_fork_needs_the_right_to_read_its_source(keys: dict[str, StreamsClient], name: str) -> None:
    keys["all-of-it"].create(name, JSON, ["secret"])
    headers = {"stream-forked-from": f"/v1/stream/{name}"}
    keys["writes"].refused(403, "PUT", f"{name}-f", headers=headers, code="forbidden")
    assert keys["all-of-it"].request("PUT", f"{name}-f", headers=headers).status_code == 201


def test_so_many_requests_of_a_key_may_be_under_way(start_server: StartServer, lane: str) -> None:
    server = start_server(lane=lane, keys="one:rw,two:rw", max_inflight_per_key=1)
    one, two = StreamsClient(server.url, "one"), StreamsClient(server.url, "two")
    one.create("s", TEXT)
    from threading import Thread

    from support.topics_client import eventually

    own = StreamsClient(server.url, "one")
    query = {"offset": "now", "live": "long-poll", "timeout": "5s"}
    thread = Thread(target=lambda: own.request("GET", "s", params=query))
    thread.start()
    response = eventually(lambda: (answer := one.request("GET", "s")).status_code == 429 and answer)
    assert (response.json()["error"]["code"], response.headers["retry-after"]) == ("overloaded", "1")
    assert two.append("s", "x", TEXT).status_code == 204
    thread.join(10)
    assert one.read("s").text == "x"
    for client in (one, two, own):
        client.close()
