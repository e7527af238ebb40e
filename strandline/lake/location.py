"""The location of the lake: a directory or an object store, and the files in it."""

from __future__ import annotations

import os
import stat
import time
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from strandline.arrow import pa
from strandline.engine.errors import DamagedFile
from strandline.engine.segments.cold_tier import directory_of
from strandline.late_import import LateModule

if TYPE_CHECKING:
    import obstore.exceptions
    import obstore.store
else:
    obstore = LateModule("obstore")


class FileState(NamedTuple):
    """Identifies the contents of a file: a changed file has another size or another ``mark``."""

    size: int
    mark: str


class _Reader:
    """A file in an object store, with the methods that Arrow expects of a file."""

    closed = False

    def __init__(self, file: Any) -> None:
        self.seek = file.seek
        self.tell = file.tell
        self._read = file.read

    def read(self, size: int = -1) -> bytes:
        return bytes(self._read() if size < 0 else self._read(size))

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        """Do nothing: nothing is held open."""


def _inside(directory: Path, name: str) -> Path:
    """Return the path of a file of the lake. Names may come from the logs of its tables, so they must not lead out of
    the lake."""
    if name.startswith("/") or ".." in name.split("/"):
        raise DamagedFile(name, "it names a file outside the lake; expected a path below the lake's directory")
    return directory / name


class Lake(msgspec.Struct, frozen=True, array_like=True, dict=True):
    """``url`` is a path, ``file:///path`` or the URL of an object store (``s3://bucket/prefix``). Options are those of
    the store: endpoint, region, access_key_id, secret_access_key, allow_http and so on. Options that are not given come
    from the usual environment variables. A Lake is a value without state, so it can be sent to workers."""

    url: str
    options: dict[str, str | bool] = {}

    @classmethod
    def at(cls, place: str | os.PathLike[str], **options: str | bool) -> Lake:
        """Return the lake at a place. A lake in a directory always has its absolute path."""
        directory = directory_of(os.fspath(place))
        return cls(os.fspath(place).rstrip("/") if directory is None else str(directory), options)

    @property
    def directory(self) -> Path | None:
        """The directory, or None for an object store."""
        return directory_of(self.url)

    @property
    def storage_options(self) -> dict[str, str]:
        """The options in the form that deltalake expects."""
        return {name: str(value).lower() if isinstance(value, bool) else value for name, value in self.options.items()}

    def place_of(self, name: str) -> str:
        """Return the address of a file or a table."""
        return f"{self.url}/{name}"

    # --- files -------------------------------------------------------------------------------------------------------

    def write(self, name: str, data: bytes) -> None:
        """Write a whole file atomically and durably."""
        directory = self.directory
        if directory is None:
            obstore.put(self._store, name, data)
            return
        path = _inside(directory, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)

    def upload(self, name: str, path: Path) -> None:
        """Write a whole file of an object store from a local file of any size. It becomes visible when it is
        complete."""
        obstore.put(self._store, name, path)

    def create(self, name: str, data: bytes) -> bool:
        """Create a whole file atomically and durably. Return False if it already exists: if several processes try at
        the same time, exactly one succeeds."""
        directory = self.directory
        if directory is None:
            try:
                obstore.put(self._store, name, data, mode="create")
            except obstore.exceptions.AlreadyExistsError:
                return False
            return True
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
        try:
            with open(temporary, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.link(temporary, path)
        except FileExistsError:
            return False
        finally:
            temporary.unlink(missing_ok=True)
        return True

    def read(self, name: str) -> bytes | None:
        """Return the contents of a file; None if it does not exist."""
        try:
            if self.directory is not None:
                return _inside(self.directory, name).read_bytes()
            return obstore.get(self._store, name).bytes().to_bytes()
        except FileNotFoundError:
            return None

    def read_range(self, name: str, first: int, size: int) -> bytes | None:
        """Return ``size`` bytes of a file, or fewer if it ends before; None if the file does not exist."""
        try:
            if self.directory is not None:
                with _inside(self.directory, name).open("rb") as file:
                    file.seek(first)
                    return file.read(size)
            return bytes(obstore.get_range(self._store, name, start=first, length=size))
        except FileNotFoundError:
            return None

    def open(self, name: str) -> Any:
        """Open a file for random access by Arrow. Raises FileNotFoundError."""
        if self.directory is not None:
            return pa.OSFile(str(_inside(self.directory, name)), "rb")
        return pa.PythonFile(_Reader(obstore.open_reader(self._store, name)), "r")

    def state(self, name: str) -> FileState | None:
        """Return the state that identifies a file's contents; None if the file does not exist."""
        try:
            if self.directory is not None:
                found = _inside(self.directory, name).stat()
                return FileState(found.st_size, str(found.st_mtime_ns))
            head = obstore.head(self._store, name)
            return FileState(head["size"], head["e_tag"] or head["last_modified"].isoformat())
        except FileNotFoundError:
            return None

    def states(self, prefix: str) -> dict[str, FileState]:
        """Return the states of the files under a prefix that ends with ``/``, or of all files if it is empty."""
        if self.directory is None:
            return {
                item["path"]: FileState(item["size"], item["e_tag"] or item["last_modified"].isoformat())
                for chunk in obstore.list(self._store, prefix.rstrip("/"))
                for item in chunk
            }
        return {
            name: FileState(found.st_size, str(found.st_mtime_ns)) for name, found in _stats(self.directory, prefix)
        }

    def names(self, prefix: str) -> dict[str, int]:
        """Return the files under a prefix that ends with ``/``, and the seconds since each was written."""
        now = time.time()
        if self.directory is None:
            found: dict[str, int] = {}
            for chunk in obstore.list(self._store, prefix.rstrip("/")):
                for item in chunk:
                    found[item["path"]] = int(now - item["last_modified"].timestamp())
            return found
        return {name: int(now - found.st_mtime) for name, found in _stats(self.directory, prefix)}

    def folders(self, prefix: str) -> list[str]:
        """Return the names of the folders directly under a prefix that ends with ``/``, ascending."""
        if self.directory is None:
            listed = obstore.list_with_delimiter(self._store, prefix.rstrip("/"))["common_prefixes"]
            return sorted(path.rstrip("/").rpartition("/")[2] for path in listed)
        try:
            return sorted(entry.name for entry in os.scandir(self.directory / prefix) if entry.is_dir())
        except FileNotFoundError:
            return []

    def touch(self, name: str) -> None:
        """Set the time of a file to now. Does nothing for an object store, which sets file times by its own clock."""
        if self.directory is not None:
            try:
                os.utime(self.directory / name)
            except FileNotFoundError:
                pass

    def remove(self, names: Iterable[str]) -> None:
        """Remove files. Files that do not exist are ignored."""
        for name in names:
            if self.directory is not None:
                _inside(self.directory, name).unlink(missing_ok=True)
            else:
                try:
                    obstore.delete(self._store, name)
                except FileNotFoundError:
                    pass

    def remove_empty_folders(self, prefix: str) -> None:
        """Remove a folder and those in it, as far as they are empty. An object store has no folders."""
        if self.directory is not None:
            for path, _, _ in os.walk(_inside(self.directory, prefix), topdown=False):
                try:
                    os.rmdir(path)
                except OSError:
                    pass  # something is in it, or another process has removed it

    @property
    def _store(self) -> Any:
        """Opened once per value and process."""
        found = self.__dict__.get("_opened")
        if found is None:
            settings: dict[str, Any] = dict(self.options)
            client: Any = {"allow_http": settings.pop("allow_http")} if "allow_http" in settings else None
            found = self.__dict__["_opened"] = obstore.store.from_url(self.url, client_options=client, **settings)
        return found


def _stats(root: Path, prefix: str) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the files under a prefix, by name. Files that another process removes in the meantime are omitted."""
    for path in sorted((root / prefix).rglob("*")):
        try:
            found = path.stat()
        except FileNotFoundError:
            continue
        if stat.S_ISREG(found.st_mode):
            yield str(path.relative_to(root)), found
