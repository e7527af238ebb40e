"""The quota: the maximum number of logs of an engine, and the maximum bytes of all their records.

Every creation of a log and every append is checked here, whatever the protocol. The server's own logs do not count and
are never refused, because acknowledgements are written to them. A step that removes records is not refused either,
because it frees space.
"""

from __future__ import annotations

from strandline.engine.errors import QuotaExceeded
from strandline.engine.record import is_internal
from strandline.engine.stats import Totals


class Quota:
    """Checks the limits. The caller holds the engine's lock. A limit of 0 means unlimited."""

    __slots__ = ("_totals", "max_bytes", "max_logs")

    def __init__(self, totals: Totals, max_logs: int, max_bytes: int) -> None:
        self._totals = totals
        self.max_logs = max_logs
        self.max_bytes = max_bytes

    def check_create(self, name: str) -> None:
        """Raise unless one more log may be created."""
        if self.max_logs and not is_internal(name):
            self.check_logs(1)

    def check_logs(self, count: int) -> None:
        """Raise unless this many more logs may be created."""
        if self.max_logs and sum(self._totals.logs.values()) + count > self.max_logs:
            raise QuotaExceeded("max_logs", self.max_logs)

    def check_append(self, name: str, size: int) -> None:
        """Raise unless this many more bytes fit."""
        if not self.max_bytes or is_internal(name):
            return
        if self._totals.size + self._totals.pending_size + size > self.max_bytes:
            raise QuotaExceeded("max_total_bytes", self.max_bytes)
