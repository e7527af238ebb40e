"""Removing records for good, by seq and by tag."""

from __future__ import annotations

from collections.abc import Awaitable

import msgspec

from strandline.engine import Deleted
from strandline.engine.record import MAX_SEQ
from strandline.protocols.topics.context import Context, performance
from strandline.protocols.topics.match import MatchField, parse_match
from strandline.protocols.topics.settings import U64
from strandline.protocols.topics.topics import Topic
from strandline.service.catalog import check_change
from strandline.service.http import Call, Reply
from strandline.service.problems import invalid


class DeleteBody(msgspec.Struct):
    before_seq: U64 | None = None
    match: MatchField = None


_decoder = msgspec.json.Decoder(DeleteBody)


class Deleting:
    def __init__(self, context: Context) -> None:
        self._context = context

    def delete(self, call: Call) -> Reply | Awaitable[Reply]:
        """POST /v0/topics/{topic}/delete"""
        body = _decoder.decode(call.body)
        match = parse_match(body.match)
        if body.before_seq is None and match is None:
            raise invalid("before_seq or match is missing: say which records to delete")
        topic = self._context.topics.get(call.param("topic"))
        check_change(topic.log)
        before = None if body.before_seq is None else min(body.before_seq, MAX_SEQ)
        return self._delete(call, topic, before, match and match.key, match and match.prefix)

    async def _delete(self, call: Call, topic: Topic, before: int | None, key: str | None, prefix: str | None) -> Reply:
        # Sealed records must be looked at to be deleted, and they may not be at hand.
        commit = await self._context.workers.normal.run(topic.log.delete, before=before, key=key, prefix=prefix)
        deleted = await self._context.hub.when_done(commit, lambda deleted: deleted)
        if topic.traits.type == "queue":
            queue = self._context.queue(topic)
            queue.forget_missing()
            dispatcher = self._context.dispatchers.find(queue)
            if dispatcher is not None:
                dispatcher.check_held()
        return _reply(call, topic, deleted)


def _reply(call: Call, topic: Topic, deleted: Deleted) -> Reply:
    state = topic.log.state()
    return Reply(
        b'{"topic":%b,"deleted":%d,"earliest_seq":%d,"head_seq":%d,"count":%d,"bytes":%d,%b}'
        % (topic.json_name, deleted.count, state.earliest, state.head, state.count, state.size, performance(call))
    )
