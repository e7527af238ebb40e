"""The tables of companions and of rollups, as the one who changes them has them at hand.

The table of companions is small, a row per file, so all of it is in memory and a change writes the files it concerns
anew. The table of rollups says for each of its rows which companion it is from.
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
from strandline.pipeline.tasks import work
from strandline.query.config import SearchConfig
from strandline.query.index_files.builder import rollups_id
from strandline.query.index_files.file import DamagedIndexFile
from strandline.query.index_files.rollups import ROLLUP_ROWS
from strandline.query.index_files.table import ERASURES, LISTED, TABLE, IndexEntry, listed_in, listed_table, rollup_rows

#: With more files than this, a change writes all of them as one.
MAX_FILES = 16

#: ``companion`` is the path of the companion that a row was taken from: the table has either all rows of it, or none.
ROLLUPS = ROLLUP_ROWS.append(pa.field("companion", pa.string(), nullable=False))


def companions_table(lake: Lake) -> LakeTable:
    return LakeTable(lake, TABLE, LISTED)


def rollups_table(lake: Lake) -> LakeTable:
    return LakeTable(lake, "rollups", ROLLUPS)


class CompanionTable:
    """What there is when this is made, and what became of it by changes made here. There is one who makes changes."""

    def __init__(self, lake: Lake, fence: Fence | None = None) -> None:
        self._lake = lake
        self._table = companions_table(lake).snapshot(fence)
        self.progress = self._table.progress()
        #: The files of the table by their paths, and the rows of each.
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


# --- The table of rollups: what the companions of each log add up to, for whoever reads the lake --------------------

#: A task writes the rows of companions, and reads old files, of about so many bytes together.
ITEM_BYTES = 256 << 20
#: Fewer than these are written here: it takes less time than having Spark begin with it.
FEW_BYTES = 16 << 20
#: So many files that are smaller than this are written as one, together with the next change.
SMALL_BYTES = 4 << 20
MAX_SMALL_FILES = 16

_NO_ROLLUPS = rollups_id(SearchConfig())


class RollupItem(msgspec.Struct, frozen=True):
    """``files`` of the table are written anew without the rows of the companions ``gone``, and with those of
    ``companions``."""

    lake: Lake
    files: list[str]
    gone: list[str]
    companions: list[str]


class RollupOutcome(msgspec.Struct, frozen=True):
    """``damaged`` are companions that cannot be used, and why."""

    files: list[DataFile]
    damaged: dict[str, str]


class RollupSource(msgspec.Struct, frozen=True):
    """Where rows of the table are from."""

    epoch: int
    companion: str


class Rollups:
    """The table, for the one who changes it."""

    def __init__(self, round: Round) -> None:
        self._round = round
        self._lake = round.lake
        self._table = rollups_table(round.lake).snapshot(round.fence)
        self._name = self._table.table.name
        self._progress = self._table.progress()
        #: What is in the files of the table, by their paths: they never change.
        self._sources: dict[str, frozenset[RollupSource]] = {}

    def has_followed(self, version: int) -> bool:
        """Whether it is where the table of companions is."""
        return self._progress.get(TABLE, -1) == version

    @property
    def erasures(self) -> int | None:
        """Up to here, nothing of what was erased is in any file, whether or not the table still refers to it."""
        return self._progress.get(ERASURES)

    def follow(
        self, counted: Iterable[IndexEntry], version: int, erasures: int, epochs: Collection[int] | None
    ) -> dict[str, str]:
        """Have the rows of the ``counted`` companions and no others, of the logs with these epochs (None: of all). The
        table of companions is at this version, and without what these erasures took.

        Gives the paths of companions that cannot be used, and why; the table does without them.
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
        # A table that is new has no files with anything older.
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
        waves = work(self._round.spark, write_rows, items, RollupItem, RollupOutcome, self._round.parallelism)
        return [outcome for wave in waves for outcome in wave]

    # --- files that are not part of it any more ----------------------------------------------------------------------

    def sweep(self) -> None:
        """Remove every file that the table does not refer to now: those who read an older version lose it."""
        if not self._table.exists:
            return
        found = self._lake.names(f"{self._name}/")
        # As the table is now: another engine may have put files together since it was looked at.
        known = {f"{self._name}/{file.path}" for file in self._table.table.files()}
        self._round.remove(name for name in found if name.endswith(".parquet") and _is_data(name) and name not in known)

    def tidy(self) -> None:
        """Remove what both tables have replaced long ago, now and then, and shorten their transaction logs."""
        now = self._round.now()
        if not self._table.exists or not table_upkeep.is_sweep_due(self._progress, now):
            return
        for table in (companions_table(self._lake), self._table.table):
            table_upkeep.sweep(self._round, table)
            table.open().cleanup_metadata()
        self._commit(progress={table_upkeep.SWEPT: now})

    def swept(self, erasures: int) -> None:
        """Put down that the files are clean."""
        self._commit(progress={ERASURES: erasures})


def _is_data(name: str) -> bool:
    return "/_delta_log/" not in name


def _that_may_have(files: Iterable[KnownFile], epochs: Collection[int] | None) -> Iterator[KnownFile]:
    """Those that may have rows of logs with these epochs, as far as the transaction log tells."""
    ordered = None if epochs is None else sorted(epochs)
    for file in files:
        bounds = file.bounds.get("epoch")
        if ordered is not None and bounds is not None:
            at = bisect_left(ordered, bounds[0])
            if at == len(ordered) or ordered[at] > bounds[1]:
                continue
        yield file


# --- what tasks do ---------------------------------------------------------------------------------------------------


def write_rows(item: RollupItem) -> RollupOutcome:
    """New files of the table."""
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
