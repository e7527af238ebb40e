"""How large an Arrow stream is once it is decompressed, from what its messages say, before anything is decompressed.

A message is a flatbuffer and a body of buffers. A compressed buffer begins with the size that it will have, so a small
body could ask for any amount of memory. Arrow has verified a message's flatbuffer before we see it: every offset in it
leads somewhere inside.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

#: The kinds of messages that have buffers, by their number among the headers.
_DICTIONARY, _RECORDS = 2, 3
#: Places of fields in the tables of Arrow's format.
_HEADER_TYPE, _HEADER = 1, 2
_DICTIONARY_DATA = 1
_BUFFERS, _COMPRESSION = 2, 3


def decompressed_size(body: bytes) -> int:
    """The bytes that all buffers will take. Raises an error of Arrow's for what is no stream."""
    return sum(_size(message) for message in _messages(body))


def _messages(body: bytes) -> Iterator[Any]:
    reader = pa.ipc.MessageReader.open_stream(body)
    while True:
        try:
            yield reader.read_next_message()
        except StopIteration:
            return


def _size(message: Any) -> int:
    metadata, body = memoryview(message.metadata), memoryview(message.body)
    root = _Table(metadata, struct.unpack_from("<I", metadata, 0)[0])
    kind = root.byte(_HEADER_TYPE)
    table = root.table(_HEADER)
    if table is not None and kind == _DICTIONARY:
        table = table.table(_DICTIONARY_DATA)
    if table is None or kind not in (_DICTIONARY, _RECORDS) or table.table(_COMPRESSION) is None:
        return len(body)
    return sum(_decompressed(body, offset, length) for offset, length in table.pairs(_BUFFERS))


def _decompressed(body: memoryview, offset: int, length: int) -> int:
    if length < 8 or not 0 <= offset <= len(body) - length:
        return 0  # empty, or something that Arrow will refuse
    size: int = struct.unpack_from("<q", body, offset)[0]
    return length if size < 0 else size


class _Table:
    """A table of a flatbuffer: where its fields are is written in front of it."""

    def __init__(self, buffer: memoryview, at: int) -> None:
        self._buffer = buffer
        self._at = at
        self._fields = at - struct.unpack_from("<i", buffer, at)[0]

    def _place(self, field: int) -> int | None:
        """Where a field is; None if it has its default."""
        end = struct.unpack_from("<H", self._buffer, self._fields)[0]
        entry = 4 + 2 * field
        if entry >= end:
            return None
        offset: int = struct.unpack_from("<H", self._buffer, self._fields + entry)[0]
        return self._at + offset if offset else None

    def byte(self, field: int) -> int:
        place = self._place(field)
        return 0 if place is None else self._buffer[place]

    def _follow(self, field: int) -> int | None:
        place = self._place(field)
        return None if place is None else place + struct.unpack_from("<I", self._buffer, place)[0]

    def table(self, field: int) -> _Table | None:
        at = self._follow(field)
        return None if at is None else _Table(self._buffer, at)

    def pairs(self, field: int) -> Iterator[tuple[int, int]]:
        """A vector of structs of two whole numbers."""
        at = self._follow(field)
        if at is None:
            return
        (count,) = struct.unpack_from("<I", self._buffer, at)
        for index in range(count):
            yield struct.unpack_from("<qq", self._buffer, at + 4 + 16 * index)
