"""What the steps of the companions' stage share: the two tables, what logs wish for, and the way to have work done."""

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
from strandline.pipeline.tasks import work
from strandline.query.index_files.builder import Origin
from strandline.query.index_files.table import ERASURES, FOLDER, IndexEntry

STAGE = "companions"


class CompanionStage:
    """The tables change together: whatever becomes of companions, rollups follow at once."""

    def __init__(self, round: Round, rows: int = COMPANION_ROWS) -> None:
        self.round = round
        #: About so many records go into one companion.
        self.rows = rows
        self.table = CompanionTable(round.lake, round.fence)
        self.rollups = Rollups(round)
        self.logs = {info.epoch: info for info in round.all_logs}
        self.wishes: dict[int, Wish] = {}
        #: Logs whose wishes cannot be known: nothing is done about them.
        self.unknown: set[int] = set()
        for info in round.all_logs:
            self._ask(info)
        if not self.rollups.has_followed(self.table.version):
            self._follow(None)

    def _ask(self, info: LogInfo) -> None:
        try:
            wish = wish_of(info)
        except Exception as error:
            self.problem(info.name, None, f"its registry cannot be understood: {describe(error)}")
            self.unknown.add(info.epoch)
            return
        if wish is not None:
            self.wishes[info.epoch] = wish

    @property
    def entries(self) -> list[IndexEntry]:
        return self.table.entries

    def chosen(self) -> Iterator[tuple[Wish, CompanionLines]]:
        """The logs of the round that wish for companions, and what there is of each now."""
        entries = by_epoch(self.entries)
        for info in self.round.logs:
            wish = self.wishes.get(info.epoch)
            if wish is not None:
                yield wish, lines_of(wish, entries.get(info.epoch, []))

    def work(self, works: Iterable[tuple[Work, int]]) -> Iterator[list[CompanionOutcome]]:
        """Have work done, given how many records each is about; wave after wave."""
        round = self.round
        items = (CompanionItem(round.lake, round.now(), pack) for pack in packed(works, self.rows))
        first = next(items, None)
        if first is not None:
            yield from work(
                round.spark, make, chain([first], items), CompanionItem, CompanionOutcome, round.parallelism
            )

    def change(
        self,
        *,
        add: Collection[IndexEntry] = (),
        remove: Collection[IndexEntry] = (),
        progress: Mapping[str, int] | None = None,
    ) -> None:
        """What the table of companions has from now on, and with it that of rollups."""
        had_followed = self.rollups.has_followed(self.table.version)
        # What is made from now on is made of records as these events have left them.
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
        """These companions, by their paths, cannot be used: they are made again, by this round or by the next."""
        found = [entry for entry in self.entries if entry.path in damaged]
        for entry in found:
            self.problem(entry.info.log, entry.info.first, damaged[entry.path])
        if found:
            self.change(remove=found)

    def failed(self, failures: Collection[CompanionFailure]) -> None:
        """Tell of them."""
        for failure in failures:
            if failure.damaged is None:
                self.problem(failure.log, failure.seq, failure.message)
        self.drop({each.damaged: each.message for each in failures if each.damaged is not None})

    def problem(self, log: str | None, seq: int | None, message: str) -> None:
        self.round.problem(STAGE, log, seq, message)


# --- Files of companions that the table does not refer to: replaced ones, and what killed tasks have left -----------

NOTED = f"{FOLDER}/unused.json"


class NotedCompanions(msgspec.Struct):
    """``since`` when each file is known to be unused, and when somebody ``looked`` for them; milliseconds."""

    looked: int = 0
    since: dict[str, int] = {}


def find_unused(lake: Lake, used: Iterable[str]) -> list[str]:
    """All files that are there and not used."""
    return sorted(lake.names(f"{FOLDER}/").keys() - set(used) - {NOTED})


def sweep(lake: Lake, used: Iterable[str], now: int, grace_s: int, remove: Callable[[list[str]], None]) -> list[str]:
    """Remove what has been known to be unused for so long, and put down what was found now. It is looked for once in
    such a time, so a file goes after one or two of them. ``remove`` removes files. Gives what was removed.

    A time in the future was noted by a round with a wrong clock. It counts as now."""
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
        # Everything unused counts as found now.
        return NotedCompanions()


# --- Companions: the files that searches over history are answered from, and the rollups that go with them ----------

#: Files that were replaced stay so long: a server looks for new ones when it is next asked, and may be answering from
#: the old ones until then.
GRACE_S = 600


def run(round: Round, *, grace_s: int = GRACE_S, rows: int = COMPANION_ROWS) -> dict[int, int]:
    """Up to which seq each log that is searched is covered, by epoch. About ``rows`` records go into one companion, and
    a file that was replaced stays for ``grace_s`` seconds.

    Raises what concerns all logs: a disk that is full, a lake or a Spark that is gone.
    """
    keeping = CompanionStage(round, rows)
    _erase(keeping)
    _Extending(keeping).run()
    _merge(keeping)
    _retire(keeping)
    sweep(round.lake, (entry.path for entry in keeping.entries), round.now(), grace_s, round.remove)
    keeping.rollups.tidy()
    return {wish.info.epoch: lines.covered for wish, lines in keeping.chosen()}


# --- erasing ---------------------------------------------------------------------------------------------------------


def _erase(keeping: CompanionStage) -> None:
    """Have nothing in the tables that was erased before the round began, and no file that has it."""
    lake, head = keeping.round.lake, keeping.round.events.head
    progress = keeping.table.progress.get(ERASURES)
    if progress is None:
        # There is nothing yet that could have missed an event.
        return
    if progress != head:
        try:
            if progress > head:
                raise EventsMissed(f"{progress} events were followed, and there are {head}")
            _apply(keeping, progress)
        except EventsMissed as error:
            keeping.problem(None, None, f"{error}: all companions are made again")
            keeping.change(remove=keeping.entries, progress={ERASURES: head})
    if keeping.rollups.erasures != head:
        # Files that were replaced lately, or that a killed task has left, may have it as well.
        keeping.round.remove(find_unused(lake, (entry.path for entry in keeping.entries)))
        keeping.rollups.sweep()
        keeping.rollups.swept(head)


def _apply(keeping: CompanionStage, progress: int) -> None:
    round = keeping.round
    erasures = [event.erasure for event in round.events.after(progress)]
    effects = effects_of(erasures, keeping.entries, keeping.logs, round.history.standing)
    concerned = {entry.path: entry for entry in keeping.entries if entry.path in effects}
    # Most that may be concerned by a key are not: it takes little to see that.
    works = [(_rewritten(keeping, entry, effects[path]), entry.info.records // 8) for path, entry in concerned.items()]
    made: list[IndexEntry] = []
    for wave in keeping.work((item, weight) for item, weight in works if item is not None):
        for outcome in wave:
            made += outcome.made
            for path in outcome.unchanged:
                del concerned[path]
            for failure in outcome.failed:
                keeping.problem(failure.log, failure.seq, failure.message)
    # What could not be written anew goes all the same; its log goes on from before it.
    keeping.change(add=made, remove=list(concerned.values()), progress={ERASURES: round.events.head})


def _rewritten(keeping: CompanionStage, entry: IndexEntry, effect: ErasureEffect) -> Work | None:
    """The companion without what was erased, or as the log has it now; None: it only goes."""
    info, wish, head = entry.info, keeping.wishes.get(entry.info.epoch), keeping.round.events.head
    if effect.is_dropped or wish is None or wish.plan != info.plan or wish.rollups != info.rollups:
        return None
    assert wish.info.registry is not None
    if not effect.is_outdated:
        return CompanionMerge(
            log=info.log, epoch=info.epoch, first=info.first, paths=[entry.path], registry=wish.info.registry,
            kept=effect.kept, without=effect.without.tolist(), erasures=head, only_if_other=True,
        )  # fmt: skip
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
    """Brings lines up to the heads of their logs."""

    def __init__(self, keeping: CompanionStage) -> None:
        self._keeping = keeping
        self._round = keeping.round
        #: How far the line of each log has come, by epoch, and which one it is.
        self._ends: dict[int, int] = {}
        self._wishes: dict[int, Wish] = {}
        #: Logs that nothing more is made of in this round.
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
                info.name, info.head, f"the log ends before what the lake has of it, which is {lines.covered}"
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
            # Its columns are as they should be, so the log need not be read for other rollups.
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
        """What of a wave goes on where the lines end."""
        added: list[IndexEntry] = []
        progress: dict[str, int] = {}
        for epoch, made in by_epoch(entry for outcome in wave for entry in outcome.made).items():
            following, rest = continued(self._ends[epoch], made)
            self._ends[epoch] = end_of(following, self._ends[epoch])
            progress[progress_name(epoch, self._wishes[epoch].plan)] = self._ends[epoch]
            added += following
            self._round.lake.remove(entry.path for entry in rest)
        if added:
            self._keeping.change(add=added, progress=progress)
        failures = [failure for outcome in wave for failure in outcome.failed]
        self._failed |= {failure.epoch for failure in failures}
        self._keeping.failed(failures)
        return added


# --- tidying up ------------------------------------------------------------------------------------------------------


def _merge(keeping: CompanionStage) -> None:
    """Make one of small neighbours."""
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


def _retire(keeping: CompanionStage) -> None:
    """Let go what nobody needs any more: what is replaced, and what is of logs that are not searched any more. (That a
    log was dropped, an event has told.)"""
    old = [entry for _, lines in keeping.chosen() if lines.is_replaced for entry in lines.old]
    chosen = {info.epoch for info in keeping.round.logs} - keeping.unknown
    old += [entry for entry in keeping.entries if entry.info.epoch in chosen - keeping.wishes.keys()]
    if old:
        keeping.change(remove=old)
