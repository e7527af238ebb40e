"""Live invalidation over HTTP: touch/meta, touch/wait, touch/templates/activate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.invalidation_clients import change, membership_key, row_keys, watch_key
from support.server_process import StartServer
from support.streams_client import StreamsClient
from support.streams_in_process import Asked, HandServer, by_hand

from strandline.delivery.invalidation.keys import hexadecimal, table_key

POSTS = "public.posts"
TABLE = hexadecimal(table_key(POSTS))
META = {
    "mode", "cursor", "epoch", "generation", "bucketMs", "coalesceMs", "filterSize", "k", "pendingKeys",
    "overflowBuckets", "activeWaiters", "bucketMaxSourceOffsetSeq", "lastFlushAtMs", "flushIntervalMsMaxLast10s",
    "flushIntervalMsP95Last10s", "settled", "coarseIntervalMs", "touchCoalesceWindowMs", "activeTemplates",
    "lagSourceOffsets", "touchMode", "walScannedThrough", "hotFineKeys", "hotTemplates", "hotFineKeysActive",
    "hotFineKeysGrace", "hotTemplatesActive", "hotTemplatesGrace", "fineWaitersActive", "coarseWaitersActive",
    "broadFineWaitersActive", "hotKeyFilteringEnabled", "hotTemplateFilteringEnabled", "scanRowsTotal",
    "scanBatchesTotal", "scannedButEmitted0BatchesTotal", "processedThroughDeltaTotal", "touchesEmittedTotal",
    "touchesTableTotal", "touchesTemplateTotal", "fineTouchesDroppedDueToBudgetTotal",
    "fineTouchesSkippedColdTemplateTotal", "fineTouchesSkippedColdKeyTotal", "fineTouchesSkippedTemplateBucketTotal",
    "waitTouchedTotal", "waitTimeoutTotal", "waitStaleTotal", "journalFlushesTotal", "journalNotifyWakeupsTotal",
    "journalNotifyWakeMsTotal", "journalNotifyWakeMsMax", "journalTimeoutsFiredTotal", "journalTimeoutSweepMsTotal",
}  # fmt: skip


def template(*names: str, encoding: str = "string") -> dict[str, Any]:
    return {"entity": POSTS, "fields": [{"name": name, "encoding": encoding} for name in names]}


def enable(streams: StreamsClient, name: str, **touch: Any) -> None:
    streams.create(name)
    profile = {"kind": "state-protocol", "touch": {"enabled": True, **touch}}
    assert streams.request("POST", f"{name}/_profile", {"profile": profile}).status_code == 200


def meta(streams: StreamsClient, name: str, **query: Any) -> dict[str, Any]:
    response = streams.request("GET", f"{name}/touch/meta", params=query)
    assert response.status_code == 200, response.text
    document: dict[str, Any] = response.json()
    return document


def wait(streams: StreamsClient, name: str, **body: Any) -> dict[str, Any]:
    response = streams.request("POST", f"{name}/touch/wait", {"timeoutMs": 20_000, **body})
    assert response.status_code == 200, response.text
    document: dict[str, Any] = response.json()
    return document


def refused(streams: StreamsClient, name: str, **body: Any) -> str:
    return streams.refused(400, "POST", f"{name}/touch/wait", body, code="bad_request")


# --- real servers ----------------------------------------------------------------------------------------------------


def test_a_stream_without_touch_has_none(streams: StreamsClient, name: str) -> None:
    streams.create(name)
    for method, path in (("GET", "meta"), ("POST", "wait"), ("POST", "templates/activate")):
        assert streams.refused(404, method, f"{name}/touch/{path}", "{}") == "touch not enabled"
    assert streams.refused(404, "GET", "nothing/touch/meta") == "not_found"


def test_meta_has_everything(streams: StreamsClient, name: str) -> None:
    enable(streams, name)
    document = meta(streams, name)
    assert set(document) == META
    assert document["cursor"] == f"{document['epoch']}:{document['generation']}"
    assert document["settled"]
    assert document["touchMode"] == "idle"
    assert document["walScannedThrough"] is None
    assert document["filterSize"] == 1 << 22
    response = streams.request("GET", f"{name}/touch/meta")
    assert response.headers["cache-control"] == "no-store"
    assert response.headers["content-type"] == "application/json; charset=utf-8"


def test_whoever_waits_on_a_row_is_told_of_its_change(streams: StreamsClient, name: str) -> None:
    # However slow the machine is, interest does not end between two requests.
    enable(streams, name, memory={"hotKeyTtlMs": 600_000, "hotTemplateTtlMs": 600_000})
    activated = streams.request("POST", f"{name}/touch/templates/activate", {"templates": [template("author")]}).json()
    identifier, _, _ = row_keys(POSTS, author="ann")
    cursor = meta(streams, name, settle="flush")["cursor"]
    assert activated == {
        "activated": [{"templateId": hexadecimal(identifier), "state": "active", "activeFromTouchOffset": cursor}],
        "denied": [],
        "limits": {"maxActiveTemplatesPerStream": 2048, "maxActiveTemplatesPerEntity": 256},
    }
    asked = {"keys": [hexadecimal(watch_key(POSTS, author="ann"))], "templateIdsUsed": [hexadecimal(identifier)]}
    assert wait(streams, name, cursor=cursor, timeoutMs=0, **asked)["touched"] is False
    streams.append(name, change(POSTS, "insert", {"author": "bob"}))
    assert wait(streams, name, cursor=cursor, timeoutMs=300, **asked)["touched"] is False
    streams.append(name, change(POSTS, "insert", {"author": "ann"}))
    told = wait(streams, name, cursor=cursor, **asked)
    assert told["touched"] is True
    assert told["effectiveWaitKind"] == "fineKey"
    assert told["bucketMaxSourceOffsetSeq"] == "1"
    assert told["bucketStartMs"] <= told["flushAtMs"]
    assert wait(streams, name, cursor=told["cursor"], timeoutMs=0, **asked)["touched"] is False


def test_a_table_is_touched_by_every_change(streams: StreamsClient, name: str) -> None:
    enable(streams, name)
    cursor = meta(streams, name)["cursor"]
    streams.append(name, change(POSTS, "delete"))
    told = wait(streams, name, cursor=cursor, interestMode="coarse", keys=[TABLE])
    assert (told["touched"], told["effectiveWaitKind"]) == (True, "tableKey")
    by_id = wait(streams, name, cursor=cursor, interestMode="coarse", keyIds=[int(TABLE[8:], 16)])
    assert by_id["touched"]


def test_settling_waits_for_what_is_on_its_way(streams: StreamsClient, name: str) -> None:
    enable(streams, name, coarseIntervalMs=60_000)
    before = meta(streams, name)
    for _ in range(2):
        streams.append(name, change(POSTS, "delete"))
    after = meta(streams, name, settle="flush")
    assert after["settled"]
    assert after["pendingKeys"] == after["lagSourceOffsets"] == 0
    assert after["scanRowsTotal"] == 2
    assert after["generation"] > before["generation"]
    assert after["walScannedThrough"] == streams.request("HEAD", name).headers["stream-next-offset"]


def test_after_a_restart_every_cursor_is_stale(start_server: StartServer) -> None:
    server = start_server()
    streams = StreamsClient(server.url)
    enable(streams, "live")
    cursor = meta(streams, "live")["cursor"]
    streams.close()
    server.stop()
    server.start()
    streams = StreamsClient(server.url)
    told = wait(streams, "live", cursor=cursor, keys=[TABLE])
    assert told["stale"] is True
    assert told["error"]["code"] == "stale"
    assert told["cursor"] == f"{told['epoch']}:{told['generation']}"
    assert wait(streams, "live", cursor=told["cursor"], keys=[TABLE], timeoutMs=0)["touched"] is False
    streams.close()


@pytest.mark.both_lanes
@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "wait"),
        ({"cursor": "now"}, "wait.keys or wait.keyIds"),
        ({"cursor": 5, "keys": ["a"]}, "wait.cursor"),
        ({"cursor": "abc:1", "keys": ["a"]}, "wait.cursor"),
        ({"cursor": "now", "keys": [""]}, "wait.keys"),
        ({"cursor": "now", "keys": ["a", " \t"]}, "wait.keys[1] is not valid: Expected `str` that is not blank"),
        ({"cursor": "now", "keys": "a"}, "wait.keys"),
        ({"cursor": "now", "keys": ["a"] * 1025}, "wait.keys"),
        ({"cursor": "now", "keyIds": [-1]}, "wait.keyIds"),
        ({"cursor": "now", "keyIds": [1 << 32]}, "wait.keyIds"),
        ({"cursor": "now", "keys": ["a"], "timeoutMs": 120_001}, "wait.timeoutMs"),
        (
            {"cursor": "now", "keys": ["a"], "interestMode": "some"},
            "wait is not valid: invalid value 'some' in interestMode",
        ),
        ({"cursor": "now", "keys": ["a"], "templateIdsUsed": ["xyz"]}, "wait.templateIdsUsed"),
        ({"cursor": "now", "keys": ["a"], "declareTemplates": []}, "wait.declareTemplates"),
        ({"cursor": "now", "keys": ["a"], "inactivityTtlMs": 0}, "wait.inactivityTtlMs"),
        ({"cursor": "now", "keys": ["a"], "exact": True}, "wait.exact"),
        ({"cursor": "now", "keyIds": [1], "exact": True}, "wait.exact"),
        ({"cursor": "now", "keys": [TABLE] * 17, "exact": True}, "wait.exact"),
        ({"cursor": "now", "keys": [TABLE], "exact": True, "interestMode": "coarse"}, "wait.exact"),
    ],
)
def test_a_bad_wait_is_refused(streams: StreamsClient, name: str, body: dict[str, Any], words: str) -> None:
    enable(streams, name)
    assert refused(streams, name, **body).startswith(words)


@pytest.mark.parametrize(
    "body",
    [
        "{",
        "[]",
        "{}",
        {"templates": []},
        {"templates": [template("a")] * 257},
        {"templates": [template("a", "b", "c", "d")]},
        {"templates": [template()]},
        {"templates": [{"entity": "", "fields": [{"name": "a", "encoding": "string"}]}]},
        {"templates": [{"entity": "x", "fields": [{"name": 5, "encoding": "string"}]}]},
        {"templates": [template("a")], "inactivityTtlMs": "soon"},
    ],
)
def test_a_bad_activation_is_refused(streams: StreamsClient, name: str, body: object) -> None:
    enable(streams, name)
    message = streams.refused(400, "POST", f"{name}/touch/templates/activate", body, code="bad_request")
    assert message.startswith("activate")


def test_what_makes_no_sense_is_denied(streams: StreamsClient, name: str) -> None:
    enable(streams, name)
    templates = [template("a", encoding="word"), template("a", "a"), template("a")]
    outcome = streams.request("POST", f"{name}/touch/templates/activate", {"templates": templates}).json()
    assert outcome["denied"] == [{"templateId": "0" * 16, "reason": "invalid"}] * 2
    assert len(outcome["activated"]) == 1


def test_meta_refuses_what_it_does_not_know(streams: StreamsClient, name: str) -> None:
    enable(streams, name)
    for query in ({"settle": "soon"}, {"timeoutMs": "120001"}, {"timeoutMs": "x"}):
        streams.refused(400, "GET", f"{name}/touch/meta", params=query, code="bad_request")


# --- by hand: what takes time, or happens while somebody waits -------------------------------------------------------


async def begin(server: HandServer, **touch: Any) -> str:
    """Make a stream that is followed; returns the cursor."""
    await server.done("PUT", "live")
    await configure(server, enabled=True, **touch)
    cursor: str = document(server.ask("GET", "live/touch/meta"))["cursor"]
    return cursor


async def configure(server: HandServer, **touch: Any) -> None:
    profile = {"kind": "state-protocol", "touch": touch}
    assert (await server.done("POST", "live/_profile", msgspec.json.encode({"profile": profile}))).status == 200


def ask_to_wait(server: HandServer, cursor: str, *keys: str, **body: Any) -> Asked:
    body = {"cursor": cursor, "keys": keys, "timeoutMs": 60_000, **body}
    return server.ask("POST", "live/touch/wait", json.dumps(body).encode())


def document(asked: Asked) -> dict[str, Any]:
    assert asked.status == 200, asked.reply
    found: dict[str, Any] = msgspec.json.decode(asked.body)
    return found


async def until_told(server: HandServer, asked: Asked) -> dict[str, Any]:
    for _ in range(50):
        await server.flush()
        if asked.status is not None:
            return document(asked)
        await server.later(0.05)
    raise AssertionError("nobody was told")


def test_a_wait_ends_when_its_time_is_up_and_not_before(tmp_path: Path) -> None:
    async def test(server: HandServer) -> None:
        cursor = await begin(server)
        asked = ask_to_wait(server, cursor, TABLE, timeoutMs=119_000)
        await server.later(118.9)
        assert asked.status is None
        await server.later(0.2)
        assert document(asked)["touched"] is False
        assert document(server.ask("GET", "live/touch/meta"))["waitTimeoutTotal"] == 1

    by_hand(tmp_path, test)


def test_everybody_who_waits_is_told_of_the_same_change(tmp_path: Path) -> None:
    async def test(server: HandServer) -> None:
        cursor = await begin(server)
        many = [ask_to_wait(server, cursor, TABLE) for _ in range(500)]
        other = ask_to_wait(server, cursor, hexadecimal(table_key("other")))
        assert document(server.ask("GET", "live/touch/meta"))["activeWaiters"] == 501
        await server.done("POST", "live", change(POSTS, "delete"))
        told = [await until_told(server, asked) for asked in many]
        assert all(answer["touched"] for answer in told)
        assert other.status is None
        numbers = document(server.ask("GET", "live/touch/meta"))
        assert numbers["activeWaiters"] == 1
        assert numbers["waitTouchedTotal"] == numbers["journalNotifyWakeupsTotal"] == 500

    by_hand(tmp_path, test)


def test_templates_can_be_declared_with_a_wait(tmp_path: Path) -> None:
    async def test(server: HandServer) -> None:
        cursor = await begin(server)
        identifier, _, _ = row_keys(POSTS, author="ann")
        asked = ask_to_wait(
            server,
            cursor,
            hexadecimal(membership_key(POSTS, author="ann")),
            exact=True,
            templateIdsUsed=[hexadecimal(identifier)],
            declareTemplates=[template("author")],
        )
        assert asked.status is None
        await server.done("POST", "live", change(POSTS, "update", {"author": "bob"}, {"author": "ann"}))
        assert (await until_told(server, asked))["touched"]

    by_hand(tmp_path, test)


def test_whoever_waits_when_touch_is_switched_off_is_sent_away(tmp_path: Path) -> None:
    async def test(server: HandServer) -> None:
        cursor = await begin(server)
        server.ask("POST", "live/touch/templates/activate", json.dumps({"templates": [template("author")]}).encode())
        await server.later(1.5)
        assert "templates" in server.streams.get("live").log.notes
        asked = ask_to_wait(server, cursor, TABLE)
        await configure(server, enabled=False)
        await server.flush()
        assert (asked.status, asked.code) == (404, "not_found")
        assert server.ask("GET", "live/touch/meta").status == 404
        assert "templates" not in server.streams.get("live").log.notes
        assert len(server.face.touching.lives) == 0

    by_hand(tmp_path, test)


def test_whoever_waits_when_touch_is_configured_anew_is_stale(tmp_path: Path) -> None:
    async def test(server: HandServer) -> None:
        cursor = await begin(server)
        asked = ask_to_wait(server, cursor, TABLE)
        await configure(server, enabled=True, coarseIntervalMs=50)
        await server.flush()
        answer = document(asked)
        assert answer["stale"]
        assert answer["epoch"] != cursor[:16]
        assert ask_to_wait(server, answer["cursor"], TABLE).status is None
        assert document(ask_to_wait(server, cursor, TABLE))["stale"]

    by_hand(tmp_path, test)


def test_whoever_waits_when_the_stream_is_deleted_is_sent_away(tmp_path: Path) -> None:
    async def test(server: HandServer) -> None:
        cursor = await begin(server)
        asked = ask_to_wait(server, cursor, TABLE)
        settling = server.ask("GET", "live/touch/meta?settle=flush")
        assert settling.status == 200
        assert (await server.done("DELETE", "live")).status == 204
        await server.flush()
        assert (asked.status, asked.code) == (404, "not_found")

    by_hand(tmp_path, test)


def test_whoever_waits_when_the_server_stops_is_answered(tmp_path: Path) -> None:
    async def test(server: HandServer) -> None:
        cursor = await begin(server)
        asked = ask_to_wait(server, cursor, TABLE)
        server.face.drain()
        assert document(asked)["touched"] is False

    by_hand(tmp_path, test)


def test_what_happens_is_told_in_a_stream(tmp_path: Path) -> None:
    async def test(server: HandServer) -> None:
        cursor = await begin(server)
        assert server.streams.find("live.metrics") is not None
        ask_to_wait(server, cursor, TABLE)
        await server.done("POST", "live", change(POSTS, "delete"))
        # Who waits is told in turns of the loop: let all of them come before it is time for a tick.
        await server.later(0.5)
        await server.later(10)
        ticks = msgspec.json.decode((await server.done("GET", "live.metrics")).body)
        assert len(ticks) == 1
        assert ticks[0] == ticks[0] | {"type": "live.tick", "stream": "live", "touchesTable": 1, "waitTouched": 1}
        await server.later(10.5)
        assert len(msgspec.json.decode((await server.done("GET", "live.metrics")).body)) == 1

    by_hand(tmp_path, test)


def test_templates_survive_a_restart(tmp_path: Path) -> None:
    async def first(server: HandServer) -> None:
        await begin(server)
        server.ask("POST", "live/touch/templates/activate", json.dumps({"templates": [template("author")]}).encode())
        await server.later(1.5)

    async def second(server: HandServer) -> None:
        assert document(server.ask("GET", "live/touch/meta"))["activeTemplates"] == 1

    by_hand(tmp_path, first, second)
