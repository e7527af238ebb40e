"""What there is to say of one log."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.console_in_process import NOW, ConsoleStand


def test_a_topic_is_described_with_its_configuration(stand: ConsoleStand) -> None:
    stand.put("orders", ttl_ms=5_000, cap_records=2, durability="memory")
    stand.log("orders", 1, 2, 3)
    found = stand.get("/log/orders")
    assert (found["kind"], found["head"], found["earliest"], found["floor"], found["records"]) == ("topic", 3, 2, 2, 2)
    assert (found["config"]["ttl_ms"], found["config"]["cap_records"], found["config"]["type"]) == (5_000, 2, "log")
    assert (found["media_type"], found["schema"], found["profile"]) == ("application/json", False, "generic")
    assert (found["closed"], found["fork"], found["forks"], found["expires_at"]) == (False, None, 0, None)
    assert (found["writable_by"], found["of"], found["epoch"]) == (["topics", "streams"], None, 1)


def test_consumers_are_shown_with_their_lag(stand: ConsoleStand) -> None:
    stand.log("orders", 1, 2, 3)
    stand.clock.advance(50)
    assert stand.ask("PUT", "/v0/topics/orders/consumers/billing", {"seq": 1}).status == 200
    found = stand.get("/log/orders")
    assert found["consumers"] == [{"name": "billing", "seq": 1, "lag": 2, "moved_at": NOW + 50}]
    assert found["lag"] == 2


def test_a_stream_says_what_it_holds_and_when_it_goes(stand: ConsoleStand) -> None:
    made = stand.ask("PUT", "/v1/stream/pictures", b"", content_type="image/png", stream_ttl="60")
    assert made.status == 201, made
    found = stand.get("/log/pictures")
    assert (found["kind"], found["media_type"], found["writable_by"]) == ("stream", "image/png", ["streams"])
    assert found["expires_at"] == NOW + 60_000
    stand.clock.advance(60_000)
    assert stand.refused("/log/pictures") == (404, "log_not_found")


def test_a_stream_with_a_schema_takes_appends_by_its_own_protocol_alone(stand: ConsoleStand) -> None:
    stand.stream("shaped", "application/json")
    shaped = stand.ask("POST", "/v1/stream/shaped/_schema", {"schema": {"type": "object"}})
    assert shaped.status == 200, shaped
    found = stand.get("/log/shaped")
    assert (found["schema"], found["writable_by"]) == (True, ["streams"])
    assert "schema" in found["note"]


def test_a_closed_stream_takes_nothing(stand: ConsoleStand) -> None:
    stand.stream("done", "application/json", b"1")
    assert stand.ask("POST", "/v1/stream/done", b"", stream_closed="true").status == 204
    found = stand.get("/log/done")
    assert (found["closed"], found["writable_by"]) == (True, [])


def test_a_fork_says_of_what(tmp_path: Path) -> None:
    with ConsoleStand(tmp_path, "all,limited:read:fork") as stand:
        stand.engine.fork("fork", stand.log("source", 1, 2, 3), 2).wait()
        assert stand.get("/log/fork", key="all")["fork"] == {"of": "source", "through": 2}
        assert stand.get("/log/source", key="all")["forks"] == 1
        assert stand.get("/log/fork", key="limited")["fork"] is None


@pytest.mark.parametrize(("note", "protocol"), [("collection", "collections"), ("table", "tables")])
def test_what_another_protocol_keeps_says_so(stand: ConsoleStand, note: str, protocol: str) -> None:
    stand.engine.create("kept", notes={note: "polls"}).wait()
    found = stand.get("/log/kept")
    assert (found["kind"], found["of"], found["writable_by"]) == (note, "polls", [protocol])
    assert note in found["note"]


def test_routers_that_touch_the_log_are_shown(stand: ConsoleStand) -> None:
    for router, source, destination in (("a", "first", "second"), ("b", "second", "third"), ("c", "other", "fourth")):
        made = stand.ask("PUT", f"/v0/routers/{router}", {"source": source, "dest": destination})
        assert made.status == 201, made
    assert [each["name"] for each in stand.get("/log/second")["routers"]] == ["a", "b"]


def test_a_log_that_is_not_there_is_not_found(stand: ConsoleStand) -> None:
    for target in ("", "/records", "/keys", "/removal?key=a", "/inference", "/tail"):
        assert stand.refused(f"/log/nothing{target}") == (404, "log_not_found")


def test_the_servers_own_logs_are_for_those_who_run_it(tmp_path: Path) -> None:
    with ConsoleStand(tmp_path, "boss:read+admin,looks:read,limited:read:app-") as stand:
        stand.log("_own", b"\x93\x01\x02\x03")
        assert stand.refused("/log/_own", key="looks") == (404, "log_not_found")
        assert stand.refused("/log/_own", key="limited") == (403, "forbidden")
        assert stand.get("/log/_own", key="boss")["writable_by"] == []
        assert stand.get("/log/_own/records", key="boss")["records"][0]["base64"] == "kwECAw=="
