"""Compaction: a compacted log keeps only the last record of each key.

A record is deleted once a later record of its key is old enough. If the log keeps records until the lake has them, the
lake must have both. Order and seqs do not change. Readers get no tombstone
for the deletion. It does not count as an erasure, so copies of the record elsewhere are kept. The part of a log that
has been compacted is not read again.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from strandline.engine.errors import DamagedFile, EngineError, UnknownLog
from strandline.engine.log import Log
from strandline.engine.reads.latest import LastByKey
from strandline.engine.reads.page import NotResident, Resident, fetch
from strandline.engine.reads.view import LogView, with_view
from strandline.engine.segments.store import UnknownSegment
from strandline.engine.segments.writer import Ints
from strandline.engine.state.lake_mark import removable_through
from strandline.engine.state.logbook import Logbook
from strandline.engine.state.parts import Run

if TYPE_CHECKING:
    from strandline.engine.engine import Engine

log = logging.getLogger(__name__)

#: The number of records deleted at once. Appends wait during each deletion, because it holds the engine's lock.
SLICE_RECORDS = 128
#: Memory for the state of all compacted logs. The state of the last log is kept even if it alone exceeds this.
MAX_BYTES = 64 << 20
#: A log without remembered state is read from the start once it has grown by one part in this many.
GROWN_BY = 4


class _State(NamedTuple):
    """How far a log has been compacted, the last record of each key, and the counts of changes when this was true.
    Forks share the records up to the seq ``shared``."""

    by_key: LastByKey
    withdrawals: int
    rewrites: int
    shared: int


class _Overtaken(Exception):
    """Records of the log were deleted or hidden by another caller, or the log was forked, or the engine is closing. A
    superseded record may now be the last of its key for some reader. Or the lake has lost records."""


class Compaction:
    """Compacts logs. Not thread-safe. Call it without holding the engine's lock."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._states: OrderedDict[int, _State] = OrderedDict()
        #: By epoch, the seq up to which a log was last compacted.
        self._done: dict[int, int] = {}
        self._told: set[int] = set()
        #: The number of records deleted since the start.
        self.deleted = 0

    def run(self) -> bool:
        """Delete superseded records that are old enough. Return whether there were any.

        An unexpected error in one log is raised after the other logs have been compacted.
        """
        engine, before = self._engine, self.deleted
        with engine.lock:
            books = list(engine.compacted)
        for epoch in self._done.keys() - {book.epoch for book in books}:
            self._forget(epoch)
            del self._done[epoch]
        unexpected: Exception | None = None
        for book in books:
            if engine.writable:
                try:
                    self._try(Log(engine, book))
                except Exception as error:
                    self._forget(book.epoch)
                    error.add_note(f"while compacting log {book.name!r}")
                    unexpected = error
        if unexpected is not None:
            raise unexpected
        return self.deleted > before

    def _try(self, compacted: Log) -> None:
        try:
            self._compact(compacted)
        except (_Overtaken, UnknownLog):
            self._forget(compacted.epoch)
        except (DamagedFile, OSError, EngineError) as error:
            # The disk is full, or a segment is unreadable. Compaction is retried, and the warning is logged once.
            self._forget(compacted.epoch)
            if compacted.epoch not in self._told:
                self._told.add(compacted.epoch)
                log.warning("log %r cannot be compacted now: %s", compacted.name, error)

    def _forget(self, epoch: int) -> None:
        self._states.pop(epoch, None)

    def _compact(self, compacted: Log) -> None:
        book = compacted.book
        horizon = self._horizon(book)
        if horizon < book.earliest:
            return
        state = self._states.get(book.epoch)
        if state is None or (state.withdrawals, state.rewrites) != (book.withdrawals, book.rewrites):
            grown = horizon - self._done.get(book.epoch, -1)
            if grown <= (book.count // GROWN_BY if book.epoch in self._done else 0):
                return
            state = self._begin(book)
        if horizon > state.by_key.through:
            self._keep(
                book.epoch, with_view(compacted, lambda seen: self._go_on(compacted, seen, state, horizon), own=True)
            )

    def _begin(self, book: Logbook) -> _State:
        """Start with an empty state. Changes requested before this are flushed; later ones are counted."""
        engine = self._engine
        with engine.lock:
            book.check_there()
            state = _State(LastByKey(), book.withdrawals, book.rewrites, _shared_through(engine, book))
            pending = book.pending
        if pending:
            engine.flush()
        return state

    def _go_on(self, compacted: Log, seen: LogView, state: _State, horizon: int) -> _State:
        for by_key, superseded in state.by_key.steps(self._engine.store, seen, horizon):
            if not self._engine.writable:
                raise _Overtaken
            withdrawals = self._delete(compacted, superseded[superseded > state.shared], state.withdrawals)
            state = state._replace(by_key=by_key, withdrawals=withdrawals)
        return state

    def _delete(self, compacted: Log, seqs: Ints, withdrawals: int) -> int:
        """Delete the records slice by slice while no other caller deletes or hides records. Return the new count of
        withdrawals."""
        engine, book = self._engine, compacted.book
        for at in range(0, len(seqs), SLICE_RECORDS):
            chosen = seqs[at : at + SLICE_RECORDS]
            self._bring_in(book, chosen)
            with engine.lock:
                if book.withdrawals != withdrawals or chosen[-1] > removable_through(book):
                    raise _Overtaken
                commit = compacted.delete(seqs=chosen.tolist(), erasure=False)
                withdrawals = book.withdrawals
            self.deleted += commit.wait().count
        return withdrawals

    def _bring_in(self, book: Logbook, seqs: Ints) -> None:
        """Load the blocks that a deletion needs before the lock is taken."""
        store = self._engine.store
        for run in book.runs:
            inside = seqs[np.searchsorted(seqs, run.first) : np.searchsorted(seqs, run.last, side="right")]
            with suppress(UnknownSegment):  # merged a moment ago
                for index in _blocks_of(run, inside, self._engine):
                    store.load(run.segment, index)

    def _horizon(self, book: Logbook) -> int:
        """Return the last seq that is old enough, and that the log does not keep for the lake."""
        engine = self._engine
        segments = Resident(engine.store)
        while True:
            try:
                with engine.lock:
                    book.check_there()
                    until = engine.now() - engine.options.compact_after_ms
                    return min(book.seq_since(until + 1, segments) - 1, book.shown, removable_through(book))
            except NotResident as missing:
                fetch(book, missing)

    def _keep(self, epoch: int, state: _State) -> None:
        self._told.discard(epoch)
        self._done[epoch] = state.by_key.through
        self._states[epoch] = state
        self._states.move_to_end(epoch)
        size = sum(known.by_key.nbytes for known in self._states.values())
        while size > MAX_BYTES and len(self._states) > 1:
            size -= self._states.popitem(last=False)[1].by_key.nbytes


def _blocks_of(run: Run, seqs: Ints, engine: Engine) -> list[int]:
    if not len(seqs):
        return []
    segment = engine.store.segment(run.segment)
    first, last = (segment.row_of(run.row, run.rows, run.first, int(seq)) for seq in (seqs[0], seqs[-1]))
    return list(range(segment.block_of(first), segment.block_of(min(last, segment.rows - 1)) + 1))


def _shared_through(engine: Engine, book: Logbook) -> int:
    """Return the seq up to which forks share the log's records. A record superseded after a fork point is still the
    last of its key in the fork. The engine's lock is held."""
    if not book.forks:
        return 0
    points = (other.base for other in engine.by_epoch.values() if other.base is not None and other.base.book is book)
    return max((base.through for base in points), default=0)
