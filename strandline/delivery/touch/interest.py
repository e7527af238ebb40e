"""Interest: who waits on what, and what somebody waited on a short while ago.

What nobody is interested in need not be recorded. Whoever comes later, with a cursor from a time when it was not,
learns from ``since`` that something may be missing.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from strandline.delivery.touch.waiting import Wait


class Interest:
    """Of somebody in one thing. Everything of a later generation than ``since`` is recorded."""

    __slots__ = ("since", "until", "waits")

    def __init__(self, since: int) -> None:
        self.since = since
        self.until: float | None = None
        self.waits: dict[Wait, None] = {}


class Interests:
    """By what they are in. An interest outlives its last waiter by ``ttl_ms``; when there are more than ``limit``,
    those that nobody waits on any more go first."""

    def __init__(self, ttl_ms: int, limit: int) -> None:
        self.by_key: dict[int, Interest] = {}
        #: How many have somebody who waits.
        self.active = 0
        self._ttl_ms = ttl_ms
        self._limit = limit
        self._ending: deque[tuple[float, int]] = deque()

    def __len__(self) -> int:
        return len(self.by_key)

    @property
    def in_grace(self) -> int:
        """How many nobody waits on any more."""
        return len(self.by_key) - self.active

    def join(self, key: int, wait: Wait, since: int) -> None:
        """``since`` is what is true of an interest that begins now."""
        interest = self.by_key.get(key)
        if interest is None:
            interest = self._begin(key, since)
        if not interest.waits:
            interest.until = None
            self.active += 1
        interest.waits[wait] = None

    def leave(self, key: int, wait: Wait, now: float) -> None:
        interest = self.by_key.get(key)
        if interest is None or interest.waits.pop(wait, self) is self or interest.waits:
            return
        self.active -= 1
        self._end(key, interest, now)

    def show(self, key: int, now: float, since: int) -> None:
        """Somebody is interested without waiting."""
        interest = self.by_key.get(key) or self._begin(key, since)
        if not interest.waits:
            self._end(key, interest, now)

    def lasts_since(self, key: int, generation: int) -> bool:
        """Whether everything of a later generation was recorded."""
        interest = self.by_key.get(key)
        return interest is not None and interest.since <= generation

    def _begin(self, key: int, since: int) -> Interest:
        while len(self.by_key) >= self._limit and self._ending:
            self._forget(*self._ending.popleft())
        interest = self.by_key[key] = Interest(since)
        return interest

    def _end(self, key: int, interest: Interest, now: float) -> None:
        interest.until = now + self._ttl_ms
        self._ending.append((interest.until, key))

    def sweep(self, now: float) -> None:
        """Forget what was of interest too long ago."""
        ending = self._ending
        while ending and ending[0][0] <= now:
            self._forget(*ending.popleft())

    def _forget(self, until: float, key: int) -> None:
        interest = self.by_key.get(key)
        # One that somebody waits on again, or waited on since, has another end.
        if interest is not None and interest.until == until:
            del self.by_key[key]
