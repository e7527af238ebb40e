"""The Python client.

Use ``Client`` in threads and ``AsyncClient`` in event loops. Both have the same methods::

    with Client("http://127.0.0.1:4000") as client:
        client.topic("orders").write({"item": "book"}, tag="ann")
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.late_import import late_names

if TYPE_CHECKING:
    from strandline.client.asynchronous.client import AsyncClient
    from strandline.client.asynchronous.collections import AsyncAppendLogCursor, AsyncCollections, AsyncDocument
    from strandline.client.asynchronous.groups import AsyncConsumerGroup, AsyncGroupMember
    from strandline.client.asynchronous.keyrings import AsyncSharedKeyring
    from strandline.client.asynchronous.live import AsyncLive
    from strandline.client.asynchronous.queues import AsyncQueue, AsyncWorker
    from strandline.client.asynchronous.regular_documents import AsyncRegularDocument
    from strandline.client.asynchronous.streams import AsyncProducer, AsyncStream, AsyncStreamTail
    from strandline.client.asynchronous.tables import AsyncTable
    from strandline.client.asynchronous.topic_producer import AsyncTopicProducer
    from strandline.client.asynchronous.topics import AsyncConsumer, AsyncRouter, AsyncTopic
    from strandline.client.asynchronous.watch import AsyncTail, AsyncWatch
    from strandline.client.collection_calls import (
        Appended,
        DocumentRequest,
        DocumentVersion,
        Element,
        NotPulled,
        Pulled,
        Pushed,
    )
    from strandline.client.credentials import Credential, OwnIdentity
    from strandline.client.declared_schema import Search, log_schema
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
    from strandline.client.failures import JobFailed, JobFailure
    from strandline.client.group_calls import GroupState, MemberState, ShareState
    from strandline.client.queue_calls import DeadLetter, Job
    from strandline.client.retry import Patience
    from strandline.client.search_types import Aggregated, Coverage, Found, Hit, IndexProgress, Measure, SearchConfig
    from strandline.client.stream_calls import NOW, START, StreamPage
    from strandline.client.synchronous.client import Client
    from strandline.client.synchronous.collections import AppendLogCursor, Collections, Document
    from strandline.client.synchronous.groups import ConsumerGroup, GroupMember
    from strandline.client.synchronous.keyrings import SharedKeyring
    from strandline.client.synchronous.live import Live
    from strandline.client.synchronous.queues import Queue, Worker
    from strandline.client.synchronous.regular_documents import RegularDocument
    from strandline.client.synchronous.streams import Producer, Stream, StreamTail
    from strandline.client.synchronous.tables import Table
    from strandline.client.synchronous.topic_producer import TopicProducer
    from strandline.client.synchronous.topics import Consumer, Router, Topic
    from strandline.client.synchronous.watch import Tail, Watch
    from strandline.client.table_types import NewRow, Row
    from strandline.client.topic_calls import Write
    from strandline.client.topic_types import Arrived, CaughtUp, Deleted, Draft, Lost, Page, Record, Tombstone
    from strandline.client.watch import Start

__all__ = [
    "NOW",
    "START",
    "Aggregated",
    "AppendLogCursor",
    "Appended",
    "Arrived",
    "AsyncAppendLogCursor",
    "AsyncClient",
    "AsyncCollections",
    "AsyncConsumer",
    "AsyncConsumerGroup",
    "AsyncDocument",
    "AsyncGroupMember",
    "AsyncLive",
    "AsyncProducer",
    "AsyncQueue",
    "AsyncRegularDocument",
    "AsyncRouter",
    "AsyncSharedKeyring",
    "AsyncStream",
    "AsyncStreamTail",
    "AsyncTable",
    "AsyncTail",
    "AsyncTopic",
    "AsyncTopicProducer",
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
    "ConsumerGroup",
    "Coverage",
    "Credential",
    "DeadLetter",
    "Deleted",
    "Document",
    "DocumentRequest",
    "DocumentVersion",
    "Draft",
    "Element",
    "Fenced",
    "Forbidden",
    "Found",
    "Full",
    "Gone",
    "GroupMember",
    "GroupState",
    "Hit",
    "IndexProgress",
    "Job",
    "JobFailed",
    "JobFailure",
    "Live",
    "Lost",
    "Measure",
    "MemberState",
    "NewRow",
    "NotAuthenticated",
    "NotFound",
    "NotPulled",
    "OwnIdentity",
    "Page",
    "Patience",
    "Producer",
    "Pulled",
    "Pushed",
    "Queue",
    "Record",
    "RecordsLost",
    "Refused",
    "RegularDocument",
    "Router",
    "Row",
    "Search",
    "SearchConfig",
    "ServerFault",
    "ShareState",
    "SharedKeyring",
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
    "TopicProducer",
    "Unreachable",
    "Unreadable",
    "Watch",
    "Worker",
    "Write",
    "WrongAuthor",
    "log_schema",
]

#: A module is imported when one of its names is used, so that a program that reads a log does not wait for the imports
#: of signatures and event loops.
__getattr__ = late_names(
    __name__,
    {
        "asynchronous.client": "AsyncClient",
        "asynchronous.collections": "AsyncAppendLogCursor AsyncCollections AsyncDocument",
        "asynchronous.groups": "AsyncConsumerGroup AsyncGroupMember",
        "asynchronous.keyrings": "AsyncSharedKeyring",
        "asynchronous.live": "AsyncLive",
        "asynchronous.queues": "AsyncQueue AsyncWorker",
        "asynchronous.regular_documents": "AsyncRegularDocument",
        "asynchronous.streams": "AsyncProducer AsyncStream AsyncStreamTail",
        "asynchronous.tables": "AsyncTable",
        "asynchronous.topic_producer": "AsyncTopicProducer",
        "asynchronous.topics": "AsyncConsumer AsyncRouter AsyncTopic",
        "asynchronous.watch": "AsyncTail AsyncWatch",
        "collection_calls": "Appended DocumentRequest DocumentVersion Element NotPulled Pulled Pushed",
        "credentials": "Credential OwnIdentity",
        "declared_schema": "Search log_schema",
        "errors": (
            "BadAnswer BadElement BadRequest Busy Closed Conflict Fenced Forbidden Full Gone NotAuthenticated NotFound "
            "RecordsLost Refused ServerFault StrandlineError TimedOut Unreachable Unreadable WrongAuthor"
        ),
        "failures": "JobFailed JobFailure",
        "group_calls": "GroupState MemberState ShareState",
        "queue_calls": "DeadLetter Job",
        "retry": "Patience",
        "search_types": "Aggregated Coverage Found Hit IndexProgress Measure SearchConfig",
        "stream_calls": "NOW START StreamPage",
        "synchronous.client": "Client",
        "synchronous.collections": "AppendLogCursor Collections Document",
        "synchronous.groups": "ConsumerGroup GroupMember",
        "synchronous.keyrings": "SharedKeyring",
        "synchronous.live": "Live",
        "synchronous.queues": "Queue Worker",
        "synchronous.regular_documents": "RegularDocument",
        "synchronous.streams": "Producer Stream StreamTail",
        "synchronous.tables": "Table",
        "synchronous.topic_producer": "TopicProducer",
        "synchronous.topics": "Consumer Router Topic",
        "synchronous.watch": "Tail Watch",
        "table_types": "NewRow Row",
        "topic_calls": "Write",
        "topic_types": "Arrived CaughtUp Deleted Draft Lost Page Record Tombstone",
        "watch": "Start",
    },
)
