"""What is done again and again to know how the server is doing: meters are read, memory is looked at, and every now and
then an interval of the server's own metrics is written down."""

from __future__ import annotations

from strandline.delivery.hub import Recurrence
from strandline.protocols.streams.context import StreamsContext
from strandline.protocols.streams.own_metrics import OwnMetrics

#: Peaks of memory that are shorter than this may go unseen.
STEP_SECONDS = 1.0


class Sampling:
    def __init__(self, context: StreamsContext, metrics: OwnMetrics) -> None:
        self._context = context
        self._metrics = metrics
        self._every_ms = context.settings.metrics_flush_ms
        self._flushed_at = context.hub.now()
        self._recurrence: Recurrence | None = None

    def begin(self) -> None:
        if self._every_ms:
            self._metrics.install()
        hub = self._context.hub
        self.step(hub.now())
        seconds = min(STEP_SECONDS, self._every_ms / 1000) if self._every_ms else STEP_SECONDS
        self._recurrence = hub.every(seconds, "sampling of meters", lambda: self.step(hub.now()))

    def step(self, now: int) -> None:
        """``now`` is in milliseconds."""
        self._context.meters.fold()
        self._context.memory.sample(now)
        if self._every_ms and now - self._flushed_at >= self._every_ms:
            self._flushed_at = now
            self._metrics.flush(now)

    def stop(self) -> None:
        if self._recurrence is not None:
            self._recurrence.stop()
