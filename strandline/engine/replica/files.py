"""The files of a replica besides the journal: segments and checkpoints, and which of them are needed.

The names contain a checksum, so an object never changes, and two servers never overwrite each other's objects.
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

SEGMENTS = "segments"
CHECKPOINTS = "checkpoints"


def segment_object(entry: SegmentEntry | Describes) -> str:
    return f"{SEGMENTS}/{entry.id:08d}-{entry.edges:016x}.arrow"


def checkpoint_object(name: str, raw: bytes) -> str:
    number, _, kind = name.partition(".")
    return f"{CHECKPOINTS}/{number}-{xxhash.xxh3_64_hexdigest(raw)}.{kind}"


class ReplicaFiles:
    """Copies the files that a manifest names, and removes those that no state needs any more. One thread uses it."""

    def __init__(self, disk: Disk, store: ReplicaStore) -> None:
        self._disk = disk
        self._store = store
        #: The objects in the store; None: not listed yet.
        self._stored: set[str] | None = None
        #: The objects of the checkpoints that were copied or seen.
        self._checkpoints: dict[str, str] = {}
        self.bytes = 0
        self.objects = 0

    def copy(self, manifest: Manifest) -> State:
        """Copy what is missing and return the state, whose first chunk is not known yet.

        Raises MissingFile if housekeeping has removed a file in the meantime: there is a newer manifest. Raises OSError
        if the store cannot be reached.
        """
        stored = self._listed()
        checkpoints = [self._copy_checkpoint(name, stored) for name in manifest.checkpoints]
        for entry in manifest.segments:
            if entry.tier == "hot":
                self._copy_segment(entry, stored)
        self._checkpoints = dict(zip(manifest.checkpoints, checkpoints, strict=True))
        return State(encode_manifest(manifest), checkpoints, 0)

    def remove_others(self, manifest: Manifest, state: State) -> None:
        """Remove the objects that a state does not need. Call it when the state is stored."""
        needed = {segment_object(entry) for entry in manifest.segments if entry.tier == "hot"} | {*state.checkpoints}
        stored = self._listed()
        for name in sorted(stored - needed):
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
        found = checkpoint_object(name, raw)
        if found not in stored:
            self._put(found, raw, len(raw), stored)
        return found

    def _copy_segment(self, entry: SegmentEntry, stored: set[str]) -> None:
        name = segment_object(entry)
        if name in stored:
            return
        path = segment_path(entry.id)
        try:
            size = self._disk.size(path)
            if size != entry.size:
                raise DamagedFile(path, f"it has {size} bytes; expected {entry.size}")
            self._put(name, Path(self._disk.local_path(path)), size, stored)
        except FileNotFoundError:
            raise MissingFile(path) from None

    def _put(self, name: str, data: bytes | Path, size: int, stored: set[str]) -> None:
        self._store.put(name, data)
        stored.add(name)
        self.objects += 1
        self.bytes += size


def fetch_segment(disk: Disk, store: ReplicaStore, entry: Describes) -> bool:
    """Copy a segment from the replica to the data directory. Return False if the replica does not have it."""
    path = segment_path(entry.id)
    temporary = Path(disk.local_path(f"{path}.fetch"))
    try:
        if not store.fetch(segment_object(entry), temporary):
            return False
        if temporary.stat().st_size != entry.size:
            raise DamagedFile(path, f"the replica's copy has {temporary.stat().st_size} bytes; expected {entry.size}")
        disk.move(f"{path}.fetch", path)
    finally:
        temporary.unlink(missing_ok=True)
    return True
