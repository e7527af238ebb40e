"""The stage of companions: the files that answer searches over history, and their rollups."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import chain
from typing import cast

import msgspec

from strandline.history.log_info import LogInfo
from strandline.history.source import AnyPiece
from strandline.lake.erasures import EventsMissed
from strandline.lake.location import Lake
from strandline.lake.record_files import concerns_everything
from strandline.lake.reporter import describe
from strandline.pipeline.companions.erasure import ErasureEffect, effects_of
from strandline.pipeline.companions.plan import (
    COMPANION_ROWS,
    CompanionLines,
    Wish,
    by_epoch,
    continued,
    counted,
    end_of,
    is_due,
    is_short,
    lines_of,
    merges_of,
    packed,
    progress_name,
    stretches_of,
    wish_of,
)
from strandline.pipeline.companions.tables import CompanionTable, Rollups
from strandline.pipeline.companions.work import (
    CompanionBuild,
    CompanionFailure,
    CompanionItem,
    CompanionMerge,
    CompanionOutcome,
    Work,
    make,
)
from strandline.pipeline.round import Round
from strandline.query.index_files.builder import Origin
from strandline.query.index_files.shared_file import MAX_PART_BYTES, MAX_SHARED_BYTES, file_of, part_of
from strandline.query.index_files.table import ERASURES, FOLDER, IndexEntry

STAGE = "companions"


class CompanionStage:
    """The shared state of the steps. Rollups follow every change of companions immediately."""

    def __init__(self, round: Round, rows: int = COMPANION_ROWS) -> None:
        self.round = round
        #: The approximate maximum number of records of a companion.
        self.rows = rows
        self.table = CompanionTable(round.lake, round.fence)
        self.rollups = Rollups(round)
        self.logs = {info.epoch: info for info in round.all_logs}
        self.wishes: dict[int, Wish] = {}
        #: Logs with an unreadable registry, which are left alone.
        self.unknown: set[int] = set()
        for info in round.all_logs:
            if info.registry is not None:
                self._ask(info)
        #: Those of the logs of the round, in their order. Most logs of a lake have no search configuration.
        self._chosen = list(self.wishes.values())
        if len(round.logs) < len(round.all_logs):
            chosen = {info.epoch for info in round.logs}
            self._chosen = [wish for wish in self._chosen if wish.info.epoch in chosen]
        if not self.rollups.has_followed(self.table.version):
            self._follow(None)

    def _ask(self, info: LogInfo) -> None:
        try:
            wish = wish_of(info)
        except Exception as error:
            self.problem(info.name, None, f"cannot read the registry: {describe(error)}")
            self.unknown.add(info.epoch)
            return
        if wish is not None:
            self.wishes[info.epoch] = wish

    @property
    def entries(self) -> list[IndexEntry]:
        return self.table.entries

    def registry_for(self, entry: IndexEntry) -> bytes | None:
        """The registry of the log, if its configuration requires this companion as it is."""
        wish = self.wishes.get(entry.info.epoch)
        if wish is None or (wish.plan, wish.rollups) != (entry.info.plan, entry.info.rollups):
            return None
        return wish.info.registry

    def chosen(self) -> Iterator[tuple[Wish, CompanionLines]]:
        """The logs of the round that require companions, and the existing companions of each."""
        entries = by_epoch(self.entries)
        for wish in self._chosen:
            yield wish, lines_of(wish, entries.get(wish.info.epoch, []))

    def work(self, works: Iterable[tuple[Work, int]]) -> Iterator[list[CompanionOutcome]]:
        """Run work in waves. Each work comes with its number of records."""
        round = self.round
        items = (CompanionItem(round.lake, round.now(), pack) for pack in packed(works, self.rows))
        first = next(items, None)
        if first is not None:
            yield from round.workers.waves(make, chain([first], items), CompanionItem, CompanionOutcome)

    def change(
        self,
        *,
        add: Collection[IndexEntry] = (),
        remove: Collection[IndexEntry] = (),
        progress: Mapping[str, int] | None = None,
    ) -> None:
        """Change the table of companions, and then the table of rollups."""
        had_followed = self.rollups.has_followed(self.table.version)
        # New companions are built from records after these events.
        begun = {} if ERASURES in self.table.progress else {ERASURES: self.round.events.head}
        self.table.change(add=add, remove=remove, progress={**begun, **(progress or {})}, now=self.round.now())
        self._follow({entry.info.epoch for entry in (*add, *remove)} if had_followed else None)

    def _follow(self, epochs: Collection[int] | None) -> None:
        entries = by_epoch(self.entries)
        wanted = [
            entry
            for epoch in (entries if epochs is None else epochs)
            for entry in counted(entries.get(epoch, []), self.wishes.get(epoch))
        ]
        erasures = self.table.progress.get(ERASURES, self.round.events.head)
        damaged = self.rollups.follow(wanted, self.table.version, erasures, epochs)
        if damaged:
            self.drop(damaged)

    def drop(self, damaged: Mapping[str, str]) -> None:
        """Remove damaged companions, by path. This round or the next builds them again."""
        found = [entry for entry in self.entries if entry.path in damaged]
        for entry in found:
            self.problem(entry.info.log, entry.info.first, damaged[entry.path])
        if found:
            self.change(remove=found)

    def failed(self, failures: Collection[CompanionFailure]) -> None:
        """Report failures, and remove damaged companions."""
        for failure in failures:
            if failure.damaged is None:
                self.problem(failure.log, failure.seq, failure.message)
        self.drop({each.damaged: each.message for each in failures if each.damaged is not None})

    def problem(self, log: str | None, seq: int | None, message: str) -> None:
        self.round.problem(STAGE, log, seq, message)


# --- Unused files: replaced companions, and files that killed tasks have left ---------------------------------------

NOTED = f"{FOLDER}/unused.json"


class NotedCompanions(msgspec.Struct):
    """``since`` when each file is known to be unused, and when the files were last ``looked`` for; milliseconds."""

    looked: int = 0
    since: dict[str, int] = {}


def find_unused(lake: Lake, used: Iterable[str]) -> list[str]:
    """All files that exist and have none of the used index files."""
    return sorted(lake.names(f"{FOLDER}/").keys() - {file_of(path) for path in used} - {NOTED})


def sweep(lake: Lake, used: Iterable[str], now: int, grace_s: int, remove: Callable[[list[str]], None]) -> list[str]:
    """Remove files that have been unused for ``grace_s``, and note newly unused ones. This runs once per ``grace_s``,
    so a file is removed after one or two such periods. ``remove`` removes files. Returns what was removed.

    A time in the future was noted by a round with a wrong clock, and counts as now."""
    stored = lake.read(NOTED)
    noted = NotedCompanions() if stored is None else _read(stored)
    if stored is not None and 0 <= now - noted.looked < grace_s * 1000:
        return []
    since = {path: min(noted.since.get(path, now), now) for path in find_unused(lake, used)}
    removed = [path for path, at in since.items() if now - at >= grace_s * 1000]
    remove(removed)
    left = {path: at for path, at in since.items() if path not in set(removed)}
    if left or stored is not None:
        lake.write(NOTED, msgspec.json.encode(NotedCompanions(now, left)))
    return removed


def _read(stored: bytes) -> NotedCompanions:
    try:
        return msgspec.json.decode(stored, type=NotedCompanions)
    except msgspec.DecodeError:
        # The file is damaged: count all unused files as found now.
        return NotedCompanions()


# --- The stage --------------------------------------------------------------------------------------------------------

#: When there are this many files whose companions would fill less than half of a shared file, they are moved together.
MAX_SPARSE_FILES = 64
#: How long replaced files are kept. A server looks for new files at the next search, and may be answering from the old
#: ones until then.
GRACE_S = 600


def run(round: Round, *, grace_s: int = GRACE_S, rows: int = COMPANION_ROWS) -> dict[int, int]:
    """Run the stage. Returns the seq up to which each searchable log is covered, by epoch, without short logs that need
    no companion. A companion has about ``rows`` records, and replaced files are kept for ``grace_s`` seconds.

    Raises errors that affect all logs, for example a full disk, or a lost lake or Spark session.
    """
    keeping = CompanionStage(round, rows)
    _erase(keeping)
    _Extending(keeping).run()
    _merge(keeping)
    _gather(keeping)
    _retire(keeping)
    sweep(round.lake, (entry.path for entry in keeping.entries), round.now(), grace_s, round.remove)
    keeping.rollups.tidy()
    return {wish.info.epoch: lines.covered for wish, lines in keeping.chosen() if not is_short(wish, lines)}


# --- erasing ---------------------------------------------------------------------------------------------------------


def _erase(keeping: CompanionStage) -> None:
    """Remove all records that were erased before the round from the tables and from all files."""
    lake, head = keeping.round.lake, keeping.round.events.head
    progress = keeping.table.progress.get(ERASURES)
    if progress is None:
        # The table does not exist yet, so it cannot have missed an event.
        return
    if progress != head:
        try:
            if progress > head:
                raise EventsMissed(f"{progress} erasure events were applied, but only {head} exist")
            _apply(keeping, progress)
        except EventsMissed as error:
            keeping.problem(None, None, f"{error}: building all companions again")
            keeping.change(remove=keeping.entries, progress={ERASURES: head})
    if keeping.rollups.erasures != head:
        # Recently replaced files, or files that a killed task has left, may contain erased records too.
        keeping.round.remove(find_unused(lake, (entry.path for entry in keeping.entries)))
        keeping.rollups.sweep()
        keeping.rollups.swept(head)


def _apply(keeping: CompanionStage, progress: int) -> None:
    round = keeping.round
    erasures = [event.erasure for event in round.events.after(progress)]
    effects = effects_of(erasures, keeping.entries, keeping.logs, round.history.standing)
    concerned = {entry.path: entry for entry in keeping.entries if entry.path in effects}
    # Most companions that a key may affect do not change, and checking that is cheap.
    works = [(_rewritten(keeping, entry, effects[path]), entry.info.records // 8) for path, entry in concerned.items()]
    made: list[IndexEntry] = []
    for wave in keeping.work((item, weight) for item, weight in works if item is not None):
        for outcome in wave:
            made += outcome.made
            for path in outcome.unchanged:
                del concerned[path]
            for failure in outcome.failed:
                keeping.problem(failure.log, failure.seq, failure.message)
    # Nothing of a shared file stays if one of its companions changes: the old bytes must go with the file.
    shared = {part.file for path in concerned if (part := part_of(path)) is not None}
    beside = [each for each in keeping.entries if each.path not in concerned and file_of(each.path) in shared]
    moved, failed = _moved(keeping, beside)
    made += moved
    for failure in failed:
        keeping.problem(failure.log, failure.seq, failure.message)
    # Companions that could not be rewritten are removed too; their lines continue before them.
    keeping.change(add=made, remove=[*concerned.values(), *beside], progress={ERASURES: round.events.head})


def _moved(keeping: CompanionStage, entries: Iterable[IndexEntry]) -> tuple[list[IndexEntry], list[CompanionFailure]]:
    """The same companions in other files, without those that their logs do not require any more; and failures."""
    works: list[tuple[Work, int]] = []
    for entry in entries:
        info = entry.info
        if (registry := keeping.registry_for(entry)) is not None:
            work = CompanionMerge(
                log=info.log, epoch=info.epoch, first=info.first, paths=[entry.path], registry=registry
            )
            works.append((work, info.records))
    outcomes = [outcome for wave in keeping.work(works) for outcome in wave]
    made = [entry for outcome in outcomes for entry in outcome.made]
    return made, [failure for outcome in outcomes for failure in outcome.failed]


def _rewritten(keeping: CompanionStage, entry: IndexEntry, effect: ErasureEffect) -> Work | None:
    """The companion without the erased records, or built from the log; None to only remove it."""
    info, head, registry = entry.info, keeping.round.events.head, keeping.registry_for(entry)
    if effect.is_dropped or registry is None:
        return None
    if not effect.is_outdated:
        return CompanionMerge(
            log=info.log, epoch=info.epoch, first=info.first, paths=[entry.path], registry=registry,
            kept=effect.kept, without=effect.without.tolist(), erasures=head, only_if_other=True,
        )  # fmt: skip
    wish = keeping.wishes[info.epoch]
    try:
        pieces = keeping.round.history.pieces(wish.info, info.first - 1, info.last, keeping.rows)
    except Exception as error:
        if concerns_everything(error):
            raise
        keeping.problem(info.log, info.first, describe(error))
        return None
    return _build(keeping.round, wish, info.first, info.last, pieces)


# --- indexing --------------------------------------------------------------------------------------------------------


def _build(round: Round, wish: Wish, first: int, last: int, pieces: Iterable[object]) -> CompanionBuild:
    assert wish.info.registry is not None
    origin = Origin(
        directory=round.history.directory,
        log=wish.info.name,
        epoch=wish.info.epoch,
        first=first,
        last=last,
        versions=tuple(wish.versions),
        erasures=round.events.head,
    )
    return CompanionBuild(origin=origin, registry=wish.info.registry, pieces=cast(list[AnyPiece], list(pieces)))


class _Extending:
    """Extends lines to the heads of their logs."""

    def __init__(self, keeping: CompanionStage) -> None:
        self._keeping = keeping
        self._round = keeping.round
        #: The end of the line of each log, by epoch, and its wish.
        self._ends: dict[int, int] = {}
        self._wishes: dict[int, Wish] = {}
        #: Logs that failed in this round.
        self._failed: set[int] = set()

    def run(self) -> None:
        todo = [(wish, lines) for wish, lines in self._keeping.chosen() if self._has_work(wish, lines)]
        total = sum(wish.info.head - lines.covered for wish, lines in todo)
        with self._round.reporter.stage(STAGE, total) as stage:
            for wave in self._keeping.work(self._works(todo)):
                added = self._commit(wave)
                records = sum(entry.info.records for entry in added)
                stage.advance(records, sum(entry.size for entry in added))
                self._round.done[STAGE] = self._round.done.get(STAGE, 0) + records

    def _has_work(self, wish: Wish, lines: CompanionLines) -> bool:
        info = wish.info
        if info.head < lines.covered:
            self._keeping.problem(
                info.name, info.head, f"the log ends at seq {info.head}, but the lake has it up to {lines.covered}"
            )
            return False
        return bool(lines.renewable) or is_due(wish, lines, self._round.now(), everything=self._round.complete)

    def _works(self, todo: list[tuple[Wish, CompanionLines]]) -> Iterator[tuple[Work, int]]:
        for wish, lines in todo:
            self._ends[wish.info.epoch] = lines.covered
            self._wishes[wish.info.epoch] = wish
            for item, records in self._of_log(wish, lines):
                if wish.info.epoch in self._failed:
                    break
                yield item, records

    def _of_log(self, wish: Wish, lines: CompanionLines) -> Iterator[tuple[Work, int]]:
        info = wish.info
        assert info.registry is not None
        for entry in lines.renewable:
            # Its columns are still valid, so other rollups do not need the log.
            first = entry.info.first
            yield (
                CompanionMerge(
                    log=info.name, epoch=info.epoch, first=first, paths=[entry.path], registry=info.registry
                ),
                entry.info.records,
            )
        if not is_due(wish, lines, self._round.now(), everything=self._round.complete):
            return
        after = end_of(lines.renewable, lines.covered)
        try:
            pieces = self._round.history.pieces(info, after, info.head, self._keeping.rows)
        except Exception as error:
            if concerns_everything(error):
                raise
            self._keeping.problem(info.name, after + 1, describe(error))
            return
        for stretch in stretches_of(pieces, after, info.head, self._keeping.rows):
            yield _build(self._round, wish, stretch.first, stretch.last, stretch.pieces), stretch.rows

    def _commit(self, wave: list[CompanionOutcome]) -> list[IndexEntry]:
        """Commit the companions of a wave that continue their lines."""
        added: list[IndexEntry] = []
        progress: dict[str, int] = {}
        for epoch, made in by_epoch(entry for outcome in wave for entry in outcome.made).items():
            following, rest = continued(self._ends[epoch], made)
            self._ends[epoch] = end_of(following, self._ends[epoch])
            progress[progress_name(epoch, self._wishes[epoch].plan)] = self._ends[epoch]
            added += following
            # A shared file may have others that are listed.
            self._round.lake.remove(entry.path for entry in rest if part_of(entry.path) is None)
        if added:
            self._keeping.change(add=added, progress=progress)
        failures = [failure for outcome in wave for failure in outcome.failed]
        self._failed |= {failure.epoch for failure in failures}
        self._keeping.failed(failures)
        return added


# --- upkeep ----------------------------------------------------------------------------------------------------------


def _merge(keeping: CompanionStage) -> None:
    """Merge small neighbours."""
    groups: dict[tuple[int, int], list[IndexEntry]] = {}
    works: list[tuple[Work, int]] = []
    for wish, lines in keeping.chosen():
        info = wish.info
        assert info.registry is not None
        for group in merges_of(lines.line, keeping.rows):
            first = group[0].info.first
            groups[info.epoch, first] = group
            paths = [entry.path for entry in group]
            work = CompanionMerge(log=info.name, epoch=info.epoch, first=first, paths=paths, registry=info.registry)
            works.append((work, sum(entry.info.records for entry in group)))
    for wave in keeping.work(works):
        made = [entry for outcome in wave for entry in outcome.made]
        replaced = [old for entry in made for old in groups[entry.info.epoch, entry.info.first]]
        if made:
            keeping.change(add=made, remove=replaced)
        keeping.failed([failure for outcome in wave for failure in outcome.failed])


def _gather(keeping: CompanionStage) -> None:
    """Move small companions together, if there are many files with few of them."""
    files: dict[str, list[IndexEntry]] = {}
    for entry in keeping.entries:
        if entry.size <= MAX_PART_BYTES and keeping.registry_for(entry) is not None:
            files.setdefault(file_of(entry.path), []).append(entry)
    sparse = [each for each in files.values() if sum(entry.size for entry in each) < MAX_SHARED_BYTES // 2]
    if len(sparse) < MAX_SPARSE_FILES:
        return
    entries = sorted((entry for each in sparse for entry in each), key=lambda entry: (entry.info.log, entry.info.first))
    made, failed = _moved(keeping, entries)
    there = {_range(entry) for entry in made}
    keeping.change(add=made, remove=[entry for entry in entries if _range(entry) in there])
    keeping.failed(failed)


def _range(entry: IndexEntry) -> tuple[int, int, int]:
    return entry.info.epoch, entry.info.first, entry.info.last


def _retire(keeping: CompanionStage) -> None:
    """Remove companions that are replaced, or whose logs are no longer searchable. (Erasure events handle dropped
    logs.)"""
    old = [entry for _, lines in keeping.chosen() if lines.is_replaced for entry in lines.old]
    without = {info.epoch for info in keeping.round.logs} - keeping.unknown - keeping.wishes.keys()
    old += [entry for entry in keeping.entries if entry.info.epoch in without]
    if old:
        keeping.change(remove=old)
