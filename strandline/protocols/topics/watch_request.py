"""What a client wants to watch: topics and patterns, the position in each, and which of their records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar
from weakref import WeakValueDictionary

from strandline.delivery.watch import FeedPosition, FeedReader, Feeds, FeedView
from strandline.engine import Log
from strandline.engine.errors import UnknownLog
from strandline.protocols.topics.context import Context
from strandline.protocols.topics.errors import topic_not_found
from strandline.protocols.topics.match import parse_match
from strandline.protocols.topics.read import Selection, clamp_bytes, clamp_limit, node_set
from strandline.protocols.topics.settings import DEFAULT_LIMIT, TopicsSettings
from strandline.protocols.topics.topics import Topic
from strandline.protocols.topics.wire import TopicOptions, WatchedTopic, WatchOptions
from strandline.service.access import Access
from strandline.service.catalog import holds_json
from strandline.service.problems import Refusal, invalid, may_not_touch


class TopicView(FeedView):
    """Get it from ``view_of``: readers that want the same share one object, and with it the rendered pages."""

    __slots__ = ("data", "meta", "selection", "tags")

    def __init__(self, selection: Selection, tags: bool, meta: bool, data: bool, strong: bool) -> None:
        super().__init__(strong)
        self.selection = selection
        self.tags = tags
        self.meta = meta
        self.data = data

    def arguments(self, subject: Topic) -> dict[str, Any]:
        return self.selection.arguments(subject)


V = TypeVar("V", bound=TopicView)
_views: WeakValueDictionary[tuple[Any, ...], TopicView] = WeakValueDictionary()


def view_of(kind: type[V], selection: Selection, *, tags: bool, meta: bool, data: bool, strong: bool) -> V:
    """The view with these properties; there is one object for each combination."""
    key = (kind, *selection.key, tags, meta, data, strong)
    view = _views.get(key)
    if view is None:
        view = _views[key] = kind(selection, tags, meta, data, strong)
    assert isinstance(view, kind)
    return view


ViewMaker = Callable[[TopicOptions], TopicView]


def view_maker(
    kind: type[TopicView], options: WatchOptions, settings: TopicsSettings, default_limit: int = DEFAULT_LIMIT
) -> ViewMaker:
    """A function that returns the view of a topic: options of the topic take precedence over those of the request."""
    match = parse_match(options.match)
    limit = clamp_limit(options.limit, settings, default_limit)
    max_bytes = clamp_bytes(options.max_batch_bytes)
    nodes = node_set(options.node)

    def make(own: TopicOptions) -> TopicView:
        own_match = parse_match(own.match)
        since = options.since_ts if own.since_ts is None else own.since_ts
        return view_of(
            kind,
            Selection(limit, max_bytes, nodes, match if own_match is None else own_match, since),
            tags=options.include_tags,
            meta=options.include_meta,
            data=options.include_data,
            strong=options.consistency == "strong",
        )

    return make


class Pattern(NamedTuple):
    """All topics whose name has the prefix, including topics that are created later."""

    prefix: str
    view: TopicView


class Start(NamedTuple):
    """Where the watching of a topic begins."""

    topic: Topic
    cursor: int
    view: TopicView
    head: int
    earliest: int

    def shown(self) -> WatchedTopic:
        return WatchedTopic(from_seq=self.cursor, head_seq=self.head, earliest_seq=self.earliest)


class Request(NamedTuple):
    """``make_view`` turns the options of a topic into a view; ``cursors`` take precedence over the options."""

    topics: Mapping[str, TopicOptions]
    make_view: ViewMaker
    lenient: bool = False
    cursors: Mapping[str, int] = {}


def resolve(context: Context, access: Access, request: Request) -> tuple[dict[str, Start], list[Pattern]]:
    """Find the topics and patterns of a request, or refuse it without a change."""
    maximum = context.settings.max_watch_topics
    if not request.topics:
        raise invalid("topics must name at least one topic")
    if maximum and len(request.topics) > maximum:
        raise _too_many(len(request.topics), maximum)
    for name in request.topics:
        _check_access(access, name)
    starts: dict[str, Start] = {}
    patterns: list[Pattern] = []
    for name, options in request.topics.items():
        view = request.make_view(options)
        if name.endswith("*"):
            patterns.append(Pattern(name[:-1], view))
            continue
        topic = context.topics.find(name)
        if topic is not None:
            starts[name] = _start(context, topic, options, view, request.cursors)
        elif not request.lenient:
            raise topic_not_found(name)
    # The longer prefix is more specific.
    patterns.sort(key=lambda pattern: len(pattern.prefix), reverse=True)
    for pattern in patterns:
        options = request.topics[pattern.prefix + "*"]
        for topic in matching(context, access, pattern, maximum):
            if topic.name not in starts:
                starts[topic.name] = _start(context, topic, options, pattern.view, request.cursors, at_most_head=True)
    if maximum and len(starts) > maximum:
        raise _too_many(len(starts), maximum)
    return starts, patterns


def matching(context: Context, access: Access, pattern: Pattern, maximum: int) -> list[Topic]:
    """The topics that match a pattern; at most one more than may be watched."""
    limit = (maximum or 1_000_000) + 1
    found, _ = context.topics.page(pattern.prefix, "", limit, access)
    return found


def _start(
    context: Context,
    topic: Topic,
    options: TopicOptions,
    view: TopicView,
    cursors: Mapping[str, int],
    at_most_head: bool = False,
) -> Start:
    context.catch_up(topic)
    state = topic.log.state()
    cursor = cursors.get(topic.name)
    if cursor is None:
        cursor = state.head if options.tail else options.from_seq
        if at_most_head:
            cursor = min(cursor, state.head)
    return Start(topic, cursor, view, state.head, state.earliest)


def _check_access(access: Access, name: str) -> None:
    allowed = access.may_touch(name)
    if not allowed and name.endswith("*"):
        # A pattern that is wider than the key's access matches only the names that the key may access.
        allowed = any(prefix.startswith(name[:-1]) for prefix in access.prefixes)
    if not allowed:
        raise may_not_touch(name, "topic")


def _too_many(count: int, maximum: int) -> Refusal:
    return invalid(f"the request has {count} topics, the limit is {maximum}", {"topics": count, "max": maximum})


def topic_of(place: FeedPosition) -> Topic:
    topic = place.subject
    assert isinstance(topic, Topic)
    return topic


class Watcher(FeedReader):
    """A client that watches topics. ``listening`` between ``listen`` and ``unlisten``."""

    __slots__ = ("access", "context", "feeds", "listening", "patterns", "places")

    def __init__(self, context: Context, feeds: Feeds, access: Access) -> None:
        self.context = context
        self.feeds = feeds
        self.access = access
        self.places: dict[str, FeedPosition] = {}
        self.patterns: tuple[Pattern, ...] = ()
        self.listening = False

    def added(self, place: FeedPosition) -> None:
        """A topic that matches a pattern was created; it is attached and queued next."""

    def crowded(self, topic: Topic) -> None:
        """A topic that matches a pattern is left out, because the maximum number of topics is watched."""

    def listen(self) -> None:
        """Start watching for new topics that match a pattern."""
        if self.patterns:
            self.context.kernel.catalog.created[self._log_created] = None
        self.listening = True

    def unlisten(self) -> None:
        self.context.kernel.catalog.created.pop(self._log_created, None)
        self.listening = False

    def attach(self, place: FeedPosition) -> bool:
        """Get new records from this position on; False if its log was dropped."""
        topic = topic_of(place)
        self.context.consumed(topic)
        self.context.catch_up(topic)
        try:
            self.feeds.attach(place)
        except UnknownLog:
            return False
        return True

    def _log_created(self, log: Log) -> None:
        if holds_json(log):
            self.created(self.context.topics.get(log.name))

    def created(self, topic: Topic) -> None:
        place = self.cover(topic)
        if place is not None and self.attach(place):
            self.added(place)
            if place.feed is not None:
                place.feed.queue(place)

    def cover_again(self, name: str) -> None:
        """A topic was deleted. If another one of its name was created meanwhile, start watching it."""
        topic = self.context.topics.find(name) if self.listening and self.patterns else None
        if topic is not None:
            self.created(topic)

    def cover(self, topic: Topic) -> FeedPosition | None:
        """A position at the beginning of a new topic that matches a pattern."""
        name = topic.name
        pattern = next((pattern for pattern in self.patterns if name.startswith(pattern.prefix)), None)
        if pattern is None or name in self.places or not self.access.may_touch(name):
            return None
        maximum = self.context.settings.max_watch_topics
        if maximum and len(self.places) >= maximum:
            self.crowded(topic)
            return None
        place = self.places[name] = FeedPosition(self, topic, 0, pattern.view)
        return place

    def go_on(self) -> None:
        """There is room again: deliver everything that came in the meantime."""
        for place in self.places.values():
            if place.feed is not None and place.behind:
                place.feed.queue(place)

    def leave(self) -> None:
        """Stop getting records; the positions stay."""
        self.unlisten()
        for place in self.places.values():
            self.feeds.detach(place)
