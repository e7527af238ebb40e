from __future__ import annotations

import json
import socket
from time import time
from typing import Any
from urllib.parse import urlsplit

import pytest
from support.server_process import ServerProcess
from support.topics_client import Client, Waiting, eventually

from strandline.protocols.topics.settings import TopicsSettings

ENDPOINTS: dict[str, dict[str, Any]] = {
    "claim": {"node": "worker"},
    "ack": {"node": "worker", "seqs": [1]},
    "nack": {"node": "worker", "seqs": [1]},
    "extend": {"node": "worker", "seqs": [1], "lease_ms": 1000},
}
HOLDERS = ("ack", "nack", "extend")


def path(topic: str, endpoint: str) -> str:
    return f"/v0/topics/{topic}/{endpoint}"


def counters(client: Client, topic: str) -> dict[str, int]:
    """The counters of a queue, without its ages and rates."""
    queue = client.get(topic)["queue"]
    return {name: queue[name] for name in ("ready", "in_flight", "delayed", "dead_lettered", "dropped")}


def seqs(jobs: list[dict[str, Any]]) -> list[int]:
    return [job["$seq"] for job in jobs]


# --- claiming --------------------------------------------------------------------------------------------------------


def test_a_claim_answers_with_the_jobs_and_their_leases(client: Client, topic: str) -> None:
    client.queue(
        topic, [{"data": {"a": 1}, "tag": "t", "meta": {"m": 2}, "node": "producer"}, {"data": 2}, {"data": 3}]
    )
    before = int(time() * 1000)
    answer = client.call("POST", path(topic, "claim"), {"node": "worker", "max": 2, "lease_ms": 5000})
    after = int(time() * 1000)
    assert list(answer) == ["topic", "claimed", "count", "ready", "performance"]
    assert (answer["topic"], answer["count"], answer["ready"]) == (topic, 2, 1)
    assert list(answer["performance"]) == ["server_total_ms", "throttle_wait_ms"]
    first, second = answer["claimed"]
    assert list(first) == ["$seq", "lease_id", "deadline", "$ts", "$tag", "deliveries", "data", "meta"]
    assert list(second) == ["$seq", "lease_id", "deadline", "$ts", "deliveries", "data"]
    assert (first["$seq"], first["lease_id"], first["deliveries"]) == (1, "lease_1", 1)
    assert (first["$tag"], first["data"], first["meta"]) == ("t", {"a": 1}, {"m": 2})
    assert (second["$seq"], second["lease_id"]) == (2, "lease_2")
    assert before + 5000 <= first["deadline"] <= after + 5000


def test_an_empty_queue_is_no_error(client: Client, topic: str) -> None:
    client.queue(topic)
    answer = client.call("POST", path(topic, "claim"), {"node": "worker", "max": 5})
    assert (answer["claimed"], answer["count"], answer["ready"]) == ([], 0, 0)


@pytest.mark.parametrize("fields", [{}, {"max": 0}, {"max": 1}])
def test_without_a_number_one_job_is_claimed(client: Client, topic: str, fields: dict[str, Any]) -> None:
    client.queue(topic, [1, 2])
    assert seqs(client.claim(topic, **fields)) == [1]


def test_no_more_than_the_limit_is_claimed_or_acked_at_a_time(client: Client, topic: str) -> None:
    client.queue(topic, list(range(1001)))
    assert len(client.claim(topic, max=(1 << 32) - 1)) == 1000
    for endpoint in HOLDERS:
        body = {**ENDPOINTS[endpoint], "seqs": list(range(1, 1002))}
        error = client.refused("POST", path(topic, endpoint), body, status=400)
        assert (error["code"], error["detail"]) == ("batch_too_large", {"seqs": 1001, "max": 1000})
    assert client.ack(topic, list(range(1, 1001)))["acked"] == 1000
    assert client.get(topic)["count"] == 1


@pytest.mark.parametrize(("wanted", "granted"), [(0, 100), (1, 100), (250, 250), (10**12, 86_400_000)])
def test_leases_are_neither_too_short_nor_too_long(client: Client, topic: str, wanted: int, granted: int) -> None:
    client.queue(topic, [1])
    before = int(time() * 1000)
    [job] = client.claim(topic, lease_ms=wanted)
    assert before + granted <= job["deadline"] <= int(time() * 1000) + granted


def test_the_lease_of_the_topic_counts_unless_the_claim_says_otherwise(client: Client, topic: str) -> None:
    client.queue(topic, [1], lease_ms=7000)
    before = int(time() * 1000)
    [job] = client.claim(topic)
    assert before + 7000 <= job["deadline"] <= int(time() * 1000) + 7000


def test_a_job_is_handed_out_to_one_worker_at_a_time(client: Client, topic: str) -> None:
    client.queue(topic, [1, 2, 3])
    assert seqs(client.claim(topic, "a", max=2)) == [1, 2]
    assert seqs(client.claim(topic, "b", max=2)) == [3]
    assert client.claim(topic, "c") == []
    assert counters(client, topic) == {"ready": 0, "in_flight": 3, "delayed": 0, "dead_lettered": 0, "dropped": 0}


def test_a_lease_that_is_over_makes_the_job_claimable_again(client: Client, topic: str) -> None:
    client.queue(topic, [1, 2])
    [job] = client.claim(topic, "slow", lease_ms=100)
    # Reclaimed before fresh: the second job is not touched before the first comes back.
    again = eventually(lambda: [one for one in client.claim(topic, "other", max=2) if one["$seq"] == 1])
    assert again[0]["deliveries"] == 2
    assert again[0]["lease_id"] != job["lease_id"]
    assert client.ack(topic, [1], "slow")["skipped"] == [1]
    assert client.extend(topic, [1], "slow", lease_ms=1000)["skipped"] == [1]
    assert client.nack(topic, [1], "slow")["skipped"] == [1]
    assert client.ack(topic, [1], "other")["acked"] == 1


def test_urgent_jobs_come_first_and_say_so(client: Client, topic: str) -> None:
    client.queue(topic, [{"data": 1}, {"data": 2, "priority": 5}, {"data": 3, "priority": -1}])
    jobs = client.claim(topic, max=3)
    assert seqs(jobs) == [2, 1, 3]
    assert [job.get("priority") for job in jobs] == [5, None, -1]


def test_a_job_with_a_time_cannot_be_claimed_before_it(client: Client, topic: str) -> None:
    when = int(time() * 1000) + 150
    client.queue(topic, [{"data": 1, "not_before_ts": when}, {"data": 2, "not_before_ts": when + 3_600_000}])
    [job] = eventually(lambda: client.claim(topic, max=2))
    assert job["$seq"] == 1
    assert time() * 1000 >= when
    assert counters(client, topic)["delayed"] == 1


def test_claimed_jobs_can_still_be_read(client: Client, topic: str) -> None:
    client.queue(topic, [1, 2])
    client.claim(topic, max=2)
    assert seqs(client.diff(topic)["records"]) == [1, 2]


def test_a_claim_finds_what_a_router_has_on_its_way(client: Client, topic: str) -> None:
    source = topic + "-source"
    client.put(source)
    client.queue(topic)
    client.call("PUT", f"/v0/routers/{topic}", {"source": source, "dest": topic}, status=201)
    client.write(source, ["job"])
    assert [job["data"] for job in client.claim(topic)] == ["job"]


@pytest.mark.parametrize(
    "fields",
    [
        {"node": ""},
        {"node": None},
        {"node": 5},
        {"node": "n" * 129},
        {"node": "ä" * 65},
        {"max": -1},
        {"max": 1.5},
        {"max": "1"},
        {"lease_ms": -1},
        {"lease_ms": "1000"},
    ],
)
def test_a_claim_that_makes_no_sense_is_refused(client: Client, topic: str, fields: dict[str, Any]) -> None:
    client.queue(topic, [1])
    error = client.refused("POST", path(topic, "claim"), {"node": "worker", **fields}, status=400)
    assert error["code"] == "invalid_request"
    assert counters(client, topic)["ready"] == 1


def test_a_claim_needs_a_body_with_a_node(client: Client, topic: str) -> None:
    client.queue(topic, [1])
    for body in (None, b"", b"{}", b"[]", b"{", b'{"max":1}'):
        assert client.refused("POST", path(topic, "claim"), body, status=400)["code"] == "invalid_request"
    response = client.http.post(path(topic, "claim"), content=b'{"node":"a"}', headers={"content-type": "text/plain"})
    assert response.status_code == 415


# --- every endpoint --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_a_queue_must_be_there_and_be_a_queue(client: Client, topic: str, endpoint: str) -> None:
    body = ENDPOINTS[endpoint]
    error = client.refused("POST", path(topic, endpoint), body, status=404)
    assert (error["code"], error["detail"]) == ("topic_not_found", {"topic": topic})
    client.put(topic)
    error = client.refused("POST", path(topic, endpoint), body, status=409)
    assert (error["code"], error["detail"]) == ("not_a_queue", {"topic": topic})
    # What the request says is looked at last.
    assert client.refused("POST", path(topic, endpoint), {**body, "node": ""}, status=409)["code"] == "not_a_queue"


@pytest.mark.parametrize("endpoint", HOLDERS)
@pytest.mark.parametrize(
    "fields",
    [
        {"node": ""},
        {"node": None},
        {"seqs": None},
        {"seqs": 1},
        {"seqs": ["1"]},
        {"seqs": [-1]},
        {"seqs": [1.5]},
        {"seqs": [1], "lease_ids": []},
        {"seqs": [1], "lease_ids": ["lease_1", "lease_2"]},
        {"seqs": [1], "lease_ids": ["lease_"]},
        {"seqs": [1], "lease_ids": ["lease_G"]},
        {"seqs": [1], "lease_ids": ["1"]},
        {"seqs": [1], "lease_ids": [1]},
    ],
)
def test_a_request_of_a_holder_that_makes_no_sense_is_refused(
    client: Client, topic: str, endpoint: str, fields: dict[str, Any]
) -> None:
    client.queue(topic, [1])
    client.claim(topic)
    error = client.refused("POST", path(topic, endpoint), {**ENDPOINTS[endpoint], **fields}, status=400)
    assert error["code"] == "invalid_request"
    assert counters(client, topic)["in_flight"] == 1


@pytest.mark.parametrize("endpoint", HOLDERS)
def test_a_request_of_a_holder_needs_a_body(client: Client, topic: str, endpoint: str) -> None:
    client.queue(topic, [1])
    assert client.refused("POST", path(topic, endpoint), status=415)["code"] == "unsupported_media_type"
    assert client.refused("POST", path(topic, endpoint), b"", status=400)["code"] == "invalid_request"
    for missing in ENDPOINTS[endpoint]:
        body = {name: value for name, value in ENDPOINTS[endpoint].items() if name != missing}
        assert client.refused("POST", path(topic, endpoint), body, status=400)["code"] == "invalid_request"


@pytest.mark.parametrize("endpoint", HOLDERS)
def test_no_seqs_are_nothing_to_do(client: Client, topic: str, endpoint: str) -> None:
    client.queue(topic, [1])
    client.claim(topic)
    answer = client.call("POST", path(topic, endpoint), {**ENDPOINTS[endpoint], "seqs": []})
    assert (answer[f"{endpoint.removesuffix('e')}ed"], answer["skipped"]) == (0, [])
    assert counters(client, topic)["in_flight"] == 1


@pytest.mark.parametrize("endpoint", HOLDERS)
def test_a_fence_keeps_out_whoever_has_an_older_lease(client: Client, topic: str, endpoint: str) -> None:
    client.queue(topic, [1, 2, 3])
    old = client.claim(topic, max=3)
    client.nack(topic, [1])
    [new] = client.claim(topic)
    body = {**ENDPOINTS[endpoint], "seqs": [1, 2, 3]}
    leases = [old[0]["lease_id"], old[1]["lease_id"], ""]
    answer = client.call("POST", path(topic, endpoint), {**body, "lease_ids": leases})
    assert answer["skipped"] == [1]
    answer = client.call("POST", path(topic, endpoint), {**body, "seqs": [1], "lease_ids": [new["lease_id"]]})
    assert answer["skipped"] == []


# --- ack, nack, extend -----------------------------------------------------------------------------------------------


def test_an_ack_deletes_what_the_node_holds_and_tells_what_it_skipped(client: Client, topic: str) -> None:
    client.queue(topic, [1, 2, 3, 4])
    client.claim(topic, "a", max=2)
    client.claim(topic, "b")
    answer = client.ack(topic, [1, 3, 4, 99, 2, 1], "a")
    assert list(answer) == ["topic", "acked", "skipped", "ready", "in_flight", "performance"]
    assert (answer["topic"], answer["acked"], answer["skipped"]) == (topic, 2, [3, 4, 99, 1])
    assert (answer["ready"], answer["in_flight"]) == (1, 1)
    assert list(answer["performance"]) == ["server_total_ms"]
    assert seqs(client.diff(topic)["records"]) == [3, 4]
    assert client.ack(topic, [1, 2], "a")["acked"] == 0


def test_an_ack_can_claim_the_next_jobs(client: Client, topic: str) -> None:
    client.queue(topic, [1, 2, 3, 4])
    client.claim(topic, "a")
    body = {"node": "a", "seqs": [1, 9], "claim": {"max": 2, "lease_ms": 5000}}
    before = int(time() * 1000)
    answer = client.call("POST", path(topic, "ack"), body)
    assert list(answer) == ["topic", "acked", "skipped", "claimed", "ready", "in_flight", "performance"]
    assert (answer["acked"], answer["skipped"], answer["ready"], answer["in_flight"]) == (1, [9], 1, 2)
    assert [(job["$seq"], job["lease_id"], job["data"]) for job in answer["claimed"]] == [
        (2, "lease_2", 2),
        (3, "lease_3", 3),
    ]
    assert all(before + 5000 <= job["deadline"] <= int(time() * 1000) + 5000 for job in answer["claimed"])
    answer = client.call("POST", path(topic, "ack"), {"node": "a", "seqs": [2, 3], "claim": {}})
    assert (answer["acked"], seqs(answer["claimed"])) == (2, [4])
    answer = client.call("POST", path(topic, "ack"), {"node": "a", "seqs": [4], "claim": {"max": 5}})
    assert (answer["acked"], answer["claimed"], answer["in_flight"]) == (1, [], 0)
    assert "claimed" not in client.call("POST", path(topic, "ack"), {"node": "a", "seqs": [], "claim": None})


@pytest.mark.parametrize("config", [{"durability": "fsync", "leases_durable": True}, {"claim_jitter_ms": 1}])
def test_an_ack_claims_from_every_kind_of_queue(client: Client, topic: str, config: dict[str, Any]) -> None:
    client.queue(topic, [1, 2], **config)
    client.claim(topic, "a")
    answer = client.call("POST", path(topic, "ack"), {"node": "a", "seqs": [1], "claim": {"max": 5}})
    assert (answer["acked"], seqs(answer["claimed"]), answer["ready"], answer["in_flight"]) == (1, [2], 0, 1)


@pytest.mark.parametrize("claim", [5, [], {"max": -1}, {"max": "1"}, {"lease_ms": 1.5}])
def test_an_ack_with_an_invalid_claim_changes_nothing(client: Client, topic: str, claim: object) -> None:
    client.queue(topic, [1, 2])
    client.claim(topic, "a")
    client.refused("POST", path(topic, "ack"), {"node": "a", "seqs": [1], "claim": claim}, status=400)
    client.refused("POST", path(topic, "ack"), {"node": "a", "seqs": [1], "lease_ids": ["x"], "claim": {}}, status=400)
    assert counters(client, topic) == {"ready": 1, "in_flight": 1, "delayed": 0, "dead_lettered": 0, "dropped": 0}


def test_requests_that_arrive_together_get_the_answers_that_they_would_get_alone(client: Client, topic: str) -> None:
    """Requests behind a claim that waits for the first turn share the next one."""
    client.queue(topic, list(range(8)))
    client.claim(topic, "a")
    client.claim(topic, "b")
    address = urlsplit(client.url)
    bodies = [
        ("claim", {"node": "c", "max": 2}),
        ("ack", {"node": "a", "seqs": [1], "claim": {"max": 2}}),
        ("ack", {"node": "b", "seqs": [1, 2]}),
        ("ack", {"node": "b", "seqs": [2], "lease_ids": ["wrong"]}),
        ("claim", {"node": "d", "max": 1}),
    ]
    connections = [socket.create_connection((address.hostname, address.port), timeout=15) for _ in bodies]
    for connection, (endpoint, fields) in zip(connections, bodies, strict=True):
        body = json.dumps(fields).encode()
        head = f"POST {path(topic, endpoint)} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        connection.sendall(f"{head}connection: close\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
    answers = []
    for connection in connections:
        with connection, connection.makefile("rb") as file:
            answers.append(json.loads(file.read().partition(b"\r\n\r\n")[2]))
    taken = [seqs(answers[number]["claimed"]) for number in (0, 1, 4)]
    assert [len(jobs) for jobs in taken] == [2, 2, 1]
    assert sorted(seq for jobs in taken for seq in jobs) == [3, 4, 5, 6, 7]
    assert (answers[1]["acked"], answers[1]["skipped"]) == (1, [])
    assert (answers[2]["acked"], answers[2]["skipped"]) == (1, [1])
    assert answers[3]["error"]["code"] == "invalid_request"
    assert counters(client, topic)["in_flight"] == 5


def test_an_ack_of_a_durable_queue_tells_how_long_the_disk_took(client: Client, topic: str) -> None:
    client.queue(topic, [1], durability="fsync")
    client.claim(topic)
    assert client.ack(topic, [1])["performance"]["fsync_ms"] > 0
    assert "fsync_ms" not in client.ack(topic, [1])["performance"]


def test_a_nack_gives_the_job_back_at_once(client: Client, topic: str) -> None:
    client.queue(topic, [1, 2])
    client.claim(topic)
    answer = client.nack(topic, [1, 2])
    assert list(answer) == ["topic", "nacked", "skipped", "ready", "in_flight", "performance"]
    assert (answer["nacked"], answer["skipped"], answer["ready"], answer["in_flight"]) == (1, [2], 2, 0)
    [job] = client.claim(topic, "other")
    assert (job["$seq"], job["deliveries"]) == (1, 2)


def test_a_nack_can_keep_the_job_away_for_a_while(client: Client, topic: str) -> None:
    client.queue(topic, [1])
    client.claim(topic)
    before = time()
    answer = client.nack(topic, [1], delay_ms=150)
    assert (answer["ready"], answer["in_flight"]) == (0, 0)
    [job] = eventually(lambda: client.claim(topic))
    assert time() - before >= 0.149
    assert job["deliveries"] == 2


def test_a_nack_keeps_no_job_away_for_ever(client: Client, topic: str) -> None:
    client.queue(topic, [1])
    client.claim(topic)
    assert client.nack(topic, [1], delay_ms=1 << 62)["nacked"] == 1
    assert counters(client, topic)["delayed"] == 1
    for delay in (-1, "1", 1.5):
        body = {**ENDPOINTS["nack"], "delay_ms": delay}
        client.refused("POST", path(topic, "nack"), body, status=400)


def test_an_extension_sets_the_deadline_and_keeps_the_lease(client: Client, topic: str) -> None:
    client.queue(topic, [1, 2])
    [job] = client.claim(topic, lease_ms=60_000)
    before = int(time() * 1000)
    answer = client.extend(topic, [1, 2], lease_ms=5000)
    assert list(answer) == ["topic", "extended", "skipped", "deadlines", "performance"]
    assert (answer["extended"], answer["skipped"]) == (1, [2])
    assert before + 5000 <= answer["deadlines"]["1"] <= int(time() * 1000) + 5000
    assert client.ack(topic, [1], lease_ids=[job["lease_id"]])["acked"] == 1


@pytest.mark.parametrize(("wanted", "granted"), [(0, 100), (10**12, 86_400_000)])
def test_an_extension_is_neither_too_short_nor_too_long(client: Client, topic: str, wanted: int, granted: int) -> None:
    client.queue(topic, [1])
    client.claim(topic)
    before = int(time() * 1000)
    deadline = client.extend(topic, [1], lease_ms=wanted)["deadlines"]["1"]
    assert before + granted <= deadline <= int(time() * 1000) + granted


# --- cohorts ---------------------------------------------------------------------------------------------------------


def test_claims_of_one_window_share_what_there_is(client: Client, server: ServerProcess, topic: str) -> None:
    client.queue(topic, list(range(8)), claim_jitter_ms=1000)
    address = urlsplit(server.url)
    connections = [socket.create_connection((address.hostname, address.port), timeout=15) for _ in range(4)]
    for number, connection in enumerate(connections):
        body = json.dumps({"node": f"worker-{number}", "max": 8}).encode()
        head = f"POST {path(topic, 'claim')} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        connection.sendall(f"{head}connection: close\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
    answers = []
    for connection in connections:
        with connection, connection.makefile("rb") as file:
            answers.append(json.loads(file.read().partition(b"\r\n\r\n")[2]))
    assert [answer["count"] for answer in answers] == [2, 2, 2, 2]
    assert sorted(seq for answer in answers for seq in seqs(answer["claimed"])) == list(range(1, 9))


def test_a_claim_that_waits_for_others_is_told_when_the_queue_goes(client: Client, topic: str) -> None:
    client.queue(topic, [1], claim_jitter_ms=5000)
    other = Client(client.url)
    try:
        address = urlsplit(client.url)
        with socket.create_connection((address.hostname, address.port), timeout=15) as connection:
            body = b'{"node":"a"}'
            head = f"POST {path(topic, 'claim')} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            connection.sendall(f"{head}connection: close\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
            # Whichever of the two comes first: there is no such queue.
            other.drop(topic)
            with connection.makefile("rb") as file:
                assert file.readline().split()[1] == b"404"
    finally:
        other.close()


# --- failures and retries --------------------------------------------------------------------------------------------


def test_the_reason_for_a_failure_is_shown_with_the_next_delivery(client: Client, topic: str) -> None:
    client.queue(topic, [1, 2])
    first = client.claim(topic, "a", max=2)
    assert all("failures" not in job for job in first)
    client.nack(topic, [1], "a", reason={"error": "timeout", "after": [1, 2]})
    client.nack(topic, [2], "a")
    again = client.claim(topic, "b", max=2)
    [failure] = again[0]["failures"]
    assert 0 <= failure.pop("at") - first[0]["$ts"] < 60_000
    assert failure == {"delivery": 1, "node": "a", "reason": {"error": "timeout", "after": [1, 2]}}
    # No reason, no failure: the answer is the same as ever.
    assert list(again[1]) == ["$seq", "lease_id", "deadline", "$ts", "deliveries", "data"]


def test_only_the_last_failures_are_shown_and_fewer_if_they_are_large(client: Client, topic: str) -> None:
    client.queue(topic, [1])
    for number in range(7):
        client.claim(topic)
        client.nack(topic, [1], reason=number)
    [job] = client.claim(topic)
    assert [failure["reason"] for failure in job["failures"]] == [2, 3, 4, 5, 6]
    client.nack(topic, [1], reason="x" * 4000)
    [job] = client.claim(topic)
    assert len(job["failures"]) == 5
    client.nack(topic, [1], reason="y" * 4090)
    [job] = client.claim(topic)
    assert [failure["reason"] for failure in job["failures"]] == ["y" * 4090]


def test_a_null_reason_is_none(client: Client, topic: str) -> None:
    client.queue(topic, [1])
    client.claim(topic)
    client.nack(topic, [1], reason=None)
    assert "failures" not in client.claim(topic)[0]


def test_a_reason_that_is_too_large_is_refused_and_the_lease_stays(client: Client, topic: str) -> None:
    client.queue(topic, [1])
    client.claim(topic, "a")
    body = {"node": "a", "seqs": [1], "reason": ["x" * 4093]}
    error = client.refused("POST", path(topic, "nack"), body, status=400)
    assert error["code"] == "invalid_request"
    assert "has 4097 bytes; expected at most 4096, or a text, which the server shortens" in error["message"]
    assert client.get(topic)["queue"]["in_flight"] == 1
    client.call("POST", path(topic, "nack"), body | {"reason": ["x" * 4092]})
    assert client.claim(topic, "b")[0]["failures"][0]["reason"] == ["x" * 4092]


@pytest.mark.parametrize("name", ["reasn", "Reason", "reasons"])
def test_a_misspelled_reason_is_refused_and_the_lease_stays(client: Client, topic: str, name: str) -> None:
    client.queue(topic, [1])
    client.claim(topic, "a")
    body = {"node": "a", "seqs": [1], name: "broken"}
    error = client.refused("POST", path(topic, "nack"), body, status=400)
    assert error["message"] == f"unknown member '{name}'; did you mean 'reason'?"
    assert client.get(topic)["queue"]["in_flight"] == 1


def test_other_unknown_members_of_a_nack_are_ignored(client: Client, topic: str) -> None:
    client.queue(topic, [1])
    client.claim(topic, "a")
    assert client.nack(topic, [1], "a", trace="a1", lease_id="x", reasn="unused", reason="broken")["nacked"] == 1
    assert client.claim(topic, "b")[0]["failures"][0]["reason"] == "broken"


@pytest.mark.parametrize(
    ("reason", "kept"),
    [
        ("x" * 4094, "x" * 4094),
        ("x" * 4095, "x" * 4091 + "…"),
        ("x" * 5000, "x" * 4091 + "…"),
        ("😀" * 2000, "😀" * 1022 + "…"),
        ('"' * 3000, '"' * 2045 + "…"),
    ],
    ids=["fits", "one byte more", "long", "characters of several bytes", "escaped characters"],
)
def test_a_text_that_is_too_long_for_a_reason_is_shortened(client: Client, topic: str, reason: str, kept: str) -> None:
    client.queue(topic, [1])
    client.claim(topic, "a")
    client.nack(topic, [1], "a", reason=reason)
    assert client.claim(topic, "b")[0]["failures"][0]["reason"] == kept


def test_a_lease_that_expires_is_a_failure(client: Client, topic: str) -> None:
    client.queue(topic, [1])
    [held] = client.claim(topic, "a", lease_ms=100)
    [job] = eventually(lambda: client.claim(topic, "b"))
    expected = {"at": held["deadline"], "delivery": 1, "node": "a", "reason": "the lease expired"}
    assert job["failures"] == [expected]


def test_a_queue_can_delay_retries_itself_and_a_worker_can_choose_another_delay(client: Client, topic: str) -> None:
    client.queue(topic, [1, 2], retry_delay_ms=300_000, retry_backoff=4)
    client.claim(topic, "a", max=2)
    client.nack(topic, [1], "a")
    client.nack(topic, [2], "a", delay_ms=0)
    assert counters(client, topic)["delayed"] == 1
    assert [(job["$seq"], job["deliveries"]) for job in client.claim(topic, "a", max=5)] == [(2, 2)]


def test_the_last_delivery_that_expires_makes_a_dead_letter_without_a_claim(client: Client, topic: str) -> None:
    dead = f"{topic}.dead"
    client.queue(topic, [1], max_deliveries=1, dead_letter=dead)
    client.put(dead)
    client.claim(topic, "a", lease_ms=100)
    [letter] = eventually(lambda: client.diff(dead)["records"])
    assert letter["meta"]["$dead_letter_reason"] == "the lease expired"


def test_a_job_without_a_dead_letter_topic_is_dropped_after_its_last_delivery(client: Client, topic: str) -> None:
    client.queue(topic, [1, 2], max_deliveries=2)
    for _ in range(2):
        client.nack(topic, seqs(client.claim(topic, max=1)), reason="no")
    assert counters(client, topic) == {"ready": 1, "in_flight": 0, "delayed": 0, "dead_lettered": 0, "dropped": 1}
    # It is deleted, as if it were done: readers get no tombstone.
    page = client.diff(topic)
    assert ([record["$seq"] for record in page["records"]], page["tombstone"]) == ([2], None)


def test_a_queue_shows_its_age_and_its_rates(client: Client, topic: str) -> None:
    client.put(topic, type="queue")
    queue = client.get(topic)["queue"]
    assert list(queue)[-3:] == ["oldest_ready_ms", "throughput", "failure_rate"]
    assert (queue["oldest_ready_ms"], queue["throughput"], queue["failure_rate"]) == (None, 0.0, 0.0)
    client.write(topic, [1, 2, 3, 4])
    # Of a queue that was never used, and of one that was.
    eventually(lambda: client.get(topic)["queue"]["oldest_ready_ms"] > 20)
    client.ack(topic, seqs(client.claim(topic, max=3)))
    client.nack(topic, seqs(client.claim(topic)))
    queue = client.get(topic)["queue"]
    assert (queue["throughput"], queue["failure_rate"]) == (pytest.approx(0.6, rel=0.9), 0.25)
    metrics = client.http.get("/v0/metrics").text
    assert f'strandline_queue_completed_total{{log="{topic}"}} 3' in metrics
    assert f'strandline_queue_failed_total{{log="{topic}",cause="nack"}} 1' in metrics
    assert f'strandline_queue_oldest_ready_seconds{{log="{topic}"}} ' in metrics


# --- dead letters ----------------------------------------------------------------------------------------------------


def deliver_too_often(client: Client, topic: str, jobs: list[Any]) -> None:
    """Make dead letters of the jobs of a queue that allows one delivery."""
    client.queue(topic, jobs, max_deliveries=1, dead_letter=f"{topic}.dead")
    claimed = client.claim(topic, max=len(jobs))
    client.nack(topic, seqs(claimed))


def test_a_job_that_was_delivered_too_often_becomes_a_dead_letter(client: Client, topic: str) -> None:
    deliver_too_often(client, topic, [{"data": {"a": 1}, "tag": "t", "meta": {"m": 1}, "node": "n"}])
    assert counters(client, topic) == {"ready": 0, "in_flight": 0, "delayed": 0, "dead_lettered": 1, "dropped": 0}
    assert client.get(topic)["count"] == 0
    [letter] = client.diff(f"{topic}.dead", include_tags=True)["records"]
    assert (letter["data"], letter["$tag"], letter["$node"]) == ({"a": 1}, "t", "n")
    assert letter["meta"] == {
        "m": 1,
        "$dead_letter_from": topic,
        "$dead_letter_deliveries": "1",
        "$dead_letter_src_seq": "1",
    }


def test_a_queue_cannot_be_its_own_dead_letter_topic(client: Client, topic: str) -> None:
    body = {"type": "queue", "max_deliveries": 1, "dead_letter": topic}
    error = client.refused("PUT", f"/v0/topics/{topic}", body, status=400)
    assert error["detail"] == {"dead_letter": topic}


def test_dead_letters_are_moved_back_to_where_they_came_from(client: Client, topic: str) -> None:
    deliver_too_often(client, topic, [{"data": 1, "tag": "t", "meta": {"m": 1}, "node": "n"}, {"data": 2}])
    answer = client.call("POST", path(f"{topic}.dead", "redrive"))
    assert list(answer) == ["topic", "redriven", "to", "remaining", "performance"]
    assert (answer["redriven"], answer["to"], answer["remaining"]) == (2, {topic: 2}, 0)
    first, second = client.diff(topic, include_tags=True)["records"]
    assert (first["data"], first["$tag"], first["meta"], first["$node"]) == (1, "t", {"m": 1}, "n")
    assert "meta" not in second
    assert [job["deliveries"] for job in client.claim(topic, max=2)] == [1, 1]


def test_dead_letters_are_moved_as_many_and_as_chosen(client: Client, topic: str) -> None:
    dead = f"{topic}.dead"
    deliver_too_often(client, topic, [{"data": n, "tag": tag} for n, tag in enumerate(("a:1", "b:1", "a:2", "a:3"))])
    answer = client.call("POST", path(dead, "redrive"), {"match": ["tag", "Glob", "a:*"], "limit": 2})
    assert (answer["redriven"], answer["remaining"]) == (2, 2)
    answer = client.call("POST", path(dead, "redrive"), {"match": "b:1"})
    assert (answer["redriven"], answer["remaining"]) == (1, 1)
    assert [record["data"] for record in client.diff(dead)["records"]] == [3]


def test_dead_letters_are_moved_to_a_topic_of_choice(client: Client, topic: str) -> None:
    dead, other = f"{topic}.dead", f"{topic}.other"
    deliver_too_often(client, topic, [1])
    error = client.refused("POST", path(dead, "redrive"), {"to": other}, status=404)
    assert error["detail"] == {"topic": other}
    assert client.refused("POST", path(dead, "redrive"), {"to": dead}, status=400)["code"] == "invalid_request"
    client.put(other)
    assert client.call("POST", path(dead, "redrive"), {"to": other})["to"] == {other: 1}
    assert [record["data"] for record in client.diff(other)["records"]] == [1]


def test_one_dead_letter_is_moved_by_its_seq(client: Client, topic: str) -> None:
    dead = f"{topic}.dead"
    deliver_too_often(client, topic, [1, 2, 3])
    answer = client.call("POST", path(dead, "redrive"), {"seq": 2})
    assert (answer["redriven"], answer["remaining"]) == (1, 2)
    answer = client.call("POST", path(dead, "redrive"), {"seq": 2})
    assert (answer["redriven"], answer["remaining"]) == (0, 2)
    assert [job["data"] for job in client.claim(topic, max=5)] == [2]


def test_one_dead_letter_is_moved_with_other_data(client: Client, topic: str) -> None:
    dead = f"{topic}.dead"
    deliver_too_often(client, topic, [{"data": {"to": "nowhere"}, "tag": "mail", "meta": {"m": 1}}, 2])
    answer = client.call("POST", path(dead, "redrive"), {"seq": 1, "data": {"to": "ähre"}})
    assert (answer["redriven"], answer["remaining"]) == (1, 1)
    [job] = client.claim(topic, max=5)
    assert (job["data"], job["$tag"], job["meta"]) == ({"to": "ähre"}, "mail", {"m": 1})
    assert client.call("POST", path(dead, "redrive"), {"seq": 2, "data": None})["redriven"] == 1
    assert [job["data"] for job in client.claim(topic, max=5)] == [None]


def test_other_data_is_for_one_dead_letter_and_as_large_as_a_record(client: Client, topic: str) -> None:
    dead = f"{topic}.dead"
    deliver_too_often(client, topic, [1])
    assert "name it with seq" in client.refused("POST", path(dead, "redrive"), {"data": 2}, status=400)["message"]
    body = {"seq": 1, "data": "x" * TopicsSettings().max_record_bytes}
    assert client.refused("POST", path(dead, "redrive"), body, status=400)["code"] == "record_too_large"
    assert [record["data"] for record in client.diff(dead)["records"]] == [1]


def test_a_dead_letter_keeps_its_priority_and_comes_back_without_stamps(client: Client, topic: str) -> None:
    client.queue(topic, [{"data": 1, "priority": 9}], max_deliveries=1, dead_letter=f"{topic}.dead")
    client.claim(topic, "a")
    client.nack(topic, [1], "a", reason="bad address")
    [letter] = client.diff(f"{topic}.dead")["records"]
    [failure] = letter["meta"].pop("$dead_letter_failures")
    assert (failure["delivery"], failure["node"], failure["reason"]) == (1, "a", "bad address")
    assert letter["meta"] == {
        "$dead_letter_from": topic,
        "$dead_letter_deliveries": "1",
        "$dead_letter_src_seq": "1",
        "$dead_letter_priority": "9",
        "$dead_letter_reason": "bad address",
    }
    client.write(topic, [2])
    client.call("POST", path(f"{topic}.dead", "redrive"))
    back, other = client.claim(topic, max=5)
    assert (back["data"], back["priority"], back["deliveries"], other["data"]) == (1, 9, 1, 2)
    assert "meta" not in back
    assert "failures" not in back


def test_dead_letters_stay_when_nobody_knows_where_they_belong(client: Client, topic: str) -> None:
    dead = f"{topic}.dead"
    deliver_too_often(client, topic, [1])
    client.write(dead, ["never was a job"])
    client.drop(topic)
    answer = client.call("POST", path(dead, "redrive"), {})
    assert (answer["redriven"], answer["to"], answer["remaining"]) == (0, {}, 2)


def test_redrives_at_the_same_time_move_each_dead_letter_once(client: Client, topic: str) -> None:
    # No idempotency key is remembered.
    client.queue(topic, [*range(400)], max_deliveries=1, dead_letter=f"{topic}.dead", idempotency_window_ms=0)
    client.nack(topic, [job["$seq"] for job in client.claim(topic, max=400)])
    redrives = [Waiting(client, lambda each: each.call("POST", path(f"{topic}.dead", "redrive"))) for _ in range(4)]
    assert sorted(redrive.answer()["redriven"] for redrive in redrives) == [0, 0, 0, 400]
    assert sorted(job["data"] for job in client.claim(topic, max=1000)) == [*range(400)]


def test_a_redrive_that_makes_no_sense_is_refused(client: Client, topic: str) -> None:
    assert client.refused("POST", path(topic, "redrive"), {}, status=404)["detail"] == {"topic": topic}
    client.put(topic)
    for body in (
        {"limit": -1},
        {"limit": "1"},
        {"to": 5},
        {"match": ["tag", "Like", "x"]},
        {"match": 5},
        {"seq": "1"},
        {"sequence": 1},
    ):
        client.refused("POST", path(topic, "redrive"), body, status=400)


# --- keys ------------------------------------------------------------------------------------------------------------


def test_keys_need_the_scopes_and_the_names(start_server: Any, lane: str) -> None:
    server = start_server(lane=lane, keys="all,r:read,w:write,rw:rw,rwd:rw+delete:mine,d:delete", max_claim=2)
    client = server.client()
    client.queue("mine", [1, 2, 3], max_deliveries=1, dead_letter="mine.dead")
    client.queue("other", [1])
    for key, endpoint, status in (
        ("r", "claim", 403),
        ("w", "claim", 403),
        ("rw", "claim", 200),
        ("r", "ack", 403),
        ("w", "ack", 200),
        ("r", "nack", 403),
        ("w", "nack", 200),
        ("r", "extend", 403),
        ("w", "extend", 200),
        ("rw", "redrive", 403),
        ("d", "redrive", 403),
        ("rwd", "redrive", 200),
    ):
        body = ENDPOINTS.get(endpoint, {})
        response = server.client(key).request("POST", path("mine", endpoint), body)
        assert response.status_code == status, (key, endpoint, response.text)
    claiming = {**ENDPOINTS["ack"], "claim": {"max": 1}}
    for key, status in (("w", 403), ("r", 403), ("rw", 200)):
        assert server.client(key).request("POST", path("mine", "ack"), claiming).status_code == status
    limited = server.client("rwd")
    for endpoint in (*ENDPOINTS, "redrive"):
        assert limited.refused("POST", path("other", endpoint), ENDPOINTS.get(endpoint, {}), status=403)
    error = limited.refused("POST", path("mine", "redrive"), {"to": "other"}, status=403)
    assert error["detail"] == {"topic": "other"}
    assert server.client("").refused("POST", path("mine", "claim"), {"node": "a"}, status=401)
    # The limit is a setting.
    client.write("mine", [4, 5])
    assert len(client.claim("mine", max=5)) == 2
    error = client.refused("POST", path("mine", "ack"), {"node": "a", "seqs": [1, 2, 3]}, status=400)
    assert error["detail"] == {"seqs": 3, "max": 2}


def test_a_limited_key_moves_no_dead_letters_to_where_it_may_not_write(start_server: Any) -> None:
    server = start_server(keys="all,dead:rw+delete:dead")
    client = server.client()
    client.queue("jobs", [1], max_deliveries=1, dead_letter="dead")
    client.claim("jobs")
    client.nack("jobs", [1])
    assert client.claim("jobs") == []
    assert server.client("dead").call("POST", path("dead", "redrive"), {})["redriven"] == 0
    assert client.call("POST", path("dead", "redrive"), {})["to"] == {"jobs": 1}


# --- restarts --------------------------------------------------------------------------------------------------------


def test_leases_and_acks_survive_a_kill_as_promised(start_server: Any) -> None:
    server = start_server()
    client = server.client()
    client.queue("durable", [1, 2, 3], durability="fsync", leases_durable=True)
    client.queue("plain", [1, 2], durability="fsync")
    [job] = client.claim("durable", "a", lease_ms=60_000)
    client.claim("durable", "a")
    assert client.ack("durable", [2], "a")["acked"] == 1
    client.claim("plain", max=2)
    server.kill()
    server.start()
    client = server.client()
    assert seqs(client.claim("durable", "b", max=9)) == [3]
    assert client.ack("durable", [1], "a", lease_ids=[job["lease_id"]])["acked"] == 1
    # No job is lost, whether or not its lease was.
    assert client.get("plain")["count"] == 2
    state = client.get("plain")["queue"]
    assert state["ready"] + state["in_flight"] == 2
