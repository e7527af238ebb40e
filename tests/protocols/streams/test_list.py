"""GET /v1/streams."""

from __future__ import annotations

from datetime import datetime
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET
from support.server_process import StartServer
from support.streams_client import StreamsClient
from support.streams_handlers import Stand, at_stand, body_of
from support.topics_client import Client

from strandline.engine import Batch
from strandline.protocols.streams.list import describe
from strandline.service.access import FULL_ACCESS, Access
from strandline.service.catalog import spans


async def names_of(stand: Stand, query: str = "", access: Access | None = None) -> list[str]:
    call = stand.call(query) if access is None else stand.call(query, access=access)
    return [each["name"] for each in body_of(await stand.face.listing.get(call))]


def test_a_stream_is_described_in_a_few_words(streams: StreamsClient, name: str) -> None:
    streams.create(name, body=[1, 2, 3], stream_ttl="3600")
    response = streams.request("GET", "/v1/streams", params={"prefix": name})
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json; charset=utf-8"
    assert response.headers["cache-control"] == "no-store"
    [found] = response.json()
    assert found.pop("created_at") < found.pop("expires_at")
    assert found.pop("epoch") == 0, "it is that of the offsets"
    assert found == {
        "name": name,
        "next_offset": "3",
        "sealed_through": "-1",
        "uploaded_through": "-1",
        "profile": "generic",
    }


def test_pages_go_by_offset_or_behind_a_name_and_have_everything_once(streams: StreamsClient, name: str) -> None:
    made = [f"{name}/{number}" for number in range(7)]
    for each in made:
        streams.create(each)
    by_offset = [
        found["name"]
        for offset in range(0, 9, 3)
        for found in streams.request(
            "GET", "/v1/streams", params={"prefix": name + "/", "limit": 3, "offset": offset}
        ).json()
    ]
    assert by_offset == made
    behind, after = list[str](), ""
    while page := streams.request(
        "GET", "/v1/streams", params={"prefix": name + "/", "limit": 2, "after": after}
    ).json():
        behind += [found["name"] for found in page]
        after = behind[-1]
    assert behind == made


def test_no_streams_can_be_asked_for(streams: StreamsClient) -> None:
    assert streams.request("GET", "/v1/streams", params={"limit": 0}).json() == []


@pytest.mark.both_lanes
@pytest.mark.parametrize("query", ["limit=x", "limit=1e3", "offset=1.5", "limit=", "limit=+1"])
def test_what_is_no_integer_is_refused(streams: StreamsClient, query: str) -> None:
    streams.refused(400, "GET", f"/v1/streams?{query}", code="bad_request")


def test_a_key_sees_the_names_it_may_touch_only(start_server: StartServer) -> None:
    server = start_server(keys="all:rw,some:rw:a-|b-,writer:w")
    everybody, somebody = StreamsClient(server.url, "all"), StreamsClient(server.url, "some")
    for each in ("a-1", "a-2", "b-1", "c-1"):
        everybody.create(each)
    seen = [found["name"] for found in somebody.request("GET", "/v1/streams").json()]
    assert seen == ["a-1", "a-2", "b-1"]
    assert [found["name"] for found in somebody.request("GET", "/v1/streams?offset=2").json()] == ["b-1"]
    assert somebody.request("GET", "/v1/streams?prefix=c").json() == []
    assert StreamsClient(server.url, "writer").request("GET", "/v1/streams").status_code == 403
    assert StreamsClient(server.url, "").request("GET", "/v1/streams").status_code == 401


def test_hidden_expired_and_the_servers_own_streams_are_neither_shown_nor_counted(tmp_path: Path) -> None:
    async def test(stand: Stand) -> None:
        for each in ("a", "c", "e", "g"):
            stand.create(each, 1)
        stand.create("b", ttl_seconds=1)
        stand.fork("f", stand.context.streams.get("c"), 1)
        stand.context.streams.delete(stand.context.streams.get("c"))
        assert stand.context.kernel.catalog.hidden == ["c"]
        stand.clock.advance(1_000)
        assert await names_of(stand) == ["a", "e", "f", "g"]
        assert await names_of(stand, "offset=1&limit=2") == ["e", "f"]
        assert await names_of(stand, "offset=4") == []
        stand.context.streams.delete(stand.context.streams.get("f"))
        assert stand.context.kernel.catalog.hidden == []
        assert await names_of(stand) == ["a", "e", "g"]

    at_stand(tmp_path, test)


def test_what_is_hidden_is_known_after_a_restart(tmp_path: Path) -> None:
    async def before(stand: Stand) -> None:
        stand.fork("b", stand.create("a", 1), 1)
        stand.create("c")
        stand.context.streams.delete(stand.context.streams.get("a"))

    async def after(stand: Stand) -> None:
        assert await names_of(stand) == ["b", "c"]
        assert await names_of(stand, "offset=1") == ["c"]

    at_stand(tmp_path, before)
    at_stand(tmp_path, after)


def test_sealing_and_a_profile_show(tmp_path: Path) -> None:
    async def test(stand: Stand) -> None:
        stream = stand.create("a", 1, 2)
        stand.engine.seal()
        stand.append(stream, 3)
        stream.log.note({"profile": {"kind": "evlog", "observability": {"request": {"tracesStream": "t"}}}}).wait()
        [found] = body_of(await stand.face.listing.get(stand.call()))
        assert (found["next_offset"], found["sealed_through"], found["uploaded_through"]) == ("3", "1", "1")
        assert found["profile"] == "evlog"
        assert found["observability"] == {"request": {"events_stream": "a", "traces_stream": "t"}}

    at_stand(tmp_path, test)


def test_a_log_of_another_protocol_shows_when_it_was_created(tmp_path: Path) -> None:
    async def test(stand: Stand) -> None:
        stand.engine.create("topic").wait()
        stand.clock.advance(60_000)
        stand.engine.log("topic").append(Batch([b"1"])).wait()
        [found] = body_of(await stand.face.listing.get(stand.call()))
        assert (found["name"], found["expires_at"]) == ("topic", None)
        assert found["created_at"] == "2023-11-14T22:13:20.000Z"

    at_stand(tmp_path, test)


@pytest.mark.both_lanes
def test_every_document_has_a_creation_time_whatever_protocol_created_the_log(
    client: Client, streams: StreamsClient, name: str
) -> None:
    client.write(name, [{"data": 1}])
    [row] = streams.request("GET", "/v1/streams", params={"prefix": name}).json()
    details = streams.request("GET", f"{name}/_details").json()["stream"]
    assert row["created_at"] == details["created_at"] <= details["updated_at"]
    assert datetime.fromisoformat(row["created_at"]).year >= 2024


def test_the_creation_time_survives_a_restart(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server(data=tmp_path / "data")
    Client(server.url).write("topic", [{"data": 1}])
    StreamsClient(server.url).create("stream")
    before = StreamsClient(server.url).request("GET", "/v1/streams").json()
    server.stop()
    server.start()
    after = StreamsClient(server.url).request("GET", "/v1/streams").json()
    assert [row["created_at"] for row in after] == [row["created_at"] for row in before]
    assert len(after) == 2


words = st.text("ab_`\U0010ffff", max_size=3)


@given(st.lists(words.filter(bool), max_size=3), words, words, st.lists(words.filter(bool), max_size=12))
def test_spans_hold_the_names_that_are_wanted_in_order_and_once(
    prefixes: list[str], prefix: str, after: str, names: list[str]
) -> None:
    found = spans(prefixes, prefix, after)
    for (_, high), (low, _) in pairwise(found):
        assert high is not None
        assert high <= low
    for name in names:
        wanted = (
            name.startswith(prefix)
            and (not prefixes or name.startswith(tuple(prefixes)))
            and name > after
            and not name.startswith("_")
        )
        assert any(low <= name and (high is None or name < high) for low, high in found) == wanted


def test_a_plain_stream_has_the_generic_profile(tmp_path: Path) -> None:
    async def test(stand: Stand) -> None:
        stream = stand.create("plain", 1, 2)
        row = describe(stream, FULL_ACCESS)
        assert (row.profile, row.observability) == ("generic", UNSET)
        assert row.next_offset == str(stream.end)

    at_stand(tmp_path, test)


@pytest.mark.both_lanes
def test_paired_streams_name_each_other_in_the_published_form(streams: StreamsClient, name: str) -> None:
    events, traces = f"{name}-events", f"{name}-traces"
    pair = {"request": {"events_stream": events, "traces_stream": traces}}
    for stream, profile in (
        (events, {"kind": "evlog", "observability": {"request": {"tracesStream": traces}}}),
        (traces, {"kind": "otel-traces", "observability": {"request": {"eventsStream": events}}}),
    ):
        streams.create(stream)
        answer = streams.request("POST", f"{stream}/_profile", {"profile": profile})
        assert answer.json()["profile"] == profile, "the profile itself keeps the names of its options"
        assert streams.request("GET", f"{stream}/_details").json()["stream"]["observability"] == pair
    rows = streams.request("GET", "/v1/streams", params={"prefix": f"{name}-"}).json()
    assert [row["observability"] for row in rows] == [pair, pair]


@pytest.mark.both_lanes
@pytest.mark.parametrize(
    ("query", "count"),
    [("limit=5000", 3), (f"limit={'9' * 40}", 3), ("limit=0", 0), ("limit=-1", 0), ("limit=2&offset=-7", 2)],
)
def test_numbers_outside_of_the_range_count_as_the_nearest_in_it(
    streams: StreamsClient, name: str, query: str, count: int
) -> None:
    for number in range(3):
        streams.create(f"{name}/{number}")
    response = streams.request("GET", f"/v1/streams?prefix={name}/&{query}")
    assert response.status_code == 200
    assert len(response.json()) == count


def test_a_page_has_at_most_a_thousand_streams(tmp_path: Path) -> None:
    async def test(stand: Stand) -> None:
        for number in range(1001):
            stand.create(f"s{number:04}")
        assert len(await names_of(stand, "limit=5000")) == 1000

    at_stand(tmp_path, test)
