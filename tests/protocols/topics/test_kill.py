"""A server that is killed again and again in the middle of everything, always on the same directory.

The kernel lives on, so whatever was acknowledged on a journaled topic is there afterwards, whatever its class.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from random import Random
from typing import Any

from support.kill_load import (
    Actor,
    Committed,
    Jobs,
    Line,
    Round,
    Watched,
    Written,
    holding,
    working,
    writing,
    writing_pairs,
)
from support.server_process import ServerProcess
from support.topics_client import Client, eventually

StartServer = Callable[..., ServerProcess]

LONG = os.environ.get("STRANDLINE_LONG") == "1"
ROUNDS = 25 if LONG else 4
SEED = 35
#: A round ends after so many acknowledgements, drawn at random, and at the latest after so many seconds.
ACKNOWLEDGEMENTS = (100, 2000)
ROUND_SECONDS = 2.0
#: Clients see at once that their server is gone.
END_SECONDS = 30.0

CONFIG: dict[str, dict[str, Any]] = {
    "log.fsync": {"durability": "fsync"},
    "log.disk": {"durability": "disk"},
    "pair.fsync": {"durability": "fsync"},
    "pair.disk": {"durability": "disk"},
    "route.fsync": {"durability": "fsync"},
    "route.disk": {"durability": "disk"},
    "jobs.fsync": {"type": "queue", "durability": "fsync", "leases_durable": True},
    "jobs.disk": {"type": "queue", "durability": "disk"},
    "jobs.tried": {"type": "queue", "durability": "fsync", "max_deliveries": 2, "dead_letter": "jobs.dead"},
    "jobs.dead": {"durability": "fsync"},
}
#: From where to where, and with which guarantee.
ROUTERS = [
    ("route.fsync", "route.fsync.1", "at_least_once"),
    ("route.fsync.1", "route.fsync.1.1", "at_least_once"),
    ("route.fsync.1.1", "route.fsync.1.1.1", "exactly_once"),
    *(("route.fsync", f"route.fsync.{number}", "at_least_once") for number in (2, 3, 4)),
    ("route.disk", "route.disk.1", "exactly_once"),
    ("route.disk.1", "route.disk.1.1", "at_least_once"),
    ("route.disk", "route.disk.2", "at_least_once"),
]
HOLDER = "holder"


class World:
    """Everything that clients were told."""

    def __init__(self) -> None:
        names = [name for name in CONFIG if name.startswith(("log.", "pair.", "route."))]
        self.written = {name: Written(name) for name in names}
        self.jobs = {name: Jobs(name) for name in CONFIG if name.startswith("jobs.") and name != "jobs.dead"}
        self.committed = [
            Committed(self.written["log.fsync"], "billing"),
            Committed(self.written["log.disk"], "audit"),
        ]
        self.watched = [Watched(name) for name in ("log.fsync", "log.disk", "route.fsync.1.1.1", "route.disk.2")]

    def make(self, client: Client) -> None:
        for name, config in CONFIG.items():
            client.put(name, idempotency_window_ms=86_400_000, **config)
        for source, dest, guarantee in ROUTERS:
            body = {"source": source, "dest": dest, "guarantee": guarantee}
            client.call("PUT", f"/v0/routers/{source}->{dest}", body, status=201)

    def actors(self, round: Round) -> list[Actor]:
        written, jobs = self.written, self.jobs
        everything = list(jobs.values())
        steps = {
            "fsync-1": writing(written["log.fsync"]),
            "fsync-2": writing(written["log.fsync"]),
            "disk-1": writing(written["log.disk"]),
            "both": writing(written["log.fsync"], written["log.disk"]),
            "pairs": writing_pairs(written["pair.fsync"], written["pair.disk"]),
            "routed-1": writing(written["route.fsync"], written["route.disk"]),
            "routed-2": writing(written["route.fsync"], written["route.disk"]),
            "producer": writing(*everything),
            "worker-1": working(*everything),
            "worker-2": working(*everything),
            "worker-3": working(*everything),
            HOLDER: holding(jobs["jobs.fsync"], HOLDER),
        }
        for committed in self.committed:
            steps[f"consumer-{committed.written.topic}"] = committed.step
        for watched in self.watched:
            steps[f"watcher-{watched.topic}"] = watched.step
        return [Actor(round, name, step) for name, step in steps.items()]

    # --- what must be so afterwards --------------------------------------------------------------------------------

    def check(self, client: Client) -> None:
        rows = {name: read_all(client, name) for name in self.written}
        for name, written in self.written.items():
            check_written(written, rows[name])
        assert ids(rows["pair.fsync"]) == ids(rows["pair.disk"])
        self._check_routers(client)
        for watched in self.watched:
            there = rows[watched.topic] if watched.topic in rows else read_all(client, watched.topic)
            for seq, payload in watched.got.items():
                assert there.get(seq) == payload, f"{watched.topic}: {seq} was delivered, and is another one now"
        for committed in self.committed:
            check_cursor(client, committed)
        dead = list(read_all(client, "jobs.dead").values())
        for jobs in self.jobs.values():
            check_jobs(client, jobs, dead if jobs.topic == "jobs.tried" else [])

    def _check_routers(self, client: Client) -> None:
        for source, dest, _ in ROUTERS:
            # Contiguous, and the same records in the same order: every one once.
            assert ids(read_all(client, dest)) == ids(read_all(client, source)), f"{source} and {dest} differ"

    def retry(self, client: Client) -> None:
        """Every write that is in doubt is made again, and some that are not."""
        for written in (*self.written.values(), *self.jobs.values()):
            for key, payloads in list(written.doubtful.items()):
                answer = client.write(written.topic, payloads, idempotency_key=key)
                written.note(answer, payloads, key)
            for key, (first, payloads) in list(written.by_key.items())[-5:]:
                answer = client.write(written.topic, payloads, idempotency_key=key)
                assert (answer["deduped"], answer["first_seq"]) == (True, first), f"{written.topic}: {key}: {answer}"


def read_all(client: Client, topic: str, *, gaps: bool = False) -> dict[int, Any]:
    """All records by seq. Without ``gaps`` there must be one for every seq."""
    rows: dict[int, Any] = {}
    after = 0
    while True:
        page = client.diff(topic, after, limit=1000)
        assert page["tombstone"] is None, f"{topic}: {page['tombstone']}"
        for record in page["records"]:
            assert record["$seq"] not in rows
            rows[record["$seq"]] = record["data"]
        after = page["next_from_seq"]
        if page["caught_up"]:
            break
    if not gaps:
        assert list(rows) == list(range(1, page["head_seq"] + 1)), f"{topic}: seqs are missing"
    return rows


def ids(rows: dict[int, Any]) -> list[str]:
    return [row["id"] for row in rows.values()]


def check_written(written: Written, rows: dict[int, Any]) -> None:
    for seq, payload in written.acked.items():
        assert rows.get(seq) == payload, f"{written.topic}: {seq} was acknowledged as {payload}, it is {rows.get(seq)}"
    found = ids(rows)
    assert len(set(found)) == len(found), f"{written.topic}: a record is there twice"
    assert written.sent.issuperset(found), f"{written.topic}: records that nobody wrote"


def check_cursor(client: Client, committed: Committed) -> None:
    if committed.acked:
        seq = client.call("GET", committed.path)["seq"]
        assert seq in (committed.acked, committed.sent), f"{committed.path}: {seq}, not {committed.acked}"


def check_jobs(client: Client, jobs: Jobs, dead: list[Any]) -> None:
    """Every job is there, or done, or in the dead-letter topic; and in one of these places only."""
    dead_ids = {job["id"] for job in dead}
    assert len(dead_ids) == len(dead), f"{jobs.topic}: a job died twice"
    live = without_dead(client, jobs.topic, dead_ids)
    maybe_done = jobs.maybe_done
    assert not jobs.done & live.keys(), f"{jobs.topic}: done jobs came back: {jobs.done & live.keys()}"
    for seq, payload in jobs.acked.items():
        if seq in live:
            assert live[seq] == payload
        else:
            gone = seq in jobs.done or seq in maybe_done or payload["id"] in dead_ids
            assert gone, f"{jobs.topic}: job {seq} is lost"
        assert not (seq in jobs.done and payload["id"] in dead_ids), f"{jobs.topic}: job {seq} was done, and died"
    assert jobs.sent.issuperset(ids(live)), f"{jobs.topic}: jobs that nobody wrote"
    assert jobs.held <= live.keys() | maybe_done, f"{jobs.topic}: a job that was held is gone"
    # An ack that was in doubt and did happen.
    jobs.held &= live.keys()


def without_dead(client: Client, topic: str, dead: set[str]) -> dict[int, Any]:
    """The jobs of a queue. A job that had just become a dead letter is taken out when the queue is first looked at."""
    client.get(topic)

    def look() -> tuple[dict[int, Any]] | None:
        live = read_all(client, topic, gaps=True)
        return None if dead.intersection(ids(live)) else (live,)

    return eventually(look)[0]


def drain(client: Client, line: Line, jobs: Jobs) -> None:
    """Whatever is left can be claimed, once."""
    if jobs.held:
        assert jobs.ack(line, HOLDER, sorted(jobs.held)) == [], f"{jobs.topic}: leases were lost"
    left = set(read_all(client, jobs.topic, gaps=True))
    # Leases whose claims were in doubt: nobody knows of them but the server.
    for seqs in in_parts(sorted(left)):
        client.nack(jobs.topic, seqs, HOLDER)
    claimed: set[int] = set()
    dead = "jobs.dead" if jobs.topic == "jobs.tried" else None

    def all_of_them() -> bool:
        seqs = jobs.claim(line, "last", 1000, lease_ms=3_600_000)
        assert not claimed.intersection(seqs), f"{jobs.topic}: handed out twice"
        claimed.update(seqs)
        return claimed == (left if dead is None else set(read_all(client, jobs.topic, gaps=True)))

    eventually(all_of_them, 30)
    for seqs in in_parts(sorted(claimed)):
        assert jobs.ack(line, "last", seqs) == []


def in_parts(seqs: list[int]) -> list[list[int]]:
    return [seqs[at : at + 1000] for at in range(0, len(seqs), 1000)]


def test_a_killed_server_keeps_every_promise(start_server: StartServer) -> None:
    random = Random(SEED)
    world = World()
    # Journals are small, so that it is sealing all the time; and nobody is asked to wait, however slow the machine.
    server = start_server(journal_bytes=100_000, target_latency_ms=10_000)
    world.make(server.client())
    for number in range(ROUNDS):
        round = Round(server.url, number, random.randint(*ACKNOWLEDGEMENTS))
        actors = world.actors(round)
        for actor in actors:
            actor.start()
        round.wait(ROUND_SECONDS)
        round.dying.set()
        server.kill()
        for actor in actors:
            actor.join(END_SECONDS)
            assert not actor.is_alive(), f"{actor.name} does not end"
        assert round.failures == []
        server.close_clients()
        server.start()
        client = server.client()
        world.retry(client)
        world.check(client)
    line = Line(Round(server.url, ROUNDS, 0))
    for jobs in world.jobs.values():
        drain(client, line, jobs)
    world.check(client)
    line.http.close()
    assert all(written.acked for written in world.written.values() if not written.topic.startswith("pair."))
    assert all(watched.got for watched in world.watched)
