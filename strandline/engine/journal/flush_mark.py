"""The flush mark: how far the journal is known to be on the disk.

The file ``FLUSHED`` is one record that is overwritten after every flush, without a sync of its own. The journal was
durable up to the mark before the mark was written, so the mark never claims too much, whatever of it survives a power
cut. After a kill it is exact. A mark that is missing, torn or unreadable says nothing, and is ignored.
"""

from __future__ import annotations

import logging
import struct
from typing import NamedTuple

import xxhash

from strandline.engine.disk import Disk, SectorFile

log = logging.getLogger(__name__)

FLUSHED = "FLUSHED"
MAGIC = b"STRANDFL"
VERSION = 1
#: magic, version, directory, index, size, size of the file before
_FIELDS = struct.Struct("<8sQQQQQ")
_CHECKSUM = struct.Struct("<Q")
#: Far less than a sector, which a device writes in one piece.
MARK_BYTES = _FIELDS.size + _CHECKSUM.size

_digest = xxhash.xxh3_64_intdigest


class FlushMark(NamedTuple):
    """Up to where the journal was durable when the mark was written."""

    #: Which data directory it is about, as :func:`directory_digest`.
    directory: int
    #: The number of the journal file, and how many of its bytes were durable.
    number: int
    size: int
    #: The final size of the file before it; 0 if the manifest had that before the file was begun.
    left_size: int

    def sizes(self, directory: str) -> dict[int, int]:
        """What journal files must have at least, by number; nothing if the mark is of another directory."""
        if self.directory != directory_digest(directory):
            return {}
        return {self.number: self.size} | ({self.number - 1: self.left_size} if self.left_size else {})


def directory_digest(directory: str) -> int:
    """The id of a data directory in 8 bytes."""
    return _digest(directory.encode())


def encode_mark(mark: FlushMark) -> bytes:
    fields = _FIELDS.pack(MAGIC, VERSION, *mark)
    return fields + _CHECKSUM.pack(_digest(fields))


def decode_mark(raw: bytes) -> FlushMark | None:
    """The mark in the content of the file; None if it is not whole, or of a version that this release does not know."""
    if len(raw) < MARK_BYTES or _CHECKSUM.unpack_from(raw, _FIELDS.size)[0] != _digest(raw[: _FIELDS.size]):
        return None
    magic, version, directory, index, size, left_size = _FIELDS.unpack_from(raw)
    return FlushMark(directory, index, size, left_size) if (magic, version) == (MAGIC, VERSION) else None


def read_mark(disk: Disk) -> FlushMark | None:
    """The mark of a data directory, or None.

    While a server writes, read the mark before you look at the size of any journal file: files grow, and so the mark is
    not ahead of them.
    """
    try:
        return decode_mark(disk.read(FLUSHED, 0, MARK_BYTES))
    except FileNotFoundError:
        return None
    except OSError as error:
        log.warning("cannot read %s: %s. The end of the newest journal file is not checked.", FLUSHED, error)
        return None


class FlushMarkFile:
    """The file while a server writes it. A failure is logged once and has no other effect: the old mark stays true."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory_digest(directory)
        self._file: SectorFile | None = None
        self._failed = False

    def write(self, index: int, size: int, left_size: int) -> None:
        try:
            if self._file is None:
                self._file = self._disk.sector_file(FLUSHED)
            self._file.write(encode_mark(FlushMark(self._directory, index, size, left_size)))
        except OSError as error:
            self.close()  # the next write opens it again
            if not self._failed:
                self._failed = True
                log.warning(
                    "cannot write %s: %s. Writes continue. If the process is killed and the newest journal file is cut"
                    " off, the next start may not notice.",
                    FLUSHED,
                    error,
                )

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
