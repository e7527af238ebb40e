"""Compares typed tables with ``records``: each row up to the table's progress must be there once.

Only seqs and times are compared. The other columns are made from the payload of the same row.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.history.log_info import LogInfo
from strandline.lake.erasures import PROGRESS
from strandline.lake.files import read_lake_file
from strandline.lake.layout import records
from strandline.lake.location import Lake
from strandline.lake.reporter import StageProgress
from strandline.lake.table import KnownFile, TableSnapshot
from strandline.lake.typed_tables import folders, typed_table
from strandline.pipeline.audit.records import RANGE_SEQS, Sums, added, sums_of
from strandline.pipeline.audit.report import Finding
from strandline.pipeline.tasks import Workers

#: Attempts before the comparison fails because the tables change meanwhile.
ATTEMPTS = 3
_COLUMNS = ["epoch", "seq", "ts"]


class RowsItem(msgspec.Struct, array_like=True):
    """A file of a table, and the last seq to compare of each epoch. Rows of other epochs are counted if ``only`` is
    set."""

    lake: Lake
    table: str
    path: str
    through: dict[int, int]
    only: bool = False


class RowsSeen(msgspec.Struct, array_like=True):
    """``gone``: the file no longer exists."""

    table: str
    rows: int = 0
    sums: dict[int, Sums] = {}
    others: int = 0
    gone: bool = False


def read_rows(item: RowsItem) -> RowsSeen:
    seen = RowsSeen(item.table)
    try:
        for batch in read_lake_file(item.lake, f"{item.table}/{item.path}", _COLUMNS):
            seen.rows += batch.num_rows
            epochs, seqs = batch.column("epoch").to_numpy(), batch.column("seq").to_numpy()
            for epoch in np.unique(epochs).tolist():
                mine = epochs == epoch
                if epoch not in item.through:
                    seen.others += int(mine.sum()) if item.only else 0
                    continue
                mine &= seqs <= item.through[epoch]
                rows = batch.filter(pa.array(mine))
                found = sums_of(seqs[mine], _digests(rows))
                seen.sums[epoch] = added(seen.sums.get(epoch, {}), found)
    except FileNotFoundError:
        return RowsSeen(item.table, gone=True)
    return seen


def _digests(rows: Any) -> Any:
    """A number per row, such that sums of different rows differ."""
    times = pc.cast(rows.column("ts"), pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_numpy().astype(np.uint64)
    with np.errstate(over="ignore"):
        mixed = (rows.column("seq").to_numpy().astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)) ^ times
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        return mixed ^ (mixed >> np.uint64(27))


class TableComparison:
    """``looked`` describes what was compared; empty if there are no typed tables."""

    def __init__(self, lake: Lake, logs: Iterable[LogInfo], is_complete: bool) -> None:
        self._lake = lake
        self._names = {info.epoch: info.name for info in logs}
        self._is_complete = is_complete
        self.looked = ""

    def findings(self, workers: Workers, stage: StageProgress) -> list[Finding]:
        for _ in range(ATTEMPTS):
            names = [typed_table(self._lake, folder).name for folder in folders(self._lake)]
            if not names:
                return []
            found = self._compare(names, workers, stage)
            if found is not None:
                return found
        self.looked = "the tables kept changing during the comparison"
        detail = f"{self.looked}: run the audit again when the pipeline is idle"
        return [Finding(check="tables", ok=False, count=1, detail=detail)]

    def _compare(self, names: Collection[str], workers: Workers, stage: StageProgress) -> list[Finding] | None:
        """None if a table changed meanwhile."""
        tables = [records(self._lake), *(typed_table(self._lake, name.rpartition("/")[2]) for name in names)]
        base, *typed = [table.snapshot() for table in tables]
        through = {each.table.name: self._through(each) for each in typed}
        items = [item for each in typed for item in _items(each, each.files(), through[each.table.name], True)]
        wanted = {epoch: seq for each in through.values() for epoch, seq in each.items()}
        items += _items(base, base.files(), wanted, False)
        sums: dict[str, dict[int, Sums]] = defaultdict(lambda: defaultdict(dict))
        others: dict[str, int] = defaultdict(int)
        rows = 0
        for seen in workers.results(read_rows, items, RowsItem, RowsSeen):
            if seen.gone:
                return None
            stage.advance(seen.rows)
            rows += 0 if seen.table == base.table.name else seen.rows
            others[seen.table] += seen.others
            for epoch, each in seen.sums.items():
                sums[seen.table][epoch] = added(sums[seen.table][epoch], each)
        if any(
            table.snapshot().version != snapshot.version for table, snapshot in zip(tables, (base, *typed), strict=True)
        ):
            return None
        self.looked = f"{rows} rows in {len(typed)} typed tables"
        followed = base.progress().get(PROGRESS, 0)
        return [
            finding
            for each in typed
            # If a round ended in between, the table has erasures that ``records`` does not have yet.
            if each.progress().get(PROGRESS, 0) <= followed
            for finding in self._differences(
                each.table.name, through[each.table.name], sums, others[each.table.name], base.table.name
            )
        ]

    def _through(self, snapshot: TableSnapshot) -> dict[int, int]:
        progress = {int(name): seq for name, seq in snapshot.progress().items() if name.isdecimal()}
        return progress if self._is_complete else {epoch: progress[epoch] for epoch in progress.keys() & self._names}

    def _differences(
        self, table: str, through: dict[int, int], sums: dict[str, dict[int, Sums]], others: int, base: str
    ) -> Iterator[Finding]:
        for epoch in through:
            one, other = sums[table][epoch], sums[base][epoch]
            ranges = sorted(each for each in one.keys() | other.keys() if one.get(each) != other.get(each))
            if ranges:
                counts = [sum(count for count, _ in side.values()) for side in (one, other)]
                yield Finding(
                    check="tables",
                    ok=False,
                    log=self._names.get(epoch, ""),
                    first_seq=max(1, ranges[0] * RANGE_SEQS),
                    count=max(1, abs(counts[0] - counts[1])),
                    detail=f"{table} has {counts[0]} rows of the log and records has {counts[1]}; they differ in "
                    f"{len(ranges)} ranges of {RANGE_SEQS} seqs each. Remove {table} from the lake: the next round "
                    "builds it again",
                )
        if others and self._is_complete:
            detail = f"{table} has {others} rows of logs that it should not have"
            yield Finding(check="tables", ok=False, count=others, detail=detail)


def _items(
    snapshot: TableSnapshot, files: Iterable[KnownFile], through: dict[int, int], only: bool
) -> Iterator[RowsItem]:
    for file in files:
        bounds = file.bounds.get("epoch")
        here = through
        if bounds is not None and not only:
            here = {epoch: seq for epoch, seq in through.items() if bounds[0] <= epoch <= bounds[1]}
        if here or only:
            yield RowsItem(snapshot.table.lake, snapshot.table.name, file.path, here, only)
