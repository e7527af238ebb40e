from __future__ import annotations

from time import time
from typing import Any

import pytest
from support.topics_client import Client


def write(client: Client, *writes: dict[str, Any], status: int = 200, **fields: Any) -> Any:
    return client.call("POST", "/v0/write", {"writes": list(writes), **fields}, status=status)


def refused(client: Client, *writes: dict[str, Any], status: int, **fields: Any) -> dict[str, Any]:
    return client.refused("POST", "/v0/write", {"writes": list(writes), **fields}, status=status)


def one(topic: str, *data: Any, **fields: Any) -> dict[str, Any]:
    """A write of records: each a dict with ``data``, or the data itself."""
    records = [record if isinstance(record, dict) and "data" in record else {"data": record} for record in data]
    return {"topic": topic, "records": records, **fields}


def contents(client: Client, topic: str) -> list[Any]:
    return [record["data"] for record in client.diff(topic)["records"]]


def absent(client: Client, *topics: str) -> bool:
    return all(client.request("GET", f"/v0/topics/{topic}").status_code == 404 for topic in topics)


@pytest.fixture
def names(topic: str) -> list[str]:
    return [f"{topic}-{letter}" for letter in "abc"]


# --- what is written -------------------------------------------------------------------------------------------------


def test_records_go_to_several_topics_in_one_step(client: Client, names: list[str]) -> None:
    a, b, _ = names
    client.put(a)
    client.write(a, [0])
    client.put(b)
    answer = write(client, one(a, 1, 2), one(b, 3))
    assert list(answer) == ["writes", "performance"]
    assert list(answer["performance"]) == ["server_total_ms", "wal_append_ms", "fsync_ms", "throttle_wait_ms"]
    first, second = answer["writes"]
    assert list(first) == ["topic", "first_seq", "last_seq", "seqs", "head_seq", "count", "created", "deduped"]
    assert first == {
        "topic": a,
        "first_seq": 2,
        "last_seq": 3,
        "seqs": [2, 3],
        "head_seq": 3,
        "count": 2,
        "created": False,
        "deduped": False,
    }
    assert (second["topic"], second["seqs"], second["count"]) == (b, [1], 1)
    assert (contents(client, a), contents(client, b)) == ([0, 1, 2], [3])


def test_everything_of_a_record_is_written(client: Client, names: list[str]) -> None:
    a, b, _ = names
    record = {"data": {"x": 1}, "tag": "t", "meta": {"m": 1}, "node": "own"}
    write(client, one(a, record, 2, node="all"), one(b, 3), status=201)
    first, second = client.diff(a, include_tags=True)["records"]
    assert (first["$tag"], first["meta"], first["$node"]) == ("t", {"m": 1}, "own")
    assert second["$node"] == "all"
    assert "$node" not in client.diff(b)["records"][0]


def test_the_seqs_can_be_left_out(client: Client, names: list[str]) -> None:
    answer = client.call("POST", "/v0/write?return_seqs=false", {"writes": [one(names[0], 1)]}, status=201)
    assert "seqs" not in answer["writes"][0]


def test_a_topic_can_be_written_to_more_than_once(client: Client, names: list[str]) -> None:
    a, b, _ = names
    answer = write(
        client,
        one(a, {"data": 1, "tag": "t"}, 2),
        one(b, 3, node="n"),
        one(a, 4, node="n"),
        one(a, {"data": 5, "meta": {"m": 1}}),
        status=201,
    )
    rows = [(row["topic"], row["seqs"], row["head_seq"], row["created"]) for row in answer["writes"]]
    assert rows == [(a, [1, 2], 4, True), (b, [1], 1, True), (a, [3], 4, False), (a, [4], 4, False)]
    records = client.diff(a, include_tags=True)["records"]
    assert [record["data"] for record in records] == [1, 2, 4, 5]
    assert [record.get("$tag") for record in records] == ["t", None, None, None]
    assert [record.get("$node") for record in records] == [None, None, "n", None]
    assert [record.get("meta") for record in records] == [None, None, None, {"m": 1}]


def test_a_durable_topic_makes_all_of_it_wait_for_the_disk(client: Client, names: list[str]) -> None:
    a, b, _ = names
    client.put(a, durability="fsync")
    client.put(b)
    answer = write(client, one(b, 1), one(a, 2))
    assert answer["performance"]["fsync_ms"] > 0
    assert (contents(client, a), contents(client, b)) == ([2], [1])


def test_jobs_can_have_times_and_priorities(client: Client, names: list[str]) -> None:
    a, b, c = names
    client.queue(a)
    later = int(time() * 1000) + 3_600_000
    write(
        client,
        one(a, 1, {"data": 2, "priority": 7}),
        one(a, {"data": 3, "not_before_ts": later}),
        one(b, {"data": 4, "priority": 1}, 5, config={"type": "queue"}),
        one(c, 6),
        status=201,
    )
    assert [job["data"] for job in client.claim(a, max=9)] == [2, 1]
    assert client.get(a)["queue"]["delayed"] == 1
    assert [job["data"] for job in client.claim(b, max=9)] == [4, 5]


def test_workers_are_pushed_what_is_written_this_way(client: Client, names: list[str]) -> None:
    client.queue(names[0])
    with client.events(f"/v0/topics/{names[0]}/work?node=a") as stream:
        write(client, one(names[0], {"data": "job", "priority": 1}), one(names[1], 1), status=201)
        assert stream.next().json["data"] == "job"


# --- absent topics ---------------------------------------------------------------------------------------------------


def test_absent_topics_are_created(client: Client, names: list[str]) -> None:
    a, b, _ = names
    client.put(a)
    answer = write(client, one(a, 1), one(b, 2, config={"cap_records": 5}), status=201)
    assert [row["created"] for row in answer["writes"]] == [False, True]
    assert client.get(b)["config"]["cap_records"] == 5
    # A topic that is there keeps its configuration.
    write(client, one(b, 3, config={"cap_records": 9}))
    assert client.get(b)["config"]["cap_records"] == 5


@pytest.mark.parametrize("fields", [{"create": False}, {"config": {"auto_create": False}}])
def test_a_topic_that_must_not_be_created_refuses_all(client: Client, names: list[str], fields: dict[str, Any]) -> None:
    a, b, _ = names
    error = refused(client, one(a, 1), one(b, 2, **fields), status=404)
    assert (error["code"], error["detail"]) == ("topic_not_found", {"topic": b})
    assert absent(client, a, b)


# --- all or nothing --------------------------------------------------------------------------------------------------


def test_a_full_topic_refuses_all_and_leaves_no_new_topic(client: Client, names: list[str]) -> None:
    full, new, queue = names
    client.put(full, cap_records=1, discard="reject")
    client.write(full, [0])
    job = {"data": 3, "priority": 1}
    error = refused(client, one(new, 1), one(queue, job, config={"type": "queue"}), one(full, 2), status=422)
    assert (error["code"], error["detail"]["topic"]) == ("topic_full", full)
    assert contents(client, full) == [0]
    assert absent(client, new, queue)
    # The name can be used for anything afterwards.
    client.queue(queue, [1])
    assert [job["deliveries"] for job in client.claim(queue)] == [1]


def test_more_than_the_cap_together_is_refused(client: Client, names: list[str]) -> None:
    a = names[0]
    client.put(a, cap_records=2, discard="reject")
    assert refused(client, one(a, 1, 2), one(a, 3), status=400)["code"] == "record_too_large"
    assert contents(client, a) == []


BAD_WRITES: list[tuple[Any, str]] = [
    ({"records": [{"data": 1}]}, "invalid_request"),
    ({"topic": 5, "records": [{"data": 1}]}, "invalid_request"),
    ({"topic": "bad name", "records": [{"data": 1}]}, "invalid_request"),
    ({"topic": "_hidden", "records": [{"data": 1}]}, "invalid_request"),
    ({"topic": "fine"}, "invalid_request"),
    ({"topic": "fine", "records": []}, "invalid_request"),
    ({"topic": "fine", "records": [{}]}, "invalid_request"),
    ({"topic": "fine", "records": [{"data": 1, "tag": "t" * 257}]}, "invalid_request"),
    ({"topic": "fine", "records": [{"data": 1, "priority": 1}]}, "invalid_request"),
    ({"topic": "fine", "records": [{"data": 1}], "config": {"type": "tree"}}, "invalid_request"),
    ({"topic": "fine", "records": [{"data": 1}], "config": {"dead_letter": "fine"}}, "invalid_request"),
    ({"topic": "fine", "records": [{"data": "x" * (1 << 20)}]}, "record_too_large"),
]


@pytest.mark.parametrize(("bad", "code"), BAD_WRITES)
def test_one_bad_write_refuses_all(client: Client, names: list[str], bad: Any, code: str) -> None:
    assert refused(client, one(names[0], 1), bad, status=400)["code"] == code
    assert absent(client, names[0], "fine")


def test_an_error_names_the_write(client: Client, names: list[str]) -> None:
    error = refused(client, one(names[0], 1), one(names[1], {"data": 1, "tag": "t" * 257}), status=400)
    assert error["message"].startswith("writes[1]: records[0]: tag")


def test_a_job_for_a_topic_that_is_no_queue_refuses_all(client: Client, names: list[str]) -> None:
    a, b, _ = names
    client.put(a)
    error = refused(client, one(b, 1), one(a, {"data": 1, "not_before_ts": 5}), status=400)
    assert error["detail"] == {"topic": a}
    assert absent(client, b)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"{}", b'{"writes":[]}', b'{"writes":{}}', b'{"writes":[5]}'])
def test_a_body_that_makes_no_sense_is_refused(client: Client, body: bytes) -> None:
    assert client.refused("POST", "/v0/write", body, status=400)["code"] == "invalid_request"


def test_a_body_must_be_json_and_utf8(client: Client, names: list[str]) -> None:
    assert client.refused("POST", "/v0/write", status=415)["code"] == "unsupported_media_type"
    body = b'{"writes":[{"topic":"%b","records":[{"data":"\xff"}]}]}' % names[0].encode()
    assert client.refused("POST", "/v0/write", body, status=400)["code"] == "invalid_request"
    assert absent(client, names[0])


def test_there_is_one_limit_for_all_records_together(start_server: Any, lane: str) -> None:
    client = start_server(lane=lane, max_batch_records=3).client()
    assert len(write(client, one("a", 1, 2), one("b", 3), status=201)["writes"]) == 2
    error = refused(client, one("a", 1, 2), one("c", 3), one("d", 4), status=400)
    assert (error["code"], error["detail"]) == ("batch_too_large", {"records": 4, "max": 3})
    assert absent(client, "c", "d")


def test_the_caps_of_the_server_count_for_all_together(start_server: Any) -> None:
    client = start_server(max_topics=2, max_total_bytes=10).client()
    client.put("a")
    error = refused(client, one("a", 1), one("b", 1), one("c", 1), status=429)
    assert (error["code"], error["detail"]) == ("throttled", {"limit": "max_topics", "max": 2})
    error = refused(client, one("a", "1234"), one("b", "1234"), status=429)
    assert error["detail"] == {"limit": "max_total_bytes", "max": 10}
    assert absent(client, "b", "c")
    assert contents(client, "a") == []
    write(client, one("a", 1), one("b", 2), one("b", 3), status=201)


# --- repetitions -----------------------------------------------------------------------------------------------------


def test_a_repetition_with_the_same_key_writes_nothing(client: Client, names: list[str]) -> None:
    a, b, _ = names
    client.put(a)
    client.queue(b)
    writes = [one(a, 1, 2), one(b, {"data": 3, "priority": 1}), one(a, 4)]
    first = write(client, *writes, idempotency_key="k")["writes"]
    client.write(a, [5])
    again = write(client, *writes, idempotency_key="k")["writes"]
    assert [row["seqs"] for row in again] == [row["seqs"] for row in first] == [[1, 2], [1], [3]]
    assert [row["deduped"] for row in again] == [True, True, True]
    assert (contents(client, a), contents(client, b)) == ([1, 2, 4, 5], [3])
    body = {"writes": [one(a, 6)]}
    answer = client.call("POST", "/v0/write", body, headers={"idempotency-key": "k"})
    # The key was used for something else: that is what the topic tells of.
    assert (answer["writes"][0]["deduped"], answer["writes"][0]["seqs"]) == (True, [1, 2, 3])


@pytest.mark.parametrize("key", ["", "k" * 257, 5])
def test_a_key_has_its_limits(client: Client, names: list[str], key: Any) -> None:
    assert refused(client, one(names[0], 1), idempotency_key=key, status=400)["code"] == "invalid_request"
    assert absent(client, names[0])


# --- keys ------------------------------------------------------------------------------------------------------------


def test_api_keys_need_the_scope_and_all_of_the_names(start_server: Any, lane: str) -> None:
    server = start_server(lane=lane, keys="all,r:read,w:write,mine:write:mine|shared")
    assert server.client("").refused("POST", "/v0/write", {"writes": [one("x", 1)]}, status=401)
    assert refused(server.client("r"), one("x", 1), status=403)["code"] == "forbidden"
    mine = server.client("mine")
    error = refused(mine, one("mine.a", 1), one("other", 1), status=403)
    assert (error["code"], error["detail"]) == ("forbidden", {"topic": "other"})
    error = refused(mine, one("mine.a", 1), one("mine.b", 1, config={}), status=403)
    assert (error["code"], error["detail"]) == ("forbidden", {"topic": "mine.b"})
    client = server.client()
    assert absent(client, "mine.a", "mine.b", "other")
    write(mine, one("mine.a", 1), one("shared", 1), status=201)
    # The configuration of a topic that is there is not looked at.
    write(mine, one("mine.a", 1, config={}))


# --- restarts --------------------------------------------------------------------------------------------------------


def test_what_was_written_together_is_there_together_after_a_kill(start_server: Any) -> None:
    server = start_server()
    client = server.client()
    client.put("log", durability="fsync")
    client.queue("queue", durability="fsync")
    job = {"data": "job", "priority": 3}
    write(client, one("log", 1), one("queue", job, "other"), idempotency_key="k")
    server.kill()
    server.start()
    client = server.client()
    assert contents(client, "log") == [1]
    assert all(
        row["deduped"] for row in write(client, one("log", 1), one("queue", job, 2), idempotency_key="k")["writes"]
    )
    assert [job["data"] for job in client.claim("queue", max=9)] == ["job", "other"]
