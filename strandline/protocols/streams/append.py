"""POST: appending to a stream, closing it, or both in one step.

All errors of a request are found before anything is written: a refused append leaves neither records nor producer
state behind.
"""

from __future__ import annotations

import asyncio
import re
from typing import NamedTuple

from strandline.engine import Appended, Batch, Producer
from strandline.engine.errors import EngineError
from strandline.engine.ownership import CLOSED as CLOSED_NOTE
from strandline.engine.ownership import media_type
from strandline.engine.record import MAX_KEY_BYTES
from strandline.protocols.streams.context import StreamsContext
from strandline.protocols.streams.entries import byte_batch, checked_batch, json_batch
from strandline.protocols.streams.errors import STALE_EPOCH, bad_request, conflict
from strandline.protocols.streams.grammar import is_true, time_ms
from strandline.protocols.streams.replies import CLOSED, next_offset
from strandline.protocols.streams.stream import STREAM_SEQ, Stream
from strandline.service.admission import Replying, reply_of
from strandline.service.gathered_appends import (
    MAX_GATHERED_RECORDS,
    AppendGroup,
    BatchAppend,
    GatheredAppends,
    join_batches,
    settle_batches,
)
from strandline.service.http import Call, Head, Reply
from strandline.service.problems import Headers, Refusal, body_too_large

_NUMBER = re.compile(rb"[0-9]{1,16}")
#: Larger bodies are checked and converted on a worker thread.
CHECKED_AT_ONCE = 32 << 10
MAX_PRODUCER_NUMBER = (1 << 53) - 1


class AppendHead(NamedTuple):
    """The headers of an append."""

    media_type: str | None
    close: bool
    key: str | None
    ts: int | None
    seq: str | None
    producer: Producer | None
    #: Whether the records may be appended together with those of other requests: nothing else is to be done with them.
    gathers: bool

    @classmethod
    def of(cls, head: Head) -> AppendHead:
        headers = head.headers
        close, ts, seq, producer = (
            is_true(headers.get(b"stream-closed")),
            _timestamp(head),
            _stream_seq(head),
            _producer(head),
        )
        return cls(
            media_type(headers.get(b"content-type", b"").decode("latin-1")) or None,
            close,
            routing_key(head),
            ts,
            seq,
            producer,
            not close and ts is None and seq is None and producer is None,
        )


def routing_key(head: Head) -> str | None:
    value = head.headers.get(b"stream-key")
    if not value:
        return None
    try:
        key = value.decode()
    except UnicodeDecodeError:
        key = value.decode("latin-1")
    if len(key.encode()) > MAX_KEY_BYTES:
        raise bad_request(f"Stream-Key has more than {MAX_KEY_BYTES} bytes")
    return key


def _timestamp(head: Head) -> int | None:
    value = head.headers.get(b"stream-timestamp")
    return None if value is None else time_ms("Stream-Timestamp", value.decode("latin-1"))


def _stream_seq(head: Head) -> str | None:
    value = head.headers.get(b"stream-seq")
    if value is None:
        return None
    if not value.strip():
        raise bad_request("Stream-Seq must not be empty")
    return value.decode("latin-1")


def _producer(head: Head) -> Producer | None:
    headers = head.headers
    values = [headers.get(name) for name in (b"producer-id", b"producer-epoch", b"producer-seq")]
    if values == [None, None, None]:
        return None
    identity, epoch, seq = values
    if identity is None or epoch is None or seq is None:
        raise bad_request("Producer-Id, Producer-Epoch and Producer-Seq must be sent together")
    if not identity.strip():
        raise bad_request("Producer-Id must not be empty")
    return Producer(identity.decode("latin-1"), _number("Producer-Epoch", epoch), _number("Producer-Seq", seq))


def _number(name: str, value: bytes) -> int:
    if _NUMBER.fullmatch(value) is None or int(value) > MAX_PRODUCER_NUMBER:
        raise bad_request(f"{name} must be an integer from 0 to {MAX_PRODUCER_NUMBER}")
    return int(value)


class StreamChanged(Exception):
    """The stream has been closed, deleted, or given rules since its appends were checked."""


class _Append(BatchAppend):
    """An append that shares a commit with others."""

    __slots__ = ("call", "head")

    def __init__(self, batch: Batch, call: Call, head: AppendHead) -> None:
        super().__init__(batch)
        self.call = call
        self.head = head


class StreamAppends:
    def __init__(self, context: StreamsContext) -> None:
        self._context = context
        self._gathered: GatheredAppends[Stream, _Append] = GatheredAppends(context.hub.loop, self._append_group)
        self._tasks: set[asyncio.Task[None]] = set()

    def append(self, call: Call) -> Replying:
        """POST /v1/stream/{name}"""
        context = self._context
        stream = context.stream_to_change(call)
        head: AppendHead | None = call.head.memo
        if head is None:
            head = call.head.memo = AppendHead.of(call.head)
        if len(call.body) > context.settings.max_append_bytes:
            raise body_too_large(context.settings.max_append_bytes)
        if not context.admission.pressure.holds_writes:
            return self._append(stream, head, call)
        # The stream may be deleted while the request waits.
        return context.admission.write(lambda _: self._append(context.stream(call), head, call))

    def _append(self, stream: Stream, head: AppendHead, call: Call, *, apart: bool = False) -> Replying:
        """Append now or, unless ``apart``, with the other appends of this turn."""
        body = call.body
        if not body:
            if not head.close:
                raise bad_request("the body is empty")
            return self._close(stream, head)
        if head.media_type is None:
            raise bad_request("Content-Type is missing")
        if stream.closed:
            return self._closed(stream, head.producer, None)
        if head.media_type != stream.media_type:
            raise conflict(f"the stream holds {stream.media_type}, not {head.media_type}")
        self._context.check_backlog(self._gathered.count, self._gathered.size)
        size = len(body)
        if stream.is_plain:
            batch = self._batch(stream, head, body)
            if head.gathers and size <= CHECKED_AT_ONCE and len(batch.data) <= MAX_GATHERED_RECORDS and not apart:
                append = _Append(batch, call, head)
                if self._gathered.take(stream, append, size):
                    return append
            return self._commit(stream, head, batch, size)
        if size <= CHECKED_AT_ONCE:
            return self._commit(stream, head, self._batch(stream, head, body), size)
        return self._append_checked(stream, head, call)

    async def _append_checked(self, stream: Stream, head: AppendHead, call: Call) -> Reply:
        """Check and convert a large body on a worker thread; repeat it if the rules have changed meanwhile."""
        rules, body = stream.rules, call.body
        batch = await self._context.workers.normal.run(self._batch, stream, head, body)
        now_there = self._context.streams.get(stream.name)
        if now_there is not stream or stream.closed or stream.rules != rules:
            return await reply_of(self._append(now_there, head, call))
        return await reply_of(self._commit(stream, head, batch, len(body)))

    def _commit(self, stream: Stream, head: AppendHead, batch: Batch, size: int) -> Replying:
        """The body is valid: check whether the writer may append now, and append."""
        self._gathered.append_now(stream)
        context, producer, now = self._context, head.producer, self._context.hub.now()
        if producer is not None and self._repeats(stream, producer):
            stream.use(now)
            commit = stream.log.append(batch, producer=producer)
            return context.after_append(commit, 0, lambda _: _duplicate(stream, producer))
        notes: dict[str, object] = {}
        if head.seq is not None:
            notes[STREAM_SEQ] = self._check_seq(stream, head.seq)
        if head.close:
            notes[CLOSED_NOTE] = _closing(producer)
        stream.use(now)
        commit = stream.log.append(batch, producer=producer, notes=notes or None, ts=head.ts)
        context.meters.append_records.add(len(batch))
        context.meters.append_bytes.add(size)
        if not notes and producer is None:
            return context.after_append(commit, size, _appended)
        return context.after_append(commit, size, lambda appended: _told(appended.last, producer, head.close))

    def _batch(self, stream: Stream, head: AppendHead, body: bytes) -> Batch:
        if not stream.is_json:
            return byte_batch(body, head.key, None if stream.is_plain else stream.registry)
        most = self._context.settings.max_append_records
        if stream.is_plain:
            batch = json_batch(body, head.key, most)
        else:
            batch = checked_batch(body, head.key, most, stream.registry, stream.profile, self._context.hub.now())
        if batch is None:
            raise bad_request("the body is an empty array")
        return batch

    # --- gathered appends -----------------------------------------------------------------------------------------

    def _append_group(self, stream: Stream, group: AppendGroup[_Append]) -> None:
        """Append the records of all appends of a group. They were checked when they arrived."""
        context = self._context
        try:
            if stream.closed or stream.gone or not stream.is_plain:
                raise StreamChanged
            commit = stream.log.append(join_batches([append.batch for append in group.appends]))
        except (StreamChanged, EngineError):
            # Nothing has been written, and some of the appends may still be possible.
            for append in group.appends:
                self._append_apart(append)
            return
        except Exception as error:
            group.fail(error)
            return
        stream.use(context.hub.now())
        for append in group.appends:
            context.meters.append_records.add(len(append.batch))
            context.meters.append_bytes.add(len(append.call.body))
        context.settle_appends(
            commit, group.appends, group.size, lambda whole: settle_batches(group.appends, whole, _appended_of)
        )

    def _append_apart(self, append: _Append) -> None:
        """Repeat an append on its own."""

        async def repeat() -> None:
            try:
                stream = self._context.stream_to_change(append.call)
                append.settle(await reply_of(self._append(stream, append.head, append.call, apart=True)))
            except Exception as error:
                append.fail(error)

        task = asyncio.ensure_future(repeat())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- closing -------------------------------------------------------------------------------------------------

    def _close(self, stream: Stream, head: AppendHead) -> Replying:
        """Close the stream without a last append."""
        self._gathered.append_now(stream)
        context, producer = self._context, head.producer
        if stream.closed:
            return self._closed(stream, producer, stream.end)
        if producer is not None and self._repeats(stream, producer):
            commit = stream.log.note({}, producer=producer)
            return context.after_append(commit, 0, lambda _: _duplicate(stream, producer))
        notes: dict[str, object] = {CLOSED_NOTE: _closing(producer)}
        if head.seq is not None:
            notes[STREAM_SEQ] = self._check_seq(stream, head.seq)
        stream.use(context.hub.now())
        commit = stream.close_commit = stream.log.note(notes, producer=producer)
        if not commit.done:
            # Waiting readers were notified of the note; this notifies them that it is durable.
            context.hub.on_done(commit, lambda: context.hub.nudge(stream.log))
        end = stream.end
        return context.after_append(commit, 0, lambda _: _told(end, producer, True, appended=False))

    def _closed(self, stream: Stream, producer: Producer | None, closed_again: int | None) -> Replying:
        """Answer a request to a closed stream: it succeeds if it only closes, or is the append that closed the
        stream."""
        context, end = self._context, stream.end
        closing = stream.closing
        assert closing is not None
        if producer is not None and (closing.producer, closing.epoch, closing.seq) == producer:
            return context.admission.after(stream.log.sync(), lambda _: _told(end, producer, True, appended=False))
        if closed_again is not None and producer is None:
            return context.admission.after(stream.log.sync(), lambda _: _told(end, None, True, appended=False))
        raise conflict("the stream is closed", (next_offset(end), CLOSED))

    # --- checks of the writer --------------------------------------------------------------------------------------

    @staticmethod
    def _repeats(stream: Stream, producer: Producer) -> bool:
        """Whether the producer made this append before; refuses an append that is out of order."""
        known = stream.log.producer(producer.id)
        received = (b"producer-received-seq", b"%d" % producer.seq)
        if known is None:
            if producer.seq:
                expected = (b"producer-expected-seq", b"0")
                raise conflict("unknown producer: its first Producer-Seq must be 0", (expected, received))
            return False
        if producer.epoch < known.epoch:
            headers = ((b"producer-epoch", b"%d" % known.epoch),)
            raise Refusal(STALE_EPOCH, f"a producer with the epoch {known.epoch} has taken over", headers=headers)
        if producer.epoch > known.epoch:
            if producer.seq:
                raise bad_request("a new Producer-Epoch must begin with Producer-Seq 0")
            return False
        if producer.seq > known.seq + 1:
            expected = (b"producer-expected-seq", b"%d" % (known.seq + 1))
            raise conflict(f"the next Producer-Seq of this producer is {known.seq + 1}", (expected, received))
        return producer.seq <= known.seq

    @staticmethod
    def _check_seq(stream: Stream, seq: str) -> str:
        current: str | None = stream.log.notes.get(STREAM_SEQ)
        if current is not None and seq <= current:
            headers = (
                (b"stream-expected-seq", current.encode("latin-1")),
                (b"stream-received-seq", seq.encode("latin-1")),
            )
            raise conflict("sequence mismatch", headers)
        return seq


def _closing(producer: Producer | None) -> list[object]:
    return [] if producer is None else list(producer)


def _appended_of(append: _Append, appended: Appended) -> Reply:
    return _appended(appended)


def _appended(appended: Appended) -> Reply:
    return Reply(b"", 204, headers=(next_offset(appended.last),))


def _told(last: int, producer: Producer | None, closed: bool, *, appended: bool = True) -> Reply:
    headers: Headers = (next_offset(last),)
    status = 204
    if closed:
        headers += (CLOSED,)
    if producer is not None:
        headers += (b"producer-epoch", b"%d" % producer.epoch), (b"producer-seq", b"%d" % producer.seq)
        status = 200 if appended else 204
    return Reply(b"", status, headers=headers)


def _duplicate(stream: Stream, producer: Producer) -> Reply:
    """The producer made this append before; the answer has its latest seq."""
    known = stream.log.producer(producer.id)
    last = producer if known is None else Producer(producer.id, known.epoch, known.seq)
    return _told(stream.end, last, stream.closed, appended=False)
