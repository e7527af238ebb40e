"""What every side of the comparison can be asked to do, whatever it calls it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import count
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, get_args

from bench.measure import Sample
from bench.peers_line import Line, Request, drive
from bench.workload import payloads

#: What an acknowledgement promises: nothing; that the system has it, or will within a moment; that the disk has it.
Durability = Literal["memory", "disk", "fsync"]

#: Who append one by one, each on a connection of its own.
CLIENTS = 32

#: Of every record; in a batch; in a page of a catch-up read.
PAYLOAD = 150
BATCH = 500
PAGE = 1000

_numbers = count(1)


class Log(NamedTuple):
    name: str
    durability: Durability


def new_log(durability: Durability) -> Log:
    """A name that nobody has used."""
    return Log(f"log{next(_numbers)}", durability)


#: What a side may be asked to do.
Workload = Literal["singles", "one", "batches", "catch-up", "fan-out", "queue", "growth", "pages"]
EVERYTHING: frozenset[Workload] = frozenset(get_args(Workload))


class Side(Protocol):
    name: str
    #: Which protocol readers and workers have to speak.
    face: str
    does: frozenset[Workload]

    @property
    def classes(self) -> Mapping[Durability, str]:
        """How it is configured for each class that it has."""

    def pid(self, durability: Durability) -> int: ...

    def create(self, durability: Durability, *, queue: bool = False) -> Log: ...

    def drop(self, log: Log) -> None: ...

    def connect(self, log: Log) -> Line: ...

    def append(self, log: Log, records: Sequence[bytes]) -> Request:
        """All of these at once, acknowledged."""

    def fill(self, log: Log, records: Sequence[bytes]) -> Request:
        """The same for a history that is to be read by place."""

    def announce(self, log: Log, record: bytes) -> Request:
        """Append one so that live readers hear of it."""

    def singles(self, log: Log, record: bytes, seconds: float) -> Sample:
        """So many clients append one by one, driven by what costs the least for this protocol."""

    def page(self, log: Log, after: int, limit: int) -> Request:
        """The records after the first so many of a log that was filled once and from which nothing is gone."""

    def catch_up(self, log: Log, records: int) -> Sample:
        """Read from the beginning to the end on one connection."""

    def port(self, log: Log) -> int: ...


class Peer(NamedTuple):
    """Another server: how to start it, and what to do when it is not there."""

    name: str
    #: Returns why it cannot be measured and how that can be helped, or nothing.
    lacking: Callable[[], str]
    #: In this directory, with what it has there, for these classes at least.
    start: Callable[[Path, Sequence[Durability]], AbstractContextManager[Side]]


def catch_up_in_pages(side: Side, log: Log, records: int, mark: bytes) -> Sample:
    """Page after page from where the one before ended; ``mark`` is in the answer once for each record."""
    with side.connect(log) as line:
        began, read = time.perf_counter(), 0
        while read < records:
            found = line.ask(side.page(log, read, PAGE)).count(mark)
            if not found:
                raise RuntimeError(f"{side.name}: only {read} records of {records} were read")
            read += found
        return Sample(read, time.perf_counter() - began)


def fill(side: Side, log: Log, records: int) -> None:
    """In batches, on one connection, so that they are in order."""
    data = payloads(PAYLOAD)
    batches = (data[at % len(data) : at % len(data) + BATCH] for at in range(0, records, BATCH))
    drive(lambda: side.connect(log), 1, (side.fill(log, batch) for batch in batches), float("inf"))
