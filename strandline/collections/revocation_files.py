"""Revocation lists in files: read when the server starts, and again when a file has changed."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from strandline.signing.canonical_json import NotJson, parse_signed
from strandline.signing.revocations import BadRevocations, Revocations, StaleRevocations

log = logging.getLogger(__name__)

#: How often the files are checked. With the time to read and verify a list, it takes effect within the documented five
#: seconds.
CHECK_SECONDS = 2.0

#: Calls a function on another thread.
_InThread = Callable[[Callable[[], None]], Awaitable[None]]


#: Calls a function on another thread.
InThread = Callable[[Callable[[], None]], Awaitable[None]]


class BadRevocationFile(ValueError):
    """A file that cannot be read, or whose list cannot be trusted. The message names the file."""


class RevocationFiles:
    """The lists in the files, and those that a program passes to ``list.accept``."""

    def __init__(self, paths: Sequence[str], revocations: Revocations | None = None) -> None:
        self.list = Revocations() if revocations is None else revocations
        self._paths = tuple(Path(path) for path in paths)
        #: Time, size and inode of the files when they were read.
        self._seen: dict[Path, tuple[int, int, int]] = {}

    def load(self) -> None:
        """Read all files. Raises :class:`BadRevocationFile`."""
        for path in self._paths:
            self._read(path)

    async def watch(self, in_thread: InThread, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """Check the files for changes at regular intervals, on another thread."""
        while self._paths:
            await sleep(CHECK_SECONDS)
            try:
                await in_thread(self.check)
            except Exception:  # for example, no thread could be started
                log.exception("cannot check the revocation lists; the current lists stay in force until the next check")

    def check(self) -> None:
        """Read the files that have changed. A bad file is logged, and the list that was read from it stays in force."""
        for path in self._paths:
            try:
                self._read(path)
            except BadRevocationFile as error:
                log.error("%s; the previous list stays in force", error)
            except Exception:
                log.exception("cannot read the revocation list %s; the previous list stays in force", path)

    def _read(self, path: Path) -> None:
        try:
            status = os.stat(path)
            state = (status.st_mtime_ns, status.st_size, status.st_ino)
            if self._seen.get(path) == state:
                return
            document = parse_signed(path.read_bytes())
        except OSError as error:
            raise BadRevocationFile(f"cannot read the revocation list {path}: {error.strerror}") from None
        except NotJson as error:
            raise BadRevocationFile(f"the revocation list {path} is not valid JSON: {error}") from None
        for one in document if isinstance(document, list) else [document]:
            self._accept(path, one)
        self._seen[path] = state

    def _accept(self, path: Path, document: Any) -> None:
        try:
            self.list.accept(document)
        except StaleRevocations as error:
            if error.generation < error.in_force:
                log.warning(
                    "ignored a revocation list in %s: it has generation %d, and generation %d of the same issuer is in "
                    "force; publish a list with a higher generation",
                    path,
                    error.generation,
                    error.in_force,
                )
        except BadRevocations as error:
            raise BadRevocationFile(f"the revocation list {path} cannot be trusted: {error.code}") from None
