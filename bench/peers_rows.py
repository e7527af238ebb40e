"""Several sides do the same work in turns, and each peer gets a row."""

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
    #: The suffix of the names of its rows.
    suffix: str = ""

    def doing(self, workload: Workload, durability: Durability) -> list[Side]:
        """Our side and the peers that have this durability, or none without such a peer. The others are printed."""
        if workload not in self.ours.does or durability not in self.ours.classes:
            return []
        able = [side for side in self.peers if workload in side.does]
        for side in able:
            if durability not in side.classes:
                tell(f"{workload}, {durability}: without {side.name}, which does not have this durability here")
        able = [side for side in able if durability in side.classes]
        return [self.ours, *able] if able else []


class What(NamedTuple):
    """The subject of a row."""

    name: str
    unit: Unit
    #: The picture that shows it.
    chart: str
    #: The length of the history, if it differs between rows.
    at: int | None = None


def tell(line: str) -> None:
    print(f"{GROUP}: {line}", file=sys.stderr)


class Contestant(Protocol):
    """A side with a name and one or more durabilities."""

    name: str

    @property
    def classes(self) -> Mapping[Durability, str]: ...


C = TypeVar("C", bound=Contestant)


def compared(
    what: What, sides: Sequence[C], durability: Callable[[C], Durability], work: Callable[[C], Work], rounds: int
) -> Iterator[Row]:
    """Each side works once to warm up and then once in each round. The order changes from round to round.

    A side that fails is skipped from then on, with a message. If our side fails, there are no rows.
    """
    works = {side.name: made for side in sides if (made := _attempted(what, side.name, partial(work, side)))}
    samples: dict[str, list[Sample]] = {name: [] for name in works}
    # A quick run needs no warm-up.
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
    """The same durability for all sides."""
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
