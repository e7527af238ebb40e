"""All feeds of a server: one per log that somebody watches."""

from __future__ import annotations

from strandline.delivery.hub import Hub
from strandline.delivery.pressure import Pressure
from strandline.delivery.watch.feed import Feed, Place

#: How often it is looked whether the server is still too busy for the logs of negative priority.
RETRY_SECONDS = 0.1


class Feeds:
    """Lives on the loop, like everything here."""

    def __init__(self, hub: Hub, pressure: Pressure) -> None:
        self.hub = hub
        self._pressure = pressure
        self._feeds: dict[int, Feed] = {}
        self._paused: set[Feed] = set()

    def __len__(self) -> int:
        """How many logs are watched."""
        return len(self._feeds)

    def attach(self, place: Place) -> None:
        """From now on the place's reader is told when there is something; what there is already it asks for itself.

        Raises UnknownLog if the log is gone.
        """
        assert place.feed is None
        log = place.subject.log
        feed = self._feeds.get(log.epoch)
        if feed is None:
            feed = Feed(self.hub, place.subject, self)
            self.hub.watch(log, feed)
            self._feeds[log.epoch] = feed
        feed.places[place] = None
        place.feed = feed

    def detach(self, place: Place) -> None:
        """The place's reader is not told any more. Harmless if it was not anyway."""
        feed, place.feed = place.feed, None
        place.queued = False
        if feed is not None:
            feed.places.pop(place, None)
            if not feed.places:
                self.forget(feed)

    def forget(self, feed: Feed) -> None:
        """Called when nobody reads along in the log any more."""
        log = feed.subject.log
        self.hub.unwatch(log, feed)
        self.hub.scheduler.withdraw(feed)
        self._paused.discard(feed)
        self._feeds.pop(log.epoch, None)

    # --- when the server is too busy -------------------------------------------------------------------------------

    def held(self, feed: Feed) -> bool:
        """Logs of negative priority wait while the server sheds load."""
        if feed.paused:
            return True
        if not self._pressure.shedding or feed.subject.priority(self.hub.now()) >= 0:
            return False
        feed.paused = True
        if not self._paused:
            self.hub.loop.call_later(RETRY_SECONDS, self.retry)
        self._paused.add(feed)
        for place in list(feed.places):
            place.reader.paced(place)
        return True

    def retry(self) -> None:
        """Let those go on for whom the server is not too busy any more."""
        now = self.hub.now()
        try:
            for feed in list(self._paused):
                if not self._pressure.shedding or feed.subject.priority(now) >= 0:
                    self._paused.discard(feed)
                    feed.paused = False
                    feed.queue_all()
        finally:
            if self._paused:
                self.hub.loop.call_later(RETRY_SECONDS, self.retry)
