"""The data that clients have not read yet: bytes in the write buffers of connections.

A connection is added when its buffer passes the high-water mark of the transport, and removed when the client has
caught up. This covers all protocols and both lanes. A client that reads nothing for a while is disconnected. When all
clients together leave more unread than the limit, the worst ones are disconnected too.

Only used on the event loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from time import monotonic

from strandline.service.http import Holder

log = logging.getLogger(__name__)

#: When the total passes the limit, readers are disconnected until it is down to this share of the limit. The margin
#: keeps the next few answers from starting another search for the worst readers.
RELIEF = 0.9
#: A reader that is disconnected has this many seconds to read its data and the last message of its protocol.
GRACE_SECONDS = 1.0
#: Above this multiple of the limit, connections are reset at once.
HARD_LIMIT = 1.5
#: Disconnections are logged at most this often, with their number.
LOG_SECONDS = 10.0


class _Wait:
    """How long a client has not caught up, and how much it held when it last made progress."""

    __slots__ = ("ending", "moved_at", "since", "size")

    def __init__(self, size: int, now: float) -> None:
        self.size = size
        self.since = now
        self.moved_at = now
        self.ending = False


class UnreadBytes:
    """``limit`` is the number of bytes that all clients together may leave unread; 0: no limit. A client that reads
    nothing for ``timeout`` seconds is disconnected."""

    def __init__(self, limit: int = 0, timeout: float = 30.0, now: Callable[[], float] = monotonic) -> None:
        self._limit = limit
        self._timeout = timeout
        self._now = now
        self._waits: dict[Holder, _Wait] = {}
        #: The bytes as of the last check of each holder. Buffers only drain, so the total is never too low for long.
        self.total = 0
        #: How many readers were disconnected so far.
        self.cut = 0
        self._relief_due = False
        self._logged_at = -LOG_SECONDS
        self._logged = 0

    def __len__(self) -> int:
        return len(self._waits)

    @property
    def sweep_seconds(self) -> float:
        """How often to call ``sweep`` so that the timeout is kept to within a quarter."""
        return min(5.0, max(0.05, self._timeout / 4))

    def add(self, holder: Holder) -> None:
        """The client is too slow. Adding it again updates how much it holds."""
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
            # Not at once: the caller is in the middle of writing to the holder.
            asyncio.get_running_loop().call_soon(self.relieve)

    def remove(self, holder: Holder) -> None:
        """The client has caught up, or its connection is closed."""
        wait = self._waits.pop(holder, None)
        if wait is not None:
            self.total -= wait.size

    def sweep(self) -> None:
        """Disconnect the clients that have read nothing for too long."""
        now = self._now()
        self._look(now)
        for holder, wait in list(self._waits.items()):
            if not wait.ending and now - wait.moved_at >= self._timeout:
                self._cut_off(holder, wait, "read nothing for %.0f seconds" % self._timeout)  # noqa: UP031

    def _look(self, now: float) -> None:
        """Check how much each holder has left."""
        total = 0
        for holder, wait in self._waits.items():
            size = holder.unread_bytes
            if size < wait.size:
                wait.moved_at = now
            wait.size = size
            total += size
        self.total = total

    def relieve(self) -> None:
        """Disconnect readers until the rest fits, starting with those that have held the most for the longest."""
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
        self._logged += 1
        now = self._now()
        if now - self._logged_at >= LOG_SECONDS:
            log.warning("disconnected %d slow readers: %s", self._logged, why)
            self._logged_at, self._logged = now, 0
        holder.cut_off(GRACE_SECONDS)
