"""All logs of a server, whatever they hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from strandline.client.topic_types import TopicRow

if TYPE_CHECKING:
    from strandline.client import Client

PAGE_LOGS = 1000


class LogListRow(msgspec.Struct, kw_only=True):
    """A row of ``log ls``. ``bytes`` is None for a log that is not JSON."""

    log: str
    type: str
    records: int
    bytes: int | None
    head: int
    last_write: int | None
    content_type: str


class _Log(msgspec.Struct):
    name: str
    head: int
    last_ts: int
    records: int
    media_type: str


class _Logs(msgspec.Struct):
    logs: list[_Log]
    next: str | None


def every_log(client: Client, prefix: str) -> Iterator[LogListRow]:
    """All logs whose name starts with ``prefix``, sorted by name. The Arrow protocol lists every log, the topics
    protocol lists JSON logs with more details; both sort by name."""
    topics = client.topics(prefix)
    topic = next(topics, None)
    for log in _arrow_logs(client, prefix):
        while topic is not None and topic.topic < log.name:
            topic = next(topics, None)
        yield _row(log, topic if topic is not None and topic.topic == log.name else None)


def _arrow_logs(client: Client, prefix: str) -> Iterator[_Log]:
    after: str | None = ""
    while after is not None:
        query = {"prefix": prefix, "after": after, "limit": PAGE_LOGS}
        page = msgspec.json.decode(client.call("GET", "/arrow/logs", query=query).body, type=_Logs)
        yield from page.logs
        after = page.next


def _row(log: _Log, topic: TopicRow | None) -> LogListRow:
    return LogListRow(
        log=log.name,
        type="log" if topic is None else topic.type,
        records=log.records if topic is None else topic.count,
        bytes=None if topic is None else topic.bytes,
        head=log.head,
        last_write=log.last_ts or None,
        content_type=log.media_type,
    )
