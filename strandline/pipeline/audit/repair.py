"""Removing rows that are in the table ``records`` more than once.

The files that have extra copies are written again without them, and replaced in one commit. The tables ``latest`` and
``keys`` are committed first, made of ``records`` as it will be, because ``keys`` has counted every copy. A crash in
between leaves copies in ``records``, which the next repair finds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from strandline.history.source import History
from strandline.lake import layout
from strandline.lake.claim import LakeInUse, claim
from strandline.lake.fence import take_fence
from strandline.lake.files import DataFile, open_file
from strandline.lake.location import Lake
from strandline.lake.table import KnownFile, TableMoved
from strandline.pipeline.audit.duplicates import Copies, Ranges, Work, find_copies, is_kept
from strandline.pipeline.audit.run import on_spark
from strandline.pipeline.erasure_files import Concerned
from strandline.pipeline.events import Events
from strandline.pipeline.keys import ByKey
from strandline.pipeline.record_files import RowsWriter
from strandline.pipeline.round import EVERYTHING, Chosen, Round, wall_clock
from strandline.pipeline.rounds import choose
from strandline.pipeline.status import Reporter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


STAGE = "repair"
#: A repair is planned so often if others change the tables under it.
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
) -> Copies:
    """Remove the extra copies, as the one driver of the lake. Raises LakeInUse and UnknownLogs."""
    every = [info for info in history.logs() if not (info.name.startswith("__") or info.ephemeral)]
    logs = choose(every, chosen)
    with claim(lake, wall_clock), take_fence(lake, wall_clock) as fence:
        round = Round(spark, history, lake, reporter, logs, every, Events(history), fence=fence)
        return remove_copies(round, on_spark(spark))


def remove_copies(round: Round, work: Work) -> Copies:
    """Remove what is in the table more than once, of the round's logs and, if those are all, of logs that do not exist
    any more. Gives what was removed. Raises LakeInUse if others change the lake at the same time."""
    for _ in range(ATTEMPTS):
        try:
            found = _repair(round, work)
        except TableMoved:
            continue
        if found is not None:
            return found
    raise LakeInUse(f"the lake at {round.lake.url} was changed again and again while it was repaired: try again later")


def _repair(round: Round, work: Work) -> Copies | None:
    """None if files went away meanwhile."""
    records = layout.records(round.lake).snapshot(round.fence)
    files = records.files()
    epochs = None if round.logs == round.all_logs else {info.epoch for info in round.logs}
    with round.reporter.stage(STAGE, sum(file.rows for file in files)) as stage:
        found = find_copies(round.lake, files, work, epochs, stage.advance)
        if found is None or not found.concerned:
            return found
        new: list[DataFile] = []
        concerned = Concerned({})
        items = [RepairItem(round.lake, path, found.dropped.get(path, {})) for path in sorted(found.concerned)]
        for done in work(write_without_copies, items, RepairItem, RepairDone):
            new += done.files
            concerned.join(done.concerned)
        left: list[Any] = [file for file in files if file.path not in found.concerned]
        ByKey(round).renew([*left, *map(KnownFile.of, new)], concerned.keys, {})
        replaced = [file for file in files if file.path in found.concerned]
        records.commit(add=new, remove=replaced, now=round.now())
    return found
