"""The local cache of the cold tier: sparse copies of segments, filled piece by piece as they are read.

Which pieces of a copy are filled is known in memory only, so the cache starts empty. A copy goes as a whole:
its file is unlinked. A Segment that has it mapped keeps it, and goes on filling it, until the Segment goes.
"""

from __future__ import annotations

import os
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Condition

from strandline.engine.segments.cold_store import ColdStore

#: What is fetched at least. Requests to an object store cost tens of milliseconds whatever their size, up to
#: about this one.
PIECE_BYTES = 1 << 20
#: Neighbouring pieces come in one request, but a request is held in memory.
PIECES_PER_REQUEST = 16


class _Copy:
    """The local copy of one object. Everything here is guarded by the cache's lock."""

    __slots__ = ("bytes", "filled", "name", "opening", "path", "pending", "retired", "size")

    def __init__(self, name: str, path: str, size: int) -> None:
        self.name = name
        self.path = path
        self.size = size
        self.filled: set[int] = set()
        self.pending: set[int] = set()
        self.bytes = 0
        #: How many are about to map the file: it must keep its name until they have.
        self.opening = 0
        self.retired = False


class Fetcher:
    """Brings in what is about to be read of one object; a Segment calls it, and holds it until it goes."""

    def __init__(self, cache: ColdCache, copy: _Copy) -> None:
        self._cache = cache
        self._copy = copy
        self._fd = os.open(copy.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        weakref.finalize(self, os.close, self._fd)
        os.ftruncate(self._fd, copy.size)

    def __call__(self, start: int, end: int) -> None:
        self._cache.fill(self._copy, self._fd, start, end)

    @property
    def path(self) -> str:
        return self._copy.path

    @property
    def retired(self) -> bool:
        """The copy is not in the cache any more: whoever opens the object anew gets another one."""
        return self._copy.retired


class ColdCache:
    """Copies with at most ``limit`` bytes of filled pieces in all; the least recently read copy has to go."""

    def __init__(self, cold: ColdStore, directory: str, limit: int) -> None:
        self._cold = cold
        self._directory = Path(directory)
        self._limit = limit
        self._copies: OrderedDict[str, _Copy] = OrderedDict()
        self._used = 0
        self._made = 0
        self._changed = Condition()
        self._directory.mkdir(exist_ok=True)

    @property
    def used(self) -> int:
        return self._used

    @contextmanager
    def opening(self, name: str, size: int) -> Iterator[Fetcher]:
        """A copy that is sure to keep its path inside the ``with``, so that it can be mapped."""
        with self._changed:
            copy = self._copies.get(name)
            if copy is None:
                # A number of its own, for the file of an earlier copy may not be unlinked yet.
                self._made += 1
                path = self._directory / f"{self._made}-{name}"
                copy = self._copies[name] = _Copy(name, str(path), size)
            copy.opening += 1
        try:
            yield Fetcher(self, copy)
        finally:
            with self._changed:
                copy.opening -= 1
                discarded = copy.retired and not copy.opening
            if discarded:
                _unlink([copy])
            self._trim()

    def discard(self, name: str) -> None:
        """Forget a copy, so that the next read fetches the object anew."""
        with self._changed:
            copy = self._copies.get(name)
            if copy is not None:
                self._retire(copy)
        if copy is not None and not copy.opening:
            _unlink([copy])

    def fill(self, copy: _Copy, fd: int, start: int, end: int) -> None:
        """Returns when the bytes are there. Whoever comes first reads a piece, the others wait for it."""
        pieces = range(start // PIECE_BYTES, -(-min(end, copy.size) // PIECE_BYTES))
        while mine := self._claim(copy, pieces):
            try:
                for run in _runs(mine):
                    self._fill_run(copy, fd, run)
            finally:
                with self._changed:
                    copy.pending.difference_update(mine)
                    self._changed.notify_all()
            self._trim()

    def _claim(self, copy: _Copy, pieces: range) -> list[int]:
        """Missing pieces that nobody else is reading; none when there is nothing missing any more."""
        with self._changed:
            while missing := [piece for piece in pieces if piece not in copy.filled]:
                mine = [piece for piece in missing if piece not in copy.pending]
                if mine:
                    copy.pending.update(mine)
                    return mine
                self._changed.wait()
            if not copy.retired:
                self._copies.move_to_end(copy.name)
            return []

    def _fill_run(self, copy: _Copy, fd: int, run: range) -> None:
        start, end = run.start * PIECE_BYTES, min(run.stop * PIECE_BYTES, copy.size)
        data = memoryview(self._cold.read(copy.name, start, end))
        while data:
            written = os.pwrite(fd, data, end - len(data))
            data = data[written:]
        with self._changed:
            copy.filled.update(run)
            if not copy.retired:
                self._copies.move_to_end(copy.name)
                copy.bytes += end - start
                self._used += end - start

    def _trim(self) -> None:
        with self._changed:
            victims: list[_Copy] = []
            for copy in list(self._copies.values()) if self._used > self._limit else ():
                if self._used > self._limit and copy.bytes and not copy.opening:
                    self._retire(copy)
                    victims.append(copy)
        _unlink(victims)

    def _retire(self, copy: _Copy) -> None:
        del self._copies[copy.name]
        copy.retired = True
        self._used -= copy.bytes


def empty_directory(directory: str) -> None:
    if os.path.isdir(directory):
        for entry in os.scandir(directory):
            os.unlink(entry)


def _unlink(copies: Iterable[_Copy]) -> None:
    for copy in copies:
        Path(copy.path).unlink(missing_ok=True)


def _runs(pieces: list[int]) -> Iterator[range]:
    """Ascending numbers as ranges of neighbours, none too long for one request."""
    start = pieces[0]
    for before, piece in zip(pieces, [*pieces[1:], -1], strict=True):
        if piece != before + 1 or piece - start == PIECES_PER_REQUEST:
            yield range(start, before + 1)
            start = piece
