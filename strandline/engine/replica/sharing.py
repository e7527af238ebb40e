"""The objects that backups share with a replica in the same prefix: they name them instead of storing them again.

A backup may be made by any process, at any time, while the leader, or a server that does not know yet that it was
replaced, removes objects. Two rules make sure that no backup names an object that vanishes:

- A backup first creates a *claim* with the names of the objects. Then it reads the last state of the chain, which must
  name each of them, as needed or as kept. Then it creates the description that completes it, and removes the claim.
- A server removes an object only after a state that does not name it is stored. It lists the claims first and the
  descriptions then, both after that moment, and spares what they name.

If the backup has read the state before the server stored the next one, the server finds the claim, or the description
that has replaced it. If it has read that state or a later one, the object is named there and is not removed: an object
that a state does not name is never named by a later one. It does not matter when a removal takes effect, or who has
replaced whom in the meantime.

A description is created at most once. A claim that a server has seen for ``STALE_SECONDS`` is that of a process which
was stopped: the server creates an empty description in its place. Should the process continue, it finds its name taken.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from time import monotonic

import msgspec
import xxhash

from strandline.engine.errors import DamagedFile, EngineError
from strandline.engine.file_names import is_name
from strandline.engine.replica.chain import Chain
from strandline.engine.replica.chunk import State
from strandline.engine.replica.store import ReplicaStore

CLAIMS = "claims"
#: The folder of the descriptions in a pool of backups.
BACKUPS = "backups"
#: A claim exists for a few requests. A backup whose claim is removed too early takes another name.
STALE_SECONDS = 3600.0
#: A backup that runs at the same time may remove a description between its listing and its reading.
ATTEMPTS = 10

log = logging.getLogger(__name__)


class NameTaken(Exception):
    """Another backup has this name, or the server has taken it because the claim was old."""


class NotShared(EngineError):
    """The replica no longer keeps an object that a backup wants to use."""

    def __init__(self, object: str) -> None:
        super().__init__(f"the replica no longer keeps {object}")
        self.object = object


class Claim(msgspec.Struct, frozen=True):
    """The objects that a backup is about to name."""

    objects: list[str]


class _Description(msgspec.Struct):
    checksum: str
    backup: msgspec.Raw


class _File(msgspec.Struct):
    name: str


class _Files(msgspec.Struct):
    segments: list[_File]
    checkpoints: list[_File]


def is_shared(name: str) -> bool:
    """Return whether a file of a pool, given by its name without the folder, belongs to a replica."""
    return is_name("replica object", name)


def objects_of(state: State) -> set[str]:
    """Return the objects that exist as long as this is the last state."""
    return {*state.checkpoints, *state.segments, *state.kept}


def last_state(store: ReplicaStore) -> State | None:
    """Return the last state of the chain, or None if there is none."""
    chain = Chain(store)
    for _ in range(ATTEMPTS):
        # None: there is a newer state, and this one was removed.
        if chain.find_end() is None or not chain.state:
            return None
        if (state := chain.read_state()) is not None:
            return state
    raise OSError(f"{store.describe()}: the server stores states faster than this process can read them")


def complete(store: ReplicaStore, name: str, objects: Iterable[str], description: bytes) -> None:
    """Complete the backup ``name``, which names these objects of the replica.

    Raises NotShared if one of them may be removed, and NameTaken; both leave nothing. After an OSError the description
    may exist, now or later. It is valid then.
    """
    claim, wanted = f"{CLAIMS}/{name}.json", sorted(objects)
    if not store.create(claim, msgspec.json.encode(Claim(wanted))):
        raise NameTaken
    try:
        check_kept(store, wanted)
        target = f"{BACKUPS}/{name}.json"
        try:
            is_created = store.create(target, description)
        except OSError:
            is_created = store.read(target) == description
            if not is_created:
                raise
        if not is_created:
            raise NameTaken
    except (NotShared, NameTaken):
        store.delete(claim)
        raise
    try:
        store.delete(claim)
    except OSError as error:
        # The leader removes it later.
        log.warning("%s could not be removed: %s", claim, error)


def check_kept(store: ReplicaStore, objects: Iterable[str]) -> None:
    """Check that the last state names all of these objects. Without a state, there is no server
    that removes any."""
    state = last_state(store)
    if state is not None:
        for name in sorted(set(objects) - objects_of(state)):
            raise NotShared(f"{store.describe()}/{name}")


class SharedObjects:
    """The objects that claims and descriptions name, as a server that removes others sees them."""

    def __init__(self, store: ReplicaStore, now: Callable[[], float] = monotonic) -> None:
        self._store = store
        self._now = now
        #: The descriptions that were read, and the objects that each of them names. Descriptions do not change.
        self._named: dict[str, frozenset[str]] = {}
        #: When each claim was first seen.
        self._seen: dict[str, float] = {}

    def named(self) -> set[str]:
        """Return the objects that must not be removed.

        Raises DamagedFile if a claim or a description cannot be read: nothing may be removed then.
        """
        # In this order: a claim is removed when its description exists.
        claims = self._read_claims()
        names = self._read_descriptions()
        return set().union(*claims.values(), *names.values())

    def _read_claims(self) -> Mapping[str, frozenset[str]]:
        found: dict[str, frozenset[str]] = {}
        listed = [each.name for each in self._store.list(CLAIMS)]
        self._seen = {name: self._seen.get(name, self._now()) for name in listed}
        for name in listed:
            if self._now() - self._seen[name] >= STALE_SECONDS:
                self._give_up(name)
            elif (raw := self._store.read(name)) is not None:
                try:
                    found[name] = frozenset(msgspec.json.decode(raw, type=Claim).objects)
                except msgspec.MsgspecError as error:
                    raise DamagedFile(f"{self._store.describe()}/{name}", str(error)) from error
        return found

    def _give_up(self, claim: str) -> None:
        """Make sure that the backup of a claim is complete or can never be completed, and remove the claim."""
        self._store.create(f"{BACKUPS}/{claim.rpartition('/')[2]}", b"")
        self._store.delete(claim)

    def _read_descriptions(self) -> Mapping[str, frozenset[str]]:
        listed = {each.name for each in self._store.list(BACKUPS) if each.size}
        self._named = {name: named for name, named in self._named.items() if name in listed}
        for name in sorted(listed - set(self._named)):
            # None: it was removed after it was listed, and needs nothing any more.
            if (raw := self._store.read(name)) is not None:
                self._named[name] = _named_in(f"{self._store.describe()}/{name}", raw)
        return self._named


def _named_in(place: str, raw: bytes) -> frozenset[str]:
    try:
        outer = msgspec.json.decode(raw, type=_Description)
        if xxhash.xxh3_128_hexdigest(outer.backup) != outer.checksum:
            raise DamagedFile(place, "its checksum does not match")
        files = msgspec.json.decode(outer.backup, type=_Files)
    except msgspec.MsgspecError as error:
        raise DamagedFile(place, str(error)) from error
    return frozenset(
        f"{folder}/{file.name}"
        for folder, listed in (("segments", files.segments), ("checkpoints", files.checkpoints))
        for file in listed
        if is_shared(file.name)
    )
