"""An object store in memory whose requests fail, are delayed, or let others run first, as a seed decides."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from strandline.engine.backup.pool import FILES, Folder, PoolFolder, PoolStores
from strandline.engine.errors import MissingFile
from strandline.engine.replica.store import StoredObject

PLACE = "simulated://bucket"

#: Called in the middle of a request with the name of the server that sent it.
Interruption = Callable[[str], None]


class SimulatedBucket:
    """The objects, and the requests that are still on their way. Lists are consistent."""

    def __init__(self, random: Random, failures: float) -> None:
        """``failures`` is the share of the requests that fail."""
        self.objects: dict[str, bytes] = {}
        self.failures = failures
        #: Changes whose senders got an error, and which take effect later or never.
        self.delayed: list[Callable[[], object]] = []
        #: Called before and after every request takes effect.
        self.interruption: Interruption = lambda server: None
        #: While this is set, every request succeeds at once.
        self.is_calm = False
        self.requests = 0
        self._random = random
        self._main = threading.get_ident()

    def arrive(self) -> None:
        """Let one of the delayed requests take effect."""
        if self.delayed:
            self.delayed.pop(self._random.randrange(len(self.delayed)))()

    def request(self, server: str, effect: Callable[[], object], *, changes: bool) -> object:
        if self.is_calm or threading.get_ident() != self._main:
            # Several chunks are read at once. Which thread comes first is not for the seed to decide.
            return effect()
        self.requests += 1
        self.interruption(server)
        fails = self._random.random() < self.failures
        fate = self._random.choice(["lost", "delayed", "unanswered"]) if fails else "done"
        if fate == "lost" or (fails and not changes):
            raise OSError(errno.EIO, "the request was lost")
        if fate == "delayed":
            self.delayed.append(effect)
            raise OSError(errno.ETIMEDOUT, "no answer; the request may arrive later")
        result = effect()
        self.interruption(server)
        if fate == "unanswered":
            raise OSError(errno.ETIMEDOUT, "no answer; the request has arrived")
        return result


class SimulatedStore:
    """The store as one server sees it."""

    def __init__(self, bucket: SimulatedBucket, server: str) -> None:
        self._bucket = bucket
        self._server = server

    def describe(self) -> str:
        return PLACE

    def create(self, name: str, data: bytes) -> bool:
        return bool(self._request(lambda: self._bucket.objects.setdefault(name, data) is data, changes=True))

    def put(self, name: str, data: bytes | Path) -> None:
        content = data if isinstance(data, bytes) else data.read_bytes()
        self._request(lambda: self._bucket.objects.__setitem__(name, content), changes=True)

    def read(self, name: str) -> bytes | None:
        found = self._request(lambda: self._bucket.objects.get(name), changes=False)
        assert found is None or isinstance(found, bytes)
        return found

    def fetch(self, name: str, target: Path) -> bool:
        found = self.read(name)
        if found is not None:
            target.write_bytes(found)
        return found is not None

    def list(self, folder: str, after: str = "") -> list[StoredObject]:
        def found() -> list[StoredObject]:
            names = [name for name in self._bucket.objects if name.startswith(f"{folder}/") and name > after]
            return [StoredObject(name, len(self._bucket.objects[name])) for name in sorted(names)]

        result = self._request(found, changes=False)
        assert isinstance(result, list)
        return result

    def delete(self, name: str) -> None:
        self._request(lambda: self._bucket.objects.pop(name, None), changes=True)

    def _request(self, effect: Callable[[], object], *, changes: bool) -> object:
        return self._bucket.request(self._server, effect, changes=changes)


class SimulatedFolder:
    """A folder of the bucket, as a pool of backups or a cold tier sees it."""

    def __init__(self, bucket: SimulatedBucket, server: str, folder: str) -> None:
        self._bucket = bucket
        self._server = server
        self._folder = folder

    def describe(self) -> str:
        return f"{PLACE}/{self._folder}"

    def put(self, name: str, data: bytes | Path) -> None:
        content = data if isinstance(data, bytes) else data.read_bytes()
        self._request(lambda: self._bucket.objects.__setitem__(self._path(name), content), changes=True)

    def copy(self, name: str, source: str) -> bool:
        def copy() -> bool:
            found = self._bucket.objects.get(source.removeprefix(f"{PLACE}/"))
            if found is not None:
                self._bucket.objects[self._path(name)] = found
            return found is not None

        return bool(self._request(copy, changes=True))

    def read(self, name: str, start: int, end: int) -> bytes:
        found = self._request(lambda: self._bucket.objects.get(self._path(name)), changes=False)
        if found is None:
            raise MissingFile(self._path(name))
        assert isinstance(found, bytes)
        return found[start:end]

    def size(self, name: str) -> int | None:
        return self.sizes().get(name)

    def pages(self) -> Iterator[dict[str, int]]:
        yield self.sizes()

    def sizes(self) -> dict[str, int]:
        def found() -> dict[str, int]:
            prefix = self._path("")
            return {
                name.removeprefix(prefix): len(data)
                for name, data in sorted(self._bucket.objects.items())
                if name.startswith(prefix)
            }

        result = self._request(found, changes=False)
        assert isinstance(result, dict)
        return result

    def list(self) -> list[str]:
        return sorted(self.sizes())

    def delete(self, name: str) -> None:
        self._request(lambda: self._bucket.objects.pop(self._path(name), None), changes=True)

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}"

    def _request(self, effect: Callable[[], object], *, changes: bool) -> object:
        return self._bucket.request(self._server, effect, changes=changes)


def simulated_pool(bucket: SimulatedBucket, server: str) -> PoolStores:
    """The pool of backups in the prefix of the replica."""
    folders: dict[Folder, PoolFolder] = {
        folder: SimulatedFolder(bucket, server, folder) for folder in (*FILES, "backups")
    }
    return PoolStores(folders, SimulatedStore(bucket, server))
