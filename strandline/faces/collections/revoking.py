"""Revocation lists in files: read at the start, and again when a file has changed."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from strandline.signing.canonical import NotJson, parse
from strandline.signing.revocations import BadRevocations, Revocations

log = logging.getLogger(__name__)

#: Files are looked at no more often than this.
LOOK_MS = 5000


class BadRevocationFile(ValueError):
    """A file that cannot be read, or has no list that is to be trusted. The message names it."""


def _at_once(act: Callable[[], None]) -> None:
    act()


class RevocationFiles:
    """What is revoked: by the lists in the files, and by those that a program hands to ``list.accept``.

    ``run`` is how a look at the files is done: at once, or by another thread.
    """

    def __init__(
        self,
        paths: Sequence[str],
        revocations: Revocations | None = None,
        run: Callable[[Callable[[], None]], object] = _at_once,
    ) -> None:
        self.list = Revocations() if revocations is None else revocations
        self._paths = tuple(Path(path) for path in paths)
        self._run = run
        #: What the files looked like when they were read.
        self._seen: dict[Path, tuple[int, int, int]] = {}
        self._look_at = 0

    def load(self, now: int) -> None:
        """Read all files. Raises :class:`BadRevocationFile`."""
        self._look_at = now + LOOK_MS
        for path in self._paths:
            self._read(path)

    def refresh(self, now: int) -> None:
        """Look at the files if it is time to. A file that makes no sense changes nothing, and is told in the log."""
        if self._paths and not self._look_at - LOOK_MS <= now < self._look_at:
            self._look_at = now + LOOK_MS
            self._run(self._look)

    def _look(self) -> None:
        for path in self._paths:
            try:
                self._read(path)
            except BadRevocationFile as error:
                log.error("%s; what it said before still holds", error)

    def _read(self, path: Path) -> None:
        try:
            status = os.stat(path)
            state = (status.st_mtime_ns, status.st_size, status.st_ino)
            if self._seen.get(path) == state:
                return
            document = parse(path.read_bytes())
        except OSError as error:
            raise BadRevocationFile(f"cannot read the revocation list {path}: {error.strerror}") from None
        except NotJson as error:
            raise BadRevocationFile(f"the revocation list {path} is not JSON: {error}") from None
        for one in document if isinstance(document, list) else [document]:
            self._accept(path, one)
        self._seen[path] = state

    def _accept(self, path: Path, document: Any) -> None:
        try:
            self.list.accept(document)
        except BadRevocations as error:
            # The list that is known already, or one that a later one has replaced.
            if error.code != "stale-generation":
                raise BadRevocationFile(f"the revocation list {path} is not to be trusted: {error.code}") from None
