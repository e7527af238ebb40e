"""The messages of a WebSocket: the commands of clients, and the JSON messages of the server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from strandline.engine import Page
from strandline.protocols.topics.errors import MEMBERS, RENAMED
from strandline.protocols.topics.event_frames import CaughtUpEvent, TombstoneEvent, TopicDeletedEvent, WatchedRecord
from strandline.protocols.topics.records import render_records
from strandline.protocols.topics.topics import Topic
from strandline.protocols.topics.watch_request import TopicView
from strandline.protocols.topics.wire import (
    Natural,
    TopicOptions,
    WatchedTopic,
    WatchOptions,
    WriteBody,
    WritePerformance,
)
from strandline.service.http import Reply, encode
from strandline.service.log_config import Number
from strandline.service.problems import Refusal

_NULL = Raw(b"null")


class Subscribe(WatchOptions, tag_field="op", tag="subscribe", kw_only=True, forbid_unknown_fields=True):
    request_id: Raw = _NULL
    topic: str | None = None
    topics: dict[str, TopicOptions] | None = None
    #: For ``topic``; the topics in ``topics`` have their own.
    from_seq: Natural = 0
    tail: bool = False


class Unsubscribe(msgspec.Struct, tag_field="op", tag="unsubscribe", kw_only=True):
    request_id: Raw = _NULL
    topic: str | None = None
    topics: list[str] | None = None


class Publish(WriteBody, tag_field="op", tag="publish", kw_only=True):
    topic: str
    request_id: Raw = _NULL
    return_seqs: bool = True


class Ping(msgspec.Struct, tag_field="op", tag="ping", kw_only=True):
    request_id: Raw = _NULL


Command = Subscribe | Unsubscribe | Publish | Ping
command_decoder: msgspec.json.Decoder[Command] = msgspec.json.Decoder(Command)


class _Identified(msgspec.Struct):
    request_id: Raw = _NULL


def request_id_of(text: str) -> Raw:
    """The id of a message that is not a valid command, if it has one."""
    try:
        return msgspec.json.decode(text, type=_Identified).request_id
    except msgspec.MsgspecError:
        return _NULL


# --- messages of the server ----------------------------------------------------------------------------------------


class Pong(msgspec.Struct, tag_field="op", tag="pong"):
    request_id: Raw


class Subscribed(msgspec.Struct, tag_field="op", tag="subscribed"):
    request_id: Raw
    topics: dict[str, WatchedTopic]


class Unsubscribed(msgspec.Struct, tag_field="op", tag="unsubscribed"):
    request_id: Raw
    topics: list[str]


class PublishAck(msgspec.Struct, tag_field="op", tag="ack"):
    """Written as bytes, by ``ack_message``. ``seqs`` is null if the client does not want it."""

    request_id: Raw
    topic: str
    first_seq: Number
    last_seq: Number
    seqs: list[Number] | None
    head_seq: Number
    count: Number
    created: bool
    deduped: bool
    performance: WritePerformance


class RecordMessage(msgspec.Struct, tag_field="op", tag="record"):
    """Written as bytes, by ``MessageView``."""

    topic: str
    from_seq: Number
    to_seq: Number
    head_seq: Number
    records: list[WatchedRecord]


class CaughtUp(CaughtUpEvent, tag_field="op", tag="caught_up"):
    pass


class TombstoneMessage(TombstoneEvent, tag_field="op", tag="tombstone"):
    pass


class TopicDeletedMessage(TopicDeletedEvent, tag_field="op", tag="topic_deleted"):
    pass


class ErrorMessage(msgspec.Struct, tag_field="op", tag="error", kw_only=True):
    request_id: Raw | UnsetType = UNSET
    code: str
    message: str
    detail: Mapping[str, Any] | UnsetType = UNSET


class MessageView(TopicView):
    __slots__ = ()

    def render(self, subject: Topic, after: int, page: Page) -> tuple[str, ...]:
        name, lost = subject.name, page.tombstone
        texts: list[str] = []
        if lost is not None:
            texts.append(
                text_of(TombstoneMessage(name, lost.reason, lost.gap_from, lost.gap_to, lost.earliest, lost.head))
            )
        if page.seqs:
            records = render_records(page, tags=self.tags, meta=self.meta, data=self.data)
            record = b'{"op":"record","topic":%b,"from_seq":%d,"to_seq":%d,"head_seq":%d,"records":[%b]}' % (
                subject.json_name,
                after,
                page.next_after,
                page.head,
                records,
            )
            texts.append(record.decode("utf-8", "replace"))
        if page.caught_up:
            texts.append(text_of(CaughtUp(name, page.head)))
        return tuple(texts)


def text_of(message: msgspec.Struct) -> str:
    return encode(message).decode()


def ack_message(request_id: Raw, reply: Reply, with_seqs: bool) -> str:
    """The answer to a publish, made from the answer to a write."""
    seqs = b"" if with_seqs else b'"seqs":null,'
    return (b'{"op":"ack","request_id":%b,%b%b' % (bytes(request_id), seqs, reply.body[1:])).decode()


def error_message(request_id: Raw | UnsetType, refusal: Refusal) -> str:
    """A refusal as a message, with the same content as over HTTP."""
    told = refusal.renamed(RENAMED, MEMBERS)
    detail = UNSET if told.detail is None else told.detail
    return text_of(ErrorMessage(request_id=request_id, code=told.code, message=told.message, detail=detail))
