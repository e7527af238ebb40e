"""The stage of typed tables: rows that ``records`` has and a table lacks are added, after the table's own progress.

A table whose schema has changed gets new columns, if rows so far just lack them. Otherwise it is built again from
``records`` and replaced in one commit: readers see the old table, which no longer grows, and then the new one. A round
that need not be complete builds a part at a time, so that other tables do not wait.

A table without a log that should have one is removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from weakref import WeakKeyDictionary

from strandline.engine.ownership import JSON
from strandline.lake import catalog, layout, typed_tables
from strandline.lake.declared import DIRECTORY, DeclaredFiles
from strandline.lake.erasures import PROGRESS, PURGED
from strandline.lake.fence import Fence
from strandline.lake.files import DataFile
from strandline.lake.key_files import Ranges
from strandline.lake.table import KnownFile, TableSnapshot
from strandline.lake.transaction_log import BrokenLog
from strandline.lake.typed_tables import SHAPE, VERSION, typed_table
from strandline.pipeline.keys import RECORDS_VERSION, chunks_of, items_of
from strandline.pipeline.round import Round
from strandline.pipeline.typed_tables.definition import Definitions, TableDefinition
from strandline.pipeline.typed_tables.rows import TypedDone, TypedItem, write_typed

STAGE = "tables"
#: Rows between two commits, which is the most work that a crash can cost.
CHUNK_ROWS = 5_000_000
#: Rows that a round adds to tables that are built again, unless it has to be complete.
REBUILD_ROWS = 5_000_000
#: The maximum number of rows of an item, and the minimum, below which a task is not worth its cost.
MAX_ITEM_ROWS = 1_000_000
MIN_ITEM_ROWS = 65_536
#: Items per task, if there is enough to do.
ITEMS_PER_TASK = 2


class Rebuild:
    """A table that is built again: the parts that remain, and the files of those that are done. No version of the table
    has the files yet. After a crash it starts again."""

    def __init__(self, shape: int, ranges: Ranges, records_version: int) -> None:
        self.shape = shape
        self.moved = {**_moved(ranges), RECORDS_VERSION: records_version}
        self.remaining = [chunk for chunk, _ in chunks_of(ranges, CHUNK_ROWS) if chunk.epochs]
        self.files: list[DataFile] = []


class TableMemory:
    """What a driver knows about the tables. Other drivers are fenced, so a round opens only the tables that it
    changes."""

    def __init__(self) -> None:
        self.definitions = Definitions()
        #: By folder.
        self.progress: dict[str, dict[str, int]] = {}
        self.rebuilds: dict[str, Rebuild] = {}
        #: Tables whose rebuild an erasure has interrupted: the next one is done in one round.
        self.interrupted: set[str] = set()
        #: Tables whose files have changed since upkeep has seen them.
        self.changed: set[str] = set()
        #: The version of ``records`` that all tables had, except for those that are built again.
        self.records_version: int | None = None
        self.catalog: catalog.Catalog | None = None


_memories: WeakKeyDictionary[Fence | Round, TableMemory] = WeakKeyDictionary()


def memory_of(round: Round) -> TableMemory:
    """The memory lives as long as the driver's fence or, without one, the round."""
    return _memories.setdefault(round.fence or round, TableMemory())


def wanted_tables(round: Round) -> dict[str, TableDefinition]:
    """The tables that there should be, by folder."""
    return {each.folder: each for each in memory_of(round).definitions.of(round.history, round.all_logs)}


def opened(round: Round, definition: TableDefinition) -> TableSnapshot:
    return typed_table(round.lake, definition.folder, definition.schema).snapshot(round.fence)


def progress_of(round: Round, folder: str) -> dict[str, int]:
    """The progress of a table; empty if there is none. A table whose progress cannot be read is removed, so that it is
    built again: everything in it is in ``records``."""
    memory = memory_of(round)
    if folder not in memory.progress:
        table = typed_table(round.lake, folder)
        try:
            memory.progress[folder] = table.snapshot(round.fence).progress()
        except BrokenLog as error:
            round.problem(STAGE, None, None, f"{error} The table is removed and built again from the table records.")
            remove_table(round, folder)
    return memory.progress.get(folder, {})


def remove_table(round: Round, folder: str) -> None:
    memory = memory_of(round)
    prefix = f"{typed_tables.FOLDER}/{folder}/"
    round.remove(round.lake.names(prefix))
    round.lake.remove_empty_folders(prefix)
    memory.progress.pop(folder, None)
    memory.rebuilds.pop(folder, None)
    memory.changed.discard(folder)


def run(round: Round) -> dict[int, int]:
    """Returns the seq up to which each log with a typed table is in it, by epoch."""
    records = layout.records(round.lake).snapshot(round.fence)
    reached = records.progress()
    wanted = {
        folder: each
        for folder, each in wanted_tables(round).items()
        if any(str(info.epoch) in reached for info in each.logs)
    }
    for folder in typed_tables.folders(round.lake):
        if folder not in wanted:
            remove_table(round, folder)
    if wanted:
        _Stage(round, records, wanted).run()
    memory = memory_of(round)
    return {
        info.epoch: memory.progress.get(folder, {}).get(str(info.epoch), 0)
        for folder, each in wanted.items()
        for info in each.logs
    }


def keep_catalog(round: Round) -> None:
    """Write the statements of the catalog, if the set of tables and logs has changed."""
    memory = memory_of(round)
    reached = layout.records(round.lake).snapshot(round.fence).progress()
    there = set(round.lake.folders(""))
    found = [(folder, each) for folder, each in wanted_tables(round).items() if memory.progress.get(folder)]
    typed = {info.epoch for _, each in found for info in each.logs}
    directory = round.lake.directory
    declared = [] if directory is None else DeclaredFiles.of(directory).names()
    now = catalog.make_catalog(
        (name for name in catalog.LAKE_TABLES if name in there),
        [
            *((each.kind, each.name, f"{typed_tables.FOLDER}/{folder}") for folder, each in found),
            *(("declared", name, f"{DIRECTORY}/{name}") for name in declared),
        ],
        (
            (info.name, info.media_type == JSON)
            for info in round.all_logs
            if info.owner is None and str(info.epoch) in reached and info.epoch not in typed
        ),
    )
    if memory.catalog is None:
        memory.catalog = catalog.read_catalog(round.lake)
    if now != memory.catalog:
        catalog.write_catalog(round.lake, now, memory.catalog)
        memory.catalog = now


class _Stage:
    def __init__(self, round: Round, records: TableSnapshot, wanted: Mapping[str, TableDefinition]) -> None:
        self._round = round
        self._records = records
        self._reached = records.progress()
        self._wanted = wanted
        self._memory = memory_of(round)

    def run(self) -> None:
        behind: dict[str, Ranges] = {}
        again: list[str] = []
        for folder, definition in self._wanted.items():
            progress = progress_of(self._round, folder)
            if progress and progress.get(SHAPE) != definition.shape and not self._widened(definition, progress):
                again.append(folder)
                continue
            self._memory.rebuilds.pop(folder, None)
            ranges = self._ranges(definition, self._memory.progress.get(folder, {}))
            if ranges.epochs:
                behind[folder] = ranges
        if behind or again:
            self._bring_up(behind, again)
        if not again:
            self._memory.records_version = self._records.version

    def _bring_up(self, behind: Mapping[str, Ranges], again: Iterable[str]) -> None:
        with self._round.reporter.stage(STAGE, sum(map(_rows_in, behind.values()))) as stage:
            for files in chain(self._appended(behind), self._rebuilt(again)):
                rows = sum(file.rows for file in files)
                stage.advance(rows, sum(file.size for file in files))
                self._round.done[STAGE] = self._round.done.get(STAGE, 0) + rows

    # --- what to do --------------------------------------------------------------------------------------------------

    def _ranges(self, definition: TableDefinition, progress: Mapping[str, int]) -> Ranges:
        """The records that ``records`` has and the table lacks. Shared records of a fork are in neither."""
        found = []
        for info in definition.logs:
            after = max(progress.get(str(info.epoch), 0), info.own_after)
            through = self._reached.get(str(info.epoch), 0)
            if through > after:
                found.append((info.epoch, after, through))
        return ranges_of(found)

    def _widened(self, definition: TableDefinition, progress: Mapping[str, int]) -> bool:
        """Add columns that rows of an earlier version of the schema just lack. Returns whether that was enough."""
        snapshot = opened(self._round, definition)
        if VERSION not in progress or not snapshot.exists:
            return False
        names = snapshot.columns().names
        missing = definition.new_columns(progress[VERSION], names)
        if missing is None:
            return False
        moved = {SHAPE: definition.shape, VERSION: definition.version}
        known = self._memory.progress.pop(definition.folder)
        if missing:
            snapshot.add_columns(missing, moved)
        else:
            snapshot.commit(progress=moved)
        self._memory.progress[definition.folder] = known | moved
        return True

    # --- doing it ----------------------------------------------------------------------------------------------------

    def _appended(self, behind: Mapping[str, Ranges]) -> Iterator[list[DataFile]]:
        """The files of each commit."""
        if not behind:
            return
        files = self._candidates(behind)
        for chunk, _ in chunks_of(joined(behind.values()), CHUNK_ROWS):
            made = self._written(files, chunk)
            for folder, ranges in behind.items():
                mine = common(chunk, ranges)
                if mine.epochs:
                    self._append(folder, made.get(folder, []), _moved(mine))
                    yield made.get(folder, [])

    def _append(self, folder: str, files: list[DataFile], moved: dict[str, int]) -> None:
        definition = self._wanted[folder]
        snapshot = opened(self._round, definition)
        # An object store can report that a commit has failed, although it has stored it: then the progress is read.
        known = self._memory.progress.pop(folder, {})
        progress = {**moved, RECORDS_VERSION: self._records.version}
        if known:
            snapshot.commit(add=files, progress=progress)
        else:
            # If a driver ended after it had created the table, the schema may have changed since.
            progress |= self._first(definition)
            snapshot.replace(files, progress)
        self._added(folder, known | progress)

    def _rebuilt(self, folders: Iterable[str]) -> Iterator[list[DataFile]]:
        """The files of each part."""
        room = REBUILD_ROWS
        for folder in folders:
            definition = self._wanted[folder]
            rebuild = self._memory.rebuilds.get(folder)
            if rebuild is None or rebuild.shape != definition.shape:
                rebuild = Rebuild(definition.shape, self._ranges(definition, {}), self._records.version)
                self._memory.rebuilds[folder] = rebuild
            while rebuild.remaining:
                if room <= 0 and not self._round.complete and folder not in self._memory.interrupted:
                    return
                chunk = rebuild.remaining[0]
                made = self._written(self._records.files(), chunk).get(folder, [])
                rebuild.files += made
                del rebuild.remaining[0]
                room -= _rows_in(chunk)
                yield made
            progress = {**rebuild.moved, **self._first(definition)}
            known = self._memory.progress.pop(folder, {})
            opened(self._round, definition).replace(rebuild.files, progress)
            del self._memory.rebuilds[folder]
            self._memory.interrupted.discard(folder)
            self._added(folder, known | progress)

    def _first(self, definition: TableDefinition) -> dict[str, int]:
        """The rest of the progress of a table that has only rows of this round."""
        followed = self._reached[PROGRESS]
        return {SHAPE: definition.shape, VERSION: definition.version, PROGRESS: followed, PURGED: followed}

    def _added(self, folder: str, progress: dict[str, int]) -> None:
        self._memory.progress[folder] = progress
        self._memory.changed.add(folder)

    def _candidates(self, behind: Iterable[str]) -> list[KnownFile]:
        """The files of ``records`` that can have new rows: those added since the oldest version that one of the tables
        has."""
        versions = [self._memory.progress.get(folder, {}).get(RECORDS_VERSION) for folder in behind]
        if self._memory.records_version is not None:
            versions = [None if each is None else max(each, self._memory.records_version) for each in versions]
        if None in versions:
            return self._records.files()
        known = self._records.table.paths_at(min(each for each in versions if each is not None))
        return [file for file in self._records.files() if file.path not in known]

    def _written(self, files: list[KnownFile], ranges: Ranges) -> dict[str, list[DataFile]]:
        return write_files(self._round, self._wanted.values(), files, ranges)


def write_files(
    round: Round, tables: Iterable[TableDefinition], files: Iterable[KnownFile], ranges: Ranges
) -> dict[str, list[DataFile]]:
    """Write the rows of these records to files of their tables, by folder."""
    total = _rows_in(ranges)
    # Asking Spark is not worth it for few rows.
    even = total // (round.workers.parallel * ITEMS_PER_TASK) if total > MIN_ITEM_ROWS else 0
    owner = {info.epoch: definition for definition in tables for info in definition.logs}
    items = []
    for each in items_of(list(files), ranges, min(max(even, MIN_ITEM_ROWS), MAX_ITEM_ROWS)):
        known = {owner[epoch].folder: owner[epoch].source for epoch in each.ranges.epochs}
        place = {folder: number for number, folder in enumerate(known)}
        table_of = {epoch: place[owner[epoch].folder] for epoch in each.ranges.epochs}
        items.append(TypedItem(round.lake, each.files, each.ranges, list(known.values()), table_of))
    made: dict[str, list[DataFile]] = {}
    for done in round.workers.results(write_typed, items, TypedItem, TypedDone):
        for folder, written in done.files.items():
            made.setdefault(folder, []).extend(written)
    return made


# --- ranges of records -----------------------------------------------------------------------------------------------


def ranges_of(found: Iterable[tuple[int, int, int]]) -> Ranges:
    """Ranges from epochs, the seq before the first record, and the last one."""
    ordered = sorted(found)
    return Ranges(*([each[place] for each in ordered] for place in range(3)))


def joined(ranges: Iterable[Ranges]) -> Ranges:
    return ranges_of(each for some in ranges for each in zip(some.epochs, some.after, some.through, strict=True))


def common(chunk: Ranges, ranges: Ranges) -> Ranges:
    """The part of a chunk that belongs to epochs of these ranges."""
    mine = set(ranges.epochs)
    return ranges_of(each for each in zip(chunk.epochs, chunk.after, chunk.through, strict=True) if each[0] in mine)


def _moved(ranges: Ranges) -> dict[str, int]:
    return {str(epoch): through for epoch, through in zip(ranges.epochs, ranges.through, strict=True)}


def _rows_in(ranges: Ranges) -> int:
    return sum(ranges.through) - sum(ranges.after)
