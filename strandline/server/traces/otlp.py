"""Spans as messages of OTLP, the protocol of OpenTelemetry, in Protocol Buffers.

The few messages are written here by hand, and the bytes of attributes, most of which repeat, are cached. That takes a
twentieth of the time of the generated classes, and no further package. Tests read the messages with the generated
classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from struct import pack

import strandline
from strandline.spans import Span, Value

SCOPE = "strandline"
#: The values of enumerations.
KIND_INTERNAL, KIND_SERVER = 1, 2
STATUS_ERROR = 2

#: How a field is written, as the lowest bits of its tag.
_VARINT, _FIXED64, _BYTES = 0, 1, 2
_MAX_INT64 = (1 << 63) - 1


class TraceMessages:
    """The messages between a server and its collector. ``attributes`` are those of the server."""

    def __init__(self, attributes: Mapping[str, Value]) -> None:
        resource = b"".join(_field(1, _attribute(name, value)) for name, value in attributes.items())
        scope = _text(1, SCOPE) + _text(2, strandline.__version__)
        self._resource = _field(1, resource)
        self._scope = _field(1, scope)

    def request(self, spans: Iterable[Span]) -> bytes:
        """The body of a request to the collector."""
        scope_spans = self._scope + b"".join([_field(2, _message(span)) for span in spans])
        return _field(1, self._resource + _field(2, scope_spans))

    def rejected(self, answer: bytes) -> tuple[int, str]:
        """How many spans the collector did not take, and why. Raises ValueError if the answer is not of a collector."""
        number, why = 0, ""
        for name, partial_success in _fields(answer):
            if name == 1 and isinstance(partial_success, bytes):
                for inner, value in _fields(partial_success):
                    if inner == 1 and isinstance(value, int):
                        number = min(value, _MAX_INT64)
                    elif inner == 2 and isinstance(value, bytes):
                        why = value.decode("utf-8", "replace")
        return number, why


# --- writing -----------------------------------------------------------------------------------------------------


def _message(span: Span) -> bytes:
    return b"".join(
        (
            _field(1, span.trace_id.to_bytes(16, "big")),
            _field(2, span.span_id.to_bytes(8, "big")),
            _text(3, span.state) if span.state else b"",
            _field(4, span.parent_id.to_bytes(8, "big")) if span.parent_id else b"",
            _text(5, span.name),
            _number(6, KIND_SERVER if span.is_request else KIND_INTERNAL),
            _fixed(7, span.started),
            _fixed(8, span.started + span.nanoseconds),
            *(_span_attribute(name, value) for name, value in span.attributes.items()),
            b"" if span.error is None else _field(15, _text(2, span.error) + _number(3, STATUS_ERROR)),
        )
    )


@lru_cache(maxsize=4096, typed=True)
def _span_attribute(name: str, value: Value) -> bytes:
    return _field(9, _attribute(name, value))


def _attribute(name: str, value: Value) -> bytes:
    if isinstance(value, bool):
        any_value = _number(2, int(value))
    elif isinstance(value, int):
        any_value = _number(3, value)
    elif isinstance(value, float):
        any_value = _tag(4, _FIXED64) + pack("<d", value)
    else:
        any_value = _text(1, value)
    return _text(1, name) + _field(2, any_value)


@lru_cache(maxsize=1024)
def _text(number: int, text: str) -> bytes:
    # A path may have bytes that are not UTF-8, which are lone surrogates here.
    return _field(number, text.encode("utf-8", "replace"))


def _field(number: int, content: bytes) -> bytes:
    return b"%b%b%b" % (_tag(number, _BYTES), _varint(len(content)), content)


def _number(number: int, value: int) -> bytes:
    return _tag(number, _VARINT) + _varint(value & ((1 << 64) - 1))


def _fixed(number: int, value: int) -> bytes:
    return _tag(number, _FIXED64) + pack("<Q", value)


@lru_cache
def _tag(number: int, kind: int) -> bytes:
    return _varint(number << 3 | kind)


@lru_cache(maxsize=4096)
def _varint(value: int) -> bytes:
    written = bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)


# --- reading -----------------------------------------------------------------------------------------------------


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message: their numbers and values. Raises ValueError."""
    at = 0
    while at < len(data):
        tag, at = _read_varint(data, at)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            value, at = _read_varint(data, at)
            yield number, value
            continue
        if kind == _BYTES:
            size, at = _read_varint(data, at)
        elif kind in (_FIXED64, 5):
            size = 8 if kind == _FIXED64 else 4
        else:
            raise ValueError(f"unknown kind of field: {kind}")
        if not number or at + size > len(data):
            raise ValueError("the message is incomplete")
        yield number, data[at : at + size]
        at += size


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 64, 7):
        if at >= len(data):
            raise ValueError("the message is incomplete")
        value |= (data[at] & 0x7F) << shift
        at += 1
        if not data[at - 1] & 0x80:
            return value, at
    raise ValueError("a number is too long")
