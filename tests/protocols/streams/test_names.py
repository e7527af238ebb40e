"""Names of streams: what they may be, and that every spelling of one means the same stream."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from support.raw_http import RawConnection, request
from support.server_process import StartServer
from support.streams_client import JSON, TEXT, StreamsClient


@pytest.mark.parametrize(
    "name",
    ["plain", "with space", "a/b/c", "a//b", "dots...", "ünï😀", "per%cent", "%41", "a+b", "a?b#c", "a&b=c", "a:b@c",
     "~", "-", "x" * 512, "日本語", 'quo"te', "back\\slash", "pk/x/pk", "semi;colon", "a,b"],
)  # fmt: skip
def test_a_name_may_be_nearly_anything(streams: StreamsClient, name: str) -> None:
    escaped = quote(f"{name}", safe="")
    streams.request("DELETE", escaped)
    location = streams.create(escaped, TEXT, "x").headers["location"]
    assert location == f"{streams.url}/v1/stream/{escaped}"
    assert streams.http.get(location).text == "x"
    assert streams.request("HEAD", escaped).status_code == 200
    streams.append(escaped, "y", TEXT)
    assert streams.read(escaped).text == "xy"
    assert streams.request("DELETE", escaped).status_code == 204


def raw(streams: StreamsClient, method: str, path: str, *headers: str) -> tuple[bytes, bytes]:
    with RawConnection(streams.url) as connection:
        connection.send(request(method, path, None, *headers))
        return connection.answer()


def test_slashes_may_be_escaped_or_not_and_those_at_the_end_do_not_count(streams: StreamsClient, name: str) -> None:
    streams.create(f"{name}/a/b", TEXT, "x")
    for path in (f"{name}/a/b", f"{name}/a/b/", f"{name}/a/b///", f"{name}%2Fa%2fb", f"{name}/%61/b"):
        head, body = raw(streams, "GET", f"/v1/stream/{path}")
        assert (head[:15], body) == (b"HTTP/1.1 200 OK", b"x"), path
    # An escaped slash at the end is a part of the name.
    assert raw(streams, "GET", f"/v1/stream/{name}/a/b%2F")[0].startswith(b"HTTP/1.1 404")


@pytest.mark.parametrize(
    "path",
    ["", "/", "///", "%", "%zz", "a%", "a%4", "a%4g", "%ff", "%c3", "%ed%a0%80", "a/%80/b", "%00", "a%0Ab", "%7F",
     "%C2%85", "_", "_hidden", "%5Fhidden", "x" * 513, quote("é" * 257)],
)  # fmt: skip
def test_what_is_no_name_is_refused(streams: StreamsClient, path: str) -> None:
    for method in ("PUT", "POST", "GET", "DELETE"):
        head, body = raw(streams, method, f"/v1/stream/{path}", "content-length: 0")
        assert head.startswith(b"HTTP/1.1 400"), (method, head, body)
        assert b'"code":"bad_request"' in body


def test_letters_beyond_ascii_must_be_escaped(streams: StreamsClient, name: str) -> None:
    with RawConnection(streams.url) as connection:
        connection.send(f"PUT /v1/stream/{name}-é HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n".encode())
        head, _ = connection.answer()
    assert head.startswith(b"HTTP/1.1 400")
    assert streams.request("HEAD", quote(f"{name}-é")).status_code == 404


def test_malformed_escapes_in_other_paths_are_refused_too(streams: StreamsClient, name: str) -> None:
    streams.create(name)
    for path in (f"%zz/{name}", f"{name}/pk/%zz", f"{name}/pk/%ff", "%zz/_schema", "%ff/_profile"):
        head, _ = raw(streams, "GET", f"/v1/stream/{path}")
        assert head.startswith(b"HTTP/1.1 400"), path


def test_names_are_exact(streams: StreamsClient, name: str) -> None:
    streams.create(f"{name}-É", TEXT, "one")
    streams.create(f"{name}-E\u0301", TEXT, "two")
    streams.create(f"{name}-é", TEXT, "three")
    assert [streams.read(f"{name}-{end}").text for end in ("É", "E\u0301", "é")] == ["one", "two", "three"]


def test_what_looks_like_a_part_of_a_stream_is_one(streams: StreamsClient, name: str) -> None:
    streams.create(name)
    assert streams.request("GET", f"{name}/_schema").json()["schema"] == name
    # With its slash escaped it is another name.
    streams.refused(404, "GET", f"/v1/stream/{name}%2F_schema", code="not_found")


def test_paths_and_methods_that_are_not_there(streams: StreamsClient, name: str) -> None:
    streams.create(name)
    for path in ("/v1", "/v1/", "/v1/strea", "/v1/nothing", "/v2/stream/x"):
        streams.refused(404, "GET", path, code="not_found")
    response = streams.request("PATCH", name)
    assert (response.status_code, response.json()["error"]["code"]) == (405, "method_not_allowed")
    assert response.headers["allow"] == "DELETE, GET, HEAD, OPTIONS, POST, PUT"
    assert streams.request("PUT", f"{name}/_schema").status_code == 405


@pytest.mark.both_lanes
def test_the_path_of_a_stream_has_two_forms_with_the_same_methods(streams: StreamsClient, name: str) -> None:
    path = f"/v1/streams/{name}/a"
    created = streams.request("PUT", path, headers={"content-type": JSON})
    assert (created.status_code, created.headers["location"]) == (201, streams.url + path)
    assert streams.request("PUT", f"{name}/a", headers={"content-type": JSON}).status_code == 200, "it is the same one"
    posted = streams.request("POST", path, [1, 2], headers={"content-type": JSON, "stream-key": "k"})
    assert posted.status_code == 204
    assert streams.values(f"{name}/a") == [1, 2]
    assert streams.request("GET", path).json() == streams.request("GET", f"{path}/pk/k").json() == [1, 2]
    head = streams.request("HEAD", path)
    assert head.headers["stream-next-offset"] == posted.headers["stream-next-offset"]
    assert streams.request("OPTIONS", path, headers={"origin": streams.url}).status_code in (200, 204)
    with streams.http.stream("GET", path, params={"live": "sse", "offset": "-1"}) as events:
        assert next(events.iter_lines()) == "event: data"
    for part in ("_schema", "_profile", "_details", "_index_status"):
        there, here = (streams.request("GET", f"{prefix}/{part}") for prefix in (path, f"{name}/a"))
        assert (there.status_code, there.content) == (200, here.content), part
    fork = streams.request("PUT", f"/v1/streams/{name}/b", headers={"stream-forked-from": path})
    assert fork.status_code == 201
    assert streams.values(f"{name}/b") == [1, 2]
    assert streams.request("DELETE", path).status_code == 204
    streams.refused(410, "GET", f"{name}/a")


@pytest.mark.both_lanes
def test_the_list_of_streams_stays_where_it_is(streams: StreamsClient, name: str) -> None:
    streams.create(name)
    assert [row["name"] for row in streams.request("GET", f"/v1/streams?prefix={name}").json()] == [name]
    assert "name of the stream is missing" in streams.refused(400, "GET", "/v1/streams/")
    streams.refused(404, "GET", f"/v1/streamss/{name}")


def test_keys_are_checked_in_both_forms(start_server: StartServer) -> None:
    server = start_server(keys="all:rw,some:r:a-")
    everybody, somebody = StreamsClient(server.url, "all"), StreamsClient(server.url, "some")
    for name in ("a-1", "b-1"):
        everybody.create(name, TEXT, "x")
    assert somebody.request("GET", "/v1/streams/a-1").status_code == 200
    assert somebody.request("GET", "/v1/streams/b-1").status_code == 403
    assert somebody.request("POST", "/v1/streams/a-1", "y", headers={"content-type": TEXT}).status_code == 403
    assert StreamsClient(server.url).request("GET", "/v1/streams/a-1").status_code == 401
