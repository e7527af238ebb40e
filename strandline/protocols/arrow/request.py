"""What a request says, beside its body."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from strandline.engine.record import MAX_TIME
from strandline.protocols.arrow.errors import invalid
from strandline.protocols.http import Call, Refusal
from strandline.protocols.streams.grammar import parse_rfc3339, unescape

_NUMBER = re.compile(r"[0-9]{1,19}", re.ASCII)
MAX_SEQ = (1 << 63) - 1


def name_of(call: Call) -> str:
    """The log that the path names."""
    try:
        unescape(call.head.path)
    except Refusal as refusal:
        raise invalid(refusal.message) from None
    name = call.param("name")
    if not name:
        raise invalid("the name of the log is missing")
    return name


def number(call: Call, name: str, default: int | None = None, low: int = 0, high: int = MAX_SEQ) -> int | None:
    text = call.query.get(name)
    if text is None:
        return default
    if _NUMBER.fullmatch(text) is None or not low <= int(text) <= high:
        raise invalid(f"{name} must be a whole number from {low} to {high}, not {text!r}")
    return int(text)


def moment(call: Call, name: str) -> int | None:
    """A time in milliseconds, or by RFC 3339."""
    text = call.query.get(name)
    if text is None:
        return None
    if _NUMBER.fullmatch(text) is not None:
        milliseconds: int | None = int(text)
    else:
        # A plus sign in a query string is a space.
        milliseconds = parse_rfc3339(text.replace(" ", "+"))
    if milliseconds is None or not 0 <= milliseconds <= MAX_TIME:
        raise invalid(f"{name} must be a time in milliseconds since 1970 or by RFC 3339, not {text!r}")
    return milliseconds


def choice(call: Call, name: str, *choices: str) -> str | None:
    text = call.query.get(name)
    if text is None or text in choices:
        return text
    raise invalid(f"{name} must be {' or '.join(choices)}, not {text!r}")


def json_header(call: Call, name: str) -> Any:
    """A header that is a JSON object; None if it is not there."""
    raw = call.head.headers.get(name.lower().encode())
    if raw is None:
        return None
    try:
        return msgspec.json.decode(raw, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise invalid(f"the header {name} must be a JSON object: {error}") from None
