"""Delivery to watchers, to workers and to other topics, and the cost of idle connections."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean, median, pstdev
from typing import Any, Literal, TypeVar

import msgspec

from bench.measure import Effort, Figure, Row, alone, beside, single
from bench.topics_load import Collected, Worked, raise_file_limit
from bench.topics_server import Server, send_all, serving, write_body
from bench.workload import directory, payloads
from strandline.engine.process import child_environment

T = TypeVar("T")

GROUP = "topics-delivery"
PAYLOAD = 150
NUMBERS = (1, 10, 100, 1000)
WORKERS = 50
AT_A_TIME = 8
IDLE = 10_000
WRITERS = 8

#: By number of watchers: records for the delays, the seconds between two of them (so that each arrives everywhere
#: before the next one), and records for the rate, written as fast as possible.
PACE = {1: (200, 0.005, 20_000), 10: (200, 0.005, 10_000), 100: (100, 0.01, 3000), 1000: (40, 0.1, 500)}

KINDS: dict[Literal["sse", "ws"], str] = {"sse": "event stream", "ws": "WebSocket"}


def run(root: Path, effort: Effort) -> Iterator[Row]:
    quick = effort.divisor > 1
    raise_file_limit()
    with directory(root, "topics-delivery") as base:
        with serving(base / "watching") as server:
            for kind in KINDS:
                for watchers in (1, 10) if quick else NUMBERS:
                    yield from _fan_out(server, effort, kind, watchers)
        with serving(base / "working") as server:
            yield from _queue(server, effort)
        with serving(base / "routing") as server:
            for destinations in (1, 10) if quick else NUMBERS:
                yield from _routers(server, effort, destinations)
        with serving(base / "idle", max_sse_connections=0, max_watch_sessions=0) as server:
            yield from _idle(server, effort)


# --- clients in a process of their own -----------------------------------------------------------------------------


class Clients:
    """The process with the clients, and the connection to it."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()

    def heard(self, type: type[T]) -> T:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the clients ended early")
        return msgspec.json.decode(line, type=type)


@contextmanager
def clients(
    what: str, server: Server, topic: str, *numbers: int, program: str = "bench.topics_load"
) -> Iterator[Clients]:
    command = [sys.executable, "-m", program, what, str(server.port), topic, *map(str, numbers)]
    with subprocess.Popen(command, env=child_environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield Clients(process)
        finally:
            process.kill()


def _warn_if_busy(what: str, busy: float) -> None:
    if busy > 0.9:
        print(
            f"topics-delivery: {what}: the clients used {busy:.0%} of a processor and may be the limit", file=sys.stderr
        )


# --- watching ------------------------------------------------------------------------------------------------------


def _fan_out(server: Server, effort: Effort, kind: Literal["sse", "ws"], watchers: int) -> Iterator[Row]:
    topic = f"{kind}-{watchers}"
    paced, pause, flood = PACE[watchers]
    paced, flood = effort.scaled(paced, 5), effort.scaled(flood, 50)
    with server.connect() as connection:
        connection.call("PUT", f"/v0/topics/{topic}", {})
    with clients(kind, server, topic, watchers) as readers:
        readers.heard(dict[str, Any])
        slow = _collect(readers, paced, lambda: _write_slowly(server, topic, paced, pause))
        fast = _collect(readers, flood, lambda: _write_fast(server, topic, flood))
    what = f"{watchers:,} {KINDS[kind]}{'s' if watchers > 1 else ''}"
    for collected, wanted in ((slow, paced), (fast, flood)):
        if collected.records != wanted * watchers:
            raise RuntimeError(f"{what}: {collected.records} deliveries instead of {wanted * watchers}")
        _warn_if_busy(what, collected.busy)
    yield single(GROUP, f"{what}: from write to delivery, p50", "ms", slow.p50_ms)
    yield single(GROUP, f"{what}: from write to delivery, p99", "ms", slow.p99_ms)
    yield single(GROUP, f"{what}: as fast as {WRITERS} writers write", "deliveries/s", fast.records / fast.seconds)


def _collect(readers: Clients, records: int, write: Any) -> Collected:
    readers.tell(str(records))
    readers.heard(dict[str, Any])
    write()
    return readers.heard(Collected)


def _stamped() -> bytes:
    """A record with the time it was written. All processes of the machine have the same clock."""
    start = b'{"t":%.9f,"pad":"' % time.perf_counter()
    return start + b"x" * (PAYLOAD - len(start) - 2) + b'"}'


def _write_slowly(server: Server, topic: str, records: int, pause: float) -> None:
    path = f"/v0/topics/{topic}?return_seqs=false"
    with server.connect() as connection:
        for _ in range(records):
            connection.call("POST", path, write_body([_stamped()]))
            time.sleep(pause)


def _write_fast(server: Server, topic: str, records: int) -> None:
    path = f"/v0/topics/{topic}?return_seqs=false"
    send_all(server, (("POST", path, write_body([_stamped()])) for _ in range(records)), WRITERS)


# --- working -------------------------------------------------------------------------------------------------------


def _queue(server: Server, effort: Effort) -> Iterator[Row]:
    jobs = effort.scaled(50_000, 1000)
    rates, variations = [], []
    for number in range(effort.rounds if effort.divisor > 1 else 3):
        topic = f"queue-{number}"
        with server.connect() as connection:
            connection.call("PUT", f"/v0/topics/{topic}", {"type": "queue"})
            for _ in range(jobs // 1000):
                connection.call("POST", f"/v0/topics/{topic}", write_body(payloads(PAYLOAD)[:1000]))
        with clients("work", server, topic, WORKERS, AT_A_TIME) as workers:
            worked = workers.heard(Worked)
        done = sum(worked.jobs)
        if done != jobs // 1000 * 1000:
            raise RuntimeError(f"{done} jobs were done, {jobs} were there")
        _warn_if_busy("queue", worked.busy)
        if worked.refused:
            print(
                f"topics-delivery: queue: {worked.refused} requests were refused because the server was busy",
                file=sys.stderr,
            )
        rates.append(done / worked.seconds)
        variations.append(pstdev(worked.jobs) / fmean(worked.jobs) * 100)
    what = f"queue, {WORKERS} workers, {AT_A_TIME} jobs at a time"
    yield alone(GROUP, f"{what}: claimed and acked", "jobs/s", rates)
    yield alone(GROUP, f"{what}: variation coefficient of the workers' shares", "%", variations)


# --- routing -------------------------------------------------------------------------------------------------------


def _routers(server: Server, effort: Effort, destinations: int) -> Iterator[Row]:
    source, prefix = f"source-{destinations}", f"router-{destinations}-"
    appends = effort.scaled(50, 3)
    with server.connect() as connection:
        connection.call("PUT", f"/v0/topics/{source}", {})
        send_all(
            server,
            (
                (
                    "PUT",
                    f"/v0/routers/{prefix}{number}",
                    msgspec.json.encode({"source": source, "dest": f"dest-{destinations}-{number}"}),
                )
                for number in range(destinations)
            ),
            WRITERS,
        )
        time.sleep(0.1)
        before = _frames(server)
        acked: list[float] = []
        arrived: list[float] = []
        body = write_body(payloads(PAYLOAD)[:1])
        for number in range(1, appends + 1):
            start = time.perf_counter()
            connection.call("POST", f"/v0/topics/{source}?return_seqs=false", body)
            acked.append((time.perf_counter() - start) * 1000)
            _wait_for_copies(server, prefix, destinations, number, start)
            arrived.append((time.perf_counter() - start) * 1000)
        after = _frames(server)
    what = f"fan-out to {destinations:,} topics" if destinations > 1 else "fan-out to 1 topic"
    yield _spread_of(f"{what}: acknowledged by the source", acked)
    yield _spread_of(f"{what}: in all destinations", arrived)
    if before is None or after is None:
        print("topics-delivery: /v0/metrics does not have the frames of the journal", file=sys.stderr)
    else:
        yield single(GROUP, f"{what}: journal frames per append", "frames", (after - before) / appends)


def _wait_for_copies(server: Server, prefix: str, destinations: int, number: int, start: float) -> None:
    """A list does not make routers catch up, so polling costs time but does not change the result."""
    wanted = b'"forwarded_total":%d}' % number
    with server.connect() as connection:
        while (
            connection.request("GET", f"/v0/routers?prefix={prefix}&page_size=1000").body.count(wanted) < destinations
        ):
            if time.perf_counter() - start > 30:
                raise RuntimeError("copies did not arrive within 30 s")


def _frames(server: Server) -> int | None:
    with server.connect() as connection:
        answer = connection.request("GET", "/v0/metrics", accept="application/json")
    try:
        return int(answer.json()["wal"]["frames"])
    except (msgspec.DecodeError, KeyError):
        return None


def _spread_of(name: str, values: list[float]) -> Row:
    return Row(
        group=GROUP,
        name=name,
        unit="ms",
        result=Figure(median(values), min(values), max(values)),
        rounds=len(values),
    )


# --- idle ----------------------------------------------------------------------------------------------------------


def _idle(server: Server, effort: Effort) -> Iterator[Row]:
    wanted = effort.scaled(IDLE, 200)
    with server.connect() as connection:
        connection.call("PUT", "/v0/topics/quiet", {})
    # The first stream also allocates the memory that all streams share.
    with clients("idle", server, "quiet", 1) as first:
        first.heard(dict[str, int])
        before = server.resident_bytes()
    with clients("idle", server, "quiet", wanted) as many:
        count = many.heard(dict[str, int])["open"]
        after = server.resident_bytes()
    if count < wanted:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        print(f"topics-delivery: {count} of {wanted} idle streams, with at most {limit} open files", file=sys.stderr)
    what = f"{count:,} idle event streams"
    floor = "the same server with one"
    yield beside(GROUP, f"{what}: memory of the server", "MB", after / 1e6, before / 1e6, floor)
    yield single(GROUP, f"{what}: memory for each", "bytes", (after - before) / max(count, 1))
