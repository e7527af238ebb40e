"""Several sides do the same in turns, and every peer makes a row beside this server."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from subprocess import SubprocessError
from typing import NamedTuple, Protocol, TypeVar

import msgspec

from bench.measure import Effort, Rounds, Row, Sample, Unit, Work
from bench.peers_sides import Durability, Side, Workload
from bench.streams_load import Refused

GROUP = "peers"

T = TypeVar("T")


class Family(NamedTuple):
    """This server and its peers in one protocol, all of them running."""

    effort: Effort
    ours: Side
    peers: Sequence[Side]
    #: Behind the names of its rows.
    suffix: str = ""

    def doing(self, workload: Workload, durability: Durability) -> list[Side]:
        """Ours and the peers that do this in this class, or none if that leaves ours alone. Who does not is told."""
        if workload not in self.ours.does or durability not in self.ours.classes:
            return []
        able = [side for side in self.peers if workload in side.does]
        for side in able:
            if durability not in side.classes:
                tell(f"{workload}, {durability}: without {side.name}, which has no such class as it is installed here")
        able = [side for side in able if durability in side.classes]
        return [self.ours, *able] if able else []


class What(NamedTuple):
    """What a row is about."""

    name: str
    unit: Unit
    #: Which picture shows it.
    chart: str
    #: The length of the history, where that is what changes from row to row.
    at: int | None = None


def tell(line: str) -> None:
    print(f"{GROUP}: {line}", file=sys.stderr)


class Contestant(Protocol):
    """Something with a name that can be configured in several ways."""

    name: str

    @property
    def classes(self) -> Mapping[Durability, str]: ...


C = TypeVar("C", bound=Contestant)


def compared(
    what: What, sides: Sequence[C], durability: Callable[[C], Durability], work: Callable[[C], Work], rounds: int
) -> Iterator[Row]:
    """Everybody does it once to warm up and then once in each round; who begins changes from round to round.

    Whoever fails is left out from then on, and that is told; without ours there is nothing to compare.
    """
    works = {side.name: made for side in sides if (made := _attempted(what, side.name, partial(work, side)))}
    samples: dict[str, list[Sample]] = {name: [] for name in works}
    # A run that only shows that everything works needs no warming up.
    for number in range(rounds if rounds == 1 else rounds + 1):
        for name in _rotated(list(works), number):
            sample = _attempted(what, name, works[name])
            if sample is None:
                del works[name]
            else:
                samples[name].append(sample)
    if not sides or sides[0].name not in works:
        return
    ours, *peers = sides
    measured = slice(-rounds, None)
    for side in peers:
        if side.name in works:
            pair = Rounds(samples[ours.name][measured], samples[side.name][measured])
            row = pair.beside_peer(GROUP, what.name, what.unit, f"{side.name}, {side.classes[durability(side)]}")
            yield msgspec.structs.replace(row, chart=what.chart, at=what.at)


def always(durability: Durability) -> Callable[[Contestant], Durability]:
    """The same class for everybody."""
    return lambda _: durability


def _rotated(names: list[str], number: int) -> list[str]:
    at = number % max(len(names), 1)
    return names[at:] + names[:at]


def _attempted(what: What, name: str, action: Callable[[], T]) -> T | None:
    try:
        return action()
    except (OSError, RuntimeError, SubprocessError, Refused) as error:
        tell(f"{what.name}: without {name}: {error}")
        return None
