"""Read a segment: an immutable Arrow IPC file with the rows of many logs, through a memory map.

The columns are ``log`` (name), ``seq``, ``ts``, ``key``, ``node``, ``meta``, ``data`` and ``by_key``. Rows are sorted
by log name, epoch and seq. The consecutive rows of one log are a *run*, and each record batch is a *block*;
:mod:`strandline.engine.segments.footer` explains how the file describes them.

``by_key`` is the key index of a run. Its i-th value is the number of the row that is i-th in the order of (key, seq).
It has no values after the last row with a key. The dictionary of keys is sorted by bytes, so the code of a key is its
rank, and two binary searches find a key without a scan.
"""

from __future__ import annotations

import mmap
import os
import threading
from abc import abstractmethod
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from operator import attrgetter
from typing import Any, Generic, Literal, NamedTuple, TypeVar, overload

import numpy as np
import xxhash

from strandline.arrow import pa
from strandline.engine.errors import DamagedFile, MissingFile
from strandline.engine.segments import check
from strandline.engine.segments.footer import ENDING, BlockInfo, RunInfo, decode_footer, edges_sum, tail_start
from strandline.engine.segments.writer import Codes, Ints, schema
from strandline.engine.state.block import Block, Numbers
from strandline.engine.state.ranges import SeqRanges

#: The bytes fetched first from the cold tier. They contain the whole footer of all but the largest segments.
TAIL_GUESS_BYTES = 64 << 10
#: The memory of a block, its views and their owners in addition to the bytes they hold.
BLOCK_OVERHEAD_BYTES = 2048

ROW_COLUMNS = ("seq", "ts", "key", "node", "meta", "data")
INDEX_COLUMNS = ("key", "by_key")

#: How many blocks are searched for the end of a key before its size is estimated by its power of two.
SCANNED_BLOCKS = 4
#: The number of blocks whose keys are in memory during a lookup: at most 8 MB.
KEPT_BLOCKS = 64
#: Higher than every code: the key of a row without one.
_NO_CODE = 1 << 31

T = TypeVar("T")
_row = attrgetter("row")


class Segment:
    """One open segment file. Thread-safe. The file is closed when nothing refers to it any more.

    ``open`` verifies the head and tail of the file. A block is verified whenever it is read, before Arrow parses it.
    """

    def __init__(
        self,
        path: str,
        id: int,
        size: int,
        runs: list[RunInfo],
        blocks: list[BlockInfo],
        map: mmap.mmap,
        fetch: Callable[[int, int], None] | None,
    ) -> None:
        self.path = path
        self.id = id
        self.size = size
        self.rows = blocks[-1].row + blocks[-1].rows
        self.runs = runs
        self.blocks = blocks
        self._map = map
        self._fetch = fetch
        self._buffer: Any = pa.py_buffer(map)
        self._readers: dict[tuple[str, ...], Any] = {}
        self._row_columns: tuple[str, ...] = ROW_COLUMNS
        # Arrow's reader loads its dictionaries with the first block and does not support concurrent calls.
        self._reading = threading.Lock()

    @classmethod
    def open(
        cls,
        local_path: str,
        path: str,
        id: int,
        size: int,
        edges: int,
        fetch: Callable[[int, int], None] | None = None,
    ) -> Segment:
        """Open the file at ``local_path``. ``path`` is its name in errors; the other arguments are from its
        SegmentInfo.

        With ``fetch``, the file is a sparse copy: ``fetch(start, end)`` is called before any of these bytes is read.
        Raises MissingFile, DamagedFile or UnsupportedFormat.
        """
        map = _map_file(local_path, path, size)
        if fetch is not None:
            fetch(max(0, size - TAIL_GUESS_BYTES), size)
        start = tail_start(path, size, map[-ENDING.size :])
        if fetch is not None and start < size - TAIL_GUESS_BYTES:
            fetch(start, size - TAIL_GUESS_BYTES)
        tail = map[start:]
        footer = decode_footer(path, tail)
        head_end = footer.blocks[0].offset
        if not 0 < head_end < start or footer.blocks[-1].end != start:
            raise DamagedFile(path, "its blocks are not at the positions in its footer")
        if fetch is not None:
            fetch(0, head_end)
        if edges_sum(map[:head_end], tail) != edges:
            raise DamagedFile(path, "the checksum of its schema, dictionaries and footer does not match")
        if footer.id != id:
            raise DamagedFile(path, f"it is segment {footer.id}; expected segment {id}")
        return cls(path, id, size, footer.runs, footer.blocks, map, fetch)

    def __repr__(self) -> str:
        return f"Segment({self.path!r}, {self.rows} rows, {len(self.runs)} runs, {len(self.blocks)} blocks)"

    def block_of(self, row: int) -> int:
        """Return the index of the block that contains ``row``."""
        if not 0 <= row < self.rows:
            raise IndexError(f"{self.path} has rows 0 to {self.rows - 1}, not {row}")
        return bisect_right(self.blocks, row, key=_row) - 1

    def run_at(self, row: int) -> RunInfo:
        """Return the run that contains ``row``."""
        return self.runs[bisect_right(self.runs, row, key=_row) - 1]

    def load(self, index: int) -> Block:
        """Return all rows of one block. It may hold rows of several logs: use the row ranges of the runs.

        In that case, ``first`` and ``last`` are the seqs of the first and the last row of the block.
        """
        batch = self.batch(index, self._row_columns)
        seq, ts, meta, data = (batch.column(name) for name in ("seq", "ts", "meta", "data"))
        key, node = (batch.column(name) if name in self._row_columns else None for name in ("key", "node"))
        # A column without values in the whole file is skipped from now on.
        self._row_columns = tuple(
            name for name in self._row_columns if name not in ("key", "node") or len(batch.column(name).dictionary)
        )
        rows = len(seq)
        seqs = _numbers(seq, "q", rows)
        return Block(
            seqs[0],
            seqs[-1],
            _numbers(ts, "q", rows),
            _numbers(data, "i", rows + 1),
            _content(data).tobytes(),
            None if key is None or key.null_count == rows else LazyStrings(key),
            None if node is None or node.null_count == rows else LazyStrings(node),
            None if meta.null_count == rows else LazyBytes(meta),
            seqs,
        )

    def batch(self, index: int, columns: tuple[str, ...] | None = None) -> Any:
        """Return these columns of a block, or all, verified and decompressed, as an Arrow record batch."""
        columns = tuple(schema.SCHEMA.names) if columns is None else columns
        block = self.blocks[index]
        if self._fetch is not None:
            self._fetch(block.offset, block.end)
        with memoryview(self._map) as view, view[block.offset : block.end] as raw:
            if xxhash.xxh3_64_intdigest(raw) != block.sum:
                raise DamagedFile(self.path, f"the checksum of block {index} does not match")
        with self._reading, _arrow_errors(self.path):
            batch = self._reader(columns).get_batch(index)
        # The page cache keeps these pages if there is room. The memory of this process must not grow with the data it
        # has read.
        start = block.offset - block.offset % mmap.PAGESIZE
        self._map.madvise(mmap.MADV_DONTNEED, start, block.end - start)
        if batch.num_rows != block.rows:
            raise DamagedFile(self.path, f"block {index} has {batch.num_rows} rows; expected {block.rows}")
        return batch

    def _reader(self, columns: tuple[str, ...]) -> Any:
        reader = self._readers.get(columns)
        if reader is None:
            options = pa.ipc.IpcReadOptions(
                included_fields=[schema.SCHEMA.get_field_index(name) for name in columns], use_threads=False
            )
            reader = self._readers[columns] = pa.ipc.open_file(self._buffer, options=options)
            if reader.num_record_batches != len(self.blocks):
                raise DamagedFile(self.path, "its number of blocks differs from its footer")
        return reader

    def row_of(self, run_row: int, run_rows: int, first: int, seq: int) -> int:
        """Return the first row of a run with at least this ``seq``, or the row after the run if there is none.

        ``run_row``, ``run_rows`` and ``first`` are from the run's RunInfo.
        """
        if seq <= first:
            return run_row
        last = self.run_at(run_row).last
        if seq > last:
            return run_row + run_rows
        if last - first + 1 == run_rows:
            return run_row + seq - first
        index = _Index(self)
        return bisect_left(range(run_row + run_rows), seq, lo=run_row, key=index.seq)

    def seq_of(self, row: int) -> int:
        """Return the seq of a row. Reads the block's column of seqs."""
        return _Index(self).seq(row)

    def seq_ranges(self, row: int, rows: int) -> SeqRanges:
        """Return the seqs of a run. Reads the column of seqs of its blocks."""
        found, end = SeqRanges(), row + rows
        while row < end:
            number = self.block_of(row)
            start = row - self.blocks[number].row
            seqs = self.batch(number, ("seq",)).column(0).to_numpy()[start : start + end - row]
            breaks = np.flatnonzero(np.diff(seqs) != 1)
            firsts, lasts = seqs[np.append(0, breaks + 1)], seqs[np.append(breaks, len(seqs) - 1)]
            for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True):
                found.add(first, last)
            row += len(seqs)
        return found

    def seqs_with_key(self, row: int, rows: int, key: str) -> list[int]:
        """Return the ascending seqs of the records of a run with this key."""
        index = _Index(self)
        return index.seqs(row, rows, *index.codes(row, key, prefix=False))

    def seqs_with_prefix(self, row: int, rows: int, prefix: str) -> list[int]:
        """Return the ascending seqs of the records of a run whose key starts with ``prefix``."""
        index = _Index(self)
        return index.seqs(row, rows, *index.codes(row, prefix, prefix=True))

    def keys(self, row: int, rows: int, after: str | None) -> Iterator[KeyRows]:
        """Yield the distinct keys of a run after ``after``, ascending. Reads a block at most once while the iterator is
        in use, and only few blocks for each key."""
        return _Index(self).keys(row, rows, after)

    def verify(self) -> list[str]:
        """Return all problems of the file, as sentences. Empty if it is undamaged."""
        return check.check(self)


class KeyRows(NamedTuple):
    """The records of a run with one key, in the order of their seqs."""

    key: str
    records: int
    #: Reads the seq of the last record.
    last: Callable[[], int]
    #: Reads the seqs of all records.
    seqs: Callable[[], Ints]


class _IndexBlock(NamedTuple):
    codes: Codes
    by_key: Codes


class _Index:
    """The seqs and keys of a segment for one lookup. A block is read when it is first needed. The blocks that were used
    last stay in memory."""

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._blocks: OrderedDict[int, _IndexBlock] = OrderedDict()
        self._seqs: dict[int, Ints] = {}
        self._keys: Any = None

    def _place(self, row: int) -> tuple[int, int]:
        """Return the block of a row, and the row's position in it."""
        number = self._segment.block_of(row)
        return number, row - self._segment.blocks[number].row

    def _block(self, number: int) -> _IndexBlock:
        block = self._blocks.get(number)
        if block is not None:
            self._blocks.move_to_end(number)
        else:
            key, by_key = self._segment.batch(number, INDEX_COLUMNS).columns
            self._keys = key.dictionary
            block = self._blocks[number] = _IndexBlock(
                key.indices.fill_null(-1).to_numpy(), by_key.fill_null(-1).to_numpy()
            )
            if len(self._blocks) > KEPT_BLOCKS:
                self._blocks.popitem(last=False)
        return block

    def _block_seqs(self, number: int) -> Ints:
        seqs = self._seqs.get(number)
        if seqs is None:
            seqs = self._seqs[number] = self._segment.batch(number, ("seq",)).column(0).to_numpy()
        return seqs

    def seq(self, row: int) -> int:
        number, place = self._place(row)
        return int(self._block_seqs(number)[place])

    def codes(self, row: int, text: str, *, prefix: bool) -> tuple[int, int]:
        """Return the codes of the keys that equal ``text`` or start with it: the first code, and the end (exclusive).

        ``row`` is any row of the run: its block contains the dictionary.
        """
        self._block(self._segment.block_of(row))

        def key(code: int) -> str:
            value: str = self._keys[code].as_py()
            return value

        # Python compares by code point, which is also the order of the UTF-8 bytes.
        codes = range(len(self._keys))
        low = bisect_left(codes, text, key=key)
        if prefix:
            return low, bisect_left(codes, True, lo=low, key=lambda code: not key(code).startswith(text))
        return low, low + 1 if low < len(codes) and key(low) == text else low

    def keys(self, row: int, rows: int, after: str | None) -> Iterator[KeyRows]:
        """Yield the distinct keys of a run after ``after``, ascending."""
        end = row + rows
        at = row
        if after is not None:
            at = bisect_left(range(end), self.codes(row, after, prefix=False)[1], lo=row, key=self._code_at)
        while at < end and (code := self._code_at(at)) != _NO_CODE:
            start, at = at, self._end_of_key(at, end, code)
            yield KeyRows(
                self._keys[code].as_py(),
                at - start,
                partial(self._last_seq, row, at),
                partial(self._seqs_between, row, start, at),
            )

    def _end_of_key(self, at: int, end: int, code: int) -> int:
        """Return the position after the last row with the key of the row at ``at``.

        The rows of a key ascend, so a key ends at the latest where the row numbers fall. Looking for that place reads
        ``by_key`` in order. Looking up the keys of the rows reads blocks all over the segment."""
        fall = self._fall_after(at, end)
        if fall is not None:
            if self._code_at(fall - 1) == code:
                return fall
            return bisect_left(range(fall), code + 1, lo=at, key=self._code_at)
        # The key has very many rows.
        step = 1
        while at + step < end and self._code_at(at + step) == code:
            step *= 2
        return bisect_left(range(min(at + step, end)), code + 1, lo=at + step // 2, key=self._code_at)

    def _fall_after(self, at: int, end: int) -> int | None:
        """Return the first position after ``at`` whose row is not after the previous position's row, or ``end``; None
        if a few blocks have no such position."""
        number, place = self._place(at)
        before = -1
        for index in range(number, min(number + SCANNED_BLOCKS, len(self._segment.blocks))):
            base = self._segment.blocks[index].row
            part = self._block(index).by_key[place : end - base]
            falls = np.flatnonzero(np.diff(part, prepend=np.int32(before)) <= 0)
            if len(falls):
                return base + place + int(falls[0])
            if base + place + len(part) >= end:
                return end
            before, place = int(part[-1]), 0
        return None

    def _last_seq(self, row: int, end: int) -> int:
        """Return the seq of the row that ``by_key`` has before the position ``end``."""
        return int(self._seqs_between(row, end - 1, end)[0])

    def seqs(self, row: int, rows: int, low: int, high: int) -> list[int]:
        """Return the ascending seqs of the rows of a run with codes from ``low`` to before ``high``."""
        if low >= high:
            return []
        start = bisect_left(range(row + rows), low, lo=row, key=self._code_at)
        end = bisect_left(range(row + rows), high, lo=start, key=self._code_at)
        found: list[int] = self._seqs_between(row, start, end).tolist()
        return found

    def _seqs_between(self, row: int, start: int, end: int) -> Ints:
        """Return the ascending seqs of the rows that ``by_key`` has at these positions."""
        parts: list[Codes] = []
        while start < end:
            number, place = self._place(start)
            part = self._block(number).by_key[place : place + end - start]
            parts.append(part)
            start += len(part)
        return self._seqs_of(row, np.sort(np.concatenate(parts).astype(np.int64))) if parts else np.empty(0, np.int64)

    def _code_at(self, position: int) -> int:
        """Return the code of the row that ``by_key`` has at a position."""
        number, place = self._place(position)
        row = int(self._block(number).by_key[place])
        if row < 0:
            return _NO_CODE
        number, place = self._place(row)
        return int(self._block(number).codes[place])

    def _seqs_of(self, run_row: int, rows: Ints) -> Ints:
        run = self._segment.run_at(run_row)
        if run.last - run.first + 1 == run.rows:
            return rows + (run.first - run.row)
        seqs: list[Ints] = []
        at = 0
        while at < len(rows):
            number, _ = self._place(int(rows[at]))
            block = self._segment.blocks[number]
            end = int(np.searchsorted(rows, block.row + block.rows))
            seqs.append(self._block_seqs(number)[rows[at:end] - block.row])
            at = end
        return np.concatenate(seqs)


class _Lazy(Sequence[T | None], Generic[T]):
    """A column that creates Python values only for the requested rows: pages are small, blocks are not."""

    __slots__ = ()

    @overload
    def __getitem__(self, index: int) -> T | None: ...

    @overload
    def __getitem__(self, index: slice) -> list[T | None]: ...

    def __getitem__(self, index: int | slice) -> T | list[T | None] | None:
        if isinstance(index, slice):
            start, end, step = index.indices(len(self))
            return self._values(start, max(start, end)) if step == 1 else list(self)[index]
        row = range(len(self))[index]
        return self._values(row, row + 1)[0]

    def __iter__(self) -> Iterator[T | None]:
        return iter(self._values(0, len(self)))

    @abstractmethod
    def _values(self, start: int, end: int) -> list[T | None]: ...

    @property
    @abstractmethod
    def nbytes(self) -> int: ...


class LazyStrings(_Lazy[str]):
    __slots__ = ("_column",)

    def __init__(self, column: Any) -> None:
        self._column = column

    def __len__(self) -> int:
        return len(self._column)

    def _values(self, start: int, end: int) -> list[str | None]:
        values: list[str | None] = self._column.slice(start, end - start).dictionary_decode().to_pylist()
        return values

    @property
    def nbytes(self) -> int:
        """The memory of the column, without the dictionary, which all blocks of a segment share."""
        size: int = self._column.indices.nbytes
        return size


class LazyBytes(_Lazy[bytes]):
    __slots__ = ("_data", "_offsets", "_present")

    def __init__(self, column: Any) -> None:
        self._offsets = _numbers(column, "i", len(column) + 1)
        self._data = _content(column).tobytes()
        self._present: bytes = column.is_valid().to_numpy(zero_copy_only=False).tobytes()

    def __len__(self) -> int:
        return len(self._present)

    def _values(self, start: int, end: int) -> list[bytes | None]:
        data, bounds = self._data, self._offsets[start : end + 1].tolist()
        return [
            data[low:high] if present else None
            for present, low, high in zip(self._present[start:end], bounds, bounds[1:], strict=False)
        ]

    @property
    def nbytes(self) -> int:
        return len(self._data) + self._offsets.nbytes + len(self._present)


def footprint(block: Block) -> int:
    """Estimate the memory of a block from ``Segment.load``."""
    size = BLOCK_OVERHEAD_BYTES + len(block.data) + _nbytes(block.offsets)
    if block.seqs is not None:
        size += _nbytes(block.seqs)
    if not isinstance(block.ts, int):
        size += _nbytes(block.ts)
    for column in (block.keys, block.nodes, block.metas):
        if isinstance(column, _Lazy):
            size += column.nbytes
    return size


def _nbytes(numbers: Numbers) -> int:
    return len(numbers) * numbers.itemsize


def _numbers(column: Any, format: Literal["i", "q"], count: int) -> memoryview:
    """Return the numbers of a column, or the offsets of a column of byte strings. Both are its second buffer."""
    return memoryview(column.buffers()[1]).cast("B").cast(format)[:count]


def _content(column: Any) -> memoryview:
    """Return the bytes of a column of byte strings."""
    buffer = column.buffers()[2]
    return memoryview(b"" if buffer is None else buffer)


def _map_file(local_path: str, path: str, size: int) -> mmap.mmap:
    try:
        fd = os.open(local_path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise MissingFile(path) from None
    try:
        found = os.fstat(fd).st_size
        # Never map more than the file has: touching a page after the end would kill the process.
        if found != size or size < ENDING.size:
            raise DamagedFile(path, f"it has {found} bytes; expected {size}")
        return mmap.mmap(fd, size, access=mmap.ACCESS_READ)
    finally:
        os.close(fd)


@contextmanager
def _arrow_errors(path: str) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, TypeError, KeyError) as error:
        raise DamagedFile(path, f"Arrow cannot read it ({error})") from error
