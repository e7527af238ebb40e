"""Which links hang on which log, and what has changed: one listener per log, whatever the number of subscriptions, and
one wake-up per burst.

That a log has changed is known here before whoever appended to it is told that it has: so who asks right after an
append finds it, even when the loop has not come round to it yet.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import perf_counter

from strandline.delivery.hub import SLICE_SECONDS, Hub
from strandline.delivery.subscriptions.links import Link
from strandline.engine import Engine, Log


class Watch:
    """``changed`` is told of links whose log has changed, ``made`` of logs that are new. A task of the scheduler while
    there is something to tell."""

    def __init__(self, engine: Engine, hub: Hub, changed: Callable[[Link], None], made: Callable[[Log], None]) -> None:
        self._engine = engine
        self._hub = hub
        self._changed = changed
        self._made = made
        self._links: dict[int, list[Link]] = {}
        self._endings: dict[int, Callable[[], None]] = {}
        #: Epochs of logs that have changed. Whatever thread changes them puts them in, the loop takes them out.
        self._touched: dict[int, None] = {}
        self._posted = False
        self._next_epoch = engine.next_epoch
        self._thread = threading.get_ident()

    # --- who waits for what --------------------------------------------------------------------------------------

    def add(self, link: Link) -> None:
        """The link has a log from now on."""
        assert link.log is not None
        epoch = link.log.epoch
        links = self._links.get(epoch)
        if links is None:
            self._endings[epoch] = link.log.listen(self._touch)
            self._links[epoch] = [link]
        else:
            links.append(link)

    def remove(self, link: Link) -> None:
        assert link.log is not None
        epoch = link.log.epoch
        links = self._links[epoch]
        links.remove(link)
        if not links:
            self._endings.pop(epoch)()
            del self._links[epoch]

    def _touch(self, log: Log) -> None:
        """Called by the engine, on any thread, with its lock held."""
        self._touched[log.epoch] = None
        if not self._posted:
            self._posted = True
            if threading.get_ident() == self._thread:
                self._hub.submit(self)
            else:
                self._hub.post(self._submit)

    def _submit(self) -> None:
        self._hub.submit(self)

    # --- telling -------------------------------------------------------------------------------------------------

    def priority(self, now: int) -> int:
        return 0

    def run(self) -> None:
        """Tell as much as a slice of time allows; the rest in the next turn."""
        until = perf_counter() + SLICE_SECONDS
        self._posted = False
        self.look_for_new()
        while self._touched:
            self._tell(self._touched.popitem()[0])
            if perf_counter() > until:
                if self._touched:
                    self._posted = True
                    self._hub.submit(self)
                return

    def catch_up(self) -> None:
        """Tell everything that has changed so far."""
        self.look_for_new()
        while self._touched:
            self._tell(self._touched.popitem()[0])

    def look_for_new(self) -> None:
        """Tell of logs that were made since, by whatever protocol."""
        engine = self._engine
        while self._next_epoch < engine.next_epoch:
            book = engine.by_epoch.get(self._next_epoch)
            self._next_epoch += 1
            log = None if book is None else engine.find(book.name)
            if log is not None:
                self._made(log)

    def _tell(self, epoch: int) -> None:
        for link in tuple(self._links.get(epoch, ())):
            if link.log is not None and link.log.epoch == epoch:
                self._changed(link)
