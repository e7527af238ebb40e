"""Delivery of records: from one writer to many live readers, and from a queue to many workers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Any

from bench.measure import Row, Sample, Work
from bench.peers_history import relaxed
from bench.peers_rows import Family, What, always, compared, tell
from bench.peers_sides import BATCH, PAYLOAD, Durability, Log, Side, fill
from bench.topics_delivery import clients
from bench.topics_load import Collected, Worked
from bench.topics_server import Server

READERS = 100
#: By protocol: records, and the seconds between two of them. Each should arrive everywhere before the next one.
PACED = 10
PAUSE = {"topics": 0.05, "streams": 0.2}
JOBS, WORKERS, AT_A_TIME = 20_000, 50, 8
#: Rounds of measurements whose turns take seconds.
FEW_ROUNDS = 3


def fan_out(family: Family) -> Iterator[Row]:
    durability, records = relaxed(family), family.effort.scaled(PACED, 5)
    sides, rounds = family.doing("fan-out", durability), min(family.effort.rounds, FEW_ROUNDS)
    what = What(f"from append to {READERS} live readers, p50{family.suffix}", "ms", "work")
    work = partial(_fan_out, durability, records, PAUSE.get(family.ours.face, 0.0))
    yield from compared(what, sides, always(durability), work, rounds)


def _fan_out(durability: Durability, records: int, pause: float, side: Side) -> Work:
    def turn() -> Sample:
        log = side.create(durability)
        with clients(side.face, _server(side, log), log.name, READERS, program="bench.peers_watch") as readers:
            readers.heard(dict[str, Any])
            readers.tell(str(records))
            readers.heard(dict[str, Any])
            with side.connect(log) as line:
                for _ in range(records):
                    line.ask(side.announce(log, stamped()))
                    time.sleep(pause)
            got = readers.heard(Collected)
        side.drop(log)
        if got.records != records * READERS:
            raise RuntimeError(f"{got.records} deliveries instead of {records * READERS}")
        return Sample(1, got.p50_ms / 1000)

    return turn


def stamped() -> bytes:
    """A record with the time it was written. All processes of the machine have the same clock."""
    # The last digit is never 0, because a server that formats the number again would omit it.
    start = b'{"t":%.6f1,"pad":"' % time.perf_counter()
    return start + b"x" * (PAYLOAD - len(start) - 2) + b'"}'


def queue(family: Family) -> Iterator[Row]:
    durability, jobs = relaxed(family), family.effort.scaled(JOBS, 2 * BATCH) // BATCH * BATCH
    what = What(f"queue, {WORKERS} workers, {AT_A_TIME} jobs at a time", "jobs/s", "work")
    sides, rounds = family.doing("queue", durability), min(family.effort.rounds, FEW_ROUNDS)
    yield from compared(what, sides, always(durability), partial(_queue, durability, jobs), rounds)


def _queue(durability: Durability, jobs: int, side: Side) -> Work:
    def turn() -> Sample:
        log = side.create(durability, queue=True)
        fill(side, log, jobs)
        server = _server(side, log)
        with clients(side.face, server, log.name, WORKERS, AT_A_TIME, program="bench.peers_work") as workers:
            worked = workers.heard(Worked)
        side.drop(log)
        if sum(worked.jobs) != jobs:
            raise RuntimeError(f"{sum(worked.jobs)} jobs were done, {jobs} were there")
        if worked.busy > 0.9:
            tell(f"queue: {side.name}: the workers used {worked.busy:.0%} of a processor and may be the limit")
        return Sample(jobs, worked.seconds)

    return turn


def _server(side: Side, log: Log) -> Server:
    return Server(side.port(log), side.pid(log.durability))
