"""Collections next to the published servers of the protocol: the same requests, signed in advance, in turns.

With every append, the published servers rewrite the whole document, or its last chunk if there are chunks. They are
therefore measured with both, and with logs of several lengths.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import NamedTuple

from bench.collections_load import Load, Requests, ask, elements, filling, send
from bench.collections_peers import LARGE_CHUNKS, ONE_DOCUMENT, PEERS, RELAXED, SMALL_CHUNKS, Side, ours
from bench.measure import Effort, Rounds, Row, Sample, Unit, in_rounds
from bench.streams_load import attempted
from bench.workload import directory

GROUP = "collections"
#: How the published servers store a document.
LAYOUTS = {ONE_DOCUMENT: "one document", SMALL_CHUNKS: "chunks of 100", LARGE_CHUNKS: "chunks of 10,000"}
#: The number of elements that are pulled from a checkpoint.
PAGE = 1000
#: The length of the log that is built, and of the log that is pulled from.
BUILT = 10_000
SIZES = (1_000, 10_000, 100_000)
#: Building ends after this many seconds.
BUILDING_SECONDS = 60.0
#: The approximate seconds of a turn, and its maximum number of requests.
TURN_SECONDS, TURN_REQUESTS = 1.0, 20_000
#: The maximum requests and seconds of the trial that determines the number of requests of a turn.
WARM_UP, WARM_UP_SECONDS = 50, 2.0
FILLERS = 32
#: The target for appends to a log of 10,000 elements, as a multiple of the peer's rate.
AIM = 20.0
#: The target for a long log, as a multiple of the cost of a short one. It allows for differences between rounds.
FLAT = 1.25
FSYNC, DISK = "fsync", "disk"
#: Strandline's collections, by durability.
DURABILITIES = {FSYNC: ONE_DOCUMENT, DISK: RELAXED}

_numbers = count(1)


class Appends(NamedTuple):
    signed: bool
    connections: int
    durability: str

    @property
    def name(self) -> str:
        many = "1 connection" if self.connections == 1 else f"{self.connections} connections"
        return f"{'signed' if self.signed else 'anonymous'} appends, {many}, {self.durability}"


APPENDS = [
    Appends(signed, connections, durability)
    for signed in (True, False)
    for durability in DURABILITIES
    for connections in (1, 16)
]


def run(root: Path, effort: Effort) -> Iterator[Row]:
    yield from attempted("ours at several lengths", _flat(root, effort), GROUP)
    for name, peer in PEERS.items():
        why = peer.install()
        if why:
            print(f"collections: without {name}: {why}", file=sys.stderr)
            continue
        with ExitStack() as stack:
            base = stack.enter_context(directory(root, "collections"))
            mine = stack.enter_context(ours(base / "ours"))
            try:
                theirs = stack.enter_context(peer.start(base / "peer"))
            except (OSError, RuntimeError) as error:
                print(f"collections: without {name}: {error}", file=sys.stderr)
                continue
            pair = Pair(effort, Asked(mine), Asked(theirs))
            yield from attempted(f"appends beside {name}", pair.appends(), GROUP)
            yield from attempted(f"pulls beside {name}", pair.pulls(), GROUP)
            yield from attempted(f"building beside {name}", pair.building(), GROUP)
            for layout in (ONE_DOCUMENT, SMALL_CHUNKS):
                yield from attempted(f"lengths beside {name}", pair.lengths(layout), GROUP)


def _flat(root: Path, effort: Effort) -> Iterator[Row]:
    """The cost of a long log next to a short one, both on this server."""
    with directory(root, "collections") as base, ours(base / "ours") as side:
        asked = Asked(side)
        short = asked.filled(ONE_DOCUMENT, SIZES[0])
        for size in SIZES[1:]:
            size = effort.scaled(size, SIZES[0])
            long = asked.filled(ONE_DOCUMENT, size)
            beside = f"itself at {SIZES[0]:,} elements"
            # Appends make logs longer, so they come last.
            for what, of in (("checkpoint pull of 1,000", asked.checkpoint_pull), ("append, fsync", asked.append)):
                rounds = in_rounds(Turns(of(long)).cost, Turns(of(short)).cost, effort.rounds)
                yield rounds.beside_peer(GROUP, f"signed {what} at {size:,} elements", "µs", beside, FLAT)


class Pair:
    """Runs the same work on both sides."""

    def __init__(self, effort: Effort, ours: Asked, peer: Asked) -> None:
        self._effort = effort
        self._ours = ours
        self._peer = peer

    def _row(self, works: Iterable[Work], name: str, unit: Unit, layout: str, aim: float | None = None) -> Row:
        """The first piece of work is ours."""
        mine, peers = map(Turns, works)
        turns = (mine.cost, peers.cost) if unit == "µs" else (mine.rate, peers.rate)
        peer_is = f"{self._peer.side.name}, {LAYOUTS[layout]}"
        return in_rounds(*turns, self._effort.rounds).beside_peer(GROUP, name, unit, peer_is, aim)

    def appends(self) -> Iterator[Row]:
        for work in APPENDS:
            mine = self._ours.appends(DURABILITIES[work.durability], work)
            theirs = self._peer.appends(SMALL_CHUNKS, work)
            yield self._row((mine, theirs), work.name, "records/s", SMALL_CHUNKS)

    def pulls(self) -> Iterator[Row]:
        documents = self._ours.filled(ONE_DOCUMENT, BUILT), self._peer.filled(SMALL_CHUNKS, BUILT)
        for signed in (True, False):
            for name, bounds, number in (
                ("checkpoint pulls of 1,000", _since_page, PAGE),
                ("last=10 pulls", _last, 10),
            ):
                works = (
                    asked.pulls(document, bounds(asked, document), number, signed=signed)
                    for asked, document in zip((self._ours, self._peer), documents, strict=True)
                )
                name = f"{'signed' if signed else 'anonymous'} {name} from {BUILT:,} elements, 1 connection"
                yield self._row(works, name, "calls/s", SMALL_CHUNKS)

    def building(self) -> Iterator[Row]:
        size = self._effort.scaled(BUILT, PAGE)
        for layout, durability in (*((layout, FSYNC) for layout in LAYOUTS), (SMALL_CHUNKS, DISK)):
            mine, theirs = self._ours.built(DURABILITIES[durability], size), self._peer.built(layout, size)
            peer_is = f"{self._peer.side.name}, {LAYOUTS[layout]}"
            if theirs.requests < size:
                peer_is += f": ended after {theirs.seconds:.0f} s with {theirs.requests:,} elements"
            rounds = Rounds([_time(mine)], [_time(theirs)])
            name = f"building a log of {size:,} elements, anonymous, 1 connection, {durability}"
            yield rounds.beside_peer(GROUP, name, "s", peer_is, 1 / AIM if durability == FSYNC else None)

    def lengths(self, layout: str) -> Iterator[Row]:
        for size in SIZES:
            size = self._effort.scaled(size, SIZES[0])
            documents = self._ours.filled(ONE_DOCUMENT, size), self._peer.filled(layout, size)
            sides = list(zip((self._ours, self._peer), documents, strict=True))
            pulls = (asked.checkpoint_pull(document) for asked, document in sides)
            yield self._row(pulls, f"signed checkpoint pull of 1,000 at {size:,} elements", "µs", layout)
            appends = (asked.append(document) for asked, document in sides)
            aim = 1 / AIM if size == BUILT else None
            yield self._row(appends, f"signed append at {size:,} elements, fsync", "µs", layout, aim)


#: Makes the given number of requests.
Work = Callable[[int], Load]


class Turns:
    """Turns with about the same duration, whatever the speed of the work."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._number = 0

    def _turn(self) -> Load:
        if not self._number:
            # One by one at first, because some take seconds.
            began, load = time.perf_counter(), self._work(1)
            while load.requests < WARM_UP and time.perf_counter() - began < WARM_UP_SECONDS:
                load = self._work(min(WARM_UP, 4 * load.requests))
            self._number = min(TURN_REQUESTS, max(1, round(TURN_SECONDS * load.requests / load.seconds)))
        return self._work(self._number)

    def rate(self) -> Sample:
        load = self._turn()
        return Sample(load.requests, load.seconds)

    def cost(self) -> Sample:
        """The time of one request."""
        load = self._turn()
        return Sample(1, load.seconds / load.requests)


class Asked:
    """One side, and the requests it gets."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self._requests = Requests(side)

    def _sent(self, prepared: list[bytes], connections: int = 1, limit: float | None = None) -> Load:
        load = send(self.side.server, prepared, connections, limit)
        if load.busy > 0.9:
            print(f"collections: {self.side.name}: the client used {load.busy:.0%} of a processor", file=sys.stderr)
        return load

    def appends(self, collection: str, work: Appends) -> Work:
        """Each turn appends to a new document."""
        return lambda number: self._sent(
            self._requests.appends(_new(collection), number, signed=work.signed), work.connections
        )

    def append(self, document: str) -> Work:
        return lambda number: self._sent(self._requests.appends(document, number, signed=True))

    def pulls(self, document: str, bounds: str, expected: int, *, signed: bool) -> Work:
        found = self._pulled(document, bounds)
        if len(found) != expected:
            raise RuntimeError(f"{self.side.name}: {len(found)} elements where {expected} were expected")
        return lambda number: self._sent(self._requests.pulls(document, bounds, number, signed=signed))

    def checkpoint_pull(self, document: str) -> Work:
        return self.pulls(document, _since_page(self, document), PAGE, signed=True)

    def built(self, collection: str, size: int) -> Load:
        """A new document with this number of elements, or fewer if it takes too long."""
        return self._sent(self._requests.appends(_new(collection), size, signed=False), limit=BUILDING_SECONDS)

    def filled(self, collection: str, size: int) -> str:
        """A new document with this number of elements, as signed appends would have stored them."""
        document = _new(collection)
        if self.side.files is None:
            send(self.side.server, list(filling(self.side, document, size)), FILLERS, patient=True)
            return document
        # The same file as the published servers would write, which would take minutes. If the document should be in
        # chunks, they divide it at the next append.
        path = self.side.files / document
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(_stored(document, size - 1))
        send(self.side.server, list(filling(self.side, document, 1)), 1)
        return document

    def newest(self, document: str, number: int) -> list[int]:
        """The timestamps of the last elements."""
        return [element["ts"] for element in self._pulled(document, f"last={number}")]

    def _pulled(self, document: str, bounds: str) -> list[dict[str, int]]:
        request = self._requests.pulls(document, bounds, 1, signed=True)[0]
        found: list[dict[str, int]] = ask(self.side.server, request).json()["data"]["items"]
        return found


def _since_page(asked: Asked, document: str) -> str:
    """Parameters that pull the last page."""
    return f"checkpoint={asked.newest(document, PAGE)[0] - 1}"


def _last(asked: Asked, document: str) -> str:
    return "last=10"


def _stored(document: str, size: int) -> bytes:
    """A document in one piece, as the published servers store it. They return its hash, but do not check it."""
    first = int(time.time() * 1000) - size - 1000
    stored = (b'{"ts":%d,%b' % (first + at, body[1:]) for at, body in enumerate(elements(document, size)))
    return b'{"v":1,"data":{"items":[%b]},"ts":%d,"hash":"%b"}' % (b",".join(stored), first + size - 1, b"0" * 64)


def _new(collection: str) -> str:
    return f"{collection}/document-{next(_numbers)}"


def _time(load: Load) -> Sample:
    return Sample(load.requests, load.seconds)
