"""Ships the journal: bytes that are durable on this machine become chunks of the replica, in order.

A chunk holds everything that was flushed since the last one, up to a limit. While a chunk is on its way, the next one
collects, so writers share chunks as they share flushes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from strandline.engine.errors import DamagedFile
from strandline.engine.journal.file import JournalPlace, journal_path
from strandline.engine.journal.frame import FILE_HEADER, FileKind, read_file_header
from strandline.engine.replica.chain import Chain
from strandline.engine.replica.chunk import JournalPart, Piece, State
from strandline.engine.state.checkpoints import JournalEntry
from strandline.spans import background

if TYPE_CHECKING:
    from strandline.engine.engine import Engine

#: A chunk holds at most this many bytes of the journal. It is held in memory, twice, while it is stored.
MAX_CHUNK_BYTES = 8 << 20
#: A chunk that has no more room than this takes nothing of a further file.
MIN_PIECE_BYTES = 4096
#: The position of what was written before the journal was opened.
NOWHERE = -1


class Place(NamedTuple):
    """A place in the journal: the number of a file, and an offset in it."""

    file: int
    offset: int


class _File(NamedTuple):
    number: int
    #: Where the file starts as a position in ``Journal.written``; None: it was complete before the journal was opened.
    begin: int | None
    #: Where the durable bytes end.
    end: int


class FilesMissing(Exception):
    """Journal files were sealed and removed before they were shipped. The replica needs a new state to continue."""


class Shipper:
    """Not thread-safe, except for ``place``: only one thread ships."""

    def __init__(self, engine: Engine, chain: Chain, recovered: Iterable[JournalEntry], needed: int) -> None:
        """``needed``: the first chunk with bytes of the ``recovered`` files, or 0 if no chunk has any. These chunks are
        needed until the files were shipped again."""
        self._engine = engine
        self._chain = chain
        boundary = engine.maintenance.manifest.boundary
        self._recovered = deque(entry for entry in recovered if entry.index >= boundary)
        self._needed = needed if self._recovered else 0
        #: Everything before this place has been shipped, or is in the state that was shipped last.
        self.place = Place(boundary, 0)
        #: The seed of the file at ``place``, once its header was read.
        self._seed = 0
        #: The first chunk with bytes of each journal file, since the last state.
        self._chunks: dict[int, int] = {}
        #: The chunks from this one on are needed.
        self.first_needed = 1
        #: What to do when the chunk that was sent last is stored.
        self._stored: Callable[[], int | None] | None = None
        #: The bytes and chunks of the journal that were shipped since the start.
        self.bytes = 0
        self.chunks = 0
        #: How many of the records that are at risk were shipped since the start; see ``waiting_records``.
        self._records = 0

    def ship_state(self, state: State, boundary: int) -> int | None:
        """Ship a state whose journal begins with the file ``boundary``. Return the position in the journal up to which
        the replica has everything, if it is now further than before. Raises like ``ship``."""
        number = self._chain.number + 1
        chunks = {index: chunk for index, chunk in self._chunks.items() if index >= boundary}
        first = min(chunks.values(), default=number + 1)
        if self._needed and self._recovered and self._recovered[-1].index >= boundary:
            first = min(first, self._needed)

        def stored() -> int | None:
            self._chunks = chunks
            self.first_needed = min(first, number)
            if self.place.file >= boundary:
                return None
            self._records = self._records_until(Place(boundary, 0))
            self.place, self._seed = Place(boundary, 0), 0
            self._forget_files(boundary)
            return self._beginning_of(boundary)

        return self._add(
            msgspec.structs.replace(state, first_chunk=first, has_journal=self._has_shipped(boundary)), stored
        )

    def _has_shipped(self, boundary: int) -> bool:
        """Return whether everything before a journal file was shipped."""
        place = self.place
        return all(
            file.end <= (max(place.offset, FILE_HEADER.size) if file.number == place.file else FILE_HEADER.size)
            for file in self._files()
            if place.file <= file.number < boundary
        )

    def ship(self) -> int | None:
        """Ship one chunk. Return the position in the journal up to which the replica has everything, or None if there
        was nothing to ship.

        Raises OSError if the replica cannot be reached; then call ``settle`` first. Raises Superseded if another server
        has taken over, and FilesMissing.
        """
        pieces, place, position = self._collect()
        if not pieces:
            return None
        records = self._records_until(place)

        def stored() -> int:
            for piece in pieces:
                self._chunks.setdefault(piece.index, self._chain.number)
            self.place, self._records = place, records
            self.chunks += 1
            self.bytes += sum(len(piece.data) for piece in pieces)
            self._forget_files(place.file)
            return NOWHERE if position is None else position

        return self._add(JournalPart(pieces, self._seed), stored)

    def settle(self) -> int | None:
        """Store the chunk of an earlier call that may or may not have been stored, and return what that call would have
        returned."""
        self._chain.settle()
        stored, self._stored = self._stored, None
        return None if stored is None else stored()

    def _add(self, content: JournalPart | State, stored: Callable[[], int | None]) -> int | None:
        self._stored = stored
        with background(self._engine.tracer, "upload to the replica"):
            self._chain.add(content)
            return self.settle()

    def _forget_files(self, before: int) -> None:
        while self._recovered and self._recovered[0].index < before:
            self._recovered.popleft()
        places = self._engine.journal.places
        assert places is not None
        with self._engine.lock:
            while len(places) > 1 and places[0].number < before:
                places.pop(0)

    def _beginning_of(self, index: int) -> int:
        with self._engine.lock:
            for place in self._engine.journal.places or ():
                if place.number == index:
                    return place.begin + FILE_HEADER.size
        return NOWHERE

    @property
    def waiting(self) -> int:
        """The bytes of the journal that have not been shipped. Thread-safe, except for a moment after a state."""
        return self._bytes_after(self.place)

    @property
    def waiting_records(self) -> int:
        """The records since the start that would be lost with this machine: those of logs whose writes do not wait for
        the replica, except the logs of the server. An estimate from the bytes while a part of them has been shipped.
        Thread-safe."""
        return max(self._engine.totals.at_risk - self._records, 0)

    def _bytes_after(self, place: Place) -> int:
        return sum(
            file.end - (place.offset if file.number == place.file else 0)
            for file in self._files(written=True)
            if file.number >= place.file
        )

    def _records_until(self, place: Place) -> int:
        """How many records are shipped when everything before a place is. Appends count records and not where they are
        in the journal, which would cost more. So of the waiting records, as large a share is shipped as of the bytes,
        and all of them when nothing waits."""
        with self._engine.lock:
            before, after = self._bytes_after(self.place), self._bytes_after(place)
            total = self._engine.totals.at_risk
        return total - (total - self._records) * after // max(before, 1)

    def _files(self, written: bool = False) -> list[_File]:
        """Return the journal files that may have something to ship, with the ends of their durable bytes, or of all
        bytes."""
        journal = self._engine.journal
        with self._engine.lock:
            end = journal.written if written else journal.flushed
            places: list[JournalPlace] = list(journal.places or ())
        files = [_File(entry.index, None, entry.size) for entry in list(self._recovered)]
        for number, place in enumerate(places):
            last = end if number + 1 == len(places) else min(end, places[number + 1].begin + FILE_HEADER.size)
            size = last - place.begin
            # A file without records is shipped when the next one was begun: no number may be missing in between.
            if size > FILE_HEADER.size or number + 1 < len(places):
                files.append(_File(place.number, place.begin, size))
        return files

    def _collect(self) -> tuple[list[Piece], Place, int | None]:
        """Return the next pieces, the place where they end, and that place as a position in the journal."""
        pieces: list[Piece] = []
        room, place, position = MAX_CHUNK_BYTES, self.place, None
        for file in self._files():
            if file.number < place.file or (pieces and room < MIN_PIECE_BYTES):
                continue
            offset = place.offset if file.number == place.file else 0
            size = min(file.end - offset, room)
            if size <= 0:
                continue
            data = self._read(file.number, offset, size)
            pieces.append(Piece(file.number, offset, data))
            room -= size
            place = Place(file.number, offset + size)
            position = None if file.begin is None else file.begin + place.offset
        return pieces, place, position

    def _read(self, index: int, offset: int, size: int) -> bytes:
        path = journal_path(index)
        try:
            data = self._engine.disk.read(path, offset, size)
            if not offset:
                self._seed = read_file_header(path, data[: FILE_HEADER.size], FileKind.JOURNAL)[1]
        except FileNotFoundError:
            raise FilesMissing(path) from None
        if len(data) != size:
            raise DamagedFile(path, f"it ends at byte {offset + len(data)}, before byte {offset + size}")
        return data
