"""Flushing where a request is served, instead of in the thread for flushes.

Handing a commit to that thread and back to the event loop takes about 0.1 ms, as long as the flush itself on a quick
disk. A flush in place blocks the event loop, so it happens only if the loop has nothing else to do: the last two
requests of the whole server were changes that wait for the disk, from the same connection, nothing else waits for a
flush, and the disk is quick. Several clients share the flushes of the thread, and the loop serves one while another
waits.
"""

from __future__ import annotations

from collections.abc import Callable

from strandline.engine import Engine

#: A flush in place delays requests that arrive meanwhile by at most about this long. If the disk is slower, the time of
#: the threads does not matter.
MAX_FLUSH_US = 1_000.0


class FlushInPlace:
    """``requests`` returns the number of requests that the server has received, ``in_a_row`` the number of those
    directly before the last one that came from the same connection. Used on the event loop only."""

    def __init__(self, engine: Engine, requests: Callable[[], int], in_a_row: Callable[[], int]) -> None:
        self._flushing = engine.flushing
        self._requests = requests
        self._in_a_row = in_a_row
        #: The number of requests when the last change waited for the disk.
        self._before = 0

    def is_best(self) -> bool:
        """Called once for every request whose change waits for the disk: whether to flush now, on this thread."""
        flushing, requests = self._flushing, self._requests()
        follows, self._before = requests == self._before + 1, requests
        return (
            follows
            and self._in_a_row() > 0
            and flushing.pending == 1
            and not flushing.awaits_replica
            and not flushing.unshipped
            and flushing.times.last <= MAX_FLUSH_US
            # A flush in progress may be of another kind, such as the one before a backup, and slow.
            and not flushing.turns.locked()
        )
