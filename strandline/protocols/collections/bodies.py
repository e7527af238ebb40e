"""The body of a push, taken apart: the data as it came and as it reads, and what is said about it."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from strandline.protocols.collections.problems import bad_ts, not_an_object, repeated_member, too_deep
from strandline.signing.canonical_json import NotJson, RepeatedMember, canonical, check_members, parse, parse_signed

#: How deep objects and arrays may be nested, the body included.
MAX_DEPTH = 64

_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_NOTHING = Raw(b"null")


class _Body(msgspec.Struct, gc=False):
    data: Raw = _NOTHING
    ts: Any = None
    author_pubkey: Any = msgspec.field(default=None, name="authorPubkey")
    author_signature: Any = msgspec.field(default=None, name="authorSignature")


_decode = msgspec.json.Decoder(_Body).decode
_read_any = msgspec.json.Decoder().decode


class PushBody(NamedTuple):
    """``raw`` is the text of the data. What is not of the type that it should be is left as it is."""

    data: Any
    raw: bytes
    ts: Any
    author_pubkey: Any
    author_signature: Any


def read_body(body: bytes) -> PushBody:
    """Raises Refused for a body that is not a JSON object, is nested too deeply, or repeats a member."""
    try:
        if not body.isascii():
            body.decode()
        decoded = _decode(body)
        raw = bytes(decoded.data)
        read = PushBody(parse(raw), raw, decoded.ts, decoded.author_pubkey, decoded.author_signature)
        check_members(body, _read_any(body))
    except RecursionError:
        raise too_deep() from None
    except RepeatedMember as error:
        raise repeated_member(error.name) from None
    except msgspec.DecodeError:
        read = _read_slowly(body)
    except (UnicodeDecodeError, NotJson):
        raise not_an_object() from None
    if is_deep(body):
        raise too_deep()
    return read


def _read_slowly(body: bytes) -> PushBody:
    """What one decoder refuses may be JSON all the same: halves of surrogate pairs, numbers that are too large."""
    try:
        decoded = parse_signed(body)
    except RepeatedMember as error:
        raise repeated_member(error.name) from None
    except NotJson:
        raise (too_deep() if is_deep(body) else not_an_object()) from None
    if not isinstance(decoded, dict):
        raise not_an_object()
    data = decoded.get("data")
    return PushBody(
        data, canonical(data), decoded.get("ts"), decoded.get("authorPubkey"), decoded.get("authorSignature")
    )


def is_deep(text: bytes) -> bool:
    """Whether JSON is nested deeper than it may be."""
    if text.count(b"{") + text.count(b"[") <= MAX_DEPTH:
        return False
    depth = 0
    for byte in _STRING.sub(b"", text):
        if byte in b"{[":
            depth += 1
            if depth > MAX_DEPTH:
                return True
        elif byte in b"}]":
            depth -= 1
    return False


def time_of(value: Any) -> int | None:
    """The time that a client gives an element; None if it leaves that to the server. A number is whole if its value is:
    JSON has one kind of numbers."""
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise bad_ts()
    return value
