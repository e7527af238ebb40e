"""The quota: how many logs an engine may have, and how many bytes all of their records may take together.

Every way to create a log or to append a record passes through here, whichever protocol it comes from. The server's own
logs neither count nor are refused: acknowledgements end up in them. A step that removes records is never refused
either: it is the way out of a full quota.
"""

from __future__ import annotations

from strandline.engine.errors import QuotaExceeded
from strandline.engine.record import is_internal
from strandline.engine.stats import Totals


class Quota:
    """The engine's lock is held around every check. A bound of 0 is no bound."""

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
        if self.max_bytes and self._totals.size + size > self.max_bytes and not is_internal(name):
            raise QuotaExceeded("max_total_bytes", self.max_bytes)
