"""Replicas in an object store: what an append to a `replicated` log costs beside one to a `fsync` log, how long a
takeover takes, and how many requests a server makes.

The store is MinIO, with a delay in front of it like that of a store elsewhere.
"""

from __future__ import annotations

import os
import selectors
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count, cycle
from pathlib import Path
from statistics import quantiles
from typing import NamedTuple
from uuid import uuid4

from bench.delaying_proxy import DelayingProxy, delaying_proxy
from bench.measure import Effort, Figure, Rounds, Row, Sample, alone, single, timed
from bench.minio import BUCKET, CannotBuild, MinioServer, build_minio, minio_server
from bench.peers import free_port
from bench.topics_server import Connection, Server, request_bytes, send_all, serving, write_body
from bench.workload import directory, payloads
from strandline.engine.replica.leader import request_takeover
from strandline.engine.replica.store import ObjectStoreReplica

GROUP = "replica"
FSYNC = "a `fsync` log of the same server"
RESTART = "a start of the killed server in its directory"
#: Milliseconds that a request to the store takes longer: a store in the same building, in the same region, elsewhere.
DELAYS = (5, 20, 50)
CLIENTS = (1, 32)
#: The default of `replica_interval_ms`, and none, which makes writes as quick as the store.
INTERVALS = (50, 0)
SIZE = 64
#: A write takes up to 150 ms, and percentiles need many of them.
TURNS = 12
TAKEOVER_DELAY_MS = 20
LOADERS, BATCH = 4, 1000
LEASE_MS = 3000
#: How many records are written to see when a follower shows them.
LAG_PROBES = 200
#: The records per second of the load whose requests are counted.
RATE = 100
#: For how long requests are counted, in turns, and until a started server is quiet.
COUNTED_TURNS = 100
QUIET_SECONDS = 2.0
READY_SECONDS = 600.0
HOUR = 3600

_numbers = count(1)


class Store(NamedTuple):
    """The store behind the delay."""

    proxy: DelayingProxy
    minio: MinioServer

    @property
    def environment(self) -> dict[str, str]:
        return {**self.minio.environment, "AWS_ENDPOINT_URL": self.proxy.url}

    def at_once(self, url: str) -> ObjectStoreReplica:
        return ObjectStoreReplica(url, **self.minio.options)


def run(root: Path, effort: Effort) -> Iterator[Row]:
    try:
        program = build_minio()
    except CannotBuild as error:
        print(f"{GROUP}: skipped, {error}", file=sys.stderr)
        return
    with directory(root, GROUP) as base, minio_server(base / "minio", program) as minio:
        upstream = int(minio.url.rpartition(":")[2])
        with delaying_proxy(free_port(), upstream) as proxy:
            store = Store(proxy, minio)
            for interval in INTERVALS:
                yield from _appends(base, effort, store, interval)
            for records in sorted({effort.scaled(1_000_000, 10_000), effort.takeover_records // effort.divisor}):
                yield from _takeovers(base, effort, store, records)
            yield from _lags(base, effort, store)
            yield from _requests(base, effort, store)


@contextmanager
def _server(base: Path, store: Store, url: str, *, ready: bool = True, **settings: object) -> Iterator[Server]:
    data = base / f"data{next(_numbers)}"
    with serving(data, ready=ready, environment=store.environment, replica=url, **settings) as server:
        yield server


def _new_url() -> str:
    return f"s3://{BUCKET}/{uuid4().hex}"


def _create(server: Server, log: str, durability: str) -> None:
    with server.connect() as connection:
        connection.call("PUT", f"/v0/topics/{log}", {"durability": durability})


# --- appends -------------------------------------------------------------------------------------------------------


class Turn(NamedTuple):
    writes: int
    seconds: float
    p50: float
    p99: float


def _appends(base: Path, effort: Effort, store: Store, interval: int) -> Iterator[Row]:
    """Writes of one record, each client waiting for every answer."""
    with _server(base, store, _new_url(), replica_interval_ms=interval) as server:
        for log in ("replicated", "fsync"):
            _create(server, log, log)
        for delay in DELAYS:
            store.proxy.delay(delay)
            for clients in CLIENTS:
                mine, other = [], []
                for _ in range(effort.rounds):
                    mine.append(_write(server, "replicated", clients, effort.turn * TURNS))
                    other.append(_write(server, "fsync", clients, effort.turn))
                what = "1 client" if clients == 1 else f"{clients} clients"
                name = f"append, {what}, store of {delay} ms, interval of {interval} ms"
                yield _beside(mine, other, lambda turn: Sample(turn.writes, turn.seconds)).beside_peer(
                    GROUP, name, "records/s", FSYNC
                )
                for part, pick in (("p50", 2), ("p99", 3)):
                    rounds = _beside(mine, other, lambda turn, pick=pick: Sample(1, turn[pick]))
                    yield rounds.beside_peer(GROUP, f"{name}, {part}", "ms", FSYNC)
        store.proxy.delay(0)


def _beside(mine: list[Turn], other: list[Turn], sample: Callable[[Turn], Sample]) -> Rounds:
    return Rounds([sample(turn) for turn in mine], [sample(turn) for turn in other])


def _write(server: Server, log: str, clients: int, seconds: float) -> Turn:
    """Write from a number of connections until the time is up."""
    bodies = cycle(payloads(SIZE))
    clock, times = time.perf_counter, list[float]()

    def send(line: Connection) -> None:
        line.send(request_bytes("POST", f"/v0/topics/{log}", write_body([next(bodies)])))

    with ExitStack() as stack, selectors.DefaultSelector() as selector:
        lines = [stack.enter_context(server.connect()) for _ in range(clients)]
        for line in lines:
            selector.register(line, selectors.EVENT_READ)
        began = clock()
        sent = dict.fromkeys(lines, began)
        for line in lines:
            send(line)
        while sent:
            for key, _ in selector.select():
                line = key.fileobj
                assert isinstance(line, Connection)
                answer = line.receive()
                if answer.status != 200:
                    raise RuntimeError(f"refused: {answer.status} {answer.body[:500]!r}")
                now = clock()
                times.append(now - sent.pop(line))
                if now - began < seconds:
                    sent[line] = clock()
                    send(line)
        took = clock() - began
    cuts = quantiles(times, n=100, method="inclusive") if len(times) > 1 else times * 99
    return Turn(len(times), took, cuts[49], cuts[98])


# --- takeovers -----------------------------------------------------------------------------------------------------


def _takeovers(base: Path, effort: Effort, store: Store, records: int) -> Iterator[Row]:
    """From the request until the standby has acknowledged a write, and until it has all segments."""
    taken, restarted, complete = [], [], []
    url = _new_url()
    with _server(base, store, url) as server:
        data = server.data
        _create(server, "log", "replicated")
        send_all(server, _batches(records), LOADERS)
        os.kill(server.pid, signal.SIGKILL)
    store.proxy.delay(TAKEOVER_DELAY_MS)
    for _ in range(effort.rounds):
        # The killed server is the leader again, and the standby takes over from it.
        with serving(data, ready=False, environment=store.environment, replica=url) as server:
            restarted.append(timed(1, lambda server=server: _write_once(server)))
            with _server(base, store, url, ready=False, standby=True) as standby:
                _wait(lambda standby=standby: _role(standby) == "standby")
                # It has looked at the store, and notices requests from now on.
                _wait(lambda standby=standby: _leader(standby) != "")
                os.kill(server.pid, signal.SIGKILL)
                began = time.perf_counter()
                request_takeover(store.at_once(url))
                _write_once(standby)
                taken.append(Sample(1, time.perf_counter() - began))
                _wait(lambda standby=standby: _missing_segments(standby) == 0)
                complete.append(time.perf_counter() - began)
                data = standby.data
                os.kill(standby.pid, signal.SIGKILL)
    store.proxy.delay(0)
    name = f"takeover with {records:,} records, store of {TAKEOVER_DELAY_MS} ms"
    yield Rounds(taken, restarted).beside_peer(GROUP, f"{name}, until the first write", "s", RESTART)
    yield alone(GROUP, f"{name}, until all segments are there", "s", complete)


def _batches(records: int) -> Iterator[tuple[str, str, bytes]]:
    data = payloads(SIZE)
    for at in range(0, records, BATCH):
        start = at % (len(data) - BATCH + 1)
        yield "POST", "/v0/topics/log", write_body(data[start : start + BATCH])


def _write_once(server: Server) -> None:
    """Write a record, as soon as the server takes it."""
    body = write_body(payloads(SIZE)[:1])
    _wait(lambda: _request(server, "POST", "/v0/topics/log", body)[0] == 200)


def _wait(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + READY_SECONDS
    while not is_so():
        if time.monotonic() > until:
            raise RuntimeError(f"it did not happen within {READY_SECONDS:.0f} s")
        time.sleep(0.005)


def _request(server: Server, method: str, path: str, body: bytes = b"") -> tuple[int, dict[str, object]]:
    try:
        with server.connect() as connection:
            answer = connection.request(method, path, body, accept="application/json")
            return answer.status, answer.json()
    except OSError:
        return 0, {}


def _role(server: Server) -> object:
    return _request(server, "GET", "/v0/health")[1].get("role")


def _leader(server: Server) -> object:
    return _request(server, "GET", "/v0/health")[1].get("leader", "")


def _missing_segments(server: Server) -> object:
    replica = _request(server, "GET", "/v0/metrics")[1].get("replica")
    return replica.get("missing_segments") if isinstance(replica, dict) else None


# --- followers -----------------------------------------------------------------------------------------------------


def _lags(base: Path, effort: Effort, store: Store) -> Iterator[Row]:
    """From the answer to a write until a follower shows it: with nothing else to do, and while the leader takes all
    writes that it can."""
    store.proxy.delay(TAKEOVER_DELAY_MS)
    url = _new_url()
    with _server(base, store, url) as leader, ExitStack() as stack:
        _create(leader, "probe", "disk")
        _create(leader, "log", "disk")
        data = base / f"data{next(_numbers)}"
        follower = stack.enter_context(serving(data, environment=store.environment, follow=url))
        yield from _lag_rows("nothing else to do", leader, follower, effort)
        stop = threading.Event()
        loaders = [threading.Thread(target=_load, args=(leader, stop)) for _ in range(LOADERS)]
        before, began = _head(leader, "log"), time.perf_counter()
        for loader in loaders:
            loader.start()
        try:
            rows = list(_lag_rows("full write load", leader, follower, effort))
            rate = (_head(leader, "log") - before) / (time.perf_counter() - began)
        finally:
            stop.set()
            for loader in loaders:
                loader.join()
        yield from rows
        yield single(GROUP, "the write load of the follower's lag", "records/s", rate)
    store.proxy.delay(0)


def _lag_rows(what: str, leader: Server, follower: Server, effort: Effort) -> Iterator[Row]:
    lags = []
    for _ in range(max(LAG_PROBES // effort.divisor, 5)):
        status, answer = _request(leader, "POST", "/v0/topics/probe", write_body(payloads(SIZE)[:1]))
        began = time.perf_counter()
        assert status == 200, answer
        status, answer = _request(follower, "GET", f"/v0/topics/probe?min_seq={answer['last_seq']}")
        assert status == 200, answer
        lags.append((time.perf_counter() - began) * 1000)
    cuts = quantiles(lags, n=100, method="inclusive")
    for part, value in (("p50", cuts[49]), ("p99", cuts[98])):
        yield single(GROUP, f"a follower shows a record, {what}, {part}", "ms", value)


def _load(leader: Server, stop: threading.Event) -> None:
    body = write_body(payloads(SIZE)[:BATCH])
    with leader.connect() as connection:
        while not stop.is_set():
            # Under pressure the server asks clients to wait.
            connection.request("POST", "/v0/topics/log", body)


def _head(server: Server, log: str) -> int:
    head = _request(server, "GET", f"/v0/topics/{log}")[1]["head_seq"]
    assert isinstance(head, int)
    return head


# --- requests ------------------------------------------------------------------------------------------------------


def _requests(base: Path, effort: Effort, store: Store) -> Iterator[Row]:
    """The requests to the store, counted for some time and calculated for an hour."""
    seconds = effort.turn * COUNTED_TURNS

    def counted(action: Callable[[], object]) -> list[tuple[str, float]]:
        before, began = store.proxy.counts(), time.perf_counter()
        action()
        took = time.perf_counter() - began
        found = store.proxy.counts() - before
        return [(method, found[method] / took * HOUR) for method in ("PUT", "GET")]

    def rows(what: str, action: Callable[[], object]) -> Iterator[Row]:
        for method, rate in counted(action):
            yield Row(
                group=GROUP,
                name=f"requests per hour, {what}: {method}",
                unit="requests/h",
                result=Figure(rate, rate, rate),
                rounds=1,
            )

    url = _new_url()
    with _server(base, store, url) as server:
        _create(server, "log", "replicated")
        time.sleep(QUIET_SECONDS)
        yield from rows("idle", lambda: time.sleep(seconds))
        yield from rows(f"{RATE} writes per second", lambda: _write_at_rate(server, seconds))
        with _server(base, store, url, ready=False, standby=True) as standby:
            _wait(lambda: _leader(standby) != "")
            yield from rows("idle, with a standby", lambda: time.sleep(seconds))
        with serving(base / f"data{next(_numbers)}", environment=store.environment, follow=url):
            time.sleep(QUIET_SECONDS)
            yield from rows("idle, with a follower", lambda: time.sleep(seconds))
    with _server(base, store, _new_url(), replica_lease_ms=LEASE_MS):
        time.sleep(QUIET_SECONDS)
        # A whole number of signs of life.
        beat = LEASE_MS / 3000
        yield from rows(
            f"idle, with a lease of {LEASE_MS // 1000} s", lambda: time.sleep(max(round(seconds / beat), 1) * beat)
        )


def _write_at_rate(server: Server, seconds: float) -> None:
    """The writes are acknowledged later: they go out at their times."""
    with ExitStack() as stack:
        lines = [stack.enter_context(server.connect()) for _ in range(RATE)]
        began = time.perf_counter()
        body = request_bytes("POST", "/v0/topics/log", write_body(payloads(SIZE)[:1]))
        for number in range(max(int(seconds * RATE), 1)):
            line = lines[number % RATE]
            if number >= RATE:
                line.receive()
            time.sleep(max(began + number / RATE - time.perf_counter(), 0))
            line.send(body)
        for line in lines[: max(int(seconds * RATE), 1)]:
            line.receive()
