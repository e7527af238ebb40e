"""Decides when the pipeline starts and stops. It has no process, thread or clock; callers pass in everything it needs.

Starting a Spark session takes about ten seconds of two cores, and keeping it takes half a gigabyte, so a small server
must not start one for every record. New records wait until there are enough of them, because the server itself indexes
small amounts just as quickly. The waiting time is limited, with a shorter limit for erasures.
"""

from __future__ import annotations

from collections import deque

import msgspec

from strandline.engine.reads.status import EngineExtent
from strandline.lake.status import PipelineStatus

#: The maximum time that an erasure waits for the pipeline to remove records from the lake.
ERASE_SECONDS = 300.0
#: After a failure the pipeline starts again after one second. The delay doubles with every failure up to this limit.
MAX_BACKOFF_SECONDS = 300.0
#: The number of observations that are kept. The status reports the end of a round some observations after its start.
MARKS = 128


class Thresholds(msgspec.Struct, frozen=True, kw_only=True):
    """The settings ``pipeline_start_*`` and ``pipeline_idle_s``."""

    start_records: int
    start_bytes: int
    start_s: float
    idle_s: float
    #: Whether the process runs all the time, because it keeps declared tables.
    lasting: bool = False


class StartSchedule:
    """The caller reports observations with ``see``, and the life of the process with ``started`` and ``ended``.

    ``tick`` is a monotonic time in seconds. ``wall`` is the time of day in milliseconds, which the times of rounds use.
    """

    def __init__(self, thresholds: Thresholds) -> None:
        self._thresholds = thresholds
        #: The extent of the logs that is in the lake.
        self._covered: EngineExtent | None = None
        self._reach = EngineExtent()
        self._marks: deque[tuple[int, EngineExtent]] = deque(maxlen=MARKS)
        #: The start of the current round, and the extent of the logs at that time.
        self._round: tuple[int, EngineExtent] | None = None
        self._last_good_end = 0
        self._has_lake = False
        self._new_since: float | None = None
        self._erased_since: float | None = None
        #: When there was last enough work to start the pipeline.
        self._busy_at = 0.0
        #: A run was requested, and the process has not received the request yet.
        self.asked = False
        #: The number of failures since the last successful round.
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
        """Note the progress of rounds. A round covers everything that the logs contained when it began."""
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
        """The number of records that are not in the lake; at least 1 if the logs have changed."""
        if self._covered is None or self._reach.records == self._covered.records:
            return 0
        return max(1, self._reach.records - self._covered.records)

    @property
    def new_erasures(self) -> int:
        return 0 if self._covered is None else max(0, self._reach.erasures - self._covered.erasures)

    @property
    def has_news(self) -> bool:
        """Whether the logs contain any change that is not in the lake."""
        return self._new_since is not None or self._erased_since is not None

    def ask(self) -> None:
        """Request a run now, even if little has changed or the last start failed."""
        self.asked = True
        self._not_before = 0.0

    # --- decisions -------------------------------------------------------------------------------------------------

    def why_start(self, tick: float) -> str:
        """The reason to start the pipeline now; empty if there is none."""
        return self.why_due(tick) if tick >= self._not_before else ""

    def why_due(self, tick: float) -> str:
        """The reason to start the pipeline, even if a start has to wait after a failure."""
        thresholds = self._thresholds
        if self.asked:
            return "a run was requested"
        if thresholds.lasting:
            return "declared tables are kept current"
        reason = self._reason_by_amount()
        if reason:
            return reason
        if self._new_since is not None and tick - self._new_since >= thresholds.start_s:
            return f"{self.new_records} new records have waited {thresholds.start_s:g} s"
        patience = min(ERASE_SECONDS, thresholds.start_s)
        if self._erased_since is not None and tick - self._erased_since >= patience:
            return f"{self.new_erasures} erasures are not applied to the lake"
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
        """Whether the process should stop: it is between rounds and has had too little to do for some time."""
        at_rest = status is not None and status.state == "idle" and not self._thresholds.lasting
        return at_rest and not self.asked and tick - self._busy_at >= self._thresholds.idle_s

    def wait_seconds(self, tick: float) -> float:
        """The time until the next start is allowed after a failure; 0 if it is allowed now."""
        return max(0.0, self._not_before - tick)

    # --- the process -----------------------------------------------------------------------------------------------

    def started(self, tick: float) -> None:
        self.asked = False
        self._busy_at = tick

    def told(self) -> None:
        """The running process has received the request for a run."""
        self.asked = False

    def ended(self, tick: float, well: bool) -> None:
        """The process has ended. ``well`` means that it stopped on request or had nothing more to do."""
        if well:
            self._not_before = tick + 1
            return
        self.failures += 1
        self._not_before = tick + min(MAX_BACKOFF_SECONDS, 2.0 ** min(self.failures - 1, 30))


def _covered_before(reach: EngineExtent, status: PipelineStatus | None) -> EngineExtent:
    """The extent of the logs that is in the lake, according to its status. An empty lake needs no erasures."""
    if status is None or status.last_good_round is None:
        return EngineExtent(0, reach.erasures, reach.registries, 0)
    lag = status.lag
    return EngineExtent(max(0, lag.heads - lag.behind), lag.erasures, reach.registries, reach.written)


def _last_good_end(status: PipelineStatus | None) -> int:
    last = None if status is None else status.last_good_round
    return 0 if last is None else last.end
