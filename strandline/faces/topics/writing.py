"""Appending records to a topic: the hottest path of the protocol."""

from __future__ import annotations

from collections.abc import Awaitable
from time import perf_counter
from typing import Annotated

import msgspec
from msgspec import Meta, Raw

from strandline.delivery.queues import Schedule
from strandline.engine import Appended, Batch, Log
from strandline.engine.commit import Commit
from strandline.faces.topics.config import TopicConfig, engine_config
from strandline.faces.topics.context import Context
from strandline.faces.topics.errors import capped, invalid, topic_not_found
from strandline.faces.topics.records import number_list
from strandline.faces.topics.settings import MAX_IDEMPOTENCY_KEY_BYTES, TopicsSettings
from strandline.faces.topics.topics import Topic
from strandline.faces.web import Call, Refusal, Reply

_NO_RAW = Raw()
_NULL = b"null"


class WriteRecord(msgspec.Struct, gc=False):
    data: Raw
    tag: str | None = None
    node: str | None = None
    meta: Raw = _NO_RAW
    #: Queues only: the job cannot be claimed before this moment, and comes before jobs of lower priority.
    not_before_ts: Annotated[int, Meta(ge=0, lt=1 << 62)] = 0
    priority: Annotated[int, Meta(ge=-1000, le=1000)] = 0


class WriteBody(msgspec.Struct, gc=False):
    records: list[WriteRecord]
    node: str | None = None
    idempotency_key: str | None = None
    create: bool | None = None
    config: TopicConfig | None = None
    disable_backpressure: bool = False


_decoder = msgspec.json.Decoder(WriteBody)


def check_utf8(body: bytes) -> None:
    """What is kept raw is not looked at when it is decoded, but whoever reads it must be able to."""
    if not body.isascii():
        try:
            body.decode()
        except UnicodeDecodeError as error:
            raise invalid(f"the body is not valid UTF-8: {error.reason} at byte {error.start}") from None


class Writing:
    """Turns bodies into batches and appends them."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._settings = context.settings

    def write(self, call: Call) -> Reply | Awaitable[Reply]:
        """POST /v0/topics/{topic}"""
        check_utf8(call.body)
        body = _decoder.decode(call.body)
        head = call.head
        key = body.idempotency_key
        if key is None and b"idempotency-key" in head.headers:
            key = head.headers[b"idempotency-key"].decode("utf-8", "surrogateescape")
        return self.append(call, head.params["topic"], body, key)

    def append(self, call: Call, name: str, body: WriteBody, key: str | None) -> Reply | Awaitable[Reply]:
        context = self._context
        batch = make_batch(body.records, body.node, self._settings)
        check_idempotency_key(key)
        topic = context.topics.find(name)
        created: Commit[Log] | None = None
        if topic is None:
            topic, created = self._create(call, name, body)
        if context.pressure.level:
            delay_ms = context.throttle(topic, patient=body.disable_backpressure)
            if delay_ms:
                return self._append_later(call, topic, body, batch, key, created, delay_ms)
        return self._append(call, topic, body, batch, key, created, 0.0)

    async def _append_later(
        self,
        call: Call,
        topic: Topic,
        body: WriteBody,
        batch: Batch,
        key: str | None,
        created: Commit[Log] | None,
        delay_ms: float,
    ) -> Reply:
        waited_ms = await self._context.park(topic, delay_ms, patient=body.disable_backpressure)
        answer = self._append(call, topic, body, batch, key, created, waited_ms)
        return answer if isinstance(answer, Reply) else await answer

    def _append(
        self,
        call: Call,
        topic: Topic,
        body: WriteBody,
        batch: Batch,
        key: str | None,
        created: Commit[Log] | None,
        throttled_ms: float,
    ) -> Reply | Awaitable[Reply]:
        context = self._context
        self._check_quota(batch)
        before = perf_counter()
        schedules = make_schedules(body.records, topic)
        if topic.traits.type == "queue":
            commit = context.queue(topic).append(batch, schedules, key)
        else:
            commit = topic.log.append(batch, idempotency_key=key)
        after = perf_counter()
        return_seqs = call.flag("return_seqs", True)

        def reply(appended: Appended) -> Reply:
            fsync_ms = 0.0
            if topic.log.config.durability == "fsync":
                fsync_ms = (perf_counter() - after) * 1000
            seqs = b',"seqs":[%b]' % number_list(range(appended.first, appended.last + 1)) if return_seqs else b""
            return Reply(
                b'{"topic":%b,"first_seq":%d,"last_seq":%d%b,"head_seq":%d,"count":%d,"created":%b,"deduped":%b,'
                b'"performance":{"server_total_ms":%.3f,"wal_append_ms":%.3f,"fsync_ms":%.3f,"throttle_wait_ms":%.3f}}'
                % (
                    topic.json_name,
                    appended.first,
                    appended.last,
                    seqs,
                    appended.last,
                    len(batch) if not appended.deduped else appended.count,
                    b"false" if created is None else b"true",
                    b"true" if appended.deduped else b"false",
                    call.elapsed_ms(),
                    (after - before) * 1000,
                    fsync_ms,
                    throttled_ms,
                ),
                200 if created is None else 201,
            )

        if created is not None and not created.done:
            return context.hub.when_done(created, lambda _: reply(commit.wait()))
        if commit.done:
            return reply(commit.wait())
        return context.hub.when_done(commit, reply)

    def _create(self, call: Call, name: str, body: WriteBody) -> tuple[Topic, Commit[Log]]:
        config = body.config or TopicConfig()
        if body.create is False or (body.create is None and not config.auto_create):
            raise topic_not_found(name)
        if body.config is not None and not call.access.may("admin"):
            raise Refusal(403, "forbidden", "creating a topic with a config needs the admin scope", {"topic": name})
        kind = config.type if isinstance(config.type, str) else "log"
        return self._context.topics.create(name, engine_config(name, config, kind))

    def _check_quota(self, batch: Batch) -> None:
        maximum = self._settings.max_total_bytes
        if maximum:
            size = sum(map(len, batch.data)) + sum(len(meta) for meta in batch.metas or () if meta is not None)
            if self._context.engine.total_size + size > maximum:
                raise capped("max_total_bytes", maximum)


def make_batch(records: list[WriteRecord], node: str | None, settings: TopicsSettings) -> Batch:
    """The records as columns, checked against the limits."""
    if not records:
        raise invalid("records must have at least one record")
    if len(records) > settings.max_batch_records:
        raise Refusal(
            400,
            "batch_too_large",
            f"{len(records)} records in one write, the limit is {settings.max_batch_records}",
            {"records": len(records), "max": settings.max_batch_records},
        )
    data = [bytes(record.data) for record in records]
    keys = [record.tag for record in records]
    nodes = [record.node if record.node is not None else node for record in records]
    metas = [_meta(index, record.meta, settings) if record.meta else None for index, record in enumerate(records)]
    has_metas = metas.count(None) != len(metas)
    if max(map(len, data)) > settings.max_record_bytes or has_metas:
        _check_sizes(data, metas, settings.max_record_bytes)
    return Batch(
        data,
        _checked("tag", keys, settings.max_tag_bytes),
        _checked("node", nodes, settings.max_node_bytes),
        metas if has_metas else None,
    )


def _checked(what: str, values: list[str | None], limit: int) -> list[str | None] | None:
    if values.count(None) == len(values):
        return None
    for index, value in enumerate(values):
        # A character has at most four bytes.
        if value is not None and len(value) * 4 > limit and len(value.encode()) > limit:
            raise invalid(f"records[{index}]: {what} has {len(value.encode())} bytes, the limit is {limit}")
    return values


def _meta(index: int, raw: Raw, settings: TopicsSettings) -> bytes | None:
    meta = bytes(raw)
    if meta == _NULL:
        return None
    if len(meta) > settings.max_meta_bytes:
        raise invalid(f"records[{index}]: meta has {len(meta)} bytes, the limit is {settings.max_meta_bytes}")
    if meta.startswith(b"{") and meta.count(b":") > settings.max_meta_keys:
        keys = len(msgspec.json.decode(meta, type=dict[str, Raw]))
        if keys > settings.max_meta_keys:
            raise invalid(f"records[{index}]: meta has {keys} keys, the limit is {settings.max_meta_keys}")
    return meta


def _check_sizes(data: list[bytes], metas: list[bytes | None], limit: int) -> None:
    for index, (payload, meta) in enumerate(zip(data, metas, strict=True)):
        size = len(payload) + (0 if meta is None else len(meta))
        if size > limit:
            raise Refusal(
                400,
                "record_too_large",
                f"records[{index}]: data and meta have {size} bytes, the limit is {limit}",
                {"index": index, "max": limit},
            )


def make_schedules(records: list[WriteRecord], topic: Topic) -> list[Schedule | None] | None:
    """When and how urgently the jobs are to be done, if any of them says so."""
    if not any(record.not_before_ts or record.priority for record in records):
        return None
    if topic.traits.type != "queue":
        raise invalid("not_before_ts and priority are for jobs, and this topic is not a queue", {"topic": topic.name})
    return [
        Schedule(record.not_before_ts, record.priority) if record.not_before_ts or record.priority else None
        for record in records
    ]


def check_idempotency_key(key: str | None) -> None:
    if key is not None and not 1 <= len(key.encode("utf-8", "surrogateescape")) <= MAX_IDEMPOTENCY_KEY_BYTES:
        raise invalid(f"an idempotency key has 1 to {MAX_IDEMPOTENCY_KEY_BYTES} bytes")
