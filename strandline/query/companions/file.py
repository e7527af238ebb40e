"""The file of a companion: one Arrow IPC file, uncompressed, so that it is used where it lies.

It has one row. Every column of it is a list, and the list is an array of numbers or texts, named "seqs",
"column:NAME:PART" or "rollup:NAME:INTERVAL:…". What they mean, and where in the file they lie, is said by a
:class:`Head` in the metadata of the file's footer, which has a checksum for each of them and one for itself. So anybody
can read the file with Arrow, but nobody here has to: nothing in it is believed before it was verified. The head is when
a file is opened, an array when it is first asked for, so opening costs next to nothing, and only what is needed of a
file is ever read.
"""

from __future__ import annotations

import mmap
import os
import struct
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import xxhash
from msgspec import Struct

from strandline.query.chunk import Chunk
from strandline.query.columns import AnyColumn
from strandline.query.companions.columns import StoredColumn, load_column
from strandline.query.companions.rollups import StoredRollup, load_sums
from strandline.query.sums import Sums

FORMAT = 1
METADATA_KEY = b"strandline.companion"
MAGIC = b"STRDCOMP"
#: Before the head: the magic, its length and its XXH3, as hexadecimal digits. The metadata of an Arrow file is text.
_FRAME = struct.Struct("8s8s16s")
_STRING = "string"
SEQS = "seqs"


class DamagedCompanion(Exception):
    """The file is not what it was written as, or is no companion. Everything in it can be made again."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"the companion {path} cannot be used: {why}")
        self.path = path


class Info(Struct, frozen=True, kw_only=True):
    """What a companion answers for: the records of a log from ``first`` to ``last``, some of which may hold nothing."""

    #: The id of the data directory, and the log in it.
    directory: str
    log: str
    epoch: int
    first: int
    last: int
    #: Under which schema versions they were read: see :func:`~strandline.query.companions.identity.versions_between`.
    versions: tuple[tuple[int, int], ...]
    #: The names of what is indexed and of what is added up.
    plan: str
    rollups: str
    #: All erasures up to this seq of the log of erasures had been made when the records were read.
    erasures: int
    #: How many records it has: those that are JSON objects.
    records: int


class StoredArray(Struct, frozen=True, array_like=True):
    """``kind`` is what numpy calls the numbers, or "string". ``buffers`` are the places and sizes of what the array
    consists of: the numbers, or the offsets of texts and the texts themselves."""

    kind: str
    length: int
    buffers: tuple[tuple[int, int], ...]
    checksum: int

    @property
    def size(self) -> int:
        return sum(size for _, size in self.buffers)


class Head(Struct, frozen=True):
    format: int
    info: Info
    columns: tuple[StoredColumn, ...]
    rollups: tuple[StoredRollup, ...]
    arrays: dict[str, StoredArray]


class Companion:
    """An open companion. Any thread may use it; the file is let go when nothing refers to it any more.

    Whatever is asked of it raises :class:`DamagedCompanion` if what it needs is not as it was written.
    """

    def __init__(self, path: str, head: Head, content: Any) -> None:
        self.path = path
        self.size = int(content.size)
        self.info = head.info
        self.head = head
        self._content = content
        self._columns = _Columns(self)
        self._sums: dict[tuple[str, int], Sums] = {}

    def chunk(self) -> Chunk | None:
        """Its records; None if it has none."""
        return Chunk(self.array(SEQS), self._columns, find_sums=self.sums) if self.info.records else None

    def sums(self, rollup_id: str, interval_ms: int) -> Sums | None:
        """What its records add up to; None if it has no such rollup."""
        found = self._sums.get((rollup_id, interval_ms))
        if found is None:
            stored = next((each for each in self.head.rollups if each.id == rollup_id), None)
            if stored is None or interval_ms not in stored.intervals:
                return None
            found = self._sums[rollup_id, interval_ms] = load_sums(stored, interval_ms, self.array)
        return found

    def array(self, name: str) -> Any:
        """An array, verified: numbers as numpy's, texts as Arrow's."""
        stored = self.head.arrays[name]
        digest = xxhash.xxh3_64()
        buffers = []
        for offset, size in stored.buffers:
            if offset + size > self.size:
                raise DamagedCompanion(self.path, f"it ends before {name}")
            buffers.append(self._content.slice(offset, size))
            digest.update(buffers[-1])
        if digest.intdigest() != stored.checksum:
            raise DamagedCompanion(self.path, f"the checksum of {name} does not match")
        if stored.kind == _STRING:
            return pa.StringArray.from_buffers(stored.length, *buffers)
        return np.frombuffer(buffers[0], stored.kind, stored.length)

    def sizes(self) -> dict[str, int]:
        """The bytes of each column, and of what rollups add up under "rollup:NAME"."""
        sizes: dict[str, int] = {}
        for name, array in self.head.arrays.items():
            kind, _, rest = name.partition(":")
            owner = rest.rpartition(":")[0] if kind == "column" else f"rollup:{rest.partition(':')[0]}"
            if kind != SEQS:
                sizes[owner] = sizes.get(owner, 0) + array.size
        return sizes


class _Columns(Mapping[str, AnyColumn]):
    """The columns of a companion, each made when it is first asked for."""

    def __init__(self, companion: Companion) -> None:
        self._companion = companion
        self._stored = {stored.name: stored for stored in companion.head.columns}
        self._made: dict[str, AnyColumn] = {}

    def __getitem__(self, name: str) -> AnyColumn:
        column = self._made.get(name)
        if column is None:
            stored = self._stored[name]
            try:
                column = self._made[name] = load_column(stored, self._companion.array)
            except (ValueError, IndexError) as error:
                raise DamagedCompanion(self._companion.path, f"the column {name}: {error}") from error
        return column

    def __iter__(self) -> Iterator[str]:
        return iter(self._stored)

    def __len__(self) -> int:
        return len(self._stored)


def write_companion(
    info: Info, columns: tuple[StoredColumn, ...], rollups: tuple[StoredRollup, ...], arrays: Mapping[str, Any]
) -> Any:
    """The bytes of the file, as an Arrow buffer."""
    flat = {name: array if isinstance(array, pa.Array) else pa.array(array) for name, array in arrays.items()}
    lists = [pa.LargeListArray.from_arrays(pa.array([0, len(array)], pa.int64()), array) for array in flat.values()]
    batch = pa.record_batch(lists, names=list(flat))
    # The footer comes last: what is in it moves nothing of what it tells the places of.
    draft = _file(batch, b"")
    written = pa.ipc.open_file(draft).get_batch(0)
    stored = {name: _stored(written.column(name).values, draft) for name in flat}
    head = b64encode(msgspec.msgpack.encode(Head(FORMAT, info, columns, rollups, stored)))
    return _file(batch, _FRAME.pack(MAGIC, b"%08x" % len(head), xxhash.xxh3_64_hexdigest(head).encode()) + head)


def _file(batch: Any, head: bytes) -> Any:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema, metadata={METADATA_KEY: head}) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def _stored(array: Any, file: Any) -> StoredArray:
    assert not array.null_count, "there is no place for what is not there"
    buffers = [buffer for buffer in array.buffers()[1:] if buffer is not None]
    kind = _STRING
    if not pa.types.is_string(array.type):
        kind = np.dtype(array.type.to_pandas_dtype()).str
        # Arrow may have written more than there is, to fill up.
        buffers = [buffers[0].slice(0, len(array) * np.dtype(kind).itemsize)] if buffers else [pa.py_buffer(b"")]
    digest = xxhash.xxh3_64()
    for buffer in buffers:
        digest.update(buffer)
    places = tuple((buffer.address - file.address if buffer.size else 0, buffer.size) for buffer in buffers)
    return StoredArray(kind, len(array), places, digest.intdigest())


def open_companion(path: str, name: str | None = None) -> Companion:
    """Map the file; ``name`` is what it is called in errors. Raises FileNotFoundError or DamagedCompanion."""
    with open(path, "rb") as file:
        if not os.fstat(file.fileno()).st_size:
            raise DamagedCompanion(name or path, "it is empty")
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return _opened(name or path, content)


def read_companion(content: Any, path: str = "in memory") -> Companion:
    """The same, of the bytes of a file. Raises DamagedCompanion."""
    return _opened(path, bytes(content))


def _opened(path: str, content: bytes | mmap.mmap) -> Companion:
    at = content.rfind(MAGIC)
    if at < 0 or at + _FRAME.size > len(content):
        raise DamagedCompanion(path, "it is no companion")
    try:
        _, length, digest = _FRAME.unpack(content[at : at + _FRAME.size])
        encoded = content[at + _FRAME.size : at + _FRAME.size + int(length, 16)]
        if xxhash.xxh3_64_hexdigest(encoded).encode() != digest:
            raise DamagedCompanion(path, "the checksum of its head does not match")
        head = b64decode(encoded, validate=True)
        found = msgspec.msgpack.decode(head, type=_Format)
        if found.format != FORMAT:
            raise DamagedCompanion(path, f"it has the format {found.format}, and this is {FORMAT}")
        return Companion(path, msgspec.msgpack.decode(head, type=Head), pa.py_buffer(content))
    except (msgspec.ValidationError, msgspec.DecodeError, ValueError) as error:
        raise DamagedCompanion(path, str(error)) from error


class _Format(Struct):
    format: int
