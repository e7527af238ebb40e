"""Decodes the body of an append: an Arrow stream, checked completely before it becomes a batch."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
from msgspec import Raw

from strandline.arrow import pa, pc
from strandline.engine import Batch
from strandline.protocols.arrow.errors import decompressed_too_large, not_json, record_too_large
from strandline.service.problems import Refusal, invalid

#: The most rows of one append. Each row becomes a record with entries in several indexes, even if it is empty.
MAX_ROWS = 1 << 20

#: The names of Arrow's functions that recognise the types of a column.
_TEXT = ("is_string", "is_large_string", "is_string_view")
_BYTES = ("is_binary", "is_large_binary", "is_binary_view")
#: The allowed columns and their types.
_COLUMNS = {"data": (*_TEXT, *_BYTES), "key": _TEXT, "node": _TEXT, "meta": (*_TEXT, *_BYTES)}
_VALUES = msgspec.json.Decoder(list[Raw])
_VALUE = msgspec.json.Decoder(Raw)


class Rules(msgspec.Struct, frozen=True):
    """The limits and the content type of the log that is appended to."""

    is_json: bool
    #: The most bytes of the whole decompressed body, of the data and meta of one record, and of their parts.
    max_bytes: int
    max_record_bytes: int
    max_meta_bytes: int
    max_meta_keys: int
    max_key_bytes: int
    max_node_bytes: int


def decode(body: bytes, rules: Rules) -> Batch | None:
    """The records of a body; None if it has no rows. Refuses everything that is not clearly valid."""
    try:
        table = _read(body, rules.max_bytes)
        if not table.num_rows:
            return None
        data = _values(table, "data", rules.max_bytes, pa.large_binary())
        keys = _values(table, "key", rules.max_bytes, pa.large_string())
        nodes = _values(table, "node", rules.max_bytes, pa.large_string())
        metas = _values(table, "meta", rules.max_bytes, pa.large_binary())
    except Refusal:
        raise
    except (pa.ArrowException, OSError, ValueError, struct.error) as error:
        raise invalid(f"the body is not a valid Arrow stream: {error}") from None
    assert data is not None
    return _batch(data, keys, nodes, metas, rules)


def _batch(data: Any, keys: Any, nodes: Any, metas: Any, rules: Rules) -> Batch:
    if data.null_count:
        raise invalid(f"row {_first(pc.is_null(data))}: data must not be null")
    _check_lengths("key", keys, rules.max_key_bytes)
    _check_lengths("node", nodes, rules.max_node_bytes)
    _check_lengths("meta", metas, rules.max_meta_bytes)
    _check_lengths("data", data, rules.max_record_bytes)
    rows: list[bytes] = data.to_pylist()
    if rules.is_json:
        rows = _json(rows)
    if metas is not None and metas.null_count == len(metas):
        metas = None
    if metas is not None:
        metas = [None if meta is None else _meta(row, meta, rules) for row, meta in enumerate(metas.to_pylist())]
        for row, (payload, meta) in enumerate(zip(rows, metas, strict=True)):
            if meta is not None and len(payload) + len(meta) > rules.max_record_bytes:
                raise record_too_large(row, "data and meta", len(payload) + len(meta), rules.max_record_bytes)
    return Batch(rows, _list(keys), _list(nodes), metas)


def _list(column: Any) -> list[str | None] | None:
    return None if column is None or column.null_count == len(column) else column.to_pylist()


def _read(body: bytes, limit: int) -> Any:
    size = decompressed_size(body)
    if size > limit:
        raise decompressed_too_large(size, limit)
    with pa.ipc.open_stream(body) as reader:
        _check_schema(reader.schema)
        batches = []
        rows = 0
        for batch in reader:
            # Offsets in a batch may point outside its buffers.
            batch.validate(full=True)
            rows += batch.num_rows
            if rows > MAX_ROWS:
                raise invalid(f"the body has more than {MAX_ROWS} rows")
            batches.append(batch)
        return pa.Table.from_batches(batches, reader.schema)


def _check_schema(schema: Any) -> None:
    for name in schema.names:
        if name not in _COLUMNS:
            raise invalid(f"unknown column {name!r}; the columns of records are {', '.join(_COLUMNS)}")
        if schema.names.count(name) > 1:
            raise invalid(f"column {name!r} is repeated")
        kind = schema.field(name).type
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        if not any(getattr(pa.types, fits)(kind) for fits in _COLUMNS[name]) and not pa.types.is_null(kind):
            wanted = "strings" if _COLUMNS[name] is _TEXT else "strings or binary"
            raise invalid(f"column {name!r} must be {wanted}, not {schema.field(name).type}")
    if "data" not in schema.names:
        raise invalid("the column 'data' is missing")


def _values(table: Any, name: str, limit: int, kind: Any) -> Any:
    """A column as one plain array; None if the column is missing or holds only nulls."""
    if name not in table.column_names or pa.types.is_null(table.schema.field(name).type):
        if name == "data":
            raise invalid("the column 'data' has the type null; it must be strings or binary, without nulls")
        return None
    column = table.column(name)
    # Values that are referenced more than once take more space as a plain array.
    size = sum(_written_out(chunk) for chunk in column.chunks)
    if size > limit:
        raise decompressed_too_large(size, limit)
    return column.cast(kind).combine_chunks()


def _written_out(chunk: Any) -> int:
    if pa.types.is_dictionary(chunk.type):
        values = chunk.dictionary
        lengths = pa.array(_lengths(values))
        return pc.sum(lengths.take(chunk.indices)).as_py() or 0
    return int(_lengths(chunk).sum())


def _lengths(values: Any) -> Any:
    """The bytes of each value, 0 for nulls."""
    if pa.types.is_string_view(values.type) or pa.types.is_binary_view(values.type):
        # A view is four numbers: its length and the position of its bytes.
        views = np.frombuffer(values.buffers()[1], np.int32).reshape(-1, 4) if len(values) else np.zeros((0, 4), int)
        lengths = views[values.offset : values.offset + len(values), 0].astype(np.int64)
        return np.where(values.is_valid().to_numpy(zero_copy_only=False), lengths, 0)
    return pc.binary_length(values).fill_null(0).cast(pa.int64()).to_numpy(zero_copy_only=False)


def _check_lengths(what: str, column: Any, limit: int) -> None:
    if column is None:
        return
    lengths = _lengths(column)
    if len(lengths) and lengths.max() > limit:
        row = int(np.argmax(lengths > limit))
        raise record_too_large(row, what, int(lengths[row]), limit)


def _first(mask: Any) -> int:
    return int(np.argmax(mask.to_numpy(zero_copy_only=False)))


# --- JSON ----------------------------------------------------------------------------------------------------------


def _json(rows: list[bytes]) -> list[bytes]:
    """The rows as they are, if each is valid JSON; refuses the first that is not."""
    # All rows are decoded at once, as the elements of one array. If each element is as long as its row, only commas
    # separate them, so no element spans two rows.
    together = b"[%b]" % b",".join(rows)
    try:
        if not together.isascii():
            together.decode()
        values = _VALUES.decode(together)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        values = []
    if list(map(len, values)) == list(map(len, rows)):
        return rows
    return [_value(row, payload) for row, payload in enumerate(rows)]


def _value(row: int, payload: bytes) -> bytes:
    """One JSON value, without the whitespace around it."""
    try:
        payload.decode()
        return bytes(_VALUE.decode(payload))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise not_json(row, str(error)) from None


def _meta(row: int, meta: bytes, rules: Rules) -> bytes | None:
    """The meta of a record, which is JSON whatever the log holds, since answers show it as JSON."""
    try:
        meta.decode()
        if meta.startswith(b"{"):
            keys = len(msgspec.json.decode(meta, type=dict[str, Raw]))
            if keys > rules.max_meta_keys:
                raise invalid(f"row {row}: meta has {keys} keys, the limit is {rules.max_meta_keys}")
        value = bytes(msgspec.json.decode(meta, type=Raw))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise invalid(f"row {row}: meta is not valid JSON: {error}") from None
    return None if value == b"null" else value


# --- decompressed size ---------------------------------------------------------------------------------------------

#: The types of messages that have buffers, by their number in Arrow's union of message headers.
_DICTIONARY, _RECORDS = 2, 3
#: The numbers of fields in the tables of Arrow's format.
_HEADER_TYPE, _HEADER = 1, 2
_DICTIONARY_DATA = 1
_BUFFERS, _COMPRESSION = 2, 3


def decompressed_size(body: bytes) -> int:
    """The total size of all buffers after decompression, computed from the messages alone: nothing is decompressed.
    Raises an Arrow error if the body is not a stream."""
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
        return 0  # empty, or invalid: Arrow refuses it later
    size: int = struct.unpack_from("<q", body, offset)[0]
    return length if size < 0 else size


class _Table:
    """A table of a flatbuffer. The positions of its fields are stored before it."""

    def __init__(self, buffer: memoryview, at: int) -> None:
        self._buffer = buffer
        self._at = at
        self._fields = at - struct.unpack_from("<i", buffer, at)[0]

    def _place(self, field: int) -> int | None:
        """The position of a field; None if the field has its default value."""
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
        """The elements of a vector of structs with two integers each."""
        at = self._follow(field)
        if at is None:
            return
        (count,) = struct.unpack_from("<I", self._buffer, at)
        for index in range(count):
            yield struct.unpack_from("<qq", self._buffer, at + 4 + 16 * index)
