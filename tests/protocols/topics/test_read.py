"""Reading over HTTP: pages, filters, tombstones, waiting."""

from __future__ import annotations

import gzip
from typing import Any

import msgspec
import pytest
from support.server_process import StartServer
from support.topics_client import Client, Waiting, eventually


def seqs(page: dict[str, Any]) -> list[int]:
    return [record["$seq"] for record in page["records"]]


def fill(client: Client, topic: str, count: int = 5, **config: Any) -> None:
    """A topic with records 1, 2, 3, …"""
    client.put(topic, **config)
    client.write(topic, list(range(1, count + 1)))


# --- pages -----------------------------------------------------------------------------------------------------


def test_a_page_has_everything_that_a_reader_needs(client: Client, topic: str) -> None:
    fill(client, topic, 3)
    page = client.diff(topic, 1)
    assert list(page) == [
        "topic",
        "records",
        "next_from_seq",
        "head_seq",
        "earliest_seq",
        "caught_up",
        "tombstone",
        "lag",
        "performance",
    ]
    assert page["topic"] == topic
    assert [(record["$seq"], record["data"]) for record in page["records"]] == [(2, 2), (3, 3)]
    assert (page["next_from_seq"], page["head_seq"], page["earliest_seq"]) == (3, 3, 1)
    assert (page["caught_up"], page["tombstone"], page["lag"]) == (True, None, 0)
    assert page["performance"]["records_scanned"] == 2
    assert {"server_total_ms", "throttle_wait_ms"} <= set(page["performance"])


@pytest.mark.parametrize("body", [None, b"", b"{}", b'{"from_seq":0}', b'{"from_seq":null,"other":1}'])
def test_without_a_cursor_it_starts_at_the_beginning(client: Client, topic: str, body: bytes | None) -> None:
    fill(client, topic, 3)
    response = client.request("POST", f"/v0/topics/{topic}/diff", body)
    assert seqs(response.json()) == [1, 2, 3]


def test_an_empty_topic_is_caught_up(client: Client, topic: str) -> None:
    client.put(topic)
    page = client.diff(topic)
    assert (page["records"], page["next_from_seq"], page["head_seq"], page["earliest_seq"]) == ([], 0, 0, 1)
    assert (page["caught_up"], page["lag"], page["tombstone"]) == (True, 0, None)


def test_pages_follow_each_other_to_the_head(client: Client, topic: str) -> None:
    fill(client, topic, 7)
    cursor, found = 0, []
    for lag, caught_up in ((4, False), (1, False), (0, True), (0, True)):
        page = client.diff(topic, cursor, limit=3)
        found += seqs(page)
        cursor = page["next_from_seq"]
        assert (page["lag"], page["caught_up"]) == (lag, caught_up)
    assert found == [1, 2, 3, 4, 5, 6, 7]


def test_the_limit_is_kept_within_its_bounds(client: Client, topic: str) -> None:
    fill(client, topic, 1100)
    for asked, given in ((0, 256), (1, 1), (256, 256), (1000, 1000), (5000, 1000), (1 << 40, 1000)):
        assert len(client.diff(topic, limit=asked)["records"]) == given
    assert len(client.diff(topic)["records"]) == 256


@pytest.mark.parametrize(
    "body",
    [
        {"from_seq": -1},
        {"from_seq": 1.5},
        {"from_seq": "1"},
        {"limit": -1},
        {"limit": 1.0},
        {"limit": "10"},
        {"wait_ms": -1},
        {"wait_ms": "long"},
        {"node": 7},
        {"node": [7]},
        {"include_tags": 1},
        {"include_meta": "no"},
        {"match": 7},
        {"match": ["tag", "Eq"]},
        {"match": ["name", "Eq", "a"]},
        {"match": ["tag", "Like", "a"]},
        {"match": ["tag", "Glob", "a"]},
        {"match": ["tag", "Glob", "*a*"]},
        {"since_ts": -1},
        {"consumer": 7},
        [],
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused(client: Client, topic: str, body: object) -> None:
    client.put(topic)
    assert client.refused("POST", f"/v0/topics/{topic}/diff", body, status=400)["code"] == "invalid_request"


def test_reading_creates_nothing(client: Client, topic: str) -> None:
    error = client.refused("POST", f"/v0/topics/{topic}/diff", {}, status=404)
    assert (error["code"], error["detail"]) == ("topic_not_found", {"topic": topic})
    client.refused("GET", f"/v0/topics/{topic}", status=404)


def test_a_body_of_another_type_is_refused_before_the_topic_is_looked_for(client: Client, topic: str) -> None:
    response = client.http.post(f"/v0/topics/{topic}/diff", content=b"{}", headers={"content-type": "text/plain"})
    assert response.status_code == 415


def test_a_page_has_a_byte_budget_and_at_least_one_record(client: Client, topic: str) -> None:
    client.write(topic, ["x" * 998] * 20)  # 1000 bytes each
    assert len(client.diff(topic, max_batch_bytes=1)["records"]) == 1
    some = client.diff(topic, max_batch_bytes=5000)
    assert 5 <= len(some["records"]) <= 6
    assert some["next_from_seq"] == len(some["records"])
    assert (some["caught_up"], some["lag"]) == (False, 20 - len(some["records"]))
    assert len(client.diff(topic, max_batch_bytes=0)["records"]) == 20


def test_without_a_budget_a_page_stays_around_a_megabyte_and_eight_are_the_most(client: Client, topic: str) -> None:
    for _ in range(5):
        client.write(topic, ["x" * 1_000_000] * 2)
    assert 1 <= len(client.diff(topic)["records"]) <= 2
    assert 8 <= len(client.diff(topic, max_batch_bytes=1 << 40)["records"]) <= 9


def test_tags_are_shown_when_asked_for_and_meta_unless_told_not_to(client: Client, topic: str) -> None:
    client.write(topic, [{"data": 1, "tag": "t", "node": "n", "meta": {"m": 1}}, 2])
    shown = {name: set(client.diff(topic, **wish)["records"][0]) - {"$seq", "$ts", "data"} for name, wish in {
        "default": {},
        "tags": {"include_tags": True},
        "no meta": {"include_meta": False},
        "both": {"include_tags": True, "include_meta": False},
    }.items()}  # fmt: skip
    assert shown == {
        "default": {"$node", "meta"},
        "tags": {"$node", "$tag", "meta"},
        "no meta": {"$node"},
        "both": {"$node", "$tag"},
    }
    assert set(client.diff(topic, include_tags=True)["records"][1]) == {"$seq", "$ts", "data"}


def test_a_large_page_is_compressed_for_those_who_ask(client: Client, topic: str) -> None:
    client.write(topic, ["x" * 100] * 100)
    path = f"/v0/topics/{topic}/diff"
    plain = client.request("POST", path, {}, headers={"accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers
    with client.http.stream("POST", path, headers={"accept-encoding": "gzip"}) as response:
        assert response.headers["content-encoding"] == "gzip"
        assert response.headers["vary"] == "accept-encoding"
        packed = b"".join(response.iter_raw())
    assert int(response.headers["content-length"]) == len(packed) < len(plain.content)
    page = msgspec.json.decode(gzip.decompress(packed))
    assert page["records"] == plain.json()["records"]
    for refusal in ("gzip;q=0", "compress", "gzip; q=0.0"):
        assert "content-encoding" not in client.request("POST", path, {}, headers={"accept-encoding": refusal}).headers


# --- filters ---------------------------------------------------------------------------------------------------


def test_a_node_does_not_get_back_what_it_wrote(client: Client, topic: str) -> None:
    client.write(topic, [{"data": 1, "node": "a"}, {"data": 2, "node": "b"}, 3, {"data": 4, "node": "ab"}])
    assert seqs(client.diff(topic, node="a")) == [2, 3, 4]
    assert seqs(client.diff(topic, node=["a", "b"])) == [3, 4]
    assert seqs(client.diff(topic, node=[])) == seqs(client.diff(topic, node="")) == [1, 2, 3, 4]
    assert seqs(client.diff(topic, node="A")) == [1, 2, 3, 4]


def test_the_cursor_passes_what_is_filtered(client: Client, topic: str) -> None:
    client.write(topic, [{"data": n, "node": "me"} for n in range(5)])
    page = client.diff(topic, node="me")
    assert (page["records"], page["next_from_seq"], page["caught_up"], page["lag"]) == ([], 5, True, 0)
    assert page["tombstone"] is None
    client.write(topic, [{"data": 9, "node": "you"}])
    page = client.diff(topic, node="me", limit=1)
    assert (seqs(page), page["next_from_seq"]) == ([6], 6)


def test_a_topic_may_show_everybody_their_own_records(client: Client, topic: str) -> None:
    client.put(topic, dedupe_node=False)
    client.write(topic, [{"data": 1, "node": "a"}])
    assert seqs(client.diff(topic, node="a")) == [1]
    client.put(topic)
    assert seqs(client.diff(topic, node="a")) == []


def test_records_can_be_chosen_by_tag(client: Client, topic: str) -> None:
    tags = ["a:1", "a:2", "b:1", None, "a", "a:1"]
    client.write(topic, [{"data": 1, "tag": tag} for tag in tags])
    for match, found in (
        ("a:1", [1, 6]),
        (["tag", "Eq", "a:1"], [1, 6]),
        ("a:*", [1, 2, 6]),
        (["tag", "Glob", "a:*"], [1, 2, 6]),
        (["tag", "Glob", "*"], [1, 2, 3, 5, 6]),
        ("nobody", []),
        (None, [1, 2, 3, 4, 5, 6]),
    ):
        page = client.diff(topic, match=match)
        assert seqs(page) == found
        assert (page["next_from_seq"], page["caught_up"]) == (6, True)
    page = client.diff(topic, match="a:*", limit=2)
    assert seqs(page) == [1, 2]
    assert seqs(client.diff(topic, page["next_from_seq"], match="a:*", limit=2)) == [6]


def test_reading_can_start_at_a_time(client: Client, topic: str) -> None:
    client.write(topic, [1, 2])
    first = client.diff(topic)["records"][0]["$ts"]
    eventually(lambda: client.write(topic, [3]) and client.diff(topic, 2)["records"][-1]["$ts"] > first)
    later = client.diff(topic, 2)["records"][-1]
    found = client.diff(topic, since_ts=later["$ts"])["records"]
    assert found[0]["$ts"] >= later["$ts"]
    assert found[-1]["$seq"] == later["$seq"]
    assert seqs(client.diff(topic, since_ts=first))[0] == 1
    assert seqs(client.diff(topic, since_ts=later["$ts"] + 3_600_000)) == []
    assert seqs(client.diff(topic, later["$seq"], since_ts=first)) == []


# --- tombstones ------------------------------------------------------------------------------------------------


def test_a_reader_learns_what_a_cap_took(client: Client, topic: str) -> None:
    fill(client, topic, 10, cap_records=4)
    page = client.diff(topic, 2)
    assert page["tombstone"] == {
        "gap_from": 3,
        "gap_to": 6,
        "reason": "cap",
        "missed_estimate": 4,
        "earliest_seq": 7,
        "head_seq": 10,
    }
    assert seqs(page) == [7, 8, 9, 10]
    assert (page["earliest_seq"], page["next_from_seq"], page["lag"], page["caught_up"]) == (7, 10, 0, True)
    for behind_the_gap in (6, 7, 10):
        assert client.diff(topic, behind_the_gap)["tombstone"] is None
    assert client.diff(topic, 5)["tombstone"]["gap_from"] == 6


def test_a_cap_by_bytes_takes_the_oldest(client: Client, topic: str) -> None:
    fill(client, topic, 9, cap_bytes=4)
    page = client.diff(topic)
    assert (seqs(page), page["tombstone"]["reason"], page["tombstone"]["gap_to"]) == ([6, 7, 8, 9], "cap", 5)


def test_a_tombstone_comes_with_limits_filters_and_waiting(client: Client, topic: str) -> None:
    fill(client, topic, 10, cap_records=4)
    page = client.diff(topic, limit=1)
    assert (page["tombstone"]["gap_to"], seqs(page), page["next_from_seq"], page["lag"]) == (6, [7], 7, 3)
    page = client.diff(topic, match="nothing", wait_ms=30_000)
    assert (page["tombstone"]["gap_to"], page["records"], page["next_from_seq"]) == (6, [], 10)


def test_a_reader_learns_what_time_took(client: Client, topic: str) -> None:
    fill(client, topic, 3, ttl_ms=30)
    page = eventually(lambda: (page := client.diff(topic))["tombstone"] and page)
    assert page["tombstone"]["reason"] == "ttl"
    assert (page["tombstone"]["gap_from"], page["tombstone"]["gap_to"]) == (1, 3)
    assert (page["records"], page["next_from_seq"], page["caught_up"]) == ([], 3, True)


def test_a_reader_learns_what_a_cap_and_time_took(client: Client, topic: str) -> None:
    fill(client, topic, 5, cap_records=2)
    assert client.diff(topic)["tombstone"]["reason"] == "cap"
    client.put(topic, cap_records=2, ttl_ms=30)
    page = eventually(lambda: (page := client.diff(topic))["next_from_seq"] == 5 and not page["records"] and page)
    assert page["tombstone"]["reason"] == "mixed"
    assert (page["tombstone"]["gap_from"], page["tombstone"]["gap_to"]) == (1, 5)


def test_a_reader_learns_that_the_topic_is_another_one(client: Client, topic: str) -> None:
    fill(client, topic, 9)
    client.drop(topic)
    fill(client, topic, 3)
    page = client.diff(topic, 9)
    assert page["tombstone"] == {
        "gap_from": 1,
        "gap_to": 3,
        "reason": "recreated",
        "missed_estimate": 3,
        "earliest_seq": 1,
        "head_seq": 3,
    }
    assert (seqs(page), page["next_from_seq"], page["caught_up"]) == ([1, 2, 3], 3, True)
    assert client.diff(topic, 3)["tombstone"] is None
    client.drop(topic)
    client.put(topic)
    tombstone = client.diff(topic, 9)["tombstone"]
    assert (tombstone["reason"], tombstone["missed_estimate"]) == ("recreated", 1)


def test_a_cursor_beyond_everything_is_one_of_another_topic(client: Client, topic: str) -> None:
    fill(client, topic, 2)
    for cursor in (3, 1 << 40, (1 << 63) - 1, (1 << 64) - 1):
        page = client.diff(topic, cursor)
        assert (page["tombstone"]["reason"], seqs(page)) == ("recreated", [1, 2])


def test_a_reader_of_copies_learns_what_the_source_had_lost(start_server: StartServer) -> None:
    # While nothing is forwarded, because the destination is full, the source loses what it was to pass on.
    client = start_server().client()
    client.put("source", cap_records=2)
    client.put("dest", discard="reject", cap_records=1)
    client.call("PUT", "/v0/routers/r", {"source": "source", "dest": "dest"}, status=201)
    for number in range(1, 8):
        client.write("source", [number])
    assert [record["data"] for record in client.diff("dest")["records"]] == [1]
    client.put("dest")
    page = eventually(lambda: (page := client.diff("dest", 1))["records"] and page)
    assert page["tombstone"]["reason"] == "source_trim"
    assert (page["tombstone"]["gap_from"], page["tombstone"]["gap_to"]) == (2, 5)
    assert [(record["$seq"], record["data"]) for record in page["records"]] == [(6, 6), (7, 7)]


def test_a_reader_learns_what_was_in_memory_only_when_the_server_ended(start_server: StartServer) -> None:
    server = start_server()
    client = server.client()
    fill(client, "volatile", 3, durability="ephemeral")
    server.stop()
    client = server.start().client()
    head = client.get("volatile")["head_seq"]
    assert head >= 3
    page = client.diff("volatile")
    assert page["tombstone"]["reason"] == "lost"
    assert (page["tombstone"]["gap_from"], page["records"]) == (1, [])
    assert client.write("volatile", [4])["first_seq"] > 3


def test_deleted_records_leave_no_tombstone(client: Client, topic: str) -> None:
    fill(client, topic, 6)
    client.delete(topic, before_seq=4)
    page = client.diff(topic)
    assert (page["tombstone"], seqs(page), page["earliest_seq"]) == (None, [4, 5, 6], 4)


def test_deletions_above_a_gap_do_not_widen_it(client: Client, topic: str) -> None:
    fill(client, topic, 10, cap_records=6)
    client.delete(topic, before_seq=8)
    page = client.diff(topic)
    tombstone = page["tombstone"]
    assert (tombstone["gap_to"], tombstone["earliest_seq"], tombstone["missed_estimate"]) == (4, 5, 4)
    assert (page["earliest_seq"], seqs(page)) == (8, [8, 9, 10])
    assert client.diff(topic, 5)["tombstone"] is None


def test_deleted_records_do_not_count_against_a_cap(client: Client, topic: str) -> None:
    fill(client, topic, 4, cap_records=4)
    client.delete(topic, before_seq=4)
    client.write(topic, [5, 6, 7])
    page = client.diff(topic)
    assert (page["tombstone"], seqs(page)) == (None, [4, 5, 6, 7])


# --- waiting ---------------------------------------------------------------------------------------------------


def test_a_write_wakes_who_waits_for_it(client: Client, topic: str) -> None:
    fill(client, topic, 2)
    waiting = Waiting(client, lambda own: own.diff(topic, 2, wait_ms=30_000))
    # However early the write comes, the reader gets it: at once, or because it is woken.
    client.write(topic, [3])
    page = waiting.answer()
    assert (seqs(page), page["caught_up"], page["next_from_seq"]) == ([3], True, 3)
    assert page["performance"]["server_total_ms"] < 20_000


@pytest.mark.parametrize("durability", ["ephemeral", "memory", "fsync"])
def test_waiting_works_for_every_class(client: Client, topic: str, durability: str) -> None:
    client.put(topic, durability=durability)
    waiting = Waiting(client, lambda own: own.diff(topic, wait_ms=30_000))
    client.write(topic, [1])
    assert seqs(waiting.answer()) == [1]


def test_who_waits_gets_an_empty_page_at_the_end(client: Client, topic: str) -> None:
    fill(client, topic, 2)
    page = client.diff(topic, 2, wait_ms=30)
    assert (page["records"], page["caught_up"], page["next_from_seq"], page["lag"]) == ([], True, 2, 0)
    assert page["performance"]["server_total_ms"] >= 29


def test_nobody_waits_where_there_is_something(client: Client, topic: str) -> None:
    fill(client, topic, 2)
    assert seqs(client.diff(topic, wait_ms=30_000)) == [1, 2]
    assert client.diff(topic, 9, wait_ms=30_000)["tombstone"]["reason"] == "recreated"


def test_records_of_others_do_not_end_the_waiting(client: Client, topic: str) -> None:
    client.put(topic)
    ask = {"node": "me", "match": "mine", "wait_ms": 30_000}
    waiting = Waiting(client, lambda own: own.diff(topic, **ask))
    client.write(topic, [{"data": 1, "node": "me", "tag": "mine"}])
    client.write(topic, [{"data": 2, "tag": "other"}])
    client.write(topic, [{"data": 3, "tag": "mine"}])
    page = waiting.answer()
    assert (seqs(page), page["next_from_seq"]) == ([3], 3)


def test_who_waits_learns_that_the_topic_is_gone(client: Client, topic: str) -> None:
    client.put(topic)
    body = {"wait_ms": 30_000}

    def ask(own: Client) -> Any:
        return own.refused("POST", f"/v0/topics/{topic}/diff", body, status=404)

    waiting = Waiting(client, ask)
    # Whether it waits by then or comes too late, this is what it is told.
    client.drop(topic)
    assert waiting.answer()["code"] == "topic_not_found"


def test_one_write_wakes_many(client: Client, topic: str) -> None:
    client.put(topic)
    crowd = [Waiting(client, lambda own: own.diff(topic, wait_ms=30_000)) for _ in range(8)]
    client.write(topic, [1])
    assert [seqs(one.answer()) for one in crowd] == [[1]] * 8


# --- sealed history --------------------------------------------------------------------------------------------


def test_history_that_is_not_in_memory_reads_the_same(start_server: StartServer) -> None:
    client = start_server(journal_bytes=20_000, cache_bytes=0).client()
    for number in range(0, 400, 10):
        client.write(
            "log", [{"data": f"{n:0>200}", "tag": f"t{n % 3}", "node": f"n{n % 2}"} for n in range(number, number + 10)]
        )
    found, cursor = [], 0
    while cursor < 400:
        page = client.diff("log", cursor, limit=37, include_tags=True)
        found += [(int(record["data"]), record["$tag"]) for record in page["records"]]
        cursor = page["next_from_seq"]
    assert found == [(n, f"t{n % 3}") for n in range(400)]
    assert len(client.diff("log", match="t1", limit=1000)["records"]) == 133
    assert len(client.diff("log", node="n1", limit=1000)["records"]) == 200
