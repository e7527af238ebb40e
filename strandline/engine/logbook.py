"""A logbook: what is true of one log, and what each change does to it.

Nothing here writes a journal or takes a lock. The engine journals a change and then makes it here; recovery reads
the journal and makes the same changes again. So both arrive at the same state.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from strandline.engine.block import Block
from strandline.engine.duplicates import remember
from strandline.engine.errors import DamagedFile
from strandline.engine.frame import Extras, Select
from strandline.engine.parts import Part, Run, Segments, Tail
from strandline.engine.record import Appended, Config, Cursor, Deleted, LogState, ProducerState, Reason
from strandline.engine.retention import evict_over_caps
from strandline.engine.stats import NOWHERE, Totals

#: What a waiting reader is told: the logbook it waits for has changed.
Listener = Callable[["Logbook"], None]


class Gap(NamedTuple):
    """Seqs that hold nothing and that nobody removed on purpose."""

    first: int
    last: int
    reason: Reason


class Doomed(NamedTuple):
    """What is to be removed of one part, and what that weighs: live records, and hidden ones."""

    part: Part
    ranges: list[tuple[int, int]]
    live: tuple[int, int]
    hidden: tuple[int, int]


class Logbook:
    """``assigned`` is the highest seq handed out, ``head`` the highest that readers may see.

    ``earliest`` is the first seq that is neither deleted nor evicted (hidden records keep their place). The floors
    are moved by involuntary loss only: everything below the higher of them was lost to a cap or to time.
    ``count`` and ``size`` are over live records: not deleted, not evicted, not hidden.
    """

    __slots__ = (
        "assigned", "cap_floor", "config", "count", "cursors", "dropped", "earliest", "epoch", "filed_in", "gaps",
        "head", "idempotency", "journal_first", "journal_index", "last_ts", "listeners", "name", "pending",
        "pending_count", "pending_size", "producers", "reserve_step",
        "reserved", "reserved_durable", "revision", "runs", "size", "tail", "totals", "ttl_floor", "volatile_from",
    )  # fmt: skip

    def __init__(self, name: str, epoch: int, config: Config) -> None:
        self.name = name
        self.epoch = epoch
        self.config = config
        self.assigned = 0
        self.head = 0
        self.last_ts = 0
        self.earliest = 1
        self.cap_floor = 1
        self.ttl_floor = 1
        self.gaps: tuple[Gap, ...] = ()
        self.count = 0
        self.size = 0
        #: Counts the changes, other than appends, to what readers see.
        self.revision = 0
        self.runs: tuple[Run, ...] = ()
        self.tail: Tail | None = None
        self.idempotency: dict[str, Appended] | None = None
        self.producers: dict[str, ProducerState] | None = None
        self.cursors: dict[str, Cursor] | None = None
        self.totals: Totals = NOWHERE
        self.listeners: tuple[Listener, ...] = ()
        #: The segments in which the newest checkpoint says this log has a run.
        self.filed_in: tuple[int, ...] = ()
        #: The journal file of the last append, and the first seq appended in it: what a FORWARD frame may refer to.
        self.journal_index = 0
        self.journal_first = 0
        self.dropped = False
        #: Changes that are journaled and wait for the flush before they are made here.
        self.pending = 0
        self.pending_count = 0
        self.pending_size = 0
        #: The highest seq that the journal says may have been handed out, and how much of that is durable.
        self.reserved = 0
        self.reserved_durable = 0
        self.reserve_step = 0
        #: The first seq that is in memory only, because the log was ephemeral when it was written; 0: none.
        self.volatile_from = 0

    @property
    def evict_floor(self) -> int:
        return max(self.cap_floor, self.ttl_floor)

    def state(self) -> LogState:
        return LogState(
            name=self.name,
            epoch=self.epoch,
            config=self.config,
            head=self.head,
            earliest=self.earliest,
            evict_floor=self.evict_floor,
            count=self.count,
            size=self.size,
            last_ts=self.last_ts,
        )

    def count_in(self, totals: Totals) -> None:
        """From now on the records are counted there, and no longer where they were."""
        self.totals.records -= self.count
        self.totals.size -= self.size
        self.totals.count(self.config.durability, -1)
        self.totals = totals
        totals.records += self.count
        totals.size += self.size
        totals.count(self.config.durability, 1)

    def parts(self) -> Iterator[Part]:
        yield from self.runs
        if self.tail is not None:
            yield self.tail

    # --- appending -----------------------------------------------------------------------------------------

    def assign(self, block: Block, ts: int, extras: Extras | None) -> Appended:
        """Hand out the block's seqs. They are taken from here on, whether or not anybody sees the records."""
        appended = Appended(block.first, block.last, ts)
        self.assigned = block.last
        self.last_ts = ts
        if extras is not None:
            remember(self, extras, appended)
        return appended

    def publish(self, block: Block, segments: Segments) -> None:
        """Let readers see the block, and evict what no longer fits."""
        self.add(block)
        config = self.config
        if config.cap_records or config.cap_bytes:
            evict_over_caps(self, segments)

    def add(self, block: Block) -> None:
        if self.tail is None:
            self.tail = Tail()
        self.tail.append(block)
        self.head = block.last
        count = len(block.offsets) - 1
        size = block.size(0, count)
        self.count += count
        self.size += size
        totals = self.totals
        totals.records += count
        totals.size += size

    def skip(self, first: int, last: int, reason: Reason) -> None:
        """Leave these seqs, the next ones, empty."""
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
        """Undo the skipping of the seqs from ``first`` on, the last ones, if they were given up as lost.

        An ephemeral log that ceases to be one writes down what a checkpoint has given up already.
        """
        gap = self.gaps[-1] if self.gaps else None
        if gap is None or gap.reason != "lost" or gap.last != self.assigned or not gap.first <= first:
            return False
        self.revision += 1
        self.gaps = self.gaps[:-1]
        if gap.first < first:
            self.gaps = (*self.gaps, gap._replace(last=first - 1))
        if self.earliest > self.assigned:
            self.earliest = first
        self.head = self.assigned = first - 1
        return True

    def seq_since(self, ts: int, segments: Segments) -> int:
        """The seq of the first record, deleted or not, whose time is ``ts`` or later; head + 1 when there is none."""
        for run in self.runs:
            if run.ts_last >= ts and run.last >= self.earliest:
                if run.ts_first >= ts:
                    return run.first
                return self._first_since(run, ts, segments)
        if self.tail is not None and self.tail.blocks:
            blocks = self.tail.blocks
            at = bisect_left(blocks, ts, key=_block_end)
            if at < len(blocks):
                block = blocks[at]
                return block.seq(block.row_since(ts, 0, len(block)))
        return self.head + 1

    @staticmethod
    def _first_since(run: Run, ts: int, segments: Segments) -> int:
        for block, start, end in run.pieces(run.first, run.last, segments):
            if block.timestamp(end - 1) >= ts:
                return block.seq(block.row_since(ts, start, end))
        return run.last + 1

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

    # --- what a record can become --------------------------------------------------------------------------

    # Everything that must be read of segments is read before anything is changed: an operation that meets a damaged
    # one, or a cold tier that cannot be reached, raises and leaves the log as it was.

    def doomed_below(self, floor: int, segments: Segments) -> list[Doomed]:
        doomed = []
        for part in self.parts():
            if part.first >= floor:
                break
            if isinstance(part, Run) and part.last < floor:
                hidden = self._hidden_of(part, part.first, part.last, segments)
                doomed.append(Doomed(part, [], (part.live, part.live_size), hidden))
            else:
                low, high = max(part.first, self.earliest), min(floor - 1, part.last)
                doomed.append(self._doom(part, [(low, high)], segments))
        return doomed

    def remove(self, doomed: list[Doomed], floor: int, segments: Segments) -> tuple[int, int]:
        """Take everything below ``floor`` out; returns how many records went and their bytes, hidden ones included."""
        self.revision += 1
        count, size = self._kill(doomed)
        self.runs = tuple(run for run in self.runs if run.last >= floor)
        if self.tail is not None and self.tail.blocks and self.tail.first < floor:
            self._drop_dead_blocks(self.tail, floor)
        self._settle_earliest(floor, segments)
        return count, size

    @staticmethod
    def _drop_dead_blocks(tail: Tail, floor: int) -> None:
        kept = bisect_left(tail.blocks, floor, key=lambda block: block.last)
        if kept:
            tail.cut(tail.blocks[kept - 1].last)

    def _hidden_of(self, part: Part, first: int, last: int, segments: Segments) -> tuple[int, int]:
        if part.overlay is None or not part.overlay.hidden:
            return 0, 0
        return part.weigh(list(part.overlay.hidden.overlap(first, last)), segments)

    def _doom(self, part: Part, ranges: Iterable[tuple[int, int]], segments: Segments) -> Doomed:
        within = [(max(first, part.first), min(last, part.last)) for first, last in ranges]
        within = [(first, last) for first, last in within if first <= last]
        overlay = part.overlay
        if overlay is None:
            return Doomed(part, within, part.weigh(within, segments), (0, 0))
        live = part.weigh([piece for first, last in within for piece in overlay.visible(first, last)], segments)
        hidden = part.weigh(
            [piece for first, last in within for piece in overlay.hidden.overlap(first, last)], segments
        )
        return Doomed(part, within, live, hidden)

    def _kill(self, doomed: Iterable[Doomed]) -> tuple[int, int]:
        """Mark records deleted; returns how many were not so before, and their bytes."""
        gone = (0, 0)
        for part, ranges, live, hidden in doomed:
            self._account(part, -live[0], -live[1])
            for first, last in ranges:
                overlay = part.change()
                overlay.dead.add(first, last)
                if overlay.hidden:
                    overlay.hidden.remove(first, last)
                if overlay.amended:
                    for seq in [seq for seq in overlay.amended if first <= seq <= last]:
                        del overlay.amended[seq]
            gone = _sum(gone, _sum(live, hidden))
        return gone

    def _account(self, part: Part, count: int, size: int) -> None:
        self.revision += 1
        self.count += count
        self.size += size
        self.totals.records += count
        self.totals.size += size
        if isinstance(part, Run):
            part.live += count
            part.live_size += size

    def _settle_earliest(self, floor: int, segments: Segments) -> None:
        """Move ``earliest`` up to the first record from ``floor`` on that is still there."""
        at = max(floor, self.earliest)
        for part in self.parts():
            if part.last < at:
                continue
            low = max(at, part.first)
            ranges = [(low, part.last)] if part.overlay is None else part.overlay.dead.gaps(low, part.last)
            for first, last in ranges:
                found = self._first_there(part, first, last, segments)
                if found is not None:
                    self.earliest = found
                    self._forget_passed_gaps()
                    return
        self.earliest = self.head + 1
        self._forget_passed_gaps()

    @staticmethod
    def _first_there(part: Part, first: int, last: int, segments: Segments) -> int | None:
        if isinstance(part, Run) and part.last - part.first + 1 == part.rows:
            return first
        try:
            return next((block.seq(start) for block, start, _ in part.pieces(first, last, segments)), None)
        except (DamagedFile, OSError):
            return first  # or higher; nobody can tell

    def _forget_passed_gaps(self) -> None:
        floor = self.evict_floor
        if self.gaps and self.gaps[0].last < floor:
            self.gaps = tuple(gap for gap in self.gaps if gap.last >= floor)

    def delete(self, select: Select, segments: Segments) -> Deleted:
        """Remove the selected records for good. Silent: the floors stay where they are."""
        if select.key is None and select.prefix is None and select.seqs is None:
            assert select.before is not None
            before = min(select.before, select.bound + 1)
            if before <= self.earliest:
                return Deleted(0, 0)
            return Deleted(*self.remove(self.doomed_below(before, segments), before, segments))
        if self._is_in_tail(select):
            return self._delete_in_tail(select, segments)
        doomed = [self._doom(part, ranges, segments) for part, ranges in self._selected(select, segments)]
        count, size = self._kill(doomed)
        if count:
            self._drop_dead_front(segments)
        return Deleted(count, size)

    def _is_in_tail(self, select: Select) -> bool:
        """Whether nothing but seqs is given, all of them of records that are not sealed yet."""
        seqs, tail = select.seqs, self.tail
        if not seqs or tail is None or not tail.blocks:
            return False
        if select.key is not None or select.prefix is not None or select.before is not None:
            return False
        return min(seqs) >= tail.first

    def _delete_in_tail(self, select: Select, segments: Segments) -> Deleted:
        """A few seqs, one by one: the usual end of a job in a queue."""
        tail = self.tail
        assert tail is not None
        assert select.seqs is not None
        count = size = live = live_size = 0
        passed = False
        for seq in sorted(set(select.seqs)):
            found = tail.find(seq) if self.earliest <= seq <= select.bound else None
            overlay = tail.overlay
            if found is None or (overlay is not None and seq in overlay.dead):
                continue
            weight = found[0].size(found[1], found[1] + 1)
            overlay = tail.change()
            if overlay.amended and seq in overlay.amended:
                weight += len(overlay.amended.pop(seq)) - len(found[0].payload(found[1]))
            count, size = count + 1, size + weight
            if overlay.hidden and seq in overlay.hidden:
                overlay.hidden.remove(seq, seq)
            else:
                live, live_size = live + 1, live_size + weight
            overlay.dead.add(seq, seq)
            passed = passed or seq == self.earliest
        self._account(tail, -live, -live_size)
        if passed:
            self._pass_dead_front(tail, segments)
        return Deleted(count, size)

    def _pass_dead_front(self, tail: Tail, segments: Segments) -> None:
        """As ``_drop_dead_front``, when the earliest record was in the tail."""
        assert tail.overlay is not None
        first, _ = next(tail.overlay.dead.gaps(self.earliest, tail.last), (0, 0))
        if not first or tail.find(first) is None:
            self._drop_dead_front(segments)
            return
        self.earliest = first
        self._forget_passed_gaps()
        self.runs = ()
        if tail.blocks[0].last < first:
            self._drop_dead_blocks(tail, first)

    def _drop_dead_front(self, segments: Segments) -> None:
        before = self.earliest
        self._settle_earliest(before, segments)
        if self.earliest > before:
            self.runs = tuple(run for run in self.runs if run.last >= self.earliest)
            if self.tail is not None:
                self._drop_dead_blocks(self.tail, self.earliest)

    def check_readable(self, select: Select, segments: Segments) -> None:
        """Raise unless everything can be read that hiding or restoring the selected records has to look at."""
        for part, ranges in self._selected(select, segments):
            # The tail is in memory.
            if isinstance(part, Run):
                part.weigh(ranges, segments)

    def check_removable(self, select: Select, segments: Segments) -> None:
        """As ``check_readable``, for a delete; runs that go as a whole need not be looked at."""
        if select.key is None and select.prefix is None and select.seqs is None:
            assert select.before is not None
            self.doomed_below(min(select.before, select.bound + 1), segments)
        elif not self._is_in_tail(select):
            self.check_readable(select, segments)

    def hide(self, select: Select, segments: Segments) -> Deleted:
        """Take the selected records out of sight; ``restore`` brings them back."""
        chosen = []
        for part, ranges in self._selected(select, segments):
            for first, last in ranges:
                alive = [(first, last)] if part.overlay is None else list(part.overlay.visible(first, last))
                live = part.weigh(alive, segments)
                if live[0]:
                    chosen.append((part, alive, live))
        gone = (0, 0)
        for part, alive, live in chosen:
            self._account(part, -live[0], -live[1])
            for first, last in alive:
                part.change().hidden.add(first, last)
            gone = _sum(gone, live)
        return Deleted(*gone)

    def restore(self, select: Select, segments: Segments) -> Deleted:
        chosen = []
        for part, ranges in self._selected(select, segments):
            if part.overlay is None:
                continue
            for first, last in ranges:
                hidden = list(part.overlay.hidden.overlap(first, last))
                back = part.weigh(hidden, segments)
                if back[0]:
                    chosen.append((part, first, last, back))
        gone = (0, 0)
        for part, first, last, back in chosen:
            self._account(part, *back)
            part.change().hidden.remove(first, last)
            gone = _sum(gone, back)
        if self.config.cap_records or self.config.cap_bytes:
            evict_over_caps(self, segments)
        return Deleted(*gone)

    def amend(self, seq: int, data: bytes, segments: Segments) -> None:
        """Give a record other data under the same seq and time. It has been checked that the record is there."""
        for part in self.parts():
            if not part.first <= seq <= part.last:
                continue
            before = part.weigh([(seq, seq)], segments)
            if not before[0]:
                return
            part.change().amended[seq] = data
            assert part.overlay is not None
            if seq not in part.overlay.hidden:
                self._account(part, 0, part.weigh([(seq, seq)], segments)[1] - before[1])
        if self.config.cap_bytes:
            evict_over_caps(self, segments)

    def has(self, seq: int, segments: Segments) -> bool:
        """Whether the record is there: not deleted, not evicted. A hidden one is there."""
        for part in self.parts():
            if part.first <= seq <= part.last:
                if part.overlay is not None and seq in part.overlay.dead:
                    return False
                return any(True for _ in part.pieces(seq, seq, segments))
        return False

    def _selected(self, select: Select, segments: Segments) -> Iterator[tuple[Part, list[tuple[int, int]]]]:
        """Per part, the ranges of seqs that fulfil the selection (not all of them need to be there)."""
        bound = select.bound if select.before is None else min(select.bound, select.before - 1)
        wanted = None if select.seqs is None else sorted(set(select.seqs))
        for part in tuple(self.parts()):
            low, high = max(part.first, self.earliest), min(part.last, bound)
            if low > high:
                continue
            if select.key is None and select.prefix is None and wanted is None:
                yield part, [(low, high)]
                continue
            found: list[int] | None = None
            if select.key is not None:
                found = part.seqs_with_key(select.key, False, segments)
            if select.prefix is not None:
                found = _both(found, part.seqs_with_key(select.prefix, True, segments))
            if wanted is not None:
                found = _both(found, wanted)
            assert found is not None
            inside = found[bisect_left(found, low) : bisect_left(found, high + 1)]
            if inside:
                yield part, list(_ranges_of(inside))


def _sum(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return one[0] + other[0], one[1] + other[1]


def _block_end(block: Block) -> int:
    return block.timestamp(len(block) - 1)


def _both(one: list[int] | None, other: list[int]) -> list[int]:
    if one is None:
        return other
    members = set(one)
    return [seq for seq in other if seq in members]


def _ranges_of(seqs: list[int]) -> Iterator[tuple[int, int]]:
    """Ascending seqs as ranges, those side by side joined."""
    first = last = seqs[0]
    for seq in seqs[1:]:
        if seq != last + 1:
            yield first, last
            first = seq
        last = seq
    yield first, last
