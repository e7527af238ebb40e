"""The index file: one uncompressed Arrow IPC file, used in place.

It has one row. Every column is a list: an array of numbers or texts, named "firsts", "places", "column:NAME:PART" or
"rollup:NAME:INTERVAL:…". The metadata of the file's footer holds an :class:`IndexHead` with the meaning of the arrays,
their positions in the file, and their checksums; the head has a checksum itself. Any Arrow reader can read the file.
Strandline verifies the head when a file is opened, and an array when it is first used, so opening is cheap and only the
needed parts of a file are read.
"""

from __future__ import annotations

import mmap
import os
import struct
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import xxhash
from msgspec import Struct

from strandline.arrow import pa
from strandline.query.chunk import Chunk, Seqs
from strandline.query.columns import AnyColumn, HistogramColumn, KeywordColumn, NumberColumn, TextColumn
from strandline.query.index_files.mapped_file import map_file
from strandline.query.index_files.rollups import StoredRollup, load_sums
from strandline.query.packed_numbers import PackedNumberColumn, Packing, pack_numbers
from strandline.query.postings import PostedKeywordColumn, narrow, post_keywords, sort_words
from strandline.query.sums import Sums
from strandline.query.text_postings import PostedTextColumn, post_texts

if TYPE_CHECKING:
    from strandline.query.index_files.shared_file import FilePart


class StoredColumn(Struct, frozen=True):
    """``kind`` is "number", "packed", "bool", "keyword", "text" or "histogram"; ``parts`` are the names of its
    arrays."""

    name: str
    kind: str
    parts: tuple[str, ...]


def store_column(name: str, column: AnyColumn, positions: bool) -> tuple[StoredColumn, dict[str, Any]]:
    """Return the description of a column, and its arrays by name. ``positions`` is whether phrases are found in it."""
    kind, parts = _parts(column, positions)
    if column.rows is not None:
        parts["rows"] = column.rows
    return StoredColumn(name, kind, tuple(parts)), {array_name(name, part): array for part, array in parts.items()}


def store_seqs(seqs: Seqs) -> dict[str, Any]:
    return {FIRSTS: seqs.firsts, PLACES: narrow(seqs.places, seqs.count)}


def array_name(column: str, part: str) -> str:
    return f"column:{column}:{part}"


def _parts(column: AnyColumn, positions: bool) -> tuple[str, dict[str, Any]]:
    if isinstance(column, NumberColumn):
        return _number_parts(column)
    if isinstance(column, TextColumn):
        return "text", post_texts(column.plain(), positions)
    if isinstance(column, HistogramColumn):
        codes, words = sort_words(column.codes, column.words)
        return "histogram", {"codes": narrow(codes, len(words)), "words": words, "weights": column.weights}
    return "keyword", post_keywords(column)


def _number_parts(column: NumberColumn) -> tuple[str, dict[str, Any]]:
    values = column.values
    if values.dtype == np.bool_:
        return "bool", {"values": values.view(np.uint8)}
    if column.is_general:
        return "number", _wide_parts(values)
    packed = pack_numbers(values)
    if packed is None:
        return "number", {"values": values}
    return "packed", {"values": packed[0], "packing": np.array(packed[1], np.int64)}


def _wide_parts(values: Any) -> dict[str, Any]:
    listed = values.tolist()
    wide = [place for place, value in enumerate(listed) if not -(1 << 63) <= value < 1 << 63]
    for place in wide:
        listed[place] = 0
    texts = pa.array([str(values[place]) for place in wide], pa.string())
    return {"values": np.array(listed, np.int64), "wide": np.array(wide, np.int64), "wide_texts": texts}


def load_column(stored: StoredColumn, array: Callable[[str], Any]) -> AnyColumn:
    """Restore a column. ``array`` returns arrays by name, numbers as numpy arrays and texts as Arrow arrays."""

    def part(name: str) -> Any:
        return array(array_name(stored.name, name))

    rows = part("rows") if "rows" in stored.parts else None
    if stored.kind == "text":
        # A query needs few of its arrays.
        return PostedTextColumn(part, rows, "positions" in stored.parts)
    parts = {name: part(name) for name in stored.parts}
    match stored.kind:
        case "number":
            return NumberColumn(_numbers(parts), rows)
        case "packed":
            return PackedNumberColumn(parts["values"], Packing(*parts["packing"].tolist()), rows)
        case "bool":
            return NumberColumn(parts["values"].view(np.bool_), rows)
        case "keyword":
            order, starts = parts.get("order", _NOWHERE), parts.get("starts", _NOWHERE)
            return PostedKeywordColumn(parts["codes"], parts["words"], rows, order, starts)
        case "histogram":
            return HistogramColumn(parts["codes"], parts["words"], parts["weights"], rows)
        case kind:
            raise ValueError(f"unknown kind of column: {kind!r}")


def _numbers(parts: dict[str, Any]) -> Any:
    values = parts["values"]
    if "wide" not in parts:
        return values
    general = values.astype(np.object_)
    for place, text in zip(parts["wide"].tolist(), parts["wide_texts"].to_pylist(), strict=True):
        general[place] = int(text)
    return general


def plain_column(column: AnyColumn) -> AnyColumn:
    """Return the same values as a column without postings and with codes of the usual size."""
    if isinstance(column, TextColumn):
        return column.plain()
    if isinstance(column, HistogramColumn):
        return HistogramColumn(column.codes.astype(np.int32), column.words, column.weights, column.rows)
    if isinstance(column, KeywordColumn):
        return KeywordColumn(column.codes.astype(np.int32), column.words, column.rows)
    return NumberColumn(column.values, column.rows, column.bounds)


FORMAT = 2
METADATA_KEY = b"strandline.companion"
MAGIC = b"STRDCOMP"
#: Precedes the head: the magic number, the length of the head and its XXH3, in hexadecimal, because the metadata of an
#: Arrow file is text.
_FRAME = struct.Struct("8s8s16s")
_STRING = "string"
#: The seqs are stored as ranges: the first seq of each, and the row of its record.
FIRSTS, PLACES = "firsts", "places"
#: The name under which :meth:`IndexFile.array` returns all seqs.
SEQS = "seqs"

_NOWHERE = np.empty(0, np.int32)


class DamagedIndexFile(Exception):
    """The file is damaged or is not an index file. Everything in it can be built again."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"the index file {path} cannot be used: {why}")
        self.path = path
        self.why = why


class Info(Struct, frozen=True, kw_only=True):
    """The records that an index file covers: ``first`` to ``last`` of a log. Some of these seqs may have no record."""

    #: The id of the data directory, and the log in it.
    directory: str
    log: str
    epoch: int
    first: int
    last: int
    #: The schema versions of the records: see :func:`~strandline.query.index_files.builder.versions_between`.
    versions: tuple[tuple[int, int], ...]
    #: The names of the plan and of the rollups.
    plan: str
    rollups: str
    #: All erasures up to this seq of the log of erasures were applied when the records were read.
    erasures: int
    #: The number of indexed records: those that are JSON objects.
    records: int
    #: How often records of the log had been restored or amended when the records were read; -1 if this is not known.
    rewrites: int = -1


class StoredArray(Struct, frozen=True, array_like=True):
    """``kind`` is the numpy type of the numbers, or "string". ``buffers`` has the positions and sizes of the parts of
    the array: the numbers, or the offsets of the texts and the texts themselves."""

    kind: str
    length: int
    buffers: tuple[tuple[int, int], ...]
    checksum: int

    @property
    def size(self) -> int:
        return sum(size for _, size in self.buffers)


class IndexHead(Struct, frozen=True):
    format: int
    info: Info
    columns: tuple[StoredColumn, ...]
    rollups: tuple[StoredRollup, ...]
    arrays: dict[str, StoredArray]


class IndexFile:
    """An open index file. Thread-safe. The file is closed when nothing refers to it any more.

    Methods raise :class:`DamagedIndexFile` if the bytes that they need do not match their checksum.
    """

    def __init__(self, path: str, head: IndexHead, content: Any) -> None:
        self.path = path
        self.size = int(content.size)
        self.info = head.info
        self.head = head
        self._content = content
        self._columns = _Columns(self)
        self._sums: dict[tuple[str, int], Sums] = {}

    def chunk(self) -> Chunk | None:
        """Return its records; None if it has none."""
        if not self.info.records:
            return None
        return Chunk(self._seqs(), self._columns, find_sums=self.sums)

    def _seqs(self) -> Seqs:
        return Seqs(self.array(FIRSTS), self.array(PLACES), self.info.records)

    def sums(self, rollup_id: str, interval_ms: int) -> Sums | None:
        """Return the sums of its records; None if it does not have this rollup."""
        found = self._sums.get((rollup_id, interval_ms))
        if found is None:
            stored = next((each for each in self.head.rollups if each.id == rollup_id), None)
            if stored is None or interval_ms not in stored.intervals:
                return None
            found = self._sums[rollup_id, interval_ms] = load_sums(stored, interval_ms, self.array)
        return found

    def array(self, name: str) -> Any:
        """Return a verified array: numbers as a numpy array, texts as an Arrow array. "seqs" are all seqs."""
        if name == SEQS:
            return self._seqs().all()
        stored = self.head.arrays[name]
        digest = xxhash.xxh3_64()
        buffers = []
        for offset, size in stored.buffers:
            if offset + size > self.size:
                raise DamagedIndexFile(self.path, f"it ends before {name}")
            buffers.append(self._content.slice(offset, size))
            digest.update(buffers[-1])
        if digest.intdigest() != stored.checksum:
            raise DamagedIndexFile(self.path, f"the checksum of {name} does not match")
        if stored.kind == _STRING:
            return pa.StringArray.from_buffers(stored.length, *buffers)
        return np.frombuffer(buffers[0], stored.kind, stored.length)

    def sizes(self) -> dict[str, int]:
        """Return the bytes of each column, and those of rollups under "rollup:NAME"."""
        sizes: dict[str, int] = {}
        for name, array in self.head.arrays.items():
            kind, _, rest = name.partition(":")
            owner = rest.rpartition(":")[0] if kind == "column" else f"rollup:{rest.partition(':')[0]}"
            if kind not in (FIRSTS, PLACES):
                sizes[owner] = sizes.get(owner, 0) + array.size
        return sizes


class _Columns(Mapping[str, AnyColumn]):
    """The columns of an index file, each created on first use."""

    def __init__(self, index_file: IndexFile) -> None:
        self._index_file = index_file
        self._stored = {stored.name: stored for stored in index_file.head.columns}
        self._made: dict[str, AnyColumn] = {}

    def __getitem__(self, name: str) -> AnyColumn:
        column = self._made.get(name)
        if column is None:
            stored = self._stored[name]
            try:
                column = self._made[name] = load_column(stored, self._index_file.array)
            except (ValueError, IndexError) as error:
                raise DamagedIndexFile(self._index_file.path, f"the column {name}: {error}") from error
        return column

    def __iter__(self) -> Iterator[str]:
        return iter(self._stored)

    def __len__(self) -> int:
        return len(self._stored)


def write_index_file(
    info: Info, columns: tuple[StoredColumn, ...], rollups: tuple[StoredRollup, ...], arrays: Mapping[str, Any]
) -> Any:
    """Return the bytes of the file, as an Arrow buffer."""
    flat = {name: array if isinstance(array, pa.Array) else pa.array(array) for name, array in arrays.items()}
    lists = [pa.LargeListArray.from_arrays(pa.array([0, len(array)], pa.int64()), array) for array in flat.values()]
    batch = pa.record_batch(lists, names=list(flat))
    # The footer comes last, so its contents do not move the positions that it contains.
    draft = _file(batch, b"")
    written = pa.ipc.open_file(draft).get_batch(0)
    stored = {name: _stored(written.column(name).values, draft) for name in flat}
    head = b64encode(msgspec.msgpack.encode(IndexHead(FORMAT, info, columns, rollups, stored)))
    return _file(batch, _FRAME.pack(MAGIC, b"%08x" % len(head), xxhash.xxh3_64_hexdigest(head).encode()) + head)


def _file(batch: Any, head: bytes) -> Any:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema, metadata={METADATA_KEY: head}) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def _stored(array: Any, file: Any) -> StoredArray:
    assert not array.null_count, "arrays must not contain nulls"
    buffers = [buffer for buffer in array.buffers()[1:] if buffer is not None]
    kind = _STRING
    if not pa.types.is_string(array.type):
        kind = np.dtype(array.type.to_pandas_dtype()).str
        # Arrow may have padded the buffer.
        buffers = [buffers[0].slice(0, len(array) * np.dtype(kind).itemsize)] if buffers else [pa.py_buffer(b"")]
    digest = xxhash.xxh3_64()
    for buffer in buffers:
        digest.update(buffer)
    places = tuple((buffer.address - file.address if buffer.size else 0, buffer.size) for buffer in buffers)
    return StoredArray(kind, len(array), places, digest.intdigest())


def open_index_file(path: str, name: str | None = None, part: FilePart | None = None) -> IndexFile:
    """Map the file, or only a part of it. ``name`` is its name in errors. Raises FileNotFoundError, DamagedIndexFile or
    OSError."""
    name = name or path
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if not size:
            raise DamagedIndexFile(name, "it is empty")
        if part is not None:
            if size < part.first + part.size:
                raise DamagedIndexFile(name, f"its file has {size} bytes; expected at least {part.first + part.size}")
            mapped = map_file(file.fileno(), size).slice(part.first, part.size)
            return IndexFile(name, _head(name, mapped.to_pybytes()), mapped)
        with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as content:
            head = _head(name, content)
        return IndexFile(name, head, map_file(file.fileno(), size))


def read_index_file(content: Any, path: str = "in memory") -> IndexFile:
    """Read an index file from its bytes. Raises DamagedIndexFile."""
    raw = bytes(content)
    return IndexFile(path, _head(path, raw), pa.py_buffer(raw))


def _head(path: str, content: bytes | mmap.mmap) -> IndexHead:
    at = content.rfind(MAGIC)
    if at < 0 or at + _FRAME.size > len(content):
        raise DamagedIndexFile(path, "it is not an index file")
    try:
        _, length, digest = _FRAME.unpack(content[at : at + _FRAME.size])
        encoded = content[at + _FRAME.size : at + _FRAME.size + int(length, 16)]
        if xxhash.xxh3_64_hexdigest(encoded).encode() != digest:
            raise DamagedIndexFile(path, "the checksum of its head does not match")
        head = b64decode(encoded, validate=True)
        found = msgspec.msgpack.decode(head, type=_Format)
        if found.format != FORMAT:
            raise DamagedIndexFile(
                path, f"it has format {found.format}, and this release reads format {FORMAT}; build it again"
            )
        return msgspec.msgpack.decode(head, type=IndexHead)
    except (msgspec.ValidationError, msgspec.DecodeError, ValueError) as error:
        raise DamagedIndexFile(path, str(error)) from error


class _Format(Struct):
    format: int
