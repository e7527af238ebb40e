"""What tasks do when erasures are followed: files of ``records`` without what was erased, and what the log has now."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from strandline.history.any_piece import AnyPiece
from strandline.lake import layout
from strandline.lake.files import DataFile, open_file
from strandline.lake.location import Lake
from strandline.lake.rows import lake_rows
from strandline.pipeline.erasure_rules import Rules
from strandline.pipeline.record_files import Failure, RowsWriter, readable

#: If more keys of a log are concerned than this, all of them are made out anew.
MANY_KEYS = 100_000
_NARROW = ["epoch", "seq", "key"]


class Concerned(msgspec.Struct, array_like=True):
    """Keys by epoch; None: all of that log."""

    keys: dict[int, list[str] | None] = {}

    def add(self, epochs: Any, keys: Any) -> None:
        for epoch in np.unique(epochs).tolist():
            if epoch in self.keys and self.keys[epoch] is None:
                continue
            names = pa.array(keys).filter(pa.array(epochs == epoch)).unique().drop_null().to_pylist()
            self._add(epoch, names)

    def join(self, other: Concerned) -> None:
        for epoch, names in other.keys.items():
            self._add(epoch, names)

    def _add(self, epoch: int, names: list[str] | None) -> None:
        known = self.keys.get(epoch, [])
        if known is None or names is None:
            self.keys[epoch] = None
            return
        joined = list({*known, *names})
        self.keys[epoch] = None if len(joined) > MANY_KEYS else joined


class EraseItem(msgspec.Struct, frozen=True, array_like=True):
    """A file of ``records``."""

    lake: Lake
    path: str
    rules: Rules


class RenewItem(msgspec.Struct, frozen=True, array_like=True):
    """Pieces of one log, of which those records are wanted that were restored or amended."""

    lake: Lake
    pieces: list[AnyPiece]
    rules: Rules
    versions: list[tuple[int, int]]


class EraseDone(msgspec.Struct, frozen=True, array_like=True):
    """``erased`` rows are not in the new ``files``; if none were, there are no new files, and the old one can stay."""

    path: str
    files: list[DataFile]
    erased: int
    concerned: Concerned


class RenewDone(msgspec.Struct, frozen=True, array_like=True):
    files: list[DataFile]
    concerned: Concerned
    failure: Failure | None = None


def erase(item: EraseItem) -> EraseDone:
    concerned = Concerned({})
    erased = 0
    with open_file(item.lake, f"records/{item.path}") as source:
        file = pq.ParquetFile(source)
        masks = []
        for group in range(file.num_row_groups):
            gone, epochs, keys = _gone(file, group, item.rules)
            masks.append(gone)
            if gone.any():
                erased += int(gone.sum())
                concerned.add(epochs[gone], keys.filter(pa.array(gone)))
        if not erased:
            return EraseDone(item.path, [], 0, concerned)
        with RowsWriter(layout.records(item.lake)) as writer:
            for group, gone in enumerate(masks):
                if not gone.all():
                    rows = file.read_row_group(group, columns=layout.RECORDS.names, use_threads=False)
                    writer.write(rows.filter(pa.array(~gone)).cast(layout.RECORDS))
            return EraseDone(item.path, writer.close(), erased, concerned)


def _gone(file: Any, group: int, rules: Rules) -> tuple[Any, Any, Any]:
    rows = file.read_row_group(group, columns=_NARROW, use_threads=False)
    epochs, keys = rows.column("epoch").to_numpy(), rows.column("key").combine_chunks()
    return rules.erased(epochs, rows.column("seq").to_numpy(), keys), epochs, keys


def renew(item: RenewItem) -> RenewDone:
    concerned = Concerned({})
    failures: dict[int, Failure] = {}
    with RowsWriter(layout.records(item.lake)) as writer:
        for piece in item.pieces:
            for batch in readable(piece, failures):
                epochs, seqs = batch.column("epoch").to_numpy(), batch.column("seq").to_numpy()
                wanted = item.rules.renewed(epochs, seqs, batch.column("key"))
                if wanted.any():
                    rows = batch.filter(pa.array(wanted))
                    concerned.add(epochs[wanted], rows.column("key"))
                    writer.write(lake_rows(rows, item.versions))
        return RenewDone(writer.close(), concerned, next(iter(failures.values()), None))
