"""The routes of the topics protocol, and its shutdown."""

from __future__ import annotations

from typing import Literal

from strandline.protocols.topics.admin import TopicAdministration
from strandline.protocols.topics.batches import multi_write_limit, write_limit
from strandline.protocols.topics.consumers import Consumers
from strandline.protocols.topics.context import Context
from strandline.protocols.topics.delete import RecordDeletes
from strandline.protocols.topics.errors import refuse, reply_to
from strandline.protocols.topics.groups import ConsumerGroups
from strandline.protocols.topics.jobs import QueueJobs
from strandline.protocols.topics.multi_write import MultiWrites
from strandline.protocols.topics.read import TopicReads
from strandline.protocols.topics.redrive import Redrives
from strandline.protocols.topics.routers import TopicRouters
from strandline.protocols.topics.routers import routes as router_routes
from strandline.protocols.topics.watch import TopicWatches
from strandline.protocols.topics.websocket import WebSockets
from strandline.protocols.topics.worker_stream import WorkerStreams
from strandline.protocols.topics.write import TopicWrites
from strandline.service.http import ElementLimit, Handler, Route


class TopicsProtocol:
    """The handlers of the topics protocol."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.writing = TopicWrites(context)
        self.multi_writing = MultiWrites(context)
        self.reading = TopicReads(context)
        self.administering = TopicAdministration(context)
        self.deleting = RecordDeletes(context)
        self.consumers = Consumers(context)
        self.groups = ConsumerGroups(context, self.consumers)
        self.routing = TopicRouters(context)
        self.watching = TopicWatches(context)
        self.websockets = WebSockets(context, self.watching, self.writing)
        self.queueing = QueueJobs(context)
        self.working = WorkerStreams(context)
        self.redriving = Redrives(context)

    def routes(self) -> list[Route]:
        topics, consumers = self.administering, self.consumers
        one = "/v0/topics/{topic}"
        consumer = one + "/consumers/{consumer}"
        group = one + "/groups/{group}"
        records, writes = write_limit(self.context.settings), multi_write_limit(self.context.settings)
        return [
            _route("GET", "/v0/topics", topics.list, "read"),
            _route("PUT", one, topics.put, "admin", body="optional"),
            _route("GET", one, topics.get, "read", fast=True),
            _route("DELETE", one, topics.delete, "delete"),
            _route("POST", one, self.writing.write, "write", body="required", fast=True, elements=records),
            _route("POST", "/v0/write", self.multi_writing.write, "write", body="required", fast=True, elements=writes),
            _route("POST", one + "/diff", self.reading.diff, "read", body="optional", fast=True, waits="records"),
            _route("POST", one + "/delete", self.deleting.delete, "delete", body="required"),
            _route("GET", "/v0/consumers", consumers.list_all, "read"),
            _route("GET", one + "/consumers", consumers.list, "read"),
            _route("GET", consumer, consumers.get, "read"),
            _route("PUT", consumer, consumers.commit, "read", body="required", fast=True),
            _route("DELETE", consumer, consumers.delete, "delete"),
            _route("POST", group, self.groups.attend, "read", body="required", fast=True),
            _route("GET", group, self.groups.get, "read"),
            _route("DELETE", group, self.groups.delete, "delete"),
            *router_routes(self.routing),
            _route("POST", "/v0/watch", self.watching.create, "read", body="required"),
            _route("GET", "/v0/watch/{wid}", self.watching.open, fast=True, stream=True, own_access=True),
            *self._queue_routes(one),
        ]

    def _queue_routes(self, one: str) -> list[Route]:
        queueing = self.queueing
        return [
            _route("POST", one + "/claim", queueing.claim, "read", "write", body="optional", fast=True),
            _route("POST", one + "/ack", queueing.ack, "write", body="required", fast=True),
            _route("POST", one + "/nack", queueing.nack, "write", body="required", fast=True),
            _route("POST", one + "/extend", queueing.extend, "write", body="required", fast=True),
            _route("GET", one + "/work", self.working.work, "read", "write", stream=True, fast=True, waits="jobs"),
            _route("POST", one + "/redrive", self.redriving.redrive, "read", "write", "delete", body="optional"),
        ]

    def drain(self) -> None:
        """Answer all waiting requests. Workers leave their queues together, so that no job passes from one to the next
        during the shutdown."""
        self.reading.end_polls()
        self.context.dispatchers.stop()


def _route(
    method: str,
    path: str,
    handler: Handler,
    *scopes: str,
    body: str = "none",
    fast: bool = False,
    stream: bool = False,
    own_access: bool = False,
    elements: ElementLimit | None = None,
    waits: Literal["", "records", "jobs"] = "",
    names: tuple[str, ...] | None = None,
) -> Route:
    if names is None:
        names = ("topic",) if "{topic}" in path else ()
    return Route(
        method=method,
        path=path,
        handler=handler,
        scopes=scopes,
        names=names,
        body=body,
        fast=fast,
        stream=stream,
        own_access=own_access,
        elements=elements,
        waits=waits,
        errors=reply_to,
        refuse=refuse,
    )
