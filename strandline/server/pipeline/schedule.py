"""Decides when the pipeline is started and stopped. It uses no process, thread or clock: the caller passes everything
in.

Starting a Spark session takes about ten seconds of both cores and half a gigabyte of memory, so a small server must not
start one for every record. New records wait until there are enough: records that the server can index as fast as the
lake can find them are not worth a start. But no record waits longer than the configured time, and erasures wait less.
"""

from __future__ import annotations

from collections import deque

import msgspec

from strandline.engine.reads.status import EngineExtent
from strandline.lake.status import PipelineStatus

#: The longest time that a deletion waits for the pipeline, which deletes the records from the lake.
ERASE_SECONDS = 300.0
#: After a failure, the pipeline is restarted after one second, then two, and so on up to this time.
MAX_BACKOFF_SECONDS = 300.0
#: How many observations are kept: the server may learn of a round's end some observations after it began.
MARKS = 128


class Thresholds(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of the pipeline that decide about its start."""

    start_records: int
    start_bytes: int
    start_s: float
    idle_s: float


class Decider:
    """``see`` reports the state of the logs, ``started`` and ``ended`` report the state of the pipeline.

    ``tick`` is a monotonic time in seconds, ``wall`` the time of day in milliseconds, as in the reports of rounds.
    """

    def __init__(self, thresholds: Thresholds) -> None:
        self._thresholds = thresholds
        #: The lake has everything up to this extent.
        self._covered: EngineExtent | None = None
        self._reach = EngineExtent()
        self._marks: deque[tuple[int, EngineExtent]] = deque(maxlen=MARKS)
        #: The extent of the logs when the current round began, and when that was.
        self._round: tuple[int, EngineExtent] | None = None
        self._last_good_end = 0
        self._has_lake = False
        self._new_since: float | None = None
        self._erased_since: float | None = None
        #: When the pipeline last had enough to do to be started.
        self._busy_at = 0.0
        #: Whether a run was requested that the process does not know of yet.
        self.asked = False
        #: Failures in a row, without a successful round.
        self.failures = 0
        self._not_before = 0.0

    # --- observations ----------------------------------------------------------------------------------------------

    def see(self, tick: float, wall: int, reach: EngineExtent, status: PipelineStatus | None) -> None:
        self._reach = reach
        self._has_lake = status is not None
        if self._covered is None:
            self._covered = _covered_before(reach, status)
            self._last_good_end = _last_good_end(status)
        self._marks.append((wall, reach))
        if status is not None:
            self._follow(status)
        if self.new_records == 0 and reach.registries == self._covered.registries:
            self._new_since = None
        elif self._new_since is None:
            self._new_since = tick
        if not self._has_lake or self.new_erasures == 0:
            self._erased_since = None
        elif self._erased_since is None:
            self._erased_since = tick
        if self._reason_by_amount() or self.asked:
            self._busy_at = tick

    def _follow(self, status: PipelineStatus) -> None:
        """Note what finished rounds have covered: everything that existed when they began."""
        last = status.last_good_round
        if last is not None and last.end > self._last_good_end:
            self._last_good_end = last.end
            self.failures = 0
            covered = self._round[1] if self._round is not None and self._round[0] == last.begin else None
            covered = covered or self._mark_before(last.begin)
            if covered is not None:
                self._covered = covered
        if status.state != "running":
            self._round = None
        elif self._round is None or self._round[0] != status.since:
            mark = self._mark_before(status.since)
            self._round = None if mark is None else (status.since, mark)

    def _mark_before(self, wall: int) -> EngineExtent | None:
        return next((reach for time, reach in reversed(self._marks) if time <= wall), None)

    @property
    def new_records(self) -> int:
        """The number of records that the lake does not have; at least one if anything has changed."""
        if self._covered is None or self._reach.records == self._covered.records:
            return 0
        return max(1, self._reach.records - self._covered.records)

    @property
    def new_erasures(self) -> int:
        return 0 if self._covered is None else max(0, self._reach.erasures - self._covered.erasures)

    @property
    def has_news(self) -> bool:
        """Whether the lake lacks anything at all."""
        return self._new_since is not None or self._erased_since is not None

    def ask(self) -> None:
        """Request a run now, however little there is to do and however often it has failed."""
        self.asked = True
        self._not_before = 0.0

    # --- decisions -------------------------------------------------------------------------------------------------

    def why_start(self, tick: float) -> str:
        """Why the pipeline should start, in a few words; empty if it should not."""
        return self.why_due(tick) if tick >= self._not_before else ""

    def why_due(self, tick: float) -> str:
        """Like ``why_start``, ignoring the delay after a failure."""
        thresholds = self._thresholds
        if self.asked:
            return "requested"
        reason = self._reason_by_amount()
        if reason:
            return reason
        if self._new_since is not None and tick - self._new_since >= thresholds.start_s:
            return f"{self.new_records} new records have waited for the maximum time"
        patience = min(ERASE_SECONDS, thresholds.start_s)
        if self._erased_since is not None and tick - self._erased_since >= patience:
            return f"{self.new_erasures} erasures are to be applied"
        return ""

    def _reason_by_amount(self) -> str:
        records = self.new_records
        if records >= self._thresholds.start_records:
            return f"{records} new records"
        covered = self._covered
        if records and covered is not None and self._reach.written - covered.written >= self._thresholds.start_bytes:
            return f"the journal has grown by {self._reach.written - covered.written} bytes"
        return ""

    def should_end(self, tick: float, status: PipelineStatus | None) -> bool:
        """Whether it should stop: it had too little to do for a while, and no round is running."""
        at_rest = status is not None and status.state == "idle"
        return at_rest and not self.asked and tick - self._busy_at >= self._thresholds.idle_s

    def wait_seconds(self, tick: float) -> float:
        """How long to wait before the next attempt after a failure; 0: not at all."""
        return max(0.0, self._not_before - tick)

    # --- outcomes --------------------------------------------------------------------------------------------------

    def started(self, tick: float) -> None:
        self.asked = False
        self._busy_at = tick

    def told(self) -> None:
        """The running process was notified of the request."""
        self.asked = False

    def ended(self, tick: float, well: bool) -> None:
        """The process has ended; ``well``: it was stopped, or had nothing more to do."""
        if well:
            self._not_before = tick + 1
            return
        self.failures += 1
        self._not_before = tick + min(MAX_BACKOFF_SECONDS, 2.0 ** min(self.failures - 1, 30))


def _covered_before(reach: EngineExtent, status: PipelineStatus | None) -> EngineExtent:
    """The extent that the lake has according to its status. An empty lake has nothing to erase."""
    if status is None or status.last_good_round is None:
        return EngineExtent(0, reach.erasures, reach.registries, 0)
    lag = status.lag
    return EngineExtent(max(0, lag.heads - lag.behind), lag.erasures, reach.registries, reach.written)


def _last_good_end(status: PipelineStatus | None) -> int:
    last = None if status is None else status.last_good_round
    return 0 if last is None else last.end
