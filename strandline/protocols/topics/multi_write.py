"""Appending to several topics in one step: all records are written, or none."""

from __future__ import annotations

from collections.abc import Awaitable
from time import perf_counter

import msgspec
from msgspec import UNSET

from strandline.delivery.queues import QueueWrite, append_together
from strandline.engine import Appended, Batch, Log
from strandline.engine.commit import Commit, after_all
from strandline.engine.record import FLUSHED
from strandline.nearest_name import decode_body
from strandline.protocols.topics.batches import (
    check_idempotency_key,
    check_utf8,
    for_jobs_only,
    is_scheduled,
    key_of,
    make_batch,
    make_schedules,
)
from strandline.protocols.topics.context import Context
from strandline.protocols.topics.errors import BATCH_TOO_LARGE
from strandline.protocols.topics.topics import NewTopic, Topic, topic_of_write
from strandline.protocols.topics.wire import MultiWriteAnswer, MultiWriteBody, OneWrite, WritePerformance, Written
from strandline.service.gathered_appends import join_batches
from strandline.service.http import Call, Later, Reply, json_reply
from strandline.service.log_config import check_name, kind_of
from strandline.service.problems import Refusal, invalid, may_not_touch

_decoder = msgspec.json.Decoder(MultiWriteBody)


class _Part:
    """All records for one topic, from one or more of the writes."""

    __slots__ = ("batch", "created", "first", "name", "new", "records", "topic")

    batch: Batch

    def __init__(self, write: OneWrite) -> None:
        self.name = write.topic
        #: The write that decides about creating the topic.
        self.first = write
        self.records = list(write.records)
        self.topic: Topic | None = None
        #: The topic, if it must be created.
        self.new: NewTopic | None = None
        self.created: Commit[Log] | None = None

    @property
    def scheduled(self) -> bool:
        return is_scheduled(self.records)


class MultiWrites:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._settings = context.settings

    def write(self, call: Call) -> Reply | Later | Awaitable[Reply]:
        """POST /v0/write"""
        check_utf8(call.body)
        body = decode_body(_decoder, call.body)
        key = key_of(call, body.idempotency_key)
        check_idempotency_key(key)
        self._check(call, body)
        parts = self._parts(body)
        return self._context.admission.write(
            lambda waited_ms: self._append(call, body, parts, key, waited_ms),
            self._least_urgent(parts),
            patient=body.disable_backpressure,
        )

    # --- the request -----------------------------------------------------------------------------------------------

    def _check(self, call: Call, body: MultiWriteBody) -> None:
        if not body.writes:
            raise invalid("writes is empty: send at least one write")
        for write in body.writes:
            if not call.access.may_touch(write.topic):
                raise may_not_touch(write.topic, "topic")
        total, maximum = sum(len(write.records) for write in body.writes), self._settings.max_batch_records
        if total > maximum:
            raise Refusal(
                BATCH_TOO_LARGE,
                f"{total} records in one request, the limit is {maximum}",
                {"records": total, "max": maximum},
            )

    def _parts(self, body: MultiWriteBody) -> dict[str, _Part]:
        """The writes by topic, in the order in which topics are first named."""
        batches: dict[str, list[Batch]] = {}
        parts: dict[str, _Part] = {}
        for index, write in enumerate(body.writes):
            try:
                batch = make_batch(write.records, write.node, self._settings)
            except Refusal as refusal:
                refusal.message = f"writes[{index}]: {refusal.message}"
                raise
            batches.setdefault(write.topic, []).append(batch)
            part = parts.get(write.topic)
            if part is None:
                parts[write.topic] = _Part(write)
            else:
                part.records.extend(write.records)
        for name, part in parts.items():
            part.batch = join_batches(batches[name])
        return parts

    def _least_urgent(self, parts: dict[str, _Part]) -> Topic | None:
        """The topic with the lowest priority decides for all; None: a topic that must be created."""
        now = self._context.hub.now()
        found = [topic for name in parts if (topic := self._context.topics.find(name)) is not None]
        return min(found, key=lambda topic: topic.priority(now), default=None)

    # --- writing ---------------------------------------------------------------------------------------------------

    def _append(
        self, call: Call, body: MultiWriteBody, parts: dict[str, _Part], key: str | None, waited_ms: float
    ) -> Reply | Later:
        self._resolve(call, parts)
        before = perf_counter()
        commit = self._make(parts, key)
        appended_at = perf_counter()
        created = [part.created for part in parts.values() if part.created is not None]

        def reply(_: None) -> Reply:
            appended = dict(zip(parts, commit.wait(), strict=True))
            durable = any(part.topic and part.topic.log.config.durability in FLUSHED for part in parts.values())
            performance = WritePerformance(
                server_total_ms=round(call.elapsed_ms(), 3),
                wal_append_ms=round((appended_at - before) * 1000, 3),
                fsync_ms=round((perf_counter() - appended_at) * 1000, 3) if durable else 0.0,
                throttle_wait_ms=round(waited_ms, 3),
            )
            rows = _outcomes(body.writes, parts, appended, seqs=call.flag("return_seqs", True))
            return json_reply(MultiWriteAnswer(rows, performance), 201 if created else 200)

        return self._context.admission.after(after_all([*created, commit], None), reply)

    def _resolve(self, call: Call, parts: dict[str, _Part]) -> None:
        """Find the topics, and the configurations of those that must be created. Everything invalid is refused here."""
        context, absent = self._context, 0
        for part in parts.values():
            part.topic = context.topics.find(part.name)
            if part.topic is None:
                part.new = self._new_topic(call, part)
                absent += 1
                continue
            part.topic.check_takes_writes()
            if part.scheduled:
                make_schedules(part.records, part.topic)
        context.engine.quota.check_logs(absent)

    def _new_topic(self, call: Call, part: _Part) -> NewTopic:
        new = topic_of_write(check_name(part.name), part.first.create, part.first.config, call.access)
        if part.scheduled and kind_of(new.config) != "queue":
            raise for_jobs_only(part.name)
        return new

    def _make(self, parts: dict[str, _Part], key: str | None) -> Commit[list[Appended]]:
        """Create the missing topics, and append. If that fails, no topic is created."""
        context = self._context
        try:
            for part in parts.values():
                if part.topic is None:
                    assert part.new is not None
                    part.topic, part.created = context.topics.create(part.name, part.new)
            return append_together(context.engine, [self._write(part) for part in parts.values()], key)
        except BaseException:
            for part in parts.values():
                if part.created is not None and part.topic is not None:
                    context.unmake(part.topic)
            raise

    def _write(self, part: _Part) -> QueueWrite:
        topic = part.topic
        assert topic is not None
        if not part.scheduled:
            return QueueWrite(topic.log, part.batch)
        return QueueWrite(topic.log, part.batch, self._context.queue(topic), make_schedules(part.records, topic))


def _outcomes(
    writes: list[OneWrite], parts: dict[str, _Part], appended: dict[str, Appended], *, seqs: bool
) -> list[Written]:
    """The outcome of each of the writes."""
    rows: list[Written] = []
    behind: dict[str, int] = {}
    for write in writes:
        part, whole = parts[write.topic], appended[write.topic]
        if whole.deduped and whole.count != len(part.batch):
            # The key was used for another write before: answer with the outcome of that write.
            first, last = whole.first, whole.last
        else:
            first = behind.get(write.topic, whole.first)
            last = first + len(write.records) - 1
        is_first = write.topic not in behind
        behind[write.topic] = last + 1
        rows.append(
            Written(
                topic=write.topic,
                first_seq=first,
                last_seq=last,
                seqs=list(range(first, last + 1)) if seqs else UNSET,
                head_seq=whole.last,
                count=last - first + 1,
                created=is_first and part.created is not None,
                deduped=whole.deduped,
            )
        )
    return rows
