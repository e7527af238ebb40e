"""A catch-up read of more than a page: one answer up to the end of the stream, or up to its maximum size.

The end of the answer is decided before its first byte, because the headers contain it. Records that are appended later
are not part of the answer. If a record is removed or cannot be read before it is sent, the connection is reset, because
a client must never take a part of the answer for all of it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from time import perf_counter
from typing import NamedTuple

from strandline.engine.errors import DamagedFile, EngineError
from strandline.engine.reads.page import SCAN_RECORDS
from strandline.engine.reads.payloads import Chunk, read_payloads
from strandline.engine.reads.span import ReadSpan, rest_of, span_of
from strandline.engine.record import MAX_SEQ
from strandline.engine.state.parts import Budget
from strandline.protocols.streams.context import StreamsContext
from strandline.protocols.streams.errors import GONE, gone, overloaded
from strandline.protocols.streams.pages import ReadPage, StreamPages
from strandline.protocols.streams.read_request import ReadRequest
from strandline.protocols.streams.state_messages import has_messages, with_offsets
from strandline.protocols.streams.stream import Stream
from strandline.service.http import Answer, Call
from strandline.service.pieces import PiecewiseResponse
from strandline.service.problems import Headers, Refusal
from strandline.spans import READ


class Piece(NamedTuple):
    """A part of an answer: the number of its records, and their text. In a JSON array, it has the commas between
    them."""

    records: int
    chunks: list[Chunk]

    @classmethod
    def of(cls, data: list[bytes], as_json: bool) -> Piece:
        return cls(len(data), [(b"," if as_json else b"").join(data)])


class SpanReader:
    """Reads the records of a span piece by piece, on a worker thread. Raises Refusal if one was removed meanwhile, and
    EngineError if one cannot be read."""

    def __init__(self, stream: Stream, ask: ReadRequest, span: ReadSpan, max_bytes: int) -> None:
        self._stream = stream
        self._registry = stream.registry
        self.version = self._registry.current_version
        self._key = ask.key
        self._as_json = ask.as_json(stream)
        self._span = span
        self._max_bytes = max_bytes

    @property
    def complete(self) -> bool:
        return self._span.after >= self._span.through

    def read(self) -> Piece:
        """The next records. A piece without a record with the key is empty."""
        if self._stream.gone:
            raise gone()
        try:
            return self._stored() or self._shown()
        except DamagedFile:
            self._stream.readable_through = self._span.after
            raise

    def _stored(self) -> Piece | None:
        """The next records if readers get them as they are stored: then nothing looks at each of them."""
        stream, span = self._stream, self._span
        if self._key is not None or self._registry.promotes:
            return None
        payloads = read_payloads(stream.log, span.after, span.through, self._max_bytes)
        if payloads is None:
            return None
        read = span.after, payloads.through
        if self._as_json and has_messages(stream, read, payloads.may_contain):
            return None
        self._advance(payloads.through)
        return Piece(payloads.records, payloads.chunks(b"," if self._as_json else b""))

    def _shown(self) -> Piece:
        """The next records, selected and converted one by one."""
        log, span = self._stream.log, self._span
        page = log.read(span.after, SCAN_RECORDS, max_bytes=self._max_bytes, key=self._key)
        if page.tombstone is not None and page.tombstone.gap_from <= span.through:
            raise _removed()
        after = min(page.next_after, span.through)
        self._advance(after)
        end = bisect_right(page.seqs, span.through)
        seqs, data = page.seqs[:end], page.data[:end]
        if self._registry.promotes:
            data = self._registry.promote_rows(seqs, data)
        if self._as_json:
            data = with_offsets(self._stream, seqs, data, None if self._key is not None else (span.after, after))
        return Piece.of(data, self._as_json)

    def _advance(self, after: int) -> None:
        """The records up to the seq ``after`` have been read. Raises Refusal if one of the span was removed."""
        log, span = self._stream.log, self._span
        if log.config.compact:
            # A record that is removed because its key has a newer one is not missed: the newer one is in the span, or
            # after it.
            self._span = span._replace(after=after)
            return
        rest = rest_of(log, span, after)
        if rest is None:
            raise _removed()
        self._span = rest


class Bodies:
    """The pieces of a body, made from the first pieces and the rest. Until the last one, they are not a complete JSON
    array. A slow reader waits between two pieces, so nothing keeps a piece or its records once it is made."""

    def __init__(self, pieces: list[Piece], reader: SpanReader, as_json: bool) -> None:
        self._pieces = pieces
        self._reader = reader
        self._as_json = as_json
        #: The number of records and bytes so far.
        self.records = 0
        self.size = 0

    def __iter__(self) -> Iterator[bytes]:
        while self._pieces or not self._reader.complete:
            if not self._pieces:
                self._pieces.append(self._reader.read())
            # An empty piece would end the answer.
            if any(self._pieces[0].chunks) or (self._pieces[0].records and self._as_json):
                yield self._body(self._pieces.pop(0))
            else:
                self.records += self._pieces.pop(0).records
        if self._as_json:
            end = b"]" if self.records else b"[]"
            self.size += len(end)
            yield end

    def _body(self, piece: Piece) -> bytes:
        chunks = piece.chunks
        if self._as_json:
            body = b"".join((b"," if self.records else b"[", *chunks))
        else:
            # A single one is not copied.
            body = chunks[0] if len(chunks) == 1 and isinstance(chunks[0], bytes) else b"".join(chunks)
        self.records += piece.records
        self.size += len(body)
        return body


class _Begun(NamedTuple):
    """The start of an answer. ``page`` has all of its records unless there are ``bodies``."""

    page: ReadPage
    bodies: Bodies | None
    #: Whether the first pieces are the whole answer.
    short: bool = False


class CatchUp(PiecewiseResponse):
    """An answer in pieces."""

    __slots__ = ("_bodies", "_meters")
    compressible = True

    def __init__(self, call: Call, context: StreamsContext, stream: Stream, headers: Headers, bodies: Bodies) -> None:
        pieces = iter(bodies)
        super().__init__(
            context.kernel,
            context.workers.normal,
            call.access,
            f"the stream {stream.name!r}",
            stream.content_type_bytes,
            headers,
            next(pieces),
            pieces,
        )
        self._bodies = bodies
        self._meters = context.meters

    def leave(self) -> None:
        super().leave()
        self._meters.read_records.add(self._bodies.records)
        self._meters.read_bytes.add(self._bodies.size)


class CatchUpReads:
    def __init__(self, context: StreamsContext, pages: StreamPages) -> None:
        self._context = context
        self._pages = pages

    def wants(self, call: Call, stream: Stream, ask: ReadRequest, found: ReadPage) -> bool:
        """Whether the answer continues after a page. Filtered reads and the latest records of keys come in pages: the
        first would have to read an unlimited part of the stream, and the second change with every append."""
        if found.next_after >= found.head or ask.filter is not None or ask.latest or not call.head.takes_chunks:
            return False
        left = self._left(stream, ask, found)
        return left.rows > 0 and left.size > 0

    def _left(self, stream: Stream, ask: ReadRequest, found: ReadPage) -> Budget:
        """What may follow the page. Only a JSON array has a maximum number of records."""
        settings = self._context.settings
        rows = settings.catch_up_max_records if ask.as_json(stream) else MAX_SEQ
        return Budget(rows - len(found.data), settings.catch_up_max_bytes - sum(map(len, found.data)))

    async def answer(self, call: Call, stream: Stream, ask: ReadRequest, found: ReadPage) -> Answer:
        context = self._context
        began = perf_counter()
        try:
            begun = await context.workers.normal.run(self._begin, stream, ask, found, part=READ)
        finally:
            context.meters.read_fetch.add(int((perf_counter() - began) * 1_000_000))
        page, bodies, short = begun
        if_none_match = call.head.headers.get(b"if-none-match")
        if bodies is None:
            return self._pages.caught_up(stream, ask, page, if_none_match)
        headers, unchanged = self._pages.caught_up_headers(stream, ask, page, if_none_match)
        if unchanged is not None:
            return unchanged
        if short:
            body = b"".join(bodies)
            return self._pages.reply(stream, body, bodies.records, headers)
        if not context.live.has_room(call.access):
            raise overloaded("too many streams are open")
        return CatchUp(call, context, stream, headers, bodies)

    def _begin(self, stream: Stream, ask: ReadRequest, found: ReadPage) -> _Begun:
        """Decide the end of the answer, and read the second page. Short answers end with it and need no stream."""
        left = self._left(stream, ask, found)
        span = span_of(stream.log, found.next_after, left, ask.key, stream.readable_through)
        reader = SpanReader(stream, ask, span, self._context.settings.read_max_bytes)
        if span.through <= found.next_after or reader.version != found.version:
            return _Begun(found, None)
        try:
            second = reader.read()
        except (EngineError, Refusal):
            # The page before is still valid, and the next request finds out what has happened.
            return _Begun(found, None)
        as_json = ask.as_json(stream)
        page = found._replace(data=[], next_after=span.through, head=span.head)
        return _Begun(page, Bodies([Piece.of(found.data, as_json), second], reader, as_json), reader.complete)


def _removed() -> Refusal:
    return Refusal(GONE, "records of the answer were removed before they were sent")
