"""Appends with each durability: by many clients, by one, and in batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle, repeat

from bench.measure import Row, Sample, Work
from bench.peers_line import drive, one_by_one
from bench.peers_rows import Family, What, always, compared
from bench.peers_sides import BATCH, CLIENTS, PAYLOAD, Durability, Side, Workload
from bench.workload import payloads

DURABILITIES: tuple[Durability, ...] = ("memory", "disk", "fsync")
#: Load generators accept only whole seconds.
SINGLES_SECONDS = 1.0
#: Seconds of a turn whose requests this process sends.
ONE_SECONDS, BATCHES_SECONDS = 0.2, 0.4
#: Numbers of clients that send batches. The first turn determines which one is best for the side.
WRITERS = (1, 2, 4)


def run(family: Family) -> Iterator[Row]:
    chart = "appends" if family.ours.face == "topics" else "same-protocol"
    kinds: tuple[tuple[Workload, What, Callable[[Durability, Side], Work]], ...] = (
        ("singles", What(f"single appends, {CLIENTS} clients", "records/s", chart), _singles),
        ("one", What("single appends, 1 client", "µs", chart), _one),
        ("batches", What(f"batches of {BATCH}", "records/s", chart), _batches),
    )
    for workload, what, work in kinds:
        for durability in DURABILITIES:
            sides = family.doing(workload, durability)
            rounds = family.effort.rounds
            named = what._replace(name=f"{what.name}, {durability}{family.suffix}")
            yield from compared(named, sides, always(durability), partial(work, durability), rounds)


def _singles(durability: Durability, side: Side) -> Work:
    """Each turn appends to a new log."""

    def turn() -> Sample:
        log = side.create(durability)
        sample = side.singles(log, payloads(PAYLOAD)[0], SINGLES_SECONDS)
        side.drop(log)
        return sample

    return turn


def _one(durability: Durability, side: Side) -> Work:
    """The time of one append on one connection."""

    def turn() -> Sample:
        log = side.create(durability)
        request = side.append(log, payloads(PAYLOAD)[:1])
        with side.connect(log) as line:
            sample = one_by_one(line, repeat(request), ONE_SECONDS)
        side.drop(log)
        return Sample(1, sample.seconds / sample.amount)

    return turn


def _batches(durability: Durability, side: Side) -> Work:
    data = payloads(PAYLOAD)
    parts = [data[at : at + BATCH] for at in range(0, len(data), BATCH)]
    best = 0

    def with_writers(writers: int) -> Sample:
        log = side.create(durability)
        requests = cycle([side.append(log, part) for part in parts])
        sample = drive(lambda: side.connect(log), writers, requests, BATCHES_SECONDS)
        side.drop(log)
        return sample

    def turn() -> Sample:
        nonlocal best
        if not best:
            best = max(WRITERS, key=lambda writers: rate(with_writers(writers)))
        return with_writers(best)

    return turn


def rate(sample: Sample) -> float:
    return sample.amount / sample.seconds
