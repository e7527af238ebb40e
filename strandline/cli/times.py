"""Times and lengths of time as people write them."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta

import typer

_UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_LENGTH = re.compile(r"(\d+)(ms|s|m|h|d|w)", re.ASCII)
#: Longer ones are a slip of the finger, and no server takes them.
MAX_MS = (1 << 53) - 1
#: The first moment of the year 10000, which has no name in ISO 8601.
END_OF_TIME = 253_402_300_800_000


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def parse_length(text: str, option: str) -> int:
    """Milliseconds, from ``500ms``, ``30s``, ``15m``, ``1h``, ``7d`` or ``2w``. Raises BadParameter."""
    match = _LENGTH.fullmatch(text)
    length = int(match[1]) * _UNITS[match[2]] if match else -1
    if not 0 <= length <= MAX_MS:
        raise typer.BadParameter(f"{text!r} is no length of time; give it like 30s, 15m, 1h or 7d", param_hint=option)
    return length


def parse_moment(text: str, option: str, now: int | None = None) -> int:
    """Milliseconds since 1970: so long ago (``1h``), such a number, or ISO 8601. Raises BadParameter."""
    if _LENGTH.fullmatch(text):
        return max((now_ms() if now is None else now) - parse_length(text, option), 0)
    try:
        return parse_time(text, option)
    except typer.BadParameter:
        raise typer.BadParameter(
            f"{text!r} is no time; give it like 1h (ago), 2026-07-22T10:15:30Z or in milliseconds since 1970",
            param_hint=option,
        ) from None


def parse_time(text: str, option: str = "--at") -> int:
    """Milliseconds since 1970, from such a number or from ISO 8601."""
    try:
        if text.isascii() and text.isdigit():
            found = int(text)
        else:
            moment = datetime.fromisoformat(text)
            moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
            found = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
        if not 0 <= found < END_OF_TIME:
            raise ValueError
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is no time; give it like 2026-07-22T10:15:30.123Z or in milliseconds since 1970",
            param_hint=option,
        ) from None
    return found


def show_time(milliseconds: int | None) -> str:
    """ISO 8601, as all of the server's answers have it; nothing for no time."""
    if not milliseconds:
        return ""
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{milliseconds % 1000:03d}Z"


def show_length(milliseconds: int) -> str:
    """The shortest way to write it that :func:`parse_length` understands."""
    for unit in ("w", "d", "h", "m", "s"):
        if milliseconds and milliseconds % _UNITS[unit] == 0:
            return f"{milliseconds // _UNITS[unit]}{unit}"
    return f"{milliseconds}ms"
