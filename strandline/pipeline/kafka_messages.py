"""The mapping between Kafka messages and records, in both directions.

| message | record |
|---|---|
| key | key: text as it is; other bytes, and text that starts with ``base64:``, as ``base64:`` and their base64 |
| headers | ``meta``: an object with a member per header |
| no value | the payload ``null`` |

A header is text, or ``{"base64": …}`` if it is not valid UTF-8, or null. Headers with the same name are a list. Headers
that start with ``strandline-`` are from an export: they carry what a message has no place for.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

#: The prefix of keys that are not text.
BASE64 = "base64:"
#: The headers of exported records. ``LOG``, ``EPOCH`` and ``SEQ`` identify the record, so that a consumer can recognise
#: messages that were sent twice. ``META`` is metadata that headers cannot express.
LOG, EPOCH, SEQ, TIME, NODE, META = (f"strandline-{name}" for name in ("log", "epoch", "seq", "ts", "node", "meta"))
OWN = frozenset((LOG, EPOCH, SEQ, TIME, NODE, META))

Headers = list[tuple[str, bytes | None]]

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class HeaderContent(NamedTuple):
    """The parts of a record that are in the headers of a message. ``time`` is text, as it was received."""

    meta: bytes | None = None
    node: str | None = None
    time: str | None = None


# --- from messages ---------------------------------------------------------------------------------------------------


def key_of(key: bytes | None) -> str | None:
    """The key of a record."""
    if key is None:
        return None
    text = _text(key)
    return text if text is not None and not text.startswith(BASE64) else BASE64 + b64encode(key).decode()


def content_of(headers: Iterable[tuple[str, bytes | None]]) -> HeaderContent:
    """What the headers of a message contain."""
    own: dict[str, bytes | None] = {}
    others: Headers = []
    for name, value in headers:
        if name in OWN and name not in own:
            own[name] = value
        else:
            others.append((name, value))
    meta = own.pop(META, None)
    if others and meta is not None:
        others, meta = [*others, (META, meta)], None
    if others:
        meta = _encode(_members(others))
    return HeaderContent(meta, _text(own.get(NODE)), _text(own.get(TIME)))


def _members(headers: Headers) -> dict[str, Any]:
    values: dict[str, list[Any]] = {}
    for name, value in headers:
        values.setdefault(name, []).append(readable(value))
    return {name: found[0] if len(found) == 1 else found for name, found in values.items()}


def readable(value: bytes | None) -> str | dict[str, str] | None:
    """Bytes as JSON: text, or an object with base64."""
    if value is None:
        return None
    text = _text(value)
    return {"base64": b64encode(value).decode()} if text is None else text


def _text(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


# --- to messages -----------------------------------------------------------------------------------------------------


def key_bytes(key: str | None) -> bytes | None:
    """The key of a message."""
    if key is None:
        return None
    if key.startswith(BASE64):
        found = _from_base64(key.removeprefix(BASE64))
        if found is not None:
            return found
    return key.encode()


def headers_of(log: str, epoch: int, seq: int, ts: int, node: str | None, meta: bytes | None) -> Headers:
    """The headers of a message with this record. Metadata that would be different after an import is one header."""
    headers: Headers = [(LOG, log.encode()), (EPOCH, b"%d" % epoch), (SEQ, b"%d" % seq), (TIME, b"%d" % ts)]
    if node is not None:
        headers.append((NODE, node.encode()))
    if meta is not None:
        own = _headers_of_members(meta)
        headers += [(META, meta)] if own is None else own
    return headers


def _headers_of_members(meta: bytes) -> Headers | None:
    """Metadata as headers; None if it is not an object of texts, bytes and nulls."""
    try:
        members = _decode(meta)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(members, dict):
        return None
    headers: Headers = []
    for name, value in members.items():
        for one in value if isinstance(value, list) else [value]:
            if one is not None and not isinstance(one, (str, dict)):
                return None
            headers.append((name, _header(one)))
    # Whatever an import would not bring back as it was, such as a list of one, is not expressed as headers.
    is_exact = bool(headers) and OWN.isdisjoint(members) and _members(headers) == members
    return headers if is_exact else None


def _header(value: str | dict[str, Any] | None) -> bytes | None:
    if value is None or isinstance(value, str):
        return None if value is None else value.encode()
    encoded = value.get("base64")
    return _from_base64(encoded) if isinstance(encoded, str) else None


def _from_base64(text: str) -> bytes | None:
    try:
        return b64decode(text, validate=True)
    except ValueError:
        return None
