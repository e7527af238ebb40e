"""Consumers: a stored position per topic and name, so that one request shows how far a consumer lags."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec
from msgspec import UNSET

from strandline.engine.commit import Commit
from strandline.engine.record import Cursor, Page
from strandline.nearest_name import decode_body
from strandline.protocols.topics.context import Context, performance
from strandline.protocols.topics.errors import CONSUMER_NOT_FOUND
from strandline.protocols.topics.list import cursor_behind, page_size, start_after
from strandline.protocols.topics.topics import Topic
from strandline.protocols.topics.wire import (
    CommitBody,
    ConsumerAnswer,
    ConsumerDeleted,
    ConsumerList,
    ConsumerRow,
    ConsumersList,
    ConsumerState,
)
from strandline.service.admission import Replying, reply_of
from strandline.service.catalog import CONSUMER
from strandline.service.http import Call, Later, Reply, json_reply
from strandline.service.problems import Refusal, invalid, limit_reached
from strandline.spans import READ

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
        #: The topics that may have consumers, so that ``lags`` need not read all topics. Not kept up on a server that
        #: follows another one.
        self._topics = self._find_topics()

    def _find_topics(self) -> dict[str, None]:
        books = list(self._context.engine.by_epoch.values())
        return {book.name: None for book in books if _has_any(book.cursors)}

    def _names(self) -> list[str]:
        """The topics that may have consumers, in order."""
        if self._context.engine.follower is not None:
            # The leader moves the consumers.
            self._topics = self._find_topics()
        return sorted(self._topics)

    def lags(self, prefixes: tuple[str, ...]) -> Iterator[tuple[str, str, int]]:
        """Topic, name and lag of all consumers, by topic; only for topics that the key may see."""
        for name in self._names():
            topic = self._context.topics.find(name)
            consumers = {} if topic is None else consumers_of(topic)
            if not consumers:
                del self._topics[name]
            elif not prefixes or name.startswith(prefixes):
                yield from ((name, consumer, row.lag) for consumer, row in consumers.items())

    def commit(self, call: Call) -> Replying:
        """PUT /v0/topics/{topic}/consumers/{consumer}"""
        body = decode_body(_decoder, call.body)
        topic = self._context.topics.get(call.param("topic"))
        name = call.param("consumer")
        if NAME.fullmatch(name) is None:
            raise invalid(f"{name!r} is not a consumer name: expected 1 to 255 letters, digits and . _ : -")
        if (body.seq is not UNSET) + (body.at is not UNSET) + (body.since_ts is not UNSET) != 1:
            raise invalid("a commit has exactly one of seq, at and since_ts")
        if body.since_ts is not UNSET:
            page = topic.log.read_resident(0, 1, since=body.since_ts)
            if page is None:
                return self._commit_since(call, topic, name, body.since_ts)
            return self._move(call, topic, name, _position_before(page))
        if body.seq is UNSET:
            seq = topic.log.head if body.at == "end" else topic.log.state().earliest - 1
        elif body.seq > topic.log.head:
            raise invalid(f"seq {body.seq} is past the head, {topic.log.head}", {"head_seq": topic.log.head})
        else:
            seq = body.seq
        return self._move(call, topic, name, seq)

    async def _commit_since(self, call: Call, topic: Topic, name: str, ts: int) -> Reply:
        """Find the position on another thread, because it is not in memory."""
        page = await self._context.workers.normal.run(topic.log.read, 0, 1, since=ts, part=READ)
        return await reply_of(self._move(call, topic, name, _position_before(page)))

    def _move(self, call: Call, topic: Topic, name: str, seq: int) -> Reply | Later:
        if topic.log.cursor(CONSUMER + name) is None:
            self.check_room(topic, 1)
        return self._context.admission.after(
            self.move(topic, name, seq), lambda cursor: _reply(call, topic, name, cursor)
        )

    def move(self, topic: Topic, name: str, seq: int) -> Commit[Cursor]:
        """Move a consumer, and create it if it does not exist."""
        commit = topic.log.move_cursor(CONSUMER + name, seq)
        self._topics[topic.name] = None
        return commit

    def check_room(self, topic: Topic, new: int) -> None:
        """Refuse new consumers of a topic that has too many: a key that may only read can create consumers, and they
        stay until they are deleted."""
        maximum = self._context.settings.max_consumers
        cursors = topic.log.cursors()
        if len(cursors) + new > maximum and sum(each.startswith(CONSUMER) for each in cursors) + new > maximum:
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

    def list_all(self, call: Call) -> Reply:
        """GET /v0/consumers"""
        size, prefix = page_size(call), call.query.get("prefix", "")
        # A name of a consumer has no slash.
        last_topic, _, last_consumer = start_after(call).rpartition("/")
        rows: list[ConsumerRow] = []
        for name in self._names():
            if name < last_topic or not name.startswith(prefix) or not call.access.may_touch(name):
                continue
            topic = self._context.topics.find(name)
            if topic is None:
                continue
            head = topic.log.head
            rows += (
                ConsumerRow(name, consumer, each.seq, head, each.lag, each.committed_ts)
                for consumer, each in consumers_of(topic).items()
                if (name, consumer) > (last_topic, last_consumer)
            )
            if len(rows) > size:
                break
        more = len(rows) > size
        cursor = cursor_behind(f"{rows[size - 1].topic}/{rows[size - 1].consumer}") if more else UNSET
        return json_reply(ConsumersList(rows[:size], cursor, performance=performance(call)))

    def delete(self, call: Call) -> Reply | Later:
        """DELETE /v0/topics/{topic}/consumers/{consumer}"""
        topic = self._context.topics.get(call.param("topic"))
        name = call.param("consumer")

        def reply(deleted: bool) -> Reply:
            return json_reply(ConsumerDeleted(topic.name, name, deleted, performance=performance(call)))

        return self._context.admission.after(topic.log.drop_cursor(CONSUMER + name), reply)


def _position_before(page: Page) -> int:
    """The position from which a reader gets this page: before its records, and before the loss that it reports."""
    if page.tombstone is not None:
        return page.tombstone.gap_from - 1
    return page.seqs[0] - 1 if page.seqs else page.next_after


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
