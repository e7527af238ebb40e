"""The topics of a server: logs, as this protocol sees them, with their decoded traits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from strandline.delivery.scheduler import base_priority
from strandline.engine import Config, Log
from strandline.engine.commit import Commit
from strandline.engine.ownership import closed_to_others, media_type_of
from strandline.engine.record import is_internal
from strandline.protocols.topics.errors import NOT_JSON, topic_not_found
from strandline.service.access import Access
from strandline.service.catalog import Catalog, check_append, holds_json, is_hidden
from strandline.service.http import quote
from strandline.service.lifetime import Lifetime
from strandline.service.log_config import (
    TopicConfig,
    Traits,
    check_config,
    check_name,
    engine_config,
    kind_of,
    search_note,
    traits_of,
    wanted_search,
)
from strandline.service.problems import FORBIDDEN, Refusal, invalid

_DEFAULT_TRAITS = Traits()
#: How many topics are kept with decoded traits. Others are decoded again when they are used.
MAX_KNOWN = 200_000


class Topic:
    """A log as a topic. One object per log and server. Read ``traits`` each time, since a configuration can change."""

    __slots__ = ("_config", "_is_plain", "_traits", "consumed_at", "json_name", "lifetime", "log", "name")

    def __init__(self, log: Log, lifetime: Lifetime | None = None) -> None:
        self.log = log
        self.lifetime = lifetime
        self.name = log.name
        self.json_name = quote(log.name)
        self._config: Config | None = None
        self._traits = _DEFAULT_TRAITS
        self._is_plain = True
        #: When it was last read, in milliseconds; None: not since the start.
        self.consumed_at: int | None = None

    @property
    def traits(self) -> Traits:
        config = self.log.config
        if config is not self._config:
            self._look_at(config)
        return self._traits

    @property
    def is_plain(self) -> bool:
        """Whether appends need no checks: it is not a queue, is never full, and every protocol may append to it."""
        config = self.log.config
        if config is not self._config:
            self._look_at(config)
        notes = self.log.notes
        return self._is_plain and (not notes or closed_to_others(self.name, notes) is None)

    def check_takes_writes(self) -> None:
        """Refuse if the log has an owner, is closed, or has a schema that only streams check."""
        # Only the notes need to be checked: a topic is never an internal log.
        if self.log.notes:
            check_append(self.log)

    def _look_at(self, config: Config) -> None:
        self._traits = traits_of(config)
        self._is_plain = self._traits.type == "log" and config.discard == "old"
        self._config = config

    def priority(self, now: int) -> int:
        """The priority of the topic without waiting time."""
        traits = self.traits
        return base_priority(traits.priority, traits.auto_priority, self.consumed_at, now)


class Topics:
    """The catalog's logs that are topics: those that hold JSON and are not internal."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self._known: dict[str, Topic] = {}

    @property
    def count(self) -> int:
        """The number of topics, including logs that another protocol created."""
        return self.catalog.count

    def find(self, name: str) -> Topic | None:
        """The topic; None if it does not exist. Refuses if a log of this name exists and is not a topic."""
        topic = self._known.get(name)
        if topic is not None and not topic.log.dropped and topic.lifetime is None:
            return topic
        log = None if is_internal(name) else self.catalog.find(name)
        if log is None:
            if topic is not None:
                del self._known[name]
            return None
        if topic is not None and not topic.log.dropped:
            return topic
        if not holds_json(log):
            raise Refusal(
                NOT_JSON, f"topic {name!r} holds {media_type_of(log.config)}, not JSON; use /v1/stream", {"topic": name}
            )
        if len(self._known) >= MAX_KNOWN:
            self._known.clear()
        topic = self._known[name] = Topic(log, self.catalog.lifetime(log))
        return topic

    def get(self, name: str) -> Topic:
        topic = self.find(name)
        if topic is None or is_hidden(topic.log):
            raise topic_not_found(name)
        return topic

    def create(self, name: str, new: NewTopic) -> tuple[Topic, Commit[Log]]:
        """Create a topic. It can be used at once, and is durable when the commit is done."""
        check_name(name)
        self.check_dead_letter(name, new.config)
        _, commit = self.catalog.create(name, new.config, notes=new.notes)
        topic = self.find(name)
        assert topic is not None
        return topic, commit

    def check_dead_letter(self, name: str, config: Config) -> None:
        """Refuse a configuration that sends dead letters to a log with an owner, or through other queues back to the
        topic itself, where no delivery would be the last."""
        first = target = traits_of(config).dead_letter
        if first is None:
            return
        self.catalog.check_target(first)
        passed: set[str] = set()
        while target is not None and target not in passed:
            if target == name:
                why = f"dead_letter {first!r} leads back to {name!r}, because dead letters of {first!r} end up there"
                raise invalid(f"{why}; name a topic that is not part of such a cycle", {"dead_letter": first})
            passed.add(target)
            log = self.catalog.find(target)
            target = None if log is None or kind_of(log.config) != "queue" else traits_of(log.config).dead_letter

    def page(self, prefix: str, after: str, limit: int, access: Access) -> tuple[list[Topic], bool]:
        """Topics by name, after the name ``after``, and whether there are more."""
        found: list[Topic] = []
        for name in self.catalog.walk(access, prefix=prefix, after=after):
            log = self.catalog.find(name)
            topic = None if log is None or not holds_json(log) else self.find(name)
            if topic is not None:
                if len(found) == limit:
                    return found, True
                found.append(topic)
        return found, False


def takes_writes(log: Log) -> bool:
    """Whether this protocol may write records to the log."""
    return holds_json(log) and closed_to_others(log.name, log.notes) is None


class NewTopic(NamedTuple):
    """A topic that does not exist yet: its configuration, and its notes."""

    config: Config
    notes: Mapping[str, Any] | None = None


def new_topic(name: str, wanted: TopicConfig) -> NewTopic:
    """The topic with a requested configuration. Raises a refusal if the request is not valid."""
    notes = search_note(name, {}, wanted_search(wanted))
    return NewTopic(engine_config(name, wanted, wanted.kind()), notes or None)


def topic_of_write(name: str, create: bool | None, wanted: TopicConfig | None, access: Access) -> NewTopic:
    """The topic that a write creates, if it may create one."""
    config = wanted or TopicConfig()
    if create is False or (create is None and not config.auto_create):
        raise topic_not_found(name)
    if wanted is not None and not access.may("admin"):
        raise Refusal(FORBIDDEN, "creating a topic with a config requires the admin scope", {"topic": name})
    check_config(config, access)
    return new_topic(name, config)
