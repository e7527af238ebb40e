"""Forks: PUT with Stream-Forked-From. The protocol's own suite looks at most of it; here is what it leaves out."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest
from support.streams_client import JSON, START, TEXT, StreamsClient
from support.streams_in_process import HandServer, by_hand

from strandline.protocols.streams.offsets import encode


def source_of(name: str) -> str:
    return f"/v1/stream/{name}"


def fork(streams: StreamsClient, name: str, source: str, body: object = None, **headers: str) -> None:
    streams.create(name, None, body, stream_forked_from=source_of(source), **headers)


def test_a_fork_shares_records_places_and_keys(streams: StreamsClient, name: str) -> None:
    streams.create(name)
    for number in range(4):
        streams.append(name, [number], stream_key="ab"[number % 2], stream_timestamp=f"2024-01-0{number + 1}T00:00:00Z")
    fork(streams, f"{name}-f", name, stream_fork_offset=encode(3))
    streams.append(f"{name}-f", ["own"], stream_key="a")
    streams.append(name, ["later"], stream_key="a")
    assert streams.values(f"{name}-f") == [0, 1, 2, "own"]
    assert streams.values(f"{name}-f", key="a") == [0, 2, "own"]
    assert streams.values(f"{name}-f", offset=encode(2)) == [2, "own"]
    assert streams.values(f"{name}-f", since="2024-01-03T00:00:00Z") == [2, "own"]
    assert streams.values(name, key="a") == [0, 2, "later"]
    assert streams.read(f"{name}-f").headers["stream-next-offset"] == encode(4)


def test_a_fork_inherits_the_content_type_as_it_was_given(streams: StreamsClient, name: str) -> None:
    streams.create(name, "Text/HTML; charset=utf-8", "x")
    fork(streams, f"{name}-f", name)
    assert streams.request("HEAD", f"{name}-f").headers["content-type"] == "Text/HTML; charset=utf-8"


@pytest.mark.parametrize(
    "headers",
    [
        {"stream-forked-from": "src"},
        {"stream-forked-from": ""},
        {"stream-forked-from": "/v1/stream/"},
        {"stream-forked-from": "/v1/stream/_hidden"},
        {"stream-forked-from": "/v1/stream/%zz"},
        {"stream-forked-from": "/v1/stream/%ff"},
        {"stream-forked-from": "/v1/stream/SRC", "stream-fork-offset": "5"},
        {"stream-forked-from": "/v1/stream/SRC", "stream-fork-offset": ""},
        {"stream-forked-from": "/v1/stream/SRC", "stream-fork-offset": encode(4)},
        {"stream-forked-from": "/v1/stream/SRC", "stream-fork-offset": "9999999999999999_9999999999999999"},
        {"stream-forked-from": "/v1/stream/SRC", "stream-fork-offset": START, "stream-fork-sub-offset": "05"},
        {"stream-forked-from": "/v1/stream/SRC", "stream-fork-offset": START, "stream-fork-sub-offset": ""},
        {"stream-forked-from": "/v1/stream/SRC", "stream-fork-offset": START, "stream-fork-sub-offset": "4"},
        {"stream-forked-from": "/v1/stream/SRC", "stream-fork-offset": encode(3), "stream-fork-sub-offset": "1"},
        {"stream-forked-from": "/v1/stream/SRC", "stream-fork-sub-offset": "1"},
    ],
)
def test_a_bad_fork_is_refused_and_makes_nothing(streams: StreamsClient, name: str, headers: dict[str, str]) -> None:
    streams.create(name, JSON, [1, 2, 3])
    sent = {key: value.replace("SRC", name) for key, value in headers.items()}
    streams.refused(400, "PUT", f"{name}-f", headers=sent, code="bad_request")
    assert streams.request("HEAD", f"{name}-f").status_code == 404
    # The source has no fork that would keep it.
    assert streams.request("DELETE", name).status_code == 204
    assert streams.request("HEAD", name).status_code == 404


@pytest.mark.parametrize("offset", ["-1", START, "0000000000000000_0000000000000000"])
def test_a_fork_may_leave_at_the_start(streams: StreamsClient, name: str, offset: str) -> None:
    streams.create(name, JSON, [1])
    fork(streams, f"{name}-f", name, stream_fork_offset=offset)
    assert streams.values(f"{name}-f") == []
    assert streams.read(f"{name}-f").headers["stream-next-offset"] == START


def test_names_of_sources_are_paths(streams: StreamsClient, name: str) -> None:
    odd = f"{name}/a b/ü%"
    streams.create(quote(odd, safe=""), TEXT, "x")
    streams.create(f"{name}-1", None, stream_forked_from=source_of(quote(odd)))
    streams.create(f"{name}-2", None, stream_forked_from=source_of(quote(odd, safe="")) + "/")
    assert streams.read(f"{name}-1").text == streams.read(f"{name}-2").text == "x"


def test_the_part_of_a_record_keeps_its_key(streams: StreamsClient, name: str) -> None:
    streams.create(name, TEXT)
    streams.append(name, "hello", TEXT, stream_key="k")
    fork(streams, f"{name}-f", name, "XY", stream_fork_offset=START, stream_fork_sub_offset="3", stream_key="own")
    assert streams.read(f"{name}-f").text == "helXY"
    assert streams.read(f"{name}-f", key="k").text == "hel"
    assert streams.read(f"{name}-f", key="own").text == "XY"
    fork(streams, f"{name}-g", name, stream_fork_offset=START, stream_fork_sub_offset="5")
    assert streams.read(f"{name}-g", key="k").text == "hello"


def test_the_same_fork_again_is_fine_and_another_is_a_conflict(streams: StreamsClient, name: str) -> None:
    streams.create(name, JSON, [1, 2])
    streams.create(f"{name}-other", JSON, [1, 2])
    headers = {"stream-forked-from": source_of(name), "stream-fork-offset": encode(1)}
    assert streams.request("PUT", f"{name}-f", headers=headers).status_code == 201
    streams.append(name, [3])
    assert streams.request("PUT", f"{name}-f", headers=headers).status_code == 200
    for change in (
        {"stream-fork-offset": encode(2)},
        {"stream-forked-from": source_of(f"{name}-other")},
        {"stream-fork-sub-offset": "1"},
        {"content-type": TEXT},
        {"stream-ttl": "60"},
        {"stream-closed": "true"},
    ):
        streams.refused(409, "PUT", f"{name}-f", headers={**headers, **change}, code="conflict")
    streams.refused(409, "PUT", f"{name}-f", headers={"content-type": JSON}, code="conflict")
    assert streams.values(f"{name}-f") == [1]


def test_a_stream_is_no_fork_of_itself(streams: StreamsClient, name: str) -> None:
    headers = {"stream-forked-from": source_of(name)}
    streams.refused(404, "PUT", name, headers=headers, code="not_found")
    streams.create(name, None)
    streams.refused(409, "PUT", name, headers=headers, code="conflict")


def test_a_fork_comes_with_schema_and_profile_and_its_first_records_are_checked(
    streams: StreamsClient, name: str
) -> None:
    streams.create(name)
    schema = {"type": "object", "required": ["id"]}
    update = {"schema": schema, "routingKey": {"jsonPointer": "/id", "required": True}}
    assert streams.request("POST", f"{name}/_schema", update).status_code == 200
    streams.append(name, [{"id": "a"}])
    forked = {"stream-forked-from": source_of(name), "content-type": JSON}
    streams.refused(400, "PUT", f"{name}-f", [{"no": "id"}], headers=forked, code="bad_request")
    assert streams.request("HEAD", f"{name}-f").status_code == 404
    assert streams.request("PUT", f"{name}-f", [{"id": "b"}], headers=forked).status_code == 201
    assert streams.values(f"{name}-f", key="b") == [{"id": "b"}]
    streams.refused(400, "POST", f"{name}-f", [{"no": "id"}], headers={"content-type": JSON})
    # From here on each has its own.
    cleared = streams.request("POST", f"{name}-f/_schema", {"routingKey": None})
    assert "routingKey" not in cleared.json()
    assert "routingKey" in streams.request("GET", f"{name}/_schema").json()


def test_hidden_sources_are_gone_for_every_endpoint(streams: StreamsClient, name: str) -> None:
    streams.create(name, JSON, [1])
    fork(streams, f"{name}-f", name)
    assert streams.request("DELETE", name).status_code == 204
    for method, path in (
        ("GET", name), ("POST", name), ("DELETE", name), ("GET", f"{name}/_schema"), ("POST", f"{name}/_schema"),
        ("GET", f"{name}/_profile"), ("GET", f"{name}?offset=-1&live=long-poll"), ("GET", f"{name}?offset=-1&live=sse"),
    ):  # fmt: skip
        streams.refused(410, method, f"/v1/stream/{path}", code="gone")
    assert streams.request("HEAD", name).status_code == 410
    streams.refused(409, "PUT", name, headers={"content-type": JSON}, code="conflict")
    streams.refused(409, "PUT", f"{name}-g", headers={"stream-forked-from": source_of(name)}, code="conflict")
    assert streams.values(f"{name}-f") == [1]
    assert streams.request("DELETE", f"{name}-f").status_code == 204
    assert streams.request("HEAD", name).status_code == 404
    streams.create(name, TEXT)


def test_a_chain_goes_from_its_end(streams: StreamsClient, name: str) -> None:
    streams.create(name, TEXT, "a")
    names = [name]
    for number in range(4):
        fork(streams, f"{name}-{number}", names[-1], "bcde"[number])
        names.append(f"{name}-{number}")
    for each in names[:-1]:
        assert streams.request("DELETE", each).status_code == 204
    assert [streams.request("HEAD", each).status_code for each in names] == [410, 410, 410, 410, 200]
    assert streams.read(names[-1]).text == "abcde"
    streams.request("DELETE", names[-1])
    assert [streams.request("HEAD", each).status_code for each in names] == [404] * 5


def test_a_middle_fork_that_is_not_deleted_keeps_what_is_before_it(streams: StreamsClient, name: str) -> None:
    streams.create(name, TEXT, "a")
    fork(streams, f"{name}-1", name, "b")
    fork(streams, f"{name}-2", f"{name}-1", "c")
    streams.request("DELETE", name)
    streams.request("DELETE", f"{name}-2")
    assert streams.request("HEAD", name).status_code == 410
    assert streams.read(f"{name}-1").text == "ab"


def test_forks_outlive_a_restart(tmp_path: Path) -> None:
    async def first(server: HandServer) -> None:
        await server.done("PUT", "s", b"[1,2]")
        await server.done("PUT", "f", b"[3]", "", stream_forked_from="/v1/stream/s", stream_fork_offset=encode(1))
        await server.done("PUT", "g", b"", "", stream_forked_from="/v1/stream/f")
        await server.done("DELETE", "s")

    async def second(server: HandServer) -> None:
        assert (await server.done("HEAD", "s")).status == 410
        await server.done("POST", "g", b"[4]")
        assert (server.ask("GET", "f").body, server.ask("GET", "g").body) == (b"[1,3]", b"[1,3,4]")
        await server.done("DELETE", "f")
        assert (await server.done("HEAD", "f")).status == 410

    async def third(server: HandServer) -> None:
        assert server.ask("GET", "g").body == b"[1,3,4]"
        await server.done("DELETE", "g")

    async def fourth(server: HandServer) -> None:
        assert [(await server.done("HEAD", name)).status for name in "sfg"] == [404] * 3

    by_hand(tmp_path, first, second, third, fourth)


def test_a_fork_of_a_closed_stream_is_open(streams: StreamsClient, name: str) -> None:
    streams.create(name, TEXT, "x", stream_closed="true")
    fork(streams, f"{name}-f", name)
    assert "stream-closed" not in streams.request("HEAD", f"{name}-f").headers
    streams.append(f"{name}-f", "y", TEXT)
    fork(streams, f"{name}-g", name, "z", stream_closed="true")
    assert streams.read(f"{name}-g").headers["stream-closed"] == "true"
    assert [streams.read(f"{name}{end}").text for end in ("", "-f", "-g")] == ["x", "xy", "xz"]


def test_live_readers_of_a_fork_get_only_what_is_the_forks(streams: StreamsClient, name: str) -> None:
    streams.create(name, JSON, [1])
    fork(streams, f"{name}-f", name)
    with streams.events(f"{name}-f", offset="-1") as (_, events):
        assert next(events).json == [1]
        next(events)
        streams.append(name, ["source"])
        streams.append(f"{name}-f", ["fork"])
        assert next(events).json == ["fork"]
