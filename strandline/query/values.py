"""The canonical values of a field: the form in which values are compared, indexed, counted and shown.

Keywords are normalised strings, texts are strings, integers are ints of any size, floats are finite floats, dates are
milliseconds, bools are bools. An array stands for all its scalars, at any depth. A member that is absent, null, or of
another type has no value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

from strandline.query.config import Field
from strandline.query.pointers import parse_pointer, resolve

#: JavaScript writes integers below this in full.
PLAIN_BELOW = 10**21


def plain(number: Any) -> Any:
    """Return integers without a fraction, as JavaScript writes them."""
    if isinstance(number, float) and number.is_integer() and abs(number) < PLAIN_BELOW:
        return int(number)
    return number


def power_name(exponent: int) -> str:
    """Return the name of the bucket of a log2_v1 histogram that starts at this power of two."""
    power = 1 << exponent
    return str(power) if power < PLAIN_BELOW else repr(float(power))


Value = str | int | float | bool
SCALAR = (str, int, float)
#: Converts a decoded JSON scalar to its canonical value, or None.
Converter = Callable[[Any], Value | None]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)
MILLISECONDS_PER_DAY = 86_400_000
#: The dates that can be written with a four-digit year, in ms. A number outside of this range is not a date.
EARLIEST_DATE = -62135596800000
LATEST_DATE = 253402300799999

#: Python refuses to parse longer decimal numbers, because it takes quadratic time.
INTEGER = re.compile(r"-?[0-9]{1,4300}\Z")
NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\Z")
MONTH = re.compile(r"[0-9]{4}-[0-9]{2}\Z")
MOMENT = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:[Tt ]([0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:[.,][0-9]+)?)?) ?(Z|z|[+-][0-9]{2}(?::?[0-9]{2})?)?)?\Z"
)
MAIL_DATE = re.compile(r"(?:[A-Z][a-z]{2}, )?[0-9]{1,2} [A-Z][a-z]{2} [0-9]{4} [0-9:]{5,8} (?:GMT|UTC|[+-][0-9]{4})\Z")
WORD = re.compile(r"[^\W_]+")


def values_of(field: Field, document: object, version: int) -> list[Value]:
    """Return the canonical values of ``field`` in a decoded record of this schema version, in their order in the
    record."""
    convert = converter(field)
    return [value for raw in raw_values_of(field, document, version) if (value := convert(raw)) is not None]


def raw_values_of(field: Field, document: object, version: int) -> list[str | int | float | bool]:
    """Return the scalars of ``field`` as they are in the record, whether or not they have its kind."""
    binding = field.binding(version)
    if binding is None or not isinstance(document, dict):
        return []
    return list(scalars(resolve(document, parse_pointer(binding.pointer))))


def scalars(found: object) -> list[str | int | float | bool]:
    """Return the strings, numbers and booleans of a value: the value itself, or those of an array at any depth."""
    items = items_of(found) if isinstance(found, list) else (found,)
    return [item for item in items if isinstance(item, SCALAR)]


def items_of(array: list[Any]) -> Iterable[Any]:
    """Return the items of an array, with nested arrays flattened."""
    return flattened(array) if list in map(type, array) else array


def flattened(array: list[Any]) -> Iterator[Any]:
    """Flatten without recursion, because arrays may be nested very deeply."""
    waiting = array[::-1]
    while waiting:
        item = waiting.pop()
        if isinstance(item, list):
            waiting += reversed(item)
        else:
            yield item


def parse_value(field: Field, text: str) -> Value | None:
    """Return the canonical form of a value in a query; None if it is not a valid value of this field."""
    return converter(field)(text)


def tokens(text: str) -> list[str]:
    """Return the words of a text by the analyzer unicode_word_v1: runs of letters and digits, in lower case."""
    return WORD.findall(text.lower())


def converter(field: Field) -> Converter:
    """Return the function that converts raw scalars of this field to canonical values."""
    if field.kind == "keyword" and field.normalizer == "lowercase_v1":
        return lowercase
    return CONVERTERS[field.kind]


def canonical_class(field: Field) -> type | None:
    """Return the type whose raw scalars are already canonical and need no conversion, if there is one."""
    if field.kind == "keyword" and field.normalizer == "lowercase_v1":
        return None
    return CANONICAL_CLASSES.get(field.kind)


def string(raw: Any) -> str | None:
    return raw if raw.__class__ is str else None


def lowercase(raw: Any) -> str | None:
    return raw.lower() if raw.__class__ is str else None


def integer(raw: Any) -> int | None:
    kind = raw.__class__
    if kind is int:
        return int(raw)
    if kind is float:
        return int(raw) if raw.is_integer() else None
    return int(raw) if kind is str and INTEGER.match(raw) else None


def number(raw: Any) -> float | None:
    kind = raw.__class__
    if kind is float:
        return float(raw)
    if kind is not int and not (kind is str and NUMBER.match(raw)):
        return None
    try:
        value = float(raw)
    except OverflowError:
        return None
    return value if abs(value) != float("inf") else None


def date(raw: Any) -> int | None:
    kind = raw.__class__
    if kind is str:
        return parse_date(raw)
    if kind is int or kind is float:
        return int(raw) if EARLIEST_DATE <= raw <= LATEST_DATE else None
    return None


def boolean(raw: Any) -> bool | None:
    """Accept booleans, and their names in any case."""
    if raw.__class__ is bool:
        return bool(raw)
    return TRUTHS.get(raw.strip().lower()) if raw.__class__ is str else None


TRUTHS = {"true": True, "false": False}
CONVERTERS: dict[str, Converter] = {
    "keyword": string,
    "text": string,
    "integer": integer,
    "float": number,
    "date": date,
    "bool": boolean,
}
CANONICAL_CLASSES: dict[str, type] = {"keyword": str, "text": str, "integer": int, "float": float, "bool": bool}


def parse_date(text: str) -> int | None:
    """Return the milliseconds since 1970 of a date, or None.

    Accepts RFC 3339, also with less precision (a minute, a day, a month), the dates of mail and HTTP, and decimal
    milliseconds. Without an offset, the date is in UTC. Digits beyond milliseconds are cut off.
    """
    if INTEGER.match(text):
        milliseconds = int(text)
    else:
        moment = parse_utc_moment(text) or parse_moment(text)
        if moment is None:
            return None
        since = moment - EPOCH
        milliseconds = since.days * MILLISECONDS_PER_DAY + since.seconds * 1000 + since.microseconds // 1000
    return milliseconds if EARLIEST_DATE <= milliseconds <= LATEST_DATE else None


def parse_utc_moment(text: str) -> datetime | None:
    """Parse the most common form (2026-03-25T10:00:00Z, with or without milliseconds) quickly."""
    if len(text) not in (20, 24) or text[4] != "-" or text[7] != "-" or text[10] != "T" or text[-1] != "Z":
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def parse_moment(text: str) -> datetime | None:
    parts = MOMENT.match(text)
    try:
        if parts is not None:
            day, time, offset = parts.groups()
            moment = datetime.fromisoformat(f"{day}T{time or '00:00'}{(offset or 'Z').upper()}")
        elif MONTH.match(text):
            moment = datetime.fromisoformat(f"{text}-01T00:00Z")
        elif MAIL_DATE.match(text):
            moment = parsedate_to_datetime(text)
        else:
            return None
    except (ValueError, OverflowError):
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def format_date(milliseconds: int) -> str:
    """Format a canonical date as RFC 3339 in UTC with milliseconds."""
    return (EPOCH + milliseconds * MILLISECOND).isoformat(timespec="milliseconds").replace("+00:00", "Z")
