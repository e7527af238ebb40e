"""Follows the records of a log over an event stream."""

from __future__ import annotations

import logging
import re
from typing import Any

import msgspec

from strandline.arrow import pa
from strandline.delivery.watch import FeedPosition, FeedReader, FeedView, PlainSubject
from strandline.engine import Log, Page, Record
from strandline.engine.errors import UnknownLog
from strandline.protocols.console.context import ConsoleContext
from strandline.protocols.console.matches import content_of
from strandline.protocols.console.records import payload_of, render, render_tombstone
from strandline.query.content_filter import ContentFilter
from strandline.service import sse
from strandline.service.access import Access
from strandline.service.http import Call
from strandline.service.live import Ending, Following, LiveResponse
from strandline.service.parameters import number
from strandline.service.problems import log_not_found

log = logging.getLogger(__name__)

#: The maximum records and bytes of one message.
PIECE_RECORDS = 256
PIECE_BYTES = 256 << 10

#: Filters run on the event loop, so the bytes of a message times the size of the filter's regular expressions are
#: bounded: to about 50 ms. A single larger record may take 200 ms; one that could take longer is skipped.
MESSAGE_COST = 2_000_000
RECORD_COST = 8_000_000

#: The id of an event: the epoch of the log and the seq.
_ID = re.compile(rb"([0-9]{1,19})-([0-9]{1,19})")


class TailView(FeedView):
    """All records, or those whose content matches a filter."""

    __slots__ = ("_content", "_max_bytes", "_max_record_bytes")

    def __init__(self, content: ContentFilter | None = None) -> None:
        super().__init__(strong=False)
        self._content = content
        size = 0 if content is None else content.pattern_size
        self._max_bytes = min(PIECE_BYTES, MESSAGE_COST // size) if size else PIECE_BYTES
        self._max_record_bytes = RECORD_COST // size if size else 0

    def arguments(self, subject: Any) -> dict[str, Any]:
        return {"limit": PIECE_RECORDS, "max_bytes": self._max_bytes}

    def render(self, subject: Any, after: int, page: Page) -> bytes:
        payload, epoch, frames = payload_of(subject.log), page.epoch, list[bytes]()
        if page.tombstone is not None:
            behind = page.seqs[0] - 1 if page.seqs else page.next_after
            frames.append(sse.frame(b"tombstone", render_tombstone(page.tombstone), b"%d-%d" % (epoch, behind)))
        records = list(page)
        if self._content is not None and records:
            records = self._matching(self._content, records, frames, epoch)
        for record in records:
            frames.append(sse.frame(b"record", render(record, payload), b"%d-%d" % (epoch, record.seq)))
        return b"".join(frames)

    def _matching(self, content: ContentFilter, records: list[Record], frames: list[bytes], epoch: int) -> list[Record]:
        """The records that match. Adds an event for each record that is too large for the filter."""
        most, small = self._max_record_bytes, records
        if most:
            small = [record for record in records if len(record.data) <= most]
            for record in records if len(small) < len(records) else ():
                if len(record.data) > most:
                    skipped = {"seq": record.seq, "bytes": len(record.data), "max_bytes": most}
                    frames.append(sse.frame(b"skipped", msgspec.json.encode(skipped), b"%d-%d" % (epoch, record.seq)))
        found = content.matches(pa.array([record.data for record in small], pa.binary()))
        return [record for record, matches in zip(small, found.tolist(), strict=True) if matches]


VIEW = TailView()


class LogTails:
    def __init__(self, context: ConsoleContext) -> None:
        self._context = context

    def open(self, call: Call) -> TailStream:
        """GET /console/api/log/{name}/tail. Without a start position, only new records are sent."""
        tailed = self._context.log(call)
        self._context.live.check_room(call.access)
        after, epoch = number(call, "after"), tailed.epoch
        # A client that reconnects sends its original URL again; the header has its current position.
        known = _ID.fullmatch(call.head.headers.get(b"last-event-id", b""))
        if known is not None:
            epoch, after = int(known[1]), int(known[2])
        start = tailed.head if after is None else after
        content = content_of(call)
        view = VIEW if content is None else TailView(content)
        return TailStream(self._context, call.access, tailed, epoch, start, view)


class ConsoleStream(LiveResponse):
    """An event stream of the console."""

    __slots__ = ()

    def last_message(self, ending: Ending) -> bytes:
        if ending is Ending.SHUTDOWN:
            return b""
        return sse.frame(b"end", msgspec.json.encode({"message": ending.value}))


class TailStream(ConsoleStream, FeedReader):
    """A stream that receives the records appended to a log."""

    __slots__ = ("_context", "_place")

    def __init__(
        self, context: ConsoleContext, access: Access, tailed: Log, epoch: int, start: int, view: TailView
    ) -> None:
        super().__init__(context.live, access)
        self._context = context
        self._place = FeedPosition(self, PlainSubject(tailed), start, view)
        self._place.epoch = epoch

    def begin(self) -> None:
        try:
            self._context.feeds.attach(self._place)
        except UnknownLog:
            self.gone(self._place)
            return
        self.go_on()

    def leave(self) -> None:
        self._context.feeds.detach(self._place)

    def following(self, most: int) -> Following:
        return Following.of((self._place,), most)

    def go_on(self) -> None:
        """Send the available records that the client can take, until other streams need a turn."""
        for page in self._place.pages(lambda: self.keeps_up):
            if page.content:
                self.write(page.content)

    def deliver(self, place: FeedPosition) -> None:
        self.go_on()

    def gone(self, place: FeedPosition) -> None:
        told = log_not_found(place.subject.log.name)
        self.end(sse.frame(b"dropped", msgspec.json.encode({"log": place.subject.log.name, "message": told.message})))

    def paced(self, place: FeedPosition) -> None:
        pass

    def failed(self, place: FeedPosition, error: Exception) -> None:
        log.warning("closed a tail of %r after record %d: %s", place.subject.log.name, place.cursor, error)
        self.end()
