"""Watch sessions and their streams. The cursors belong to the session: its streams share them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter

from strandline.delivery.hub import SLICE_SECONDS
from strandline.delivery.watch import FeedPage, FeedPosition, Feeds
from strandline.engine.errors import SOON_MS
from strandline.protocols.topics.context import Context
from strandline.protocols.topics.errors import cannot_read
from strandline.protocols.topics.event_frames import (
    RETRY,
    EventContent,
    behind_tombstone,
    caught_up_frame,
    deleted_frame,
    encode_cursor,
    error_frame,
    heartbeat,
    tombstone_frame,
    with_id,
)
from strandline.protocols.topics.topics import Topic
from strandline.protocols.topics.watch_request import Pattern, Watcher, WatchStart, matching, topic_of
from strandline.service.access import Access
from strandline.service.live import Ending, Following, LiveResponse

_LAST_MESSAGES = {
    Ending.NO_SLOT: error_frame(code=429, error=Ending.NO_SLOT.value, retry_after_ms=SOON_MS),
    Ending.TOO_SLOW: error_frame(code=408, error=Ending.TOO_SLOW.value),
    Ending.REVOKED: error_frame(code=401, error=Ending.REVOKED.value),
    Ending.DISCONNECTED: error_frame(code=403, error=Ending.DISCONNECTED.value),
    Ending.SHUTDOWN: error_frame(
        code="server_shutting_down", message="the server is shutting down; reconnect in a moment"
    ),
}

_NOTHING: frozenset[FeedPosition] = frozenset()


class Session(Watcher):
    """What a client watches, and its positions. ``changed`` is called when its streams open and close."""

    __slots__ = ("_ids", "changed", "heartbeat", "idle_since", "streams", "was_watching", "wid")

    def __init__(
        self,
        context: Context,
        feeds: Feeds,
        access: Access,
        wid: str,
        heartbeat_ms: int,
        changed: Callable[[Session], None],
    ) -> None:
        super().__init__(context, feeds, access)
        self.wid = wid
        self.heartbeat = heartbeat_ms / 1000
        self.changed = changed
        self.idle_since = context.hub.now()
        self.streams: list[SessionStream] = []
        #: False if there was nothing to watch from the start: the client named only topics that do not exist.
        self.was_watching = False
        #: The positions in order of their names, with the names as JSON; rebuilt when a topic is added or removed.
        self._ids: list[tuple[bytes, FeedPosition]] | None = None

    def subscribe(self, starts: Mapping[str, WatchStart], patterns: Sequence[Pattern]) -> None:
        self.patterns = tuple(patterns)
        for name, start in starts.items():
            self.places[name] = FeedPosition(self, start.topic, start.cursor, start.view)
        self.was_watching = not self.watches_nothing

    def id(self) -> bytes:
        """The id line for the current positions."""
        if self._ids is None:
            ordered = sorted(self.places.items())
            self._ids = [(topic_of(place).json_name, place) for _, place in ordered]
        return encode_cursor([(name, place.cursor) for name, place in self._ids])

    # --- streams ---------------------------------------------------------------------------------------------------

    def enter(self, stream: SessionStream, rewind: Mapping[str, int]) -> None:
        """A stream was opened. Its client may send newer positions."""
        self.streams.append(stream)
        self.changed(self)
        for name, seq in rewind.items():
            place = self.places.get(name)
            if place is not None:
                place.cursor = min(place.cursor, seq)
        if not self.listening:
            self._begin()
        else:
            for place in self.places.values():
                self.context.consumed(topic_of(place))
                self.context.catch_up(topic_of(place))

    def exit(self, stream: SessionStream) -> None:
        if stream in self.streams:
            self.streams.remove(stream)
            if not self.streams:
                self.leave()
            self.changed(self)

    def _begin(self) -> None:
        """A client reads again: check what has happened to the topics in the meantime."""
        for name, place in list(self.places.items()):
            topic = self.context.topics.find(name)
            if topic is not None:
                place.subject = topic
            if topic is None or not self.attach(place):
                self.gone(place)
        for pattern in self.patterns:
            for topic in matching(self.context, self.access, pattern, self.context.settings.max_watch_topics):
                added = self.cover(topic)
                if added is not None:
                    self.attach(added)
        self._ids = None
        if self.streams:
            self.listen()

    @property
    def watches_nothing(self) -> bool:
        return not self.places and not self.patterns

    # --- events of feeds -------------------------------------------------------------------------------------------

    def deliver(self, place: FeedPosition) -> None:
        streams = self.streams
        if len(streams) == 1 and not streams[0].pending:
            ready = None if streams[0].paused_at else streams[0]
        else:
            for stream in tuple(streams):
                if stream.pending and stream.pending[-1] is place:
                    stream.advance()
            ready = self._ready(place)
        feed = place.feed
        if ready is None or feed is None:
            return
        piece = feed.piece(place)
        if piece is not None:
            ready.take(place, piece)
            if not piece.caught_up:
                feed.queue(place)

    def _ready(self, place: FeedPosition) -> SessionStream | None:
        """A stream that can take a page of the topic; streams take turns."""
        streams = self.streams
        for at, stream in enumerate(streams):
            if not stream.paused_at and place not in stream.pending:
                if len(streams) > 1:
                    streams.append(streams.pop(at))
                return stream
        return None

    def gone(self, place: FeedPosition) -> None:
        data = with_id(self.id(), deleted_frame(place))
        name = topic_of(place).name
        del self.places[name]
        self._ids = None
        for stream in list(self.streams):
            stream.forget(place)
            stream.write(data)
            if self.watches_nothing:
                stream.end()
        self.cover_again(name)

    def paced(self, place: FeedPosition) -> None:
        self._tell(
            error_frame(
                code=429,
                error="the watch is throttled: the server is busy and the topic has a low priority",
                retry_after_ms=SOON_MS,
                topics=[topic_of(place).name],
            )
        )

    def failed(self, place: FeedPosition, error: Exception) -> None:
        name = topic_of(place).name
        why = cannot_read(name, error).message
        for stream in list(self.streams):
            stream.end(error_frame(code=500, error=why, topics=[name]))

    def added(self, place: FeedPosition) -> None:
        self._ids = None
        for stream in self.streams:
            stream.expect(place)

    def crowded(self, topic: Topic) -> None:
        limit = self.context.settings.max_watch_topics
        self._tell(error_frame(code=429, error=f"max_watch_topics ({limit}) is reached", topics=[topic.name]))

    def _tell(self, data: bytes) -> None:
        for stream in self.streams:
            stream.write(data)


class SessionStream(LiveResponse):
    """One open connection of a session: first the backlog, topic by topic, then new records."""

    __slots__ = ("_fresh", "_rewind", "_session", "_stale", "_target", "pending")

    def __init__(self, session: Session, rewind: Mapping[str, int]) -> None:
        super().__init__(session.context.live, session.access)
        self._session = session
        self._rewind = rewind
        #: Topics whose backlog was not sent yet, the next one last; and the end of that topic's backlog.
        self.pending: list[FeedPosition] = []
        self._target = -1
        #: Topics that were not reported as caught up on this connection yet.
        self._fresh: set[FeedPosition] | frozenset[FeedPosition] = _NOTHING
        #: Topics in which records were lost because the reader was late.
        self._stale: set[FeedPosition] | frozenset[FeedPosition] = _NOTHING

    # --- the connection --------------------------------------------------------------------------------------------

    def greeting(self) -> bytes:
        return RETRY

    def begin(self) -> None:
        session = self._session
        nothing_left = session.watches_nothing
        session.enter(self, self._rewind)
        self._rewind = {}
        if session.watches_nothing:
            gone = error_frame(code=410, error="no topic of this session is left; create another session")
            self.end(gone if nothing_left and session.was_watching else b"")
            return
        places = session.places
        self.pending = [places[name] for name in sorted(places, reverse=True)]
        self._fresh = set(self.pending)
        self._stale = set(self.pending)
        self.advance()

    def resumed(self) -> None:
        session = self._session
        grace = session.context.delivery.slow_consumer_grace_ms / 1000
        if self.paused_at and self.live.now() - self.paused_at >= grace:
            self._stale = set(session.places.values())
        super().resumed()

    def go_on(self) -> None:
        self.advance()
        self._session.go_on()

    def leave(self) -> None:
        self._session.exit(self)

    @property
    def heartbeat_seconds(self) -> float:
        return self._session.heartbeat

    def heartbeat(self) -> bytes:
        return heartbeat(self._session.context.hub.now())

    def following(self, most: int) -> Following:
        return Following.of(self._session.places.values(), most)

    def last_message(self, ending: Ending) -> bytes:
        return _LAST_MESSAGES[ending]

    # --- sending ---------------------------------------------------------------------------------------------------

    def advance(self) -> None:
        """Continue with the topics whose backlog was not sent yet, one after the other."""
        until = perf_counter() + SLICE_SECONDS
        pending = self.pending
        while pending and not self.paused_at and not self.ended:
            place = pending[-1]
            feed = place.feed
            if feed is None:
                pending.pop()
                continue
            if perf_counter() > until:
                feed.queue(place)
                return
            if self._target < 0:
                self._target = place.subject.log.head
            piece = feed.piece(place)
            if piece is None:
                if not feed.paused:
                    return
                # Held back while the server is busy: the other topics need not wait for that.
                pending.pop()
                self._target = -1
                continue
            self.take(place, piece)
            # A topic that is written to faster than this reader reads must not block the others.
            if piece.caught_up or place.cursor >= self._target:
                pending.pop()
                self._target = -1
                if not piece.caught_up:
                    feed.queue(place)

    def take(self, place: FeedPosition, piece: FeedPage) -> None:
        """Send a page and move the position after it."""
        session = self._session
        content: EventContent | None = piece.content
        fresh = bool(self._fresh) and place in self._fresh
        if content is None:
            place.move(piece)
            if fresh and piece.caught_up:
                self._fresh = _without(self._fresh, place)
                self._stale = _without(self._stale, place)
                self.write(with_id(session.id(), caught_up_frame(topic_of(place), piece.head)))
            return
        if fresh and piece.caught_up:
            self._fresh = _without(self._fresh, place)
        if content.tombstone is None:
            place.move(piece)
            if self._stale:
                self._stale = _without(self._stale, place)
            if len(session.places) == 1:
                self.write(content.whole)
            else:
                self.write(with_id(session.id(), content.records, content.caught_up))
            return
        too_old = place in self._stale
        self._stale = _without(self._stale, place)
        lost = tombstone_frame(topic_of(place), content.tombstone, too_old=too_old)
        place.cursor = behind_tombstone(content.tombstone, piece)
        head = with_id(session.id(), lost)
        place.move(piece)
        self.write(head + with_id(session.id(), content.records, content.caught_up))

    def expect(self, place: FeedPosition) -> None:
        """A topic was added to the session."""
        self._fresh = {*self._fresh, place}

    def forget(self, place: FeedPosition) -> None:
        """A topic was removed from the session."""
        self._fresh = _without(self._fresh, place)
        self._stale = _without(self._stale, place)
        if place in self.pending:
            if self.pending[-1] is place:
                self._target = -1
            self.pending.remove(place)
            self._session.context.hub.loop.call_soon(self.advance)


def _without(
    places: set[FeedPosition] | frozenset[FeedPosition], place: FeedPosition
) -> set[FeedPosition] | frozenset[FeedPosition]:
    if not places or isinstance(places, frozenset):
        return _NOTHING
    places.discard(place)
    return places or _NOTHING
