"""Subscribing and publishing over a WebSocket, against real servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.server_process import ServerProcess
from support.topics_client import Client, Socket, eventually
from websockets.exceptions import ConnectionClosed, InvalidStatus


@pytest.fixture
def ws(client: Client) -> Iterator[Socket]:
    with client.websocket() as socket:
        yield socket


def ask(ws: Socket, op: str, **fields: Any) -> Any:
    """Send a command and return what comes next."""
    ws.send({"op": op, **fields})
    return ws.next()


def refused(ws: Socket, op: str, **fields: Any) -> str:
    answer = ask(ws, op, request_id="r", **fields)
    assert (answer["op"], answer["request_id"]) == ("error", "r"), answer
    assert isinstance(answer["message"], str)
    code: str = answer["code"]
    return code


# --- subscribing ---------------------------------------------------------------------------------------------------


def test_a_subscription_begins_with_what_there_is(client: Client, ws: Socket, topic: str) -> None:
    client.put(topic)
    client.write(topic, [{"data": 1, "node": "n", "tag": "t", "meta": {"m": 1}}, 2])
    assert ask(ws, "subscribe", request_id="s1", topic=topic) == {
        "op": "subscribed",
        "request_id": "s1",
        "topics": {topic: {"from_seq": 0, "head_seq": 2, "earliest_seq": 1}},
    }
    record = ws.next()
    assert list(record) == ["op", "topic", "from_seq", "to_seq", "head_seq", "records"]
    assert (record["op"], record["topic"]) == ("record", topic)
    assert (record["from_seq"], record["to_seq"], record["head_seq"]) == (0, 2, 2)
    assert [list(one) for one in record["records"]] == [
        ["$seq", "$ts", "$node", "data", "meta"],
        ["$seq", "$ts", "data"],
    ]
    assert ws.next() == {"op": "caught_up", "topic": topic, "head_seq": 2}
    client.write(topic, [3])
    assert ws.next()["records"][0]["data"] == 3
    assert ws.next() == {"op": "caught_up", "topic": topic, "head_seq": 3}


def test_a_subscription_can_start_anywhere_and_leave_out_what_is_not_wanted(
    client: Client, ws: Socket, topic: str
) -> None:
    client.put(topic)
    client.write(topic, [{"data": number, "tag": f"t{number % 2}", "node": "me"} for number in range(4)])
    ask(ws, "subscribe", topic=topic, from_seq=1, match="t1", include_tags=True, include_data=False)
    assert [(one["$seq"], one["$tag"]) for one in ws.next()["records"]] == [(2, "t1"), (4, "t1")]
    ws.wait_for("caught_up")
    # Subscribing again replaces the first subscription.
    ask(ws, "subscribe", topic=topic, tail=True, node="me")
    assert ws.next() == {"op": "caught_up", "topic": topic, "head_seq": 4}
    client.write(topic, [{"data": "mine", "node": "me"}])
    client.write(topic, [{"data": "yours", "node": "you"}])
    assert [one["data"] for one in ws.wait_for("record")["records"]] == ["yours"]
    ask(ws, "subscribe", topics={topic: {"from_seq": 0}}, limit=1, consistency="strong")
    ws.wait_for("subscribed")
    assert [len(ws.next()["records"]) for _ in range(6)] == [1] * 6


def test_several_topics_and_patterns_can_be_subscribed_to(client: Client, ws: Socket, topic: str) -> None:
    client.put(topic + ":a")
    answer = ask(ws, "subscribe", topics={topic + ":*": {}, topic + "-no": {}}, lenient=True)
    assert list(answer["topics"]) == [topic + ":a"]
    assert ws.next()["op"] == "caught_up"
    client.put(topic + ":b")
    client.write(topic + ":b", [1])
    assert ws.wait_for("record")["topic"] == topic + ":b"
    ws.wait_for("caught_up")
    assert ask(ws, "unsubscribe", request_id=1, topics=[topic + ":*"]) == {
        "op": "unsubscribed",
        "request_id": 1,
        "topics": [topic + ":*"],
    }
    client.write(topic + ":b", [2])
    client.put(topic + ":c")
    assert ask(ws, "ping")["op"] == "pong"


def test_what_was_unsubscribed_comes_no_more(client: Client, ws: Socket, topic: str) -> None:
    client.put(topic)
    ask(ws, "subscribe", topic=topic)
    ws.wait_for("caught_up")
    assert ask(ws, "unsubscribe", topic=topic)["topics"] == [topic]
    client.write(topic, [1])
    assert ask(ws, "ping", request_id=7) == {"op": "pong", "request_id": 7}


def test_a_loss_has_its_real_reason_from_the_start(client: Client, ws: Socket, topic: str) -> None:
    client.put(topic, cap_records=1)
    client.write(topic, [1, 2, 3])
    ask(ws, "subscribe", topic=topic)
    assert ws.next() == {
        "op": "tombstone",
        "topic": topic,
        "reason": "cap",
        "gap_from": 1,
        "gap_to": 2,
        "earliest_seq": 3,
        "head_seq": 3,
    }
    assert ws.next()["records"][0]["data"] == 3


def test_a_deleted_topic_is_told_and_ends_its_subscription(client: Client, ws: Socket, topic: str) -> None:
    client.put(topic)
    client.write(topic, [1])
    ask(ws, "subscribe", topic=topic)
    ws.wait_for("caught_up")
    client.drop(topic)
    assert ws.next() == {"op": "topic_deleted", "topic": topic, "head_seq": 1, "reason": "deleted"}
    client.put(topic)
    client.write(topic, [2])
    assert ask(ws, "ping")["op"] == "pong"


# --- publishing ----------------------------------------------------------------------------------------------------


def test_a_publish_is_acknowledged_like_a_write(client: Client, ws: Socket, topic: str) -> None:
    ack = ask(ws, "publish", request_id={"any": ["json"]}, topic=topic, records=[{"data": 1}, {"data": 2}], node="n")
    assert ack.pop("performance")["fsync_ms"] >= 0
    assert ack == {
        "op": "ack",
        "request_id": {"any": ["json"]},
        "topic": topic,
        "first_seq": 1,
        "last_seq": 2,
        "seqs": [1, 2],
        "head_seq": 2,
        "count": 2,
        "created": True,
        "deduped": False,
    }
    assert [one["$node"] for one in client.diff(topic)["records"]] == ["n", "n"]
    ack = ask(ws, "publish", topic=topic, records=[{"data": 3}], return_seqs=False, idempotency_key="k")
    assert (ack["seqs"], ack["last_seq"], ack["request_id"]) == (None, 3, None)
    again = ask(ws, "publish", topic=topic, records=[{"data": 3}], idempotency_key="k")
    assert (again["seqs"], again["deduped"]) == ([3], True)


@pytest.mark.parametrize("durability", ["memory", "fsync"])
def test_many_publishes_can_be_under_way(client: Client, ws: Socket, topic: str, durability: str) -> None:
    client.put(topic, durability=durability)
    for number in range(600):
        ws.send({"op": "publish", "request_id": number, "topic": topic, "records": [{"data": number}]})
    # One that waits for the disk may be acknowledged after the next one: the request id tells which it is.
    acks = sorted([ws.next() for _ in range(600)], key=lambda ack: ack["request_id"])
    assert [ack["request_id"] for ack in acks] == list(range(600))
    assert [ack["first_seq"] for ack in acks] == list(range(1, 601))
    assert client.get(topic)["head_seq"] == 600


def test_publishing_follows_the_rules_of_writing(client: Client, ws: Socket, topic: str) -> None:
    one = [{"data": 1}]
    assert refused(ws, "publish", topic=topic, records=one, create=False) == "topic_not_found"
    assert refused(ws, "publish", topic=topic, records=[]) == "invalid_request"
    assert refused(ws, "publish", topic="bad name!", records=one) == "invalid_request"
    assert refused(ws, "publish", topic=topic, records=one * 10_001) == "batch_too_large"
    assert refused(ws, "publish", topic=topic, records=[{"data": "x" * (1 << 20)}]) == "record_too_large"
    full = {"cap_records": 1, "discard": "reject"}
    assert ask(ws, "publish", topic=topic, records=one, config=full)["created"] is True
    answer = ask(ws, "publish", topic=topic, records=one)
    assert (answer["code"], answer["detail"]["topic"]) == ("topic_full", topic)


# --- what makes no sense, and who may ------------------------------------------------------------------------------


def test_messages_that_make_no_sense_are_answered_and_the_socket_stays(ws: Socket, topic: str) -> None:
    ws.send("{not json")
    answer = ws.next()
    assert (answer["op"], answer["request_id"], answer["code"]) == ("error", None, "invalid_json")
    for command in (
        {"op": "dance"},
        {},
        {"op": "publish", "topic": topic},
        {"op": "publish", "records": []},
        {"op": "subscribe", "topic": 5},
        {"op": "subscribe", "topic": topic, "consistency": "maybe"},
    ):
        ws.send({"request_id": "r", **command})
        answer = ws.next()
        assert (answer["op"], answer["request_id"], answer["code"]) == ("error", "r", "invalid_json")
    ws.connection.send(b"binary")
    answer = ws.next()
    assert answer["code"] == "unsupported_message"
    assert "request_id" not in answer
    assert refused(ws, "subscribe") == "invalid_request"
    assert refused(ws, "subscribe", topics={}) == "invalid_request"
    assert refused(ws, "unsubscribe") == "invalid_request"
    assert refused(ws, "subscribe", topic=topic) == "topic_not_found"
    assert refused(ws, "subscribe", topic="a*", match=["tag", "Like", "x"]) == "invalid_request"
    assert refused(ws, "subscribe", topics={f"t{number}": {} for number in range(257)}) == "invalid_request"
    assert ask(ws, "ping")["op"] == "pong"


@pytest.mark.both_lanes
def test_keys_are_checked_at_the_upgrade_and_for_every_command(
    start_server: Callable[..., ServerProcess], lane: str
) -> None:
    server = start_server(keys="root,reader:read:t:,writer:write:t:", lane=lane)
    root = server.client()
    root.put("t:a")
    for path, key in (("/v0/ws", ""), ("/v0/ws", "wrong"), ("/v0/ws?token=root", "")):
        with pytest.raises(InvalidStatus) as denied, server.client("").websocket(path, key=key):
            pass
        assert denied.value.response.status_code == 401
        assert b'"unauthorized"' in (denied.value.response.body or b"")
    one = [{"data": 1}]
    with root.websocket(key="reader") as ws:
        assert refused(ws, "publish", topic="t:a", records=one) == "forbidden"
        assert refused(ws, "subscribe", topic="other") == "forbidden"
        assert ask(ws, "subscribe", topic="t:a")["op"] == "subscribed"
    with root.websocket(key="writer") as ws:
        assert refused(ws, "subscribe", topic="t:a") == "forbidden"
        assert refused(ws, "publish", topic="other", records=one) == "forbidden"
        # Even where the topic exists, and over HTTP the config would be ignored.
        assert refused(ws, "publish", topic="t:a", records=one, config={}) == "forbidden"
        assert ask(ws, "publish", topic="t:a", records=one)["op"] == "ack"
        assert ask(ws, "publish", topic="t:new", records=one)["created"] is True


@pytest.mark.both_lanes
def test_sockets_take_the_same_slots_as_streams(start_server: Callable[..., ServerProcess], lane: str) -> None:
    server = start_server(max_sse_connections=1, lane=lane)
    client = server.client()
    client.put("t")
    url = client.call("POST", "/v0/watch", {"topics": {"t": {}}})["stream_url"]
    with client.websocket() as ws:
        assert ask(ws, "ping")["op"] == "pong"
        assert client.refused("GET", url, status=429)["code"] == "throttled"
        with pytest.raises(InvalidStatus) as denied, client.websocket():
            pass
        assert denied.value.response.status_code == 429
        assert denied.value.response.headers["retry-after"] == "1"

    def opens() -> bool:
        try:
            with client.websocket() as ws:
                return bool(ask(ws, "ping")["op"] == "pong")
        except InvalidStatus:
            return False

    eventually(opens)


@pytest.mark.both_lanes
def test_a_server_that_stops_says_so_before_it_closes(start_server: Callable[..., ServerProcess], lane: str) -> None:
    server = start_server(lane=lane)
    client = server.client()
    client.put("t")
    with client.websocket() as ws:
        ask(ws, "subscribe", topic="t")
        ws.wait_for("caught_up")
        server.terminate()
        answer = ws.next()
        assert (answer["op"], answer["code"]) == ("error", "server_shutting_down")
        with pytest.raises(ConnectionClosed) as closed:
            ws.next()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1012
    server.wait()


def test_a_client_that_reads_late_gets_everything_in_order(client: Client, ws: Socket, topic: str) -> None:
    client.put(topic)
    ask(ws, "subscribe", topic=topic)
    ws.wait_for("caught_up")
    for _ in range(20):
        client.write(topic, ["x" * 10_000] * 40)
    seqs: list[int] = []
    while len(seqs) < 800:
        seqs += [one["$seq"] for one in ws.wait_for("record")["records"]]
    assert seqs == list(range(1, 801))
