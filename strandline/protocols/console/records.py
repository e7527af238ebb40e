"""Renders records as JSON: JSON data unchanged, text as text, anything else as base64."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable

import msgspec

from strandline.engine import Log, Record, Tombstone
from strandline.engine.record import is_internal
from strandline.service.catalog import media_type_of
from strandline.service.http import quote

#: Media types that are text although they do not start with ``text/``.
_TEXTS = frozenset((
    "application/javascript", "application/sql", "application/toml", "application/x-ndjson",
    "application/x-www-form-urlencoded", "application/xml", "application/yaml",
))  # fmt: skip

_check = msgspec.json.Decoder()

#: Renders the data of a record as a JSON member.
Payload = Callable[[bytes], bytes]


def payload_of(log: Log) -> Payload:
    """The renderer for the data of the log's records."""
    media_type = media_type_of(log)
    if is_internal(log.name):
        # Internal logs contain JSON as well as other data.
        return _any_payload
    if media_type == "application/json":
        return _json_payload
    if media_type.endswith("+json"):
        return _any_payload
    if media_type.startswith("text/") or media_type.endswith("+xml") or media_type in _TEXTS:
        return _text_payload
    return _bytes_payload


def _json_payload(data: bytes) -> bytes:
    return b'"data":' + data


def _text_payload(data: bytes) -> bytes:
    try:
        return b'"text":' + msgspec.json.encode(data.decode())
    except UnicodeDecodeError:
        return _bytes_payload(data)


def _bytes_payload(data: bytes) -> bytes:
    return b'"base64":"%b"' % b64encode(data)


def _any_payload(data: bytes) -> bytes:
    return _json_payload(data) if _is_json(data) else _text_payload(data)


def _is_json(data: bytes) -> bool:
    try:
        _check.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return True


def render(record: Record, payload: Payload) -> bytes:
    """A record as JSON."""
    shown = b'{"seq":%d,"ts":%d,' % (record.seq, record.ts)
    if record.key is not None:
        shown += b'"key":%b,' % quote(record.key)
    if record.node is not None:
        shown += b'"node":%b,' % quote(record.node)
    if record.meta is not None:
        meta = record.meta if _is_json(record.meta) else b"{%b}" % _bytes_payload(record.meta)
        shown += b'"meta":%b,' % meta
    return b"%b%b}" % (shown, payload(record.data))


def render_all(log: Log, records: Iterable[Record]) -> bytes:
    """Records as a JSON array."""
    payload = payload_of(log)
    return b"[%b]" % b",".join([render(record, payload) for record in records])


def render_tombstone(tombstone: Tombstone | None) -> bytes:
    if tombstone is None:
        return b"null"
    return msgspec.json.encode({**tombstone._asdict(), "missed": tombstone.missed})
