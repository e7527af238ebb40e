"""Which driver may change the lake.

A driver is a process that changes tables of the lake. Each takes a number that is higher than all before it, by
creating the file ``drivers/<number>.json``, which only one of several can create. The driver with the highest number
has the lake.

An older driver that still runs, on another machine for instance, must not change anything after that. So a new driver
first commits its number to every table. A commit succeeds only on top of the version it was planned from
(``lake/table``), so every plan of the older driver fails from then on, and the older driver finds that its number is
not the highest any more. Whatever it committed before that is as if it had been killed at this point.

A driver that ends marks its number as done. The next one then has nobody to keep out, and commits nothing.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import msgspec
from obstore.exceptions import BaseError

from strandline.lake.claim import LakeInUse
from strandline.lake.location import Lake
from strandline.lake.table import DRIVER, Table, TableMoved

log = logging.getLogger(__name__)

FOLDER = "drivers"
#: The tables that drivers plan changes of. Reports of audits are only ever added to their table.
TABLES = ("records", "latest", "keys", "companions", "rollups")
#: An older driver can commit in between a few times at most before it runs into a table that is moved already.
ATTEMPTS = 20


class Driver(msgspec.Struct, frozen=True):
    """Who has a number, and since when (in milliseconds); ``is_done``: the process makes no more commits."""

    host: str
    pid: int
    since: int
    is_done: bool = False


class Fence:
    """The number of a driver."""

    def __init__(self, lake: Lake, number: int, driver: Driver) -> None:
        self._lake = lake
        self._driver = driver
        self.number = number

    def check(self) -> None:
        """Raise LakeInUse if another driver has taken the lake over."""
        numbers = _numbers(self._lake)
        if numbers and numbers[-1] == self.number:
            return
        other = _read(self._lake, numbers[-1]) if numbers else None
        by = "" if other is None else f" by process {other.pid} on {other.host}"
        raise LakeInUse(
            f"the lake at {self._lake.url} was taken over{by}: this pipeline has number {self.number}, and the highest "
            f"is {numbers[-1] if numbers else 'none'}. What this pipeline committed stays; let one pipeline run"
        )

    def remove(self, names: Iterable[str]) -> None:
        """Remove files that no table refers to. Files of another driver are never among them: their names were listed
        before this looks whether there is another driver, and a driver takes its number before it writes."""
        found = list(names)
        if found:
            self.check()
            self._lake.remove(found)

    def take_over(self) -> None:
        """Move every table, so that no plan of an older driver can be committed."""
        for name in TABLES:
            self._move(Table(self._lake, name, None))

    def _move(self, table: Table) -> None:
        for _ in range(ATTEMPTS):
            snapshot = table.snapshot(self)
            if not snapshot.exists:
                return
            try:
                snapshot.commit(progress={DRIVER: self.number})
            except TableMoved:
                continue
            return
        raise LakeInUse(f"{self._lake.place_of(table.name)} cannot be taken over: another writer changes it constantly")

    def mark_done(self) -> None:
        if _numbers(self._lake)[-1:] == [self.number]:
            self._lake.write(
                _name(self.number), msgspec.json.encode(msgspec.structs.replace(self._driver, is_done=True))
            )


@contextmanager
def take_fence(lake: Lake, now: Callable[[], int]) -> Iterator[Fence]:
    """Become the one driver that may change the lake. ``now`` is the time in milliseconds."""
    driver = Driver(socket.gethostname(), os.getpid(), now())
    while True:
        before = _numbers(lake)
        number = before[-1] + 1 if before else 1
        if lake.create(_name(number), msgspec.json.encode(driver)):
            break
    fence = Fence(lake, number, driver)
    last = _read(lake, before[-1]) if before else None
    if last is None or not last.is_done:
        # Also if there is no number at all: an earlier release took none.
        fence.take_over()
    lake.remove(_name(each) for each in before)
    try:
        yield fence
    finally:
        try:
            fence.mark_done()
        except (OSError, BaseError) as error:
            # The next driver then takes the tables over from this one, which does no harm.
            log.warning("cannot write %s: %s", lake.place_of(_name(number)), error)


def _numbers(lake: Lake) -> list[int]:
    """All that were taken and not cleared away, ascending."""
    found = (name[len(FOLDER) + 1 :].removesuffix(".json") for name in lake.names(f"{FOLDER}/"))
    return sorted(int(number) for number in found if number.isdecimal())


def _name(number: int) -> str:
    return f"{FOLDER}/{number:020d}.json"


def _read(lake: Lake, number: int) -> Driver | None:
    """None if the file is gone, or makes no sense."""
    stored = lake.read(_name(number))
    try:
        return None if stored is None else msgspec.json.decode(stored, type=Driver)
    except msgspec.DecodeError:
        return None
