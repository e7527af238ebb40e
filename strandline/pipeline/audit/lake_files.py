"""Compares the lake with the logs: each record that the lake claims to have must be there once and be the same.

Sums are compared first, range by range; records only where the sums differ. Records that retention or a queue removed
from a log stay in the lake. So rows that the log no longer has are correct, unless a caller deleted them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from strandline.engine.operations.erasures import Erasure
from strandline.engine.state.ranges import inside
from strandline.history.source import AnyPiece
from strandline.lake.files import read_lake_file
from strandline.lake.layout import records
from strandline.lake.location import Lake
from strandline.lake.table import KnownFile
from strandline.pipeline.audit.records import RANGE_SEQS, Bad, Sums, added, digests_of, sums_of

_COLUMNS = ["log", "epoch", "seq", "ts", "key", "node", "meta", "data", "bytes"]
Seqs = npt.NDArray[np.int64]
#: Stands in place of a digest when there are several records that differ.
OTHER = -1


class LakeSnapshot(NamedTuple):
    """The table ``records`` at one moment. Take it before the logs are read: then every row that only the lake has was
    removed from the logs since."""

    lake: Lake
    files: list[KnownFile]
    progress: dict[str, int]

    @classmethod
    def take(cls, lake: Lake) -> LakeSnapshot | None:
        """None if the lake has no table ``records``."""
        table = records(lake)
        if not table.exists:
            return None
        found = table.snapshot()
        return cls(lake, found.files(), found.progress())

    def covered(self, epoch: int) -> int:
        return self.progress.get(str(epoch), 0)


class Expected(msgspec.Struct, array_like=True):
    """Which rows of a log the lake must have, and which it must not have any more."""

    through: int
    standing: list[tuple[int, int]]
    erased: list[Erasure] = []


class LakeItem(msgspec.Struct, array_like=True):
    """A file, and what is expected of it by epoch. ``all_known``: rows of other epochs belong to no log."""

    lake: Lake
    path: str
    expected: dict[int, Expected]
    all_known: bool = False


class HeldRecords(msgspec.Struct, array_like=True):
    """The rows of one log in a file."""

    sums: Sums = {}
    #: Rows that were deleted from the log by an erasure that the lake has applied.
    erased: Bad = msgspec.field(default_factory=Bad)


class LakeSeen(msgspec.Struct, array_like=True):
    """``gone``: the file no longer exists. ``orphans`` counts rows of logs that do not exist, by name."""

    path: str
    rows: int = 0
    held: dict[int, HeldRecords] = {}
    orphans: dict[str, int] = {}
    gone: bool = False


def lake_items(snapshot: LakeSnapshot, expected: Mapping[int, Expected], all_known: bool) -> Iterator[LakeItem]:
    for file in snapshot.files:
        bounds = file.bounds.get("epoch")
        here = {epoch: each for epoch, each in expected.items() if bounds is None or bounds[0] <= epoch <= bounds[1]}
        if here or all_known:
            yield LakeItem(snapshot.lake, file.path, here, all_known)


def read_lake(item: LakeItem) -> LakeSeen:
    seen = LakeSeen(item.path)
    try:
        for batch in read_lake_file(item.lake, f"records/{item.path}", _COLUMNS):
            seen.rows += batch.num_rows
            epochs = batch.column("epoch").to_numpy()
            for epoch in np.unique(epochs).tolist():
                rows = batch.filter(pa.array(epochs == epoch))
                if epoch in item.expected:
                    _hold(rows, item.expected[epoch], seen.held.setdefault(epoch, HeldRecords()))
                elif item.all_known:
                    log = rows.column("log")[0].as_py()
                    seen.orphans[log] = seen.orphans.get(log, 0) + rows.num_rows
    except FileNotFoundError:
        return LakeSeen(item.path, gone=True)
    return seen


def _hold(rows: Any, expected: Expected, held: HeldRecords) -> None:
    seqs: Seqs = rows.column("seq").to_numpy()
    standing = inside(seqs, expected.standing)
    compared = standing & (seqs <= expected.through)
    if compared.any():
        some = rows.filter(pa.array(compared))
        held.sums = added(held.sums, sums_of(seqs[compared], digests_of(some)))
    if expected.erased and not standing.all():
        removed = rows.filter(pa.array(~standing))
        held.erased.found(removed.column("seq").to_numpy()[_meant(removed, expected.erased)])


def _meant(rows: Any, erasures: Sequence[Erasure]) -> npt.NDArray[np.bool_]:
    """Which rows an event refers to."""
    seqs: Seqs = rows.column("seq").to_numpy()
    meant = np.zeros(len(seqs), np.bool_)
    for erasure in erasures:
        here = seqs <= erasure.bound
        if erasure.before is not None:
            here &= seqs < erasure.before
        if erasure.seqs is not None:
            here &= np.isin(seqs, erasure.seqs)
        if erasure.key is not None:
            here &= _flags(pc.equal(rows.column("key"), erasure.key))
        if erasure.prefix is not None:
            here &= _flags(pc.starts_with(rows.column("key"), erasure.prefix))
        meant |= here
    return meant


def _flags(values: Any) -> npt.NDArray[np.bool_]:
    flags: npt.NDArray[np.bool_] = values.fill_null(False).to_numpy(zero_copy_only=False)
    return flags


# --- single records --------------------------------------------------------------------------------------------------


class CloseItem(msgspec.Struct, array_like=True):
    """Records of ranges whose sums differ: from pieces of a log, or from a file of the lake."""

    epoch: int
    ranges: list[int]
    expected: Expected
    pieces: list[AnyPiece] = []
    lake: Lake | None = None
    path: str = ""


class CloselySeen(msgspec.Struct, array_like=True):
    epoch: int
    is_lake: bool
    seqs: list[int] = []
    digests: list[int] = []
    gone: bool = False


def look_closely(item: CloseItem) -> CloselySeen:
    seen = CloselySeen(item.epoch, item.lake is not None)
    try:
        for batch in _batches(item):
            seqs: Seqs = batch.column("seq").to_numpy()
            here = np.isin(seqs // RANGE_SEQS, item.ranges) & (seqs <= item.expected.through)
            here &= inside(seqs, item.expected.standing)
            some = batch.filter(pa.array(here))
            seen.seqs += some.column("seq").to_pylist()
            seen.digests += digests_of(some).tolist()
    except FileNotFoundError:
        seen.gone = True
    return seen


def _batches(item: CloseItem) -> Iterable[Any]:
    if item.lake is not None:
        condition = pc.field("epoch") == item.epoch
        return read_lake_file(item.lake, f"records/{item.path}", _COLUMNS, condition)
    return (batch for piece in item.pieces for batch in piece.read())


class Difference(NamedTuple):
    """Seqs that the lake lacks, and seqs for which it has a different record."""

    missing: list[int]
    other: list[int]

    @property
    def seqs(self) -> list[int]:
        return sorted({*self.missing, *self.other})


def difference(seen: Iterable[CloselySeen]) -> Difference:
    """The difference between the two sides of one log."""
    in_log: dict[int, int] = {}
    in_lake: dict[int, int] = {}
    for each in seen:
        for seq, digest in zip(each.seqs, each.digests, strict=True):
            if not each.is_lake:
                in_log[seq] = digest
            else:
                # If a seq is stored more than once (see ``audit/duplicates``), every copy must be correct.
                in_lake[seq] = digest if in_lake.get(seq, digest) == digest else OTHER
    missing = sorted(in_log.keys() - in_lake.keys())
    other = sorted(seq for seq, digest in in_log.items() if in_lake.get(seq, digest) != digest)
    return Difference(missing, other)
