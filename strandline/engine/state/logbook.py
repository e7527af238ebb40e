"""A logbook: the state of one log.

A logbook neither writes the journal nor takes a lock, and neither do ``retention`` and ``record_changes``, which change
its records. The engine journals a change and then applies it here; recovery reads the journal and applies the same
changes, so both reach the same state.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from strandline.engine.clock import FUTURE_MS, MAX_AHEAD_MS
from strandline.engine.errors import UnknownLog
from strandline.engine.journal.bodies import Extras
from strandline.engine.record import AT_RISK, Appended, Config, Cursor, LogState, ProducerState, Reason, Remembered
from strandline.engine.state.block import Block
from strandline.engine.state.forks import ForkBase, earliest_of, evict_floor_of
from strandline.engine.state.idempotency import remember, remember_keys
from strandline.engine.state.lake_mark import forget_unless_kept
from strandline.engine.state.notes import Notes, changed
from strandline.engine.state.parts import Part, Run, Segments, Tail
from strandline.engine.state.retention import evict_over_caps
from strandline.engine.stats import NOWHERE, Totals

#: Called with a logbook when it has changed.
Listener = Callable[["Logbook"], None]


#: What a logbook consists of, without what others think of it: its listeners, totals and counters of changes.
_CONTENTS = (
    "assigned", "base", "cap_floor", "config", "count", "created_ts", "cursors", "earliest", "filed_in", "forks",
    "gaps", "head", "idempotency", "last_ts", "notes", "producers", "runs", "size", "tail", "ttl_floor",
    "volatile_from",
)  # fmt: skip


class Gap(NamedTuple):
    """Seqs without a record that no caller removed."""

    first: int
    last: int
    reason: Reason


class Logbook:
    """``assigned`` is the highest assigned seq, ``head`` the highest whose record is here, ``shown`` the highest that
    readers can see: less than ``head`` only while changes wait for the replica.

    ``earliest`` is the first seq that is neither deleted nor evicted (hidden records count). Only involuntary loss
    moves the floors: everything below the higher floor was lost to retention. ``count`` and ``size`` cover live
    records: not deleted, not evicted, not hidden.

    All of this refers to the log's own records. A fork shares the records before them with its ``base``; see ``forks``.
    """

    __slots__ = (
        "active_ts", "appended_bytes", "assigned", "base", "cap_floor", "config", "count", "created_ts", "cursors",
        "dropped", "earliest", "epoch", "expired_ts", "filed_in", "forks", "gaps", "head", "held", "idempotency",
        "journal_first", "journal_index", "last_ts", "listeners", "name", "notes", "pending", "pending_count",
        "pending_size", "producers", "reserve_step", "reserved", "reserved_durable", "revision", "rewrites", "runs",
        "shown_head", "size", "tail", "totals", "ttl_floor", "volatile_from", "withdrawals",
    )  # fmt: skip

    def __init__(self, name: str, epoch: int, config: Config, created_ts: int = 0) -> None:
        self.name = name
        self.epoch = epoch
        self.config = config
        #: When the log was created; 0 while it is unknown, during recovery.
        self.created_ts = created_ts
        self.assigned = 0
        self.head = 0
        #: The time of the last record, and the time of the last append, which may differ.
        self.last_ts = 0
        self.active_ts = 0
        #: When records after one from the future were last examined for expiry.
        self.expired_ts = 0
        self.earliest = 1
        self.cap_floor = 1
        self.ttl_floor = 1
        self.gaps: tuple[Gap, ...] = ()
        self.count = 0
        self.size = 0
        #: The bytes of all records that were appended since the engine was opened.
        self.appended_bytes = 0
        #: Counts the changes, other than appends, to what readers see.
        self.revision = 0
        #: Counts those of the changes that did more than remove records.
        self.rewrites = 0
        #: Counts requested changes, applied or not, that can make an earlier record the last of its key for a reader:
        #: deletes, hides, and forks that are created or dropped.
        self.withdrawals = 0
        self.runs: tuple[Run, ...] = ()
        self.tail: Tail | None = None
        self.idempotency: dict[str, Remembered] | None = None
        self.producers: dict[str, ProducerState] | None = None
        self.cursors: dict[str, Cursor] | None = None
        self.notes: Notes | None = None
        self.base: ForkBase | None = None
        #: The number of logs forked from this one.
        self.forks = 0
        self.totals: Totals = NOWHERE
        self.listeners: tuple[Listener, ...] = ()
        #: The segments in which this log has a run, according to the newest checkpoint.
        self.filed_in: tuple[int, ...] = ()
        #: The journal file of the last append, and the first seq appended in it: a FORWARD frame may refer to these
        #: records.
        self.journal_index = 0
        self.journal_first = 0
        self.dropped = False
        #: The number of journaled changes that wait for the flush before they are applied here.
        self.pending = 0
        self.pending_count = 0
        self.pending_size = 0
        #: The number of applied changes that wait for the replica, and what readers see meanwhile.
        self.held = 0
        self.shown_head = 0
        #: The highest seq that may have been assigned according to the journal, and the durable part of it.
        self.reserved = 0
        self.reserved_durable = 0
        self.reserve_step = 0
        #: The first seq that is only in memory, because the log was ephemeral when it was written; 0: none.
        self.volatile_from = 0

    def become(self, other: Logbook) -> None:
        """Take the contents of another logbook of the same log."""
        totals = self.totals
        self.count_in(NOWHERE)
        for slot in _CONTENTS:
            setattr(self, slot, getattr(other, slot))
        self.revision += 1
        self.rewrites += 1
        self.withdrawals += 1
        self.count_in(totals)

    @property
    def evict_floor(self) -> int:
        return max(self.cap_floor, self.ttl_floor)

    @property
    def shown(self) -> int:
        """The highest seq that readers can see."""
        return self.shown_head if self.held else self.head

    def hold(self) -> None:
        """Hold back from readers what is applied from now on."""
        if not self.held:
            self.shown_head = self.head
        self.held += 1

    def release(self, head: int) -> None:
        """End one ``hold``: readers see the records up to ``head``."""
        self.shown_head = head
        self.held -= 1

    def begin_behind(self, base: ForkBase) -> None:
        """Turn this into a fork, whose own records start after the fork point."""
        self.base = base
        self.assigned = self.head = base.through
        self.earliest = base.through + 1
        self.last_ts = base.point.ts

    def lose_base(self) -> None:
        """Record that the source of this fork is missing: the shared records are lost."""
        assert self.base is not None
        through, self.base = self.base.through, None
        if through >= self.evict_floor:
            self.revision += 1
            self.gaps = (Gap(1, through, "lost"), *self.gaps)

    def check_there(self) -> None:
        if self.dropped:
            raise UnknownLog(self.name)

    def state(self) -> LogState:
        return LogState(
            name=self.name,
            epoch=self.epoch,
            config=self.config,
            head=self.shown,
            earliest=min(earliest_of(self), self.shown + 1),
            evict_floor=evict_floor_of(self),
            count=self.count,
            size=self.size,
            last_ts=self.last_ts,
        )

    def count_in(self, totals: Totals) -> None:
        """Count the records in ``totals`` from now on, instead of where they were counted."""
        self.totals.records -= self.count
        self.totals.size -= self.size
        self.totals.pending_size -= self.pending_size
        self.totals.count(self.config.durability, -1)
        self.totals = totals
        totals.records += self.count
        totals.size += self.size
        totals.pending_size += self.pending_size
        totals.count(self.config.durability, 1)

    def parts(self) -> Iterator[Part]:
        yield from self.runs
        if self.tail is not None:
            yield self.tail

    # --- appending -----------------------------------------------------------------------------------------

    def time_of(self, now: int, ts: int | None = None) -> int:
        """Return the time of a new record: ``now``, or ``ts`` if it is given. It is not earlier than the last record's,
        unless that is more than a day ahead of ``now`` and therefore came from a wrong clock."""
        time = now if ts is None else ts
        if time >= self.last_ts or self.last_ts - now > MAX_AHEAD_MS:
            return time
        return self.last_ts

    def assign(self, block: Block, ts: int, extras: Extras | None, now: int) -> Appended:
        """Assign the block's seqs. They are used from now on, whether or not readers see the records."""
        first, last = block.first, block.last
        appended = Appended(first, last, ts)
        self.assigned = last
        if self.config.durability in AT_RISK:
            self.totals.at_risk += last - first + 1
        if ts - now <= FUTURE_MS:
            self.last_ts = ts
        self.active_ts = now
        if extras is not None:
            self.keep(extras, appended, now)
        return appended

    def configure(self, config: Config) -> None:
        forget_unless_kept(self, config)
        self.config = config

    def note(self, extras: Extras, ts: int) -> Appended:
        """Change notes, and a producer's state, without an append."""
        appended = Appended(self.assigned + 1, self.assigned, ts)
        self.keep(extras, appended, ts)
        return appended

    def keep(self, extras: Extras, appended: Appended, now: int) -> None:
        """Remember the notes, idempotency key and producer of an append or a note."""
        remember(self, extras, appended, now)
        if extras.notes is not None:
            self.notes = changed(self.notes, extras.notes)

    def keep_all(self, extras: Sequence[Extras], appends: Sequence[Remembered], times: Sequence[int]) -> None:
        """Call ``keep`` for many appends, in their order."""
        if extras and not remember_keys(self, extras, appends, times):
            for each, done, now in zip(extras, appends, times, strict=True):
                self.keep(each, Appended(done.first, done.last, done.ts), now)

    def publish(self, block: Block, segments: Segments) -> None:
        """Make the block visible to readers, and evict records that no longer fit."""
        self.add(block)
        config = self.config
        if config.cap_records or config.cap_bytes:
            evict_over_caps(self, segments)

    def count_pending(self, count: int, size: int) -> None:
        """Add to the number and size of the records that wait for the flush before they are visible."""
        self.pending_count += count
        self.pending_size += size
        self.totals.pending_size += size

    def add(self, block: Block) -> None:
        if self.tail is None:
            self.tail = Tail()
        self.tail.append(block)
        self.head = block.last
        count = len(block.offsets) - 1
        size = block.size(0, count)
        self.count += count
        self.size += size
        self.appended_bytes += size
        totals = self.totals
        totals.records += count
        totals.size += size

    def skip(self, first: int, last: int, reason: Reason) -> None:
        """Leave these seqs, which are the next ones, empty."""
        self.revision += 1
        if self.earliest == first:
            self.earliest = last + 1
        if self.gaps and self.gaps[-1].last + 1 == first and self.gaps[-1].reason == reason:
            first = self.gaps[-1].first
            self.gaps = self.gaps[:-1]
        self.gaps = (*self.gaps, Gap(first, last, reason))
        self.head = last
        self.assigned = max(self.assigned, last)

    def take_back(self, first: int) -> bool:
        """Undo the skipping of the seqs from ``first`` to the end, if they were skipped as lost.

        An ephemeral log that becomes durable writes records that a checkpoint has already marked as lost.
        """
        gap = self.gaps[-1] if self.gaps else None
        if gap is None or gap.reason != "lost" or gap.last != self.assigned or not gap.first <= first:
            return False
        self.revision += 1
        self.rewrites += 1
        self.gaps = self.gaps[:-1]
        if gap.first < first:
            self.gaps = (*self.gaps, gap._replace(last=first - 1))
        if self.earliest > self.assigned:
            self.earliest = first
        self.head = self.assigned = first - 1
        return True

    def seq_since(self, ts: int, segments: Segments, *, closely: bool = False) -> int:
        """Return the seq of the first record, deleted or not, with time ``ts`` or later; head + 1 if there is none.

        A record from the future counts as if it had the time of the next record that is not, because it was written
        before that one. If a run begins and ends with records from the future, its other records are found only with
        ``closely``, which reads the run block by block; otherwise they count as later.
        """
        seq, found = self._first_since(ts, segments)
        # If the times of a log are in order, no time is later than the last one.
        return seq if found <= self.last_ts else self._end_of_earlier(ts, segments, closely)

    def _first_since(self, ts: int, segments: Segments) -> tuple[int, int]:
        """Return the seq and time of a record with time ``ts`` or later that directly follows an earlier one."""
        for run in self.runs:
            if run.ts_last >= ts and run.last >= self.earliest:
                if run.ts_first >= ts:
                    return run.first, run.ts_first
                return self._first_in_run(run, ts, segments)
        if self.tail is not None and self.tail.blocks:
            blocks = self.tail.blocks
            at = bisect_left(blocks, ts, key=_block_end)
            if at < len(blocks):
                block = blocks[at]
                row = block.row_since(ts, 0, len(block))
                return block.seq(row), block.timestamp(row)
        return self.head + 1, 0

    def _end_of_earlier(self, ts: int, segments: Segments, closely: bool) -> int:
        """Return the seq after the last record with a time before ``ts``. Examines all times from the end, so it takes
        longer."""
        if self.tail is not None:
            for block in reversed(self.tail.blocks):
                row = block.last_before(ts, 0, len(block))
                if row is not None:
                    return block.seq(row) + 1
        for run in reversed(self.runs):
            if run.last < self.earliest:
                break
            if run.ts_last < ts:
                return run.last + 1
            if run.ts_first < ts or (closely and run.ts_first > self.last_ts):
                for block, start, end in reversed(list(run.pieces(run.first, run.last, segments))):
                    row = block.last_before(ts, start, end)
                    if row is not None:
                        return block.seq(row) + 1
        return self.runs[0].first if self.runs else self.earliest

    @staticmethod
    def _first_in_run(run: Run, ts: int, segments: Segments) -> tuple[int, int]:
        """Search a run by bisection: only a few of its blocks are read."""
        segment, end_row = segments.segment(run.segment), run.row + run.rows

        def rows(index: int) -> tuple[Block, int, int]:
            base, block = segment.blocks[index].row, segments.load(run.segment, index)
            return block, max(run.row - base, 0), min(end_row - base, len(block))

        def reaches(index: int) -> bool:
            block, _, end = rows(index)
            return block.timestamp(end - 1) >= ts

        indexes = range(segment.block_of(run.row), segment.block_of(end_row - 1) + 1)
        # The last record matches: the run would not be searched otherwise.
        at = bisect_left(indexes, True, hi=len(indexes) - 1, key=reaches)
        block, start, end = rows(indexes[at])
        # If a record from the future is in the middle of the run, the bisection may end in a block without a match.
        row = min(block.row_since(ts, start, end), end - 1)
        return block.seq(row), block.timestamp(row)

    # --- cursors -------------------------------------------------------------------------------------------

    def move_cursor(self, name: str, seq: int, ts: int) -> Cursor:
        if self.cursors is None:
            self.cursors = {}
        cursor = self.cursors[name] = Cursor(seq, ts)
        return cursor

    def drop_cursor(self, name: str) -> bool:
        if self.cursors is None or self.cursors.pop(name, None) is None:
            return False
        if not self.cursors:
            self.cursors = None
        return True

    # --- changes to records --------------------------------------------------------------------------------

    def has(self, seq: int, segments: Segments) -> bool:
        """Return whether the record exists: it is neither deleted nor evicted. Hidden records exist."""
        for part in self.parts():
            if part.first <= seq <= part.last:
                if part.overlay is not None and seq in part.overlay.dead:
                    return False
                return any(True for _ in part.pieces(seq, seq, segments))
        return False

    def account(self, part: Part, count: int, size: int) -> None:
        """Add to the number and size of the live records of a part."""
        self.revision += 1
        self.count += count
        self.size += size
        self.totals.records += count
        self.totals.size += size
        if isinstance(part, Run):
            part.live += count
            part.live_size += size

    def forget_passed_gaps(self) -> None:
        """Remove gaps below the floor: everything below it is lost, so they carry no information."""
        floor = self.evict_floor
        if self.gaps and self.gaps[0].last < floor:
            self.gaps = tuple(gap for gap in self.gaps if gap.last >= floor)


def _block_end(block: Block) -> int:
    return block.timestamp(len(block) - 1)
