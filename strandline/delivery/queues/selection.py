"""Selects the next jobs: known jobs in their order, merged with new ones from the jobs log, and divided among
claims."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import TypeAlias, TypeVar

from strandline.delivery.queues.state import JobState, State
from strandline.engine import Log

#: The columns of a record, in order. A plain tuple is much faster to create, and this is the hottest path.
Row: TypeAlias = tuple[int, int, str | None, str | None, bytes | None, bytes]


#: Records per read when only the first one is wanted. The first ones may be jobs that are not new.
FIRST_NEW_RECORDS = 16


class Picker:
    """A cursor over the jobs log: every job up to it is known, delivered or deleted.

    Jobs without a lease or a schedule use no memory; they are found by reading on. Hidden records are skipped.
    """

    def __init__(self, log: Log, state: State, coming: Container[int], leaving: Container[int]) -> None:
        self._log = log
        self._state = state
        #: Jobs that are not in the state and not new either: their append or their deletion is not durable yet.
        self._coming = coming
        self._leaving = leaving
        self.cursor = 0

    def pick(self, count: int) -> list[Row | JobState]:
        """The next ``count`` jobs, or all if there are fewer, in delivery order: rows of new jobs, and known jobs.

        The cursor advances past the new jobs, and known jobs are removed from the order. If the jobs are not delivered,
        the caller must reset the cursor and put the known jobs back.
        """
        state = self._state
        picked: list[Row | JobState] = []
        fresh: list[Row] = []
        used, more = 0, True
        while len(picked) < count:
            known = state.first_ready()
            if known is not None and known[:2] < (0, 1):
                picked.append(state.take_ready())
                continue
            if used == len(fresh) and more:
                fresh, more = self._read(count - len(picked))
                used = 0
            if used == len(fresh):
                if known is None:
                    break
                picked.append(state.take_ready())
            elif known is None:
                taken = fresh[used : used + count - len(picked)]
                picked.extend(taken)
                used += len(taken)
                self.cursor = taken[-1][0]
            elif known > (0, 1, fresh[used][0]):
                picked.append(fresh[used])
                self.cursor = fresh[used][0]
                used += 1
            else:
                picked.append(state.take_ready())
        return picked

    def places(self, count: int) -> list[tuple[int, int]]:
        """Where the next ``count`` jobs will be read: the seq to read after, and the number of records."""
        known = sorted(self._state.next_ready(count))
        return [(seq - 1, 1) for seq in known] + [(self.cursor, count)]

    def has_resident(self, count: int) -> bool:
        """Whether the next ``count`` jobs are in memory."""
        log = self._log
        if not log.book.runs:
            return True
        return all(log.read_resident(after, limit) is not None for after, limit in self.places(count))

    def first_new(self) -> Row | None:
        """The first job that was never delivered and has no schedule. May read from the disk."""
        fresh, _ = self._read(FIRST_NEW_RECORDS)
        return fresh[0] if fresh else None

    @property
    def first_new_resident(self) -> bool:
        """Whether ``first_new`` needs no read from the disk, except in rare cases."""
        return not self._log.book.runs or self._log.read_resident(self.cursor, FIRST_NEW_RECORDS) is not None

    def are_resident(self, seqs: Iterable[int]) -> bool:
        """Whether these jobs are in memory."""
        return not self._log.book.runs or all(self._log.read_resident(seq - 1, 1) is not None for seq in seqs)

    def _read(self, count: int) -> tuple[list[Row], bool]:
        """The next new jobs, at least one if there is any, and whether there may be more after them. The cursor does
        not advance past them."""
        jobs, coming, leaving = self._state.jobs, self._coming, self._leaving
        while True:
            while self.cursor + 1 in jobs:
                self.cursor += 1
            page = self._log.read(self.cursor, count)
            fresh = [
                row
                for row in zip(page.seqs, page.ts, page.keys, page.nodes, page.metas, page.data, strict=True)
                if row[0] not in jobs and row[0] not in coming and row[0] not in leaving
            ]
            if fresh or page.caught_up:
                return fresh, not page.caught_up
            self.cursor = page.next_after


T = TypeVar("T")


def in_turn(jobs: list[T], wishes: Sequence[int]) -> list[list[T]]:
    """Serve claims one after the other: the first one gets the first jobs."""
    if len(wishes) == 1:
        return [jobs]
    ends = list(accumulate(wishes, initial=0))
    return [jobs[start:end] for start, end in pairwise(ends)]


def divide(jobs: list[T], wishes: Sequence[int]) -> list[list[T]]:
    """Divide the jobs, given in delivery order, among claims."""
    if len(wishes) == 1:
        return [jobs]
    parts: list[list[T]] = [[] for _ in wishes]
    for job, index in zip(jobs, turns(shares(len(jobs), wishes)), strict=True):
        parts[index].append(job)
    return parts


def shares(available: int, wishes: Sequence[int]) -> list[int]:
    """The number of jobs for each claim. No claim gets more than it requests, and a larger claim never gets fewer jobs
    than a smaller one."""
    total = sum(wishes)
    if available >= total:
        return list(wishes)
    given = [0] * len(wishes)
    asking = [index for index, wish in enumerate(wishes) if wish]
    # If there are fewer jobs than claims, larger claims come first, then earlier ones.
    asking.sort(key=lambda index: -wishes[index])
    for index in asking[:available]:
        given[index] = 1
    left = available - len(asking)
    if left <= 0:
        return given
    open_wishes = total - len(asking)
    remainders = []
    for index in asking:
        whole, remainder = divmod(left * (wishes[index] - 1), open_wishes)
        given[index] += whole
        remainders.append((-remainder, -wishes[index], index))
    for _, _, index in sorted(remainders)[: available - sum(given)]:
        given[index] += 1
    return given


def turns(counts: Sequence[int]) -> Iterator[int]:
    """The claim that gets each job: round robin, weighted so that all claims are filled at the same time."""
    # The k-th of n jobs of a claim is at (2k + 1) / 2n of the sequence.
    order = sorted(
        ((2 * turn + 1) / (2 * count), turn, index) for index, count in enumerate(counts) for turn in range(count)
    )
    return (index for _, _, index in order)
