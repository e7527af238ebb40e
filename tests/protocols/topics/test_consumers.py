"""Named consumers over HTTP: a stored cursor per topic and name."""

from __future__ import annotations

from typing import Any

import pytest
from support.server_process import StartServer
from support.topics_client import Client


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


@pytest.mark.parametrize("body", [{}, {"seq": -1}, {"seq": 4}, {"seq": "1"}, {"seq": 1.5}, []], ids=str)
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
