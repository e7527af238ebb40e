"""Finds rows of the table ``records`` that are stored more than once: the same seq of the same log, in any files.

Tasks read the seqs of a file. Seqs are mostly consecutive, so a file reduces to a few ranges, and the driver compares
the ranges of all files. The first file with a seq, in the order of paths, keeps it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from strandline.engine.record import is_internal
from strandline.engine.state.ranges import inside
from strandline.history.source import History
from strandline.lake import layout, typed_tables
from strandline.lake.erasures import Concerned, ErasureEvents
from strandline.lake.fence import LakeInUse, claim, take_fence
from strandline.lake.files import DataFile, open_file, read_lake_file
from strandline.lake.location import Lake
from strandline.lake.record_files import RowsWriter
from strandline.lake.reporter import Reporter
from strandline.lake.table import KnownFile, TableMoved
from strandline.pipeline.audit.report import Finding, ranges_text
from strandline.pipeline.chosen_logs import EVERYTHING, Chosen, choose, wall_clock
from strandline.pipeline.keys import ByKey
from strandline.pipeline.round import Round
from strandline.pipeline.tasks import Workers
from strandline.pipeline.typed_tables.stage import progress_of, remove_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Seqs = npt.NDArray[np.int64]
Ranges = list[tuple[int, int]]


class SeqsItem(msgspec.Struct, frozen=True, array_like=True):
    lake: Lake
    path: str


class SeqsSeen(msgspec.Struct, array_like=True):
    """The seqs of a file by epoch, and the seqs that it has more than once. ``extra`` counts rows that are copies of
    others in the file. ``logs`` maps epochs to names. ``gone``: the file no longer exists."""

    path: str
    rows: int = 0
    ranges: dict[int, Ranges] = {}
    repeated: dict[int, Ranges] = {}
    extra: dict[int, int] = {}
    logs: dict[int, str] = {}
    gone: bool = False


class DuplicateRows(msgspec.Struct):
    """The duplicate rows of the table. ``dropped`` has, by path and epoch, the seqs that another file keeps. Files in
    ``concerned`` must be rewritten without those, and with one row for each other seq."""

    rows: int = 0
    concerned: set[str] = set()
    dropped: dict[str, dict[int, Ranges]] = {}
    #: By epoch: the seqs, the number of extra rows, and the name of the log.
    seqs: dict[int, Ranges] = {}
    extra: dict[int, int] = {}
    logs: dict[int, str] = {}

    def findings(self, *, removed: bool = False) -> list[Finding]:
        return [
            Finding(
                check="copies",
                ok=removed,
                log=self.logs[epoch],
                first_seq=ranges[0][0],
                count=self.extra[epoch],
                detail=f"{self.extra[epoch]} rows are extra copies (seqs {ranges_text(ranges)})"
                + ("; they were removed" if removed else "; run strandline pipeline audit --repair to remove them"),
            )
            for epoch, ranges in sorted(self.seqs.items())
        ]


def read_seqs(item: SeqsItem) -> SeqsSeen:
    seen = SeqsSeen(item.path)
    found: dict[int, list[Seqs]] = {}
    try:
        for batch in read_lake_file(item.lake, f"records/{item.path}", ["log", "epoch", "seq"]):
            seen.rows += batch.num_rows
            epochs, seqs = batch.column("epoch").to_numpy(), batch.column("seq").to_numpy()
            numbers, firsts = np.unique(epochs, return_index=True)
            for epoch, first in zip(numbers.tolist(), firsts.tolist(), strict=True):
                found.setdefault(epoch, []).append(seqs[epochs == epoch])
                seen.logs.setdefault(epoch, batch.column("log")[first].as_py())
    except FileNotFoundError:
        return SeqsSeen(item.path, gone=True)
    for epoch, parts in found.items():
        distinct, counts = np.unique(np.concatenate(parts), return_counts=True)
        seen.ranges[epoch] = _ranges(distinct)
        if (counts > 1).any():
            seen.repeated[epoch] = _ranges(distinct[counts > 1])
            seen.extra[epoch] = int((counts - 1).sum())
    return seen


def find_copies(
    lake: Lake,
    files: Sequence[KnownFile],
    workers: Workers,
    epochs: Collection[int] | None = None,
    advance: Callable[[int], None] = lambda rows: None,
) -> DuplicateRows | None:
    """The duplicate rows in these files, for the logs with these epochs (None for all). None if files were removed
    meanwhile."""
    items = [SeqsItem(lake, file.path) for file in files]
    seen: list[SeqsSeen] = []
    for each in workers.results(read_seqs, items, SeqsItem, SeqsSeen):
        if each.gone:
            return None
        advance(each.rows)
        seen.append(each)
    return _compared(seen, epochs)


def _compared(seen: Iterable[SeqsSeen], epochs: Collection[int] | None) -> DuplicateRows:
    found = DuplicateRows(0, set(), {}, {}, {}, {})
    kept: dict[int, Ranges] = {}
    for each in sorted(seen, key=lambda each: each.path):
        found.rows += each.rows
        for epoch, ranges in each.ranges.items():
            if epochs is not None and epoch not in epochs:
                continue
            repeated = each.repeated.get(epoch, [])
            elsewhere = _intersection(ranges, kept.get(epoch, []))
            kept[epoch] = _union(kept.get(epoch, []), ranges)
            if not (repeated or elsewhere):
                continue
            found.concerned.add(each.path)
            if elsewhere:
                found.dropped.setdefault(each.path, {})[epoch] = elsewhere
            found.logs[epoch] = each.logs[epoch]
            found.seqs[epoch] = _union(found.seqs.get(epoch, []), _union(repeated, elsewhere))
            # The rows of this file beyond the first of each seq, and also the first if another file keeps it.
            found.extra[epoch] = found.extra.get(epoch, 0) + each.extra.get(epoch, 0) + _count(elsewhere)
    return found


def is_kept(epochs: Seqs, seqs: Seqs, dropped: Mapping[int, Ranges]) -> npt.NDArray[np.bool_]:
    """Which rows of a file to keep: the first of each seq, unless another file keeps it."""
    order = np.lexsort((np.arange(len(seqs)), seqs, epochs))
    repeated = np.zeros(len(seqs), np.bool_)
    same = (epochs[order][1:] == epochs[order][:-1]) & (seqs[order][1:] == seqs[order][:-1])
    repeated[order[1:][same]] = True
    for epoch, ranges in dropped.items():
        repeated |= (epochs == epoch) & inside(seqs, ranges)
    kept: npt.NDArray[np.bool_] = ~repeated
    return kept


# --- ranges, ascending and disjoint ----------------------------------------------------------------------------------


def _ranges(seqs: Seqs) -> Ranges:
    """The ranges of ascending seqs."""
    ends = np.flatnonzero(np.diff(seqs) > 1)
    firsts = seqs[np.concatenate(([0], ends + 1))]
    lasts = seqs[np.concatenate((ends, [len(seqs) - 1]))]
    return list(zip(firsts.tolist(), lasts.tolist(), strict=True))


def _intersection(one: Ranges, other: Ranges) -> Ranges:
    found: Ranges = []
    at = there = 0
    while at < len(one) and there < len(other):
        first, last = max(one[at][0], other[there][0]), min(one[at][1], other[there][1])
        if first <= last:
            found.append((first, last))
        if one[at][1] < other[there][1]:
            at += 1
        else:
            there += 1
    return found


def _union(one: Ranges, other: Ranges) -> Ranges:
    found: Ranges = []
    for first, last in sorted([*one, *other]):
        if found and first <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(found[-1][1], last)
        else:
            found.append((first, last))
    return found


def _count(ranges: Ranges) -> int:
    return sum(last - first + 1 for first, last in ranges)


# --- Removing duplicate rows of the table ``records`` ---------------------------------------------------------------

STAGE = "repair"
#: Attempts to plan a repair while other processes change the tables.
ATTEMPTS = 5
_NARROW = ["epoch", "seq", "key"]


class RepairItem(msgspec.Struct, frozen=True, array_like=True):
    """A file of ``records``, and the seqs that another file keeps, by epoch."""

    lake: Lake
    path: str
    dropped: dict[int, Ranges]


class RepairDone(msgspec.Struct, frozen=True, array_like=True):
    path: str
    files: list[DataFile]
    concerned: Concerned


def write_without_copies(item: RepairItem) -> RepairDone:
    concerned = Concerned({})
    with open_file(item.lake, f"records/{item.path}") as source:
        file = pq.ParquetFile(source)
        narrow = file.read(columns=_NARROW, use_threads=False)
        epochs = narrow.column("epoch").to_numpy()
        kept = is_kept(epochs, narrow.column("seq").to_numpy(), item.dropped)
        concerned.add(epochs[~kept], narrow.column("key").combine_chunks().filter(pa.array(~kept)))
        with RowsWriter(layout.records(item.lake)) as writer:
            start = 0
            for group in range(file.num_row_groups):
                rows = file.read_row_group(group, columns=layout.RECORDS.names, use_threads=False)
                wanted = kept[start : start + rows.num_rows]
                start += rows.num_rows
                if np.any(wanted):
                    writer.write(rows.filter(pa.array(wanted)).cast(layout.RECORDS))
            return RepairDone(item.path, writer.close(), concerned)


def repair_lake(
    spark: SparkSession, history: History, lake: Lake, reporter: Reporter, chosen: Chosen = EVERYTHING
) -> DuplicateRows:
    """Remove duplicate rows, as the only driver of the lake. Raises LakeInUse and UnknownLogs."""
    every = [info for info in history.logs() if not (is_internal(info.name) or info.ephemeral)]
    logs = choose(every, chosen)
    with claim(lake, wall_clock), take_fence(lake, wall_clock) as fence:
        round = Round(spark, history, lake, reporter, logs, every, ErasureEvents(history), fence=fence)
        return remove_copies(round)


def remove_copies(round: Round) -> DuplicateRows:
    """Remove the duplicate rows of the round's logs and, if those are all logs, of logs that no longer exist. Returns
    what was removed. Raises LakeInUse if other processes keep changing the lake."""
    for _ in range(ATTEMPTS):
        try:
            found = _repair(round)
        except TableMoved:
            continue
        if found is not None:
            return found
    raise LakeInUse(f"the lake at {round.lake.url} kept changing during the repair: stop its pipeline and try again")


def _remove_typed_tables(round: Round, epochs: set[int]) -> None:
    """Remove the typed tables of these logs, which have the same rows twice. The next round builds them again."""
    for folder in typed_tables.folders(round.lake):
        if epochs & {int(name) for name in progress_of(round, folder) if name.isdecimal()}:
            remove_table(round, folder)


def _repair(round: Round) -> DuplicateRows | None:
    """None if files were removed meanwhile."""
    records = layout.records(round.lake).snapshot(round.fence)
    files = records.files()
    epochs = None if round.logs == round.all_logs else {info.epoch for info in round.logs}
    with round.reporter.stage(STAGE, sum(file.rows for file in files)) as stage:
        found = find_copies(round.lake, files, round.workers, epochs, stage.advance)
        if found is None or not found.concerned:
            return found
        new: list[DataFile] = []
        concerned = Concerned({})
        items = [RepairItem(round.lake, path, found.dropped.get(path, {})) for path in sorted(found.concerned)]
        for done in round.workers.results(write_without_copies, items, RepairItem, RepairDone):
            new += done.files
            concerned.join(done.concerned)
        left: list[Any] = [file for file in files if file.path not in found.concerned]
        ByKey(round).renew([*left, *map(KnownFile.of, new)], concerned.keys, {})
        _remove_typed_tables(round, {epoch for epochs in found.dropped.values() for epoch in epochs})
        replaced = [file for file in files if file.path in found.concerned]
        records.commit(add=new, remove=replaced, now=round.now())
    return found
