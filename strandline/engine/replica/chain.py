"""The chain: the numbered chunks of a replica, of which only one server at a time can create the next.

A server takes over by creating the next chunk, with a higher term. The server before it then finds its next number
taken and knows that it has been replaced. Nothing else is needed to fence it: whatever it wants to store comes too
late, however long it was paused or cut off.

Chunks that no state needs are removed, except those with which a term began: the number that a replaced server tries
next must stay taken forever. A number in the middle of the chain may become free again. A server that creates such a
chunk as the beginning of its term has not taken over, and finds that out because there are later chunks.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import msgspec

from strandline.engine.errors import DamagedFile, Superseded
from strandline.engine.replica.chunk import (
    CHUNKS,
    Chunk,
    ChunkKind,
    Content,
    State,
    Term,
    chunk_name,
    chunk_number,
    content_of,
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
        #: The number of the last state; 0: there is none.
        self.state = 0
        #: The numbers of the chunks with which the terms began, the current one last.
        self.terms: list[int] = []
        #: Whether the previous server stopped after everything that it acknowledged was stored.
        self.is_complete = False
        #: No chunk before this number is left, except those of ``terms``; None: not known.
        self._clean_before: int | None = None
        #: The chunk that may or may not have been stored, because the answer of the store is missing, and the last
        #: state once it is.
        self._doubtful: tuple[bytes, int] | None = None

    def read(self, number: int) -> Chunk | None:
        name = chunk_name(number)
        raw = self.store.read(name)
        return None if raw is None else decode_chunk(f"{self.store.describe()}/{name}", number, raw)

    def read_state(self) -> State | None:
        """Return the last state. None: its chunk was removed, because there is a newer one."""
        chunk = self.read(self.state)
        return None if chunk is None else content_of(chunk, State)

    def numbers(self, after: int = 0) -> list[int]:
        """Return the numbers of the stored chunks after a number, in order."""
        found = self.store.list(CHUNKS, chunk_name(after) if after else "")
        return [number for each in found if (number := chunk_number(each.name)) is not None and number > after]

    def chunks(self, numbers: Sequence[int]) -> Iterator[Chunk | None]:
        """Read chunks, several at a time. None: the chunk was removed in the meantime."""
        with ThreadPoolExecutor(READERS, "replica-reader") as readers:
            for start in range(0, len(numbers), READERS):
                yield from readers.map(self.read, numbers[start : start + READERS])

    def find_end(self) -> Chunk | None:
        """Find the last chunk and continue after it. Returns None if there is no chunk."""
        while True:
            numbers = self.numbers(self.number)
            if not numbers:
                return self.read(self.number) if self.number else None
            last = self.read(numbers[-1])
            if last is not None:
                self._follow(last)
                return last

    def _follow(self, last: Chunk) -> None:
        self.number, self.term, self.state = last.number, last.term, last.state
        self.is_complete = last.kind is ChunkKind.END
        if not self.terms or self.terms[-1] != last.began:
            first = last if last.kind is ChunkKind.TERM else self.read(last.began)
            if first is None:
                raise DamagedFile(f"{self.store.describe()}/{chunk_name(last.began)}", "the chunk is missing")
            self.terms = [*content_of(first, Term).earlier, last.began]

    def take_over(self, term: Term) -> None:
        """Begin a new term. From now on, no other server can add to the chain, unless it takes over in turn.

        Call ``find_end`` first. Raises Superseded if yet another server takes over at the same time.
        """
        known = self.term
        for _ in range(ATTEMPTS):
            number = self.number + 1
            content = msgspec.structs.replace(term, earlier=self.terms)
            data = encode_chunk(number, known + 1, self.writer, content, began=number, state=self.state)
            if self._create(data) or self.store.read(chunk_name(number)) == data:
                if not self.numbers(number):
                    self.number, self.term, self.terms = number, known + 1, [*self.terms, number]
                    return
                # The number was free because its chunk had been removed.
            taken = self.read(number)
            if taken is None or taken.writer == self.writer:
                self.find_end()
            else:
                self._follow(taken)
            if self.term != known:
                raise self.superseded(known)
        raise OSError(f"{self.store.describe()}: the current server adds chunks faster than this one can take over")

    def add(self, content: Content) -> int:
        """Add a chunk and return its number. Raises Superseded if another server has taken over.

        After an OSError the chunk may have been stored: call ``settle`` before anything else is added.
        """
        assert self._doubtful is None, "settle the last chunk first"
        number = self.number + 1
        state = number if isinstance(content, State) else self.state
        data = encode_chunk(number, self.term, self.writer, content, began=self.terms[-1], state=state)
        self._doubtful = data, state
        self.settle()
        return self.number

    def settle(self) -> None:
        """Store the last chunk if it is not known whether it was stored."""
        if self._doubtful is None:
            return
        data, state = self._doubtful
        number = self.number + 1
        if not self._create(data):
            found = self.store.read(chunk_name(number))
            if found is None:
                # A server that takes over creates a chunk that is never removed. This is a conflict between requests.
                raise OSError(f"{self.store.describe()}/{chunk_name(number)}: a conflicting request is in progress")
            if found != data:
                raise self.superseded(self.term, number)
        self.number, self.state = number, state
        self._doubtful = None

    @property
    def is_settled(self) -> bool:
        return self._doubtful is None

    def remove_before(self, first: int) -> None:
        """Remove the chunks before a number, in order, except those with which a term began."""
        known, terms = self._clean_before, set(self.terms)
        numbers: Sequence[int] = range(known, first) if known is not None else self.numbers()
        for number in numbers:
            if number < first and number not in terms:
                self.store.delete(chunk_name(number))
        self._clean_before = first

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
