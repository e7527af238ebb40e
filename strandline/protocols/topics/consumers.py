"""Named consumers: a stored cursor per topic and name, so that "how far behind is billing?" is one request."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from strandline.engine.record import Cursor
from strandline.protocols.topics.context import Context, performance
from strandline.protocols.topics.errors import CONSUMER_NOT_FOUND
from strandline.protocols.topics.topics import Topic
from strandline.service.catalog import CONSUMER
from strandline.service.http import Call, Later, Reply, quote
from strandline.service.problems import Refusal, invalid

#: The engine keeps cursors by name; routers have some too.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,254}", re.ASCII)


class CommitBody(msgspec.Struct):
    #: Everything up to and with this seq has been dealt with.
    seq: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]


_decoder = msgspec.json.Decoder(CommitBody)


def stored_cursor(topic: Topic, consumer: str) -> int:
    """Where the consumer has got to; the start for one that has not committed yet."""
    cursor = topic.log.cursor(CONSUMER + consumer)
    return 0 if cursor is None else cursor.seq


def consumers_of(topic: Topic) -> dict[str, dict[str, Any]]:
    """All consumers of a topic with their lag, by name."""
    head = topic.log.head
    return {
        name[len(CONSUMER) :]: {"seq": cursor.seq, "lag": max(0, head - cursor.seq), "committed_ts": cursor.ts}
        for name, cursor in sorted(topic.log.cursors().items())
        if name.startswith(CONSUMER)
    }


class Consumers:
    def __init__(self, context: Context) -> None:
        self._context = context
        #: The topics that have any, so that nobody has to look at all topics; some may have lost theirs since.
        self._topics = {book.name: None for book in context.engine.by_epoch.values() if _has_any(book.cursors)}

    def lags(self, prefixes: tuple[str, ...]) -> Iterator[tuple[str, str, int]]:
        """Topic, name and lag of all consumers, in the order of the topics' names; only of those that may be seen."""
        for name in sorted(self._topics):
            topic = self._context.topics.find(name)
            consumers = {} if topic is None else consumers_of(topic)
            if not consumers:
                del self._topics[name]
            elif not prefixes or name.startswith(prefixes):
                yield from ((name, consumer, row["lag"]) for consumer, row in consumers.items())

    def commit(self, call: Call) -> Reply | Later:
        """PUT /v0/topics/{topic}/consumers/{consumer}"""
        body = _decoder.decode(call.body)
        topic = self._context.topics.get(call.param("topic"))
        name = call.param("consumer")
        if NAME.fullmatch(name) is None:
            raise invalid(f"{name!r} cannot name a consumer: 1 to 255 letters, digits and . _ : -")
        if body.seq > topic.log.head:
            raise invalid(f"seq {body.seq} is beyond the head, {topic.log.head}", {"head_seq": topic.log.head})
        commit = topic.log.move_cursor(CONSUMER + name, body.seq)
        self._topics[topic.name] = None
        return self._context.admission.after(commit, lambda cursor: _reply(call, topic, name, cursor))

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
        rows = msgspec.json.encode(consumers_of(topic))
        return Reply(
            b'{"topic":%b,"head_seq":%d,"consumers":%b,%b}' % (topic.json_name, topic.log.head, rows, performance(call))
        )

    def delete(self, call: Call) -> Reply | Later:
        """DELETE /v0/topics/{topic}/consumers/{consumer}"""
        topic = self._context.topics.get(call.param("topic"))
        name = call.param("consumer")

        def reply(deleted: bool) -> Reply:
            return Reply(
                b'{"topic":%b,"consumer":%b,"deleted":%b,%b}'
                % (topic.json_name, quote(name), b"true" if deleted else b"false", performance(call))
            )

        return self._context.admission.after(topic.log.drop_cursor(CONSUMER + name), reply)


def _has_any(cursors: dict[str, Cursor] | None) -> bool:
    return cursors is not None and any(name.startswith(CONSUMER) for name in cursors)


def _reply(call: Call, topic: Topic, name: str, cursor: Cursor) -> Reply:
    head = topic.log.head
    return Reply(
        b'{"topic":%b,"consumer":%b,"seq":%d,"head_seq":%d,"lag":%d,"committed_ts":%d,%b}'
        % (topic.json_name, quote(name), cursor.seq, head, max(0, head - cursor.seq), cursor.ts, performance(call))
    )
