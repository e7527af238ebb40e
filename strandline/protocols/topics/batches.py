"""The records of a write as columns, checked against the limits of the protocol."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, Raw, UnsetType

from strandline.delivery.queues import Schedule
from strandline.engine import Batch
from strandline.protocols.topics.errors import BATCH_TOO_LARGE
from strandline.protocols.topics.settings import MAX_IDEMPOTENCY_KEY_BYTES, TopicsSettings
from strandline.protocols.topics.topics import Topic
from strandline.protocols.topics.wire import WriteRecord
from strandline.service.http import Call, ElementLimit
from strandline.service.problems import RECORD_TOO_LARGE, Refusal, invalid

_NULL = b"null"
#: A record in a body has at least ``{"data":1}`` and a comma; decoding stops at the first shorter one. So a batch of
#: ordinary records is not counted before it is decoded.
LEAST_RECORD_BYTES = 11


def check_utf8(body: bytes) -> None:
    """Decoding does not check raw members, so refuse a body that readers could not decode."""
    if not body.isascii():
        try:
            body.decode()
        except UnicodeDecodeError as error:
            raise invalid(f"the body is not valid UTF-8: {error.reason} at byte {error.start}") from None


def write_limit(settings: TopicsSettings) -> ElementLimit:
    """``{"records":[…]}``. The few other members of a write leave the count far below the limit."""
    return _elements_limit(16 * settings.max_batch_records, 2, settings.max_batch_records)


def multi_write_limit(settings: TopicsSettings) -> ElementLimit:
    """``{"writes":[{"records":[…]}]}``, where every write may have a configuration beside its only record."""
    return _elements_limit(32 * settings.max_batch_records, 4, settings.max_batch_records)


def _elements_limit(most: int, depth: int, max_records: int) -> ElementLimit:
    message = f"the request has more than {max_records} records; send them in several requests"
    return ElementLimit(
        most=most,
        depth=depth,
        least_bytes=LEAST_RECORD_BYTES,
        refuse=lambda: Refusal(BATCH_TOO_LARGE, message, {"max": max_records}),
    )


def make_batch(records: list[WriteRecord], node: str | None, settings: TopicsSettings) -> Batch:
    """The records as columns, checked against the limits."""
    if len(records) == 1 and node is None:
        # The common case: one record with nothing but data.
        record = records[0]
        if record.tag is None and record.node is None and record.meta is UNSET:
            if len(record.data) > settings.max_record_bytes:
                _check_sizes([record.data], [None], settings.max_record_bytes)
            return Batch((bytes(record.data),))
    if not records:
        raise invalid("records is empty: send at least one record")
    if len(records) > settings.max_batch_records:
        raise Refusal(
            BATCH_TOO_LARGE,
            f"{len(records)} records in one write, the limit is {settings.max_batch_records}",
            {"records": len(records), "max": settings.max_batch_records},
        )
    data = [record.data for record in records]
    keys = [record.tag for record in records]
    nodes = [record.node for record in records]
    if node is not None:
        nodes = [node if own is None else own for own in nodes]
    metas: list[bytes | None] | None = None
    raw_metas = [record.meta for record in records]
    if raw_metas.count(UNSET) != len(raw_metas):
        metas = [_meta(index, raw, settings) for index, raw in enumerate(raw_metas)]
    if metas is not None or max(map(len, data)) > settings.max_record_bytes:
        _check_sizes(data, metas or [None] * len(data), settings.max_record_bytes)
    return Batch(
        data,
        _checked("tag", keys, settings.max_tag_bytes),
        _checked("node", nodes, settings.max_node_bytes),
        metas,
    )


def _checked(what: str, values: list[str | None], limit: int) -> list[str | None] | None:
    if values.count(None) == len(values):
        return None
    for index, value in enumerate(values):
        # A character has at most four bytes.
        if value is not None and len(value) * 4 > limit and len(value.encode()) > limit:
            raise invalid(f"records[{index}]: {what} has {len(value.encode())} bytes, the limit is {limit}")
    return values


def _meta(index: int, raw: Raw | UnsetType, settings: TopicsSettings) -> bytes | None:
    if isinstance(raw, UnsetType):
        return None
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


def _check_sizes(data: list[Raw], metas: list[bytes | None], limit: int) -> None:
    for index, (payload, meta) in enumerate(zip(data, metas, strict=True)):
        size = len(payload) + (0 if meta is None else len(meta))
        if size > limit:
            raise Refusal(
                RECORD_TOO_LARGE,
                f"records[{index}]: data and meta have {size} bytes, the limit is {limit}",
                {"index": index, "max": limit},
            )


def is_scheduled(records: list[WriteRecord]) -> bool:
    """Whether any of the records has a time or a priority."""
    for record in records:  # noqa: SIM110 - a generator would take twice as long
        if record.not_before_ts or record.priority:
            return True
    return False


def for_jobs_only(name: str) -> Refusal:
    return invalid("not_before_ts and priority are only for queues, and this topic is not a queue", {"topic": name})


def make_schedules(records: list[WriteRecord], topic: Topic) -> list[Schedule | None]:
    """The time and the priority of each job."""
    if topic.traits.type != "queue":
        raise for_jobs_only(topic.name)
    return [
        Schedule(record.not_before_ts, record.priority) if record.not_before_ts or record.priority else None
        for record in records
    ]


def key_of(call: Call, own: str | None) -> str | None:
    """The idempotency key of a request: from its body, or else from its header."""
    if own is None and b"idempotency-key" in call.head.headers:
        return call.head.headers[b"idempotency-key"].decode("utf-8", "surrogateescape")
    return own


def check_idempotency_key(key: str | None) -> None:
    if key is not None and not 1 <= len(key.encode("utf-8", "surrogateescape")) <= MAX_IDEMPOTENCY_KEY_BYTES:
        raise invalid(f"an idempotency key must have 1 to {MAX_IDEMPOTENCY_KEY_BYTES} bytes")
