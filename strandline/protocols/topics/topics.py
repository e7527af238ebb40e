"""The topics there are: logs, as this protocol sees them, with what it keeps of them in memory."""

from __future__ import annotations

from collections.abc import Callable

from strandline.delivery.priority import base_priority
from strandline.engine import Config, Engine, Log
from strandline.engine.commit import Commit
from strandline.protocols.http import Refusal
from strandline.protocols.ownership import closed_to_others, is_hidden, media_type_of
from strandline.protocols.topics.config import Traits, check_name, kind_of, traits_of
from strandline.protocols.topics.errors import capped, topic_not_found
from strandline.protocols.topics.records import quote
from strandline.protocols.topics.settings import TopicsSettings

#: Topics whose traits are kept decoded. More than this are looked up again when they are used.
MAX_KNOWN = 200_000


class Topic:
    """A log as a topic. One object per log and server; ask for ``traits`` afresh, a configuration can change."""

    __slots__ = ("_config", "_is_plain", "_traits", "consumed_at", "json_name", "log", "name")

    def __init__(self, log: Log) -> None:
        self.log = log
        self.name = log.name
        self.json_name = quote(log.name)
        self._config: Config | None = None
        self._traits = DEFAULT_TRAITS
        self._is_plain = True
        #: When somebody last read it, in milliseconds; None: not since the start.
        self.consumed_at: int | None = None

    @property
    def traits(self) -> Traits:
        config = self.log.config
        if config is not self._config:
            self._look_at(config)
        return self._traits

    @property
    def is_plain(self) -> bool:
        """Whether every append to it is the same: it is no queue, never full, and nobody else has a say in it."""
        config = self.log.config
        if config is not self._config:
            self._look_at(config)
        return self._is_plain and not self.log.notes

    def check_takes_writes(self) -> None:
        """Refuse where another protocol has rules for what is appended."""
        why = closed_to_others(self.log)
        if why is not None:
            raise Refusal(409, "not_writable", f"topic {self.name!r} takes no writes: {why}", {"topic": self.name})

    def _look_at(self, config: Config) -> None:
        self._traits = traits_of(config)
        self._is_plain = self._traits.type == "log" and config.discard == "old"
        self._config = config

    def priority(self, now: int) -> int:
        """How urgent the topic is by itself; what has to wait gets more urgent on top of it."""
        traits = self.traits
        return base_priority(traits.priority, traits.auto_priority, self.consumed_at, now)


DEFAULT_TRAITS = Traits()


class Topics:
    """Looks topics up and creates them. Logs whose name starts with an underscore are the server's own."""

    def __init__(self, engine: Engine, settings: TopicsSettings) -> None:
        self.engine = engine
        self._settings = settings
        self._known: dict[str, Topic] = {}
        #: How many topics are queues; kept up, so that nobody has to count.
        self.queues = sum(is_topic(book.name) and kind_of(book.config) == "queue" for book in engine.by_epoch.values())
        #: Drops a log. Other protocols have to know of it.
        self.drop_log: Callable[[Log], Commit[None]] = Log.drop
        #: Told of every topic that is made; on the loop, and must be quick.
        self.listeners: dict[Callable[[Topic], None], None] = {}

    @property
    def count(self) -> int:
        """How many topics there are. A log that another protocol made is one too."""
        return sum(self.engine.totals.logs.values())

    def find(self, name: str) -> Topic | None:
        """The topic; None if there is none. Refuses where there is a log of this name that is no topic."""
        topic = self._known.get(name)
        if topic is not None and not topic.log.dropped:
            return topic
        log = self.engine.find(name) if is_topic(name) else None
        if log is None:
            if topic is not None:
                del self._known[name]
            return None
        if not holds_json(log):
            raise Refusal(409, "not_json", f"{name!r} holds {media_type_of(log)}: use /v1/stream", {"topic": name})
        if len(self._known) >= MAX_KNOWN:
            self._known.clear()
        topic = self._known[name] = Topic(log)
        return topic

    def get(self, name: str) -> Topic:
        topic = self.find(name)
        if topic is None or is_hidden(topic.log):
            raise topic_not_found(name)
        return topic

    def create(self, name: str, config: Config) -> tuple[Topic, Commit[Log]]:
        """Make a topic that is not there. It can be used at once and is durable when the commit is done."""
        check_name(name)
        maximum = self._settings.max_topics
        if maximum and self.count >= maximum:
            raise capped("max_topics", maximum)
        commit = self.engine.create(name, config)
        self.queues += kind_of(config) == "queue"
        topic = self.find(name)
        assert topic is not None
        for listener in list(self.listeners):
            listener(topic)
        return topic, commit

    def drop(self, topic: Topic) -> Commit[None]:
        commit = self.drop_log(topic.log)
        self._known.pop(topic.name, None)
        self.queues -= topic.traits.type == "queue"
        return commit

    def page(self, prefix: str, after: str, limit: int, prefixes: tuple[str, ...]) -> tuple[list[Topic], bool]:
        """Topics in the order of their names, from behind ``after`` on, and whether there are more."""
        found: list[Topic] = []
        while True:
            names = self.engine.names(prefix, after, limit + 1)
            for name in names:
                topic = self._shown(name) if not prefixes or name.startswith(prefixes) else None
                if topic is not None:
                    if len(found) == limit:
                        return found, True
                    found.append(topic)
            if len(names) <= limit:
                return found, False
            after = names[-1]

    def _shown(self, name: str) -> Topic | None:
        """The topic, unless it is none or was deleted."""
        log = self.engine.find(name)
        return None if log is None or not holds_json(log) or is_hidden(log) else self.find(name)


def holds_json(log: Log) -> bool:
    return media_type_of(log) == "application/json"


def takes_writes(log: Log) -> bool:
    """Whether records may be written to it by this protocol, by whatever way they come."""
    return holds_json(log) and closed_to_others(log) is None


def is_topic(name: str) -> bool:
    return not name.startswith("_")
