"""The parameters of a request: names in the path, the query string, and headers."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

import msgspec

from strandline.engine.record import MAX_SEQ, MAX_TIME
from strandline.service.http import Call
from strandline.service.problems import invalid

_BAD_ESCAPE = re.compile("%(?![0-9A-Fa-f]{2})")
_RFC3339 = re.compile(
    r"(\d{4}-\d{2}-\d{2})[Tt](\d{2}:\d{2}:\d{2})(?:\.(\d{1,9}))?(?:([Zz])|([+-])(\d{2}):(\d{2}))", re.ASCII
)
_NUMBER = re.compile(r"[0-9]{1,19}", re.ASCII)


def unescape(path: str) -> str:
    """A path, or a part of one, as text. Raises ValueError if it is not valid."""
    if not path.isascii():
        raise ValueError("the path has non-ASCII characters; percent-encode them")
    if "%" not in path:
        return path
    if _BAD_ESCAPE.search(path):
        raise ValueError("the path has a % that is not followed by two hexadecimal digits")
    try:
        return unquote(path, errors="strict")
    except UnicodeDecodeError:
        raise ValueError("the path is not valid UTF-8") from None


def parse_rfc3339(text: str) -> int | None:
    """Milliseconds since 1970, without fractions; None if the text is not a valid time."""
    match = _RFC3339.fullmatch(text)
    if match is None:
        return None
    day, clock, fraction, _, sign, hours, minutes = match.groups()
    try:
        moment = datetime.fromisoformat(f"{day}T{clock}+00:00")
    except ValueError:
        return None
    milliseconds = round((moment - _EPOCH).total_seconds()) * 1000 + int((fraction or "0").ljust(3, "0")[:3])
    if sign is not None:
        if int(hours) > 23 or int(minutes) > 59:
            return None
        shift = (int(hours) * 60 + int(minutes)) * 60_000
        milliseconds += shift if sign == "-" else -shift
    return milliseconds


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def name_of(call: Call) -> str:
    """The log that the path names."""
    try:
        unescape(call.head.path)
    except ValueError as error:
        raise invalid(str(error)) from None
    name = call.param("name")
    if not name:
        raise invalid("the name of the log is missing")
    return name


def number(call: Call, name: str, default: int | None = None, low: int = 0, high: int = MAX_SEQ) -> int | None:
    text = call.query.get(name)
    if text is None:
        return default
    if _NUMBER.fullmatch(text) is None or not low <= int(text) <= high:
        raise invalid(f"{name} must be an integer from {low} to {high}, not {text!r}")
    return int(text)


def moment(call: Call, name: str) -> int | None:
    """A time: milliseconds since 1970, or RFC 3339."""
    text = call.query.get(name)
    if text is None:
        return None
    if _NUMBER.fullmatch(text) is not None:
        milliseconds: int | None = int(text)
    else:
        # A plus sign in a query string decodes to a space.
        milliseconds = parse_rfc3339(text.replace(" ", "+"))
    if milliseconds is None or not 0 <= milliseconds <= MAX_TIME:
        raise invalid(f"{name} must be a time in milliseconds since 1970 or in RFC 3339, not {text!r}")
    return milliseconds


def choice(call: Call, name: str, *choices: str) -> str | None:
    text = call.query.get(name)
    if text is None or text in choices:
        return text
    raise invalid(f"{name} must be {' or '.join(choices)}, not {text!r}")


def json_header(call: Call, name: str) -> Any:
    """A header that holds a JSON object; None if it is missing."""
    raw = call.head.headers.get(name.lower().encode())
    if raw is None:
        return None
    try:
        return msgspec.json.decode(raw, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise invalid(f"the header {name} must be a JSON object: {error}") from None
