"""Queue events: every append to a collection can be announced as a record in a topic.

The record and the element are written in one transaction, so every acknowledged append has an event, and a failed
append has none.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import msgspec

from strandline.collections.config import QueueEvents
from strandline.collections.errors import queue_unavailable
from strandline.collections.settings import REPLAY_WINDOW_MS
from strandline.engine import Commit, Config, Engine, Log
from strandline.engine.errors import EngineError
from strandline.engine.ownership import closed_to_others

log = logging.getLogger(__name__)


class OpenedTopic(NamedTuple):
    """The log of a topic, and the commit of its creation if it did not exist before."""

    log: Log
    created: Commit[Log] | None


class EventTopics(Protocol):
    """Opens the topics of events. A server passes its own implementation, because its limits apply to topics and a
    topic may be a queue."""

    def open(self, name: str) -> OpenedTopic:
        """Return the topic, created if it does not exist. Raises CollectionError (``queue_unavailable``) if the topic
        does not accept records."""

    def discard(self, log: Log) -> None:
        """Remove a topic that was created for an event that could not be written. Does not raise."""


class EngineTopics:
    """The topics of a program that uses collections in process: plain logs of the engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def open(self, name: str) -> OpenedTopic:
        found = self._engine.find(name)
        if found is None:
            created = self._engine.create(name, Config(idempotency_window_ms=REPLAY_WINDOW_MS))
            return OpenedTopic(self._engine.log(name), created)
        why = closed_to_others(name, found.notes)
        if why is not None:
            raise queue_unavailable(f"the log {name!r} does not accept events: {why}")
        return OpenedTopic(found, None)

    def discard(self, log: Log) -> None:
        discard(log)


def discard(created: Log) -> None:
    """Remove a log that was created for a write that then failed."""
    try:
        created.drop()
    except EngineError as error:
        log.error("log %r was created for a failed append and cannot be removed: %s", created.name, error)


class Announcer:
    """Creates the events of the appends to one collection."""

    def __init__(self, topics: EventTopics, collection: str, settings: QueueEvents) -> None:
        self._topics = topics
        self._settings = settings
        self._topic = settings.topic or collection
        self._start = b'{"collection":' + msgspec.json.encode(collection)
        self._pattern = re.compile(settings.subject_id_pattern)

    def event(self, params: Mapping[str, str], body: bytes, identity: str) -> AppendEvent:
        """Create the event of an append. ``body`` is the data as it was sent; ``identity`` is empty for unknown
        callers."""
        settings = self._settings
        end = b""
        if settings.include_params and params:
            end += b',"params":' + msgspec.json.encode(params)
        if settings.include_body:
            end += b',"body":' + body
        if settings.include_identity and identity:
            end += b',"identity":' + msgspec.json.encode(identity)
        return AppendEvent(self._topics, self.topic_for(params), self._start, end + b"}")

    def topic_for(self, params: Mapping[str, str]) -> str:
        """The name of the topic for the events of a document."""
        param = self._settings.subject_param
        value = None if param is None else params.get(param)
        if value is None or self._pattern.fullmatch(value) is None:
            return self._topic
        return f"{self._topic}.{value}"


class AppendEvent:
    """One event. Its topic is created with the first event."""

    __slots__ = ("_created", "_end", "_start", "_topic", "_topics")

    def __init__(self, topics: EventTopics, topic: str, start: bytes, end: bytes) -> None:
        self._topics = topics
        self._topic = topic
        self._start = start
        self._end = end
        #: The creation of the topic, if this event created it.
        self._created: Commit[Log] | None = None

    def payload(self, hash: str, ts: int) -> bytes:
        return b'%b,"hash":"%b","timestamp":%d%b' % (self._start, hash.encode(), ts, self._end)

    def after(self, commit: Commit[Any]) -> Commit[Any]:
        """The commit to wait for after a write to the log. The creation of a log is durable only when its own commit is
        done, regardless of the log's durability."""
        return self._created if commit.done and self._created is not None else commit

    @contextmanager
    def log(self) -> Iterator[Log]:
        """The log of the topic, created if it does not exist. A new topic is removed if the block raises."""
        opened = self._topics.open(self._topic)
        self._created = opened.created
        try:
            yield opened.log
        except BaseException:
            if self._created is not None:
                self._topics.discard(opened.log)
            raise
