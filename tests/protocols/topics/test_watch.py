"""Watching topics over an event stream, against real servers."""

from __future__ import annotations

import base64
import socket
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from support.server_process import ServerProcess
from support.topics_client import Client, Event, eventually


def watch(client: Client, topics: dict[str, Any], query: str = "", **fields: Any) -> str:
    """Make a session; returns the address of its stream."""
    url: str = client.call("POST", f"/v0/watch{query}", {"topics": topics, **fields})["stream_url"]
    return url


def cursor(positions: dict[str, int]) -> str:
    text = base64.urlsafe_b64encode(msgspec.json.encode(dict(sorted(positions.items())))).decode()
    return text.rstrip("=")


def positions(event: Event) -> dict[str, int]:
    assert event.id is not None
    assert "=" not in event.id
    raw = base64.urlsafe_b64decode(event.id + "=" * (-len(event.id) % 4))
    found: dict[str, int] = msgspec.json.decode(raw)
    assert list(found) == sorted(found)
    return found


def data_of(event: Event) -> list[Any]:
    assert event.event == "record", event
    return [record["data"] for record in event.json["records"]]


@pytest.fixture
def other(server: ServerProcess) -> Iterator[Client]:
    """A second connection, for writing while a stream is open."""
    client = Client(server.url)
    yield client
    client.close()


# --- making a session ----------------------------------------------------------------------------------------------


def test_a_session_tells_where_each_topic_begins(client: Client, topic: str) -> None:
    client.put(topic)
    client.put(topic + "-tail")
    client.write(topic, [1, 2, 3])
    client.write(topic + "-tail", [1])
    answer = client.call("POST", "/v0/watch", {"topics": {topic: {"from_seq": 2}, topic + "-tail": {"tail": True}}})
    assert list(answer) == ["wid", "stream_url", "session_ttl_ms", "topics", "performance"]
    assert answer["wid"].startswith("wid_")
    assert len(answer["wid"]) == 26
    assert answer["stream_url"] == "/v0/watch/" + answer["wid"]
    assert answer["session_ttl_ms"] == 300_000
    assert answer["topics"] == {
        topic: {"from_seq": 2, "head_seq": 3, "earliest_seq": 1},
        topic + "-tail": {"from_seq": 1, "head_seq": 1, "earliest_seq": 1},
    }


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"topics": {}},
        {"topics": []},
        {"topics": {"a": {"from_seq": -1}}},
        {"topics": {"a": 5}},
        {"topics": {"a": {}}, "consistency": "sometimes"},
        {"topics": {"a": {}}, "limit": "many"},
        {"topics": {"a": {}}, "match": ["tag", "Like", "x"]},
        {"topics": {"a": {"match": 7}}},
        {"topics": {"a": {}}, "cursor": "???"},
        {"topics": {f"t{number}": {} for number in range(257)}},
    ],
)
def test_a_bad_session_is_refused(client: Client, body: Any) -> None:
    assert client.refused("POST", "/v0/watch", body, status=400)["code"] == "invalid_request"


def test_unknown_topics_are_refused_or_left_out(client: Client, topic: str) -> None:
    client.put(topic)
    wanted = {topic: {}, topic + "-no": {}}
    error = client.refused("POST", "/v0/watch", {"topics": wanted}, status=404)
    assert (error["code"], error["detail"]) == ("topic_not_found", {"topic": topic + "-no"})
    answer = client.call("POST", "/v0/watch?lenient=true", {"topics": wanted})
    assert list(answer["topics"]) == [topic]
    with client.events(watch(client, {topic + "-no": {}}, "?lenient=true")) as stream:
        assert stream.ended() == []


def test_the_stream_has_the_right_headers_and_needs_a_client_that_accepts_it(client: Client, topic: str) -> None:
    client.put(topic)
    url = watch(client, {topic: {}})
    with client.events(url) as stream:
        headers = stream.response.headers
        assert headers["content-type"] == "text/event-stream; charset=utf-8"
        assert headers["cache-control"] == "no-store"
        assert headers["x-accel-buffering"] == "no"
    error = client.refused("GET", url, status=406, headers={"accept": "application/json"})
    assert error["code"] == "not_acceptable"
    assert client.refused("GET", "/v0/watch/wid_nobody", status=404)["code"] == "not_found"


# --- what comes ----------------------------------------------------------------------------------------------------


def test_the_stream_begins_with_what_there_is_in_the_order_of_the_names(client: Client, topic: str) -> None:
    a, b, c = (f"{topic}-{letter}" for letter in "abc")
    for name in (b, c, a):
        client.put(name)
    client.write(b, [1, 2, 3])
    client.write(a, [{"data": {"x": 1}, "node": "n", "tag": "t", "meta": {"m": 1}}])
    with client.events(watch(client, {c: {}, b: {"from_seq": 1}, a: {}}, limit=1)) as stream:
        first = stream.next_block()
        assert first == Event(retry=2000)
        events = [stream.next() for _ in range(6)]
    assert stream.raw.startswith(b"retry: 2000\n\nid: ")
    assert [(event.event, event.json["topic"]) for event in events] == [
        ("record", a),
        ("caught-up", a),
        ("record", b),
        ("record", b),
        ("caught-up", b),
        ("caught-up", c),
    ]
    record = events[0].json
    assert list(record) == ["topic", "records", "from_seq", "to_seq", "head_seq"]
    assert (record["from_seq"], record["to_seq"], record["head_seq"]) == (0, 1, 1)
    assert [list(one) for one in record["records"]] == [["$seq", "$ts", "$node", "data", "meta"]]
    assert events[5].json == {"topic": c, "head_seq": 0}
    assert positions(events[2]) == {a: 1, b: 2, c: 0}
    assert positions(events[5]) == {a: 1, b: 3, c: 0}


def test_new_records_come_at_once_and_each_time_the_head_is_reached_it_is_said(
    client: Client, other: Client, topic: str
) -> None:
    client.put(topic)
    with client.events(watch(client, {topic: {}})) as stream:
        assert stream.next().event == "caught-up"
        for number in range(3):
            other.write(topic, [number])
            record = stream.next()
            assert data_of(record) == [number]
            assert positions(record) == {topic: number + 1}
            assert stream.next().json == {"topic": topic, "head_seq": number + 1}


def test_what_is_included_can_be_chosen(client: Client, topic: str) -> None:
    client.put(topic)
    client.write(topic, [{"data": 1, "tag": "t", "meta": {"m": 1}, "node": "n"}])
    with client.events(watch(client, {topic: {}}, include_tags=True, include_meta=False, include_data=False)) as stream:
        [record] = stream.next().json["records"]
    assert list(record) == ["$seq", "$ts", "$node", "$tag"]


def test_data_with_line_ends_takes_several_lines(client: Client, other: Client, topic: str) -> None:
    client.put(topic)
    with client.events(watch(client, {topic: {}})) as stream:
        stream.wait_for("caught-up")
        for end in ("\n", "\r", "\r\n"):
            body = '{"records":[{"data":{"a":~1,~"b":"x"}}]}'.replace("~", end)
            other.call("POST", f"/v0/topics/{topic}", body.encode())
            assert data_of(stream.wait_for("record")) == [{"a": 1, "b": "x"}]
        assert b"\r" not in stream.raw


def test_own_records_are_left_out_and_the_cursor_moves_on(client: Client, other: Client, topic: str) -> None:
    client.put(topic)
    client.write(topic, [{"data": 1, "node": "me"}, {"data": 2, "node": "you"}, {"data": 3, "node": "me"}])
    with client.events(watch(client, {topic: {}}, node=["me", "myself"])) as stream:
        record = stream.next()
        assert data_of(record) == [2]
        assert (record.json["to_seq"], positions(record)) == (3, {topic: 3})
        stream.wait_for("caught-up")
        other.write(topic, [{"data": 4, "node": "me"}])
        other.write(topic, [{"data": 5}])
        event = stream.next()
        assert data_of(event) == [5]
        assert event.json["from_seq"] in (3, 4)


def test_records_can_be_chosen_by_tag_for_all_topics_or_for_one(client: Client, topic: str) -> None:
    a, b = topic + "-a", topic + "-b"
    for name in (a, b):
        client.put(name)
        client.write(name, [{"data": tag, "tag": tag} for tag in ("x:1", "x:2", "y:1")] + [{"data": "none"}])
    wanted = {a: {}, b: {"match": ["tag", "Eq", "y:1"]}}
    with client.events(watch(client, wanted, match=["tag", "Glob", "x:*"])) as stream:
        assert data_of(stream.wait_for("record")) == ["x:1", "x:2"]
        assert data_of(stream.wait_for("record")) == ["y:1"]


def test_records_can_be_chosen_by_time(client: Client, topic: str) -> None:
    client.put(topic)
    client.write(topic, ["old"])
    old = client.diff(topic)["records"][0]["$ts"]

    def newer() -> bool:
        client.write(topic, ["new"])
        return bool(client.diff(topic)["records"][-1]["$ts"] > old)

    eventually(newer)
    with client.events(watch(client, {topic: {"since_ts": old + 1}})) as stream:
        assert set(data_of(stream.wait_for("record"))) == {"new"}
    with client.events(watch(client, {topic: {}}, since_ts=old + 3_600_000)) as stream:
        assert stream.next().event == "caught-up"


def test_frames_keep_to_their_byte_budget(client: Client, topic: str) -> None:
    client.put(topic)
    client.write(topic, ["x" * 100] * 4)
    with client.events(watch(client, {topic: {}}, max_batch_bytes=250)) as stream:
        assert [len(data_of(stream.next())) for _ in range(2)] == [2, 2]
    with client.events(watch(client, {topic: {}}, max_batch_bytes=1)) as stream:
        assert [len(data_of(stream.next())) for _ in range(4)] == [1, 1, 1, 1]


def test_a_loss_is_told_before_what_is_left(client: Client, other: Client, topic: str) -> None:
    client.put(topic, cap_records=2)
    client.write(topic, [1, 2, 3, 4, 5])
    with client.events(watch(client, {topic: {"from_seq": 1}})) as stream:
        lost = stream.next()
        assert lost.event == "tombstone"
        assert lost.json == {
            "topic": topic,
            "reason": "from_seq_too_old",
            "gap_from": 2,
            "gap_to": 3,
            "earliest_seq": 4,
            "head_seq": 5,
        }
        assert positions(lost) == {topic: 3}
        record = stream.next()
        assert data_of(record) == [4, 5]
        assert record.json["from_seq"] == 1
        stream.wait_for("caught-up")
        # From now on the loss has its real reason: a batch that is larger than the topic loses its own beginning.
        other.write(topic, [6, 7, 8])
        assert stream.next().json["reason"] == "cap"
        assert data_of(stream.next()) == [7, 8]


def test_deleted_records_are_passed_over_silently(client: Client, topic: str) -> None:
    client.put(topic)
    client.write(topic, [1, 2, 3])
    client.delete(topic, before_seq=3)
    with client.events(watch(client, {topic: {}})) as stream:
        assert data_of(stream.next()) == [3]


def test_sealed_history_is_delivered_too(start_server: Callable[..., ServerProcess]) -> None:
    server = start_server(journal_bytes=1 << 20)
    client = server.client()
    client.put("t")
    for _ in range(12):
        client.write("t", ["x" * 1000] * 100)
    server.stop()
    server.start()
    client = server.client()
    seqs: list[int] = []
    with client.events(watch(client, {"t": {}}, limit=1000)) as stream:
        while (event := stream.next()).event == "record":
            seqs += [record["$seq"] for record in event.json["records"]]
    assert seqs == list(range(1, 1201))


@pytest.mark.parametrize("durability", ["ephemeral", "memory", "disk", "fsync"])
def test_a_strong_watch_delivers_on_every_class(client: Client, other: Client, topic: str, durability: str) -> None:
    client.put(topic, durability=durability)
    client.write(topic, [1])
    with client.events(watch(client, {topic: {}}, consistency="strong")) as stream:
        assert data_of(stream.wait_for("record")) == [1]
        for number in (2, 3):
            other.write(topic, [number])
            assert data_of(stream.wait_for("record")) == [number]
        stream.wait_for("caught-up")


def test_heartbeats_keep_an_idle_stream_alive(start_server: Callable[..., ServerProcess]) -> None:
    client = start_server(min_heartbeat_ms=50).client()
    client.put("t")
    with client.events(watch(client, {"t": {}}, heartbeat_ms=50)) as stream:
        stream.wait_for("caught-up")
        for _ in range(2):
            block = stream.next_block()
            assert block is not None
            assert (block.comment or "").startswith("hb 1")
            assert block.id is None


# --- coming back ---------------------------------------------------------------------------------------------------


def test_a_session_goes_on_where_it_was_and_the_last_id_rewinds_it(client: Client, other: Client, topic: str) -> None:
    client.put(topic)
    client.write(topic, [1, 2, 3])
    url = watch(client, {topic: {}}, limit=1)
    with client.events(url) as stream:
        ids = [stream.next().id for _ in range(3)]
        stream.wait_for("caught-up")
    other.write(topic, [4])
    with client.events(url) as stream:
        assert data_of(stream.next()) == [4]
        stream.wait_for("caught-up")
    with client.events(url, last_event_id=ids[1] or "") as stream:
        assert [data_of(stream.next()) for _ in range(2)] == [[3], [4]]
        stream.wait_for("caught-up")
    # Never forward, and nothing that makes no sense.
    for strange in (cursor({topic: 999}), cursor({"unknown": 1}), "%%%", cursor({topic: 4}) + "="):
        with client.events(url, last_event_id=strange) as stream:
            assert stream.next().event == "caught-up"


def test_a_cursor_can_be_in_the_address_or_in_the_body(client: Client, topic: str) -> None:
    client.put(topic)
    client.write(topic, [1, 2, 3])
    url = watch(client, {topic: {"tail": True}}, cursor=cursor({topic: 2, "other": 9}))
    with client.events(url) as stream:
        assert data_of(stream.next()) == [3]
        stream.wait_for("caught-up")
    with client.events(f"{url}?cursor={cursor({topic: 1})}") as stream:
        assert data_of(stream.next()) == [2, 3]
        stream.wait_for("caught-up")
    # A browser repeats its first address: what it has seen since counts.
    with client.events(f"{url}?cursor={cursor({topic: 0})}", last_event_id=cursor({topic: 2})) as stream:
        assert data_of(stream.next()) == [3]
    assert client.refused("GET", f"{url}?cursor=nonsense!", status=400)["code"] == "invalid_request"


# --- topics come and go --------------------------------------------------------------------------------------------


def test_a_deleted_topic_is_told_at_once_and_the_stream_ends_with_the_last_one(
    client: Client, other: Client, topic: str
) -> None:
    a, b = topic + "-a", topic + "-b"
    for name in (a, b):
        client.put(name)
    client.write(a, [1, 2])
    with client.events(watch(client, {a: {}, b: {}}, heartbeat_ms=60000)) as stream:
        [stream.wait_for("caught-up") for _ in range(2)]
        other.drop(a)
        deleted = stream.next()
        assert deleted.event == "topic-deleted"
        assert deleted.json == {"topic": a, "head_seq": 2, "reason": "deleted"}
        assert positions(deleted) == {a: 2, b: 0}
        other.write(b, ["still"])
        record = stream.next()
        assert data_of(record) == ["still"]
        assert positions(record) == {b: 1}
        other.drop(b)
        assert [event.event for event in stream.ended()] == ["caught-up", "topic-deleted"]


def test_a_pattern_covers_topics_that_are_made_later(client: Client, other: Client, topic: str) -> None:
    client.put(topic + ":a")
    client.write(topic + ":a", [1])
    wanted = {topic + ":*": {"tail": True}, topic + ":a": {}}
    with client.events(watch(client, wanted)) as stream:
        assert data_of(stream.next()) == [1]
        stream.wait_for("caught-up")
        other.put(topic + ":b")
        other.write(topic + ":b", ["hello"])
        other.put(topic + "-elsewhere")
        record = stream.wait_for("record")
        assert (record.json["topic"], data_of(record)) == (topic + ":b", ["hello"])
        stream.wait_for("caught-up")
        # Gone and made again, it is covered again; and the stream stays when nothing is left.
        for name in (topic + ":a", topic + ":b"):
            other.drop(name)
            assert stream.next().event == "topic-deleted"
        other.put(topic + ":b")
        other.write(topic + ":b", ["again"])
        assert data_of(stream.wait_for("record")) == ["again"]


def test_forwarded_records_are_delivered(client: Client, other: Client, topic: str) -> None:
    source, destination = topic + "-src", topic + "-dst"
    client.call("PUT", f"/v0/routers/{topic}", {"source": source, "dest": destination}, status=201)
    with client.events(watch(client, {destination: {}})) as stream:
        stream.wait_for("caught-up")
        other.write(source, ["through"])
        assert data_of(stream.wait_for("record")) == ["through"]


# --- who may -------------------------------------------------------------------------------------------------------


@pytest.mark.both_lanes
def test_keys_bound_what_is_watched_and_who_opens_it(start_server: Callable[..., ServerProcess], lane: str) -> None:
    server = start_server(keys="root,tenant:read:t:,writer:write,reader:read", lane=lane)
    root, tenant = server.client(), server.client("tenant")
    for name in ("t:a", "t:b", "other"):
        root.put(name)
    error = tenant.refused("POST", "/v0/watch", {"topics": {"t:a": {}, "other": {}}}, status=403)
    assert (error["code"], error["detail"]) == ("forbidden", {"topic": "other"})
    assert tenant.refused("POST", "/v0/watch", {"topics": {"oth*": {}}}, status=403)["detail"] == {"topic": "oth*"}
    assert server.client("writer").refused("POST", "/v0/watch", {"topics": {"t:a": {}}}, status=403)
    # A pattern that is wider than what the key may touch covers just that.
    assert list(tenant.call("POST", "/v0/watch", {"topics": {"*": {}}})["topics"]) == ["t:a", "t:b"]
    url = watch(tenant, {"t:a": {}})
    for stranger in (root, server.client("reader"), server.client(""), server.client("wrong")):
        assert stranger.refused("GET", url, status=401)["code"] == "unauthorized"
        assert stranger.refused("GET", "/v0/watch/wid_unknown", status=404)["code"] == "not_found"
    with tenant.events(url) as stream:
        assert stream.next().event == "caught-up"
    with server.client("").events(url + "?token=tenant") as stream:
        assert stream.next().event == "caught-up"
    assert server.client("").refused("POST", "/v0/watch?token=tenant", {"topics": {}}, status=401)


@pytest.mark.both_lanes
def test_open_streams_are_bounded_and_a_closed_one_makes_room(
    start_server: Callable[..., ServerProcess], lane: str
) -> None:
    server = start_server(max_sse_connections=1, max_watch_sessions=1, lane=lane)
    client, other = server.client(), server.client()
    client.put("t")
    url = watch(client, {"t": {}})
    response = client.request("POST", "/v0/watch", {"topics": {"t": {}}})
    assert response.status_code == 429
    assert response.headers["retry-after"] == "1"
    assert response.json()["error"]["detail"] == {"limit": "max_watch_sessions", "max": 1}
    with client.events(url) as stream:
        stream.wait_for("caught-up")
        error = other.refused("GET", url, status=429)
        assert error["code"] == "throttled"
        assert "detail" not in error

    def opens() -> bool:
        with other.http.stream("GET", url) as response:
            return response.status_code == 200

    eventually(opens)


# --- the end -------------------------------------------------------------------------------------------------------


@pytest.mark.both_lanes
def test_a_server_that_stops_says_so_and_the_client_goes_on_with_its_cursor(
    start_server: Callable[..., ServerProcess], lane: str
) -> None:
    server = start_server(lane=lane)
    client = server.client()
    client.put("t")
    client.write("t", [1, 2])
    with client.events(watch(client, {"t": {}}, limit=1)) as stream:
        first = stream.next()
        stream.wait_for("caught-up")
        server.terminate()
        [last] = stream.ended()
        assert last.event == "error"
        assert list(last.json) == ["code", "message"]
        assert last.json["code"] == "server_shutting_down"
        assert last.id is None
    server.wait()
    server.start()
    client = server.client()
    with client.events(watch(client, {"t": {}}, cursor=first.id)) as stream:
        assert data_of(stream.next()) == [2]


@pytest.mark.both_lanes
def test_a_reader_that_stops_reading_holds_up_nobody_and_loses_nothing(
    start_server: Callable[..., ServerProcess], lane: str
) -> None:
    server = start_server(lane=lane)
    client, writer = server.client(), server.client()
    client.put("t")
    url = watch(client, {"t": {}}, limit=1000)
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=15) as slow:
        slow.sendall(f"GET {url} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n".encode())
        assert b"caught-up" in _read_until(slow, b"caught-up")
        total = 0
        for _ in range(40):
            writer.write("t", ["x" * 10_000] * 50)
            total += 50
        with writer.events(watch(writer, {"t": {"tail": True}})) as quick:
            assert quick.next().event == "caught-up"
        got = _read_until(slow, b'event: caught-up\ndata: {"topic":"t","head_seq":%d}' % total)
        assert b'"$seq":%d,' % total in got
        assert got.count(b'"$seq":') == total


def _read_until(connection: socket.socket, end: bytes) -> bytes:
    got = bytearray()
    while end not in got[-200_000:]:
        chunk = connection.recv(1 << 20)
        assert chunk, "the server has closed the connection"
        got += chunk
    return bytes(got)


@pytest.mark.both_lanes
def test_an_open_stream_is_not_a_request_in_flight(start_server: Callable[..., ServerProcess], lane: str) -> None:
    server = start_server(keys="key", max_inflight_per_key=1, lane=lane)
    client, other = server.client(), server.client()
    client.put("t")
    with client.events(watch(client, {"t": {}})) as stream:
        stream.wait_for("caught-up")
        other.write("t", ["through"])
        assert data_of(stream.wait_for("record")) == ["through"]
