"""The chain: the numbered chunks of a replica, of which only one server at a time can create the next.

A server takes over by creating the next chunk, with a higher term. The server before it then finds its next number
taken and knows that it has been replaced. Nothing else is needed to fence it: whatever it wants to store comes too
late, however long it was paused or cut off.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from strandline.engine.errors import DamagedFile, Superseded
from strandline.engine.replica.chunk import (
    CHUNKS,
    Chunk,
    JournalPart,
    State,
    Term,
    chunk_name,
    chunk_number,
    decode_chunk,
    encode_chunk,
)
from strandline.engine.replica.leader import read_leader
from strandline.engine.replica.store import ReplicaStore

#: A server that takes over may lose the race for a number against the server that it replaces. Each attempt needs two
#: requests, and the other server creates a chunk only now and then.
ATTEMPTS = 200
#: Chunks are read this many at a time.
READERS = 8
#: The size of the ids of directories and processes.
ID_BYTES = 8


class Chain:
    """The chain as one server knows it. Not thread-safe: only one thread creates chunks."""

    def __init__(self, store: ReplicaStore, directory: bytes = b"") -> None:
        """``directory`` identifies the data directory among all that have written to this replica."""
        self.store = store
        self.writer = directory.ljust(ID_BYTES, b"\0") + os.urandom(ID_BYTES)
        #: The last chunk: its number and its term. 0: there is none.
        self.number = 0
        self.term = 0
        #: The chunk that may or may not have been stored, because the answer of the store is missing.
        self._doubtful: bytes | None = None

    def read(self, number: int) -> Chunk | None:
        name = chunk_name(number)
        raw = self.store.read(name)
        return None if raw is None else decode_chunk(f"{self.store.describe()}/{name}", number, raw)

    def numbers(self, after: int = 0) -> list[int]:
        """Return the numbers of the stored chunks after a number, in order."""
        found = self.store.list(CHUNKS, chunk_name(after) if after else "")
        return [number for each in found if (number := chunk_number(each.name)) is not None and number > after]

    def chunks(self, numbers: list[int]) -> Iterator[Chunk | None]:
        """Read chunks, several at a time. None: the chunk was removed in the meantime."""
        with ThreadPoolExecutor(READERS, "replica-reader") as readers:
            for start in range(0, len(numbers), 4 * READERS):
                yield from readers.map(self.read, numbers[start : start + 4 * READERS])

    def find_end(self) -> Chunk | None:
        """Find the last chunk and continue after it. Returns None if there is no chunk."""
        while True:
            numbers = self.numbers(self.number)
            if not numbers:
                return self.read(self.number) if self.number else None
            last = self.read(numbers[-1])
            if last is not None:
                self.number, self.term = last.number, last.term
                return last

    def take_over(self, term: Term) -> None:
        """Begin a new term. From now on, no other server can add to the chain, unless it takes over in turn.

        Call ``find_end`` first. Raises Superseded if yet another server takes over at the same time.
        """
        known = self.term
        for _ in range(ATTEMPTS):
            data = encode_chunk(self.number + 1, known + 1, self.writer, term)
            if self._create(data):
                self.number, self.term = self.number + 1, known + 1
                return
            taken = self.read(self.number + 1)
            if taken is None:
                # It was created and removed, so the end is somewhere else.
                self.find_end()
            else:
                if taken.writer == self.writer and taken.term == known + 1:
                    self.number, self.term = taken.number, taken.term
                    return
                self.number, self.term = taken.number, taken.term
            if self.term != known:
                raise self.superseded(known)
        raise OSError(f"{self.store.describe()}: the current server adds chunks faster than this one can take over")

    def add(self, content: JournalPart | State) -> int:
        """Add a chunk and return its number. Raises Superseded if another server has taken over.

        After an OSError the chunk may have been stored: call ``settle`` before anything else is added.
        """
        assert self._doubtful is None, "settle the last chunk first"
        data = encode_chunk(self.number + 1, self.term, self.writer, content)
        self._doubtful = data
        self.settle()
        return self.number

    def settle(self) -> None:
        """Store the last chunk if it is not known whether it was stored."""
        data = self._doubtful
        if data is None:
            return
        number = self.number + 1
        if not self._create(data) and self.store.read(chunk_name(number)) != data:
            raise self.superseded(self.term, number)
        self.number = number
        self._doubtful = None

    @property
    def is_settled(self) -> bool:
        return self._doubtful is None

    def remove(self, first: int, before: int) -> None:
        """Remove the chunks from a number to the one before another."""
        for number in range(first, before):
            self.store.delete(chunk_name(number))

    def _create(self, data: bytes) -> bool:
        return self.store.create(chunk_name(self.number + 1), data)

    def superseded(self, term: int, number: int = 0) -> Superseded:
        """Say who has taken over since this term. The number, or the last one, is taken by a chunk of a later term."""
        number = number or self.number
        leader = None
        # The number is taken, which is all that counts.
        with suppress(OSError, DamagedFile):
            leader = read_leader(self.store)
        if leader is None or leader.term <= term:
            return Superseded(number, term, 0, "")
        return Superseded(number, term, leader.term, leader.address)
