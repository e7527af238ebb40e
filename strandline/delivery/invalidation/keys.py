"""Keys: the things that a change can touch, as 64-bit numbers that clients derive by the same rules.

Every key is the XXH3-64 hash of a few parts, joined with NUL. In requests and answers a key is 16 hexadecimal digits.
Waits use only its lower 32 bits, so a client may get a superfluous wake-up.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any

from xxhash import xxh3_64_intdigest, xxh32_intdigest

NUL = b"\0"
ID_MASK = (1 << 32) - 1
_HEX16 = re.compile("[0-9a-f]{16}", re.ASCII)
_INTEGER = re.compile("-?[0-9]{1,100}", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

#: Touched by every change, for clients that wait on unknown templates.
ANY = xxh3_64_intdigest(b"any")
#: Touched when changes are recorded with less detail, for clients that name no templates.
COARSENED = xxh3_64_intdigest(b"coarsened")


def hexadecimal(key: int) -> str:
    """Format a key or a template id for clients."""
    return f"{key:016x}"


def parse_hexadecimal(text: str) -> int | None:
    """Parse 16 lower-case hexadecimal digits. Returns None for any other text."""
    return int(text, 16) if _HEX16.fullmatch(text) else None


def key_id(text: str) -> int:
    """The 32-bit id of a key that a client names, in any form."""
    text = text.strip().lower()
    if _HEX16.fullmatch(text):
        return int(text[8:], 16)
    return xxh32_intdigest(text.encode(errors="replace"))


@lru_cache(maxsize=4096)
def table_key(entity: str) -> int:
    """The key that every change of the entity touches."""
    return xxh3_64_intdigest(b"tbl\0" + entity.encode())


def in_order(names: Iterable[str]) -> list[str]:
    """Sort the names of fields by UTF-16 code units, as clients sort strings."""
    return sorted(names, key=lambda name: name.encode("utf-16-be", "surrogatepass"))


def template_id(entity: str, names: Iterable[str]) -> int:
    """The id of a template: a hash of the entity and the compared fields."""
    parts = [entity, *in_order(names)]
    return xxh3_64_intdigest(b"tpl\0" + NUL.join(part.encode() for part in parts))


def template_key(identifier: int) -> int:
    """The key that is touched when changed rows of the template are not recorded one by one."""
    return xxh3_64_intdigest(b"tpl\0" + identifier.to_bytes(8, "big"))


class RowKeys:
    """The keys of the rows with the same arguments in the fields of one template. ``arguments`` are encoded in the
    order of the fields and joined with NUL."""

    __slots__ = ("_field", "_membership", "_watch")

    def __init__(self, identifier: int) -> None:
        raw = identifier.to_bytes(8, "big") + NUL
        self._watch = b"key\0" + raw
        self._membership = b"mem\0" + raw
        self._field = b"fld\0" + raw

    def watch(self, arguments: bytes) -> int:
        """The key that any change of one of these rows touches."""
        return xxh3_64_intdigest(self._watch + arguments)

    def membership(self, arguments: bytes) -> int:
        """The key that is touched when a row is added or removed."""
        return xxh3_64_intdigest(self._membership + arguments)

    def field(self, name: str, arguments: bytes) -> int:
        """The key that is touched when one field of one of these rows changes."""
        return xxh3_64_intdigest(self._field + name.encode(errors="replace") + NUL + arguments)


# --- arguments -------------------------------------------------------------------------------------------------


def _string(value: Any) -> bytes | None:
    kind = type(value)
    if kind is str:
        return value.encode(errors="replace")  # type: ignore[no-any-return]
    if kind is bool:
        return b"true" if value else b"false"
    if kind is int:
        return b"%d" % value
    if kind is float:
        return _number_text(value).encode()
    return None


def _int64(value: Any) -> bytes | None:
    kind = type(value)
    if kind is int:
        return b"%d" % value
    if kind is float and value.is_integer():
        return b"%d" % int(value)
    if kind is str and _INTEGER.fullmatch(text := value.strip()):
        return b"%d" % int(text)
    return None


def _bool(value: Any) -> bytes | None:
    if type(value) is bool:
        return b"1" if value else b"0"
    return None


def _datetime(value: Any) -> bytes | None:
    kind = type(value)
    try:
        if kind is str:
            moment = datetime.fromisoformat(value.strip())
            # A time without a time zone is taken as UTC.
            moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
        elif kind is int or kind is float:
            moment = _EPOCH + timedelta(milliseconds=int(value))
        else:
            return None
    except (ValueError, OverflowError):
        return None
    return moment.replace(tzinfo=None).isoformat(timespec="milliseconds").encode() + b"Z"


def _bytes(value: Any) -> bytes | None:
    return value.encode(errors="replace") if type(value) is str else None


Encode = Callable[[Any], bytes | None]
#: Encodes a value as an argument, by the name of the encoding. None means that the value equals no argument.
ENCODINGS: dict[str, Encode] = {
    "string": _string,
    "int64": _int64,
    "bool": _bool,
    "datetime": _datetime,
    "bytes": _bytes,
}


def _number_text(value: float) -> str:
    """Format a number as ECMAScript does, because most clients convert numbers to strings that way."""
    if not value:
        return "0"
    sign, digit_tuple, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int), "JSON numbers are finite"
    digits = "".join(map(str, digit_tuple))
    point = len(digits) + exponent
    if len(digits) <= point <= 21:
        text = digits + "0" * (point - len(digits))
    elif 0 < point <= 21:
        text = f"{digits[:point]}.{digits[point:]}"
    elif -6 < point <= 0:
        text = "0." + "0" * -point + digits
    else:
        fraction = f".{digits[1:]}" if len(digits) > 1 else ""
        text = f"{digits[0]}{fraction}e{point - 1:+d}"
    return "-" + text if sign else text
