"""Messages of the state protocol: on reads, their headers have the offset of the record.

A message is an object whose ``headers`` have an ``operation`` or a ``control``. Clients continue a partly applied page
from the offset of its last message. Only JSON arrays get it; records that are read as they are stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from msgspec import Raw

from strandline.protocols.streams.offsets import encode
from strandline.protocols.streams.stream import Stream

#: Only records with this text are decoded.
_MARK = b'"headers"'
_members = msgspec.json.Decoder(dict[str, Raw])
_encode = msgspec.json.Encoder().encode


def with_offsets(
    stream: Stream, seqs: Sequence[int], data: list[bytes], span: tuple[int, int] | None = None
) -> list[bytes]:
    """The records of a JSON stream, messages with their offsets.

    ``span``: these are all records after the first and up to the second seq. The stream remembers a span without
    messages, so that other readers of the same records need not look at them.
    """
    if not has_messages(stream, span):
        return data
    shown = data
    # Searching all records at once takes a third of the time.
    if _MARK in b"".join(data):
        shown = [_with_offset(record, seq) for seq, record in zip(seqs, data, strict=True)]
    if span is not None and shown == data:
        stream.without_messages = _joined(span, stream.without_messages)
    return shown


def has_messages(
    stream: Stream, span: tuple[int, int] | None, may_contain: Callable[[bytes], bool] = lambda text: True
) -> bool:
    """Whether there may be messages among the records of the span; see ``with_offsets``. ``may_contain`` tells whether
    a text is in the records."""
    if not stream.has_state_messages or (span is not None and _within(span, stream.without_messages)):
        return False
    if may_contain(_MARK):
        return True
    if span is not None:
        stream.without_messages = _joined(span, stream.without_messages)
    return False


def _with_offset(record: bytes, seq: int) -> bytes:
    if _MARK not in record:
        return record
    try:
        message = _members.decode(record)
        headers = _members.decode(message["headers"])
    except (msgspec.MsgspecError, KeyError):
        return record
    if not (_is_text(headers.get("operation")) or _is_text(headers.get("control"))):
        return record
    headers["offset"] = Raw(f'"{encode(seq)}"'.encode())
    message["headers"] = Raw(_encode(headers))
    return _encode(message)


def _is_text(value: Raw | None) -> bool:
    return value is not None and bytes(value)[:1] == b'"'


def _within(span: tuple[int, int], known: tuple[int, int]) -> bool:
    return known[0] <= span[0] and span[1] <= known[1]


def _joined(span: tuple[int, int], known: tuple[int, int]) -> tuple[int, int]:
    """Both spans as one if nothing is between them, otherwise the later one: most readers are near the end."""
    if span[0] <= known[1] and known[0] <= span[1]:
        return min(span[0], known[0]), max(span[1], known[1])
    return max(span, known)
