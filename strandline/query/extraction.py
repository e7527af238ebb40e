"""Extract columns from payloads. The result equals that of :func:`strandline.query.values.values_of`, record by
record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from strandline.arrow import pa, pc
from strandline.query.columns import (
    DTYPES,
    AnyColumn,
    HistogramColumn,
    KeywordColumn,
    Mask,
    NumberColumn,
    Rows,
    TokenColumn,
    encode_words,
)
from strandline.query.config import Field
from strandline.query.payloads import (
    Payloads,
    UnreadablePayload,
    decode,
    object_rows,
    text_buffers,
    tokenise,
    tokenise_each,
)
from strandline.query.pointers import parse_pointer, resolve
from strandline.query.values import EARLIEST_DATE, LATEST_DATE, Value, converter, scalars, values_of

#: The positions of the separators in "2026-03-25T10:18:23.123Z", in quotes; all other characters are digits.
_SHORT = {0: '"', 5: "-", 8: "-", 11: "T", 14: ":", 17: ":", 20: "Z", 21: '"'}
_LONG = {0: '"', 5: "-", 8: "-", 11: "T", 14: ":", 17: ":", 20: ".", 24: "Z", 25: '"'}
_DAYS_IN_MONTH = np.array([0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])

Int64s = npt.NDArray[np.int64]


def parse_moments(texts: Any) -> tuple[Int64s, Mask]:
    """Parse an Arrow array of JSON texts. Return the milliseconds since 1970, and which of the texts have this form.
    The others may still be valid times."""
    milliseconds = np.zeros(len(texts), np.int64)
    known = np.zeros(len(texts), np.bool_)
    lengths = np.diff(text_buffers(texts)[0])
    for length, form in ((22, _SHORT), (26, _LONG)):
        chosen = lengths == length
        if chosen.any():
            _, raw = text_buffers(texts if chosen.all() else texts.filter(pa.array(chosen)))
            milliseconds[chosen], known[chosen] = _parse(np.ascontiguousarray(raw.reshape(-1, length).T), form)
    return milliseconds, known


def _parse(signs: npt.NDArray[np.uint8], form: dict[int, str]) -> tuple[Int64s, Mask]:
    """Parse texts of one form. ``signs`` has the characters at the first position of each text, at the second, and so
    on."""
    right = np.ones(signs.shape[1], np.bool_)
    digits = signs - np.uint8(48)
    for place in range(len(signs)):
        right &= signs[place] == ord(form[place]) if place in form else digits[place] < 10

    def number(first: int, last: int) -> Int64s:
        value: Int64s = digits[first].astype(np.int64)
        for place in range(first + 1, last):
            value = value * 10 + digits[place]
        return value

    year, month, day = number(1, 5), number(6, 8), number(9, 11)
    hour, minute, second = number(12, 14), number(15, 17), number(18, 20)
    right &= (year >= 1) & (month >= 1) & (month <= 12) & (day >= 1)
    right &= (hour <= 23) & (minute <= 59) & (second <= 59)
    right &= day <= _DAYS_IN_MONTH[np.clip(month, 0, 12)]
    leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    right &= (month != 2) | (day <= 28) | leap
    seconds = ((_days(year, month, day) * 24 + hour) * 60 + minute) * 60 + second
    fraction = number(21, 24) if form is _LONG else 0
    return seconds * 1000 + fraction, right


def _days(year: Int64s, month: Int64s, day: Int64s) -> Int64s:
    """Return days since 1970-01-01 in the Gregorian calendar, computed with years that begin in March."""
    year = year - (month <= 2)
    era = year // 400
    year_of_era = year - era * 400
    day_of_year = (153 * (month + np.where(month > 2, -3, 9)) + 2) // 5 + day - 1
    days: Int64s = era * 146097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719468
    return days


#: Fewer payloads than this are read one by one, because arrays do not pay off.
BULK_ROWS = 64
#: The number of decimal digits that always fit into 64 bits.
_DIGITS = 18

_QUOTE, _BRACKET, _MINUS, _TRUE, _FALSE = b'"[-tf'
_FRACTION = bytes(code in b".eE" for code in range(256))


class Extracted(NamedTuple):
    """``rows`` are the payloads that are JSON objects. The columns cover only these."""

    rows: list[int]
    columns: dict[str, AnyColumn]


class ExtractedValues(NamedTuple):
    """Values read in bulk: ``values`` has one for each of ``rows``. The rows in ``left`` must be read one by one."""

    rows: npt.NDArray[np.int64]
    values: Any
    left: npt.NDArray[np.int64]


class Extractor:
    """Reads ``fields`` from payloads, and histograms at the pointers ``histograms``. Thread-safe."""

    def __init__(self, fields: Sequence[Field], histograms: Sequence[str] = ()) -> None:
        self._fields = fields
        self._histograms = histograms

    def extract(self, data: Sequence[bytes], version: int) -> Extracted:
        """Return the columns of these payloads, which all have this schema version."""
        rows = object_rows(data)
        if len(rows) < len(data):
            data = [data[row] for row in rows]
        if len(data) >= BULK_ROWS:
            try:
                return Extracted(rows, self._in_bulk(data, version))
            except (UnreadablePayload, pa.ArrowInvalid):
                # Some payload is not JSON or not text. Find out which.
                pass
        return self._one_by_one(rows, data, version)

    def _one_by_one(self, rows: list[int], data: Sequence[bytes], version: int) -> Extracted:
        kept, documents = [], []
        for row, payload in zip(rows, data, strict=True):
            try:
                documents.append(decode(payload))
                kept.append(row)
            except (msgspec.DecodeError, ValueError, RecursionError):
                pass
        columns = {
            field.name: column_of(field, [values_of(field, document, version) for document in documents])
            for field in self._fields
        }
        for pointer in self._histograms:
            segments = parse_pointer(pointer)
            columns[pointer] = histogram_column([resolve(document, segments) for document in documents])
        return Extracted(kept, columns)

    def _in_bulk(self, data: Sequence[bytes], version: int) -> dict[str, AnyColumn]:
        bindings = {field.name: field.binding(version) for field in self._fields}
        pointers = [binding.pointer for binding in bindings.values() if binding is not None]
        payloads = Payloads(data, [*pointers, *self._histograms])
        columns: dict[str, AnyColumn] = {}
        for field in self._fields:
            binding = bindings[field.name]
            if binding is None:
                columns[field.name] = column_of(field, [[]] * len(data))
            elif binding.pointer not in payloads.values:
                columns[field.name] = column_of(field, [values_of(field, decode(each), version) for each in data])
            else:
                columns[field.name] = read_column(field, payloads.values[binding.pointer])
        for pointer in self._histograms:
            columns[pointer] = self._histogram(pointer, payloads, data)
        return columns

    def _histogram(self, pointer: str, payloads: Payloads, data: Sequence[bytes]) -> HistogramColumn:
        segments, texts = parse_pointer(pointer), payloads.values.get(pointer)
        if texts is None:
            return histogram_column([resolve(decode(payload), segments) for payload in data])
        return histogram_column([None if text is None else decode(text) for text in texts.to_pylist()])


def read_column(field: Field, values: Any) -> AnyColumn:
    """Return the column of a field whose values are given as JSON."""
    present = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
    texts = values.drop_null() if len(present) < len(values) else values
    found = READERS[field.kind](texts) if len(texts) else ExtractedValues(present, _no_values(field), present)
    others: dict[int, list[Value]] = {}
    convert = converter(field)
    for at in found.left.tolist():
        raw = scalars(decode(texts[at].as_py()))
        others[int(present[at])] = [value for each in raw if (value := convert(each)) is not None]
    rows = present[found.rows]
    if field.kind == "keyword" or field.kind == "text":
        strings, rows = _with_strings(found.values, rows, others)
        return _string_column(field, strings, _rows_or_none(rows, len(values)))
    numbers, rows = _with_numbers(found.values, rows, others)
    return NumberColumn(numbers, _rows_or_none(rows, len(values)))


def column_of(field: Field, values: Iterable[Sequence[Value]]) -> AnyColumn:
    """Return the column of records whose canonical values are known."""
    rows: list[int] = []
    flat: list[Any] = []
    total = 0
    for row, each in enumerate(values):
        total += 1
        flat += each
        rows += [row] * len(each)
    owners = _rows_or_none(np.array(rows, np.int64), total)
    if field.kind == "keyword":
        return KeywordColumn(*encode_words(_strings(flat)), owners)
    if field.kind == "text":
        return TokenColumn(*tokenise_each(flat), owners)
    return NumberColumn(_numbers(flat, DTYPES[field.kind]), owners)


def histogram_column(found: Iterable[object]) -> HistogramColumn:
    """Return the histograms of records: objects that map bucket names to numbers above 0. Anything else counts as
    missing."""
    rows, names, weights, total = [], [], [], 0
    for row, histogram in enumerate(found):
        total += 1
        if isinstance(histogram, dict):
            for name, weight in histogram.items():
                if isinstance(weight, int | float) and not isinstance(weight, bool) and weight > 0:
                    rows.append(row)
                    names.append(name)
                    weights.append(float(weight))
    owners = _rows_or_none(np.array(rows, np.int64), total)
    return HistogramColumn(*encode_words(_strings(names)), np.array(weights, np.float64), owners)


# --- reading JSON values of one kind in bulk ---------------------------------------------------------------------


def _read_strings(texts: Any) -> ExtractedValues:
    offsets, raw = text_buffers(texts)
    first = raw[offsets[:-1]]
    quoted = first == _QUOTE
    escaped = pc.match_substring(texts, "\\").to_numpy(zero_copy_only=False) if _BACKSLASH in raw else None
    left = first == _BRACKET
    plain = quoted
    if escaped is not None:
        left |= quoted & escaped
        plain = quoted & ~escaped
    rows = np.flatnonzero(plain)
    if len(rows) < len(texts):
        texts = texts.filter(pa.array(plain))
    return ExtractedValues(rows, _unquoted(texts), np.flatnonzero(left))


_BACKSLASH = np.uint8(ord("\\"))


def _unquoted(texts: Any) -> Any:
    """Remove the first and the last character of each text."""
    if not len(texts):
        return pa.array([], pa.string())
    offsets, raw = text_buffers(texts)
    kept = np.ones(len(raw), np.bool_)
    kept[offsets[:-1]] = False
    kept[offsets[1:] - 1] = False
    inner = (offsets - 2 * np.arange(len(offsets))).astype(np.int32)
    return pa.StringArray.from_buffers(len(texts), pa.py_buffer(inner), pa.py_buffer(raw[kept]))


def _whole_numbers(texts: Any) -> tuple[npt.NDArray[np.uint8], Mask, Mask]:
    """Return the first bytes, which texts are numbers, and which of these have neither a fraction nor an exponent nor
    too many digits."""
    offsets, raw = text_buffers(texts)
    first = raw[offsets[:-1]]
    number = (first - np.uint8(48) < 10) | (first == _MINUS)
    whole = number & (np.diff(offsets) <= _DIGITS)
    fractions = np.flatnonzero(np.frombuffer(raw.tobytes().translate(_FRACTION), np.bool_))
    if len(fractions):
        whole[np.searchsorted(offsets, fractions, "right") - 1] = False
    return first, number, whole


def _read_integers(texts: Any) -> ExtractedValues:
    first, number, whole = _whole_numbers(texts)
    left = (first == _QUOTE) | (first == _BRACKET) | (number & ~whole)
    return _cast(texts, whole, left, pa.int64())


def _read_floats(texts: Any) -> ExtractedValues:
    offsets, raw = text_buffers(texts)
    first = raw[offsets[:-1]]
    number = (first - np.uint8(48) < 10) | (first == _MINUS)
    found = _cast(texts, number, (first == _QUOTE) | (first == _BRACKET), pa.float64())
    finite = np.isfinite(found.values)
    return found if finite.all() else ExtractedValues(found.rows[finite], found.values[finite], found.left)


def _read_dates(texts: Any) -> ExtractedValues:
    first, number, whole = _whole_numbers(texts)
    moments, known = parse_moments(texts)
    numeric = _cast(texts, whole, whole, pa.int64())
    values = np.zeros(len(texts), np.int64)
    values[numeric.rows] = numeric.values
    inside = whole & (values >= EARLIEST_DATE) & (values <= LATEST_DATE)
    values[known] = moments[known]
    taken = inside | known
    left = ((first == _QUOTE) | (first == _BRACKET) | number) & ~taken
    return ExtractedValues(np.flatnonzero(taken), values[taken], np.flatnonzero(left))


def _read_bools(texts: Any) -> ExtractedValues:
    offsets, raw = text_buffers(texts)
    first = raw[offsets[:-1]]
    rows = np.flatnonzero((first == _TRUE) | (first == _FALSE))
    return ExtractedValues(rows, first[rows] == _TRUE, np.flatnonzero((first == _QUOTE) | (first == _BRACKET)))


def _cast(texts: Any, chosen: Mask, left: Mask, kind: Any) -> ExtractedValues:
    rows = np.flatnonzero(chosen)
    if len(rows) < len(texts):
        texts = texts.filter(pa.array(chosen))
    return ExtractedValues(rows, texts.cast(kind).to_numpy(), np.flatnonzero(left))


READERS: dict[str, Callable[[Any], ExtractedValues]] = {
    "keyword": _read_strings,
    "text": _read_strings,
    "integer": _read_integers,
    "float": _read_floats,
    "date": _read_dates,
    "bool": _read_bools,
}


# --- combining values read in bulk and values read one by one ----------------------------------------------------


def _no_values(field: Field) -> Any:
    return _strings([]) if field.kind in ("keyword", "text") else np.empty(0, DTYPES[field.kind])


def _strings(values: Sequence[Value]) -> Any:
    return pa.array(values, pa.string())


def _numbers(values: Sequence[Value], dtype: type) -> Any:
    try:
        return np.array(values, dtype)
    except OverflowError:
        numbers = np.empty(len(values), np.object_)
        numbers[:] = values
        return numbers


def _flatten(others: dict[int, list[Value]]) -> tuple[list[Value], npt.NDArray[np.int64]]:
    flat = [value for values in others.values() for value in values]
    return flat, np.array([row for row, values in others.items() for _ in values], np.int64)


def _with_strings(values: Any, rows: npt.NDArray[np.int64], others: dict[int, list[Value]]) -> tuple[Any, Any]:
    flat, flat_rows = _flatten(others)
    if not flat:
        return values, rows
    rows = np.concatenate((rows, flat_rows))
    order = np.argsort(rows, kind="stable")
    return pa.concat_arrays([values, _strings(flat)]).take(pa.array(order)), rows[order]


def _with_numbers(values: Any, rows: npt.NDArray[np.int64], others: dict[int, list[Value]]) -> tuple[Any, Any]:
    flat, flat_rows = _flatten(others)
    if not flat:
        return values, rows
    rows = np.concatenate((rows, flat_rows))
    order = np.argsort(rows, kind="stable")
    return np.concatenate((values, _numbers(flat, values.dtype.type)))[order], rows[order]


def _rows_or_none(rows: npt.NDArray[np.int64], total: int) -> Rows | None:
    """Return None if each record has exactly one value."""
    if len(rows) == total and (not total or bool((rows == np.arange(total)).all())):
        return None
    return rows.astype(np.int32)


def _string_column(field: Field, strings: Any, rows: Rows | None) -> AnyColumn:
    if field.kind == "text":
        return TokenColumn(*tokenise(strings), rows)
    codes, words = encode_words(strings)
    if field.normalizer is None or not len(words):
        return KeywordColumn(codes, words, rows)
    # Different words may become equal when normalised.
    places, normalised = encode_words(_strings([field.normalise(word) for word in words.to_pylist()]))
    return KeywordColumn(places[codes], normalised, rows)
