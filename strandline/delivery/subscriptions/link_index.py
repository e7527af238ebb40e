"""Which subscription covers which logs, by name or by pattern, and which logs have changed.

There is one listener per log, whatever the number of subscriptions, and one wake-up per burst. A change is registered
before the append returns, so a request right after an append sees it even if the event loop has not processed it yet.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from time import perf_counter
from typing import Any

from strandline.delivery.hub import SLICE_SECONDS, Hub
from strandline.delivery.subscriptions.events import Acknowledged, Event, LinkedEvent, UnlinkedEvent
from strandline.delivery.subscriptions.subscription import PLACES_PER_EVENT, Link, Subscription
from strandline.engine import Commit, Engine, Log
from strandline.engine.errors import EngineError


class LogWatch:
    """Calls ``changed`` with links whose log has changed, and ``made`` with new logs. The scheduler runs it while there
    are changes to report."""

    def __init__(self, engine: Engine, hub: Hub, changed: Callable[[Link], None], made: Callable[[Log], None]) -> None:
        self._engine = engine
        self._hub = hub
        self._changed = changed
        self._made = made
        self._links: dict[int, list[Link]] = {}
        self._endings: dict[int, Callable[[], None]] = {}
        #: Epochs of changed logs. The changing thread adds them and the loop removes them.
        self._touched: dict[int, None] = {}
        self._posted = False
        self._next_epoch = engine.next_epoch
        self._thread = threading.get_ident()

    # --- links ---------------------------------------------------------------------------------------------------

    def add(self, link: Link) -> None:
        """Watch the log of the link."""
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
        """Called by the engine on any thread, while it holds its lock."""
        self._touched[log.epoch] = None
        if not self._posted:
            self._posted = True
            if threading.get_ident() == self._thread:
                self._hub.submit(self)
            else:
                self._hub.post(self._submit)

    def _submit(self) -> None:
        self._hub.submit(self)

    # --- reporting -----------------------------------------------------------------------------------------------

    def priority(self, now: int) -> int:
        return 0

    def run(self) -> None:
        """Report changes until the time slice ends. The next turn reports the rest."""
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
        """Report all changes so far."""
        self.look_for_new()
        while self._touched:
            self._tell(self._touched.popitem()[0])

    def look_for_new(self) -> None:
        """Report the logs that were created since the last call, by any protocol."""
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


logger = logging.getLogger(__name__)

#: The number of names to examine, or links to drop, before other tasks get their turn.
NAMES_PER_TURN = 200

Write = Callable[[list[Event]], Commit[Any]]


class Linking:
    """Keeps the links of all subscriptions current.

    ``visible`` returns whether a log can be subscribed to. ``pending`` is called with a subscription and the name of
    its log that has records to acknowledge. ``write`` stores events.
    """

    def __init__(
        self,
        engine: Engine,
        hub: Hub,
        visible: Callable[[Log], bool],
        write: Write,
        pending: Callable[[Subscription, str], None],
    ) -> None:
        self._engine = engine
        self._hub = hub
        self._visible = visible
        self._write = write
        self._pending = pending
        self.watch = LogWatch(engine, hub, self._changed, self._made)
        #: Subscriptions with a pattern, by the first segment of the names they match, or "" if it is not fixed.
        self._patterns: dict[str, dict[str, Subscription]] = {}
        #: Links without a log, by name.
        self._awaited: dict[str, dict[Link, None]] = {}
        self._wake_streams: Counter[str] = Counter()

    # --- all subscriptions ---------------------------------------------------------------------------------------

    def load(self, subscriptions: Mapping[str, Subscription]) -> None:
        """Restore all links after a restart."""
        for subscription in subscriptions.values():
            self.add(subscription)
        for subscription in subscriptions.values():
            for link in list(subscription.links):
                if link.explicit:
                    self._find_log(link)
            self._load_matching(subscription)
            for link in list(subscription.links):
                if not link.explicit and not link.matched:
                    subscription.links.remove(link)

    def _load_matching(self, subscription: Subscription) -> None:
        """Link the matching logs. A log that is older than the subscription and has no link was left out because the
        creation was interrupted. It is linked at its current end, and the link is stored."""
        places: list[Acknowledged] = []
        for log in self._matching(subscription):
            known = subscription.links.find(log.name)
            if known is None and log.epoch < subscription.next_epoch:
                places.append(self._match(subscription, log, log.head).place)
            else:
                self._match(subscription, log)
        try:
            for start in range(0, len(places), PLACES_PER_EVENT):
                self._write_links(subscription, places[start : start + PLACES_PER_EVENT])
        except EngineError as error:
            logger.error("subscription %r: cannot store its positions: %s", subscription.id, error)

    def add(self, subscription: Subscription) -> None:
        """Register a subscription without linking existing logs."""
        if subscription.glob is not None:
            first = subscription.glob.prefix.partition("/")
            self._patterns.setdefault(first[0] if first[1] else "", {})[subscription.id] = subscription
        name = subscription.definition.wake_stream
        if name is not None:
            self._wake_streams[name] += 1
            for other, link in self._links_to(name):
                if link.matched:
                    link.matched = False
                    self._drop_unless_wanted(other, link)

    def remove(self, subscription: Subscription) -> None:
        if subscription.glob is not None:
            for group in self._patterns.values():
                group.pop(subscription.id, None)
        self._forget_some(list(subscription.links))
        name = subscription.definition.wake_stream
        if name is not None:
            self._wake_streams[name] -= 1
            if not self._wake_streams[name]:
                del self._wake_streams[name]
                self._release_wake_stream(name)

    def _forget_some(self, links: list[Link]) -> None:
        """Remove these links in several turns."""
        for link in links[-NAMES_PER_TURN:]:
            self._forget(link)
        del links[-NAMES_PER_TURN:]
        if links:
            self._hub.loop.call_soon(self._forget_some, links)

    def _release_wake_stream(self, name: str) -> None:
        """A log that no longer receives wakes can be matched by patterns again."""
        log = self._engine.find(name)
        if log is not None and self._visible(log):
            for subscription in self._matched_by(name):
                with suppress(EngineError):
                    self._write([LinkedEvent(subscription.id, [Acknowledged(name, log.epoch, log.head)], False)])
                self._match(subscription, log, log.head)

    # --- existing logs -------------------------------------------------------------------------------------------

    def existing(self, subscription: Subscription) -> Iterator[None]:
        """Link all existing logs that match the pattern of a new subscription, at their current end. It yields between
        steps so that other tasks get their turn."""
        places: list[Acknowledged] = []
        for count, log in enumerate(self._matching(subscription), 1):
            if subscription.removed:
                return
            if log.epoch < subscription.next_epoch:
                link = self._match(subscription, log, log.head)
                places.append(link.place)
            if count % NAMES_PER_TURN == 0:
                self._write_links(subscription, places)
                places = []
                yield
        self._write_links(subscription, places)

    def _write_links(self, subscription: Subscription, places: list[Acknowledged]) -> None:
        if places:
            self._write([LinkedEvent(subscription.id, places, False)])

    def _matching(self, subscription: Subscription) -> Iterator[Log]:
        if subscription.glob is None:
            return
        after = ""
        while names := self._engine.names(subscription.glob.prefix, after, NAMES_PER_TURN):
            for name in names:
                if subscription.matches(name) and name not in self._wake_streams:
                    log = self._engine.find(name)
                    if log is not None and self._visible(log):
                        yield log
            after = names[-1]

    def _match(self, subscription: Subscription, log: Log, acked: int = 0) -> Link:
        """Link a matching log. A new link starts with ``acked`` as its acknowledged position."""
        link = subscription.links.find(log.name)
        if link is None:
            link = subscription.links.make(log.name)
            link.epoch, link.acked = log.epoch, acked
        if link.log is not None and link.log.epoch != log.epoch:
            self._detach(link)  # that log was dropped, which was not reported yet
        link.matched = True
        if link.log is None:
            self._attach(link, log)
        return link

    # --- named logs ----------------------------------------------------------------------------------------------

    def places(self, subscription: Subscription | None, names: Iterable[str]) -> list[Acknowledged]:
        """The positions at which these logs are linked by name: the current position of a link, or the end of the
        log."""
        found = []
        for name in names:
            link = None if subscription is None else subscription.links.find(name)
            log = self._engine.find(name)
            if link is not None:
                found.append(link.place)
            elif log is not None and self._visible(log):
                found.append(Acknowledged(name, log.epoch, log.head))
            else:
                found.append(Acknowledged(name, 0, 0))
        return found

    def name(self, subscription: Subscription, names: Iterable[str]) -> None:
        """Subscribe to these logs by name. The caller stores the event."""
        for name in names:
            link = subscription.links.make(name)
            link.explicit = True
            if link.log is None:
                self._find_log(link)

    def unname(self, subscription: Subscription, name: str) -> Commit[Any] | None:
        """Remove a subscription by name. Returns None if the log was not named. A log that the pattern matches stays
        linked."""
        link = subscription.links.find(name)
        if link is None or not link.explicit:
            return None
        event = UnlinkedEvent(subscription.id, name)
        commit = self._write([event])
        subscription.apply(event)
        self._drop_unless_wanted(subscription, link)
        return commit

    # --- created and dropped logs --------------------------------------------------------------------------------

    def _made(self, log: Log) -> None:
        if not self._visible(log):
            return
        for link in list(self._awaited.get(log.name, ())):
            self._find_log(link)
        if log.name not in self._wake_streams:
            for subscription in self._matched_by(log.name):
                self._match(subscription, log)

    def _changed(self, link: Link) -> None:
        log = link.log
        assert log is not None
        if log.dropped or not self._visible(log):
            self._detach(link)
            if not link.explicit:
                link.subscription.links.remove(link)
            else:
                self._find_log(link)
        else:
            self._look(link)

    def _look(self, link: Link) -> None:
        links = link.subscription.links
        links.note(link)
        if link in links.pending:
            self._pending(link.subscription, link.name)

    def _find_log(self, link: Link) -> None:
        """Attach the log of this name, or wait until it is created."""
        if link.subscription.removed:
            return
        log = self._engine.find(link.name)
        if log is not None and self._visible(log):
            self._expect_no_longer(link)
            self._attach(link, log)
        else:
            link.epoch = link.acked = 0
            self._awaited.setdefault(link.name, {})[link] = None

    def _attach(self, link: Link, log: Log) -> None:
        if link.epoch != log.epoch:
            link.epoch, link.acked = log.epoch, 0
        link.log = log
        self.watch.add(link)
        self._look(link)

    def _detach(self, link: Link) -> None:
        if link.log is not None:
            self.watch.remove(link)
            link.log = None
        link.matched = False
        link.subscription.links.pending.pop(link, None)

    def _forget(self, link: Link) -> None:
        self._detach(link)
        self._expect_no_longer(link)
        link.subscription.links.remove(link)

    def _expect_no_longer(self, link: Link) -> None:
        awaited = self._awaited.get(link.name)
        if awaited is not None:
            awaited.pop(link, None)
            if not awaited:
                del self._awaited[link.name]

    def _drop_unless_wanted(self, subscription: Subscription, link: Link) -> None:
        if not link.explicit and not link.matched:
            self._forget(link)

    def _matched_by(self, name: str) -> list[Subscription]:
        groups = {name.partition("/")[0], ""}
        found = (subscription for group in groups for subscription in self._patterns.get(group, {}).values())
        return [subscription for subscription in found if subscription.matches(name)]

    def _links_to(self, name: str) -> list[tuple[Subscription, Link]]:
        found = []
        for subscription in self._matched_by(name):
            link = subscription.links.find(name)
            if link is not None:
                found.append((subscription, link))
        return found
