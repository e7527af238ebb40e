"""Putting the records of a part aside, in a task: the driver takes them from there, in order."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import pyarrow as pa

from strandline.lake.location import Lake
from strandline.pipeline.imports.files import SourcePart, UnreadableFile
from strandline.pipeline.imports.records import STAGED, NewRecord
from strandline.pipeline.imports.rows import Row, read_rows
from strandline.pipeline.imports.shape import Shape

BATCH_ROWS = 8192
#: Of so many bad rows it is told where they are; of the others how many there are.
MAX_FAULTS = 100


class StageItem(msgspec.Struct, array_like=True):
    """``place`` is where the records go; None: it is only looked at them."""

    part: SourcePart
    shape: Shape
    place: Lake | None = None


class Fault(msgspec.Struct, array_like=True):
    number: int
    why: str


class Staged(msgspec.Struct, array_like=True):
    """``name`` is where the records are, empty if there are none. ``lines`` is the number of the last row."""

    part: SourcePart
    rows: int = 0
    lines: int = 0
    name: str = ""
    size: int = 0
    bad: int = 0
    faults: list[Fault] = []
    unreadable: str = ""


def stage(item: StageItem) -> Staged:
    staged = Staged(item.part)
    try:
        records = _records(read_rows(item.part, item.shape), staged)
        if item.place is None:
            for _ in records:
                staged.rows += 1
        else:
            staged.name, staged.rows, staged.size = put_aside(item.place, enumerate(records))
    except UnreadableFile as error:
        return Staged(item.part, unreadable=str(error))
    return staged


def _records(rows: Iterator[Row], staged: Staged) -> Iterator[NewRecord]:
    for row in rows:
        staged.lines = row.number
        if row.record is not None:
            yield row.record
        elif row.fault:
            staged.bad += 1
            if len(staged.faults) < MAX_FAULTS:
                staged.faults.append(Fault(row.number, row.fault))


def put_aside(place: Lake, records: Iterable[tuple[int, NewRecord]]) -> tuple[str, int, int]:
    """Write records, which have ascending numbers, to a file of their own: its name (empty if there are none), how many
    records, and how many bytes."""
    name = f"{uuid.uuid4().hex}.arrow"
    if place.directory is None:
        buffer = pa.BufferOutputStream()
        rows, size = _write(buffer, records)
        if rows:
            place.write(name, buffer.getvalue().to_pybytes())
    else:
        with pa.OSFile(str(place.directory / name), "wb") as file:
            rows, size = _write(file, records)
        if not rows:
            place.remove([name])
    return (name, rows, size) if rows else ("", 0, 0)


def _write(sink: Any, records: Iterable[tuple[int, NewRecord]]) -> tuple[int, int]:
    rows = 0
    with pa.ipc.new_stream(sink, STAGED, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        for group in _groups(records):
            writer.write(_batch(group))
            rows += len(group)
    return rows, sink.tell()


def _groups(records: Iterable[tuple[int, NewRecord]]) -> Iterator[list[tuple[int, NewRecord]]]:
    group: list[tuple[int, NewRecord]] = []
    for record in records:
        group.append(record)
        if len(group) == BATCH_ROWS:
            yield group
            group = []
    if group:
        yield group


def _batch(records: list[tuple[int, NewRecord]]) -> Any:
    logs, times, keys, nodes, metas, data = zip(*(record for _, record in records), strict=True)
    columns = [logs, [number for number, _ in records], times, keys, nodes, metas, data]
    return pa.record_batch(
        [pa.array(column, field.type) for column, field in zip(columns, STAGED, strict=True)], schema=STAGED
    )


def staged_batches(place: Lake, name: str) -> Iterator[Any]:
    """What was put aside. Raises UnreadableFile if it is not there."""
    try:
        with place.open(name) as reader, pa.ipc.open_stream(reader) as stream:
            yield from stream
    except FileNotFoundError:
        raise UnreadableFile(
            f"{place.place_of(name)} is not here: it was written by a task that runs elsewhere; say with --staging "
            "where all of them can write, and this process can read"
        ) from None
