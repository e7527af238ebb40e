"""The Python client.

``Client`` is for threads, ``AsyncClient`` for event loops; both can do the same::

    with Client("http://127.0.0.1:4000") as client:
        client.topic("orders").write({"item": "book"}, tag="ann")
"""

from strandline.client.asynchronous.client import AsyncClient
from strandline.client.asynchronous.collections import AsyncCollections, AsyncDocument
from strandline.client.asynchronous.consumers import AsyncConsumer
from strandline.client.asynchronous.cursors import AsyncAppendLogCursor
from strandline.client.asynchronous.live import AsyncLive
from strandline.client.asynchronous.producer import AsyncProducer
from strandline.client.asynchronous.queues import AsyncQueue
from strandline.client.asynchronous.routers import AsyncRouter
from strandline.client.asynchronous.streams import AsyncStream
from strandline.client.asynchronous.tables import AsyncTable
from strandline.client.asynchronous.tail import AsyncStreamTail
from strandline.client.asynchronous.topics import AsyncTopic
from strandline.client.asynchronous.watch import AsyncTail, AsyncWatch
from strandline.client.asynchronous.worker import AsyncWorker
from strandline.client.collection_types import Appended, Ask, Element, NotPulled, Pulled
from strandline.client.credentials import Credential, OwnIdentity
from strandline.client.errors import (
    BadAnswer,
    BadElement,
    BadRequest,
    Busy,
    Closed,
    Conflict,
    Fenced,
    Forbidden,
    Full,
    Gone,
    NotAuthenticated,
    NotFound,
    RecordsLost,
    Refused,
    ServerFault,
    StrandlineError,
    TimedOut,
    Unreachable,
    Unreadable,
    WrongAuthor,
)
from strandline.client.queue_types import Job
from strandline.client.retry import Patience
from strandline.client.stream_types import NOW, START, StreamPage
from strandline.client.synchronous.client import Client
from strandline.client.synchronous.collections import Collections, Document
from strandline.client.synchronous.consumers import Consumer
from strandline.client.synchronous.cursors import AppendLogCursor
from strandline.client.synchronous.live import Live
from strandline.client.synchronous.producer import Producer
from strandline.client.synchronous.queues import Queue
from strandline.client.synchronous.routers import Router
from strandline.client.synchronous.streams import Stream
from strandline.client.synchronous.tables import Table
from strandline.client.synchronous.tail import StreamTail
from strandline.client.synchronous.topics import Topic
from strandline.client.synchronous.watch import Tail, Watch
from strandline.client.synchronous.worker import Worker
from strandline.client.table_types import NewRow, Row
from strandline.client.topic_calls import Write
from strandline.client.topic_types import Arrived, CaughtUp, Deleted, Draft, Lost, Page, Record, Tombstone
from strandline.client.watch import Start

__all__ = [
    "NOW",
    "START",
    "AppendLogCursor",
    "Appended",
    "Arrived",
    "Ask",
    "AsyncAppendLogCursor",
    "AsyncClient",
    "AsyncCollections",
    "AsyncConsumer",
    "AsyncDocument",
    "AsyncLive",
    "AsyncProducer",
    "AsyncQueue",
    "AsyncRouter",
    "AsyncStream",
    "AsyncStreamTail",
    "AsyncTable",
    "AsyncTail",
    "AsyncTopic",
    "AsyncWatch",
    "AsyncWorker",
    "BadAnswer",
    "BadElement",
    "BadRequest",
    "Busy",
    "CaughtUp",
    "Client",
    "Closed",
    "Collections",
    "Conflict",
    "Consumer",
    "Credential",
    "Deleted",
    "Document",
    "Draft",
    "Element",
    "Fenced",
    "Forbidden",
    "Full",
    "Gone",
    "Job",
    "Live",
    "Lost",
    "NewRow",
    "NotAuthenticated",
    "NotFound",
    "NotPulled",
    "OwnIdentity",
    "Page",
    "Patience",
    "Producer",
    "Pulled",
    "Queue",
    "Record",
    "RecordsLost",
    "Refused",
    "Router",
    "Row",
    "ServerFault",
    "Start",
    "StrandlineError",
    "Stream",
    "StreamPage",
    "StreamTail",
    "Table",
    "Tail",
    "TimedOut",
    "Tombstone",
    "Topic",
    "Unreachable",
    "Unreadable",
    "Watch",
    "Worker",
    "Write",
    "WrongAuthor",
]
