"""A long history: reading all of it, costs as it grows, and recovery after a kill."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count, repeat
from operator import attrgetter
from pathlib import Path

from bench.measure import Effort, Row, Sample, Work
from bench.peers_daemon import kill
from bench.peers_line import Request, one_by_one
from bench.peers_rows import Family, What, always, compared, tell
from bench.peers_sides import BATCH, PAYLOAD, Durability, Log, Peer, Side, fill
from bench.workload import directory, payloads

#: The records of a catch-up read; fewer if filling waits for the disk.
CATCH_UP: dict[Durability, int] = {"disk": 200_000, "fsync": 100_000}
#: The lengths of the histories whose costs are compared. Servers that fill slowly get a tenth.
SIZES = (10_000, 100_000, 1_000_000)
SMALLER_SIZES = tuple(size // 10 for size in SIZES)
#: The records of a page in the middle of a history.
PAGE = 100
TURN_SECONDS = 0.2
#: The records that a server holds when it is killed.
KILLED_WITH = 500_000
#: Rounds of measurements whose turns take seconds.
FEW_ROUNDS = 3


# --- reading all of it ---------------------------------------------------------------------------------------------


def catching_up(family: Family) -> Iterator[Row]:
    durability = relaxed(family)
    records = family.effort.scaled(CATCH_UP[durability], 10 * BATCH) // BATCH * BATCH
    what = What(f"catch-up read of {records:,} records{family.suffix}", "records/s", "work")
    sides, work = family.doing("catch-up", durability), partial(_catching_up, durability, records)
    yield from compared(what, sides, always(durability), work, min(family.effort.rounds, FEW_ROUNDS))


def _catching_up(durability: Durability, records: int, side: Side) -> Work:
    log = _filled(side, durability, records)
    return lambda: side.catch_up(log, records)


# --- as it grows ---------------------------------------------------------------------------------------------------


def growth(family: Family) -> Iterator[Row]:
    durability, rounds = relaxed(family), family.effort.rounds
    sides = family.doing("growth", durability)
    paging = family.doing("pages", durability)
    for size in SIZES if paging else SMALLER_SIZES:
        history = History(durability, family.effort.scaled(size, BATCH) // BATCH * BATCH)
        length = f"{history.size:,} records{family.suffix}"
        # Appends make logs longer, so they come last.
        what = What(f"page of {PAGE} in the middle of {length}", "µs", "growth-pages", history.size)
        yield from compared(what, paging, always(durability), history.paging, rounds)
        what = What(f"one append to {length}", "µs", f"growth-{family.ours.face}", history.size)
        yield from compared(what, sides, always(durability), history.appending, rounds)
        history.drop(sides)


class History:
    """A log of this length on every side, filled on first use."""

    def __init__(self, durability: Durability, size: int) -> None:
        self.size = size
        self._durability = durability
        self._logs: dict[str, Log] = {}

    def _log(self, side: Side) -> Log:
        if side.name not in self._logs:
            self._logs[side.name] = _filled(side, self._durability, self.size)
        return self._logs[side.name]

    def paging(self, side: Side) -> Work:
        log = self._log(side)
        # A slightly different page each time.
        places = (side.page(log, self.size // 2 - number % PAGE, PAGE) for number in count())
        return partial(_cost, side, log, places)

    def appending(self, side: Side) -> Work:
        log = self._log(side)
        return partial(_cost, side, log, repeat(side.append(log, payloads(PAYLOAD)[:1])))

    def drop(self, sides: Sequence[Side]) -> None:
        for side in sides:
            if side.name in self._logs:
                side.drop(self._logs[side.name])


def _cost(side: Side, log: Log, requests: Iterator[Request]) -> Sample:
    """The time of one of them."""
    with side.connect(log) as line:
        sample = one_by_one(line, requests, TURN_SECONDS)
    return Sample(1, sample.seconds / sample.amount)


def relaxed(family: Family) -> Durability:
    """The durability that does not wait for the disk, if the protocol has it."""
    return "disk" if "disk" in family.ours.classes else "fsync"


def _filled(side: Side, durability: Durability, records: int) -> Log:
    log = side.create(durability)
    fill(side, log, records)
    return log


# --- after a kill --------------------------------------------------------------------------------------------------


def recovery(root: Path, effort: Effort, peers: Sequence[Peer]) -> Iterator[Row]:
    """The first side is ours."""
    records = effort.scaled(KILLED_WITH, BATCH) // BATCH * BATCH
    what = What(f"back after kill -9 with {records:,} records", "s", "work")
    with directory(root, "killed") as base:
        killed = list(_killed(base, peers, records))
        work: Callable[[Killed], Work] = attrgetter("turn")
        yield from compared(what, killed, attrgetter("durability"), work, min(effort.rounds, FEW_ROUNDS))


def _killed(base: Path, peers: Sequence[Peer], records: int) -> Iterator[Killed]:
    for number, peer in enumerate(peers):
        try:
            yield Killed(peer, base / f"side{number}", records)
        except (OSError, RuntimeError) as error:
            # Without our side there is nothing to compare.
            if not number:
                raise
            tell(f"recovery: without {peer.name}: {error}")


class Killed:
    """A side that is killed after every turn. A turn lasts from its start until it has returned its last record."""

    def __init__(self, peer: Peer, place: Path, records: int) -> None:
        self.name = peer.name
        self._peer = peer
        self._place = place
        self._records = records
        with peer.start(place, ("disk", "fsync")) as side:
            self.classes = side.classes
            #: The strongest durability that it has. With another one, a kill may remove the last records.
            self.durability: Durability = "fsync" if "fsync" in side.classes else "disk"
            self._log = _filled(side, self.durability, records)
            kill(side.pid(self.durability))

    def turn(self) -> Sample:
        data = payloads(PAYLOAD)
        last = data[(self._records - 1) % len(data)]
        began = time.perf_counter()
        with self._peer.start(self._place, (self.durability,)) as side:
            with side.connect(self._log) as line:
                answer = line.ask(side.page(self._log, self._records - 1, 1))
            seconds = time.perf_counter() - began
            if last not in answer:
                raise RuntimeError("its last record is lost")
            kill(side.pid(self.durability))
        return Sample(1, seconds)
