"""JSON as VARIANT, the way Spark's ``parse_json`` makes it, byte for byte.

Whole numbers take as few bytes as they need, numbers with a point are decimals as long as they fit one, and all others
are doubles. Of a key that is there twice the last one counts. Spark can make a variant in Java only; this is for the
side that reads records, so that a query gets them ready made.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any

import msgspec
import pyarrow as pa

#: What Spark takes.
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
    """An Arrow array of the variants' type; what is not JSON is null."""
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
    """The value and the metadata, which are the names of all keys."""
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
    # Java knows no leading zeros: 0.05 has one digit, and zero has one.
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
    """Java sorts by UTF-16, and finds keys by that order."""
    return sorted(range(len(names)), key=lambda place: names[place].encode("utf-16-be", "surrogatepass"))


@lru_cache(4096)
def _metadata(names: tuple[str, ...]) -> bytes:
    """Records of one log mostly have the same keys."""
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
