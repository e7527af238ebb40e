"""The copies of one round: which records of a page go to which destination, as ranges of seqs.

Routers with the same filter share the computation. No router moves before ``make_true``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from strandline.delivery.routers.router import FIRST_DELAY_MS, MAX_HOPS, TOGETHER, Hops, Router, RouterFilter
from strandline.engine import Copy, Log, Page


class Choice:
    """Selected rows of a page. ``rows`` is None if all rows are selected."""

    __slots__ = ("ranges", "rows", "seqs")

    def __init__(self, seqs: Sequence[int], rows: Sequence[int] | None) -> None:
        self.seqs = seqs
        self.rows = rows
        self.ranges = ranges_of(seqs)

    def __len__(self) -> int:
        return len(self.seqs)


class PageSelection:
    """The records of one page of the source, for its routers. ``lost`` records before the page no longer exist."""

    def __init__(self, page: Page, position: int) -> None:
        self.page = page
        self.position = position
        self.through = page.next_after
        tombstone = page.tombstone
        self.lost = 0 if tombstone is None else max(0, tombstone.gap_to - max(tombstone.gap_from, position + 1) + 1)
        self._choices: dict[RouterFilter | None, Choice] = {}
        self._rows_of_keys: dict[str, list[int]] | None = None

    def choose(self, filter: RouterFilter | None) -> Choice:
        choice = self._choices.get(filter)
        if choice is None:
            choice = self._choices[filter] = self._choose(filter)
        return choice

    def _choose(self, filter: RouterFilter | None) -> Choice:
        seqs = self.page.seqs
        if filter is None:
            return Choice(seqs, None)
        by_key = self._by_key()
        if filter.prefix is None:
            rows = by_key.get(filter.key or "", [])
        else:
            rows = sorted(row for key, rows in by_key.items() if filter.accepts(key) for row in rows)
        return Choice([seqs[row] for row in rows], rows)

    def _by_key(self) -> dict[str, list[int]]:
        if self._rows_of_keys is None:
            self._rows_of_keys = {}
            for row, key in enumerate(self.page.keys):
                if key is not None:
                    self._rows_of_keys.setdefault(key, []).append(row)
        return self._rows_of_keys

    def narrow(self, choice: Choice, keep: Sequence[bool]) -> Choice:
        """The selected rows for which ``keep`` is true."""
        rows = range(len(self.page)) if choice.rows is None else choice.rows
        kept = [row for row, wanted in zip(rows, keep, strict=True) if wanted]
        return Choice([self.page.seqs[row] for row in kept], kept)

    def first_of(self, choice: Choice, count: int) -> Choice:
        rows = range(count) if choice.rows is None else choice.rows[:count]
        return Choice(choice.seqs[:count], rows)

    def metas(self, choice: Choice) -> list[bytes | None]:
        metas = self.page.metas
        return metas if choice.rows is None else [metas[row] for row in choice.rows]

    def data(self, choice: Choice) -> list[bytes]:
        data = self.page.data
        return data if choice.rows is None else [data[row] for row in choice.rows]


def ranges_of(seqs: Sequence[int]) -> list[tuple[int, int]]:
    """Ascending seqs as ranges, both ends inclusive."""
    if not seqs:
        return []
    if seqs[-1] - seqs[0] + 1 == len(seqs):
        return [(seqs[0], seqs[-1])]
    ranges: list[tuple[int, int]] = []
    first = last = seqs[0]
    for seq in seqs:
        if seq > last + 1:
            ranges.append((first, last))
            first = seq
        last = seq
    ranges.append((first, last))
    return ranges


class RouterStep(NamedTuple):
    """The position of some routers after the round, and how many seqs up to that position they did not forward."""

    routers: Sequence[Router]
    through: int
    skipped: int
    forwarded: int = 0
    #: Whether each router journals its own position; otherwise the shared cursor covers them.
    written: bool = True


class RoundPlan:
    """The copies of one round from one source. The engine's lock is held from the first page until ``make_true``."""

    def __init__(self, source: Log, hops: Mapping[int, Hops], spared: Callable[[Log], bool]) -> None:
        self.copies: list[Copy] = []
        #: Routers whose destination is paused or full, and whether each of them forwarded any record.
        self.blocked: list[tuple[Router, bool]] = []
        #: Destinations that were dropped.
        self.gone: list[Log] = []
        self._source = source
        self._hops = hops
        self._spared = spared
        #: Routers that forward records, and routers that only advance.
        self._steps: list[RouterStep] = []
        self._idle: list[RouterStep] = []
        self._new_hops: list[tuple[Hops, int, list[int]]] = []
        #: By epoch of the destination: the records, bytes and seqs used by earlier copies of the round.
        self._taken: dict[int, tuple[int, int, int]] = {}

    def add(self, page: Page, position: int, routers: Sequence[Router]) -> None:
        """Plan the copies of routers at the same position. ``page`` holds the records after that position."""
        selection = PageSelection(page, position)
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

    def _add_alike(self, selection: PageSelection, choice: Choice, routers: list[Router]) -> None:
        """Plan a fan-out: the same copies for all of these routers."""
        through, lost, ranges = selection.through, selection.lost, choice.ranges
        forwarded = len(choice) + lost
        skipped = through - selection.position - forwarded
        if not forwarded:
            self._idle.append(RouterStep(routers, through, skipped))
            return
        self.copies += [
            Copy(router.dest, router.position_cursor, through, ranges, lost, router.keep_keys, router.keep_nodes)
            for router in routers
        ]
        self._write_skipped(routers, skipped)
        self._steps.append(RouterStep(routers, through, skipped, forwarded))

    def _add_special(self, selection: PageSelection, choice: Choice, router: Router) -> None:
        """Plan a router that stamps its copies, is part of a cycle, or has a destination that can be full."""
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
                self._idle.append(RouterStep((router,), through, skipped))
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
        self._steps.append(RouterStep((router,), through, skipped, forwarded))

    def _write_skipped(self, routers: Sequence[Router], skipped: int) -> None:
        for router in routers:
            total = router.skipped + skipped
            if total != router.written_skipped:
                self.copies.append(Copy(router.dest, router.skipped_cursor, total))

    # --- routers that forward nothing ----------------------------------------------------------------------

    def arriving_at(self, seq: int) -> int:
        """The number of routers that will be at this seq after the round."""
        return sum(len(step.routers) for steps in (self._steps, self._idle) for step in steps if step.through == seq)

    def write_idle(self, head: int, together: bool) -> None:
        """Journal the positions of routers that only advance. The records they skipped may be evicted at any time, and
        must not count as lost after a restart. If all routers of the source are at its head, one shared cursor says so
        for all."""
        for step in self._idle:
            if not together:
                self.copies += [Copy(router.dest, router.position_cursor, step.through) for router in step.routers]
                self._write_skipped(step.routers, step.skipped)
            self._steps.append(step._replace(written=not together))
        if self._idle and together:
            self.copies.append(Copy(self._idle[0].routers[0].dest, TOGETHER, head))

    # --- full destinations ---------------------------------------------------------------------------------

    def _fitting(
        self, selection: PageSelection, choice: Choice, stamped: Sequence[bytes | None] | None, dest: Log
    ) -> int:
        """The number of selected records that fit into the destination."""
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

    # --- after the copies ----------------------------------------------------------------------------------

    def make_true(self) -> int:
        """Advance the routers as planned, after the copies were made. Returns the number of forwarded records."""
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
