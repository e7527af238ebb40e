"""The files of a replica besides the journal: segments and checkpoints, and which of them are needed.

Every object has a name that is used once: it contains the term of its server and a number. A server that was replaced
may still remove objects that nothing needed when it was replaced, such as those of a takeover that failed. It never
removes one that a later server needs, even if that server has a file with the same contents.
"""

from __future__ import annotations

from pathlib import Path

import xxhash

from strandline.engine.disk import Disk
from strandline.engine.errors import DamagedFile, MissingFile
from strandline.engine.replica.chunk import State
from strandline.engine.replica.store import ReplicaStore
from strandline.engine.segments.store import Describes, segment_path
from strandline.engine.state.checkpoints import Manifest, SegmentEntry, checkpoint_path, encode_manifest
from strandline.spans import part

SEGMENTS = "segments"
CHECKPOINTS = "checkpoints"


def segment_key(entry: SegmentEntry | Describes) -> str:
    """Identify the contents of a segment in the names of objects."""
    return f"{SEGMENTS}/{entry.id:08d}-{entry.edges:016x}"


def checkpoint_key(name: str, raw: bytes) -> str:
    """Identify the contents of a checkpoint in the names of objects."""
    return f"{CHECKPOINTS}/{name.partition('.')[0]}-{xxhash.xxh3_64_hexdigest(raw)}"


def key_of(object: str) -> str:
    """Return the part of the name of an object that identifies its contents."""
    return object.rsplit("-", 2)[0]


class ReplicaFiles:
    """Copies the files that a manifest names, and removes those that no state needs any more. One thread uses it."""

    def __init__(self, disk: Disk, store: ReplicaStore) -> None:
        self._disk = disk
        self._store = store
        self._term = 0
        #: The number of objects that were put in this term.
        self._number = 0
        #: The objects that the last state needs and those that were put since, by their keys.
        self._objects: dict[str, str] = {}
        #: The objects in the store; None: not listed yet.
        self._stored: set[str] | None = None
        #: The objects of the checkpoints that were copied or seen.
        self._checkpoints: dict[str, str] = {}
        self.bytes = 0
        self.objects = 0

    def begin_term(self, term: int, state: State | None) -> None:
        """Continue after the last state of the chain."""
        self._term = term
        if state is not None:
            self._objects = {key_of(name): name for name in (*state.checkpoints, *state.segments)}

    def object_of(self, entry: Describes) -> str | None:
        """Return the object with a segment. Thread-safe."""
        return self._objects.get(segment_key(entry))

    def copy(self, manifest: Manifest) -> State:
        """Copy what is missing and return the state, whose first chunk is not known yet.

        Raises MissingFile if housekeeping has removed a file in the meantime: there is a newer manifest. Raises OSError
        if the store cannot be reached.
        """
        stored = self._listed()
        checkpoints = [self._copy_checkpoint(name, stored) for name in manifest.checkpoints]
        segments = [self._copy_segment(entry, stored) for entry in manifest.segments if entry.tier == "hot"]
        self._checkpoints = dict(zip(manifest.checkpoints, checkpoints, strict=True))
        return State(encode_manifest(manifest), checkpoints, 0, segments)

    def remove_others(self, state: State) -> None:
        """Remove the objects that a state does not need. Call it when the state is stored."""
        needed = {*state.checkpoints, *state.segments}
        stored = self._listed()
        for name in sorted(stored - needed):
            if self._objects.get(key_of(name)) == name:
                del self._objects[key_of(name)]
            self._store.delete(name)
            stored.discard(name)

    def _listed(self) -> set[str]:
        if self._stored is None:
            self._stored = {each.name for folder in (SEGMENTS, CHECKPOINTS) for each in self._store.list(folder)}
        return self._stored

    def _copy_checkpoint(self, name: str, stored: set[str]) -> str:
        known = self._checkpoints.get(name)
        if known is not None and known in stored:
            return known
        try:
            raw = self._disk.read(checkpoint_path(name))
        except FileNotFoundError:
            raise MissingFile(checkpoint_path(name)) from None
        key = checkpoint_key(name, raw)
        return self._objects.get(key) or self._put(key, name.partition(".")[2], raw, len(raw), stored)

    def _copy_segment(self, entry: SegmentEntry, stored: set[str]) -> str:
        key, path = segment_key(entry), segment_path(entry.id)
        known = self._objects.get(key)
        if known is not None:
            return known
        try:
            size = self._disk.size(path)
            if size != entry.size:
                raise DamagedFile(path, f"it has {size} bytes; expected {entry.size}")
            return self._put(key, "arrow", Path(self._disk.local_path(path)), size, stored)
        except FileNotFoundError:
            raise MissingFile(path) from None

    def _put(self, key: str, kind: str, data: bytes | Path, size: int, stored: set[str]) -> str:
        self._number += 1
        name = f"{key}-{self._term}-{self._number}.{kind}"
        # After an error, the object may be in the store.
        stored.add(name)
        with part("upload"):
            self._store.put(name, data)
        self._objects[key] = name
        self.objects += 1
        self.bytes += size
        return name


def fetch_segment(disk: Disk, store: ReplicaStore, entry: Describes, name: str) -> bool:
    """Copy a segment from the replica to the data directory. Return False if the replica does not have it."""
    path = segment_path(entry.id)
    temporary = Path(disk.local_path(f"{path}.fetch"))
    try:
        if not store.fetch(name, temporary):
            return False
        if temporary.stat().st_size != entry.size:
            raise DamagedFile(path, f"the replica's copy has {temporary.stat().st_size} bytes; expected {entry.size}")
        disk.move(f"{path}.fetch", path)
    finally:
        temporary.unlink(missing_ok=True)
    return True
