"""Records as columns of a DataFrame."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any

import msgspec
import pyarrow as pa

from strandline.history.record_schema import RECORDS
from strandline.pipeline.source.options import Payload
from strandline.pipeline.typed_columns import PayloadColumns
from strandline.schema.registry import Registry

#: The columns of every record, whatever the payload option.
RECORD_COLUMNS = ("log", "epoch", "seq", "ts", "key", "node", "meta")
_SPARK_TYPES = {
    "log": "string", "epoch": "long", "seq": "long", "ts": "timestamp", "key": "string", "node": "string",
    "meta": "string", "data": "string",
}  # fmt: skip


class NoColumns(ValueError):
    """A log whose payloads cannot be read as columns, or have other columns than the rest."""


def frame_schema(payload: Payload, columns: Any = None) -> Any:
    """The schema of a DataFrame. ``columns`` is the Arrow schema of the payloads, if they become columns."""
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import StructField, StructType, VariantType, _parse_datatype_json_string

    kinds: dict[str, Any] = {name: _parse_datatype_json_string(f'"{kind}"') for name, kind in _SPARK_TYPES.items()}
    if payload == "bytes":
        kinds["meta"] = kinds["data"] = _parse_datatype_json_string('"binary"')
    elif payload == "variant":
        kinds["data"] = VariantType()
    fields = [StructField(name, kinds[name]) for name in RECORD_COLUMNS]
    if columns is None:
        return StructType([*fields, StructField("data", kinds["data"])])
    return StructType([*fields, *from_arrow_schema(columns).fields])


def payload_columns(log: str, registry: bytes | None) -> PayloadColumns:
    """Raises NoColumns."""
    loaded = None if registry is None else Registry.load(registry)
    if loaded is None or not loaded.current_version:
        raise NoColumns(
            f"payload=columns needs a schema, and log {log!r} has none: use payload=string or payload=variant"
        )
    return PayloadColumns(loaded, RECORD_COLUMNS)


def fetched_columns(schema: Any) -> tuple[str, ...]:
    """The columns of ``RECORDS`` that a DataFrame needs. Typed columns come from the payload."""
    names = set(schema.names)
    typed = not names <= set(RECORDS.names)
    return tuple(name for name in RECORDS.names if name == "seq" or name in names or (typed and name == "data"))


def chosen(schema: Any, names: Sequence[str] | None) -> Any:
    """The columns with these names, in this order. Raises NoColumns."""
    if names is None:
        return schema
    from pyspark.sql.types import StructType

    unknown = [name for name in names if name not in schema.names]
    if unknown:
        raise NoColumns(f"columns: unknown column {unknown[0]!r}; available are {', '.join(schema.names)}")
    return StructType([schema[name] for name in names])


def shaper(payload: Payload, schema: Any, registry: bytes | None = None, log: str = "") -> Callable[[Any], Any]:
    """A function that turns batches of one log's ``RECORDS`` into batches with the Arrow form of ``schema``."""
    from pyspark.sql.pandas.types import to_arrow_schema

    target = to_arrow_schema(schema, timezone="UTC")
    columns = payload_columns(log, registry) if payload == "columns" else None

    def shape(batch: Any) -> Any:
        arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
        if "data" not in arrays:
            pass
        elif columns is not None:
            found = columns.arrays(arrays["seq"].to_pylist(), arrays["data"].to_pylist())
            arrays |= dict(zip(columns.schema.names, found, strict=True))
        elif payload == "variant":
            arrays["data"] = variants(arrays["data"].to_pylist(), target.field("data").type)
        elif payload == "string":
            arrays["data"] = as_text(arrays["data"])
        if payload != "bytes" and "meta" in arrays:
            arrays["meta"] = as_text(arrays["meta"])
        return pa.RecordBatch.from_arrays([_fitting(arrays, field, batch.num_rows) for field in target], schema=target)

    return shape


def _fitting(arrays: dict[str, Any], field: Any, rows: int) -> Any:
    array = arrays.get(field.name)
    if array is None:
        # The schema of the log has changed since the query started and no longer has this column.
        return pa.nulls(rows, field.type)
    return array if array.type == field.type else array.cast(field.type)


def as_text(column: Any) -> Any:
    """Bytes as text; null where they are not valid text."""
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([None if value is None else _text(value) for value in column.to_pylist()], pa.string())


def _text(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def check_schema(chosen: Any, offered: Any) -> None:
    """Check a schema that a user gives: it may only omit and reorder columns."""
    kinds = {field.name: field.dataType for field in offered.fields}
    for field in chosen.fields:
        if field.name not in kinds:
            raise NoColumns(f"unknown column {field.name!r}; available are {', '.join(kinds)}")
        if field.dataType != kinds[field.name]:
            wanted = kinds[field.name].simpleString()
            raise NoColumns(f"column {field.name!r} is {wanted}, not {field.dataType.simpleString()}")


# --- JSON as VARIANT, byte for byte like Spark's ``parse_json`` -----------------------------------------------------

#: The maximum size that Spark accepts.
MAX_BYTES = 128 << 20
_MAX_DECIMAL = 38

_NULL, _TRUE, _FALSE = b"\x00", b"\x04", b"\x08"
_DOUBLE, _DECIMAL4, _DECIMAL8, _DECIMAL16, _LONG_STRING = 7, 8, 9, 10, 16
_INTEGERS = ((1 << 7, b"\x0c", 1), (1 << 15, b"\x10", 2), (1 << 31, b"\x14", 4), (1 << 63, b"\x18", 8))
_SMALL = {number: b"\x0c" + number.to_bytes(1, "little", signed=True) for number in range(-128, 128)}


def _number(text: str) -> Decimal | float:
    if "e" in text or "E" in text:
        return float(text)
    number = Decimal(text)
    parts = number.as_tuple()
    exponent = parts.exponent
    assert isinstance(exponent, int)
    fits = len(parts.digits) <= _MAX_DECIMAL and -exponent <= _MAX_DECIMAL
    return number if fits else float(text)


_decode = msgspec.json.Decoder(float_hook=_number).decode


def variants(texts: Sequence[bytes], kind: Any) -> Any:
    """An Arrow array of variants. Invalid JSON becomes null."""
    values: list[bytes] = []
    metadata: list[bytes] = []
    missing: list[bool] = []
    for text in texts:
        try:
            value, names = variant(text)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OverflowError):
            value, names = b"", b""
        missing.append(not value)
        values.append(value)
        metadata.append(names)
    arrays = {"value": pa.array(values, pa.binary()), "metadata": pa.array(metadata, pa.binary())}
    fields = list(kind)
    return pa.StructArray.from_arrays(
        [arrays[field.name] for field in fields], fields=fields, mask=pa.array(missing, pa.bool_())
    )


def variant(text: bytes) -> tuple[bytes, bytes]:
    """The value and the metadata, which has the names of all keys."""
    if not text.isascii():
        text.decode()
    ids: dict[str, int] = {}
    value = _value(_decode(text), ids)
    if len(value) > MAX_BYTES:
        raise OverflowError
    return value, _metadata(tuple(ids))


def _value(value: Any, ids: dict[str, int]) -> bytes:
    kind = type(value)
    if kind is str:
        return _string(value)
    if kind is int:
        return _SMALL.get(value) or _integer(value)
    if kind is dict:
        return _object(value, ids)
    if kind is list:
        return _array(value, ids)
    if kind is Decimal:
        return _decimal(value)
    if value is None:
        return _NULL
    if kind is bool:
        return _TRUE if value else _FALSE
    return bytes((_DOUBLE << 2,)) + struct.pack("<d", value)


def _string(value: str) -> bytes:
    text = value.encode()
    if len(text) < 64:
        return bytes((len(text) << 2 | 1,)) + text
    return bytes((_LONG_STRING << 2,)) + len(text).to_bytes(4, "little") + text


def _integer(value: int) -> bytes:
    for bound, header, size in _INTEGERS:
        if -bound <= value < bound:
            return header + value.to_bytes(size, "little", signed=True)
    number = _number(str(value))
    return _decimal(number) if isinstance(number, Decimal) else bytes((_DOUBLE << 2,)) + struct.pack("<d", number)


def _decimal(value: Decimal) -> bytes:
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    scale = -exponent
    unscaled = int("".join(map(str, digits)))
    # Java does not count leading zeros: 0.05 has one digit, and zero has one.
    precision = len(str(unscaled))
    most = max(precision, scale)
    kind, size = (_DECIMAL4, 4) if most <= 9 else (_DECIMAL8, 8) if most <= 18 else (_DECIMAL16, 16)
    return bytes((kind << 2, scale)) + (-unscaled if sign else unscaled).to_bytes(size, "little", signed=True)


def _array(values: list[Any], ids: dict[str, int]) -> bytes:
    parts = [_value(each, ids) for each in values]
    total = sum(map(len, parts))
    width = _width(total)
    large = len(parts) > 0xFF
    header = bytes(((large << 2 | (width - 1)) << 2 | 3,)) + len(parts).to_bytes(4 if large else 1, "little")
    return b"".join((header, _offsets(parts, width), *parts))


def _object(value: dict[str, Any], ids: dict[str, int]) -> bytes:
    names = list(value)
    numbers, parts = [], []
    for name in names:
        number = ids.get(name)
        if number is None:
            number = ids[name] = len(ids)
        numbers.append(number)
        parts.append(_value(value[name], ids))
    order = _order(tuple(names))
    total = sum(map(len, parts))
    width, id_width = _width(total), _width(max(numbers, default=0))
    large = len(parts) > 0xFF
    header = bytes(((large << 4 | (id_width - 1) << 2 | (width - 1)) << 2 | 2,))
    starts = [0]
    for part in parts:
        starts.append(starts[-1] + len(part))
    return b"".join(
        (
            header,
            len(parts).to_bytes(4 if large else 1, "little"),
            _packed([numbers[place] for place in order], id_width),
            _packed([*(starts[place] for place in order), total], width),
            *parts,
        )
    )


@lru_cache(4096)
def _order(names: tuple[str, ...]) -> list[int]:
    """Java sorts keys by UTF-16 and relies on that order to find them."""
    return sorted(range(len(names)), key=lambda place: names[place].encode("utf-16-be", "surrogatepass"))


@lru_cache(4096)
def _metadata(names: tuple[str, ...]) -> bytes:
    """Cached, because the records of a log mostly have the same keys."""
    texts = [name.encode() for name in names]
    width = _width(max(sum(map(len, texts)), len(texts)))
    header = bytes((1 | (width - 1) << 6,)) + len(texts).to_bytes(width, "little")
    return b"".join((header, _offsets(texts, width), *texts))


def _width(largest: int) -> int:
    return 1 if largest <= 0xFF else 2 if largest <= 0xFFFF else 3 if largest <= 0xFFFFFF else 4


def _offsets(parts: Sequence[bytes], width: int) -> bytes:
    starts = [0]
    for part in parts:
        starts.append(starts[-1] + len(part))
    return _packed(starts, width)


def _packed(numbers: Sequence[int], width: int) -> bytes:
    return bytes(numbers) if width == 1 else b"".join(number.to_bytes(width, "little") for number in numbers)
