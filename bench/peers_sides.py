"""The operations that every side of the comparison has, whatever their names are there."""

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

#: The promise of an acknowledgement: none; the system has the record, or soon will; the disk has it.
Durability = Literal["memory", "disk", "fsync"]

#: The number of clients that append one by one, each on its own connection.
CLIENTS = 32

#: The bytes of a record, and the records of a batch and of a page of a catch-up read.
PAYLOAD = 150
BATCH = 500
PAGE = 1000

_numbers = count(1)


class Log(NamedTuple):
    name: str
    durability: Durability


def new_log(durability: Durability) -> Log:
    """An unused name."""
    return Log(f"log{next(_numbers)}", durability)


#: The workloads that a side can have.
Workload = Literal["singles", "one", "batches", "catch-up", "fan-out", "queue", "growth", "pages"]
EVERYTHING: frozenset[Workload] = frozenset(get_args(Workload))


class Side(Protocol):
    name: str
    #: The protocol of its readers and workers.
    face: str
    does: frozenset[Workload]

    @property
    def classes(self) -> Mapping[Durability, str]:
        """Its configuration for each durability that it has."""

    def pid(self, durability: Durability) -> int: ...

    def create(self, durability: Durability, *, queue: bool = False) -> Log: ...

    def drop(self, log: Log) -> None: ...

    def connect(self, log: Log) -> Line: ...

    def append(self, log: Log, records: Sequence[bytes]) -> Request:
        """Append all these records at once, acknowledged."""

    def fill(self, log: Log, records: Sequence[bytes]) -> Request:
        """Append records of a history that is read by position."""

    def announce(self, log: Log, record: bytes) -> Request:
        """Append one record so that live readers receive it."""

    def singles(self, log: Log, record: bytes, seconds: float) -> Sample:
        """A number of clients append one by one, driven by the cheapest load generator for this protocol."""

    def page(self, log: Log, after: int, limit: int) -> Request:
        """A page of a log that was filled once and lost no records, after a number of records."""

    def catch_up(self, log: Log, records: int) -> Sample:
        """Read all records on one connection."""

    def port(self, log: Log) -> int: ...


class Peer(NamedTuple):
    """Another server: how to start it, and how to install it."""

    name: str
    #: Returns why it cannot be measured and what to do about it, or an empty string.
    lacking: Callable[[], str]
    #: Starts it in this directory, with existing files, for at least these durabilities.
    start: Callable[[Path, Sequence[Durability]], AbstractContextManager[Side]]


def catch_up_in_pages(side: Side, log: Log, records: int, mark: bytes) -> Sample:
    """Read page by page. The answer contains ``mark`` once for each record."""
    with side.connect(log) as line:
        began, read = time.perf_counter(), 0
        while read < records:
            found = line.ask(side.page(log, read, PAGE)).count(mark)
            if not found:
                raise RuntimeError(f"{side.name}: only {read} records of {records} were read")
            read += found
        return Sample(read, time.perf_counter() - began)


def fill(side: Side, log: Log, records: int) -> None:
    """Append in batches, on one connection, so that records are in order."""
    data = payloads(PAYLOAD)
    batches = (data[at % len(data) : at % len(data) + BATCH] for at in range(0, records, BATCH))
    drive(lambda: side.connect(log), 1, (side.fill(log, batch) for batch in batches), float("inf"))
