"""GET _details and _index_status: what they say, and waiting for them to change."""

from __future__ import annotations

import asyncio
from pathlib import Path
from threading import Thread
from time import perf_counter
from typing import Any

import pytest
from support.searched_log import DECLARED
from support.server_process import StartServer
from support.streams_client import StreamsClient
from support.streams_handlers import NOW, Stand, at_stand, body_of, header, reply_of

from strandline.engine import Options
from strandline.protocols.streams.inspection import LOOK_SECONDS
from strandline.protocols.streams.stream import Stream
from strandline.query.config_parser import parse_search_config
from strandline.schema.registry import Registry
from strandline.schema.routing import RoutingKey
from strandline.service.http import Later, Reply
from strandline.service.problems import Refusal

JSON_TYPE = {"content-type": "application/json"}
BOTH = pytest.mark.parametrize("kind", ["_details", "_index_status"])
SCHEMA = {"type": "object"}


def install(stream: Stream, search: dict[str, Any] = DECLARED) -> None:
    """A schema, what can be searched, and a routing key."""
    registry = Registry.installed(
        stream.name, SCHEMA, routing_key=RoutingKey("/service", False), search=parse_search_config(search)
    )
    stream.log.note({"registry": registry.stored()}).wait()


def search(stand: Stand, stream: Stream) -> None:
    """Have the whole stream indexed."""
    registry = stream.registry
    assert registry.search is not None
    indexes = stand.context.searcher.indexes
    indexes.cover(stream.log, registry.search, registry.versions, stream.log.head, perf_counter() + 600)


def details(stand: Stand, name: str) -> Any:
    answer = stand.face.inspecting.details(stand.call(name=name))
    assert isinstance(answer, Reply)
    return body_of(answer)


def wait(stand: Stand, name: str, query: str = "live=true", kind: str = "details") -> Later:
    """Somebody who has what there is now, and waits for more."""
    show = getattr(stand.face.inspecting, kind)
    tag = header(show(stand.call(name=name)), b"etag")
    answer = show(stand.call(query, name=name, if_none_match=tag))
    assert isinstance(answer, Later)
    assert answer.answer is None
    return answer


# --- what they say ---------------------------------------------------------------------------------------------------


def test_everything_about_a_new_stream_over_http(streams: StreamsClient, name: str) -> None:
    streams.create(name, body=[{"a": 1}, {"a": 2}], stream_ttl="60")
    response = streams.request("GET", f"{name}/_details")
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json; charset=utf-8"
    assert response.headers["cache-control"] == "no-store"
    assert response.headers["etag"].startswith('W/"details:')
    found = response.json()
    assert list(found) == ["stream", "profile", "schema", "index_status", "storage", "object_store_requests"]
    assert found["profile"] == streams.request("GET", f"{name}/_profile").json()
    assert found["schema"] == streams.request("GET", f"{name}/_schema").json()
    status = streams.request("GET", f"{name}/_index_status")
    assert status.headers["etag"].startswith('W/"index_status:')
    assert found["index_status"] == status.json()
    stream = found["stream"]
    assert (stream["name"], stream["content_type"], stream["ttl_seconds"]) == (name, "application/json", 60)
    assert (stream["next_offset"], stream["sealed_through"], stream["closed"]) == ("2", "-1", False)
    assert (stream["wal_rows"], stream["wal_bytes"], stream["total_size_bytes"]) == ("2", "16", "16")


def test_an_empty_stream_has_nothing(tmp_path: Path) -> None:
    async def test(stand: Stand) -> None:
        stand.create("a")
        found = details(stand, "a")
        assert found["stream"] == {
            "name": "a",
            "content_type": "application/json",
            "profile": "generic",
            "created_at": "2023-11-14T22:13:20.000Z",
            "updated_at": "2023-11-14T22:13:20.000Z",
            "expires_at": None,
            "ttl_seconds": None,
            "stream_seq": None,
            "closed": False,
            "compact": False,
            "retain_until_in_lake": False,
            "epoch": 0,
            "next_offset": "0",
            "sealed_through": "-1",
            "uploaded_through": "-1",
            "segment_count": 0,
            "uploaded_segment_count": 0,
            "pending_rows": "0",
            "pending_bytes": "0",
            "total_size_bytes": "0",
            "wal_rows": "0",
            "wal_bytes": "0",
            "last_append_at": None,
            "last_segment_cut_at": None,
        }
        assert found["index_status"]["desired_index_plan_generation"] == 0
        assert found["index_status"]["exact_indexes"] == found["index_status"]["search_families"] == []
        assert not found["index_status"]["routing_key_index"]["configured"]
        assert set(found["storage"]["local_storage"].values()) == {"0"}
        assert len(found["object_store_requests"]["by_artifact"]) == 8

    at_stand(tmp_path, test)


def test_sealing_moves_records_from_the_tail_into_a_segment(tmp_path: Path) -> None:
    async def test(stand: Stand) -> None:
        stream = stand.create("a", 10, 20)
        stand.engine.seal()
        stand.clock.advance(7)
        stand.append(stream, 3)
        found = details(stand, "a")
        told = found["stream"]
        assert (told["sealed_through"], told["uploaded_through"], told["next_offset"]) == ("1", "1", "3")
        assert (told["segment_count"], told["uploaded_segment_count"]) == (1, 1)
        assert (told["pending_rows"], told["pending_bytes"], told["total_size_bytes"]) == ("1", "1", "5")
        assert told["last_append_at"] == told["updated_at"] == "2023-11-14T22:13:20.007Z"
        assert told["last_segment_cut_at"] is not None
        assert found["index_status"]["segments"] == {"total_count": 1, "uploaded_count": 1}
        assert found["index_status"]["manifest"]["generation"] == 1
        assert found["storage"]["object_storage"]["segments_bytes"] == "4"
        assert found["storage"]["object_storage"]["segment_object_count"] == 1
        assert found["storage"]["local_storage"]["total_bytes"] == "1"

    at_stand(tmp_path, test)


def test_uploaded_is_what_is_in_the_cold_tier_if_there_is_one(tmp_path: Path) -> None:
    async def test(stand: Stand) -> None:
        stream = stand.create("a")
        for value in (1, 2, 3):
            stand.append(stream, value)
            stand.engine.seal()
        stand.engine.maintain()
        found = details(stand, "a")
        told = found["stream"]
        assert (told["sealed_through"], told["uploaded_through"]) == ("2", "1")
        assert (told["segment_count"], told["uploaded_segment_count"]) == (3, 2)
        assert found["storage"]["local_storage"]["pending_sealed_segment_bytes"] == "1"
        assert found["storage"]["object_storage"]["segments_bytes"] == "2"

    options = Options(cold_url=str(tmp_path / "cold"), hot_segments=1, segment_bytes=1)
    at_stand(tmp_path / "data", test, options=options)


def test_indexes_are_told_as_far_as_they_have_come(tmp_path: Path) -> None:
    async def test(stand: Stand) -> None:
        stream = stand.create("a")
        install(stream)
        stand.append(stream, {"service": "x", "status": 200, "note": "one two"}, key="x")
        stand.engine.seal()
        status = details(stand, "a")["index_status"]
        assert status["desired_index_plan_generation"] == 1
        keys = status["routing_key_index"]
        assert keys == status["routing_key_lexicon"]
        assert (keys["configured"], keys["indexed_segment_count"], keys["lag_segments"], keys["lag_ms"]) == (
            True, 1, 0, "0",
        )  # fmt: skip
        assert keys["active_run_count"] == 1
        assert [index["name"] for index in status["exact_indexes"]] == sorted(DECLARED["fields"])
        assert {family["family"] for family in status["search_families"]} == {"exact", "col", "fts", "agg"}
        for index in [*status["exact_indexes"], *status["search_families"]]:
            assert (index["lag_segments"], index["lag_ms"], index["bytes_at_rest"]) == (1, None, "0")
            assert not index["fully_indexed_uploaded_segments"]

        search(stand, stream)
        stand.clock.advance(5)
        stand.append(stream, {"service": "y"}, key="y")
        found = details(stand, "a")
        status = found["index_status"]
        for family in status["search_families"]:
            assert (family["covered_segment_count"], family["contiguous_covered_segment_count"]) == (1, 1)
            assert (family["lag_segments"], family["lag_ms"]) == (0, "5")
            assert family["fully_indexed_uploaded_segments"]
        assert next(each["fields"] for each in status["search_families"] if each["family"] == "agg") == [
            "parts", "requests",
        ]  # fmt: skip
        size = int(status["bundled_companions"]["bytes_at_rest"])
        assert size > 0
        assert sum(int(family["bytes_at_rest"]) for family in status["search_families"]) == size
        assert sum(map(int, found["storage"]["companion_families"].values())) == size
        assert found["storage"]["local_storage"]["companion_cache_bytes"] == str(size)

    at_stand(tmp_path, test)


def test_another_search_configuration_is_another_generation_and_stale_until_it_is_used(tmp_path: Path) -> None:
    async def test(stand: Stand) -> None:
        stream = stand.create("a", {"status": 1})
        install(stream)
        search(stand, stream)
        assert details(stand, "a")["index_status"]["desired_index_plan_generation"] == 1
        fields = {name: field for name, field in DECLARED["fields"].items() if name != "title"}
        install(stream, {**DECLARED, "fields": fields})
        status = details(stand, "a")["index_status"]
        assert status["desired_index_plan_generation"] == 2
        assert all(index["stale_configuration"] for index in status["exact_indexes"])
        search(stand, stream)
        status = details(stand, "a")["index_status"]
        assert not any(index["stale_configuration"] for index in status["exact_indexes"])
        assert details(stand, "a")["index_status"]["desired_index_plan_generation"] == 2

    at_stand(tmp_path, test)


def test_a_fork_tells_of_its_own_records(tmp_path: Path) -> None:
    async def test(stand: Stand) -> None:
        source = stand.create("a", 1, 2, 3)
        fork = stand.fork("b", source, 2)
        stand.append(fork, 44)
        told = details(stand, "b")["stream"]
        assert (told["next_offset"], told["wal_rows"], told["total_size_bytes"]) == ("3", "1", "2")
        stand.engine.seal()
        assert details(stand, "b")["stream"]["sealed_through"] == "2"

    at_stand(tmp_path, test)


@BOTH
def test_a_stream_that_is_not_there_is_not_found(streams: StreamsClient, name: str, kind: str) -> None:
    streams.refused(404, "GET", f"{name}/{kind}", code="not_found")


# --- conditional -----------------------------------------------------------------------------------------------------


@BOTH
def test_who_has_it_already_is_told_so_until_it_changes(streams: StreamsClient, name: str, kind: str) -> None:
    streams.create(name)
    tag = streams.request("GET", f"{name}/{kind}").headers["etag"]
    assert streams.request("GET", f"{name}/{kind}").headers["etag"] == tag
    response = streams.request("GET", f"{name}/{kind}", headers={"if-none-match": tag})
    assert (response.status_code, response.content, response.headers["etag"]) == (304, b"", tag)
    profile = {"profile": {"kind": "metrics"}}
    assert streams.request("POST", f"{name}/_profile", profile, headers=JSON_TYPE).status_code == 200
    response = streams.request("GET", f"{name}/{kind}", headers={"if-none-match": tag})
    assert response.status_code == 200
    assert response.headers["etag"] != tag


@pytest.mark.parametrize("tag", ["{}", '"other", {}', "*", "strong"])
def test_tags_come_in_lists_and_are_compared_weakly(streams: StreamsClient, name: str, tag: str) -> None:
    streams.create(name)
    known = streams.request("GET", f"{name}/_details").headers["etag"]
    given = known.removeprefix("W/") if tag == "strong" else tag.format(known)
    assert streams.request("GET", f"{name}/_details", headers={"if-none-match": given}).status_code == 304


def test_reading_a_stream_whose_time_slides_does_not_change_it(tmp_path: Path) -> None:
    async def test(stand: Stand) -> None:
        stream = stand.create("a", 1, ttl_seconds=60)
        tag = header(await reply_of(stand.face.inspecting.details(stand.call(name="a"))), b"etag")
        before = details(stand, "a")["stream"]["expires_at"]
        stand.clock.advance(1_000)
        stream.use(stand.clock.now())
        assert details(stand, "a")["stream"]["expires_at"] > before
        again = await reply_of(stand.face.inspecting.details(stand.call(name="a", if_none_match=tag)))
        assert again.status == 304

    at_stand(tmp_path, test)


# --- waiting ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("live", ["true", "1", "long-poll"])
@BOTH
def test_who_does_not_have_it_gets_it_at_once(streams: StreamsClient, name: str, kind: str, live: str) -> None:
    streams.create(name)
    for headers in ({}, {"if-none-match": 'W/"details:0"'}):
        assert streams.request("GET", f"{name}/{kind}", params={"live": live}, headers=headers).status_code == 200


@pytest.mark.parametrize("query", ["live=sse", "live=yes", "live=true&timeout=x", "timeout_ms=-1"])
def test_what_makes_no_sense_is_refused(streams: StreamsClient, name: str, query: str) -> None:
    streams.create(name)
    streams.refused(400, "GET", f"{name}/_details?{query}", code="bad_request")


def test_a_waiting_request_is_answered_by_an_append_over_http(streams: StreamsClient, name: str) -> None:
    streams.create(name)
    answers: list[Any] = [streams.request("GET", f"{name}/_details")]

    def poll() -> None:
        """Until the append is seen: other things in the document may change before it."""
        query, tag = {"live": "true", "timeout": "5s"}, answers[0].headers["etag"]
        while answers[-1].status_code == 304 or answers[-1].json()["stream"]["next_offset"] == "0":
            answers.append(streams.request("GET", f"{name}/_details", params=query, headers={"if-none-match": tag}))
            tag = answers[-1].headers.get("etag", tag)

    thread = Thread(target=poll)
    thread.start()
    streams.append(name, [1])
    thread.join(30)
    # Whether it came before the append or after it, it is told of it.
    response = answers[-1]
    assert response.status_code == 200
    assert response.json()["stream"]["next_offset"] == "1"


def test_time_that_is_up_is_no_change_and_too_much_time_is_cut_off(start_server: StartServer) -> None:
    streams = StreamsClient(start_server(request_timeout_ms=50, long_poll_ms=1).url)
    streams.create("a")
    tag = streams.request("GET", "a/_index_status").headers["etag"]
    for query in ("live=true", "live=true&timeout=20", "live=true&timeout_ms=0", "live=true&timeout=50ms"):
        assert streams.request("GET", f"a/_index_status?{query}", headers={"if-none-match": tag}).status_code == 304
    refused = streams.request("GET", "a/_index_status?live=true&timeout=1m", headers={"if-none-match": tag})
    assert refused.status_code == 408
    assert refused.json()["error"]["code"] == "request_timeout"


@pytest.mark.parametrize("kind", ["details", "index_status"])
def test_appends_schemas_profiles_sealing_and_indexing_wake_who_waits(tmp_path: Path, kind: str) -> None:
    async def test(stand: Stand) -> None:
        stream = stand.create("a", {"status": 1})

        def seal() -> None:
            stand.engine.seal()
            look(stand)

        def index() -> None:
            search(stand, stream)
            look(stand)

        changes = [
            lambda: install(stream),
            index,
            seal,
            lambda: stream.log.note({"profile": {"kind": "metrics"}}).wait(),
        ]
        if kind == "details":
            changes += [
                lambda: stand.append(stream, {"status": 2}),
                lambda: stream.log.note({"closed": []}).wait(),
                lambda: stream.log.note({"stream_seq": "1"}).wait(),
            ]
        for change in changes:
            waiting = wait(stand, "a", kind=kind)
            change()
            await stand.settle()
            reply = waiting.answer
            assert isinstance(reply, Reply)
            assert reply.status == 200
        assert stand.face.inspecting.waiting == 0
        assert stand.hub.watched() == []

    at_stand(tmp_path, test)


def look(stand: Stand) -> None:
    """A second has passed: everything that is looked at now and then is looked at."""
    stand.context.live.alarms.ring(stand.hub.loop.time() + LOOK_SECONDS)


def test_what_does_not_show_wakes_nobody(tmp_path: Path) -> None:
    async def test(stand: Stand) -> None:
        stream = stand.create("a", 1)
        other = stand.create("b", 1)
        waiting = wait(stand, "a", kind="index_status")
        stand.append(stream, 2)
        stand.append(other, 2)
        await stand.settle()
        look(stand)
        assert waiting.answer is None
        assert stand.face.inspecting.waiting == 1
        stand.face.drain()
        assert isinstance(waiting.answer, Reply)
        assert waiting.answer.status == 304

    at_stand(tmp_path, test)


def test_all_who_wait_are_answered_together_and_who_comes_late_waits_for_the_next_change(tmp_path: Path) -> None:
    async def test(stand: Stand) -> None:
        stream = stand.create("a", 1)
        waiting = [wait(stand, "a") for _ in range(3)]
        stand.append(stream, 2)
        # Before anybody was woken, another one asks who knows of the change already.
        late = wait(stand, "a")
        assert [each.answer is None for each in waiting] == [False] * 3
        assert late.answer is None
        await stand.settle()
        assert late.answer is None
        stand.append(stream, 3)
        await stand.settle()
        assert isinstance(late.answer, Reply)
        assert body_of(late.answer)["stream"]["next_offset"] == "3"

    at_stand(tmp_path, test)


def test_who_waits_for_a_stream_that_is_deleted_does_not_find_it(tmp_path: Path) -> None:
    async def test(stand: Stand) -> None:
        stream = stand.create("a", 1)
        waiting = wait(stand, "a")
        stand.context.streams.delete(stream)
        await stand.settle()
        with pytest.raises(Refusal) as refused:
            await waiting
        assert refused.value.status == 404
        assert stand.hub.watched() == []

    at_stand(tmp_path, test)


def test_a_thousand_who_wait_cost_no_task(tmp_path: Path) -> None:
    async def test(stand: Stand) -> None:
        stand.create("a", 1)
        before = len(asyncio.all_tasks())
        waiting = [wait(stand, "a") for _ in range(1000)]
        assert len(asyncio.all_tasks()) == before
        assert [count for _, count in stand.hub.watched()] == [1]
        stand.face.drain()
        assert all(isinstance(each.answer, Reply) for each in waiting)

    at_stand(tmp_path, test)


def test_a_time_is_shown_as_it_is(tmp_path: Path) -> None:
    async def test(stand: Stand) -> None:
        stand.create("a", expires_at=NOW + 1_500)
        assert details(stand, "a")["stream"]["expires_at"] == "2023-11-14T22:13:21.500Z"

    at_stand(tmp_path, test)
