"""Appending records to a topic: the hottest path of the protocol."""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from time import perf_counter

import msgspec

from strandline.delivery.queues import Schedule
from strandline.engine import Appended, Batch, Log
from strandline.engine.commit import Commit, after_all, then
from strandline.engine.record import FLUSHED
from strandline.nearest_name import with_nearest
from strandline.protocols.topics.batches import (
    check_idempotency_key,
    check_utf8,
    is_scheduled,
    key_of,
    make_batch,
    make_schedules,
    write_limit,
)
from strandline.protocols.topics.context import Context
from strandline.protocols.topics.records import number_list
from strandline.protocols.topics.topics import Topic, topic_of_write
from strandline.protocols.topics.wire import WriteBody
from strandline.service.gathered_appends import (
    MAX_GATHERED_RECORDS,
    AppendGroup,
    BatchAppend,
    GatheredAppends,
    join_batches,
    settle_batches,
)
from strandline.service.http import Call, Later, Reply

_decoder = msgspec.json.Decoder(WriteBody)


class TopicWrites:
    """Turns bodies into batches and appends them. Plain writes to the same topic that arrive in one turn of the event
    loop are appended together."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._settings = context.settings
        self._topics = context.topics
        self._pressure = context.admission.pressure
        self.elements = write_limit(context.settings)
        self._gathered: GatheredAppends[Topic, _Write] = GatheredAppends(context.hub.loop, self._append_group)

    def write(self, call: Call) -> Reply | Later | Awaitable[Reply]:
        """POST /v0/topics/{topic}"""
        raw = call.body
        if not raw.isascii():
            check_utf8(raw)
        try:
            body = _decoder.decode(raw)
        except msgspec.ValidationError as error:
            raise with_nearest(error, WriteBody) from None
        return self.append(call, call.head.params["topic"], body, key_of(call, body.idempotency_key))

    def append(self, call: Call, name: str, body: WriteBody, key: str | None) -> Reply | Later | Awaitable[Reply]:
        """Append the records of a body, now or when the pressure on the server allows it."""
        write = _Write(call, make_batch(body.records, body.node, self._settings))
        if key is not None:
            check_idempotency_key(key)
        if not self._pressure.holds_writes and not body.disable_backpressure:
            return self._append(name, body, write, key)
        act = partial(self._append, name, body, write, key)
        return self._context.admission.write(act, self._topics.find(name), patient=body.disable_backpressure)

    def _append(
        self, name: str, body: WriteBody, write: _Write, key: str | None, waited_ms: float = 0.0
    ) -> Reply | Later:
        """Find or create the topic, and append now or with the other writes of this turn."""
        write.waited_ms = waited_ms
        topic = self._topics.find(name)
        if topic is None:
            new = topic_of_write(name, body.create, body.config, write.call.access)
            topic, write.created = self._topics.create(name, new)
        try:
            schedules = make_schedules(body.records, topic) if is_scheduled(body.records) else None
            if key is None and write.created is None and topic.is_plain and self._gathers(topic, write):
                return write
            appending = self._commit(topic, write.batch, key, schedules)
        except BaseException:
            if write.created is not None:
                self._context.unmake(topic)
            raise
        commit = appending.commit
        if write.created is not None:
            commit = _after(write.created, commit)
        if commit.done:
            return write.reply(topic, appending, commit.wait())
        return self._context.admission.after(commit, partial(write.reply, topic, appending))

    def _commit(
        self, topic: Topic, batch: Batch, key: str | None = None, schedules: list[Schedule | None] | None = None
    ) -> _Appending:
        """Append a batch; every write ends here."""
        topic.check_takes_writes()
        before = perf_counter()
        if schedules is None:
            return _Appending(topic.log.append(batch, idempotency_key=key), before)
        return _Appending(self._context.queue(topic).append(batch, schedules, key), before)

    # --- grouped writes --------------------------------------------------------------------------------------------

    def _gathers(self, topic: Topic, write: _Write) -> bool:
        """Whether the write is appended with the others of this turn of the event loop."""
        data = write.batch.data
        if len(data) > MAX_GATHERED_RECORDS:
            return False
        return self._gathered.take(topic, write, len(data[0]) if len(data) == 1 else sum(map(len, data)))

    def _append_group(self, topic: Topic, group: AppendGroup[_Write]) -> None:
        try:
            appending = self._commit(topic, join_batches([write.batch for write in group.appends]))
        except Exception as error:
            group.fail(error)
            return
        if appending.commit.done:
            _settle(topic, group, appending)
        else:
            self._context.hub.on_done(appending.commit, partial(_settle, topic, group, appending))


def _settle(topic: Topic, group: AppendGroup[_Write], appending: _Appending) -> None:
    try:
        whole = appending.commit.wait()
    except Exception as error:
        group.fail(error)
        return
    settle_batches(group.appends, whole, lambda write, done: write.reply(topic, appending, done))


def _after(created: Commit[Log], commit: Commit[Appended]) -> Commit[Appended]:
    """The commit of an append to a topic that was created for it: done when both are durable."""
    return then(after_all([created, commit], None), lambda _: commit.wait())


class _Write(BatchAppend):
    """One write in progress, with the data for its answer."""

    __slots__ = ("call", "created", "waited_ms")

    def __init__(self, call: Call, batch: Batch) -> None:
        super().__init__(batch)
        self.call = call
        self.created: Commit[Log] | None = None
        self.waited_ms = 0.0

    def reply(self, topic: Topic, appending: _Appending, done: Appended) -> Reply:
        call, first, last = self.call, done.first, done.last
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
                b"true" if done.deduped else b"false",
                (perf_counter() - call.started) * 1000,
                appending.json(topic),
                self.waited_ms,
            ),
            200 if self.created is None else 201,
        )


class _Appending:
    """An append in progress: how long it took, and how long it waited for the flush. Shared by all writes of a
    group."""

    __slots__ = ("_append_ms", "_at", "_json", "commit")

    def __init__(self, commit: Commit[Appended], before: float) -> None:
        self.commit = commit
        self._at = perf_counter()
        self._append_ms = (self._at - before) * 1000
        self._json = b""

    def json(self, topic: Topic) -> bytes:
        if not self._json:
            fsync_ms = (perf_counter() - self._at) * 1000 if topic.log.config.durability in FLUSHED else 0.0
            self._json = b'"wal_append_ms":%.3f,"fsync_ms":%.3f' % (self._append_ms, fsync_ms)
        return self._json
