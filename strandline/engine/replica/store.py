"""The object store of a replica: whole objects, some of them created at most once.

Fencing depends on :meth:`ReplicaStore.create`: of two writers that create the same name, exactly one succeeds. S3, GCS,
Azure and their imitations have this as a conditional PUT, a file system as a hard link.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from strandline.engine.segments.cold_tier import (
    PART_BYTES,
    PARTS_AT_A_TIME,
    create_directory,
    directory_of,
    open_directory,
    open_object_store,
    reason_of,
    sync_path,
    without_secrets,
)
from strandline.late_import import LateModule

if TYPE_CHECKING:
    import obstore.exceptions
    from obstore.store import ObjectStore, RetryConfig
else:
    obstore = LateModule("obstore")

#: The replica repeats requests itself, because it must know whether a chunk was created by an earlier attempt.
NO_RETRIES: RetryConfig = {"max_retries": 0, "retry_timeout": timedelta(0)}


class StoredObject(NamedTuple):
    name: str
    size: int


class ReplicaStore(Protocol):
    """Failures are raised as OSError: the store cannot be reached, or refuses the request."""

    def create(self, name: str, data: bytes) -> bool:
        """Store an object durably. Return False, and change nothing, if the name exists."""
        ...

    def put(self, name: str, data: bytes | Path) -> None:
        """Store an object durably, replacing an existing one. A Path means the contents of that file."""
        ...

    def read(self, name: str) -> bytes | None:
        """Return an object, or None if it does not exist."""
        ...

    def fetch(self, name: str, target: Path) -> bool:
        """Copy an object durably to a new file. Return False if the object does not exist."""
        ...

    def list(self, folder: str, after: str = "") -> list[StoredObject]:
        """Return the objects of a folder whose names come after a name, in the order of their names."""
        ...

    def delete(self, name: str) -> None:
        """Remove an object. Does nothing if it does not exist."""
        ...

    def describe(self) -> str:
        """Return the location of the store, for messages."""
        ...


class StoreFailed(OSError):
    """The store cannot be reached, or refuses a request. Only the text for the log says which and why."""

    def __init__(self, place: str, why: str) -> None:
        super().__init__(errno.EIO, "the object store failed", place)
        self.why = why

    def __str__(self) -> str:
        return f"{self.filename}: {self.why}"


class ObjectStoreReplica:
    """A replica in ``s3://bucket/prefix``, in any other store that obstore knows (``gs://``, ``az://``), or in a
    directory.

    Credentials and other options that are not given come from the usual environment variables of the store.
    """

    def __init__(self, url: str, **options: str | bool) -> None:
        self._url = without_secrets(url.rstrip("/"))
        self._directory = directory_of(url)
        self._store: ObjectStore
        if self._directory is None:
            self._store = open_object_store("replica", url, options, NO_RETRIES)
        else:
            self._store = open_directory("a replica", self._directory, options)

    def describe(self) -> str:
        return self._url

    def create(self, name: str, data: bytes) -> bool:
        try:
            with self._errors(name):
                self._make_folder(name)
                obstore.put(self._store, name, data, mode="create", use_multipart=False)
                self._make_durable(name)
        except FileExistsError:
            return False
        return True

    def put(self, name: str, data: bytes | Path) -> None:
        with self._errors(name):
            self._make_folder(name)
            obstore.put(self._store, name, data, chunk_size=PART_BYTES, max_concurrency=PARTS_AT_A_TIME)
            self._make_durable(name)

    def read(self, name: str) -> bytes | None:
        try:
            with self._errors(name):
                return b"".join(self._parts(name))
        except FileNotFoundError:
            self._check_in_place(name)
            return None

    def fetch(self, name: str, target: Path) -> bool:
        try:
            with self._errors(name), target.open("wb", buffering=0) as file:
                for part in self._parts(name):
                    file.write(part)
                os.fsync(file.fileno())
        except FileNotFoundError:
            return False
        return True

    def list(self, folder: str, after: str = "") -> list[StoredObject]:
        with self._errors(folder):
            offset = after or None
            found = [
                StoredObject(item["path"], item["size"])
                for page in obstore.list(self._store, prefix=folder, offset=offset)
                for item in page
            ]
        return sorted(found)

    def delete(self, name: str) -> None:
        with self._errors(name), suppress(FileNotFoundError):
            obstore.delete(self._store, name)

    def _parts(self, name: str) -> Iterator[bytes]:
        """Yield the contents of an object. The time limit of a request includes its answer, so a part is small."""
        first = obstore.get(self._store, name, options={"range": (0, PART_BYTES)})
        size = first.meta["size"]
        yield first.bytes().to_bytes()
        for start in range(PART_BYTES, size, PART_BYTES):
            yield obstore.get_range(self._store, name, start=start, end=min(start + PART_BYTES, size)).to_bytes()

    def _check_in_place(self, name: str) -> None:
        """Raise if the directory was removed: an empty one in its place would be another replica."""
        if self._directory is not None and not self._directory.is_dir():
            raise StoreFailed(f"{self._url}/{name}", "the directory of the replica was removed")

    def _make_folder(self, name: str) -> None:
        """The library creates a folder when it is first needed, but does not flush that."""
        if self._directory is not None:
            self._check_in_place(name)
            create_directory((self._directory / name).parent)

    def _make_durable(self, name: str) -> None:
        """The library puts a finished file in place but does not flush it."""
        if self._directory is not None:
            path = self._directory / name
            sync_path(path)
            sync_path(path.parent)

    @contextmanager
    def _errors(self, name: str) -> Iterator[None]:
        place = f"{self._url}/{name}"
        try:
            yield
        except (obstore.exceptions.BaseError, OSError) as error:
            why = reason_of(error)
            # Stores report a conditional PUT whose condition does not hold in two ways.
            if isinstance(
                error,
                (obstore.exceptions.AlreadyExistsError, obstore.exceptions.PreconditionError, FileExistsError),
            ):
                raise FileExistsError(errno.EEXIST, "the object exists", place) from error
            if isinstance(error, FileNotFoundError) and "NoSuchBucket" not in why:
                raise FileNotFoundError(errno.ENOENT, why, place) from error
            raise StoreFailed(place, why) from error
