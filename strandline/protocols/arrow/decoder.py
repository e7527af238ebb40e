"""The body of an append: an Arrow stream, checked in every respect before it becomes a batch."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Raw

from strandline.engine import Batch
from strandline.protocols.arrow.errors import decompressed_too_large, not_json, record_too_large
from strandline.service.problems import Refusal, invalid

#: Rows of one append: each becomes a record with a place in several indexes, however little is in it.
MAX_ROWS = 1 << 20

_TEXT = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_BYTES = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)
#: The columns that there may be, and what they may be of.
_COLUMNS = {"data": (*_TEXT, *_BYTES), "key": _TEXT, "node": _TEXT, "meta": (*_TEXT, *_BYTES)}
_VALUES = msgspec.json.Decoder(list[Raw])
_VALUE = msgspec.json.Decoder(Raw)


class Rules(msgspec.Struct, frozen=True):
    """What a log takes."""

    is_json: bool
    #: Of the whole body once it is decompressed, of one record's data and meta, and of their parts.
    max_bytes: int
    max_record_bytes: int
    max_meta_bytes: int
    max_meta_keys: int
    max_key_bytes: int
    max_node_bytes: int


def decode(body: bytes, rules: Rules) -> Batch | None:
    """The records; None if there are none. Refuses everything that is not clearly right."""
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
            # What Arrow has read may refer to bytes that are not there.
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
        if not any(fits(kind) for fits in _COLUMNS[name]) and not pa.types.is_null(kind):
            wanted = "strings" if _COLUMNS[name] is _TEXT else "strings or binary"
            raise invalid(f"column {name!r} must be {wanted}, not {schema.field(name).type}")
    if "data" not in schema.names:
        raise invalid("the column 'data' is missing")


def _values(table: Any, name: str, limit: int, kind: Any) -> Any:
    """A column as one plain array; None if it is not there, or nothing is in it."""
    if name not in table.column_names or pa.types.is_null(table.schema.field(name).type):
        if name == "data":
            raise invalid("the column 'data' must not be of nulls")
        return None
    column = table.column(name)
    # Values that are referred to more than once take more room when they are written out.
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
    """The bytes of every value, 0 for nulls."""
    if pa.types.is_string_view(values.type) or pa.types.is_binary_view(values.type):
        # A view is its length and where the bytes are, in four numbers.
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
    """The same, if every one of them is JSON."""
    # All at once, as the values of an array. If each is as long as its row there is nothing between them but commas, so
    # each is its row, and not what two halves of values make together.
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
    """One value, without the blanks around it."""
    try:
        payload.decode()
        return bytes(_VALUE.decode(payload))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise not_json(row, str(error)) from None


def _meta(row: int, meta: bytes, rules: Rules) -> bytes | None:
    """A meta is JSON, whatever the log holds: that is how it is shown."""
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


# --- How large an Arrow stream is once it is decompressed, from what its messages say, before anything is decompresse

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
