"""What goes over a WebSocket: the commands of clients, and the JSON messages they get."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from strandline.engine import Page
from strandline.protocols.topics.errors import refuse
from strandline.protocols.topics.records import render_records
from strandline.protocols.topics.topics import Topic
from strandline.protocols.topics.watch_request import Natural, TopicOptions, TopicView, WatchOptions
from strandline.protocols.topics.write import WriteBody
from strandline.service.http import Reply
from strandline.service.problems import Refusal

_NULL = Raw(b"null")


class Subscribe(WatchOptions, tag_field="op", tag="subscribe", kw_only=True):
    request_id: Raw = _NULL
    topic: str | None = None
    topics: dict[str, TopicOptions] | None = None
    #: For ``topic``; those in ``topics`` have their own.
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
    """The id of a message that is no valid command, as far as it has one."""
    try:
        return msgspec.json.decode(text, type=_Identified).request_id
    except msgspec.MsgspecError:
        return _NULL


class MessageView(TopicView):
    __slots__ = ()

    def render(self, subject: Topic, after: int, page: Page) -> tuple[str, ...]:
        name, messages = subject.json_name, []
        lost = page.tombstone
        if lost is not None:
            messages.append(
                b'{"op":"tombstone","topic":%b,"reason":"%b","gap_from":%d,"gap_to":%d,"earliest_seq":%d,"head_seq":%d}'
                % (name, lost.reason.encode(), lost.gap_from, lost.gap_to, lost.earliest, lost.head)
            )
        if page.seqs:
            records = render_records(page, tags=self.tags, meta=self.meta, data=self.data)
            messages.append(
                b'{"op":"record","topic":%b,"from_seq":%d,"to_seq":%d,"head_seq":%d,"records":[%b]}'
                % (name, after, page.next_after, page.head, records)
            )
        texts = [message.decode("utf-8", "replace") for message in messages]
        if page.caught_up:
            texts.append(caught_up_message(subject, page.head))
        return tuple(texts)


def caught_up_message(topic: Topic, head: int) -> str:
    return '{"op":"caught_up","topic":%s,"head_seq":%d}' % (topic.json_name.decode(), head)  # noqa: UP031


def deleted_message(topic: Topic) -> str:
    return message(op="topic_deleted", topic=topic.name, head_seq=topic.log.head, reason="deleted")


def ack_message(request_id: Raw, reply: Reply, with_seqs: bool) -> str:
    """The answer to a write, as the answer to a publish."""
    seqs = b"" if with_seqs else b'"seqs":null,'
    return (b'{"op":"ack","request_id":%b,%b%b' % (bytes(request_id), seqs, reply.body[1:])).decode()


def error_message(request_id: Raw | None, refusal: Refusal) -> str:
    """A refusal as it would be answered over HTTP."""
    head = b'{"op":"error",' if request_id is None else b'{"op":"error","request_id":%b,' % bytes(request_id)
    return (head + refuse(refusal).body.removeprefix(b'{"error":{')[:-1]).decode()


def message(**fields: Any) -> str:
    return msgspec.json.encode(fields).decode()
