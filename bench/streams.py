"""The streams protocol next to other servers of it: the same requests from the same load generators, in turns.

wrk sends the appends. All other requests are sent over plain sockets from Python, whose cost is the same for all sides
and is part of all figures.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from bench import streams_query
from bench.measure import Effort, Rounds, Row, Sample, Unit, in_rounds
from bench.streams_load import Line, array, attempted, pages, send_all
from bench.streams_peers import PEERS, Side
from bench.topics_delivery import clients
from bench.topics_load import Collected, raise_file_limit
from bench.topics_peers import Wrk, missing
from bench.topics_server import serving
from bench.workload import directory, payloads

GROUP = "streams"
PAYLOAD = 150
BATCH = 500
#: The records of the stream of the catch-up read.
RECORDS = 200_000
READERS = 100
#: For the delays: records, and the seconds between two of them, so that each arrives before the next one.
PACED, PAUSE = 40, 0.2
#: For the rate: records, records per append, and the number of writers.
FLOOD, AT_ONCE, WRITERS = 1000, 20, 8
#: wrk accepts only whole seconds.
SECONDS = 1.0
#: Rounds of measurements whose turns take many seconds on the slowest side.
FEW_ROUNDS = 3

_numbers = count(1)


class Appends(NamedTuple):
    name: str
    connections: int
    records: int
    aim: float


APPENDS = (
    Appends("single appends, 1 connection", 1, 1, 10.0),
    Appends("single appends, 32 connections", 32, 1, 10.0),
    Appends(f"JSON batches of {BATCH}, 1 connection", 1, BATCH, 3.0),
    Appends(f"JSON batches of {BATCH}, 4 connections", 4, BATCH, 3.0),
)


def run(root: Path, effort: Effort) -> Iterator[Row]:
    raise_file_limit()
    for name, peer_of in PEERS.items():
        why = peer_of.install()
        if why:
            print(f"streams: without {name}: {why}", file=sys.stderr)
            continue
        with ExitStack() as stack:
            base = stack.enter_context(directory(root, "streams"))
            ours = Side("Strandline", stack.enter_context(serving(base / "ours")), queries=True)
            try:
                peer = stack.enter_context(peer_of.start(base / "peer"))
            except (OSError, RuntimeError) as error:
                print(f"streams: without {name}: {error}", file=sys.stderr)
                continue
            pair = Pair(base, effort, ours, peer)
            yield from attempted(f"appends beside {name}", pair.appends())
            yield from attempted(f"catching up beside {name}", pair.catching_up())
            yield from attempted(f"event streams beside {name}", pair.fan_out())
            if peer.queries:
                yield from attempted(f"queries beside {name}", streams_query.run(ours, peer, effort))


class Pair:
    """Runs the same work on both sides."""

    def __init__(self, base: Path, effort: Effort, ours: Side, peer: Side) -> None:
        self._base = base
        self._effort = effort
        self._ours = ours
        self._peer = peer

    def _row(self, rounds: Rounds, name: str, unit: Unit, aim: float = 1.0) -> Row:
        return rounds.beside_peer(GROUP, name, unit, self._peer.name, aim)

    # --- appending -------------------------------------------------------------------------------------------------

    def appends(self) -> Iterator[Row]:
        if missing("wrk"):
            print("streams: without appends, wrk is not installed", file=sys.stderr)
            return
        for work in APPENDS:
            ours, theirs = (self._appending(side, work) for side in (self._ours, self._peer))
            yield self._row(in_rounds(ours, theirs, self._effort.rounds), work.name, "records/s", work.aim)

    def _appending(self, side: Side, work: Appends) -> Callable[[], Sample]:
        wrk = Wrk(self._base, side.server)
        body = payloads(PAYLOAD)[0] if work.records == 1 else array(payloads(PAYLOAD)[: work.records])

        def turn() -> Sample:
            path = new_stream(side)
            load = wrk.run(body, [path], work.connections, SECONDS)
            with Line(side.server) as line:
                line.call("DELETE", path)
            return load.sample(work.records)

        return turn

    # --- catching up -----------------------------------------------------------------------------------------------

    def catching_up(self) -> Iterator[Row]:
        records = self._effort.scaled(RECORDS, BATCH) // BATCH * BATCH
        ours, theirs = (self._reader(side, records) for side in (self._ours, self._peer))
        read = in_rounds(ours, theirs, min(self._effort.rounds, FEW_ROUNDS))
        name = f"catch-up read of {records:,} records, 1 connection"
        yield self._row(read, name, "MB/s", 3.0)
        in_records = Rounds(*([Sample(records, sample.seconds) for sample in samples] for samples in read))
        yield self._row(in_records, name, "records/s", 3.0)

    def _reader(self, side: Side, records: int) -> Callable[[], Sample]:
        path = new_stream(side)
        data = payloads(PAYLOAD)
        batches = len(data) // BATCH
        bodies = [array(data[at * BATCH : (at + 1) * BATCH]) for at in range(batches)]
        send_all(side.server, (("POST", path, bodies[at % batches]) for at in range(records // BATCH)), 2)

        def turn() -> Sample:
            with Line(side.server) as line:
                start = time.perf_counter()
                bodies = [page.body for page in pages(line, path)]
                seconds = time.perf_counter() - start
            got = sum(body.count(b'"id":') for body in bodies)
            if got != records:
                raise RuntimeError(f"{side.name}: {got} records of {records} were read")
            return Sample(sum(map(len, bodies)) / 1e6, seconds)

        return turn

    # --- fan-out ---------------------------------------------------------------------------------------------------

    def fan_out(self) -> Iterator[Row]:
        paced, flood = self._effort.scaled(PACED, 10), self._effort.scaled(FLOOD, 200)
        slow, fast = Rounds([], []), Rounds([], [])
        for number in range(min(self._effort.rounds, FEW_ROUNDS)):
            turns = [(self._ours, slow.work, fast.work), (self._peer, slow.floor, fast.floor)]
            for side, delays, deliveries in turns if number % 2 == 0 else reversed(turns):
                slowly, quickly = _fan_out(side, paced, flood)
                delays.append(Sample(1, slowly.p50_ms / 1000))
                deliveries.append(Sample(quickly.records, quickly.seconds))
        what = f"{READERS} event streams"
        yield self._row(slow, f"{what}: from append to delivery, p50", "ms")
        yield self._row(fast, f"{what}: as fast as {WRITERS} writers append {AT_ONCE} records at once", "deliveries/s")


def _fan_out(side: Side, paced: int, flood: int) -> tuple[Collected, Collected]:
    path = new_stream(side)

    def collected(records: int, write: Callable[[], None]) -> Collected:
        readers.tell(str(records))
        readers.heard(dict[str, Any])
        write()
        got = readers.heard(Collected)
        if got.records != records * READERS:
            missing_ones = records * READERS - got.records
            print(f"streams: {side.name}: {missing_ones:,} records had not been delivered in time", file=sys.stderr)
        if not got.records:
            raise RuntimeError(f"{side.name} delivered nothing")
        if got.busy > 0.9:
            print(f"streams: {side.name}: the readers used {got.busy:.0%} of a processor", file=sys.stderr)
        return got

    def slowly() -> None:
        with Line(side.server) as line:
            for _ in range(paced):
                line.call("POST", path, _stamped())
                time.sleep(PAUSE)

    def quickly() -> None:
        bodies = (array(_stamped() for _ in range(AT_ONCE)) for _ in range(flood // AT_ONCE))
        send_all(side.server, (("POST", path, body) for body in bodies), WRITERS)

    with clients("sse", side.server, path, READERS, program="bench.streams_load") as readers:
        readers.heard(dict[str, Any])
        return collected(paced, slowly), collected(flood, quickly)


def _stamped() -> bytes:
    """A record with the time it was written. All processes of the machine have the same clock."""
    # The last digit is never 0, because a server that formats the number again would omit it.
    start = b'{"t":%.6f1,"pad":"' % time.perf_counter()
    return start + b"x" * (PAYLOAD - len(start) - 2) + b'"}'


def new_stream(side: Side) -> str:
    """The path of a new JSON stream."""
    path = f"/v1/stream/bench-{next(_numbers)}"
    with Line(side.server) as line:
        line.call("PUT", path)
    return path
