"""The file of a companion: one Arrow IPC file, uncompressed, so that it is used where it lies.

It has one row. Every column of it is a list, and the list is an array of numbers or texts, named "seqs",
"column:NAME:PART" or "rollup:NAME:INTERVAL:…". What they mean is said by a :class:`Head` in the file's metadata, which
has a checksum for each of them and one for itself. An array is verified when it is first asked for, so opening a file
costs nothing, and only what is needed of it is ever read.
"""

from __future__ import annotations

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
from strandline.query.words import text_buffers

FORMAT = 1
METADATA_KEY = b"strandline.companion"
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


class Head(Struct, frozen=True):
    """``sums`` are the checksums of the arrays by their names."""

    format: int
    info: Info
    columns: tuple[StoredColumn, ...]
    rollups: tuple[StoredRollup, ...]
    sums: dict[str, int]


class Companion:
    """An open companion. Any thread may use it; the file is let go when nothing refers to it any more.

    Whatever is asked of it raises :class:`DamagedCompanion` if what it needs is not as it was written.
    """

    def __init__(self, path: str, size: int, head: Head, batch: Any) -> None:
        self.path = path
        self.size = size
        self.info = head.info
        self.head = head
        self._batch = batch
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
        try:
            values = self._batch.column(name).values
            if checksum(values) != self.head.sums[name]:
                raise DamagedCompanion(self.path, f"the checksum of {name} does not match")
            return values if pa.types.is_string(values.type) else values.to_numpy()
        except (pa.ArrowException, KeyError, ValueError) as error:
            raise DamagedCompanion(self.path, f"{name}: {error}") from error

    def sizes(self) -> dict[str, int]:
        """The bytes of each column, and of what rollups add up under "rollup:NAME"."""
        sizes: dict[str, int] = {}
        for name in self.head.sums:
            kind, _, rest = name.partition(":")
            owner = rest.rpartition(":")[0] if kind == "column" else f"rollup:{rest.partition(':')[0]}"
            if kind != SEQS:
                sizes[owner] = sizes.get(owner, 0) + int(self._batch.column(name).nbytes)
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


def checksum(values: Any) -> int:
    """Over the content of an Arrow array of numbers or texts, without nulls."""
    digest = xxhash.xxh3_64(str(len(values)).encode())
    for array in text_buffers(values) if pa.types.is_string(values.type) else (values.to_numpy(),):
        content: Any = np.ascontiguousarray(array)
        digest.update(content)
    return digest.intdigest()


def write_companion(
    info: Info, columns: tuple[StoredColumn, ...], rollups: tuple[StoredRollup, ...], arrays: Mapping[str, Any]
) -> Any:
    """The bytes of the file, as an Arrow buffer."""
    flat = {name: array if isinstance(array, pa.Array) else pa.array(array) for name, array in arrays.items()}
    lists = [pa.LargeListArray.from_arrays(pa.array([0, len(array)], pa.int64()), array) for array in flat.values()]
    batch = pa.record_batch(lists, names=list(flat))
    sums = {name: checksum(array) for name, array in flat.items()}
    head = msgspec.msgpack.encode(Head(FORMAT, info, columns, rollups, sums))
    batch = batch.replace_schema_metadata({METADATA_KEY: xxhash.xxh3_64_digest(head) + head})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def open_companion(path: str, name: str | None = None) -> Companion:
    """Map the file; ``name`` is what it is called in errors. Raises FileNotFoundError or DamagedCompanion."""
    try:
        file = pa.memory_map(path)
        return _opened(name or path, file.size(), pa.ipc.open_file(file))
    except FileNotFoundError:
        raise
    except (pa.ArrowException, msgspec.ValidationError, msgspec.DecodeError, OSError, ValueError) as error:
        raise DamagedCompanion(name or path, str(error)) from error


def read_companion(content: Any, path: str = "in memory") -> Companion:
    """The same, of the bytes of a file. Raises DamagedCompanion."""
    try:
        return _opened(path, len(content), pa.ipc.open_file(pa.py_buffer(content)))
    except (pa.ArrowException, msgspec.ValidationError, msgspec.DecodeError, OSError, ValueError) as error:
        raise DamagedCompanion(path, str(error)) from error


def _opened(path: str, size: int, reader: Any) -> Companion:
    metadata = (reader.schema.metadata or {}).get(METADATA_KEY)
    if metadata is None:
        raise DamagedCompanion(path, "it is no companion")
    digest, head = metadata[:8], metadata[8:]
    if xxhash.xxh3_64_digest(head) != digest:
        raise DamagedCompanion(path, "the checksum of its head does not match")
    found = msgspec.msgpack.decode(head, type=_Format)
    if found.format != FORMAT:
        raise DamagedCompanion(path, f"it has the format {found.format}, and this is {FORMAT}")
    return Companion(path, size, msgspec.msgpack.decode(head, type=Head), reader.get_batch(0))


class _Format(Struct):
    format: int
