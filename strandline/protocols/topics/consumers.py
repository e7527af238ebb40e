"""Consumers: a stored position per topic and name, so that one request shows how far a consumer lags."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from strandline.engine.record import Cursor
from strandline.nearest_name import decode_body
from strandline.protocols.topics.context import Context, performance
from strandline.protocols.topics.errors import CONSUMER_NOT_FOUND
from strandline.protocols.topics.topics import Topic
from strandline.protocols.topics.wire import CommitBody, ConsumerAnswer, ConsumerDeleted, ConsumerList, ConsumerState
from strandline.service.catalog import CONSUMER
from strandline.service.http import Call, Later, Reply, json_reply
from strandline.service.problems import Refusal, invalid, limit_reached

#: The names that consumers can have.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,254}", re.ASCII)


_decoder = msgspec.json.Decoder(CommitBody)


def stored_cursor(topic: Topic, consumer: str) -> int:
    """The position of the consumer; the start if it has not committed yet."""
    cursor = topic.log.cursor(CONSUMER + consumer)
    return 0 if cursor is None else cursor.seq


def consumers_of(topic: Topic) -> dict[str, ConsumerState]:
    """All consumers of a topic with their lag, by name."""
    head = topic.log.head
    return {
        name[len(CONSUMER) :]: ConsumerState(cursor.seq, max(0, head - cursor.seq), cursor.ts)
        for name, cursor in sorted(topic.log.cursors().items())
        if name.startswith(CONSUMER)
    }


class Consumers:
    def __init__(self, context: Context) -> None:
        self._context = context
        #: The topics that may have consumers, so that ``lags`` need not read all topics.
        self._topics = {book.name: None for book in context.engine.by_epoch.values() if _has_any(book.cursors)}

    def lags(self, prefixes: tuple[str, ...]) -> Iterator[tuple[str, str, int]]:
        """Topic, name and lag of all consumers, by topic; only for topics that the key may see."""
        for name in sorted(self._topics):
            topic = self._context.topics.find(name)
            consumers = {} if topic is None else consumers_of(topic)
            if not consumers:
                del self._topics[name]
            elif not prefixes or name.startswith(prefixes):
                yield from ((name, consumer, row.lag) for consumer, row in consumers.items())

    def commit(self, call: Call) -> Reply | Later:
        """PUT /v0/topics/{topic}/consumers/{consumer}"""
        body = decode_body(_decoder, call.body)
        topic = self._context.topics.get(call.param("topic"))
        name = call.param("consumer")
        if NAME.fullmatch(name) is None:
            raise invalid(f"{name!r} is not a consumer name: expected 1 to 255 letters, digits and . _ : -")
        if body.seq > topic.log.head:
            raise invalid(f"seq {body.seq} is past the head, {topic.log.head}", {"head_seq": topic.log.head})
        self._check_room(topic, name)
        commit = topic.log.move_cursor(CONSUMER + name, body.seq)
        self._topics[topic.name] = None
        return self._context.admission.after(commit, lambda cursor: _reply(call, topic, name, cursor))

    def _check_room(self, topic: Topic, name: str) -> None:
        """Refuse a new consumer of a topic that has too many: a key that may only read can create consumers, and they
        stay until they are deleted."""
        maximum = self._context.settings.max_consumers
        if topic.log.cursor(CONSUMER + name) is not None:
            return
        cursors = topic.log.cursors()
        if len(cursors) >= maximum and sum(each.startswith(CONSUMER) for each in cursors) >= maximum:
            raise limit_reached("max_consumers", maximum)

    def get(self, call: Call) -> Reply:
        """GET /v0/topics/{topic}/consumers/{consumer}"""
        topic = self._context.topics.get(call.param("topic"))
        name = call.param("consumer")
        cursor = topic.log.cursor(CONSUMER + name)
        if cursor is None:
            detail = {"topic": topic.name, "consumer": name}
            raise Refusal(CONSUMER_NOT_FOUND, f"topic {topic.name!r} has no consumer {name!r}", detail)
        return _reply(call, topic, name, cursor)

    def list(self, call: Call) -> Reply:
        """GET /v0/topics/{topic}/consumers"""
        topic = self._context.topics.get(call.param("topic"))
        answer = ConsumerList(topic.name, topic.log.head, consumers_of(topic), performance=performance(call))
        return json_reply(answer)

    def delete(self, call: Call) -> Reply | Later:
        """DELETE /v0/topics/{topic}/consumers/{consumer}"""
        topic = self._context.topics.get(call.param("topic"))
        name = call.param("consumer")

        def reply(deleted: bool) -> Reply:
            return json_reply(ConsumerDeleted(topic.name, name, deleted, performance=performance(call)))

        return self._context.admission.after(topic.log.drop_cursor(CONSUMER + name), reply)


def _has_any(cursors: dict[str, Cursor] | None) -> bool:
    return cursors is not None and any(name.startswith(CONSUMER) for name in cursors)


def _reply(call: Call, topic: Topic, name: str, cursor: Cursor) -> Reply:
    head = topic.log.head
    return json_reply(
        ConsumerAnswer(
            topic=topic.name,
            consumer=name,
            seq=cursor.seq,
            head_seq=head,
            lag=max(0, head - cursor.seq),
            committed_ts=cursor.ts,
            performance=performance(call),
        )
    )
