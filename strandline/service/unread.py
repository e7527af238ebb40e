"""Limits the data that clients have not read yet: the bytes in the write buffers of connections.

A connection is added when its buffer passes the high-water mark of the transport, and removed when the client has
caught up. This covers all protocols and both lanes. A client that reads nothing for some time is disconnected. If all
clients together leave too much unread, those that hold the most for the longest are disconnected.

Use this module only on the event loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from time import monotonic

from strandline.service.frequent_warning import FrequentWarning
from strandline.service.http import Holder

log = logging.getLogger(__name__)

#: When the total passes the limit, readers are cut off until it falls to this share of the limit. The margin prevents
#: another search for the worst readers after the next few answers.
RELIEF = 0.9
#: A reader that is cut off gets this time to read its buffer and the last message of its protocol.
GRACE_SECONDS = 1.0
#: Above this multiple of the limit, connections are reset at once.
HARD_LIMIT = 1.5


class _Wait:
    """Since when a client has not kept up, when it last made progress, and its unread bytes."""

    __slots__ = ("ending", "moved_at", "since", "size")

    def __init__(self, size: int, now: float) -> None:
        self.size = size
        self.since = now
        self.moved_at = now
        self.ending = False


class UnreadBytes:
    """``limit`` is the number of bytes that all clients together may leave unread; 0: no limit. A client that reads
    nothing for ``timeout`` seconds is cut off."""

    def __init__(self, limit: int = 0, timeout: float = 30.0, now: Callable[[], float] = monotonic) -> None:
        self._limit = limit
        self._timeout = timeout
        self._now = now
        self._waits: dict[Holder, _Wait] = {}
        #: The unread bytes at the last check of each holder. Buffers only drain, so this is seldom too low.
        self.total = 0
        #: Number of readers that were cut off.
        self.cut = 0
        self._relief_due = False
        self._warn = FrequentWarning(log, "disconnected %d slow readers: %s", now)

    def __len__(self) -> int:
        return len(self._waits)

    @property
    def sweep_seconds(self) -> float:
        """The interval for calling ``sweep``: a quarter of the timeout, within bounds."""
        return min(5.0, max(0.05, self._timeout / 4))

    def add(self, holder: Holder) -> None:
        """The client does not keep up. Adding it again updates its unread bytes."""
        wait = self._waits.get(holder)
        size = holder.unread_bytes
        if wait is None:
            wait = self._waits[holder] = _Wait(size, self._now())
        else:
            self.total -= wait.size
            wait.size = size
        self.total += size
        if self._limit and self.total > self._limit and not self._relief_due:
            self._relief_due = True
            # Not now: the caller is still writing to this holder.
            asyncio.get_running_loop().call_soon(self.relieve)

    def remove(self, holder: Holder) -> None:
        """The client has caught up or disconnected."""
        wait = self._waits.pop(holder, None)
        if wait is not None:
            self.total -= wait.size

    def stalled_seconds(self, holder: Holder) -> float | None:
        """How long the client has read nothing; None if it keeps up."""
        wait = self._waits.get(holder)
        return None if wait is None else self._now() - wait.moved_at

    def sweep(self) -> None:
        """Cut off the clients that have read nothing for too long."""
        now = self._now()
        self._look(now)
        for holder, wait in list(self._waits.items()):
            if not wait.ending and now - wait.moved_at >= self._timeout:
                self._cut_off(holder, wait, "read nothing for %.0f seconds" % self._timeout)  # noqa: UP031

    def _look(self, now: float) -> None:
        """Update the unread bytes of every holder."""
        total = 0
        for holder, wait in self._waits.items():
            size = holder.unread_bytes
            if size < wait.size:
                wait.moved_at = now
            wait.size = size
            total += size
        self.total = total

    def relieve(self) -> None:
        """Cut off readers until the rest fits the limit, starting with those that hold the most for the longest."""
        self._relief_due = False
        now = self._now()
        self._look(now)
        if self.total <= self._limit:
            return
        over = sum(wait.size for wait in self._waits.values() if not wait.ending) - self._limit * RELIEF
        waiting = [(holder, wait) for holder, wait in self._waits.items() if not wait.ending]
        waiting.sort(key=lambda one: one[1].size * (now - one[1].since + 1.0), reverse=True)
        for holder, wait in waiting:
            if over <= 0:
                break
            over -= wait.size
            self._cut_off(holder, wait, f"all readers together left more than {self._limit} bytes unread")
        if self.total > self._limit * HARD_LIMIT:
            for holder in [holder for holder, wait in self._waits.items() if wait.ending]:
                holder.cut_off(0.0)

    def _cut_off(self, holder: Holder, wait: _Wait, why: str) -> None:
        wait.ending = True
        self.cut += 1
        self._warn(why)
        holder.cut_off(GRACE_SECONDS)
