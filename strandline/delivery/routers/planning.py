"""What one round is to copy where. Nothing in here changes anything before ``make_true``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from strandline.delivery.routers.hops import MAX_HOPS, Hops
from strandline.delivery.routers.router import FIRST_DELAY_MS, TOGETHER, Router
from strandline.delivery.routers.selection import Choice, Selection
from strandline.engine import Copy, Log, Page


class Step(NamedTuple):
    """Where some routers are after the round, and how many of the seqs up to there they have not forwarded."""

    routers: Sequence[Router]
    through: int
    skipped: int
    forwarded: int = 0
    #: Whether each of them has written it down by itself.
    written: bool = True


class Plan:
    """The copies of one round from one source. The engine's lock is held from the first page until it is made true."""

    def __init__(self, source: Log, hops: Mapping[int, Hops], spared: Callable[[Log], bool]) -> None:
        self.copies: list[Copy] = []
        #: Routers whose destination is spared or has no room for everything, and whether anything went through.
        self.blocked: list[tuple[Router, bool]] = []
        #: Destinations that have been removed.
        self.gone: list[Log] = []
        self._source = source
        self._hops = hops
        self._spared = spared
        #: Those who forward something, and those who only come further.
        self._steps: list[Step] = []
        self._idle: list[Step] = []
        self._new_hops: list[tuple[Hops, int, list[int]]] = []
        #: By epoch of the destination: records and bytes that earlier copies of the round take, and seqs.
        self._taken: dict[int, tuple[int, int, int]] = {}

    def add(self, page: Page, position: int, routers: Sequence[Router]) -> None:
        """Plan for routers that are all at the same position; the page is what comes behind it."""
        selection = Selection(page, position)
        alike: dict[int, list[Router]] = {}
        choices: dict[int, Choice] = {}
        for router in routers:
            dest = router.dest
            if dest.dropped:
                self.gone.append(dest)
                continue
            if self._spared(dest):
                self.blocked.append((router, False))
                continue
            choice = selection.choose(router.filter)
            if router.stamper is not None or dest.config.discard == "reject" or dest.epoch in self._hops:
                self._add_special(selection, choice, router)
            else:
                alike.setdefault(id(choice), []).append(router)
                choices[id(choice)] = choice
        for key, group in alike.items():
            self._add_alike(selection, choices[key], group)

    def _add_alike(self, selection: Selection, choice: Choice, routers: list[Router]) -> None:
        """The same records for all of them: that is what a fan-out is."""
        through, lost, ranges = selection.through, selection.lost, choice.ranges
        forwarded = len(choice) + lost
        skipped = through - selection.position - forwarded
        if not forwarded:
            self._idle.append(Step(routers, through, skipped))
            return
        self.copies += [
            Copy(router.dest, router.position_cursor, through, ranges, lost, router.keep_keys, router.keep_nodes)
            for router in routers
        ]
        self._write_skipped(routers, skipped)
        self._steps.append(Step(routers, through, skipped, forwarded))

    def _add_special(self, selection: Selection, choice: Choice, router: Router) -> None:
        """A router that does not just copy: it stamps, goes around in a cycle, or its destination may be full."""
        through, lost, dest = selection.through, selection.lost, router.dest
        cyclic = self._hops.get(dest.epoch)
        if cyclic is not None:
            counts = self._hops_of_source(choice)
            choice = selection.narrow(choice, [count < MAX_HOPS for count in counts])
        metas = None if router.stamper is None else router.stamper.metas(choice.seqs, selection.metas(choice))
        fitting = self._fitting(selection, choice, metas, dest)
        if fitting < len(choice):
            through = choice.seqs[fitting] - 1
            choice = selection.first_of(choice, fitting)
            metas = None if metas is None else metas[:fitting]
            self.blocked.append((router, fitting > 0))
        elif router.delay_ms != FIRST_DELAY_MS and router.timer is None:
            router.delay_ms = FIRST_DELAY_MS
        forwarded = len(choice) + lost
        skipped = through - selection.position - forwarded
        if not forwarded:
            if through > selection.position:
                self._idle.append(Step((router,), through, skipped))
            return
        if cyclic is not None:
            self._count_hops(cyclic, router, choice, lost)
        self.copies.append(
            Copy(
                dest,
                router.position_cursor,
                through,
                choice.ranges,
                lost,
                router.keep_keys,
                router.keep_nodes,
                metas,
            )
        )
        self._write_skipped((router,), skipped)
        self._steps.append(Step((router,), through, skipped, forwarded))

    def _write_skipped(self, routers: Sequence[Router], skipped: int) -> None:
        for router in routers:
            total = router.skipped + skipped
            if total != router.written_skipped:
                self.copies.append(Copy(router.dest, router.skipped_cursor, total))

    # --- those who forward nothing -------------------------------------------------------------------------

    def arriving_at(self, seq: int) -> int:
        """How many routers will be there."""
        return sum(len(step.routers) for steps in (self._steps, self._idle) for step in steps if step.through == seq)

    def write_idle(self, head: int, together: bool) -> None:
        """Those who only come further write it down as well: what they left out may be lost any time, and must not be
        taken for a loss after a restart. When all routers of the source are at its head, one cursor says so for all."""
        for step in self._idle:
            if not together:
                self.copies += [Copy(router.dest, router.position_cursor, step.through) for router in step.routers]
                self._write_skipped(step.routers, step.skipped)
            self._steps.append(step._replace(written=not together))
        if self._idle and together:
            self.copies.append(Copy(self._idle[0].routers[0].dest, TOGETHER, head))

    # --- full destinations ---------------------------------------------------------------------------------

    def _fitting(self, selection: Selection, choice: Choice, stamped: Sequence[bytes | None] | None, dest: Log) -> int:
        """How many of the records the destination has room for."""
        room = dest.room()
        if room is None:
            return len(choice)
        records, size, seqs = self._taken.get(dest.epoch, (0, 0, 0))
        metas = selection.metas(choice) if stamped is None else stamped
        sizes = [
            len(data) + (0 if meta is None else len(meta))
            for data, meta in zip(selection.data(choice), metas, strict=True)
        ]
        fitting = max(0, min(len(choice), room[0] - records))
        total = 0
        for count, total_so_far in enumerate(accumulate(sizes[:fitting])):
            if total_so_far > room[1] - size:
                fitting = count
                break
            total = total_so_far
        self._taken[dest.epoch] = (records + fitting, size + total, seqs)
        return fitting

    # --- cycles --------------------------------------------------------------------------------------------

    def _hops_of_source(self, choice: Choice) -> list[int]:
        known = self._hops.get(self._source.epoch)
        return [0] * len(choice) if known is None else known.of(choice.seqs)

    def _count_hops(self, cyclic: Hops, router: Router, choice: Choice, lost: int) -> None:
        epoch = router.dest.epoch
        records, size, seqs = self._taken.get(epoch, (0, 0, 0))
        first = router.dest.next_seq + seqs + lost
        self._new_hops.append((cyclic, first, [count + 1 for count in self._hops_of_source(choice)]))
        self._taken[epoch] = (records, size, seqs + lost + len(choice))

    # --- afterwards ----------------------------------------------------------------------------------------

    def make_true(self) -> int:
        """The copies are made: the routers are where the plan says. Returns how many records were forwarded."""
        total = 0
        for routers, through, skipped, forwarded, written in self._steps:
            total += forwarded * len(routers)
            for router in routers:
                router.position = through
                router.skipped += skipped
                if written:
                    router.written_skipped = router.skipped
        for hops, first, counts in self._new_hops:
            hops.add(first, counts)
        return total
