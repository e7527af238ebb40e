"""Deleting records over HTTP."""

from __future__ import annotations

from typing import Any

import pytest
from support.server_process import StartServer
from support.topics_client import Client

TAGS = ["a:1", "a:2", None, "b:1", "a:1", "a", None, "b:2"]


@pytest.fixture
def tagged(client: Client, topic: str) -> str:
    """A topic with records 1 to 8, some with tags."""
    client.write(topic, [{"data": number, "tag": tag} for number, tag in enumerate(TAGS, 1)])
    return topic


def left(client: Client, topic: str) -> list[int]:
    page = client.diff(topic)
    assert page["tombstone"] is None
    return [record["$seq"] for record in page["records"]]


def test_the_answer_tells_what_is_left(client: Client, tagged: str) -> None:
    answer = client.delete(tagged, before_seq=4)
    assert "performance" in answer
    del answer["performance"]
    assert answer == {"topic": tagged, "deleted": 3, "earliest_seq": 4, "head_seq": 8, "count": 5, "bytes": 5}
    assert client.get(tagged)["count"] == 5


@pytest.mark.parametrize(
    ("wish", "gone"),
    [
        ({"before_seq": 4}, [1, 2, 3]),
        ({"before_seq": 0}, []),
        ({"before_seq": 1}, []),
        ({"before_seq": 9}, [1, 2, 3, 4, 5, 6, 7, 8]),
        ({"before_seq": (1 << 64) - 1}, [1, 2, 3, 4, 5, 6, 7, 8]),
        ({"match": "a:1"}, [1, 5]),
        ({"match": ["tag", "Eq", "a:1"]}, [1, 5]),
        ({"match": "a:*"}, [1, 2, 5]),
        ({"match": ["tag", "Glob", "a*"]}, [1, 2, 5, 6]),
        ({"match": ["tag", "Glob", "*"]}, [1, 2, 4, 5, 6, 8]),
        ({"match": ["tag", "Eq", "a:*"]}, []),
        ({"match": "nobody"}, []),
        ({"match": ""}, []),
        ({"match": "a:1", "before_seq": 5}, [1]),
        ({"match": ["tag", "Glob", "b:*"], "before_seq": 8}, [4]),
    ],
    ids=str,
)
def test_records_go_by_seq_by_tag_or_by_both(
    client: Client, tagged: str, wish: dict[str, Any], gone: list[int]
) -> None:
    assert client.delete(tagged, **wish)["deleted"] == len(gone)
    stays = [seq for seq in range(1, 9) if seq not in gone]
    assert left(client, tagged) == stays
    state = client.get(tagged)
    assert (state["count"], state["bytes"], state["head_seq"]) == (len(stays), len(stays), 8)
    assert state["earliest_seq"] == (stays[0] if stays else 9)
    assert client.delete(tagged, **wish)["deleted"] == 0


def test_what_comes_later_is_not_affected(client: Client, tagged: str) -> None:
    client.delete(tagged, match="a:1")
    client.write(tagged, [{"data": 9, "tag": "a:1"}])
    assert left(client, tagged)[-1] == 9
    client.delete(tagged, before_seq=1000)
    client.write(tagged, [{"data": 10}])
    assert left(client, tagged) == [10]


def test_readers_in_the_middle_pass_over_what_is_gone(client: Client, tagged: str) -> None:
    cursor = client.diff(tagged, limit=2)["next_from_seq"]
    client.delete(tagged, before_seq=7)
    page = client.diff(tagged, cursor)
    assert ([record["$seq"] for record in page["records"]], page["tombstone"]) == ([7, 8], None)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"before_seq": None, "match": None},
        {"before_seq": -1},
        {"before_seq": 1.5},
        {"before_seq": "1"},
        {"match": 7},
        {"match": []},
        {"match": ["tag", "Eq"]},
        {"match": ["tag", "Eq", 7]},
        {"match": ["node", "Eq", "a"]},
        {"match": ["tag", "Regex", "a"]},
        {"match": ["tag", "Glob", "a"]},
        {"match": ["tag", "Glob", "a*b*"]},
        {"match": ["tag", "Glob", "*a"]},
        {"match": "a*b*"},
        [],
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused_and_deletes_nothing(client: Client, tagged: str, body: object) -> None:
    error = client.refused("POST", f"/v0/topics/{tagged}/delete", body, status=400)
    assert error["code"] == "invalid_request"
    assert client.get(tagged)["count"] == 8


def test_a_body_is_needed(client: Client, tagged: str) -> None:
    assert client.refused("POST", f"/v0/topics/{tagged}/delete", status=415)["code"] == "unsupported_media_type"
    assert client.refused("POST", f"/v0/topics/{tagged}/delete", b"", status=400)["code"] == "invalid_request"


def test_where_there_is_no_topic_nothing_is_deleted_or_made(client: Client, topic: str) -> None:
    error = client.refused("POST", f"/v0/topics/{topic}/delete", {"before_seq": 1}, status=404)
    assert (error["code"], error["detail"]) == ("topic_not_found", {"topic": topic})
    client.refused("GET", f"/v0/topics/{topic}", status=404)


@pytest.mark.parametrize("durability", ["ephemeral", "memory", "disk", "fsync"])
def test_a_deletion_is_done_at_once_in_every_class(client: Client, topic: str, durability: str) -> None:
    client.put(topic, durability=durability)
    client.write(topic, [{"data": 1, "tag": "x"}, {"data": 2}])
    assert client.delete(topic, match="x")["deleted"] == 1
    assert left(client, topic) == [2]


def test_deletions_outlive_the_process_sealed_or_not(start_server: StartServer) -> None:
    server = start_server(journal_bytes=20_000)
    client = server.client()
    for start in range(0, 300, 50):
        client.write("log", [{"data": f"{n:0>200}", "tag": f"t{n % 5}"} for n in range(start, start + 50)])
    # Some of it has been sealed by now, and the rest has not; it makes no difference.
    assert client.delete("log", match="t1")["deleted"] == 60
    assert client.delete("log", before_seq=101)["deleted"] == 80
    before = client.diff("log", limit=1000)["records"]
    server.close_clients()
    server.kill()
    client = server.start().client()
    assert client.diff("log", limit=1000)["records"] == before
    assert (client.get("log")["count"], client.get("log")["earliest_seq"]) == (160, 101)


def test_deleting_the_jobs_of_a_queue_takes_their_leases(client: Client, topic: str) -> None:
    client.queue(topic, [{"data": 1, "tag": "x"}, {"data": 2}])
    client.claim(topic, max=2)
    client.delete(topic, match="x")
    assert {"ready": 0, "in_flight": 1}.items() <= client.get(topic)["queue"].items()
