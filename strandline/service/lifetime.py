"""The lifetime of a log that was created with a time to live or an expiry time."""

from __future__ import annotations

from strandline.engine import Log
from strandline.engine.clock import MAX_AHEAD_MS
from strandline.engine.errors import EngineError

#: The name of the note with the time until which the log counts as used.
USED = "used"
#: The note states a time in the future, so that reads seldom write one: a quarter of the time to live, at most a
#: minute.
_AHEAD = 4
_MAX_AHEAD_MS = 60_000


class Lifetime:
    """When a log expires. There is one object per log, because the exact time of the last use is only in memory.

    ``ttl_seconds`` is a sliding time to live: every use of the log restarts it. ``fixed`` is an expiry time that does
    not move. Times are in milliseconds.
    """

    __slots__ = ("_used_until", "fixed", "log", "ttl_seconds", "used_at")

    def __init__(self, log: Log, ttl_seconds: int | None, fixed: int | None, now: int) -> None:
        self.log = log
        self.ttl_seconds = ttl_seconds
        self.fixed = fixed
        self._used_until = int(log.notes.get(USED, 0))
        self.used_at = max(self._used_until, log.created_at)
        if self.used_at > now + MAX_AHEAD_MS:
            # The clock was wrong when the log was last used.
            self.used_at, self._used_until = now, 0

    @property
    def expires_at(self) -> int:
        """When the log expires if it is not used before."""
        if self.ttl_seconds is not None:
            return self.used_at + self.ttl_seconds * 1000
        assert self.fixed is not None
        return self.fixed

    def expired(self, now: int) -> bool:
        return now >= self.expires_at

    def use(self, now: int) -> None:
        """Restart a sliding time to live, because the log is read or written. The note states a time in the future, so
        a restart never makes the log expire too early."""
        ttl_seconds = self.ttl_seconds
        if ttl_seconds is None or now <= self.used_at:
            return
        self.used_at = now
        if now > self._used_until and ttl_seconds:
            self._used_until = now + min(ttl_seconds * 1000 // _AHEAD, _MAX_AHEAD_MS)
            try:
                self.log.note({USED: self._used_until})
            except EngineError:
                pass  # a read must not fail because of it; the next write reports the failure
