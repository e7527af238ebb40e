"""Records as they are in exported files, in whatever format. They say everything there is to say, so that what was
exported can be imported again and be the same."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

#: ``data`` is the payload if it is text, ``bytes`` if it is not; likewise ``meta`` and ``meta_bytes``.
EXPORTED = pa.schema(
    [
        pa.field("log", pa.string(), nullable=False),
        pa.field("epoch", pa.int64(), nullable=False),
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("ts", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("key", pa.string()),
        pa.field("node", pa.string()),
        pa.field("meta", pa.string()),
        pa.field("meta_bytes", pa.binary()),
        pa.field("data", pa.string()),
        pa.field("bytes", pa.binary()),
    ]
)
#: The same for formats that have nothing but text and numbers; bytes are in base64.
AS_TEXT = pa.schema(
    [field if pa.types.is_integer(field.type) else pa.field(field.name, pa.string()) for field in EXPORTED]
)

_decode = msgspec.json.Decoder(msgspec.Raw).decode
_encode = msgspec.json.Encoder().encode


def exported(batch: Any) -> Any:
    """Records of the history, or of the lake, as they are exported."""
    columns = {name: batch.column(name) for name in ("log", "epoch", "seq", "ts", "key", "node")}
    columns["ts"] = columns["ts"].cast(EXPORTED.field("ts").type)
    columns["meta"], columns["meta_bytes"] = _split(batch.column("meta"))
    if "bytes" in batch.schema.names:
        columns["data"], columns["bytes"] = batch.column("data"), batch.column("bytes")
    else:
        columns["data"], columns["bytes"] = _split(batch.column("data"))
    return pa.record_batch([columns[name] for name in EXPORTED.names], schema=EXPORTED)


def _split(values: Any) -> tuple[Any, Any]:
    """Bytes as text where they are such, and as they are where they are not."""
    try:
        return values.cast(pa.string()), pa.nulls(len(values), pa.binary())
    except pa.ArrowInvalid:
        rows = values.to_pylist()
        texts = [_text(row) for row in rows]
        others = [row if text is None else None for row, text in zip(rows, texts, strict=True)]
        return pa.array(texts, pa.string()), pa.array(others, pa.binary())


def _text(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def as_text(batch: Any) -> Any:
    """What is neither text nor a number, as text."""
    columns = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if name == "ts":
            column = _times(column)
        elif pa.types.is_binary(column.type):
            encoded = [None if value is None else b64encode(value).decode() for value in column.to_pylist()]
            column = pa.array(encoded, pa.string())
        columns.append(column)
    return pa.record_batch(columns, schema=AS_TEXT)


def as_lines(batch: Any) -> bytes:
    """A JSON object in a line for each record. What is JSON stands there as it is: ``data``, ``meta``. Text that is no
    JSON, or would take several lines, is ``text`` and ``meta_text``; bytes are ``bytes`` and ``meta_bytes``, in base64.
    """
    times = _times(batch.column("ts")).to_pylist()
    lines = []
    names = ("log", "epoch", "seq", "key", "node", "meta", "meta_bytes", "data", "bytes")
    for time, *row in zip(times, *(batch.column(name).to_pylist() for name in names), strict=True):
        log, epoch, seq, key, node, meta, meta_bytes, data, other = row
        line: dict[str, Any] = {"log": log, "epoch": epoch, "seq": seq, "ts": time}
        if key is not None:
            line["key"] = key
        if node is not None:
            line["node"] = node
        _add(line, "meta", "meta_text", "meta_bytes", meta, meta_bytes)
        _add(line, "data", "text", "bytes", data, other)
        lines.append(_encode(line))
    return b"\n".join(lines) + b"\n" if lines else b""


def _times(column: Any) -> Any:
    """By ISO 8601, to the millisecond."""
    return pc.strftime(column.cast(pa.timestamp("ms")), "%Y-%m-%dT%H:%M:%SZ")


def _add(line: dict[str, Any], json: str, text: str, other: str, value: str | None, bytes_: bytes | None) -> None:
    if bytes_ is not None:
        line[other] = bytes_
    elif value is not None:
        raw = value.encode()
        if _is_one_line_of_json(raw):
            line[json] = msgspec.Raw(raw)
        else:
            line[text] = value


def _is_one_line_of_json(raw: bytes) -> bool:
    if b"\n" in raw or b"\r" in raw:
        return False
    try:
        return len(bytes(_decode(raw))) == len(raw)
    except (msgspec.MsgspecError, RecursionError):
        return False
