"""Pushing jobs: an event stream on which a worker is given jobs as they come."""

from __future__ import annotations

import re

from strandline.delivery.queues import Claimed, ClaimRequest, Queue
from strandline.delivery.queues.dispatcher import Desk
from strandline.delivery.queues.workers import Worker
from strandline.delivery.watch.alarms import Alarms
from strandline.protocols.access import Access
from strandline.protocols.http import Call, Refusal, Sink, Stream
from strandline.protocols.topics.config import clamp_lease
from strandline.protocols.topics.context import Context
from strandline.protocols.topics.errors import invalid
from strandline.protocols.topics.event_frames import RETRY, error_frame, frame, heartbeat
from strandline.protocols.topics.jobs import check_node, in_order, queue_topic, render_job
from strandline.protocols.topics.topics import Topic

#: A stream on which nothing was sent for this long gets a sign of life.
HEARTBEAT_SECONDS = 15.0

_NUMBER = re.compile(r"[0-9]{1,18}")


class Working:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._alarms = Alarms(context.hub.loop)

    def work(self, call: Call) -> Stream:
        """GET /v0/topics/{topic}/work"""
        context, query = self._context, call.query
        topic = queue_topic(context, call.head.params["topic"])
        node = query.get("node", "")
        check_node(context, node)
        most = min(_number(query, "max") or 1, context.settings.max_claim)
        lease_ms = _number(query, "lease_ms")
        if not context.streams.room(call.access):
            raise _too_many_streams()
        request = ClaimRequest(node, most, None if lease_ms is None else clamp_lease(lease_ms))
        return WorkStream(request, context, self._alarms, context.queue(topic), topic, call.access)


class WorkStream(Stream, Worker):
    """One connection. Jobs that it was given and that are not done with are for others as soon as it is gone."""

    __slots__ = (
        "_access",
        "_alarms",
        "_context",
        "_counted",
        "_desk",
        "_prefix",
        "_queue",
        "_sent_at",
        "_sink",
        "_topic",
        "rings_at",
    )

    def __init__(
        self, request: ClaimRequest, context: Context, alarms: Alarms, queue: Queue, topic: Topic, access: Access
    ) -> None:
        super().__init__(*request)
        self._context = context
        self._alarms = alarms
        self._queue = queue
        self._desk: Desk | None = None
        self._topic = topic
        self._access = access
        self._prefix = b'"topic":%b,' % topic.json_name
        self._sink: Sink | None = None
        #: Whether this one takes up a slot of those for streams.
        self._counted = False
        self._sent_at = 0.0
        self.rings_at: float | None = None

    # --- the connection --------------------------------------------------------------------------------------------

    def opened(self, sink: Sink) -> None:
        context = self._context
        self._sink = sink
        self._counted = context.streams.acquire(self._access)
        self._send(RETRY + heartbeat(context.hub.now()))
        if not self._counted:
            # The last place was taken after the answer had begun.
            self._end(429, _too_many_streams().message)
            return
        self._alarms.set(self, self._sent_at + HEARTBEAT_SECONDS)
        context.consumed(self._topic)
        context.catch_up(self._topic)
        # Only now: a stream that is never opened is never closed either, and would leave an empty desk behind.
        self._desk = context.desks.at(self._queue, self._topic.priority)
        self._desk.join(self)

    def resumed(self) -> None:
        self.paused = False
        if self._desk is not None:
            self._desk.look_at(self)
            self._desk.feed()

    def closed(self) -> None:
        self._sink = None
        self._alarms.cancel(self)
        if self._desk is not None:
            self._desk.leave(self)
        if self._counted:
            self._counted = False
            self._context.streams.release(self._access)

    def too_slow(self) -> None:
        self._end(408, "the worker does not read its jobs; connect again to get jobs")

    def ring(self, now: float) -> float | None:
        """Send a heartbeat if nothing else was sent for long enough."""
        if self._sink is None:
            return None
        if now < self._sent_at + HEARTBEAT_SECONDS and not self.paused:
            return self._sent_at + HEARTBEAT_SECONDS
        if not self.paused:
            self._send(heartbeat(self._context.hub.now()))
        return now + HEARTBEAT_SECONDS

    def _send(self, data: bytes) -> None:
        if self._sink is not None:
            self._sent_at = self._context.hub.loop.time()
            if not self._sink.write(data):
                self.paused = True
                if self._desk is not None:
                    self._desk.look_at(self)

    # --- the worker ------------------------------------------------------------------------------------------------

    def take(self, jobs: list[Claimed]) -> None:
        self._context.consumed(self._topic)
        self._send(b"".join([_frame(job, self._prefix) for job in in_order(jobs)]))

    def held_back(self, milliseconds: int) -> None:
        self._send(
            error_frame(
                code=429,
                error="the server is busy and hands out no jobs of this queue",
                retry_after_ms=milliseconds,
                topics=[self._topic.name],
            )
        )

    def dismiss(self, gone: bool) -> None:
        if gone:
            self._end(409, f"topic {self._topic.name!r} is no longer this queue")
        else:
            self._end("server_shutting_down", "the server is shutting down")

    def _end(self, code: int | str, error: str) -> None:
        self._send(error_frame(code=code, error=error, topic=self._topic.name))
        sink, self._sink = self._sink, None
        if sink is not None:
            sink.close()


def _frame(job: Claimed, prefix: bytes) -> bytes:
    return b"id: %d\n%b" % (job.seq, frame(b"job", render_job(job, prefix)))


def _number(query: dict[str, str], name: str) -> int | None:
    text = query.get(name)
    if text is None:
        return None
    if _NUMBER.fullmatch(text) is None:
        raise invalid(f"{name} must be a whole number, 0 or more, not {text!r}")
    return int(text)


def _too_many_streams() -> Refusal:
    return Refusal(429, "throttled", "too many streams are open", retry_after=1)
