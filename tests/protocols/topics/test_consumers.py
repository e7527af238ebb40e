"""Named consumers over HTTP: a stored cursor per topic and name."""

from __future__ import annotations

from typing import Any

import pytest
from support.server_process import StartServer
from support.topics_client import Client, eventually


def commit(client: Client, topic: str, consumer: str, seq: int) -> Any:
    return client.call("PUT", f"/v0/topics/{topic}/consumers/{consumer}", {"seq": seq})


def test_a_consumer_is_made_by_its_first_commit(client: Client, topic: str) -> None:
    client.write(topic, [1, 2, 3])
    answer = commit(client, topic, "billing", 2)
    assert isinstance(answer.pop("committed_ts"), int)
    del answer["performance"]
    assert answer == {"topic": topic, "consumer": "billing", "seq": 2, "head_seq": 3, "lag": 1}
    assert client.call("GET", f"/v0/topics/{topic}/consumers/billing")["lag"] == 1


def test_a_consumer_reads_on_from_where_it_was(client: Client, topic: str) -> None:
    client.write(topic, [1, 2, 3])
    assert len(client.call("POST", f"/v0/topics/{topic}/diff", {"consumer": "new"})["records"]) == 3
    commit(client, topic, "billing", 2)
    page = client.call("POST", f"/v0/topics/{topic}/diff", {"consumer": "billing"})
    assert [record["$seq"] for record in page["records"]] == [3]
    # Reading alone moves nothing, and a cursor that is given wins.
    assert client.call("GET", f"/v0/topics/{topic}/consumers/billing")["seq"] == 2
    page = client.diff(topic, 0, consumer="billing")
    assert len(page["records"]) == 3


def test_a_consumer_may_go_back(client: Client, topic: str) -> None:
    client.write(topic, [1, 2, 3])
    commit(client, topic, "billing", 3)
    assert commit(client, topic, "billing", 0)["lag"] == 3


def test_consumers_are_listed_with_their_lag_and_shown_with_the_topic(client: Client, topic: str) -> None:
    client.write(topic, [1, 2, 3])
    commit(client, topic, "b", 1)
    commit(client, topic, "a", 3)
    answer = client.call("GET", f"/v0/topics/{topic}/consumers")
    assert answer["head_seq"] == 3
    assert list(answer["consumers"]) == ["a", "b"]
    assert (answer["consumers"]["a"]["lag"], answer["consumers"]["b"]["lag"]) == (0, 2)
    assert client.get(topic)["consumers"] == answer["consumers"]


def test_the_cursors_of_routers_are_no_consumers(client: Client, topic: str) -> None:
    client.call("PUT", f"/v0/routers/{topic}.r", {"source": topic, "dest": topic + ".d"}, status=201)
    client.write(topic, [1])
    assert client.call("GET", f"/v0/topics/{topic}/consumers")["consumers"] == {}


def move(client: Client, topic: str, body: Any) -> int:
    seq: int = client.call("PUT", f"/v0/topics/{topic}/consumers/c", body)["seq"]
    return seq


def test_a_consumer_moves_to_the_start_the_end_and_a_time(client: Client, topic: str) -> None:
    client.write(topic, [1, 2, 3])
    assert move(client, topic, {"at": "end"}) == 3
    assert move(client, topic, {"at": "start"}) == 0
    times = [record["$ts"] for record in client.diff(topic, 0)["records"]]
    while (last := client.diff(topic, 0)["records"][-1])["$ts"] == times[-1]:
        client.write(topic, [4])
    assert move(client, topic, {"since_ts": last["$ts"]}) == last["$seq"] - 1
    assert move(client, topic, {"since_ts": last["$ts"] + 1}) == last["$seq"]
    assert move(client, topic, {"since_ts": 0}) == 0
    # The first record that is still there.
    client.call("POST", f"/v0/topics/{topic}/delete", {"before_seq": 3})
    assert move(client, topic, {"at": "start"}) == 2
    empty = topic + ".empty"
    client.put(empty)
    for body in ({"at": "start"}, {"at": "end"}, {"since_ts": 0}):
        assert move(client, empty, body) == 0


def test_a_consumer_that_moves_to_a_time_hears_of_records_that_retention_removed(client: Client, topic: str) -> None:
    client.put(topic, cap_records=2)
    client.write(topic, [1, 2, 3, 4])
    assert move(client, topic, {"since_ts": 0}) == 0
    page = client.call("POST", f"/v0/topics/{topic}/diff", {"consumer": "c"})
    assert (page["tombstone"]["gap_from"], page["tombstone"]["gap_to"]) == (1, 2)
    # The start is the first record that is there.
    assert move(client, topic, {"at": "start"}) == 2
    assert client.call("POST", f"/v0/topics/{topic}/diff", {"consumer": "c"})["tombstone"] is None


def test_a_time_is_found_in_sealed_records(start_server: StartServer) -> None:
    server = start_server(journal_bytes=20_000)
    client = server.client()
    for start in range(0, 300, 50):
        client.write("a", [f"{number:0>200}" for number in range(start, start + 50)])
    eventually(lambda: client.http.get("/v1/stream/a/_details").json()["stream"]["segment_count"])
    server.stop()
    client = server.start().client()
    # Blocks that are not in memory are read on another thread.
    assert move(client, "a", {"since_ts": 1}) == 0
    assert move(client, "a", {"since_ts": 9_000_000_000_000}) == 300


def test_the_consumers_of_all_topics_are_listed_by_pages(client: Client, topic: str) -> None:
    names = [f"{topic}.b", f"{topic}.a", f"{topic}/a"]
    for name in names:
        if "/" in name:
            client.http.put(f"/v1/stream/{name}", headers={"content-type": "application/json"})
        client.write(name.replace("/", "%2F"), [1, 2])
    expected = []
    for name in sorted(names):
        for consumer in ("x", "y"):
            commit(client, name.replace("/", "%2F"), consumer, 1)
            expected.append((name, consumer, 1, 2, 1))
    found, cursor = [], ""
    while True:
        page = client.call("GET", "/v0/consumers", params={"prefix": topic, "page_size": 4, "cursor": cursor})
        rows = page["consumers"]
        found += [(row["topic"], row["consumer"], row["seq"], row["head_seq"], row["lag"]) for row in rows]
        if "next_cursor" not in page:
            break
        assert len(rows) == 4
        cursor = page["next_cursor"]
    assert found == expected
    assert client.call("GET", "/v0/consumers", params={"prefix": topic + ".none"})["consumers"] == []
    assert client.refused("GET", "/v0/consumers?cursor=no", status=400)["code"] == "invalid_request"


BAD_COMMITS: list[Any] = [
    {}, {"seq": -1}, {"seq": 4}, {"seq": "1"}, {"seq": 1.5}, [], {"at": "middle"}, {"since_ts": -1}, {"seq": None},
    {"seq": 1, "at": "end"}, {"at": "end", "since_ts": 1},
]  # fmt: skip


@pytest.mark.parametrize("body", BAD_COMMITS, ids=str)
def test_a_commit_that_makes_no_sense_is_refused(client: Client, topic: str, body: object) -> None:
    client.write(topic, [1, 2, 3])
    error = client.refused("PUT", f"/v0/topics/{topic}/consumers/c", body, status=400)
    assert error["code"] == "invalid_request"
    client.refused("GET", f"/v0/topics/{topic}/consumers/c", status=404)


@pytest.mark.parametrize("name", ["-a", "_a", "a%20b", "x" * 256])
def test_a_consumer_is_named_like_a_topic(client: Client, topic: str, name: str) -> None:
    client.put(topic)
    client.refused("PUT", f"/v0/topics/{topic}/consumers/{name}", {"seq": 0}, status=400)


def test_what_is_not_there_is_not_found(client: Client, topic: str) -> None:
    for method, path in (("GET", "/consumers"), ("GET", "/consumers/c"), ("DELETE", "/consumers/c")):
        assert client.refused(method, f"/v0/topics/{topic}{path}", status=404)["code"] == "topic_not_found"
    client.refused("PUT", f"/v0/topics/{topic}/consumers/c", {"seq": 0}, status=404)
    client.put(topic)
    error = client.refused("GET", f"/v0/topics/{topic}/consumers/c", status=404)
    assert (error["code"], error["detail"]) == ("consumer_not_found", {"topic": topic, "consumer": "c"})


def test_a_consumer_can_be_removed_and_goes_with_its_topic(client: Client, topic: str) -> None:
    client.write(topic, [1])
    commit(client, topic, "c", 1)
    path = f"/v0/topics/{topic}/consumers/c"
    assert client.call("DELETE", path)["deleted"] is True
    assert client.call("DELETE", path)["deleted"] is False
    client.refused("GET", path, status=404)
    commit(client, topic, "c", 1)
    client.drop(topic)
    client.put(topic)
    client.refused("GET", path, status=404)


def test_consumers_outlive_the_process(start_server: StartServer) -> None:
    server = start_server()
    client = server.client()
    client.put("fast", durability="ephemeral")
    client.write("disk", [1, 2])
    client.write("fast", [1, 2])
    commit(client, "disk", "c", 1)
    commit(client, "fast", "c", 2)
    server.stop()
    client = server.start().client()
    assert client.call("GET", "/v0/topics/disk/consumers/c")["seq"] == 1
    assert client.call("GET", "/v0/topics/fast/consumers/c")["seq"] == 2
    text = client.http.get("/v0/metrics").text
    assert 'strandline_consumer_lag_records{log="disk",consumer="c"} 1' in text


def test_the_number_of_consumers_is_limited(start_server: StartServer) -> None:
    client = start_server(max_consumers=2).client()
    client.write("a", [1])
    # A router has cursors in the same log, which do not count.
    client.call("PUT", "/v0/routers/r", {"source": "a", "dest": "b"}, status=201)
    commit(client, "a", "one", 1)
    commit(client, "a", "two", 1)
    error = client.refused("PUT", "/v0/topics/a/consumers/three", {"seq": 1}, status=429)
    assert error["detail"]["limit"] == "max_consumers"
    assert commit(client, "a", "two", 0)["seq"] == 0
    client.call("DELETE", "/v0/topics/a/consumers/one")
    assert commit(client, "a", "three", 1)["seq"] == 1
