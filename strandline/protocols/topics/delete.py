"""Deleting records permanently, by seq and by tag."""

from __future__ import annotations

from collections.abc import Awaitable

import msgspec

from strandline.engine import Deleted
from strandline.engine.record import MAX_SEQ
from strandline.nearest_name import decode_body
from strandline.protocols.topics.context import Context, performance
from strandline.protocols.topics.match import parse_match
from strandline.protocols.topics.topics import Topic
from strandline.protocols.topics.wire import DeleteBody, RecordsDeleted
from strandline.service.catalog import check_change
from strandline.service.http import Call, Reply, json_reply
from strandline.service.problems import invalid

_decoder = msgspec.json.Decoder(DeleteBody)


class RecordDeletes:
    def __init__(self, context: Context) -> None:
        self._context = context

    def delete(self, call: Call) -> Reply | Awaitable[Reply]:
        """POST /v0/topics/{topic}/delete"""
        body = decode_body(_decoder, call.body)
        match = parse_match(body.match)
        if body.before_seq is None and match is None:
            raise invalid("before_seq or match is missing: say which records to delete")
        topic = self._context.topics.get(call.param("topic"))
        check_change(topic.log)
        before = None if body.before_seq is None else min(body.before_seq, MAX_SEQ)
        return self._delete(call, topic, before, match and match.key, match and match.prefix)

    async def _delete(self, call: Call, topic: Topic, before: int | None, key: str | None, prefix: str | None) -> Reply:
        # Sealed records must be read before they are deleted, and they may not be in memory.
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
    return json_reply(
        RecordsDeleted(
            topic=topic.name,
            deleted=deleted.count,
            earliest_seq=state.earliest,
            head_seq=state.head,
            count=state.count,
            bytes=state.size,
            performance=performance(call),
        )
    )
