"""The lifetime of a log that was created with a time to live or an expiry time."""

from __future__ import annotations

from strandline.engine import Log
from strandline.engine.clock import MAX_AHEAD_MS
from strandline.engine.errors import EngineError

#: The note that holds the time until which a log counts as used.
USED = "used"
#: The note is written ahead by this share of the time to live, at most a minute, so that reads seldom write.
_AHEAD = 4
_MAX_AHEAD_MS = 60_000


class Lifetime:
    """One object per log: the time of the last use is only in memory. Times are in milliseconds.

    ``ttl_seconds`` slides: every use of the log restarts it. ``fixed`` is an expiry time that does not move.
    """

    __slots__ = ("_used_until", "fixed", "log", "ttl_seconds", "used_at")

    def __init__(self, log: Log, ttl_seconds: int | None, fixed: int | None, created_at: int, now: int) -> None:
        self.log = log
        self.ttl_seconds = ttl_seconds
        self.fixed = fixed
        self._used_until = int(log.notes.get(USED, 0))
        self.used_at = max(self._used_until, created_at)
        if self.used_at > now + MAX_AHEAD_MS:
            # The clock was wrong when the log was last used.
            self.used_at, self._used_until = now, 0

    @property
    def expires_at(self) -> int:
        """When the log is removed unless it is used before."""
        if self.ttl_seconds is not None:
            return self.used_at + self.ttl_seconds * 1000
        assert self.fixed is not None
        return self.fixed

    def expired(self, now: int) -> bool:
        return now >= self.expires_at

    def use(self, now: int) -> None:
        """The log was read or written: restart a sliding time to live. The note is written ahead of time, so that a
        restarted server never expires a log too early."""
        ttl_seconds = self.ttl_seconds
        if ttl_seconds is None or now <= self.used_at:
            return
        self.used_at = now
        if now > self._used_until and ttl_seconds:
            self._used_until = now + min(ttl_seconds * 1000 // _AHEAD, _MAX_AHEAD_MS)
            try:
                self.log.note({USED: self._used_until})
            except EngineError:
                pass  # the read still succeeds; the next write reports the failure
