"""The last record of every tag, and topics that keep no more than that."""

from __future__ import annotations

from typing import Any

import pytest
from support.server_process import ServerProcess, StartServer
from support.topics_client import Client, eventually


def write(client: Client, topic: str, *pairs: str) -> None:
    records = []
    for pair in pairs:
        tag, _, data = pair.rpartition("=")
        records.append({"data": data, **({"tag": tag} if tag else {})})
    assert client.request("POST", f"/v0/topics/{topic}", {"records": records}).status_code in (200, 201)


def diff(client: Client, topic: str, **body: Any) -> Any:
    return client.call("POST", f"/v0/topics/{topic}/diff", body)


def latest(client: Client, topic: str, **body: Any) -> list[str]:
    return [record["data"] for record in diff(client, topic, view="latest", **body)["records"]]


def test_a_view_shows_the_last_record_of_every_tag(client: Client, topic: str) -> None:
    write(client, topic, "a=1", "b=2", "none", "a=3", "c=4", "b=5")
    answer = diff(client, topic, view="latest", include_tags=True)
    assert [(record["$seq"], record["$tag"], record["data"]) for record in answer["records"]] == [
        (4, "a", "3"),
        (5, "c", "4"),
        (6, "b", "5"),
    ]
    assert (answer["next_from_seq"], answer["head_seq"], answer["caught_up"]) == (6, 6, True)
    assert (answer["tombstone"], answer["lag"]) == (None, 0)
    # The second time it is in memory.
    assert latest(client, topic) == ["3", "4", "5"]


def test_a_view_is_paged_and_filtered_like_any_diff(client: Client, topic: str) -> None:
    write(client, topic, "a=1", "ab=2", "b=3", "a=4")
    page = diff(client, topic, view="latest", limit=1)
    assert ([record["data"] for record in page["records"]], page["next_from_seq"]) == (["2"], 2)
    assert page["caught_up"] is False
    assert latest(client, topic, from_seq=2) == ["3", "4"]
    assert latest(client, topic, match="a*") == ["2", "4"]
    assert latest(client, topic, match=["tag", "Eq", "b"]) == ["3"]
    assert latest(client, topic, since_ts=1 << 60) == []
    client.call("POST", f"/v0/topics/{topic}", {"node": "n", "records": [{"data": "5", "tag": "b"}]})
    assert latest(client, topic, node="n") == ["2", "4"]


def test_whoever_goes_on_without_the_view_has_the_last_of_every_tag(client: Client, topic: str) -> None:
    write(client, topic, *(f"k{number % 7}={number}" for number in range(40)))
    table: dict[str, str] = {}
    after, number, caught_up = 0, 40, False
    while not caught_up:
        answer = diff(client, topic, view="latest", from_seq=after, limit=2, include_tags=True)
        table |= {record["$tag"]: record["data"] for record in answer["records"]}
        after, caught_up = answer["next_from_seq"], answer["caught_up"]
        if number < 45:
            write(client, topic, f"k{number % 7}={number}", f"k{number % 3}={number}x")
            number += 1
    write(client, topic, "k0=last")
    rest = diff(client, topic, from_seq=after, include_tags=True)
    table |= {record["$tag"]: record["data"] for record in rest["records"]}
    everything = diff(client, topic, include_tags=True, limit=1000)["records"]
    assert table == {record["$tag"]: record["data"] for record in everything}


def test_deleting_the_last_record_brings_the_one_before_it_back(client: Client, topic: str) -> None:
    write(client, topic, "a=1", "a=2", "b=3")
    assert latest(client, topic) == ["2", "3"]
    client.call("POST", f"/v0/topics/{topic}/delete", {"match": "b"})
    assert latest(client, topic) == ["2"]


@pytest.mark.parametrize("body", [{"view": "earliest"}, {"view": 1}, {"view": "latest", "wait_ms": 10}])
def test_what_makes_no_sense_is_refused(client: Client, topic: str, body: dict[str, Any]) -> None:
    write(client, topic, "a=1")
    error = client.call("POST", f"/v0/topics/{topic}/diff", body, status=400)
    assert error["error"]["code"] == "invalid_request"


def test_a_queue_cannot_be_compacted(client: Client, topic: str) -> None:
    body = {"type": "queue", "compact": True}
    error = client.call("PUT", f"/v0/topics/{topic}", body, status=400)["error"]
    assert (error["code"], error["message"]) == (
        "invalid_request",
        "compact is not supported for queues",
    )
    client.call("GET", f"/v0/topics/{topic}", status=404)
    client.call("PUT", f"/v0/topics/{topic}", {"type": "queue"}, status=201)
    client.call("PUT", f"/v0/topics/{topic}", {"compact": True}, status=400)


@pytest.fixture
def compacting(start_server: StartServer, lane: str) -> ServerProcess:
    return start_server(lane=lane, compact_after_ms=0)


def test_a_compacted_topic_keeps_the_last_record_of_every_tag(compacting: ServerProcess) -> None:
    client = Client(compacting.url)
    client.call("PUT", "/v0/topics/t", {"compact": True, "durable": True}, status=201)
    write(client, "t", "a=1", "b=2", "none", "a=3")
    eventually(lambda: client.call("GET", "/v0/topics/t")["count"] == 3)
    answer = diff(client, "t")
    assert [(record["$seq"], record["data"]) for record in answer["records"]] == [(2, "2"), (3, "none"), (4, "3")]
    assert (answer["tombstone"], answer["earliest_seq"], answer["head_seq"]) == (None, 2, 4)
    config = client.call("PUT", "/v0/topics/t", {"durable": True})["config"]
    assert "compact" not in config
    compacting.kill()
    compacting.start()
    client = Client(compacting.url)
    assert latest(client, "t") == ["2", "3"]
    write(client, "t", "b=4")
    assert client.call("PUT", "/v0/topics/t", {"compact": True, "durable": True})["config"]["compact"] is True
    eventually(lambda: [record["data"] for record in diff(client, "t")["records"]] == ["none", "3", "4"])
