"""Measuring: every figure beside its floor, in the same run, in rounds that take turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import Literal, NamedTuple

import msgspec

#: ``s`` and ``MB`` are costs: less is better. Of everything else, more is.
Unit = Literal[
    "records/s",
    "calls/s",
    "jobs/s",
    "deliveries/s",
    "MB/s",
    "connections",
    "s",
    "ms",
    "µs",
    "MB",
    "bytes",
    "frames",
    "%",
]
COSTS = ("s", "ms", "µs", "MB", "bytes", "frames", "%")


class Effort(msgspec.Struct, frozen=True):
    """How much to measure: a full run, or one that only shows that everything works."""

    rounds: int
    #: Seconds that one turn of a time-bound piece of work takes.
    turn: float
    #: What fixed amounts of work (records, logs) are divided by.
    divisor: int

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
    """What the ratio to a peer should be: at least so much of its rate, or at most so much of its cost."""

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
    #: How many times the floor's cost this costs, round by round; 1.0 would be as cheap as the floor.
    times_floor: Figure | None = None
    target: Target | None = None
    #: Another program that does the same: what it is, its figure, and this one's as a multiple of it, round by round.
    peer_is: str = ""
    peer: Figure | None = None
    times_peer: Figure | None = None
    aim: Aim | None = None
    #: The picture that shows it, if one does, and the length of the history where that changes from row to row.
    chart: str = ""
    at: int | None = None


class Sample(NamedTuple):
    """What one turn did, and how long that took (without its preparations)."""

    amount: float
    seconds: float


Work = Callable[[], Sample]


class Rounds(NamedTuple):
    """Samples of the work and of its floor, pair by pair."""

    work: list[Sample]
    floor: list[Sample]

    def row(
        self, group: str, name: str, unit: Unit, floor_is: str, *, scale: float = 1.0, target: Target | None = None
    ) -> Row:
        """One figure of these samples; ``scale`` turns their amount into the unit's."""
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
        """The same when the other side is no floor but a peer: the ratio is of the figures, whatever they are."""
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
    """The work and its floor take turns; who begins changes from round to round."""
    done = Rounds([], [])
    for number in range(rounds):
        turns = [(work, done.work), (floor, done.floor)]
        for turn, samples in turns if number % 2 == 0 else reversed(turns):
            samples.append(turn())
    return done


def alone(group: str, name: str, unit: Unit, values: Sequence[float]) -> Row:
    """A figure of several rounds that has nothing beside it."""
    return Row(group=group, name=name, unit=unit, result=Figure.of(values), rounds=len(values))


def single(group: str, name: str, unit: Unit, value: float, *, target: Target | None = None) -> Row:
    """A figure that is measured once and has no floor."""
    return Row(group=group, name=name, unit=unit, result=Figure(value, value, value), rounds=1, target=target)


def beside(
    group: str, name: str, unit: Unit, value: float, floor: float, floor_is: str, *, target: Target | None = None
) -> Row:
    """A cost that is measured once, beside a floor that is measured once."""
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
    """Do it over and over until the time is up, at most ``limit`` times."""
    clock = time.perf_counter
    start = now = clock()
    times = 0
    while now - start < seconds and times < limit:
        action()
        times += 1
        now = clock()
    return Sample(amount * times, now - start)


def through(action: Callable[[int], object], arguments: Iterator[int], amount: float, seconds: float) -> Sample:
    """Do it with one argument after the other until the time is up or there are no more."""
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
