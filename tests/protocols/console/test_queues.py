"""Queues: what waits, who holds what until when, and what comes next."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.console_in_process import NOW, ConsoleStand


def queue(stand: ConsoleStand, name: str, jobs: list[dict[str, Any]], **config: Any) -> None:
    stand.put(name, type="queue", **config)
    if jobs:
        written = stand.ask("POST", f"/v0/topics/{name}", {"records": jobs})
        assert written.status == 200, written


def claim(stand: ConsoleStand, name: str, node: str, count: int = 1, **more: Any) -> list[int]:
    claimed = stand.ask("POST", f"/v0/topics/{name}/claim", {"node": node, "max": count, **more})
    assert claimed.status == 200, claimed
    return [job["$seq"] for job in claimed.json["claimed"]]


def nack(stand: ConsoleStand, name: str, node: str, seqs: list[int], delay_ms: int = 0) -> None:
    nacked = stand.ask("POST", f"/v0/topics/{name}/nack", {"node": node, "seqs": seqs, "delay_ms": delay_ms})
    assert nacked.json["nacked"] == len(seqs), nacked


def test_without_queues_there_are_none(stand: ConsoleStand) -> None:
    stand.log("orders", 1)
    assert stand.get("/queues") == {"queues": [], "total": 0}


def test_queues_are_listed_with_how_many_jobs_are_where(stand: ConsoleStand) -> None:
    stand.log("orders", 1)
    queue(stand, "jobs", [{"data": each} for each in range(5)])
    queue(stand, "untouched", [{"data": 1}], dead_letter="graves")
    assert claim(stand, "jobs", "worker", 3) == [1, 2, 3]
    nack(stand, "jobs", "worker", [3], delay_ms=60_000)
    empty = {"in_flight": 0, "delayed": 0, "dead": 0, "dead_lettered": 0, "dropped": 0}
    assert stand.get("/queues") == {
        "queues": [
            {"name": "jobs", "ready": 2, **empty, "in_flight": 2, "delayed": 1, "dead_letter": None},
            {"name": "untouched", "ready": 1, **empty, "dead_letter": "graves"},
        ],
        "total": 2,
    }
    assert [each["name"] for each in stand.get("/queues?offset=1&limit=1")["queues"]] == ["untouched"]
    assert [each["name"] for each in stand.get("/queues?search=JOB")["queues"]] == ["jobs"]


def test_it_is_told_who_holds_what_until_when(stand: ConsoleStand) -> None:
    queue(stand, "jobs", [{"data": each} for each in range(6)])
    assert claim(stand, "jobs", "slow", lease_ms=60_000) == [1]
    assert claim(stand, "jobs", "quick", 2, lease_ms=1_000) == [2, 3]
    nack(stand, "jobs", "quick", [3], delay_ms=5_000)
    found = stand.get("/queue/jobs")
    assert found["counts"] == {"ready": 3, "in_flight": 2, "delayed": 1, "dead": 0, "dead_lettered": 0, "dropped": 0}
    assert found["held"] == [
        {"seq": 2, "worker": "quick", "until": NOW + 1_000, "deliveries": 1, "priority": 0, "failures": []},
        {"seq": 1, "worker": "slow", "until": NOW + 60_000, "deliveries": 1, "priority": 0, "failures": []},
    ]
    assert found["delayed"] == [{"seq": 3, "at": NOW + 5_000, "deliveries": 1, "priority": 0, "failures": []}]
    assert (found["config"]["type"], found["dead_letters"]) == ("queue", None)


def test_it_is_told_why_jobs_failed(stand: ConsoleStand) -> None:
    queue(stand, "jobs", [{"data": each} for each in range(3)])
    assert claim(stand, "jobs", "worker", 3) == [1, 2, 3]
    body = {"node": "worker", "seqs": [1, 2, 3], "reason": {"type": "ValueError", "message": "no"}, "delay_ms": 0}
    assert stand.ask("POST", "/v0/topics/jobs/nack", body).status == 200
    assert claim(stand, "jobs", "worker", 2) == [1, 2]
    nack(stand, "jobs", "worker", [2], delay_ms=5_000)
    found = stand.get("/queue/jobs")
    failure = {"at": NOW, "delivery": 1, "worker": "worker", "reason": {"type": "ValueError", "message": "no"}}
    for state in ("held", "delayed", "next"):
        (job,) = found[state]
        assert job["failures"] == [failure], state
    assert found["next"][0]["deliveries"] == 1


def test_the_age_of_the_oldest_job_and_the_rates_are_told(stand: ConsoleStand) -> None:
    queue(stand, "jobs", [{"data": each} for each in range(4)])
    assert claim(stand, "jobs", "worker", 2) == [1, 2]
    assert stand.ask("POST", "/v0/topics/jobs/ack", {"node": "worker", "seqs": [1]}).status == 200
    nack(stand, "jobs", "worker", [2], delay_ms=60_000)
    stand.clock.advance(7_000)
    found = stand.get("/queue/jobs")
    assert (found["oldest_ready_ms"], found["failure_rate"]) == (7_000, 0.5)
    assert found["throughput"] > 0
    assert claim(stand, "jobs", "worker", 2) == [3, 4]
    assert stand.get("/queue/jobs")["oldest_ready_ms"] is None


def test_jobs_that_were_dropped_are_counted(stand: ConsoleStand) -> None:
    queue(stand, "jobs", [{"data": 1}], max_deliveries=1)
    nack(stand, "jobs", "worker", claim(stand, "jobs", "worker"))
    assert stand.get("/queue/jobs")["counts"] == {
        "ready": 0,
        "in_flight": 0,
        "delayed": 0,
        "dead": 0,
        "dead_lettered": 0,
        "dropped": 1,
    }


def test_what_comes_next_is_what_the_next_claim_gets(stand: ConsoleStand) -> None:
    jobs = [{"data": each} for each in range(4)]
    queue(stand, "jobs", jobs)
    assert claim(stand, "jobs", "worker", 2) == [1, 2]
    stand.engine.seal()
    stand.log("jobs", 5)
    nack(stand, "jobs", "worker", [2])
    foretold = [record["seq"] for record in stand.get("/queue/jobs")["next"]]
    assert foretold == [record["seq"] for record in stand.get("/queue/jobs")["next"]], "looking changes nothing"
    assert foretold == claim(stand, "jobs", "worker", 10) == [2, 3, 4, 5]


def test_a_queue_whose_jobs_were_never_handed_out_has_them_all_ready(stand: ConsoleStand) -> None:
    queue(stand, "jobs", [{"data": "a"}, {"data": "b"}])
    found = stand.get("/queue/jobs")
    assert found["counts"]["ready"] == 2
    assert [record["data"] for record in found["next"]] == ["a", "b"]


def test_dead_letters_are_counted_where_they_are(tmp_path: Path) -> None:
    with ConsoleStand(tmp_path, "all,limited:read:jobs") as stand:
        made = stand.ask(
            "PUT", "/v0/topics/jobs", {"type": "queue", "max_deliveries": 1, "dead_letter": "graves"}, key="all"
        )
        assert made.status == 201, made
        assert stand.get("/queue/jobs", key="all")["dead_letters"] == {"log": "graves", "exists": False, "records": 0}
        stand.log("jobs", "poison")
        for _ in range(2):
            asked = stand.ask("POST", "/v0/topics/jobs/claim", {"node": "worker", "lease_ms": 100}, key="all")
            assert asked.status == 200, asked
            stand.clock.advance(1_000)
        found = stand.get("/queue/jobs", key="all")
        assert (found["counts"]["dead"], found["dead_letters"]["records"]) == (1, 1)
        hidden = stand.get("/queue/jobs", key="limited")
        assert (hidden["dead_letters"], hidden["counts"]["dead"], hidden["counts"]["dead_lettered"]) == (None, 0, 1)
        assert stand.ask("POST", "/v0/topics/graves/redrive", {}, key="all").status == 200
        (row,) = (each for each in stand.get("/queues", key="all")["queues"] if each["name"] == "jobs")
        assert (row["dead"], row["dead_lettered"]) == (0, 1)
        assert [each["name"] for each in stand.get("/queues", key="limited")["queues"]] == ["jobs"]


def test_what_is_no_queue_says_so(stand: ConsoleStand) -> None:
    stand.log("orders")
    stand.stream("pictures", "image/png")
    assert stand.refused("/queue/orders") == (409, "not_a_queue")
    assert stand.refused("/queue/pictures") == (409, "not_a_queue")
    assert stand.refused("/queue/nothing") == (404, "log_not_found")
