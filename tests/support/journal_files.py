"""Journal files for tests, and the plainest possible model of what sealing should make of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from strandline.engine.disk import Disk
from strandline.engine.journal import bodies, frame
from strandline.engine.record import Batch, Record
from strandline.engine.segments.footer import SegmentInfo
from strandline.engine.segments.jobs import Keep
from strandline.engine.segments.segment import Segment
from strandline.engine.state.block import Block

SEED = 0x5EED


class Append(NamedTuple):
    epoch: int
    first: int
    ts: int
    batch: Batch
    extras: bodies.Extras | None = None


def journal_bytes(appends: Iterable[Append]) -> bytes:
    parts = [frame.file_header(frame.FileKind.JOURNAL, 1, SEED)]
    offset = len(parts[0])
    for append in appends:
        block = Block.of_batch(append.first, append.ts, append.batch)
        encoded = frame.encode_append(append.epoch, block, append.ts, 0, append.extras)
        parts.extend(encoded.seal(SEED, offset))
        offset += encoded.length
        # Frames of other kinds lie between the appends of a real journal.
        encoded = frame.encode(frame.FrameType.RESERVE, append.epoch, 0, append.ts, reserved=7)
        parts.extend(encoded.seal(SEED, offset))
        offset += encoded.length
    return b"".join(parts)


def write_journal(disk: Disk, path: str, appends: Iterable[Append]) -> None:
    disk.write_file(path, journal_bytes(appends))


def records_of(appends: Iterable[Append]) -> dict[int, list[Record]]:
    """The records of every epoch, in the order in which they were written."""
    logs: dict[int, list[Record]] = {}
    for epoch, first, ts, batch, _ in appends:
        nothing: list[None] = [None] * len(batch)
        rows = zip(batch.keys or nothing, batch.nodes or nothing, batch.metas or nothing, batch.data, strict=True)
        logs.setdefault(epoch, []).extend(Record(first + i, ts, *row) for i, row in enumerate(rows))
    return logs


def surviving(logs: Mapping[int, Sequence[Record]], keep: Iterable[Keep]) -> dict[int, list[Record]]:
    """What sealing must leave, the slow and obvious way."""
    result: dict[int, list[Record]] = {}
    for log in keep:
        amended = dict(log.amended)
        dead = {seq for low, high in log.dead for seq in range(low, high + 1)}
        alive = [
            record._replace(data=amended.get(record.seq, record.data))
            for record in logs.get(log.epoch, [])
            if record.seq >= log.first and record.seq not in dead
        ]
        if alive:
            result[log.epoch] = alive
    return result


def open_segment(disk: Disk, path: str, info: SegmentInfo) -> Segment:
    return Segment.open(disk.local_path(path), path, info.id, info.size, info.edges)


def read_rows(segment: Segment, start: int, end: int) -> list[Record]:
    records: list[Record] = []
    while start < end:
        index = segment.block_of(start)
        block, base = segment.load(index), segment.blocks[index].row
        high = min(end - base, len(block))
        for row in range(start - base, high):
            keys, nodes, metas = (
                None if column is None else column[row] for column in (block.keys, block.nodes, block.metas)
            )
            records.append(Record(block.seq(row), block.timestamp(row), keys, nodes, metas, block.payload(row)))
        start = base + high
    return records


def read_logs(segment: Segment) -> dict[int, list[Record]]:
    return {run.epoch: read_rows(segment, run.row, run.row + run.rows) for run in segment.runs}
