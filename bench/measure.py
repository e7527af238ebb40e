"""Measurements: each figure next to its floor, from the same run, in rounds of turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import Literal, NamedTuple

import msgspec

#: For the units in ``COSTS``, less is better. For all others, more is better.
Unit = Literal[
    "records",
    "records/s",
    "calls/s",
    "jobs/s",
    "deliveries/s",
    "MB/s",
    "connections",
    "requests/h",
    "s",
    "ms",
    "µs",
    "MB",
    "bytes",
    "frames",
    "%",
]
COSTS = ("records", "requests/h", "s", "ms", "µs", "MB", "bytes", "frames", "%")


class Effort(msgspec.Struct, frozen=True):
    """How much to measure: a full run, or one that only checks that every benchmark works."""

    rounds: int
    #: Seconds of one turn, for work that is limited by time.
    turn: float
    #: The divisor of fixed amounts of work (records, logs).
    divisor: int
    #: The number of documents of the group "search".
    documents: int = 500_000
    #: The records of the largest takeover of the group "replica".
    takeover_records: int = 1_000_000

    def scaled(self, amount: int, least: int = 1) -> int:
        return max(amount // self.divisor, least)


FULL = Effort(rounds=5, turn=0.15, divisor=1)
QUICK = Effort(rounds=1, turn=0.01, divisor=50)


class Figure(msgspec.Struct, frozen=True):
    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Figure:
        return cls(median(values), min(values), max(values))


class Target(msgspec.Struct, frozen=True):
    limit: float
    unit: Unit

    def met_by(self, value: float) -> bool:
        return value <= self.limit if self.unit in COSTS else value >= self.limit


class Aim(msgspec.Struct, frozen=True):
    """The target for the ratio to a peer: a minimum for rates, a maximum for costs."""

    limit: float
    unit: Unit

    def met_by(self, ratio: float) -> bool:
        return ratio <= self.limit if self.unit in COSTS else ratio >= self.limit


class Row(msgspec.Struct, frozen=True, kw_only=True):
    group: str
    name: str
    unit: Unit
    result: Figure
    rounds: int
    floor: Figure | None = None
    floor_is: str = ""
    #: The cost as a multiple of the floor's cost, round by round. 1.0 is as cheap as the floor.
    times_floor: Figure | None = None
    target: Target | None = None
    #: The name of a peer that does the same work, its figure, and ours as a multiple of it, round by round.
    peer_is: str = ""
    peer: Figure | None = None
    times_peer: Figure | None = None
    aim: Aim | None = None
    #: The picture that shows this row, if any, and the length of the history if it differs between rows.
    chart: str = ""
    at: int | None = None


class Sample(NamedTuple):
    """The amount of work of one turn, and its duration without preparations."""

    amount: float
    seconds: float


Work = Callable[[], Sample]


class Rounds(NamedTuple):
    """Samples of the work and of its floor, in pairs."""

    work: list[Sample]
    floor: list[Sample]

    def row(
        self, group: str, name: str, unit: Unit, floor_is: str, *, scale: float = 1.0, target: Target | None = None
    ) -> Row:
        """The row of these samples. ``scale`` converts their amount to the unit."""
        work = [_figure(sample, unit, scale) for sample in self.work]
        floor = [_figure(sample, unit, scale) for sample in self.floor]
        pairs = zip(work, floor, strict=True)
        times = [mine / plain if unit in COSTS else plain / mine for mine, plain in pairs]
        return Row(
            group=group,
            name=name,
            unit=unit,
            result=Figure.of(work),
            rounds=len(work),
            floor=Figure.of(floor),
            floor_is=floor_is,
            times_floor=Figure.of(times),
            target=target,
        )

    def beside_peer(self, group: str, name: str, unit: Unit, peer_is: str, aim: float | None = None) -> Row:
        """The row of these samples if the other side is a peer. The ratio is ours to theirs, for rates and costs."""
        work = [_figure(sample, unit, 1.0) for sample in self.work]
        peer = [_figure(sample, unit, 1.0) for sample in self.floor]
        return Row(
            group=group,
            name=name,
            unit=unit,
            result=Figure.of(work),
            rounds=len(work),
            peer_is=peer_is,
            peer=Figure.of(peer),
            times_peer=Figure.of([mine / other for mine, other in zip(work, peer, strict=True)]),
            aim=None if aim is None else Aim(aim, unit),
        )


def _figure(sample: Sample, unit: Unit, scale: float) -> float:
    if unit == "s":
        return sample.seconds
    if unit == "ms":
        return sample.seconds * 1000
    if unit == "µs":
        return sample.seconds * 1e6
    return sample.amount * scale / sample.seconds


def in_rounds(work: Work, floor: Work, rounds: int) -> Rounds:
    """The work and its floor take turns, and the order changes from round to round."""
    done = Rounds([], [])
    for number in range(rounds):
        turns = [(work, done.work), (floor, done.floor)]
        for turn, samples in turns if number % 2 == 0 else reversed(turns):
            samples.append(turn())
    return done


def alone(group: str, name: str, unit: Unit, values: Sequence[float]) -> Row:
    """A figure of several rounds, without a floor or a peer."""
    return Row(group=group, name=name, unit=unit, result=Figure.of(values), rounds=len(values))


def single(group: str, name: str, unit: Unit, value: float, *, target: Target | None = None) -> Row:
    """A figure that is measured once, without a floor."""
    return Row(group=group, name=name, unit=unit, result=Figure(value, value, value), rounds=1, target=target)


def beside(
    group: str, name: str, unit: Unit, value: float, floor: float, floor_is: str, *, target: Target | None = None
) -> Row:
    """A cost and its floor, each measured once."""
    return Row(
        group=group,
        name=name,
        unit=unit,
        result=Figure(value, value, value),
        rounds=1,
        floor=Figure(floor, floor, floor),
        floor_is=floor_is,
        times_floor=Figure.of([value / floor]) if floor > 0 else None,
        target=target,
    )


def timed(amount: float, action: Callable[[], object]) -> Sample:
    start = time.perf_counter()
    action()
    return Sample(amount, time.perf_counter() - start)


def repeated(action: Callable[[], object], amount: float, seconds: float, limit: int) -> Sample:
    """Repeat the action until the time is up, at most ``limit`` times."""
    clock = time.perf_counter
    start = now = clock()
    times = 0
    while now - start < seconds and times < limit:
        action()
        times += 1
        now = clock()
    return Sample(amount * times, now - start)


def through(action: Callable[[int], object], arguments: Iterator[int], amount: float, seconds: float) -> Sample:
    """Call the action with each argument until the time is up or no arguments are left."""
    clock = time.perf_counter
    start = now = clock()
    times = 0
    for argument in arguments:
        action(argument)
        times += 1
        now = clock()
        if now - start >= seconds:
            break
    return Sample(amount * times, now - start)
