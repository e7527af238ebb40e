"""Flushing where a request is served, instead of in the thread for flushes.

Handing a commit to that thread and back to the event loop takes about 0.1 ms, as long as the flush itself on a quick
disk. A flush in place blocks the event loop, so it happens only if the loop has nothing else to do: the last two
requests of the whole server were changes that wait for the disk, each came alone in its turn of the event loop, nothing
else waits for a flush, and the disk is quick. Requests that arrive during a flush in place come together in the next
turn. They share a flush of the thread, and the loop serves further requests meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable

from strandline.engine import Engine

#: A flush in place delays requests that arrive meanwhile by at most about this long. If the disk is slower, the time of
#: the threads does not matter.
MAX_FLUSH_US = 1_000.0


class FlushInPlace:
    """``requests`` returns the number of requests that the server has received. ``call_soon`` calls a function when the
    turn of the event loop ends. Used on the event loop only."""

    def __init__(
        self, engine: Engine, requests: Callable[[], int], call_soon: Callable[[Callable[[], None]], object]
    ) -> None:
        self._flushing = engine.flushing
        self._requests = requests
        self._call_soon = call_soon
        #: The changes of this turn that wait for the disk, and whether the last turn with such changes had only one.
        self._changes = 0
        self._was_alone = True
        #: The number of requests when the last change waited for the disk.
        self._before = 0

    def is_best(self) -> bool:
        """Called once for every request whose change waits for the disk: whether to flush now, on this thread."""
        flushing, requests = self._flushing, self._requests()
        follows, self._before = requests == self._before + 1, requests
        self._changes += 1
        if self._changes == 1:
            self._call_soon(self._end_turn)
        return (
            follows
            and self._was_alone
            and self._changes == 1
            and flushing.pending == 1
            and flushing.times.last <= MAX_FLUSH_US
            # A flush in progress may be of another kind, such as the one before a backup, and slow.
            and not flushing.turns.locked()
        )

    def _end_turn(self) -> None:
        self._was_alone = self._changes == 1
        self._changes = 0
