"""When the pipeline is to be started and when ended. Knows no process, no thread and no clock: all it sees, it is told.

A Spark session takes some ten seconds of both cores to start and half a gigabyte to keep, so a small server is not to
have one for every record. What is new waits until there is enough of it: what the server indexes by itself as quickly
as it would find it in the lake is not worth a start. But nothing waits for ever, and what was deleted not even long.
"""

from __future__ import annotations

from collections import deque

import msgspec

from strandline.engine.reads.status import EngineExtent
from strandline.lake.status import PipelineStatus

#: What was deleted from a log is to go from the lake: it waits no longer than this for the pipeline.
ERASE_SECONDS = 300.0
#: After a failure the pipeline is started again after one second, then two, and so on up to this.
MAX_BACKOFF_SECONDS = 300.0
#: How many looks back are remembered: a round may have begun some of them before anybody learns that it is over.
MARKS = 128


class Thresholds(msgspec.Struct, frozen=True, kw_only=True):
    """What the settings say; see there."""

    start_records: int
    start_bytes: int
    start_s: float
    idle_s: float


class Decider:
    """Told what there is by ``see``, and what became of the pipeline by ``started`` and ``ended``.

    ``tick`` is a time in seconds that never goes back, ``wall`` the time of day in milliseconds, which rounds are
    dated with.
    """

    def __init__(self, thresholds: Thresholds) -> None:
        self._thresholds = thresholds
        #: Everything up to here is in the lake.
        self._covered: EngineExtent | None = None
        self._reach = EngineExtent()
        self._marks: deque[tuple[int, EngineExtent]] = deque(maxlen=MARKS)
        #: Where the logs reached when the round that is under way began, and when that was.
        self._round: tuple[int, EngineExtent] | None = None
        self._last_good_end = 0
        self._has_lake = False
        self._new_since: float | None = None
        self._erased_since: float | None = None
        #: When the pipeline last had as much to do as it is started for.
        self._busy_at = 0.0
        #: Somebody wants it to run, and it does not know yet.
        self.asked = False
        #: In a row, without a round that went well.
        self.failures = 0
        self._not_before = 0.0

    # --- what there is ---------------------------------------------------------------------------------------------

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
        """Take over what rounds have covered: everything that was there when they began."""
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
        """Records that the lake does not have; at least one if anything is other than it was."""
        if self._covered is None or self._reach.records == self._covered.records:
            return 0
        return max(1, self._reach.records - self._covered.records)

    @property
    def new_erasures(self) -> int:
        return 0 if self._covered is None else max(0, self._reach.erasures - self._covered.erasures)

    @property
    def has_news(self) -> bool:
        """Whether there is anything that the lake does not have, however little."""
        return self._new_since is not None or self._erased_since is not None

    def ask(self) -> None:
        """Somebody wants it to run now, however little there is to do, and however often it has failed."""
        self.asked = True
        self._not_before = 0.0

    # --- what to do ------------------------------------------------------------------------------------------------

    def why_start(self, tick: float) -> str:
        """Why it is to be started, in a few words; empty when it is not to be."""
        return self.why_due(tick) if tick >= self._not_before else ""

    def why_due(self, tick: float) -> str:
        """The same, though it may have to wait because it failed a moment ago."""
        thresholds = self._thresholds
        if self.asked:
            return "it was asked for"
        reason = self._reason_by_amount()
        if reason:
            return reason
        if self._new_since is not None and tick - self._new_since >= thresholds.start_s:
            return f"{self.new_records} new records have waited long enough"
        patience = min(ERASE_SECONDS, thresholds.start_s)
        if self._erased_since is not None and tick - self._erased_since >= patience:
            return f"{self.new_erasures} erasures are to be followed"
        return ""

    def _reason_by_amount(self) -> str:
        records = self.new_records
        if records >= self._thresholds.start_records:
            return f"{records} records are new"
        covered = self._covered
        if records and covered is not None and self._reach.written - covered.written >= self._thresholds.start_bytes:
            return f"the journal has grown by {self._reach.written - covered.written} bytes"
        return ""

    def should_end(self, tick: float, status: PipelineStatus | None) -> bool:
        """Whether it may go: it has had too little to do for a while, and is not in the middle of it."""
        at_rest = status is not None and status.state == "idle"
        return at_rest and not self.asked and tick - self._busy_at >= self._thresholds.idle_s

    def wait_seconds(self, tick: float) -> float:
        """How long it has to wait because it failed; 0: not at all."""
        return max(0.0, self._not_before - tick)

    # --- what became of it -----------------------------------------------------------------------------------------

    def started(self, tick: float) -> None:
        self.asked = False
        self._busy_at = tick

    def told(self) -> None:
        """It was running already when somebody asked for it, and has been told."""
        self.asked = False

    def ended(self, tick: float, well: bool) -> None:
        """It is gone; ``well``: because it was told to go, or had nothing more to do."""
        if well:
            self._not_before = tick + 1
            return
        self.failures += 1
        self._not_before = tick + min(MAX_BACKOFF_SECONDS, 2.0 ** min(self.failures - 1, 30))


def _covered_before(reach: EngineExtent, status: PipelineStatus | None) -> EngineExtent:
    """What the lake has, as far as its status tells. Of an empty lake nothing has to be erased."""
    if status is None or status.last_good_round is None:
        return EngineExtent(0, reach.erasures, reach.registries, 0)
    lag = status.lag
    return EngineExtent(max(0, lag.heads - lag.behind), lag.erasures, reach.registries, reach.written)


def _last_good_end(status: PipelineStatus | None) -> int:
    last = None if status is None else status.last_good_round
    return 0 if last is None else last.end
