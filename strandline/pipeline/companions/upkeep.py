"""What the steps of the companions' stage share: the two tables, what logs wish for, and the way to have work done."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain

from strandline.history.log_info import LogInfo
from strandline.pipeline.companions.plan import (
    COMPANION_ROWS,
    Lines,
    Wish,
    by_epoch,
    counted,
    lines_of,
    packed,
    wish_of,
)
from strandline.pipeline.companions.rollups import Rollups
from strandline.pipeline.companions.table import CompanionTable
from strandline.pipeline.companions.work import Failure, Item, Outcome, Work, make
from strandline.pipeline.round import Round
from strandline.pipeline.status import describe
from strandline.pipeline.tasks import work
from strandline.query.companions.table import ERASURES, Listed

STAGE = "companions"


class Keeping:
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
    def entries(self) -> list[Listed]:
        return self.table.entries

    def chosen(self) -> Iterator[tuple[Wish, Lines]]:
        """The logs of the round that wish for companions, and what there is of each now."""
        entries = by_epoch(self.entries)
        for info in self.round.logs:
            wish = self.wishes.get(info.epoch)
            if wish is not None:
                yield wish, lines_of(wish, entries.get(info.epoch, []))

    def work(self, works: Iterable[tuple[Work, int]]) -> Iterator[list[Outcome]]:
        """Have work done, given how many records each is about; wave after wave."""
        round = self.round
        items = (Item(round.lake, round.now(), pack) for pack in packed(works, self.rows))
        first = next(items, None)
        if first is not None:
            yield from work(round.spark, make, chain([first], items), Item, Outcome, round.parallelism)

    def change(
        self,
        *,
        add: Collection[Listed] = (),
        remove: Collection[Listed] = (),
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

    def failed(self, failures: Collection[Failure]) -> None:
        """Tell of them."""
        for failure in failures:
            if failure.damaged is None:
                self.problem(failure.log, failure.seq, failure.message)
        self.drop({each.damaged: each.message for each in failures if each.damaged is not None})

    def problem(self, log: str | None, seq: int | None, message: str) -> None:
        self.round.problem(STAGE, log, seq, message)
