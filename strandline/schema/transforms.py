"""Transforms: how the convert operation of a lens changes a value."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from msgspec import UNSET, Struct, UnsetType

TYPES = ("string", "number", "integer", "boolean", "null", "object", "array")


class TransformFailed(ValueError):
    """The transform has no result for this value."""


def type_of(value: Any) -> str:
    """Return the JSON type of a decoded value. A number without a fraction is an integer, however it is written."""
    if isinstance(value, str):
        return "string"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return "integer"
    if isinstance(value, float):
        return "number"
    if value is None:
        return "null"
    return "object" if isinstance(value, dict) else "array"


def has_type(value: Any, wanted: str) -> bool:
    found = type_of(value)
    return found == wanted or (wanted == "number" and found == "integer")


def text_of(value: Any) -> str | None:
    """Return the string form of a scalar, numbers as JavaScript writes them; None for objects and arrays."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    if isinstance(value, int):
        return str(value)
    return _float_text(value) if isinstance(value, float) else None


def _float_text(value: float) -> str:
    if value.is_integer() and abs(value) < 1e21:
        return str(int(value))
    if 1e-6 <= abs(value) < 1e21:
        return format(Decimal(repr(value)), "f")
    return re.sub(r"e([+-])0*", r"e\1", repr(value).removesuffix(".0"))


class ByTable(Struct, frozen=True):
    """Looks up the string form of a value."""

    table: Mapping[str, Any]
    default: Any | UnsetType = UNSET

    @property
    def total(self) -> bool:
        return self.default is not UNSET

    def __call__(self, value: Any) -> Any:
        text = text_of(value)
        result = self.default if text is None else self.table.get(text, self.default)
        if result is UNSET:
            raise TransformFailed("the map has no entry for the value")
        return result

    def results(self) -> list[Any]:
        """Return all possible results."""
        return [*self.table.values(), *([] if self.default is UNSET else [self.default])]


class Builtin(Struct, frozen=True):
    """A named transform. ``takes`` and ``gives`` are types; one that is not ``total`` fails for some values of the type
    it takes."""

    name: str
    takes: str
    gives: str
    total: bool
    function: Callable[[Any], Any]

    def __call__(self, value: Any) -> Any:
        if not has_type(value, self.takes):
            raise TransformFailed(f"{self.name} needs {self.takes}")
        try:
            return self.function(value)
        except ValueError:
            raise TransformFailed(f"{self.name} cannot convert the value") from None


Transform = ByTable | Builtin

_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_RFC3339 = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})[Tt](\d{2}):(\d{2}):(\d{2})(?:\.(\d+))?(?:[Zz]|([+-])(\d{2}):(\d{2}))", re.ASCII
)
_MONTH_DAYS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_DAY_MS = 86_400_000


def _string_to_int(text: str) -> int:
    if _INTEGER.fullmatch(text) is None:
        raise ValueError
    return int(text)


def _rfc3339_to_unix_millis(text: str) -> int:
    match = _RFC3339.fullmatch(text)
    if match is None:
        raise ValueError
    year, month, day, hour, minute, second = (int(part) for part in match.groups()[:6])
    fraction, sign, zone_hours, zone_minutes = match.groups()[6:]
    if not 1 <= month <= 12 or not 1 <= day <= _MONTH_DAYS[month - 1] or hour > 23 or minute > 59 or second > 59:
        raise ValueError
    if (month, day) == (2, 29) and (year % 4 or (year % 100 == 0 and year % 400)):
        raise ValueError
    milliseconds = _days_since_1970(year, month, day) * _DAY_MS + ((hour * 60 + minute) * 60 + second) * 1000
    milliseconds += int((fraction or "0").ljust(3, "0")[:3])
    if sign is not None:
        if int(zone_hours) > 23 or int(zone_minutes) > 59:
            raise ValueError
        shift = (int(zone_hours) * 60 + int(zone_minutes)) * 60_000
        milliseconds += shift if sign == "-" else -shift
    return milliseconds


def _unix_millis_to_rfc3339(value: float) -> str:
    """Years with more than four digits have a sign and six digits, so that every number has a text."""
    days, within = divmod(int(value), _DAY_MS)
    year, month, day = _date_of(days)
    seconds, milliseconds = divmod(within, 1000)
    year_text = f"{year:04d}" if 0 <= year <= 9999 else f"{year:+07d}"
    clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{year_text}-{month:02d}-{day:02d}T{clock}.{milliseconds:03d}Z"


# Calendar arithmetic, because datetime only supports the years 1 to 9999. Years start in March here, so that the leap
# day is the last of its year; an era is 400 years, or 146,097 days.


def _days_since_1970(year: int, month: int, day: int) -> int:
    year -= month <= 2
    era, year_of_era = divmod(year, 400)
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146_097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719_468


def _date_of(days: int) -> tuple[int, int, int]:
    era, day_of_era = divmod(days + 719_468, 146_097)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * day_of_year + 2) // 153
    month = (shifted + 2) % 12 + 1
    return era * 400 + year_of_era + (month <= 2), month, day_of_year - (153 * shifted + 2) // 5 + 1


BUILTINS = {
    builtin.name: builtin
    for builtin in (
        Builtin("lowercase", "string", "string", True, str.lower),
        Builtin("uppercase", "string", "string", True, str.upper),
        Builtin("string_to_int", "string", "integer", False, _string_to_int),
        Builtin("int_to_string", "integer", "string", True, lambda value: str(int(value))),
        Builtin("rfc3339_to_unix_millis", "string", "integer", False, _rfc3339_to_unix_millis),
        Builtin("unix_millis_to_rfc3339", "number", "string", True, _unix_millis_to_rfc3339),
    )
}
