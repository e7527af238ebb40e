"""The cold tier: a second store for old segments, a directory or an S3-compatible object store, with a local cache.

:class:`ColdStore` is the interface. Objects have flat names, are written as a whole, and never change. Failures are
raised as OSError (the store is unreachable, refuses the request, or is full), :class:`MissingFile` or
:class:`DamagedFile`, always with the object's full name.

The cache holds sparse copies of segments and fills them piece by piece as they are read. The list of filled pieces is
only in memory, so the cache starts empty. A copy is evicted as a whole by unlinking its file; a Segment that has mapped
it keeps filling it until the Segment is closed.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from threading import Condition
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote, urlsplit

from strandline.engine.errors import BadConfig, DamagedFile, MissingFile
from strandline.late_import import LateModule
from strandline.spans import part

if TYPE_CHECKING:
    import obstore.exceptions
    import obstore.store
    from obstore.store import ClientConfig, LocalStore, ObjectStore, RetryConfig
else:
    obstore = LateModule("obstore")

#: Larger objects are uploaded in parts of this size, a few at a time. S3 requires at least 5 MiB.
PART_BYTES = 8 << 20
PARTS_AT_A_TIME = 4
#: S3 returns as many objects per request.
PAGE_OBJECTS = 1000
#: Readers wait for these retries, so they bridge a short failure but not an outage: about six seconds in total.
RETRY: RetryConfig = {"max_retries": 6, "retry_timeout": timedelta(seconds=30)}

log = logging.getLogger(__name__)

_OS_ERROR = re.compile(r"\(os error (\d+)\)")


class ColdStore(Protocol):
    def put(self, name: str, data: bytes | Path) -> None:
        """Store an object atomically and durably, replacing an existing one. A Path means the contents of that file."""
        ...

    def copy(self, name: str, source: str) -> bool:
        """Copy an object of the same store, given by its URL, without a transfer. Return False if that fails."""
        ...

    def read(self, name: str, start: int, end: int) -> bytes:
        """Return the bytes from ``start`` to before ``end``: all of them, or raise."""
        ...

    def size(self, name: str) -> int | None:
        """Return the size of an object, or None if it does not exist."""
        ...

    def list(self) -> list[str]:
        """Return the names of all objects, sorted, including objects with leftovers of an interrupted put that must be
        deleted."""
        ...

    def delete(self, name: str) -> None:
        """Remove an object. Does nothing if it does not exist."""
        ...

    def describe(self) -> str:
        """Return the location of the store, for messages."""
        ...


class ObjectStoreCold:
    """A cold tier in a directory (``file:///srv/cold`` or a plain path) or in S3 (``s3://bucket/prefix``).

    Options are those of the S3 client: endpoint, region, access_key_id, secret_access_key, allow_http,
    virtual_hosted_style_request and so on. Options that are not given come from the usual AWS environment variables. An
    upload to S3 that is interrupted by a crash leaves invisible parts behind; a lifecycle rule of the bucket ("abort
    incomplete multipart uploads") removes them.
    """

    def __init__(self, url: str, **options: str | bool) -> None:
        self._url = url.rstrip("/")
        self._options = options
        self._directory = directory_of(url)
        if self._directory is not None:
            self._store: ObjectStore = open_directory("a cold tier", self._directory, options)
        elif urlsplit(url).scheme != "s3":
            raise BadConfig("cold", url, "expected a path, file:///path or s3://bucket/prefix")
        else:
            self._store = open_object_store("cold", url, options, RETRY)

    def __repr__(self) -> str:
        return f"ObjectStoreCold({self._url!r})"

    def describe(self) -> str:
        return self._url

    def put(self, name: str, data: bytes | Path) -> None:
        with self._errors(name):
            self._remove_unfinished(name)
            obstore.put(self._store, name, data, chunk_size=PART_BYTES, max_concurrency=PARTS_AT_A_TIME)
            if self._directory is not None:
                # The library renames a finished file into place but does not flush it.
                sync_path(self._directory / name)
                sync_path(self._directory)

    def copy(self, name: str, source: str) -> bool:
        """In a directory, the copy is a hard link."""
        directory = directory_of(source)
        try:
            if self._directory is not None and directory is not None:
                self._remove_unfinished(name)
                link = self._directory / f"{name}#link"
                os.link(directory, link)
                link.replace(self._directory / name)
                # If both are the same file already, the name of the link is left.
                link.unlink(missing_ok=True)
                sync_path(self._directory)
                return True
            here, there = urlsplit(self._url), urlsplit(source)
            if self._directory is not None or (here.scheme, here.netloc) != (there.scheme, there.netloc):
                return False
            bucket = open_object_store("cold", f"s3://{here.netloc}", self._options, RETRY)
            obstore.copy(bucket, there.path.strip("/"), f"{here.path}/{name}".strip("/"))
        except (obstore.exceptions.BaseError, OSError) as error:
            log.warning("%s is uploaded, because it cannot be copied from %s: %s", name, source, reason_of(error))
            return False
        return True

    def read(self, name: str, start: int, end: int) -> bytes:
        if start >= end:
            return b""
        try:
            with self._errors(name):
                data = obstore.get_range(self._store, name, start=start, end=end).to_bytes()
        except FileNotFoundError:
            raise MissingFile(self._place(name)) from None
        except OSError:
            # Stores report a range that starts after the end in different ways.
            self._check_reaches(name, start + 1)
            raise
        if len(data) != end - start:
            raise DamagedFile(self._place(name), f"it ends at byte {start + len(data)}, before byte {end}")
        return data

    def size(self, name: str) -> int | None:
        try:
            with self._errors(name):
                return obstore.head(self._store, name)["size"]
        except FileNotFoundError:
            return None

    def list(self) -> list[str]:
        with self._errors(""):
            whole = {item["path"] for item in obstore.list_with_delimiter(self._store)["objects"]}
            return sorted(whole | {path.name.rpartition("#")[0] for path in self._unfinished("*")})

    def sizes(self) -> dict[str, int]:
        """Return the names of all complete objects, with their sizes."""
        with self._errors(""):
            return {item["path"]: item["size"] for item in obstore.list_with_delimiter(self._store)["objects"]}

    def pages(self) -> Iterator[dict[str, int]]:
        """Yield the names of all complete objects with their sizes, one page of the store at a time."""
        with self._errors(""):
            for page in obstore.list(self._store, chunk_size=PAGE_OBJECTS):
                yield {item["path"]: item["size"] for item in page}

    def delete(self, name: str) -> None:
        with self._errors(name), suppress(FileNotFoundError):
            self._remove_unfinished(name)
            obstore.delete(self._store, name)

    def _check_reaches(self, name: str, end: int) -> None:
        size = self.size(name)
        if size is not None and size < end:
            raise DamagedFile(self._place(name), f"it ends at byte {size}, before byte {end}")

    def _unfinished(self, name: str) -> Iterable[Path]:
        """Return the file ``name#1`` that an interrupted put to a directory leaves behind and that the library
        hides."""
        return () if self._directory is None else tuple(self._directory.glob(f"{name}#*"))

    def _remove_unfinished(self, name: str) -> None:
        for path in self._unfinished(name):
            path.unlink(missing_ok=True)

    def _place(self, name: str) -> str:
        return f"{self._url}/{name}"

    @contextmanager
    def _errors(self, name: str) -> Iterator[None]:
        try:
            yield
        except (obstore.exceptions.BaseError, OSError) as error:
            why = reason_of(error)
            if isinstance(error, FileNotFoundError) and "NoSuchBucket" not in why:
                raise FileNotFoundError(errno.ENOENT, why, self._place(name)) from error
            found = _OS_ERROR.search(why)
            raise OSError(int(found[1]) if found else errno.EIO, why, self._place(name)) from error


def directory_of(url: str) -> Path | None:
    """Return the directory of a file URL or plain path; None for any other URL."""
    if "://" not in url:
        return Path(url).absolute()
    parts = urlsplit(url)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    return None


def open_directory(what: str, directory: Path, options: Mapping[str, str | bool]) -> LocalStore:
    """Create a directory if need be. ``what`` is in it, for messages."""
    for option, value in options.items():
        raise BadConfig(option, value, f"{what} in a directory has no options")
    create_directory(directory)
    return obstore.store.LocalStore(directory)


def create_directory(directory: Path) -> None:
    """Create a directory and its parents durably."""
    for parent in (*reversed(directory.parents), directory):
        if not parent.exists():
            parent.mkdir(exist_ok=True)
            sync_path(parent.parent)


def open_object_store(setting: str, url: str, options: Mapping[str, str | bool], retries: RetryConfig) -> ObjectStore:
    """Open any store that the library knows. ``setting`` is the name of the setting with the URL, for messages."""
    settings: dict[str, Any] = dict(options)
    client: ClientConfig | None = None
    if "allow_http" in settings:
        # The client reads its settings from the environment only if no client option is given.
        client = {"allow_http": bool(settings.pop("allow_http"))}
    try:
        return obstore.store.from_url(url, client_options=client, retry_config=retries, **settings)
    except (obstore.exceptions.BaseError, ValueError) as error:
        raise BadConfig(setting, without_secrets(url), reason_of(error)) from error


def without_secrets(url: str) -> str:
    if "://" not in url:
        return url
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl()


def reason_of(error: Exception) -> str:
    """Return the message on one line, without the debug output that the store appends."""
    return " ".join(str(error).partition("Debug source:")[0].split())


def sync_path(path: Path) -> None:
    """Flush a file or the entries of a directory."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


#: The minimum size of a fetch. A request to an object store takes tens of milliseconds, almost independent of its size
#: up to about this one.
PIECE_BYTES = 1 << 20
#: Adjacent pieces are fetched in one request. A request is held in memory, so its size is limited.
PIECES_PER_REQUEST = 16


class _Copy:
    """The local copy of one object. The cache's lock guards all fields."""

    __slots__ = ("bytes", "filled", "name", "opening", "path", "pending", "retired", "size")

    def __init__(self, name: str, path: str, size: int) -> None:
        self.name = name
        self.path = path
        self.size = size
        self.filled: set[int] = set()
        self.pending: set[int] = set()
        self.bytes = 0
        #: The number of readers about to map the file. It must keep its name until they have.
        self.opening = 0
        self.retired = False


class Fetcher:
    """Fetches the bytes of one object before they are read. A Segment calls it and holds it until the Segment is
    closed."""

    def __init__(self, cache: ColdCache, copy: _Copy) -> None:
        self._cache = cache
        self._copy = copy
        self._fd = os.open(copy.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        weakref.finalize(self, os.close, self._fd)
        os.ftruncate(self._fd, copy.size)

    def __call__(self, start: int, end: int) -> None:
        self._cache.fill(self._copy, self._fd, start, end)

    @property
    def path(self) -> str:
        return self._copy.path

    @property
    def retired(self) -> bool:
        """Whether the copy was removed from the cache. Opening the object again creates another copy."""
        return self._copy.retired


class ColdCache:
    """Copies with at most ``limit`` bytes of filled pieces in total. The least recently read copy is evicted first."""

    def __init__(self, cold: ColdStore, directory: str, limit: int) -> None:
        self._cold = cold
        self._directory = Path(directory)
        self._limit = limit
        self._copies: OrderedDict[str, _Copy] = OrderedDict()
        self._used = 0
        self._made = 0
        self._changed = Condition()
        self._directory.mkdir(exist_ok=True)

    @property
    def used(self) -> int:
        return self._used

    @contextmanager
    def opening(self, name: str, size: int) -> Iterator[Fetcher]:
        """Yield a copy that keeps its path inside the ``with`` block, so that it can be mapped."""
        with self._changed:
            copy = self._copies.get(name)
            if copy is None:
                # Each copy gets a new number, because the file of an earlier copy may not be unlinked yet.
                self._made += 1
                path = self._directory / f"{self._made}-{name}"
                copy = self._copies[name] = _Copy(name, str(path), size)
            copy.opening += 1
        try:
            yield Fetcher(self, copy)
        finally:
            with self._changed:
                copy.opening -= 1
                discarded = copy.retired and not copy.opening
            if discarded:
                _unlink([copy])
            self._trim()

    def discard(self, name: str) -> None:
        """Remove a copy, so that the next read fetches the object again."""
        with self._changed:
            copy = self._copies.get(name)
            if copy is not None:
                self._retire(copy)
        if copy is not None and not copy.opening:
            _unlink([copy])

    def fill(self, copy: _Copy, fd: int, start: int, end: int) -> None:
        """Return when the bytes are in the copy. The first caller fetches a piece, and the others wait for it."""
        pieces = range(start // PIECE_BYTES, -(-min(end, copy.size) // PIECE_BYTES))
        while mine := self._claim(copy, pieces):
            try:
                for run in _runs(mine):
                    self._fill_run(copy, fd, run)
            finally:
                with self._changed:
                    copy.pending.difference_update(mine)
                    self._changed.notify_all()
            self._trim()

    def _claim(self, copy: _Copy, pieces: range) -> list[int]:
        """Return missing pieces that no other thread is fetching. Empty if no piece is missing."""
        with self._changed:
            while missing := [piece for piece in pieces if piece not in copy.filled]:
                mine = [piece for piece in missing if piece not in copy.pending]
                if mine:
                    copy.pending.update(mine)
                    return mine
                self._changed.wait()
            if not copy.retired:
                self._copies.move_to_end(copy.name)
            return []

    def _fill_run(self, copy: _Copy, fd: int, run: range) -> None:
        start, end = run.start * PIECE_BYTES, min(run.stop * PIECE_BYTES, copy.size)
        with part("fetch from the cold tier"):
            data = memoryview(self._cold.read(copy.name, start, end))
        while data:
            written = os.pwrite(fd, data, end - len(data))
            data = data[written:]
        with self._changed:
            copy.filled.update(run)
            if not copy.retired:
                self._copies.move_to_end(copy.name)
                copy.bytes += end - start
                self._used += end - start

    def _trim(self) -> None:
        with self._changed:
            victims: list[_Copy] = []
            for copy in list(self._copies.values()) if self._used > self._limit else ():
                if self._used > self._limit and copy.bytes and not copy.opening:
                    self._retire(copy)
                    victims.append(copy)
        _unlink(victims)

    def _retire(self, copy: _Copy) -> None:
        del self._copies[copy.name]
        copy.retired = True
        self._used -= copy.bytes


def empty_directory(directory: str) -> None:
    if os.path.isdir(directory):
        for entry in os.scandir(directory):
            os.unlink(entry)


def _unlink(copies: Iterable[_Copy]) -> None:
    for copy in copies:
        Path(copy.path).unlink(missing_ok=True)


def _runs(pieces: list[int]) -> Iterator[range]:
    """Group ascending numbers into consecutive ranges, none too long for one request."""
    start = pieces[0]
    for before, piece in zip(pieces, [*pieces[1:], -1], strict=True):
        if piece != before + 1 or piece - start == PIECES_PER_REQUEST:
            yield range(start, before + 1)
            start = piece
