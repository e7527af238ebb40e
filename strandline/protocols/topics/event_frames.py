"""The frames of an event stream: the bytes of every kind of event, and the cursor that is their id."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from strandline.delivery.watch import FeedPage, FeedPosition
from strandline.engine import Page
from strandline.engine.record import Reason, Tombstone
from strandline.protocols.topics.records import render_records
from strandline.protocols.topics.topics import Topic
from strandline.protocols.topics.watch_request import TopicView, topic_of
from strandline.protocols.topics.wire import ReadRecord
from strandline.service import sse
from strandline.service.http import encode
from strandline.service.log_config import Number

#: Clients reconnect after two seconds.
RETRY = sse.retry(2000)

_HEARTBEAT = sse.comment(b"hb %d")


def heartbeat(now: int) -> bytes:
    return _HEARTBEAT % now


class WatchedRecord(ReadRecord, kw_only=True):
    """Without data if the client does not want it."""

    data: Any | UnsetType = UNSET


class RecordEvent(msgspec.Struct):
    """Written as bytes, by ``EventView``."""

    topic: str
    records: list[WatchedRecord]
    from_seq: Number
    to_seq: Number
    head_seq: Number


class CaughtUpEvent(msgspec.Struct):
    topic: str
    head_seq: Number


class TombstoneEvent(msgspec.Struct):
    topic: str
    reason: Reason | Literal["from_seq_too_old"]
    gap_from: Number
    gap_to: Number
    earliest_seq: Number
    head_seq: Number


class TopicDeletedEvent(msgspec.Struct):
    topic: str
    head_seq: Number
    reason: Literal["deleted"]


class ErrorEvent(msgspec.Struct, kw_only=True):
    code: int | str
    message: str | UnsetType = UNSET
    error: str | UnsetType = UNSET
    topic: str | UnsetType = UNSET
    retry_after_ms: Number | UnsetType = UNSET
    topics: list[str] | UnsetType = UNSET


def error_frame(**members: Any) -> bytes:
    return sse.frame(b"error", encode(ErrorEvent(**members)))


# --- cursors -------------------------------------------------------------------------------------------------------


def encode_cursor(positions: Iterable[tuple[bytes, int]]) -> bytes:
    """The id line for positions by quoted name, in order of the names."""
    text = b"{" + b",".join([b"%b:%d" % position for position in positions]) + b"}"
    return sse.id_line(urlsafe_b64encode(text).rstrip(b"="))


def decode_cursor(text: str) -> dict[str, int] | None:
    """The positions in a composite cursor; None if the text is not a cursor."""
    try:
        raw = urlsafe_b64decode(text + "=" * (-len(text) % 4))
        positions = msgspec.json.decode(raw, type=dict[str, Any])
    except (ValueError, msgspec.MsgspecError):
        return None
    return {name: seq for name, seq in positions.items() if type(seq) is int and 0 <= seq < 1 << 63}


# --- events --------------------------------------------------------------------------------------------------------


class EventContent:
    """A page as events. Readers at the same position share these bytes; only the ids may differ."""

    __slots__ = ("_name", "_whole", "caught_up", "next_after", "records", "tombstone")

    def __init__(self, topic: Topic, page: Page, records: bytes) -> None:
        self._name = topic.json_name
        self._whole = b""
        self.next_after = page.next_after
        self.tombstone = page.tombstone
        self.records = records
        self.caught_up = caught_up_frame(topic, page.head) if page.caught_up else b""

    @property
    def whole(self) -> bytes:
        """The frames with their ids, for a client that watches only this topic. Not for content with a tombstone."""
        if not self._whole:
            id = encode_cursor(((self._name, self.next_after),))
            self._whole = with_id(id, self.records, self.caught_up)
        return self._whole


def with_id(id: bytes, *frames: bytes) -> bytes:
    """The frames that are not empty, each with the id."""
    return b"".join([id + frame for frame in frames if frame])


class EventView(TopicView):
    __slots__ = ()

    def render(self, subject: Topic, after: int, page: Page) -> EventContent:
        records = b""
        if page.seqs:
            body = b'{"topic":%b,"records":[%b],"from_seq":%d,"to_seq":%d,"head_seq":%d}' % (
                subject.json_name,
                render_records(page, tags=self.tags, meta=self.meta, data=self.data),
                after,
                page.next_after,
                page.head,
            )
            records = sse.frame(b"record", body)
        return EventContent(subject, page, records)


def caught_up_frame(topic: Topic, head: int) -> bytes:
    return sse.frame(b"caught-up", encode(CaughtUpEvent(topic.name, head)))


def tombstone_frame(topic: Topic, tombstone: Tombstone, *, too_old: bool) -> bytes:
    reason, lost = "from_seq_too_old" if too_old else tombstone.reason, tombstone
    event = TombstoneEvent(topic.name, reason, lost.gap_from, lost.gap_to, lost.earliest, lost.head)
    return sse.frame(b"tombstone", encode(event))


def behind_tombstone(tombstone: Tombstone, piece: FeedPage) -> int:
    """The cursor right after a loss: a reader that resumes from it misses nothing and gets nothing twice."""
    # A recreated log starts again at 1, before the end of the range that was lost.
    behind = tombstone.earliest - 1 if tombstone.reason == "recreated" else tombstone.gap_to
    return min(behind, piece.next_after)


def deleted_frame(place: FeedPosition) -> bytes:
    topic = topic_of(place)
    return sse.frame(b"topic-deleted", encode(TopicDeletedEvent(topic.name, topic.log.head, "deleted")))
