"""Pushing jobs: an event stream that sends jobs to a worker."""

from __future__ import annotations

import re

from strandline.delivery.queues import Claimed, ClaimRequest, Queue
from strandline.delivery.queues.dispatcher import Dispatcher
from strandline.delivery.queues.leases import QueueWorker
from strandline.protocols.topics.context import Context
from strandline.protocols.topics.event_frames import RETRY, error_frame, heartbeat
from strandline.protocols.topics.jobs import check_node, queue_topic
from strandline.protocols.topics.shown_jobs import shown_jobs
from strandline.protocols.topics.topics import Topic
from strandline.service import sse
from strandline.service.access import Access
from strandline.service.http import Call, encode
from strandline.service.live import Ending, Followed, Following, LiveResponse
from strandline.service.log_config import clamp_lease
from strandline.service.problems import invalid

_LAST_MESSAGES: dict[Ending, tuple[int | str, str]] = {
    Ending.NO_SLOT: (429, Ending.NO_SLOT.value),
    Ending.TOO_SLOW: (408, "the worker does not read its jobs; reconnect to get jobs"),
    Ending.REVOKED: (401, Ending.REVOKED.value),
    Ending.DISCONNECTED: (403, Ending.DISCONNECTED.value),
    Ending.SHUTDOWN: ("server_shutting_down", Ending.SHUTDOWN.value),
}

_NUMBER = re.compile(r"[0-9]{1,18}")


class WorkerStreams:
    def __init__(self, context: Context) -> None:
        self._context = context

    def work(self, call: Call) -> WorkStream:
        """GET /v0/topics/{topic}/work"""
        context, query = self._context, call.query
        topic = queue_topic(context, call.head.params["topic"])
        node = query.get("node", "")
        check_node(context, node)
        most = min(_number(query, "max") or 1, context.settings.max_claim)
        lease_ms = _number(query, "lease_ms")
        context.live.check_room(call.access)
        request = ClaimRequest(node, most, None if lease_ms is None else clamp_lease(lease_ms))
        return WorkStream(request, context, context.queue(topic), topic, call.access)


class WorkStream(LiveResponse, QueueWorker):
    """One connection. When it ends, unfinished jobs are available to other workers at once."""

    __slots__ = ("_context", "_dispatcher", "_queue", "_topic")

    def __init__(self, request: ClaimRequest, context: Context, queue: Queue, topic: Topic, access: Access) -> None:
        LiveResponse.__init__(self, context.live, access)
        QueueWorker.__init__(self, *request)
        self._context = context
        self._queue = queue
        self._dispatcher: Dispatcher | None = None
        self._topic = topic

    # --- the connection --------------------------------------------------------------------------------------------

    def greeting(self) -> bytes:
        return RETRY + self.heartbeat()

    def heartbeat(self) -> bytes:
        return heartbeat(self._context.hub.now())

    def begin(self) -> None:
        context = self._context
        context.consumed(self._topic)
        context.catch_up(self._topic)
        # Not before: a stream that is never opened is never closed, and would leave an empty dispatcher.
        self._dispatcher = context.dispatchers.at(self._queue, self._topic.priority)
        self._dispatcher.join(self)

    def pause(self) -> None:
        self.paused = True
        if self._dispatcher is not None:
            self._dispatcher.look_at(self)

    def go_on(self) -> None:
        self.paused = False
        if self._dispatcher is not None:
            self._dispatcher.look_at(self)
            self._dispatcher.feed()

    def leave(self) -> None:
        if self._dispatcher is not None:
            self._dispatcher.leave(self)

    def following(self, most: int) -> Following:
        return Following([Followed(self._topic.name, None)], 1)

    def last_message(self, ending: Ending) -> bytes:
        return self._error(*_LAST_MESSAGES[ending])

    # --- the worker ------------------------------------------------------------------------------------------------

    def take(self, jobs: list[Claimed]) -> None:
        self._context.consumed(self._topic)
        frames = [sse.frame(b"job", encode(job), b"%d" % job.seq) for job in shown_jobs(jobs, self._topic.name)]
        self.write(b"".join(frames))

    def held_back(self, milliseconds: int) -> None:
        self.write(
            error_frame(
                code=429,
                error="the server is busy and hands out no jobs of this queue",
                retry_after_ms=milliseconds,
                topics=[self._topic.name],
            )
        )

    def dismiss(self, gone: bool) -> None:
        if gone:
            self.end(self._error(409, f"topic {self._topic.name!r} is no longer this queue"))
        else:
            self.shut_down()

    def _error(self, code: int | str, error: str) -> bytes:
        return error_frame(code=code, error=error, topic=self._topic.name)


def _number(query: dict[str, str], name: str) -> int | None:
    text = query.get(name)
    if text is None:
        return None
    if _NUMBER.fullmatch(text) is None:
        raise invalid(f"{name} must be an integer, 0 or more, not {text!r}")
    return int(text)
