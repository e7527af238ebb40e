"""GET /v1/streams."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET
from support.server_process import StartServer
from support.streams_client import StreamsClient
from support.streams_handlers import Stand, at_stand, body_of

from strandline.protocols.streams.list import describe
from strandline.protocols.streams.stream import StreamTraits
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


@pytest.mark.parametrize("query", ["limit=1001", "limit=x", "limit=-1", "offset=-1", "offset=1.5", "limit="])
def test_what_is_no_number_in_its_range_is_refused(streams: StreamsClient, query: str) -> None:
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
        assert found["observability"] == {"request": {"tracesStream": "t"}}

    at_stand(tmp_path, test)


def test_a_log_of_another_protocol_is_a_stream_without_a_known_beginning(tmp_path: Path) -> None:
    async def test(stand: Stand) -> None:
        stand.engine.create("topic").wait()
        [found] = body_of(await stand.face.listing.get(stand.call()))
        assert (found["name"], found["created_at"], found["expires_at"]) == ("topic", None, None)

    at_stand(tmp_path, test)


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


def test_a_plain_stream_has_the_generic_profile_and_may_have_no_date(tmp_path: Path) -> None:
    async def test(stand: Stand) -> None:
        undated, _ = stand.context.streams.create("undated", StreamTraits())
        for stream in (stand.create("plain", 1, 2), undated):
            row = describe(stream, FULL_ACCESS)
            assert (row.profile, row.observability) == ("generic", UNSET)
            assert row.next_offset == str(stream.end)
        assert describe(undated, FULL_ACCESS).created_at is None

    at_stand(tmp_path, test)
