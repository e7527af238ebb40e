"""The small grammars of the protocol: times, durations, time to live, numbers, flags."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache

from strandline.engine.record import MAX_TIME
from strandline.protocols.streams.errors import bad_request
from strandline.service import parameters
from strandline.service.parameters import parse_rfc3339

_NUMBER = re.compile(r"0|[1-9][0-9]{0,14}", re.ASCII)
_INTEGER = re.compile(r"-?[0-9]{1,300}", re.ASCII)
_DIGITS = re.compile(r"[0-9]{1,30}", re.ASCII)
_DURATION = re.compile(r"([0-9]{1,15})(ms|s|m|h|d)?", re.ASCII)
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def number(name: str, text: str) -> int:
    """An integer without sign, point or leading zeros."""
    if _NUMBER.fullmatch(text) is None:
        raise bad_request(f"{name} must be an integer, not {text!r}")
    return int(text)


def clamped(name: str, text: str, most: int) -> int:
    """An integer; one outside of 0 to ``most`` counts as the nearest of the two."""
    if _INTEGER.fullmatch(text) is None:
        raise bad_request(f"{name} must be an integer, not {text!r}")
    return min(max(int(text), 0), most)


def ttl_seconds(text: str) -> int:
    """Seconds, or a number with a unit that is a whole number of seconds."""
    match = _DURATION.fullmatch(text.strip())
    if match is None or _NUMBER.fullmatch(match[1]) is None:
        raise bad_request(f"Stream-TTL must be a number of seconds, or a number with a unit such as 1h, not {text!r}")
    value = int(match[1]) * _UNIT_MS[match[2] or "s"]
    if value % 1000:
        raise bad_request("Stream-TTL must be a whole number of seconds")
    if value > MAX_TIME:
        raise bad_request("Stream-TTL is too large")
    return value // 1000


def duration_ms(name: str, text: str) -> int:
    """Milliseconds, or a number with a unit."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise bad_request(f"{name} must be a number of milliseconds, or a number with ms, s, m, h or d, not {text!r}")
    return min(int(match[1]) * _UNIT_MS[match[2] or "ms"], MAX_TIME)


def time_ms(name: str, text: str) -> int:
    """A time in RFC 3339, or digits: nanoseconds since 1970. Returns milliseconds."""
    text = text.strip()
    if _DIGITS.fullmatch(text) is not None:
        milliseconds = int(text) // 1_000_000
    else:
        parsed = parse_rfc3339(text)
        if parsed is None:
            raise bad_request(f"{name} must be a time in RFC 3339 or nanoseconds since 1970, not {text!r}")
        milliseconds = parsed
    if not 0 <= milliseconds <= MAX_TIME:
        raise bad_request(f"{name} must be between 1970 and 9999")
    return milliseconds


def iso(milliseconds: int) -> str:
    """A time in the format of the protocol."""
    return f"{_second(milliseconds // 1000)}.{milliseconds % 1000:03d}Z"


@lru_cache(maxsize=1024)
def _second(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}"


def is_true(value: bytes | None) -> bool:
    """Only the value ``true`` sets a flag in a header; every other value is ignored."""
    return value is not None and value.strip().lower() == b"true"


def unescape(path: str) -> str:
    """A path, or a part of one, as text."""
    try:
        return parameters.unescape(path)
    except ValueError as error:
        raise bad_request(str(error)) from None
