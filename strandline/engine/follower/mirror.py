"""The mirror: a data directory that is made from a replica and kept current from its chunks.

Nothing in it is synced, because the replica has everything. A start makes it again, except for the segments, which are
fetched when they are read and kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from strandline.engine.disk import Disk
from strandline.engine.errors import BadConfig, DamagedFile, EngineError
from strandline.engine.journal.file import DIRECTORY, FLUSHED, journal_indexes, journal_path
from strandline.engine.replica.chain import Chain
from strandline.engine.replica.chunk import Chunk, ChunkKind, JournalPart, Piece, State, Term, content_of
from strandline.engine.replica.files import fetch_segment
from strandline.engine.replica.object_names import key_of, segment_key
from strandline.engine.replica.store import ReplicaStore
from strandline.engine.replica.takeover import TAKEN_OVER
from strandline.engine.segments.store import HOT_DIRECTORY, Describes, object_name
from strandline.engine.state.checkpoints import (
    CHECKPOINTS,
    MANIFEST,
    Manifest,
    checkpoint_path,
    parse_manifest,
    write_manifest,
)

#: A chunk that does not exist may have been removed, if the follower was paused for longer than a round of the leader's
#: housekeeping. Only a list of the chunks shows that, which stores charge like a write, so it is requested this rarely.
LOOKS_PER_LIST = 50


class NoLeaderYet(EngineError):
    """No server has stored a state in the replica."""

    def __init__(self, replica: str) -> None:
        super().__init__(f"no server has used the replica {replica} yet; start one with --replica {replica}")


class ChunksRemoved(EngineError):
    """The leader has removed chunks that were not read yet, or segments that one of them needs. The mirror has to be
    made again from the last state."""


class Mirror:
    """Not thread-safe, except for :meth:`fetch`."""

    def __init__(self, disk: Disk, store: ReplicaStore, looks_per_list: int = LOOKS_PER_LIST) -> None:
        self._disk = disk
        self._looks_per_list = looks_per_list
        #: How often the next chunk was looked for and did not exist.
        self._empty_looks = 0
        self._store = store
        self._chain = Chain(store)
        #: The last chunk that was read.
        self.number = 0
        self.term = 0
        #: Where clients reach the leader, as host:port; empty if unknown.
        self.leader = ""
        #: The objects with segments, by what they contain.
        self._objects: dict[str, str] = {}

    def describe(self) -> str:
        return self._store.describe()

    def begin(self) -> Manifest:
        """Make the directory from the last state. Raises NoLeaderYet, DamagedFile and OSError."""
        self._chain = Chain(self._store)
        self._chain.find_end()
        if not self._chain.state:
            raise NoLeaderYet(self.describe())
        found = self._chain.read(self._chain.state)
        if found is None:
            raise ChunksRemoved("the last state of the replica was removed while it was read")
        state = content_of(found, State)
        disk = self._disk
        # Another start of a server must not take this directory for its own.
        if not disk.exists(TAKEN_OVER):
            if disk.exists(MANIFEST):
                why = "it has the data of a server that does not follow another one; choose another directory"
                raise BadConfig("data_dir", disk.local_path("").rstrip("/"), why)
            disk.write_file(TAKEN_OVER, b"")
        disk.remove(FLUSHED)
        for folder in (DIRECTORY, HOT_DIRECTORY, CHECKPOINTS):
            disk.make_directory(folder)
        for folder in (DIRECTORY, CHECKPOINTS):
            for name in disk.list(folder):
                disk.remove(f"{folder}/{name}")
        manifest = self.take_state(state)
        sizes = {object_name(entry.id): entry.size for entry in manifest.segments}
        for name in disk.list(HOT_DIRECTORY):
            if sizes.get(name) != disk.size(f"{HOT_DIRECTORY}/{name}"):
                disk.remove(f"{HOT_DIRECTORY}/{name}")
        began = self._chain.read(found.began)
        self.term, self.leader = found.term, "" if began is None else content_of(began, Term).address
        self.number = state.first_chunk - 1
        if self.number < found.number:
            for chunk in self.new_chunks():
                if chunk.kind is ChunkKind.JOURNAL:
                    self.write(content_of(chunk, JournalPart), manifest.boundary)
                if chunk.number == found.number:
                    break
            else:
                raise ChunksRemoved(f"chunk {self.number + 1} of {self.describe()} was removed before it was read")
            self.number = found.number
        return manifest

    def new_chunks(self) -> Iterator[Chunk]:
        """Yield the chunks after the last one. Each counts as read when the next one is requested, so that a chunk that
        could not be processed is yielded again. Raises ChunksRemoved if some of them no longer exist."""
        while True:
            chunk = self._chain.read(self.number + 1)
            if chunk is None:
                self._empty_looks += 1
                later = [] if self._empty_looks % self._looks_per_list else self._chain.numbers(self.number)
                if not later:
                    return
                if later[0] > self.number + 1:
                    raise ChunksRemoved(f"chunk {self.number + 1} of {self.describe()} was removed before it was read")
                continue
            if chunk.kind is ChunkKind.TERM:
                self.term, self.leader = chunk.term, content_of(chunk, Term).address
            yield chunk
            self.number = chunk.number

    def write(self, part: JournalPart, boundary: int) -> None:
        """Add bytes to the journal files from ``boundary`` on."""
        for piece in part.pieces:
            if piece.index >= boundary:
                self._write(piece)

    def _write(self, piece: Piece) -> None:
        path = journal_path(piece.index)
        size = self._disk.size(path) if self._disk.exists(path) else 0
        if piece.offset > size:
            raise DamagedFile(self.describe(), f"a chunk continues {path} at byte {piece.offset}; it has {size} bytes")
        with closing(self._disk.append_file(path)) as file:
            if not piece.offset and size:
                # A leader that starts again ships the files from the boundary on once more.
                file.truncate(0)
                size = 0
            file.write([piece.data[size - piece.offset :]])

    def take_state(self, state: State) -> Manifest:
        """Fetch the checkpoints of a state and write its manifest. Raises ChunksRemoved if an object no longer exists:
        there is a newer state."""
        manifest = parse_manifest(state.manifest, self.describe())
        for name, stored in zip(manifest.checkpoints, state.checkpoints, strict=True):
            if not self._disk.exists(checkpoint_path(name)):
                raw = self._store.read(stored)
                if raw is None:
                    raise ChunksRemoved(f"{stored} was removed before it was read")
                self._disk.write_file(checkpoint_path(name), raw)
        self._objects = {key_of(name): name for name in state.segments}
        write_manifest(self._disk, manifest)
        return manifest

    def clean_up(self, manifest: Manifest) -> None:
        """Remove what the manifest has replaced."""
        for name in self._disk.list(CHECKPOINTS):
            if name not in manifest.checkpoints:
                self._disk.remove(checkpoint_path(name))
        for index in journal_indexes(self._disk):
            if index < manifest.boundary:
                self._disk.remove(journal_path(index))

    def fetch(self, entry: Describes) -> bool:
        """Fetch a segment. Return False if the replica no longer has it."""
        name = self._objects.get(segment_key(entry))
        return name is not None and fetch_segment(self._disk, self._store, entry, name)
