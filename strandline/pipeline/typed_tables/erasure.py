"""Erasures in typed tables: rows of erased records go, and restored and amended ones are made again.

The tables follow before ``records`` does, from ``records`` as it will be. So at any moment every table has all events
that ``records`` has, or none of them is about its logs. After a crash in between, the same events are applied again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from strandline.lake import typed_tables
from strandline.lake.erasures import PROGRESS, PURGED, EraseDone, EraseItem, ErasureRules, erase
from strandline.lake.files import DataFile
from strandline.lake.table import KnownFile, LakeTable, TableSnapshot
from strandline.lake.typed_tables import SHAPE, typed_table
from strandline.pipeline.round import Round
from strandline.pipeline.typed_tables.definition import TableDefinition
from strandline.pipeline.typed_tables.stage import memory_of, progress_of, ranges_of, wanted_tables, write_files


def apply_rules(round: Round, rules: ErasureRules, renewed: Sequence[DataFile], head: int) -> None:
    """Apply the events up to ``head``. ``renewed`` are new files of ``records`` with the restored and amended
    records."""
    concerned = {
        folder: epochs
        for folder in typed_tables.folders(round.lake)
        if (epochs := rules.of.keys() & _epochs(progress_of(round, folder)))
    }
    if not concerned:
        return
    memory = memory_of(round)
    wanted = wanted_tables(round)
    snapshots = {folder: typed_table(round.lake, folder).snapshot(round.fence) for folder in concerned}
    made = _renewed(round, renewed, wanted, concerned)
    for result in _erased(round, rules, snapshots.values()):
        folder = result.table.rpartition("/")[2]
        made.setdefault(folder, ([], set()))
        made[folder][0].extend(result.files)
        made[folder][1].add(result.path)
    for folder, snapshot in snapshots.items():
        files, replaced = made.get(folder, ([], set()))
        known = memory.progress.pop(folder)
        removed = [file for file in snapshot.files() if file.path in replaced]
        snapshot.commit(add=files, remove=removed, progress={PROGRESS: head}, now=round.now())
        memory.progress[folder] = {**known, PROGRESS: head}
        memory.changed.add(folder)
        if memory.rebuilds.pop(folder, None) is not None:
            # Its files may have rows of erased records.
            memory.interrupted.add(folder)


def unpurged(round: Round) -> list[LakeTable]:
    """The tables whose old files may have erased records, and folders to which nothing was ever committed."""
    found = []
    for folder in typed_tables.folders(round.lake):
        progress = progress_of(round, folder)
        if progress.get(PURGED, -1) < progress.get(PROGRESS, 0):
            found.append(typed_table(round.lake, folder))
    return found


def note_purged(round: Round, table: LakeTable) -> None:
    folder = table.name.rpartition("/")[2]
    memory = memory_of(round)
    progress = memory.progress.get(folder)
    if progress:
        moved = {PURGED: progress[PROGRESS]}
        table.snapshot(round.fence).commit(progress=moved)
        memory.progress[folder] = progress | moved


def _epochs(progress: Iterable[str]) -> set[int]:
    return {int(name) for name in progress if name.isdecimal()}


def _renewed(
    round: Round, renewed: Sequence[DataFile], wanted: dict[str, TableDefinition], concerned: dict[str, set[int]]
) -> dict[str, tuple[list[DataFile], set[str]]]:
    """Rows of restored and amended records, as far as the table has come. A table that is about to be built again lacks
    them until then."""
    tables, ranges = [], []
    for folder, epochs in concerned.items():
        progress, definition = progress_of(round, folder), wanted.get(folder)
        if definition is not None and progress.get(SHAPE) == definition.shape:
            tables.append(definition)
            mine = epochs & {info.epoch for info in definition.logs}
            ranges += [(epoch, 0, progress[str(epoch)]) for epoch in mine]
    if not renewed or not ranges:
        return {}
    made = write_files(round, tables, map(KnownFile.of, renewed), ranges_of(ranges))
    return {folder: (files, set()) for folder, files in made.items()}


def _erased(round: Round, rules: ErasureRules, snapshots: Iterable[TableSnapshot]) -> Iterable[EraseDone]:
    items = []
    for snapshot in snapshots:
        name, columns = snapshot.table.name, snapshot.columns().serialize().to_pybytes()
        for file in snapshot.files():
            epochs, seqs = file.bounds.get("epoch"), file.bounds.get("seq")
            if epochs is None or seqs is None:
                items.append(EraseItem(round.lake, file.path, rules, name, columns))
            elif rules.may_mean(epochs, seqs):
                items.append(EraseItem(round.lake, file.path, rules.between(*epochs), name, columns))
    results = round.workers.results(erase, items, EraseItem, EraseDone) if items else ()
    return [result for result in results if result.erased]
