"""The tables of companions and rollups, for the driver that changes them.

The table of companions is small, with one row per file, so it is kept in memory, and a change rewrites the affected
files. Each row of the table of rollups names the companion that it comes from.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from strandline.lake.fence import Fence
from strandline.lake.files import DataFile, read_lake_file, write_file
from strandline.lake.location import Lake
from strandline.lake.record_files import RowsWriter
from strandline.lake.table import KnownFile, LakeTable
from strandline.pipeline import table_upkeep
from strandline.pipeline.companions.plan import packed
from strandline.pipeline.companions.work import opened
from strandline.pipeline.round import Round
from strandline.query.config import SearchConfig
from strandline.query.index_files.builder import rollups_id
from strandline.query.index_files.file import DamagedIndexFile
from strandline.query.index_files.table import ERASURES, TABLE, IndexEntry, listed_in, listed_table, rollup_rows
from strandline.query.index_files.table_schemas import LISTED, ROLLUP_ROWS

#: With more files than this, a change rewrites all of them as one.
MAX_FILES = 16

#: ``companion`` is the path of the companion that a row comes from. The table has either all of its rows, or none.
ROLLUPS = ROLLUP_ROWS.append(pa.field("companion", pa.string(), nullable=False))


def companions_table(lake: Lake) -> LakeTable:
    return LakeTable(lake, TABLE, LISTED)


def rollups_table(lake: Lake) -> LakeTable:
    return LakeTable(lake, "rollups", ROLLUPS)


class CompanionTable:
    """The table when it was opened, plus the changes made through this object, which must be the only writer."""

    def __init__(self, lake: Lake, fence: Fence | None = None) -> None:
        self._lake = lake
        self._table = companions_table(lake).snapshot(fence)
        self.progress = self._table.progress()
        #: The files of the table by path, and the rows of each.
        self._files = {file.path: (file, self._load(file.path)) for file in self._table.files()}

    def _load(self, path: str) -> list[IndexEntry]:
        content = self._lake.read(f"{TABLE}/{path}")
        if content is None:
            raise FileNotFoundError(self._lake.place_of(f"{TABLE}/{path}"))
        return listed_in(pq.read_table(pa.BufferReader(content)))

    @property
    def version(self) -> int:
        return self._table.version

    @property
    def entries(self) -> list[IndexEntry]:
        return [entry for _, entries in self._files.values() for entry in entries]

    def change(
        self,
        *,
        add: Collection[IndexEntry] = (),
        remove: Iterable[IndexEntry] = (),
        progress: Mapping[str, int] | None = None,
        now: int | None = None,
    ) -> None:
        """Make all changes in one commit. Removed companions are identified by path and may be missing already. ``now``
        is passed to :meth:`Snapshot.commit`."""
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


# --- The table of rollups: aggregates of the companions of each log, for readers of the lake ------------------------

#: The approximate size of companions and old files that a task processes.
ITEM_BYTES = 256 << 20
#: Less than this is written by the driver, which is faster than starting a Spark job.
FEW_BYTES = 16 << 20
#: When there are this many files smaller than SMALL_BYTES, the next change merges them.
SMALL_BYTES = 4 << 20
MAX_SMALL_FILES = 16

_NO_ROLLUPS = rollups_id(SearchConfig())


class RollupItem(msgspec.Struct, frozen=True):
    """Rewrite ``files`` of the table without the rows of the companions ``gone``, and with those of ``companions``."""

    lake: Lake
    files: list[str]
    gone: list[str]
    companions: list[str]


class RollupOutcome(msgspec.Struct, frozen=True):
    """``damaged`` maps the paths of unusable companions to the reasons."""

    files: list[DataFile]
    damaged: dict[str, str]


class RollupSource(msgspec.Struct, frozen=True):
    """The companion that rows of the table come from."""

    epoch: int
    companion: str


class Rollups:
    """The table, for the driver that changes it."""

    def __init__(self, round: Round) -> None:
        self._round = round
        self._lake = round.lake
        self._table = rollups_table(round.lake).snapshot(round.fence)
        self._name = self._table.table.name
        self._progress = self._table.progress()
        #: The companions in each file of the table, by path. Files never change.
        self._sources: dict[str, frozenset[RollupSource]] = {}

    def has_followed(self, version: int) -> bool:
        """Whether the rollups reflect this version of the table of companions."""
        return self._progress.get(TABLE, -1) == version

    @property
    def erasures(self) -> int | None:
        """The last erasure event whose records are in no file, even in files that the table no longer references."""
        return self._progress.get(ERASURES)

    def follow(
        self, counted: Iterable[IndexEntry], version: int, erasures: int, epochs: Collection[int] | None
    ) -> dict[str, str]:
        """Make the table contain the rows of the ``counted`` companions and no others, for the logs with these epochs
        (None for all). ``version`` is the version of the table of companions, which reflects these erasures.

        Returns the paths of unusable companions with the reasons; the table omits them.
        """
        wanted = {
            RollupSource(entry.info.epoch, entry.path): entry
            for entry in counted
            if entry.info.rollups != _NO_ROLLUPS and (epochs is None or entry.info.epoch in epochs)
        }
        files = self._table.files()
        outdated = [file for file in files if file.size < SMALL_BYTES]
        if len(outdated) < MAX_SMALL_FILES:
            outdated = []
        gone: set[RollupSource] = set()
        held: set[RollupSource] = set()
        for file in _that_may_have(files, epochs):
            sources = self._sources_of(file.path)
            superfluous = {each for each in sources if (epochs is None or each.epoch in epochs) and each not in wanted}
            if superfluous and file not in outdated:
                outdated.append(file)
            gone |= superfluous
            held |= sources
        missing = [entry for source, entry in wanted.items() if source not in held]
        outcomes = self._work(outdated, gone, missing)
        added = [file for outcome in outcomes for file in outcome.files]
        # A new table has no files with older data.
        begun = {} if ERASURES in self._progress else {ERASURES: erasures}
        self._commit(add=added, remove=outdated, progress={**begun, TABLE: version})
        return {path: why for outcome in outcomes for path, why in outcome.damaged.items()}

    def _commit(
        self, add: Sequence[DataFile] = (), remove: Sequence[KnownFile] = (), *, progress: dict[str, int]
    ) -> None:
        self._table.commit(add=add, remove=remove, progress=progress, now=self._round.now())
        self._progress |= progress

    def _sources_of(self, path: str) -> frozenset[RollupSource]:
        found = self._sources.get(path)
        if found is None:
            table = pa.Table.from_batches(
                read_lake_file(self._lake, f"{self._name}/{path}", ["epoch", "companion"]),
                pa.schema([ROLLUPS.field("epoch"), ROLLUPS.field("companion")]),
            )
            pairs = table.group_by(["epoch", "companion"]).aggregate([]).to_pylist()
            found = self._sources[path] = frozenset(RollupSource(pair["epoch"], pair["companion"]) for pair in pairs)
        return found

    def _work(
        self, files: Sequence[KnownFile], gone: set[RollupSource], missing: Sequence[IndexEntry]
    ) -> list[RollupOutcome]:
        things: list[tuple[KnownFile | IndexEntry, int]] = [(file, file.size) for file in files]
        things += [(entry, entry.size) for entry in missing]
        names = sorted(source.companion for source in gone)
        items = [
            RollupItem(
                self._lake,
                [f"{self._name}/{each.path}" for each in pack if isinstance(each, KnownFile)],
                names,
                [each.path for each in pack if isinstance(each, IndexEntry)],
            )
            for pack in packed(things, ITEM_BYTES)
        ]
        if sum(size for _, size in things) < FEW_BYTES:
            return [write_rows(item) for item in items]
        return list(self._round.workers.results(write_rows, items, RollupItem, RollupOutcome))

    # --- unused files ------------------------------------------------------------------------------------------------

    def sweep(self) -> None:
        """Remove every file that the table does not reference now. Readers of older versions lose them."""
        if not self._table.exists:
            return
        found = self._lake.names(f"{self._name}/")
        # Use the current files: another engine may have merged files since the snapshot.
        known = {f"{self._name}/{file.path}" for file in self._table.table.files()}
        self._round.remove(name for name in found if name.endswith(".parquet") and _is_data(name) and name not in known)

    def tidy(self) -> None:
        """Periodically remove files that both tables replaced long ago, and shorten their transaction logs."""
        now = self._round.now()
        if not self._table.exists or not table_upkeep.is_sweep_due(self._progress, now):
            return
        for table in (companions_table(self._lake), self._table.table):
            table_upkeep.sweep(self._round, table)
            table.open().cleanup_metadata()
        self._commit(progress={table_upkeep.SWEPT: now})

    def swept(self, erasures: int) -> None:
        """Record that the files contain no erased records."""
        self._commit(progress={ERASURES: erasures})


def _is_data(name: str) -> bool:
    return "/_delta_log/" not in name


def _that_may_have(files: Iterable[KnownFile], epochs: Collection[int] | None) -> Iterator[KnownFile]:
    """The files that may have rows of logs with these epochs, according to the transaction log."""
    ordered = None if epochs is None else sorted(epochs)
    for file in files:
        bounds = file.bounds.get("epoch")
        if ordered is not None and bounds is not None:
            at = bisect_left(ordered, bounds[0])
            if at == len(ordered) or ordered[at] > bounds[1]:
                continue
        yield file


# --- tasks -----------------------------------------------------------------------------------------------------------


def write_rows(item: RollupItem) -> RollupOutcome:
    """Write new files of the table."""
    damaged: dict[str, str] = {}
    kept = ~pc.field("companion").isin(pa.array(item.gone, pa.string()))
    with RowsWriter(rollups_table(item.lake)) as writer:
        for name in item.files:
            for batch in read_lake_file(item.lake, name, ROLLUPS.names, kept):
                writer.write(batch)
        for path in item.companions:
            try:
                rows = rollup_rows(opened(item.lake, path))
            except DamagedIndexFile as error:
                damaged[path] = str(error)
                continue
            writer.write(rows.append_column(ROLLUPS.field("companion"), pa.repeat(path, rows.num_rows)))
        return RollupOutcome(writer.close(), damaged)
