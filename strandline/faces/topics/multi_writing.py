"""Appending to several topics in one step: all of it happens, or nothing."""

from __future__ import annotations

from collections.abc import Awaitable
from time import perf_counter
from typing import Annotated

import msgspec
from msgspec import Meta

from strandline.delivery.queues import Write, append_together
from strandline.delivery.queues.commits import after
from strandline.engine import Appended, Batch, Config, Log
from strandline.engine.commit import Commit
from strandline.faces.topics.batches import (
    RecordsField,
    check_idempotency_key,
    check_utf8,
    make_batch,
    make_schedules,
)
from strandline.faces.topics.config import NameField, TopicConfig, check_name, engine_config
from strandline.faces.topics.context import Context
from strandline.faces.topics.errors import capped, invalid, topic_not_found
from strandline.faces.topics.records import number_list
from strandline.faces.topics.topics import Topic
from strandline.faces.web import Call, Later, Refusal, Reply


class OneWrite(msgspec.Struct, gc=False):
    topic: NameField
    records: RecordsField
    node: str | None = None
    create: bool | None = None
    config: TopicConfig | None = None


class MultiWriteBody(msgspec.Struct, gc=False):
    writes: Annotated[list[OneWrite], Meta(extra_json_schema={"minItems": 1})]
    idempotency_key: str | None = None
    disable_backpressure: bool = False


_decoder = msgspec.json.Decoder(MultiWriteBody)


class _Part:
    """Everything that goes into one topic, from one or more of the writes."""

    __slots__ = ("batch", "config", "created", "first", "name", "records", "topic")

    batch: Batch

    def __init__(self, write: OneWrite) -> None:
        self.name = write.topic
        #: What it says decides about the topic if there is none.
        self.first = write
        self.records = list(write.records)
        self.topic: Topic | None = None
        #: For a topic that has to be made.
        self.config: Config | None = None
        self.created: Commit[Log] | None = None

    @property
    def scheduled(self) -> bool:
        return any(record.not_before_ts or record.priority for record in self.records)


class MultiWriting:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._settings = context.settings

    def write(self, call: Call) -> Reply | Later | Awaitable[Reply]:
        """POST /v0/write"""
        check_utf8(call.body)
        body = _decoder.decode(call.body)
        key = body.idempotency_key
        if key is None and b"idempotency-key" in call.head.headers:
            key = call.head.headers[b"idempotency-key"].decode("utf-8", "surrogateescape")
        check_idempotency_key(key)
        self._check(call, body)
        parts = self._parts(body)
        context = self._context
        if context.pressure.level:
            topic = self._least_urgent(parts)
            delay_ms = context.throttle(topic, patient=body.disable_backpressure)
            if delay_ms:
                return self._append_later(call, body, parts, key, topic, delay_ms)
        return self._append(call, body, parts, key, 0.0)

    # --- what is asked for -----------------------------------------------------------------------------------------

    def _check(self, call: Call, body: MultiWriteBody) -> None:
        if not body.writes:
            raise invalid("writes must have at least one write")
        for write in body.writes:
            if not call.access.may_touch(write.topic):
                raise Refusal(403, "forbidden", f"the API key may not touch {write.topic!r}", {"topic": write.topic})
        total, maximum = sum(len(write.records) for write in body.writes), self._settings.max_batch_records
        if total > maximum:
            raise Refusal(
                400,
                "batch_too_large",
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
            part.batch = _joined(batches[name])
        return parts

    def _least_urgent(self, parts: dict[str, _Part]) -> Topic | None:
        """The topic that has to wait the longest decides for all; None: one that is to be made."""
        now = self._context.hub.now()
        found = [topic for name in parts if (topic := self._context.topics.find(name)) is not None]
        return min(found, key=lambda topic: topic.priority(now), default=None)

    # --- doing it --------------------------------------------------------------------------------------------------

    async def _append_later(
        self,
        call: Call,
        body: MultiWriteBody,
        parts: dict[str, _Part],
        key: str | None,
        topic: Topic | None,
        delay_ms: float,
    ) -> Reply:
        waited_ms = await self._context.park(topic, delay_ms, patient=body.disable_backpressure)
        answer = self._append(call, body, parts, key, waited_ms)
        reply = answer if isinstance(answer, Reply) else await answer
        assert isinstance(reply, Reply)
        return reply

    def _append(
        self, call: Call, body: MultiWriteBody, parts: dict[str, _Part], key: str | None, waited_ms: float
    ) -> Reply | Later:
        self._check_quota(parts)
        self._resolve(call, parts)
        before = perf_counter()
        commit = self._make(parts, key)
        appended_at = perf_counter()
        created = [part.created for part in parts.values() if part.created is not None]

        def reply(_: None) -> Reply:
            appended = dict(zip(parts, commit.wait(), strict=True))
            durable = any(part.topic and part.topic.log.config.durability == "fsync" for part in parts.values())
            return Reply(
                b'{"writes":[%b],"performance":{"server_total_ms":%.3f,"wal_append_ms":%.3f,"fsync_ms":%.3f,'
                b'"throttle_wait_ms":%.3f}}'
                % (
                    _render(body.writes, parts, appended, seqs=call.flag("return_seqs", True)),
                    call.elapsed_ms(),
                    (appended_at - before) * 1000,
                    (perf_counter() - appended_at) * 1000 if durable else 0.0,
                    waited_ms,
                ),
                201 if created else 200,
            )

        return self._context.after(after([*created, commit], None), reply)

    def _check_quota(self, parts: dict[str, _Part]) -> None:
        maximum = self._settings.max_total_bytes
        if maximum:
            size = sum(
                sum(map(len, part.batch.data)) + sum(len(meta) for meta in part.batch.metas or () if meta is not None)
                for part in parts.values()
            )
            if self._context.engine.total_size + size > maximum:
                raise capped("max_total_bytes", maximum)

    def _resolve(self, call: Call, parts: dict[str, _Part]) -> None:
        """Find the topics, and how those that are not there would be made. Everything that can be refused is."""
        context, absent = self._context, 0
        for part in parts.values():
            part.topic = context.topics.find(part.name)
            if part.topic is None:
                part.config = self._new_config(call, part)
                absent += 1
            elif part.scheduled:
                make_schedules(part.records, part.topic)
        maximum = self._settings.max_topics
        if maximum and absent and context.topics.count + absent > maximum:
            raise capped("max_topics", maximum)

    def _new_config(self, call: Call, part: _Part) -> Config:
        name, wanted = check_name(part.name), part.first.config
        config = wanted or TopicConfig()
        if part.first.create is False or (part.first.create is None and not config.auto_create):
            raise topic_not_found(name)
        if wanted is not None and not call.access.may("admin"):
            raise Refusal(403, "forbidden", "creating a topic with a config needs the admin scope", {"topic": name})
        kind = config.type if isinstance(config.type, str) else "log"
        if kind != "queue" and part.scheduled:
            raise invalid("not_before_ts and priority are for jobs, and this topic is not a queue", {"topic": name})
        return engine_config(name, config, kind)

    def _make(self, parts: dict[str, _Part], key: str | None) -> Commit[list[Appended]]:
        """Make the topics that are missing, and append. If that fails, there are no new topics either."""
        context = self._context
        try:
            for part in parts.values():
                if part.topic is None:
                    assert part.config is not None
                    part.topic, part.created = context.topics.create(part.name, part.config)
            return append_together(context.engine, [self._write(part) for part in parts.values()], key)
        except BaseException:
            for part in parts.values():
                if part.created is not None and part.topic is not None:
                    context.unmake(part.topic)
            raise

    def _write(self, part: _Part) -> Write:
        topic = part.topic
        assert topic is not None
        if not part.scheduled:
            return Write(topic.log, part.batch)
        return Write(topic.log, part.batch, self._context.queue(topic), make_schedules(part.records, topic))


def _render(writes: list[OneWrite], parts: dict[str, _Part], appended: dict[str, Appended], *, seqs: bool) -> bytes:
    """What became of each of the writes, as a JSON array without its brackets."""
    rows: list[bytes] = []
    behind: dict[str, int] = {}
    for write in writes:
        part, whole = parts[write.topic], appended[write.topic]
        assert part.topic is not None
        if whole.deduped and whole.count != len(part.batch):
            # The key was used for something else before: that is what there is to tell.
            first, last = whole.first, whole.last
        else:
            first = behind.get(write.topic, whole.first)
            last = first + len(write.records) - 1
        is_first = write.topic not in behind
        behind[write.topic] = last + 1
        rows.append(
            b'{"topic":%b,"first_seq":%d,"last_seq":%d%b,"head_seq":%d,"count":%d,"created":%b,"deduped":%b}'
            % (
                part.topic.json_name,
                first,
                last,
                b',"seqs":[%b]' % number_list(range(first, last + 1)) if seqs else b"",
                whole.last,
                last - first + 1,
                b"true" if is_first and part.created is not None else b"false",
                b"true" if whole.deduped else b"false",
            )
        )
    return b",".join(rows)


def _joined(batches: list[Batch]) -> Batch:
    """The batches behind one another."""
    if len(batches) == 1:
        return batches[0]
    data = [payload for batch in batches for payload in batch.data]
    nothing = [[None] * len(batch) for batch in batches]
    keys = [key for batch, none in zip(batches, nothing, strict=True) for key in batch.keys or none]
    nodes = [node for batch, none in zip(batches, nothing, strict=True) for node in batch.nodes or none]
    metas = [meta for batch, none in zip(batches, nothing, strict=True) for meta in batch.metas or none]
    return Batch(
        data,
        keys if any(batch.keys for batch in batches) else None,
        nodes if any(batch.nodes for batch in batches) else None,
        metas if any(batch.metas for batch in batches) else None,
    )
