"""Turns rows into records, and checks everything that the target log would refuse."""

from __future__ import annotations

from base64 import b64decode
from datetime import UTC, date, datetime
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from strandline.engine.errors import BadName
from strandline.engine.record import MAX_KEY_BYTES, MAX_NODE_BYTES, MAX_RECORD_BYTES, MAX_TIME, check_name, is_internal
from strandline.pipeline.imports.files import RowShape
from strandline.query.pointers import parse_pointer, resolve

#: Staged records. ``row`` is the number of the record in its part, ascending.
STAGED = pa.schema(
    [
        pa.field("log", pa.string(), nullable=False),
        pa.field("row", pa.int64(), nullable=False),
        pa.field("ts", pa.int64()),
        pa.field("key", pa.string()),
        pa.field("node", pa.string()),
        pa.field("meta", pa.binary()),
        pa.field("data", pa.binary(), nullable=False),
    ]
)

_raw = msgspec.json.Decoder(msgspec.Raw).decode
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_value = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder(decimal_format="number", enc_hook=str).encode
_NOT_JSON = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class BadRow(Exception):
    """A row that cannot become a record. The message gives the reason."""


class NewRecord(NamedTuple):
    log: str
    ts: int | None
    key: str | None
    node: str | None
    meta: bytes | None
    data: bytes


class _ExportedLine(msgspec.Struct):
    """A line of exported JSON."""

    log: str
    ts: str
    key: str | None = None
    node: str | None = None
    meta: msgspec.Raw = msgspec.Raw()
    meta_text: str | None = None
    meta_bytes: bytes | None = None
    data: msgspec.Raw = msgspec.Raw()
    text: str | None = None
    other: bytes | None = msgspec.field(default=None, name="bytes")


_exported_line = msgspec.json.Decoder(_ExportedLine).decode


class Making:
    """Turns rows into records. All methods raise BadRow."""

    def __init__(self, shape: RowShape) -> None:
        self._shape = shape
        self._not_json = frozenset(shape.not_json)
        self._key_path = None if shape.key_path is None else parse_pointer(shape.key_path)

    def of_line(self, line: bytes) -> NewRecord:
        """The record of a line of JSON."""
        shape = self._shape
        if shape.exported:
            return self._of_exported_line(line)
        if not shape.columns:
            return self.checked(shape.log, None, None, None, None, _json(line))
        try:
            line.decode()
            fields = _fields(line)
            wanted = [name for name in shape.columns if name in fields and name != shape.data_column]
            values = {name: _value(fields[name]) for name in wanted}
        except _NOT_JSON as error:
            raise BadRow(f"not a JSON object: {error}") from None
        data = line
        if shape.data_column is not None:
            if shape.data_column not in fields:
                raise BadRow(f"missing field {shape.data_column!r}")
            data = bytes(fields[shape.data_column])
        return self._of_values(values, data)

    def _of_exported_line(self, line: bytes) -> NewRecord:
        try:
            line.decode()
            found = _exported_line(line)
        except _NOT_JSON as error:
            raise BadRow(f"not a line of an export: {error}") from None
        return self._of_exported(
            found.log,
            found.ts,
            found.key,
            found.node,
            _one_of(bytes(found.meta) or None, found.meta_text, found.meta_bytes),
            _one_of(bytes(found.data) or None, found.text, found.other),
        )

    def of_row(self, row: dict[str, Any]) -> NewRecord:
        """The record of a row of a table."""
        shape = self._shape
        if shape.exported:
            missing = {"log", "ts", "data"} - row.keys()
            if missing:
                raise BadRow(f"not a row of an export: missing {', '.join(sorted(missing))}")
            meta = _one_of(None, row.get("meta"), _bytes(row.get("meta_bytes")))
            data = _one_of(None, row["data"], _bytes(row.get("bytes")))
            return self._of_exported(row["log"], row["ts"], row.get("key"), row.get("node"), meta, data)
        if shape.data_column is not None:
            if row.get(shape.data_column) is None:
                raise BadRow(f"missing value in {shape.data_column!r}")
            return self._of_values(row, _payload(row[shape.data_column]))
        return self._of_values(row, _encode({name: value for name, value in row.items() if value is not None}))

    def _of_exported(self, log: Any, ts: Any, key: Any, node: Any, meta: bytes | None, data: bytes | None) -> NewRecord:
        if data is None:
            raise BadRow("missing data")
        time = milliseconds_of(ts) if self._shape.keep_ts else None
        return self.checked(self._shape.log or _log(log), time, key, node, meta, data)

    def _of_values(self, values: dict[str, Any], data: bytes) -> NewRecord:
        shape = self._shape
        log = shape.log if shape.log_column is None else _log(values.get(shape.log_column))
        ts = None if shape.ts_column is None else milliseconds_of(values.get(shape.ts_column))
        key = None if shape.key_column is None else _text("key", values.get(shape.key_column))
        node = None if shape.node_column is None else _text("node", values.get(shape.node_column))
        meta = None if shape.meta_column is None else _meta(values.get(shape.meta_column))
        return self.checked(log, ts, key, node, meta, data)

    def checked(
        self, log: str, ts: int | None, key: str | None, node: str | None, meta: bytes | None, data: bytes
    ) -> NewRecord:
        """A record of these parts, if a log accepts it."""
        if log not in self._not_json:
            data = _json(data)
        if self._key_path is not None:
            key = _key_at(data, self._key_path)
        if meta is not None:
            meta = _json(meta, "meta is not valid JSON")
        _check_length("key", key, MAX_KEY_BYTES)
        _check_length("node", node, MAX_NODE_BYTES)
        size = len(data) + len(meta or b"")
        if size > MAX_RECORD_BYTES:
            raise BadRow(f"the record has {size} bytes; the maximum is {MAX_RECORD_BYTES}")
        return NewRecord(log, ts, key, node, meta, data)


def _json(data: bytes, what: str = "not valid JSON") -> bytes:
    """The value without surrounding white space."""
    try:
        if not data.isascii():
            data.decode()
        return bytes(_raw(data))
    except _NOT_JSON as error:
        raise BadRow(f"{what}: {error}") from None


def _key_at(data: bytes, path: tuple[str, ...]) -> str | None:
    try:
        found = resolve(_value(data), path)
    except _NOT_JSON as error:
        raise BadRow(f"cannot take the key from data that is not valid JSON: {error}") from None
    return None if found is msgspec.UNSET else _text("key", found)


def _one_of(json: bytes | None, text: str | None, other: bytes | None) -> bytes | None:
    if other is not None:
        return other
    return json if text is None else text.encode()


def _bytes(value: Any) -> bytes | None:
    """Bytes, from bytes or from base64."""
    if value is None or isinstance(value, bytes):
        return value
    try:
        return b64decode(value, validate=True)
    except ValueError:
        raise BadRow("invalid base64") from None


def _payload(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else _encode(value)


def _meta(value: Any) -> bytes | None:
    if value is None:
        return None
    return _payload(value)


def _text(what: str, value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise BadRow(f"the {what} must be text or an integer, got {type(value).__name__}")


def _check_length(what: str, value: str | None, limit: int) -> None:
    if value is not None and len(value) * 4 > limit and len(value.encode()) > limit:
        raise BadRow(f"the {what} has more than {limit} bytes")


def _log(value: Any) -> str:
    try:
        name = check_name(value)
    except BadName as error:
        raise BadRow(f"invalid log name: {error}") from None
    if is_internal(name):
        raise BadRow(f"{name!r} is reserved for internal logs of the server")
    return name


def milliseconds_of(value: Any) -> int:
    """Milliseconds, from a number, from ISO 8601 text, or from a timestamp of a table."""
    time: int | None = None
    if isinstance(value, int) and not isinstance(value, bool):
        time = value
    elif isinstance(value, str):
        time = _time_of_text(value)
    elif isinstance(value, datetime):
        time = _milliseconds(value)
    elif isinstance(value, date):
        time = _milliseconds(datetime(value.year, value.month, value.day))
    if time is None or not 0 <= time <= MAX_TIME:
        raise BadRow(f"invalid time {value!r}: expected milliseconds since 1970 or ISO 8601")
    return time


def _time_of_text(text: str) -> int | None:
    if text.isascii() and text.isdigit() and len(text) < 19:
        return int(text)
    try:
        return _milliseconds(datetime.fromisoformat(text))
    except ValueError:
        return None


def _milliseconds(moment: datetime) -> int:
    """A time without a zone counts as UTC."""
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    passed = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (passed.days * 86_400 + passed.seconds) * 1000 + passed.microseconds // 1000
