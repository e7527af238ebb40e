"""The files of a replica besides the journal: segments and checkpoints, and which of them are needed.

Backups may be in the same prefix and use the same objects; see :mod:`strandline.engine.replica.sharing`. Files that
only backups have put there are left alone.

Every object has a name that is used once: it contains the term of its server and a number. A server that was replaced
may still remove objects that nothing needed when it was replaced, such as those of a takeover that failed. It never
removes one that a later server needs, even if that server has a file with the same contents.
"""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

from strandline.engine.disk import Disk
from strandline.engine.errors import DamagedFile, MissingFile
from strandline.engine.replica.chunk import State
from strandline.engine.replica.object_names import CHECKPOINTS, SEGMENTS, checkpoint_key, key_of, segment_key
from strandline.engine.replica.sharing import SharedObjects, is_shared, objects_of
from strandline.engine.replica.store import ReplicaStore
from strandline.engine.segments.store import Describes, segment_path
from strandline.engine.state.checkpoints import Manifest, SegmentEntry, checkpoint_path, encode_manifest
from strandline.spans import part

log = logging.getLogger(__name__)


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
        #: The last state that is known to be stored.
        self._last: State | None = None
        self._shared = SharedObjects(store)
        #: What was wrong with the files of backups when they were last read.
        self._why = ""
        self.bytes = 0
        self.objects = 0

    def begin_term(self, term: int, state: State | None) -> None:
        """Continue after the last state of the chain."""
        self._term = term
        self._last = state
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
        state = State(encode_manifest(manifest), checkpoints, 0, segments)
        return msgspec.structs.replace(state, kept=self._kept(state))

    def note_stored(self, state: State) -> None:
        """Note that a state is stored. Thread-safe."""
        self._last = state

    def _kept(self, state: State) -> list[str]:
        """Return the objects of the last state that only backups need from now on."""
        left = set() if self._last is None else objects_of(self._last) - objects_of(state)
        if not left:
            return []
        named = self._named()
        return sorted(left if named is None else left & named)

    def remove_others(self, state: State) -> None:
        """Remove the objects that neither a state nor a backup needs. Call it when the state is stored."""
        stored = self._listed()
        others = stored - objects_of(state)
        for name in others:
            # A later state must not name it again.
            if self._objects.get(key_of(name)) == name:
                del self._objects[key_of(name)]
        named = self._named() if others else None
        if named is None:
            return
        for name in sorted(others - named):
            self._store.delete(name)
            stored.discard(name)

    def _named(self) -> set[str] | None:
        """Return the objects that backups need; None: unknown, so that nothing may be removed."""
        try:
            found = self._shared.named()
        except DamagedFile as error:
            if str(error) != self._why:
                log.error("%s. The replica removes no segments and checkpoints until this file is removed", error)
            self._why = str(error)
            return None
        self._why = ""
        return found

    def _listed(self) -> set[str]:
        if self._stored is None:
            self._stored = {
                each.name
                for folder in (SEGMENTS, CHECKPOINTS)
                for each in self._store.list(folder)
                if is_shared(each.name.rpartition("/")[2])
            }
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
