"""Applies erasures to the lake: removes deleted, hidden and dropped records, and adds restored or amended ones.

The statistics of files tell which may contain affected records. These files are rewritten and replaced in one commit
together with the progress through the events (the transaction id ``erasures``). Then the old files are removed at once,
along with every file of an earlier version of the tables and every file that a killed task has left, because any of
them may contain the same bytes. A reader of an earlier version finds a file missing and opens the table again. The
transaction logs keep bounds of log, epoch, seq and ts, and never of keys or payloads.

Typed tables, ``latest`` and ``keys`` are committed first, derived from ``records`` as it will be, and ``records`` last:
only it shows which keys are affected, and after a crash in between it still does.

Records that retention removed from a log are not erased: they stay in the lake. If a restored or amended record cannot
be read from its log, the problem is reported and the lake does not contain it: an outdated version would be worse.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from strandline.history.log_info import LogInfo
from strandline.lake import layout
from strandline.lake.erasures import (
    AMENDED,
    DELETED,
    PROGRESS,
    PURGED,
    RESTORED,
    Concerned,
    EraseDone,
    EraseItem,
    ErasureRule,
    ErasureRules,
    EventsMissed,
    RenewDone,
    RenewItem,
    erase,
    renew,
    rules_of,
)
from strandline.lake.files import DataFile
from strandline.lake.record_files import concerns_everything
from strandline.lake.reporter import describe
from strandline.lake.table import KnownFile, LakeTable, TableSnapshot
from strandline.lake.transaction_log import LOG
from strandline.pipeline.keys import ByKey
from strandline.pipeline.records import MAX_ITEM_ROWS, pieces_of
from strandline.pipeline.round import Round
from strandline.pipeline.typed_tables import erasure as typed_erasure
from strandline.schema.registry import Registry

STAGE = "erasing"


def run(round: Round) -> None:
    records = layout.records(round.lake).snapshot(round.fence)
    progress = records.progress()
    if not progress:
        return
    if progress[PROGRESS] < round.events.head:
        with round.reporter.stage(STAGE) as stage:
            erased = _Following(round, records).run()
            stage.advance(erased)
            round.done[STAGE] = round.done.get(STAGE, 0) + erased
        progress = records.progress()
    if progress[PURGED] < progress[PROGRESS]:
        for table in (records.table, layout.latest(round.lake), layout.keys(round.lake)):
            purge(round, table)
        for table in typed_erasure.unpurged(round):
            purge(round, table)
            typed_erasure.note_purged(round, table)
        records.commit(progress={PURGED: progress[PROGRESS]})


def purge(round: Round, table: LakeTable) -> None:
    """Remove all data files that are not part of the table now."""
    there = table.lake.names(f"{table.name}/")
    current = {f"{table.name}/{file.path}" for file in table.files()}
    round.remove(name for name in there if name not in current and f"/{LOG}/" not in name)


class _Following:
    """Applies the events that the tables have not applied yet."""

    def __init__(self, round: Round, records: TableSnapshot) -> None:
        self._round = round
        self._records = records
        self._progress = records.progress()
        self._files = records.files()
        self._concerned = Concerned({})

    def run(self) -> int:
        """Returns the number of erased rows."""
        head = self._round.events.head
        rules = self._with_standing(self._rules())
        if not rules.of:
            ByKey(self._round).commit({PROGRESS: head})
            self._records.commit(progress={PROGRESS: head, PURGED: head})
            return 0
        renewed = self._renewed(rules)
        new = list(renewed)
        replaced, erased = self._erased(rules, new)
        gone = {file.path for file in replaced}
        left = [*(file for file in self._files if file.path not in gone), *map(KnownFile.of, new)]
        typed_erasure.apply_rules(self._round, rules, renewed, head)
        by_key = ByKey(self._round)
        by_key.renew(left, self._concerned.keys, {PROGRESS: head})
        self._records.commit(add=new, remove=replaced, progress={PROGRESS: head}, now=self._round.now())
        return erased

    # --- rules -------------------------------------------------------------------------------------------------------

    def _rules(self) -> dict[int, list[ErasureRule]]:
        known = {int(log) for log in self._progress if log.isdecimal()}
        try:
            events = self._round.events.after(self._progress[PROGRESS])
        except EventsMissed as missed:
            return self._everything(known, missed)
        return rules_of((event.erasure for event in events), known)

    def _everything(self, known: set[int], missed: EventsMissed) -> dict[int, list[ErasureRule]]:
        """Read everything that the logs have again, and erase what they no longer have. Rows below the floor of a log
        stay, because it is unknown whether retention or a caller removed them."""
        message = f"{missed}: reading all logs again; rows below the floors of logs stay as they are"
        self._round.problem(STAGE, None, None, message)
        logs = {info.epoch: info for info in self._round.history.logs()}
        return {
            epoch: [ErasureRule(AMENDED, first=logs[epoch].floor)] if epoch in logs else [ErasureRule(DELETED)]
            for epoch in known
        }

    def _with_standing(self, rules: dict[int, list[ErasureRule]]) -> ErasureRules:
        restored = {epoch for epoch, each in rules.items() if any(rule.kind == RESTORED for rule in each)}
        found = {}
        for info in self._round.all_logs:
            if info.epoch in restored:
                with self._telling(info):
                    found[info.epoch] = self._round.history.standing(info)
        return ErasureRules(rules, found)

    @contextmanager
    def _telling(self, info: LogInfo) -> Iterator[None]:
        """Report errors of a single log, which may have been dropped meanwhile, and continue."""
        try:
            yield
        except Exception as error:
            if concerns_everything(error):
                raise
            self._round.problem(STAGE, info.name, None, describe(error))

    # --- files -------------------------------------------------------------------------------------------------------

    def _renewed(self, rules: ErasureRules) -> list[DataFile]:
        """Write files with the restored or amended records, as the logs have them."""
        items: list[RenewItem] = []
        for info in self._round.all_logs:
            if info.epoch in rules.of:
                with self._telling(info):
                    items += self._items(info, rules)
        files: list[DataFile] = []
        for results in self._work_renew(items):
            for result in results:
                files += result.files
                self._concerned.join(result.concerned)
                if result.failure is not None:
                    failure = result.failure
                    self._round.problem(STAGE, failure.log, failure.through + 1, failure.message)
        return files

    def _work_renew(self, items: Sequence[RenewItem]) -> Sequence[list[RenewDone]]:
        if not items:
            return []
        return list(self._round.workers.waves(renew, items, RenewItem, RenewDone))

    def _items(self, info: LogInfo, rules: ErasureRules) -> list[RenewItem]:
        bounds = [rule.bounds for rule in rules.of[info.epoch] if rule.kind in (RESTORED, AMENDED)]
        # Records after the table's progress are added by the next round anyway.
        through = min(max((last for _, last in bounds), default=0), self._progress[str(info.epoch)], info.head)
        first = max(min((first for first, _ in bounds), default=1), info.own_after + 1)
        if through < first:
            return []
        versions = [] if info.registry is None else Registry.load(info.registry).versions
        mine = rules.between(info.epoch, info.epoch)
        pieces = pieces_of(self._round.history, info, first - 1, through, MAX_ITEM_ROWS)
        return [RenewItem(self._round.lake, [piece], mine, versions) for piece in pieces]

    def _erased(self, rules: ErasureRules, new: list[DataFile]) -> tuple[list[KnownFile], int]:
        """Returns the files to replace, and the number of erased rows. Adds the replacements to ``new``."""
        items = []
        for file in self._files:
            epochs, seqs = file.bounds.get("epoch"), file.bounds.get("seq")
            if epochs is None or seqs is None:
                items.append(EraseItem(self._round.lake, file.path, rules))
            elif rules.may_mean(epochs, seqs):
                items.append(EraseItem(self._round.lake, file.path, rules.between(*epochs)))
        if not items:
            return [], 0
        replaced, erased = set(), 0
        for results in self._round.workers.waves(erase, items, EraseItem, EraseDone):
            for result in results:
                if result.erased:
                    replaced.add(result.path)
                    erased += result.erased
                    new += result.files
                    self._concerned.join(result.concerned)
        return [file for file in self._files if file.path in replaced], erased
