"""The tables of companions and of rollups, as the one who changes them has them at hand.

The table of companions is small, a row per file, so all of it is in memory and a change writes the files it concerns
anew. The table of rollups says for each of its rows which companion it is from.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import pyarrow as pa
import pyarrow.parquet as pq

from strandline.lake.fence import Fence
from strandline.lake.files import DataFile, write_file
from strandline.lake.location import Lake
from strandline.lake.table import KnownFile, Table
from strandline.query.companions.rollups import ROLLUP_ROWS
from strandline.query.companions.table import LISTED, TABLE, Listed, listed_in, listed_table

#: With more files than this, a change writes all of them as one.
MAX_FILES = 16

#: ``companion`` is the path of the companion that a row was taken from: the table has either all rows of it, or none.
ROLLUPS = ROLLUP_ROWS.append(pa.field("companion", pa.string(), nullable=False))


def companions_table(lake: Lake) -> Table:
    return Table(lake, TABLE, LISTED)


def rollups_table(lake: Lake) -> Table:
    return Table(lake, "rollups", ROLLUPS)


class CompanionTable:
    """What there is when this is made, and what became of it by changes made here. There is one who makes changes."""

    def __init__(self, lake: Lake, fence: Fence | None = None) -> None:
        self._lake = lake
        self._table = companions_table(lake).snapshot(fence)
        self.progress = self._table.progress()
        #: The files of the table by their paths, and the rows of each.
        self._files = {file.path: (file, self._load(file.path)) for file in self._table.files()}

    def _load(self, path: str) -> list[Listed]:
        content = self._lake.read(f"{TABLE}/{path}")
        if content is None:
            raise FileNotFoundError(self._lake.place_of(f"{TABLE}/{path}"))
        return listed_in(pq.read_table(pa.BufferReader(content)))

    @property
    def version(self) -> int:
        return self._table.version

    @property
    def entries(self) -> list[Listed]:
        return [entry for _, entries in self._files.values() for entry in entries]

    def change(
        self,
        *,
        add: Collection[Listed] = (),
        remove: Iterable[Listed] = (),
        progress: Mapping[str, int] | None = None,
        now: int | None = None,
    ) -> None:
        """All of it in one step. Whoever is removed is known by its path, and need not be there any more. ``now`` is as
        in :meth:`Snapshot.commit`."""
        gone = {entry.path for entry in remove}
        concerned = [path for path, (_, entries) in self._files.items() if any(entry.path in gone for entry in entries)]
        if not (add or concerned or progress):
            return
        if len(self._files) - len(concerned) >= MAX_FILES:
            concerned = list(self._files)
        kept = [entry for path in concerned for entry in self._files[path][1] if entry.path not in gone]
        rows = sorted([*kept, *add], key=lambda entry: (entry.info.log, entry.info.epoch, entry.info.first))
        written = write_file(self._lake, TABLE, LISTED, [listed_table(rows)])
        self._table.commit(
            add=[] if written is None else [written],
            remove=[self._files[path][0] for path in concerned],
            progress=progress,
            now=now,
        )
        self.progress |= progress or {}
        for path in concerned:
            del self._files[path]
        if written is not None:
            self._files[written.path] = _known(written), rows


def _known(file: DataFile) -> KnownFile:
    return KnownFile(file.path, file.size, file.rows, {}, {})
