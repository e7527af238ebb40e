"""Writes and reads over HTTP, next to Redis Streams: the same work on the same machine, in turns.

Both sides have a load generator written in C: wrk for Strandline, redis-benchmark for Redis.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from bench.measure import Effort, Rounds, Row, Sample, Unit, alone, in_rounds
from bench.topics_peers import Load, Redis, Wrk, missing, redis_serving
from bench.topics_server import Server, send_all, serving, write_body
from bench.workload import directory, payloads

GROUP = "topics"
PAYLOAD = 150
MANY = 5000


#: The result of a load generator, and the number of records per request.
Counted = tuple[Load, int]


class Work(NamedTuple):
    """A workload, and its requests on both sides."""

    name: str
    connections: int
    redis: Sequence[str]
    peer_is: str
    aim: float | None
    durability: str = "disk"
    #: The number of records that one request writes or reads.
    records: int = 1
    pipeline: int = 1
    #: The end of the path, after the topic's own path.
    path: str = ""
    latency: bool = False
    #: Whether both sides are filled once and then read, instead of being emptied after each turn.
    reading: bool = False
    unit: Unit = "records/s"


def run(root: Path, effort: Effort) -> Iterator[Row]:
    lacking = missing("wrk")
    if lacking:
        print("topics: skipped, wrk is not installed", file=sys.stderr)
        return
    lacking = missing("redis-server", "redis-benchmark")
    if lacking:
        print(f"topics: without a peer, {', '.join(lacking)} is not installed", file=sys.stderr)
    with ExitStack() as stack:
        base = stack.enter_context(directory(root, "topics"))
        fast = stack.enter_context(serving(base / "fast"))
        plain = stack.enter_context(serving(base / "plain", fast_lane=False))
        peers: dict[str, Redis] = {}
        if not lacking:
            peers["disk"] = stack.enter_context(redis_serving(base / "everysec", "everysec"))
            peers["fsync"] = stack.enter_context(redis_serving(base / "always", "always"))
        side = Side(base, effort)
        for work in works():
            yield from side.measure(fast, peers.get(work.durability), work)
        single = works()[0]
        yield from side.measure(
            plain, peers.get("disk"), single._replace(name=single.name + ", plain ASGI lane", aim=None)
        )
        batches = works()[2]
        brief = batches._replace(name=batches.name + ", answered without seqs", path="?return_seqs=false", aim=None)
        yield from side.measure(fast, peers.get("disk"), brief)
        yield side.many(fast, effort.scaled(MANY, 100))


def works() -> list[Work]:
    payload = payloads(PAYLOAD)[0].decode()
    add = ("XADD", "stream", "*", "data", payload)
    return [
        Work("single appends, 32 connections, disk", 32, add, "XADD, 32 connections, appendfsync everysec", 0.6),
        Work(
            "single appends, 32 connections, fsync", 32, add, "XADD, 32 connections, appendfsync always", 0.5, "fsync"
        ),
        Work(
            "batches of 500, 4 connections, disk", 4, add, "XADD, 4 connections, pipelined by 500", 2.0,
            records=500, pipeline=500,
        ),
        Work(
            "pages of 1000, 4 connections", 4, ("XRANGE", "stream", "-", "+", "COUNT", "1000"),
            "XRANGE COUNT 1000, 4 connections", 1.5, records=1000, path="/diff", reading=True,
        ),
        Work("p50 of one append, 1 connection, disk", 1, add, "XADD, 1 connection", 1.5, latency=True, unit="ms"),
    ]  # fmt: skip


class Side:
    """Runs one turn of a workload on either side."""

    def __init__(self, base: Path, effort: Effort) -> None:
        self._base = base
        self._effort = effort
        #: wrk accepts only whole seconds.
        self._seconds = 1.0
        self._topics = 0

    def measure(self, server: Server, redis: Redis | None, work: Work) -> Iterator[Row]:
        """The figure and, for a rate, its cost to the server, because the load generators have different costs."""
        ours = _Turns(self._ours(server, work), work)
        if redis is None:
            samples = [ours.turn() for _ in range(self._effort.rounds)]
            figures = [s.seconds * 1000 if work.latency else s.amount / s.seconds for s in samples]
            yield alone(GROUP, work.name, work.unit, figures)
            return
        theirs = _Turns(self._theirs(redis, work), work)
        rounds = in_rounds(ours.turn, theirs.turn, self._effort.rounds)
        yield rounds.beside_peer(GROUP, work.name, work.unit, work.peer_is, work.aim)
        if not work.latency:
            cost = Rounds(ours.processor, theirs.processor)
            name = f"{work.name}: processor time of the server per record"
            yield cost.beside_peer(GROUP, name, "µs", work.peer_is)

    def _ours(self, server: Server, work: Work) -> Callable[[], Counted]:
        wrk = Wrk(self._base, server)
        if work.reading:
            topic = self._new_topic(server, work.durability)
            with server.connect() as connection:
                connection.call("POST", f"/v0/topics/{topic}", write_body(payloads(PAYLOAD)[:1000]))
            body = b'{"from_seq":0,"limit":1000}'
        else:
            count = 1 if work.pipeline == 1 else work.records
            body = write_body(payloads(PAYLOAD)[:count])

        def turn() -> Counted:
            if work.reading:
                load = wrk.run(body, [f"/v0/topics/{topic}{work.path}"], work.connections, self._seconds)
                return load, work.records
            fresh = self._new_topic(server, work.durability)
            load = wrk.run(body, [f"/v0/topics/{fresh}{work.path}"], work.connections, self._seconds)
            with server.connect() as connection:
                connection.call("DELETE", f"/v0/topics/{fresh}")
            return load, work.records

        return turn

    def _theirs(self, redis: Redis, work: Work) -> Callable[[], Counted]:
        first = 20_000 if work.pipeline > 1 else 50 if work.reading else 2000
        redis.call(b"DEL", b"stream")
        if work.reading:
            for payload in payloads(PAYLOAD)[:1000]:
                redis.call(b"XADD", b"stream", b"*", b"data", payload)

        def turn() -> Counted:
            load = redis.run_for(work.redis, work.connections, self._seconds, work.pipeline, first)
            if not work.reading:
                redis.call(b"DEL", b"stream")
            # A pipelined request is one record; only a page has many records per request.
            return load, work.records if work.reading else 1

        return turn

    def many(self, server: Server, topics: int) -> Row:
        """The same number of writers, but each append goes to the next one of many topics."""
        names = [f"many-{number}" for number in range(topics)]
        send_all(server, (("PUT", f"/v0/topics/{name}", b"{}") for name in names), 16)
        wrk, body = Wrk(self._base, server), write_body(payloads(PAYLOAD)[:1])
        paths = [f"/v0/topics/{name}" for name in names]
        rates = []
        for _ in range(self._effort.rounds):
            load = wrk.run(body, paths, 32, self._seconds)
            rates.append(load.requests / load.seconds)
        return alone(GROUP, f"single appends to {topics:,} topics in turn, 32 connections, disk", "records/s", rates)

    def _new_topic(self, server: Server, durability: str) -> str:
        self._topics += 1
        name = f"topic-{self._topics}"
        with server.connect() as connection:
            connection.call("PUT", f"/v0/topics/{name}", {"durability": durability})
        return name


class _Turns:
    """The turns of one side, with their costs."""

    def __init__(self, turn: Callable[[], Counted], work: Work) -> None:
        self._turn = turn
        self._latency = work.latency
        #: Seconds of processor time per record.
        self.processor: list[Sample] = []

    def turn(self) -> Sample:
        load, records = self._turn()
        self.processor.append(Sample(1, load.processor / (load.requests * records)))
        return load.p50() if self._latency else load.sample(records)
