"""The canonical form of JSON: one text for all equivalent documents, so that it can be hashed and signed.

The text has no whitespace. Keys are sorted by code point. Strings escape only what JSON requires. Numbers are written
as ECMAScript prints doubles, whatever they looked like. A number that is too large for a double becomes null.
"""

from __future__ import annotations

import json
import re
from hashlib import sha256
from json.encoder import encode_basestring
from math import isfinite
from typing import Any, NoReturn

import msgspec

#: Writes plain data in the canonical form, an order of magnitude faster than the Python code below.
_write_plain = msgspec.json.Encoder(order="sorted").encode
_read_plain = msgspec.json.Decoder().decode
#: Matches numbers that are not plain: with a point, an exponent, or as many digits as only large numbers have. Text
#: inside of strings may also match; the slow path is then taken needlessly.
_odd_number = re.compile(rb"[:\[,]-?\d+(?:[.e]|\d{15})").search
_SURROGATE = re.compile("[\ud800-\udfff]")
#: ECMAScript writes numbers without an exponent between these powers of ten.
_LEAST_POINT, _MOST_POINT = -6, 21


class NotJson(ValueError):
    """The text is not JSON, or nested too deeply."""


class RepeatedMember(NotJson):
    """An object has two members of the same name, so two readers may disagree about what was signed."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the member {name!r} occurs twice in one object")
        self.name = name


def parse(text: bytes) -> Any:
    """Return a document as Python values. If keys are repeated, the last one counts. Raises NotJson."""
    try:
        return _read_plain(text)
    except (ValueError, RecursionError):
        # Valid JSON with unpaired surrogates or numbers too large for a double, or not JSON at all.
        pass
    try:
        # Decode here, because the JSON reader would also accept other encodings than UTF-8.
        return json.loads(text.decode(), parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise NotJson(str(error)) from None


def parse_signed(text: bytes) -> Any:
    """Parse a document that carries a signature. Raises NotJson, and RepeatedMember if an object repeats a name: one
    reader would take the first value and another the last, and the signature covers only one of them."""
    document = parse(text)
    check_members(text, document)
    return document


def check_members(text: bytes, document: Any) -> None:
    """Raise RepeatedMember if an object in ``text`` repeats a name; ``document`` is the result of ``parse``.

    Every member has one colon outside of strings. Unless the text has numeric escapes, its strings have the same colons
    as those of the canonical form, so equal counts mean that parsing dropped no member. Counting is much faster than
    reading the text again, which is only done if the counts are inconclusive.
    """
    if b"\\u" not in text:
        try:
            if text.count(b":") == _write_plain(document).count(b":"):
                return
        except (ValueError, OverflowError, RecursionError):
            pass  # unpaired surrogates, or an integer of more than 64 bits
    try:
        json.loads(text.decode(), object_pairs_hook=_members)
    except RecursionError as error:
        raise NotJson(str(error)) from None


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for name, value in pairs:
        if name in members:
            raise RepeatedMember(name)
        members[name] = value
    return members


def canonical(document: Any) -> bytes:
    """Return the canonical form of a document from ``parse``: dicts with string keys, lists, and scalars."""
    if isinstance(document, dict):
        try:
            plain = _write_plain(document)
        except (ValueError, OverflowError):
            # Unpaired surrogates, or an integer of more than 64 bits.
            return exact(document)
        if _odd_number(plain) is None:
            return plain
    return exact(document)


def digest(document: Any) -> str:
    """Return the SHA-256 of the canonical form, as hexadecimal digits."""
    return sha256(canonical(document)).hexdigest()


def exact(document: Any) -> bytes:
    """Like ``canonical``, written value by value."""
    text = _text(document)
    try:
        return text.encode()
    except UnicodeEncodeError:
        # Unpaired surrogates, which only an escape can express.
        return _SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", text).encode()


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not valid JSON")


def _text(value: Any) -> str:
    if isinstance(value, str):
        return str(encode_basestring(value))
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, (int, float)):
        return _number(value)
    if isinstance(value, list | tuple):
        return f"[{','.join(map(_text, value))}]"
    members = (f"{encode_basestring(name)}:{_text(value[name])}" for name in sorted(value))
    return f"{{{','.join(members)}}}"


def _number(value: int | float) -> str:
    if isinstance(value, int) and -(1 << 53) <= value <= 1 << 53:
        return str(value)
    try:
        double = float(value)
    except OverflowError:
        return "null"
    if not isfinite(double):
        return "null"
    if double == 0:
        return "0"
    sign = "-" if double < 0 else ""
    digits, point = _digits(abs(double))
    return sign + _written(digits, point)


def _digits(double: float) -> tuple[str, int]:
    """Return the shortest digits that identify the double, and the position of the point: 0.digits × 10^point."""
    mantissa, _, exponent = repr(double).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    point = len(whole) + int(exponent or 0) - (len(whole + fraction) - len(digits))
    return digits.rstrip("0"), point


def _written(digits: str, point: int) -> str:
    count = len(digits)
    if count <= point <= _MOST_POINT:
        return digits + "0" * (point - count)
    if 0 < point <= _MOST_POINT:
        return f"{digits[:point]}.{digits[point:]}"
    if _LEAST_POINT < point <= 0:
        return f"0.{'0' * -point}{digits}"
    exponent = point - 1
    fraction = f".{digits[1:]}" if count > 1 else ""
    return f"{digits[0]}{fraction}e{'+' if exponent > 0 else '-'}{abs(exponent)}"
