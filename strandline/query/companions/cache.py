"""Companions that lie in an object store: fetched once, kept on the local disk, and waited for only so long."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

import xxhash

from strandline.lake.location import Lake
from strandline.query.companions.file import DamagedCompanion
from strandline.query.companions.table import Listed

#: What copies may take of the local disk.
CACHE_BYTES = 8 << 30
#: Things that an object store is asked for at a time.
MAX_ERRANDS = 8

T = TypeVar("T")


class Copies:
    """Where the files of a lake are on the local disk: where they are, or copies of what an object store has."""

    def __init__(self, lake: Lake, directory: Path, budget: int) -> None:
        self._lake = lake
        self._directory = directory
        self._budget = budget
        self._lock = threading.Lock()
        self._held: OrderedDict[str, int] | None = None

    def path_of(self, entry: Listed) -> Path | None:
        """None: it is not here, and has to be fetched."""
        if self._lake.directory is not None:
            return self._lake.directory / entry.path
        copy = self._directory / _copy_name(entry.path)
        with self._lock:
            held = self._load()
            if copy.name not in held or not copy.exists():
                return None
            held.move_to_end(copy.name)
            return copy

    def fetch(self, entry: Listed) -> Path:
        """Raises FileNotFoundError, DamagedCompanion, or whatever an object store does."""
        copy = self._directory / _copy_name(entry.path)
        content = self._lake.read(entry.path)
        if content is None:
            raise FileNotFoundError(entry.path)
        if xxhash.xxh3_64_hexdigest(content) != entry.checksum:
            raise DamagedCompanion(entry.path, "its checksum does not match")
        temporary = copy.with_suffix(".tmp")
        temporary.write_bytes(content)
        os.replace(temporary, copy)
        with self._lock:
            held = self._load()
            held[copy.name] = entry.size
            self._make_room(held, copy.name)
        return copy

    def drop(self, path: str) -> None:
        """Nobody needs the copy any more, or it is broken."""
        if self._lake.directory is None:
            with self._lock:
                self._load().pop(_copy_name(path), None)
                (self._directory / _copy_name(path)).unlink(missing_ok=True)

    def _load(self) -> OrderedDict[str, int]:
        """What an earlier server has fetched is still good: a companion never changes under its name."""
        if self._held is None:
            self._directory.mkdir(parents=True, exist_ok=True)
            files = sorted(self._directory.glob("*.arrow"), key=lambda path: path.stat().st_mtime_ns)
            self._held = OrderedDict((path.name, path.stat().st_size) for path in files)
        return self._held

    def _make_room(self, held: OrderedDict[str, int], latest: str) -> None:
        while sum(held.values()) > self._budget and next(iter(held)) != latest:
            name, _ = held.popitem(last=False)
            (self._directory / name).unlink(missing_ok=True)


class Errands:
    """Things to be done far away, each on a thread of its own, so that nobody has to wait for longer than he likes.

    What is under way already is not begun again; what it comes to is for whoever asks the next time.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[str, Future[Any]] = {}

    def run(self, name: str, work: Callable[[], T], seconds: float) -> T | None:
        """What the work gives, or raises; None if that takes longer, or if too much is under way."""
        with self._lock:
            future: Future[T] | None = self._running.get(name)
            if future is None:
                if len(self._running) >= MAX_ERRANDS:
                    return None
                future = self._running[name] = Future()
                # Ends with the process, whatever it is waiting for.
                threading.Thread(target=self._do, args=(name, work, future), name="errand", daemon=True).start()
        try:
            return future.result(seconds)
        except TimeoutError:
            return None

    def _do(self, name: str, work: Callable[[], T], future: Future[T]) -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)
        finally:
            with self._lock:
                del self._running[name]


def _copy_name(path: str) -> str:
    return f"{xxhash.xxh3_128_hexdigest(path.encode())}.arrow"
