"""Rate limits: how many rows a user may append within any stretch of time of a given length."""

from __future__ import annotations

from collections import deque

from msgspec import Struct

from strandline.tables.errors import BadDeclaration, TableError

#: A limit that is only a number is per minute.
MINUTE = 60_000
#: So many users are remembered before those are looked for of whom nothing needs to be.
_MANY_USERS = 1024


class RateLimit(Struct, frozen=True):
    """At most ``max`` rows per user within any ``window`` of milliseconds."""

    max: int
    window: int = MINUTE

    def __post_init__(self) -> None:
        for name in ("max", "window"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise BadDeclaration(f"{name} of a rate limit must be a whole number above 0, not {value!r}")


class SlidingWindow:
    """When each user has appended, as far back as the window goes. It is kept in memory: it begins anew with the
    program. Not for several threads at once."""

    def __init__(self, limit: RateLimit, table: str) -> None:
        self._limit = limit
        self._table = table
        self._times: dict[str, deque[int]] = {}
        self._look_at = _MANY_USERS

    def check(self, user: str, count: int, now: int) -> None:
        """Raise unless the user may append so many more rows now."""
        limit = self._limit
        times = self._times.get(user, ())
        if isinstance(times, deque):
            _forget(times, now - limit.window)
        if len(times) + count <= limit.max:
            return
        described = {"max": limit.max, "remaining": max(limit.max - len(times), 0), "window": limit.window}
        if count > limit.max:
            message = (
                f"{count} rows at once are more than the {limit.max} that {self._table} takes in {limit.window} ms"
            )
            raise TableError("VALIDATION_FAILED", message, limit=described, table=self._table, op="append")
        # So many of the oldest must be out of the window first.
        last_to_go = times[len(times) + count - limit.max - 1]
        retry_after = last_to_go + limit.window - now
        message = f"{self._table} takes {limit.max} rows of a user in {limit.window} ms: try again in {retry_after} ms"
        raise TableError(
            "RATE_LIMITED", message, retryAfter=retry_after, limit=described, table=self._table, op="append"
        )

    def add(self, user: str, count: int, now: int) -> None:
        """So many rows were appended."""
        times = self._times.get(user)
        if times is None:
            if len(self._times) >= self._look_at:
                self._forget_users(now)
            times = self._times[user] = deque()
        times.extend([now] * count)

    def _forget_users(self, now: int) -> None:
        for user, times in list(self._times.items()):
            _forget(times, now - self._limit.window)
            if not times:
                del self._times[user]
        self._look_at = max(_MANY_USERS, 2 * len(self._times))


def _forget(times: deque[int], until: int) -> None:
    while times and times[0] <= until:
        times.popleft()
