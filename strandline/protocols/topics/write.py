"""Appending records to a topic: the hottest path of the protocol."""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from time import perf_counter
from typing import TypeVar

import msgspec
from msgspec import UNSET

from strandline.engine import Appended, Batch, Log
from strandline.engine.commit import Commit
from strandline.protocols.http import Call, Later, Reply
from strandline.protocols.topics.batches import (
    RecordsField,
    WriteRecord,
    check_idempotency_key,
    check_utf8,
    is_scheduled,
    join_batches,
    key_of,
    make_batch,
    make_schedules,
    write_limit,
)
from strandline.protocols.topics.config import TopicConfig, config_of_new
from strandline.protocols.topics.context import Context
from strandline.protocols.topics.records import number_list
from strandline.protocols.topics.topics import Topic

T = TypeVar("T")
#: A write of more records than this gains nothing by being appended together with others.
MAX_GATHERED_RECORDS = 16
#: A group of this size is appended at once.
MAX_GATHERED_BYTES = 1 << 20


class WriteBody(msgspec.Struct, gc=False):
    records: RecordsField
    node: str | None = None
    idempotency_key: str | None = None
    create: bool | None = None
    config: TopicConfig | None = None
    disable_backpressure: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether it is one record, and nothing is said but its data."""
        if len(self.records) != 1:
            return False
        record = self.records[0]
        return (
            record.tag is None
            and record.node is None
            and record.meta is UNSET
            and not record.not_before_ts
            and not record.priority
            and self.idempotency_key is None
            and self.node is None
            and self.create is None
            and self.config is None
            and not self.disable_backpressure
        )


_decoder = msgspec.json.Decoder(WriteBody)


class Writing:
    """Turns bodies into batches and appends them.

    Plain writes to the same topic that arrive in the same turn of the loop are appended together: one frame, one
    system call, one block in memory for all of them. Each still gets its own seqs and its own answer.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._settings = context.settings
        self.elements = write_limit(context.settings)
        self._gathered: dict[Topic, _Gathered] = {}
        self._writes_of_turn = 0
        #: Whether the last turn had one write only.
        self._alone = True

    def write(self, call: Call) -> Reply | Later | Awaitable[Reply]:
        """POST /v0/topics/{topic}"""
        raw = call.body
        if not raw.isascii():
            check_utf8(raw)
        body = _decoder.decode(raw)
        head = call.head
        if body.is_plain and b"idempotency-key" not in head.headers:
            answer = self._write_straight(call, head.params["topic"], body.records[0])
            if answer is not None:
                return answer
        return self.append(call, head.params["topic"], body, key_of(call, body.idempotency_key))

    def _write_straight(self, call: Call, name: str, record: WriteRecord) -> Reply | Later | None:
        """What most writes are: one record without anything to it, to a topic that is there and takes it. Does the
        same as ``append``, sooner; None when this is not such a write."""
        context, settings = self._context, self._settings
        if context.pressure.holds_writes or settings.max_total_bytes:
            return None
        topic = context.topics.find(name)
        if topic is not None and topic.is_plain and len(record.data) <= settings.max_record_bytes:
            return self._gather(topic, _Write(call, Batch((bytes(record.data),))))
        return None

    def append(self, call: Call, name: str, body: WriteBody, key: str | None) -> Reply | Later | Awaitable[Reply]:
        context = self._context
        batch = make_batch(body.records, body.node, self._settings)
        if key is not None:
            check_idempotency_key(key)
        write = _Write(call, batch)

        def act(waited_ms: float) -> Reply | Later:
            write.waited_ms = waited_ms
            return self._append(name, body, write, key)

        return context.write_in_turn(context.topics.find(name), act, patient=body.disable_backpressure)

    def _append(self, name: str, body: WriteBody, write: _Write, key: str | None) -> Reply | Later:
        topic = self._context.topics.find(name)
        if self._settings.max_total_bytes and not (topic is not None and key is not None and topic.log.remembers(key)):
            self._context.check_quota([write.batch])
        if topic is not None:
            return self._append_to(topic, body, write, key)
        config = config_of_new(name, body.create, body.config, write.call.access)
        topic, write.created = self._context.topics.create(name, config)
        try:
            return self._append_to(topic, body, write, key)
        except BaseException:
            self._context.unmake(topic)
            raise

    def _append_to(self, topic: Topic, body: WriteBody, write: _Write, key: str | None) -> Reply | Later:
        context, batch = self._context, write.batch
        schedules = make_schedules(body.records, topic) if is_scheduled(body.records) else None
        if key is None and write.created is None and topic.is_plain:
            return self._gather(topic, write)
        topic.check_takes_writes()
        before = perf_counter()
        commit: Commit[Appended]
        if topic.traits.type == "queue":
            commit = context.queue(topic).append(batch, schedules, key)
        else:
            commit = topic.log.append(batch, idempotency_key=key)
        timing = _Timing(before)

        def reply(appended: Appended) -> Reply:
            return write.reply(topic, appended.first, appended.last, appended.deduped, timing)

        if write.created is not None and not write.created.done:
            return context.after(write.created, lambda _: reply(commit.wait()))
        return context.after(commit, reply)

    def _gather(self, topic: Topic, write: _Write) -> Reply | Later:
        """Append with the others of this turn, unless the write is large enough by itself. One that is likely to be
        the only one does not wait for the end of the turn either: when nobody else was there the last time, it goes
        first."""
        if len(write.batch.data) > MAX_GATHERED_RECORDS:
            return self._append_alone(topic, write)
        self._writes_of_turn += 1
        if self._writes_of_turn == 1:
            self._context.hub.loop.call_soon(self._end_turn)
            if self._alone:
                return self._append_alone(topic, write)
        group = self._gathered.get(topic)
        if group is None:
            group = self._gathered[topic] = _Gathered()
        group.add(write)
        if group.size > MAX_GATHERED_BYTES:
            del self._gathered[topic]
            self._append_group(topic, group)
        return write

    def _append_alone(self, topic: Topic, write: _Write) -> Reply | Later:
        before = perf_counter()
        commit = topic.log.append(write.batch)
        timing = _Timing(before)
        return self._context.after(commit, lambda done: write.reply(topic, done.first, done.last, False, timing))

    def _end_turn(self) -> None:
        self._alone = self._writes_of_turn == 1
        self._writes_of_turn = 0
        gathered, self._gathered = self._gathered, {}
        for topic, group in gathered.items():
            self._append_group(topic, group)

    def _append_group(self, topic: Topic, group: _Gathered) -> None:
        try:
            topic.check_takes_writes()
            before = perf_counter()
            commit = topic.log.append(group.batch())
            group.timing = _Timing(before)
        except Exception as error:
            group.fail(error)
            return
        if commit.done:
            group.settle(topic, commit)
        else:
            self._context.hub.on_done(commit, partial(group.settle, topic, commit))


class _Write(Later):
    """One write on its way, with what its answer will say of it."""

    __slots__ = ("batch", "call", "created", "waited_ms")

    def __init__(self, call: Call, batch: Batch) -> None:
        # As in Later, without another call.
        self.answer = self._error = self._waiting = None
        self.call = call
        self.batch = batch
        self.created: Commit[Log] | None = None
        self.waited_ms = 0.0

    def reply(self, topic: Topic, first: int, last: int, deduped: bool, timing: _Timing) -> Reply:
        call = self.call
        seqs = b""
        if not call.head.query_string or call.flag("return_seqs", True):
            seqs = b',"seqs":[%b]' % (number_list(range(first, last + 1)) if first != last else b"%d" % first)
        return Reply(
            b'{"topic":%b,"first_seq":%d,"last_seq":%d%b,"head_seq":%d,"count":%d,"created":%b,"deduped":%b,'
            b'"performance":{"server_total_ms":%.3f,%b,"throttle_wait_ms":%.3f}}'
            % (
                topic.json_name,
                first,
                last,
                seqs,
                last,
                last - first + 1,
                b"false" if self.created is None else b"true",
                b"true" if deduped else b"false",
                (perf_counter() - call.started) * 1000,
                timing.json(topic),
                self.waited_ms,
            ),
            200 if self.created is None else 201,
        )


class _Timing:
    """How long the append took, and how long it waited for the flush. The same for all that were appended together."""

    __slots__ = ("_append_ms", "_at", "_json")

    def __init__(self, before: float) -> None:
        self._at = perf_counter()
        self._append_ms = (self._at - before) * 1000
        self._json = b""

    def json(self, topic: Topic) -> bytes:
        if not self._json:
            fsync_ms = (perf_counter() - self._at) * 1000 if topic.log.config.durability == "fsync" else 0.0
            self._json = b'"wal_append_ms":%.3f,"fsync_ms":%.3f' % (self._append_ms, fsync_ms)
        return self._json


class _Gathered:
    """Writes to one topic that are appended in one step."""

    __slots__ = ("_writes", "size", "timing")

    def __init__(self) -> None:
        self.size = 0
        self.timing = _Timing(0.0)
        self._writes: list[_Write] = []

    def add(self, write: _Write) -> None:
        self._writes.append(write)
        data = write.batch.data
        self.size += len(data[0]) if len(data) == 1 else sum(map(len, data))

    def batch(self) -> Batch:
        return join_batches([write.batch for write in self._writes])

    def settle(self, topic: Topic, commit: Commit[Appended]) -> None:
        try:
            appended = commit.wait()
        except Exception as error:
            self.fail(error)
            return
        first, timing = appended.first, self.timing
        for write in self._writes:
            behind = first + len(write.batch.data)
            write.settle(write.reply(topic, first, behind - 1, False, timing))
            first = behind

    def fail(self, error: Exception) -> None:
        for write in self._writes:
            write.fail(error)
