"""Only one pipeline at a time may change a lake.

A claim is a lock that the operating system holds for the process and releases when the process ends, however it ends.
For a lake in a directory, the lock is a file in the lake. For a lake in an object store, it is a file on this machine,
and the status of the lake shows whether another machine works on it: a running pipeline updates the status all the
time.

A claim only tells a second pipeline early that the lake is in use. It does not exclude two pipelines, for example if
both start at the same time on two machines. The :class:`Fence` keeps the lake correct in that case.
"""

from __future__ import annotations

import fcntl
import logging
import os
import socket
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from strandline.lake.location import Lake
from strandline.lake.status import read_status
from strandline.lake.table import DRIVER, LakeTable, TableMoved
from strandline.late_import import LateModule

if TYPE_CHECKING:
    import obstore.exceptions

    from strandline.lake import typed_tables
else:
    obstore = LateModule("obstore")
    typed_tables = LateModule("strandline.lake.typed_tables")

NAME = "pipeline.lock"

#: Another process may be checking the claim, which takes a few microseconds.
LOCK_ATTEMPTS = 3
LOCK_ATTEMPT_SECONDS = 0.02
#: A pipeline on another machine that has not updated its status for this long counts as ended.
SILENT_MS = 120_000


class LakeInUse(Exception):
    """Another pipeline is using the lake. The message says which."""


@contextmanager
def claim(lake: Lake, now: Callable[[], int]) -> Iterator[None]:
    """Claim the lake for this process. Raises LakeInUse. ``now`` returns the time in milliseconds."""
    path = _lock_path(lake)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        if not _lock(fd):
            holder = os.pread(fd, 32, 0).decode(errors="replace").strip() or "unknown"
            raise LakeInUse(f"another pipeline uses the lake {lake.url}: process {holder}")
        if lake.directory is None:
            _check_elsewhere(lake, now())
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(fd)


def is_claimed(lake: Lake) -> bool:
    """Return whether a pipeline on this machine is using the lake."""
    try:
        fd = os.open(_lock_path(lake, make=False), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        # A shared lock, so that concurrent checks do not block each other. A pipeline that starts at the same time
        # retries.
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(fd)


def _lock(fd: int) -> bool:
    for attempt in range(LOCK_ATTEMPTS):
        if attempt:
            time.sleep(LOCK_ATTEMPT_SECONDS)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        return True
    return False


def _lock_path(lake: Lake, make: bool = True) -> Path:
    directory = lake.directory
    if directory is None:
        name = sha256(lake.url.encode()).hexdigest()[:16]
        return Path(tempfile.gettempdir()) / f"strandline-{os.getuid()}-{name}.lock"
    if make:
        directory.mkdir(parents=True, exist_ok=True)
    return directory / NAME


def _check_elsewhere(lake: Lake, now: int) -> None:
    status = read_status(lake)
    if status is None or status.state == "ended" or status.host == socket.gethostname():
        return
    # A time far in the future comes from a wrong clock and is ignored.
    if abs(now - status.updated) < SILENT_MS:
        raise LakeInUse(f"another pipeline uses the lake {lake.url}: process {status.pid} on {status.host}")


# --- which driver may change the lake -------------------------------------------------------------------------------

log = logging.getLogger(__name__)

FOLDER = "drivers"
#: The tables that drivers plan changes of, besides typed tables. Audit reports are only appended to their table.
TABLES = ("records", "latest", "keys", "companions", "rollups")
#: An older driver can commit only a few more times before it reaches a table that has been taken over.
ATTEMPTS = 20


class Driver(msgspec.Struct, frozen=True):
    """The process with a driver number, and its start in milliseconds. ``is_done``: the process makes no more
    commits."""

    host: str
    pid: int
    since: int
    is_done: bool = False


class Fence:
    """A driver's number, which orders the drivers of a lake."""

    def __init__(self, lake: Lake, number: int, driver: Driver) -> None:
        self._lake = lake
        self._driver = driver
        self.number = number

    def check(self) -> None:
        """Raise LakeInUse if another driver has taken over the lake."""
        numbers = _numbers(self._lake)
        if numbers and numbers[-1] == self.number:
            return
        other = _read(self._lake, numbers[-1]) if numbers else None
        by = "" if other is None else f" by process {other.pid} on {other.host}"
        raise LakeInUse(
            f"the lake at {self._lake.url} was taken over{by}: this pipeline has number {self.number}, and the highest "
            f"is {numbers[-1] if numbers else 'none'}. The commits of this pipeline stay. Run only one pipeline"
        )

    def remove(self, names: Iterable[str]) -> None:
        """Remove files that no table refers to. Never removes files of another driver: the names were listed before
        this checks for another driver, and a driver takes its number before it writes."""
        found = list(names)
        if found:
            self.check()
            self._lake.remove(found)

    def take_over(self) -> None:
        """Commit to every table, so that no plan of an older driver can be committed."""
        for name in TABLES:
            self._move(LakeTable(self._lake, name, None))
        for folder in typed_tables.folders(self._lake):
            self._move(typed_tables.typed_table(self._lake, folder))

    def _move(self, table: LakeTable) -> None:
        for _ in range(ATTEMPTS):
            snapshot = table.snapshot(self)
            if not snapshot.exists:
                return
            try:
                snapshot.commit(progress={DRIVER: self.number})
            except TableMoved:
                continue
            return
        raise LakeInUse(f"{self._lake.place_of(table.name)} cannot be taken over: another writer keeps changing it")

    def mark_done(self) -> None:
        if _numbers(self._lake)[-1:] == [self.number]:
            self._lake.write(
                _name(self.number), msgspec.json.encode(msgspec.structs.replace(self._driver, is_done=True))
            )


@contextmanager
def take_fence(lake: Lake, now: Callable[[], int]) -> Iterator[Fence]:
    """Become the only driver that may change the lake. ``now`` returns the time in milliseconds."""
    driver = Driver(socket.gethostname(), os.getpid(), now())
    while True:
        before = _numbers(lake)
        number = before[-1] + 1 if before else 1
        if lake.create(_name(number), msgspec.json.encode(driver)):
            break
    fence = Fence(lake, number, driver)
    last = _read(lake, before[-1]) if before else None
    if last is None or not last.is_done:
        # This also applies if there is no number at all: earlier releases took none.
        fence.take_over()
    lake.remove(_name(each) for each in before)
    try:
        yield fence
    finally:
        try:
            fence.mark_done()
        except (OSError, obstore.exceptions.BaseError) as error:
            # The next driver then takes over the tables from this one, which is harmless.
            log.warning("cannot write %s: %s", lake.place_of(_name(number)), error)


def _numbers(lake: Lake) -> list[int]:
    """Return all numbers that were taken and not removed, ascending."""
    found = (name[len(FOLDER) + 1 :].removesuffix(".json") for name in lake.names(f"{FOLDER}/"))
    return sorted(int(number) for number in found if number.isdecimal())


def _name(number: int) -> str:
    return f"{FOLDER}/{number:020d}.json"


def _read(lake: Lake, number: int) -> Driver | None:
    """Return None if the file does not exist or is invalid."""
    stored = lake.read(_name(number))
    try:
        return None if stored is None else msgspec.json.decode(stored, type=Driver)
    except msgspec.DecodeError:
        return None


# --- which data directory a lake belongs to -------------------------------------------------------------------------

#: The file in the lake that names the data directory of its records.
BELONGING = "lake.json"
FORMAT = 1


class LakeOfAnother(Exception):
    """The lake has the records of another data directory, or an unknown format."""


class LakeOwner(msgspec.Struct, frozen=True):
    directory: str
    format: int = FORMAT


def belong(lake: Lake, directory: str) -> None:
    """Claim the lake for this data directory, or check that it belongs to it. Raises LakeOfAnother."""
    if not belongs(lake, directory):
        lake.write(BELONGING, msgspec.json.encode(LakeOwner(directory)))


def belongs(lake: Lake, directory: str) -> bool:
    """Return whether the lake exists and belongs to this data directory. Raises LakeOfAnother."""
    stored = lake.read(BELONGING)
    if stored is None:
        return False
    try:
        found = msgspec.json.decode(stored, type=LakeOwner)
    except msgspec.DecodeError as error:
        raise LakeOfAnother(f"{lake.place_of(BELONGING)} is invalid: {error}") from None
    if found.format != FORMAT:
        raise LakeOfAnother(f"the lake at {lake.url} has format {found.format}; this release supports {FORMAT}")
    if found.directory != directory:
        raise LakeOfAnother(
            f"the lake at {lake.url} has the records of the data directory {found.directory}, not of {directory}"
        )
    return True
