"""Queue events: what other programs learn of an append, as a record in a topic of this very server.

The record is written in the same step as the element, so there is one for every append that was acknowledged, and none
for any that was not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec

from strandline.engine import Log
from strandline.engine.commit import Commit
from strandline.protocols.collections.config import QueueEvents
from strandline.protocols.collections.problems import event_refused
from strandline.protocols.collections.settings import REPLAY_WINDOW_MS
from strandline.protocols.http import Refusal
from strandline.protocols.topics.config import TopicConfig, engine_config
from strandline.protocols.topics.context import Context


class Announcing:
    """What is told of the appends to one collection."""

    def __init__(self, topics: Context, collection: str, settings: QueueEvents) -> None:
        self._topics = topics
        self._settings = settings
        self._subject = settings.topic or collection
        self._front = b'{"collection":' + msgspec.json.encode(collection)
        self._pattern = re.compile(settings.subject_id_pattern)

    def of(self, params: Mapping[str, str], body: bytes, identity: str) -> Event:
        """The event of one append. ``body`` is its data as it came; ``identity`` is empty for nobody in particular."""
        settings = self._settings
        behind = b""
        if settings.include_params and params:
            behind += b',"params":' + msgspec.json.encode(params)
        if settings.include_body:
            behind += b',"body":' + body
        if settings.include_identity and identity:
            behind += b',"identity":' + msgspec.json.encode(identity)
        return Event(self._topics, self._subject_of(params), self._front, behind + b"}")

    def _subject_of(self, params: Mapping[str, str]) -> str:
        param = self._settings.subject_param
        value = None if param is None else params.get(param)
        if value is None or self._pattern.fullmatch(value) is None:
            return self._subject
        return f"{self._subject}.{value}"


class Event:
    """One event, whose topic need not be there yet."""

    __slots__ = ("_behind", "_front", "_made", "_subject", "_topics")

    def __init__(self, topics: Context, subject: str, front: bytes, behind: bytes) -> None:
        self._topics = topics
        self._subject = subject
        self._front = front
        self._behind = behind
        #: That the topic was made for this event, if it was.
        self._made: Commit[Log] | None = None

    def payload(self, hash: str, ts: int) -> bytes:
        return b'%b,"hash":"%b","timestamp":%d%b' % (self._front, hash.encode(), ts, self._behind)

    def after(self, commit: Commit[Any]) -> Commit[Any]:
        """The commit of what was done with the log. That the log was made is durable only when that is done, whatever
        its class."""
        return self._made if commit.done and self._made is not None else commit

    @contextmanager
    def log(self) -> Iterator[Log]:
        """The log of the topic, made if need be. It goes again if what is done with it fails."""
        topics = self._topics.topics
        name = self._subject
        try:
            topic = topics.find(name)
            if topic is None:
                topic, self._made = topics.create(
                    name, engine_config(name, TopicConfig(idempotency_window_ms=REPLAY_WINDOW_MS), "log")
                )
            topic.check_takes_writes()
        except Refusal as refusal:
            raise event_refused(refusal.message) from None
        try:
            yield topic.log
        except BaseException:
            if self._made is not None:
                self._topics.unmake(topic)
            raise
