"""Begin a term: check that a data directory may continue a replica, or make a directory from it.

A server begins a term before it opens its data directory. From then on the chain ends with its own chunk, so what it
reads of the chain is everything that was ever acknowledged as ``replicated``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from strandline.engine.clock import SystemClock
from strandline.engine.disk import Disk
from strandline.engine.errors import BadConfig, DamagedFile, EngineError
from strandline.engine.journal.file import DIRECTORY, FLUSHED, journal_path
from strandline.engine.journal.frame import FILE_HEADER, FileKind, read_file_header
from strandline.engine.replica.chain import ID_BYTES, Chain
from strandline.engine.replica.chunk import (
    Chunk,
    ChunkKind,
    JournalPart,
    Piece,
    State,
    Term,
    chunk_name,
    content_of,
)
from strandline.engine.replica.leader import Leader, write_leader
from strandline.engine.segments.store import HOT_DIRECTORY
from strandline.engine.state.checkpoints import (
    CHECKPOINTS,
    MANIFEST,
    JournalEntry,
    Manifest,
    checkpoint_path,
    encode_manifest,
    parse_manifest,
    read_manifest,
    write_manifest,
)

#: A file in a directory that is being made from a replica. It is removed when the takeover is complete: what follows
#: from it is sealed, and the replica has it.
TAKEN_OVER = "TAKEN_OVER"
#: A file with a random id that distinguishes this directory from others of the same history.
WRITER = "REPLICA"
#: A server that begins a term gives no sign of life until it has read everything. Standbys wait this long for it.
START_LEASE_MS = 600_000


class ReplicaAhead(EngineError):
    """The replica has records that the data directory lacks: another server has written to it since, or the directory
    is an old copy."""

    def __init__(self, directory: str, replica: str) -> None:
        super().__init__(
            f"the replica {replica} is ahead of the data directory {directory}: another server has taken over, or the "
            "directory is an old copy. Move the directory away; records that only it has stay in it. Then start with "
            "--standby to wait for the other server, or without it to take over from that server"
        )


class Begun(NamedTuple):
    #: Whether the directory was made from the replica, so that records of durabilities below ``replicated`` may be
    #: missing.
    restored: bool
    #: The last state of the chain; None: there is none.
    state: State | None


def own_id(disk: Disk) -> bytes:
    """Return the id of a locked directory, which it gets when it first has a replica."""
    with suppress(FileNotFoundError, ValueError):
        found = bytes.fromhex(disk.read(WRITER).decode("ascii", "replace").strip())
        if len(found) == ID_BYTES:
            return found
    made = os.urandom(ID_BYTES)
    disk.write_file(WRITER, made.hex().encode() + b"\n")
    return made


def check_is_own(disk: Disk) -> None:
    """Refuse a directory that is a copy of a replica: that of a follower, or of an unfinished takeover. It may lack
    files, and the next start with the replica makes it again, without what was written to it."""
    if disk.exists(TAKEN_OVER):
        why = "it is a copy of a replica; set replica or follow to that replica, or choose another directory"
        raise BadConfig("data_dir", disk.local_path("").rstrip("/"), why)


def begin_term(
    disk: Disk,
    chain: Chain,
    address: str,
    lease_ms: int,
    expected_term: int | None = None,
    proceed: Callable[[], None] = lambda: None,
) -> Begun:
    """Take over the replica for a locked data directory. An empty directory gets the contents of the replica.

    With ``expected_term``, do so only if the term of the chain is still this one. ``proceed`` is called again and again
    while the directory is being made; what it raises ends that. The directory then counts as empty.

    Raises ReplicaAhead, Superseded, BadConfig, DamagedFile, and OSError if the store cannot be reached.
    """
    # An unfinished takeover has answered no requests, so the directory is made again.
    own = None if disk.exists(TAKEN_OVER) else read_manifest(disk)
    end = chain.find_end()
    if end is None:
        check_is_own(disk)
    if expected_term is not None and chain.term != expected_term:
        raise chain.superseded(expected_term)
    if own is not None and end is not None:
        _check_contains(disk, own, chain, end.number)
    chain.take_over(Term(address, SystemClock().now()))
    if own is not None and end is not None and chain.number != end.number + 1:
        # The other server was alive and has written more in the meantime.
        _check_contains(disk, own, chain, chain.number - 1)
    write_leader(chain.store, Leader(chain.term, address, max(lease_ms, START_LEASE_MS) if lease_ms else 0))
    if own is not None or end is None:
        return Begun(False, _last_state(chain))
    return Begun(True, _restore(disk, chain, proceed))


def has_data(directory: str | os.PathLike[str]) -> bool:
    """Return whether a directory is a data directory, as opposed to one that is empty or does not exist. A directory
    whose takeover is unfinished counts as empty: another server may have taken over since."""
    return Path(directory, MANIFEST).exists() and not Path(directory, TAKEN_OVER).exists()


def finish(disk: Disk) -> None:
    """Note that a takeover is complete."""
    disk.remove(TAKEN_OVER)
    disk.sync_directory("")


def _check_contains(disk: Disk, manifest: Manifest, chain: Chain, last: int) -> None:
    """Raise unless the data directory has everything that the chain has up to the chunk ``last``.

    A server that makes its directory from the replica ships a state before it answers requests. If it only began a
    term, it has changed nothing.
    """
    place, replica = disk.local_path("").rstrip("/"), chain.store.describe()
    for number in range(last, 0, -1):
        chunk = chain.read(number)
        if chunk is None:
            break
        if chunk.kind in (ChunkKind.TERM, ChunkKind.END):
            continue
        if chunk.writer[:ID_BYTES] != chain.writer[:ID_BYTES]:
            raise ReplicaAhead(place, replica)
        if chunk.kind is ChunkKind.STATE:
            state = parse_manifest(content_of(chunk, State).manifest, chunk_name(number))
            if state.id != manifest.id:
                raise BadConfig("replica", replica, f"it belongs to another data directory ({state.id})")
            if state.boundary > manifest.boundary:
                raise ReplicaAhead(place, replica)
            return
        part = content_of(chunk, JournalPart)
        if not _has(disk, manifest, part):
            raise ReplicaAhead(place, replica)
        return


def _has(disk: Disk, manifest: Manifest, part: JournalPart) -> bool:
    index, end = part.end
    if index < manifest.boundary:
        # Sealed since. The file is gone, but its number was used only once in this directory.
        return True
    path = journal_path(index)
    try:
        if disk.size(path) < end:
            return False
        return read_file_header(path, disk.read(path, 0, FILE_HEADER.size), FileKind.JOURNAL)[1] == part.seed
    except (FileNotFoundError, DamagedFile):
        return False


def _last_state(chain: Chain) -> State | None:
    if not chain.state:
        return None
    return content_of(_present(chain, chain.state, chain.read(chain.state)), State)


def _present(chain: Chain, number: int, chunk: Chunk | None) -> Chunk:
    if chunk is None:
        raise DamagedFile(f"{chain.store.describe()}/{chunk_name(number)}", "the chunk is missing")
    return chunk


def _restore(disk: Disk, chain: Chain, proceed: Callable[[], None]) -> State:
    """Make the data directory, and return the state from which it was made. The manifest is written last: without it,
    the directory counts as empty. The chain ends with the caller's term, so nothing that is needed changes."""
    _empty(disk)
    state = _last_state(chain)
    if state is None:
        # The server before has acknowledged nothing as replicated, but may have created logs.
        manifest = Manifest()
        state = State(encode_manifest(manifest), [], chain.number)
    else:
        manifest = parse_manifest(state.manifest, chain.store.describe())
    for name, stored in zip(manifest.checkpoints, state.checkpoints, strict=True):
        proceed()
        raw = chain.store.read(stored)
        if raw is None:
            raise DamagedFile(f"{chain.store.describe()}/{stored}", "the object is missing")
        disk.write_file(checkpoint_path(name), raw)
    sizes = _restore_journal(disk, chain, range(state.first_chunk, chain.number), manifest.boundary, proceed)
    entries = [JournalEntry(index, sizes[index]) for index in sorted(sizes)]
    if entries:
        # The last chunk may end within a write, which was not acknowledged.
        entries[-1] = JournalEntry(entries[-1].index)
    for folder in (DIRECTORY, HOT_DIRECTORY, CHECKPOINTS, ""):
        disk.sync_directory(folder)
    write_manifest(disk, msgspec.structs.replace(manifest, journals=entries))
    return state


def _empty(disk: Disk) -> None:
    """Prepare the data directory, and remove what an unfinished takeover has left in it."""
    if not disk.exists(TAKEN_OVER):
        for folder in (DIRECTORY, HOT_DIRECTORY, CHECKPOINTS):
            if disk.list(folder):
                raise DamagedFile(
                    MANIFEST,
                    f"it is missing, but {folder}/ has files. Put the manifest back, or start with an empty directory: "
                    "the server then begins with what the replica has",
                )
        disk.write_file(TAKEN_OVER, b"")
    # The flush mark of an earlier attempt names files that do not come back.
    for name in (MANIFEST, FLUSHED):
        disk.remove(name)
    for folder in (DIRECTORY, HOT_DIRECTORY, CHECKPOINTS):
        disk.make_directory(folder)
        for name in disk.list(folder):
            disk.remove(f"{folder}/{name}")


def _restore_journal(
    disk: Disk, chain: Chain, numbers: Sequence[int], boundary: int, proceed: Callable[[], None]
) -> dict[int, int]:
    """Write the journal files from the boundary on, chunk by chunk. Return their sizes."""
    sizes: dict[int, int] = {}
    file: _RestoredFile | None = None
    try:
        for number, found in zip(numbers, chain.chunks(numbers), strict=True):
            proceed()
            chunk = _present(chain, number, found)
            if chunk.kind is not ChunkKind.JOURNAL:
                continue
            for piece in content_of(chunk, JournalPart).pieces:
                if piece.index < boundary:
                    continue
                size = sizes.get(piece.index, 0)
                if piece.offset > size:
                    raise DamagedFile(
                        f"{chain.store.describe()}/{chunk_name(number)}",
                        f"it continues journal file {piece.index} at byte {piece.offset}, which has {size} bytes",
                    )
                if file is None or file.index != piece.index:
                    if file is not None:
                        file.finish()
                    file = _RestoredFile(disk, piece.index, size)
                file.put(piece)
                sizes[piece.index] = file.size
        if file is not None:
            file.finish()
    finally:
        if file is not None:
            file.close()
    return sizes


class _RestoredFile:
    """A journal file that is being written from pieces."""

    def __init__(self, disk: Disk, index: int, size: int) -> None:
        self._disk = disk
        self._path = journal_path(index)
        self._file = disk.append_file(self._path)
        self.index = index
        self.size = size

    def put(self, piece: Piece) -> None:
        """Write a piece. A server that starts again in its directory ships the files from the boundary on once more, so
        the file may have the bytes already."""
        data = piece.data
        if piece.offset < self.size:
            known = self._disk.read(self._path, piece.offset, len(data))
            if data.startswith(known):
                data = data[len(known) :]
            else:
                data += self._disk.read(self._path, piece.offset + len(data))
                self._file.truncate(piece.offset)
        if data:
            self._file.write([data])
        self.size = max(self.size, piece.offset + len(piece.data))

    def finish(self) -> None:
        self._file.sync()
        self.close()

    def close(self) -> None:
        self._file.close()
