"""Check a whole segment: compare everything that its footer says with its rows."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from strandline.arrow import pa
from strandline.engine.errors import DamagedFile
from strandline.engine.segments.footer import RunInfo

if TYPE_CHECKING:
    from strandline.engine.segments.segment import Segment
    from strandline.engine.segments.writer import Codes, Ints


class _Rows(NamedTuple):
    """The columns of a whole segment that are checked across blocks."""

    names: Codes
    seqs: Ints
    ts: Ints
    sizes: Ints
    codes: Codes
    by_key: Codes
    #: False for the rows of unreadable blocks.
    known: Any


def check(segment: Segment) -> list[str]:
    """Return all problems of a segment, as sentences. Damaged bytes never raise."""
    problems = list(_check_layout(segment))
    if problems:
        return problems
    rows = _Rows(
        *(np.zeros(segment.rows, dtype) for dtype in ("i4", "i8", "i8", "i8", "i4", "i4", "?")),
    )
    names: list[str] = []
    keys: list[str] = []
    for index in range(len(segment.blocks)):
        try:
            batch = _read(segment, index)
        except DamagedFile as error:
            problems.append(f"Block {index}: {error.why}.")
            continue
        names = names or batch.column("log").dictionary.to_pylist()
        keys = keys or batch.column("key").dictionary.to_pylist()
        problems.extend(_take_block(segment, index, batch, rows))
    if keys != sorted(set(keys)):
        problems.append("The dictionary of keys is not sorted or has duplicates.")
    for run in segment.runs:
        if rows.known[run.row : run.row + run.rows].all():
            problems.extend(f"Run of {run.name!r}: {problem}." for problem in _check_run(run, rows, names, keys))
    return problems


def damaged_blocks(segment: Segment) -> list[int]:
    """Return the numbers of the unreadable blocks."""
    damaged = []
    for index in range(len(segment.blocks)):
        try:
            _read(segment, index)
        except DamagedFile:
            damaged.append(index)
    return damaged


class DamagedRows(NamedTuple):
    """Rows of one log in damaged blocks: their number, and the first and last seq (inclusive)."""

    run: RunInfo
    first: int
    last: int
    rows: int


def stretches(segment: Segment, damaged: Collection[int]) -> Iterator[DamagedRows]:
    """Yield the rows that damaged blocks contained. Where a log has no gaps the seqs are exact, otherwise they extend
    to the next known row."""
    for run in segment.runs:
        row, behind = run.row, run.row + run.rows
        while row < behind:
            stop = _end_of_block(segment, row, behind)
            if segment.block_of(row) in damaged:
                while stop < behind and segment.block_of(stop) in damaged:
                    stop = _end_of_block(segment, stop, behind)
                yield _stretch(segment, run, row, stop)
            row = stop


def _end_of_block(segment: Segment, row: int, limit: int) -> int:
    block = segment.blocks[segment.block_of(row)]
    return min(block.row + block.rows, limit)


def _stretch(segment: Segment, run: RunInfo, start: int, stop: int) -> DamagedRows:
    if run.last - run.first + 1 == run.rows:
        first, last = run.first + start - run.row, run.first + stop - 1 - run.row
    else:
        first = run.first if start == run.row else _seq_at(segment, start - 1) + 1
        last = run.last if stop == run.row + run.rows else _seq_at(segment, stop) - 1
    return DamagedRows(run, first, last, stop - start)


def _seq_at(segment: Segment, row: int) -> int:
    index = segment.block_of(row)
    return segment.load(index).seq(row - segment.blocks[index].row)


def _read(segment: Segment, index: int) -> Any:
    batch = segment.batch(index)
    try:
        batch.validate(full=True)
    except pa.ArrowException as error:
        raise DamagedFile(segment.path, f"Arrow cannot read it ({error})") from error
    return batch


def _check_layout(segment: Segment) -> Iterator[str]:
    row, end = 0, segment.blocks[0].offset
    for index, block in enumerate(segment.blocks):
        if block.row != row or block.rows < 1 or block.offset != end or block.end <= end:
            yield f"Block {index} does not follow the previous block."
        row, end = block.row + block.rows, block.end
    row = 0
    before: tuple[str, int] | None = None
    for run in segment.runs:
        if run.row != row or run.rows < 1:
            yield f"The run of {run.name!r} does not follow the previous run."
        if before is not None and (run.name, run.epoch) <= before:
            yield f"The run of {run.name!r} is out of order."
        row, before = run.row + run.rows, (run.name, run.epoch)
    if row != segment.rows:
        yield f"The runs have {row} rows, but the blocks have {segment.rows}."


def _take_block(segment: Segment, index: int, batch: Any, rows: _Rows) -> Iterator[str]:
    block = segment.blocks[index]
    here = slice(block.row, block.row + block.rows)
    for name in ("log", "seq", "ts", "data"):
        if batch.column(name).null_count:
            yield f"Block {index} has rows without {name}."
            return
    sizes = _lengths(batch.column("data")) + _lengths(batch.column("meta"))
    if int(sizes.sum()) != block.size:
        yield f"Block {index} has {int(sizes.sum())} bytes instead of {block.size}."
    rows.names[here] = batch.column("log").indices.to_numpy()
    rows.seqs[here] = batch.column("seq").to_numpy()
    rows.ts[here] = batch.column("ts").view(pa.int64()).to_numpy()
    rows.sizes[here] = sizes
    rows.codes[here] = batch.column("key").indices.fill_null(-1).to_numpy()
    rows.by_key[here] = batch.column("by_key").fill_null(-1).to_numpy()
    rows.known[here] = True


def _lengths(column: Any) -> Ints:
    lengths: Ints = np.diff(np.frombuffer(column.buffers()[1], np.int32, len(column) + 1)).astype(np.int64)
    return lengths


def _check_run(run: RunInfo, rows: _Rows, names: list[str], keys: list[str]) -> Iterator[str]:
    here = slice(run.row, run.row + run.rows)
    seqs, ts, codes = rows.seqs[here], rows.ts[here], rows.codes[here]
    if {names[code] for code in np.unique(rows.names[here]).tolist()} != {run.name}:
        yield "its rows belong to another log"
    if (np.diff(seqs) <= 0).any():
        yield "its seqs do not ascend"
    if (int(seqs[0]), int(seqs[-1])) != (run.first, run.last):
        yield f"it goes from seq {seqs[0]} to {seqs[-1]} instead of {run.first} to {run.last}"
    if (int(ts[0]), int(ts[-1])) != (run.ts_first, run.ts_last):
        yield f"it goes from time {ts[0]} to {ts[-1]} instead of {run.ts_first} to {run.ts_last}"
    if int(rows.sizes[here].sum()) != run.size:
        yield f"it has {int(rows.sizes[here].sum())} bytes instead of {run.size}"
    keyed = np.flatnonzero(codes >= 0)
    ordered = keyed[np.argsort(codes[keyed], kind="stable")]
    expected = np.full(run.rows, -1, np.int64)
    expected[: len(ordered)] = ordered + run.row
    if not np.array_equal(rows.by_key[here], expected):
        yield "its index of keys is wrong"
    bounds = (keys[codes[ordered[0]]], keys[codes[ordered[-1]]]) if len(ordered) else (None, None)
    if bounds != (run.key_first, run.key_last):
        yield f"its keys go from {bounds[0]!r} to {bounds[1]!r}, not {run.key_first!r} to {run.key_last!r}"
