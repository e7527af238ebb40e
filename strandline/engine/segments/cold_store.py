"""The cold tier: a second place for old segments, a directory or an S3-compatible object store.

:class:`ColdStore` is the door; objects are named flatly, are put whole, and never change. What goes wrong
comes out as OSError (the store cannot be reached, refuses, is full), :class:`MissingFile` or
:class:`DamagedFile`, always with the object's full name.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote, urlsplit

import obstore
from obstore.exceptions import BaseError
from obstore.store import LocalStore, S3Store

from strandline.engine.errors import BadConfig, DamagedFile, MissingFile

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig

#: Larger objects are sent in parts of this size, a few at a time. S3 wants 5 MiB at least.
PART_BYTES = 8 << 20
PARTS_AT_A_TIME = 4
#: A reader waits for these retries, so they cover a hiccup and not an outage: about six seconds in all.
RETRY: RetryConfig = {"max_retries": 6, "retry_timeout": timedelta(seconds=30)}

_OS_ERROR = re.compile(r"\(os error (\d+)\)")


class ColdStore(Protocol):
    def put(self, name: str, data: bytes | Path) -> None:
        """Store an object atomically and durably, in place of any there was. A Path means its content."""
        ...

    def read(self, name: str, start: int, end: int) -> bytes:
        """The bytes from ``start`` to before ``end``: all of them, or an exception."""
        ...

    def size(self, name: str) -> int | None:
        """None when there is no such object."""
        ...

    def list(self) -> list[str]:
        """The names of all objects, sorted; also of those of which a cut-off put left something to delete."""
        ...

    def delete(self, name: str) -> None:
        """Remove an object; no error when it is gone already."""
        ...

    def describe(self) -> str:
        """Where this is, for messages."""
        ...


class ObjectStoreCold:
    """A cold tier in a directory (``file:///srv/cold`` or a plain path) or in S3 (``s3://bucket/prefix``).

    Options are those of the S3 client: endpoint, region, access_key_id, secret_access_key, allow_http,
    virtual_hosted_style_request and so on. What is not given comes from the usual AWS environment variables.
    An upload to S3 that is cut off by a crash leaves invisible parts behind; a lifecycle rule of the bucket
    ("abort incomplete multipart uploads") removes them.
    """

    def __init__(self, url: str, **options: str | bool) -> None:
        self._url = url.rstrip("/")
        self._directory = directory_of(url)
        if self._directory is None:
            self._store: LocalStore | S3Store = _open_s3(url, options)
        else:
            self._store = _open_directory(self._directory, options)

    def __repr__(self) -> str:
        return f"ObjectStoreCold({self._url!r})"

    def describe(self) -> str:
        return self._url

    def put(self, name: str, data: bytes | Path) -> None:
        with self._errors(name):
            self._remove_unfinished(name)
            obstore.put(self._store, name, data, chunk_size=PART_BYTES, max_concurrency=PARTS_AT_A_TIME)
            if self._directory is not None:
                # The store renames a finished file into place but leaves the flushing to the system.
                _sync(self._directory / name)
                _sync(self._directory)

    def read(self, name: str, start: int, end: int) -> bytes:
        if start >= end:
            return b""
        try:
            with self._errors(name):
                data = obstore.get_range(self._store, name, start=start, end=end).to_bytes()
        except FileNotFoundError:
            raise MissingFile(self._place(name)) from None
        except OSError:
            # Stores disagree on how they refuse a range that starts behind the end.
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
        """The names of all whole objects, with their sizes."""
        with self._errors(""):
            return {item["path"]: item["size"] for item in obstore.list_with_delimiter(self._store)["objects"]}

    def delete(self, name: str) -> None:
        with self._errors(name), suppress(FileNotFoundError):
            self._remove_unfinished(name)
            obstore.delete(self._store, name)

    def _check_reaches(self, name: str, end: int) -> None:
        size = self.size(name)
        if size is not None and size < end:
            raise DamagedFile(self._place(name), f"it ends at byte {size}, before byte {end}")

    def _unfinished(self, name: str) -> Iterable[Path]:
        """A put to a directory that a crash cut off leaves ``name#1`` behind, which the library hides."""
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
        except (BaseError, OSError) as error:
            why = _reason(error)
            if isinstance(error, FileNotFoundError) and "NoSuchBucket" not in why:
                raise FileNotFoundError(errno.ENOENT, why, self._place(name)) from error
            found = _OS_ERROR.search(why)
            raise OSError(int(found[1]) if found else errno.EIO, why, self._place(name)) from error


def directory_of(url: str) -> Path | None:
    """The directory that a URL or a plain path means; None when it means something else."""
    if "://" not in url:
        return Path(url).absolute()
    parts = urlsplit(url)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    return None


def _open_directory(directory: Path, options: dict[str, str | bool]) -> LocalStore:
    for option, value in options.items():
        raise BadConfig(option, value, "a cold tier in a directory has no options")
    for parent in (*reversed(directory.parents), directory):
        if not parent.exists():
            parent.mkdir(exist_ok=True)
            _sync(parent.parent)
    return LocalStore(directory)


def _open_s3(url: str, options: dict[str, str | bool]) -> S3Store:
    if urlsplit(url).scheme != "s3":
        raise BadConfig("cold", url, "it must be a path, file:///path, or s3://bucket/prefix")
    settings: dict[str, Any] = dict(options)
    client: ClientConfig | None = None
    if "allow_http" in settings:
        # The client takes its own settings from the environment only if none is given here.
        client = {"allow_http": settings.pop("allow_http")}
    try:
        return S3Store.from_url(url, client_options=client, retry_config=RETRY, **settings)
    except BaseError as error:
        raise BadConfig("cold", url, _reason(error)) from error


def _reason(error: Exception) -> str:
    """The message on one line, without the dump of internals that the store puts behind it."""
    return " ".join(str(error).partition("Debug source:")[0].split())


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
