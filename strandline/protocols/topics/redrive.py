"""Moving dead letters back to their queues."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from weakref import WeakValueDictionary

import msgspec
from msgspec import UnsetType

from strandline.delivery.queues import Queue, Redriven, redrive
from strandline.engine import Log
from strandline.nearest_name import decode_body
from strandline.protocols.topics.batches import check_utf8
from strandline.protocols.topics.context import Context, performance
from strandline.protocols.topics.match import Match, parse_match
from strandline.protocols.topics.topics import Topic, takes_writes
from strandline.protocols.topics.wire import RedriveAnswer, RedriveBody
from strandline.service.access import Access
from strandline.service.catalog import Catalog, check_change
from strandline.service.http import Call, Reply, json_reply
from strandline.service.log_config import kind_of
from strandline.service.problems import RECORD_TOO_LARGE, Refusal, invalid, may_not_touch

_decoder = msgspec.json.Decoder(RedriveBody)


class Redrives:
    def __init__(self, context: Context) -> None:
        self._context = context
        #: Held while dead letters of a log are moved, by its epoch.
        self._moving: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()

    async def redrive(self, call: Call) -> Reply:
        """POST /v0/topics/{topic}/redrive"""
        check_utf8(call.body)
        body = decode_body(_decoder, call.body) if call.body else RedriveBody()
        match = parse_match(body.match)
        context, access = self._context, call.access
        data = None if isinstance(body.data, UnsetType) else bytes(body.data)
        if data is not None:
            if body.seq is None:
                raise invalid("data corrects one dead letter; name it with seq")
            if len(data) > context.settings.max_record_bytes:
                most = context.settings.max_record_bytes
                raise Refusal(RECORD_TOO_LARGE, f"data has {len(data)} bytes, the limit is {most}", {"max": most})
        if body.to is not None and not access.may_touch(body.to):
            raise may_not_touch(body.to, "topic")
        topic = context.topics.get(call.param("topic"))
        check_change(topic.log)
        to = None if body.to is None else context.topics.get(body.to)
        if to is topic:
            raise invalid("dead letters cannot be moved to the topic that they are in", {"topic": topic.name})
        if to is not None:
            to.check_takes_writes()
        maximum = context.settings.max_batch_records
        # Dead letters must be read first, and they may not be in memory.
        redriven = await self._alone(
            topic.log,
            lambda: self._move(
                topic.log,
                None if to is None else to.log,
                access,
                min(body.limit or maximum, maximum),
                match,
                body.seq,
                data,
            ),
        )
        self._forget(topic)
        return json_reply(
            RedriveAnswer(
                topic=topic.name,
                redriven=sum(redriven.moved.values()),
                to=redriven.moved,
                remaining=topic.log.state().count,
                performance=performance(call),
            )
        )

    async def _alone(self, dead: Log, move: Callable[[], Redriven]) -> Redriven:
        """Move dead letters of this log on a thread, while no other request does. Two requests could read a letter
        before either deletes it, and only a queue with an idempotency window would notice."""
        lock = self._moving.setdefault(dead.epoch, asyncio.Lock())
        await lock.acquire()
        moving = asyncio.ensure_future(self._context.workers.normal.run(move))

        def ended(moving: asyncio.Future[Redriven]) -> None:
            lock.release()
            if not moving.cancelled():
                moving.exception()  # otherwise reported as lost if the request has ended

        moving.add_done_callback(ended)
        # The thread also continues if the request is cancelled.
        return await asyncio.shield(moving)

    def _move(
        self,
        dead: Log,
        to: Log | None,
        access: Access,
        limit: int,
        match: Match | None,
        seq: int | None,
        data: bytes | None,
    ) -> Redriven:
        engine = self._context.engine

        def origin(name: str) -> Log | Queue | None:
            log = engine.find(name)
            if log is None or not Catalog.visible(log, access) or not takes_writes(log):
                return None
            return self._as_queue(log)

        key, prefix = (None, None) if match is None else (match.key, match.prefix)
        destination = origin if to is None else self._as_queue(to)
        return redrive(dead, destination, limit=limit, key=key, key_prefix=prefix, seq=seq, data=data).wait()

    def _as_queue(self, log: Log) -> Log | Queue:
        """The queue of a log, which takes jobs with their priorities; the log itself if it is not a queue."""
        return self._context.kernel.queue(log) if kind_of(log.config) == "queue" else log

    def _forget(self, topic: Topic) -> None:
        """Dead letters that were claimed as jobs themselves are no longer held."""
        context = self._context
        if topic.traits.type == "queue":
            queue = context.queue(topic)
            queue.forget_missing()
            dispatcher = context.dispatchers.find(queue)
            if dispatcher is not None:
                dispatcher.check_held()
